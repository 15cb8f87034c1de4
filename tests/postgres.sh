#!/usr/bin/env bash
# PostgreSQL's programs for the tests of a history in a database, from Debian's packages if there are none. As root
# on Debian; anywhere else it says so and leaves the tests to be skipped. The tests start a server of their own.
set -euo pipefail

if command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || [ -n "${TUNER_POSTGRES:-}" ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no PostgreSQL here, and none can be installed without root and apt"
    exit 0
fi
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf # no server of the machine's own
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql

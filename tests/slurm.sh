#!/usr/bin/env bash
# Slurm's programs for the tests of `launcher: slurm`, from Debian's packages if there are none. As root on Debian;
# anywhere else it says so and leaves the tests to be skipped. The tests start daemons of their own.
set -euo pipefail

if command -v slurmctld >/dev/null || [ -x /usr/sbin/slurmctld ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no Slurm here, and none can be installed without root and apt"
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurm-wlm munge

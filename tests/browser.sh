#!/usr/bin/env bash
# A Chromium for the tests of the page, from Debian's packages if there is no browser yet. As root on Debian;
# anywhere else it says so and leaves the tests to be skipped.
set -euo pipefail

for program in "${TUNER_CHROMIUM:-}" chromium chromium-browser google-chrome-stable google-chrome chrome; do
    if [ -n "$program" ] && command -v "$program" >/dev/null; then
        exit 0
    fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no browser here, and none can be installed without root and apt"
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium

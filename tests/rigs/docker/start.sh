#!/usr/bin/env bash
# A Docker daemon for the container tests, from Debian's packages: installed if it is not there, started if
# none answers. As root on Debian or Ubuntu; anywhere else it says so and leaves the tests to be skipped.
set -euo pipefail

if docker info >/dev/null 2>&1 && command -v debootstrap >/dev/null && command -v ip >/dev/null; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no Docker daemon here, and none can be installed without root and apt"
    exit 0
fi
missing=()
command -v dockerd >/dev/null || missing+=(docker.io)
command -v docker >/dev/null || missing+=(docker.io)
command -v docker-init >/dev/null || missing+=(tini)
command -v debootstrap >/dev/null || missing+=(debootstrap)
command -v ip >/dev/null || missing+=(iproute2)
if [ ${#missing[@]} -gt 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" iptables
fi
docker info >/dev/null 2>&1 && exit 0
folder=${TUNER_DOCKER:-/tmp/tuner-docker}
mkdir -p "$folder"
nohup dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/dockerd.pid" \
    >"$folder/dockerd.log" 2>&1 &
for _ in $(seq 60); do
    docker info >/dev/null 2>&1 && exit 0
    sleep 1
done
tail -n 20 "$folder/dockerd.log"
echo "dockerd does not start, see $folder/dockerd.log"
exit 1

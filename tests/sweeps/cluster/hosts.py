"""Two hosts on this machine, joined by a cable; each has a network, a name and a /tmp/ray of its own."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.missing import missing

ENTER = (
    'echo "$0" >/proc/sys/kernel/hostname; mkdir -p /tmp/ray; mount --bind "$1" /tmp/ray; shift; exec "$@"'
)


@dataclass(frozen=True)
class Host:
    """Commands run on it as root."""

    name: str
    address: str
    space: str  # its network namespace, and one end of the cable
    tmp: Path

    def command(self, *words: str) -> list[str]:
        enter = ["unshare", "--uts", "--mount", "sh", "-c", ENTER, self.name, str(self.tmp)]
        return ["ip", "netns", "exec", self.space, *enter, *words]

    def run(self, *words: str, env: Mapping[str, str]) -> None:
        """To its end, which must be a good one."""
        subprocess.run(self.command(*words), env=env, check=True, capture_output=True, timeout=60)

    def start(self, *words: str, **options: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.command(*words), text=True, **options)

    def plug(self, *, out: bool = False) -> None:
        """The cable in, or out."""
        _ip("-n", self.space, "link", "set", self.space, "down" if out else "up")

    def processes(self) -> dict[int, str]:
        """Process id -> command line."""
        asked = subprocess.run(
            ["ip", "netns", "pids", self.space], capture_output=True, text=True, check=False
        )
        found = {}
        for pid in map(int, asked.stdout.split()):
            with suppress(psutil.NoSuchProcess):
                found[pid] = " ".join(psutil.Process(pid).cmdline())
        return found


@contextmanager
def two_hosts(tmp_path: Path) -> Iterator[Sequence[Host]]:
    """Every process on them ends with them."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        missing("two hosts on one machine need root, iproute2 and util-linux")
    hosts = [
        Host(f"host-{letter}", f"198.18.0.{n}", f"t{os.getpid()}{letter}", tmp_path / letter)
        for n, letter in enumerate("ab", 1)
    ]
    try:
        try:
            _connect(hosts)
        except subprocess.CalledProcessError as error:
            missing(f"two hosts cannot be made on this machine: {error.stderr.strip()}")
        yield hosts
    finally:
        for host in hosts:
            for pid in host.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", host.space], check=False, capture_output=True)


def _connect(hosts: Sequence[Host]) -> None:
    for host in hosts:
        host.tmp.mkdir()
        _ip("netns", "add", host.space)
    a, b = hosts
    _ip("link", "add", a.space, "netns", a.space, "type", "veth", "peer", "name", b.space, "netns", b.space)
    for host in hosts:
        _ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", host.space)
        for link in ("lo", host.space):
            _ip("-n", host.space, "link", "set", link, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

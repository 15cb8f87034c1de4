"""A Docker daemon of a test's own, so that it can be stopped without harm to anybody. Root only."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.build import rigs_root
from tests.rigs.docker import image
from tests.waiting import wait_for

BRIDGE = "tuner-test0"  # with the usual one, or with none, it would take that of the machine's daemon


class PrivateDaemon:
    """With a bridge of its own and no firewall rules: its containers use the host's network."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        paths = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        for pid_file in ("pid", "exec/containerd/containerd.pid"):  # of a killed daemon
            (self._folder / pid_file).unlink(missing_ok=True)
        command = ["dockerd", "--host", self.address, "--bridge", BRIDGE, "--iptables=false", *flags]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *(f"--{flag}={self._folder / name}" for flag, name in paths.items())],
                stdout=log,
                stderr=log,
            )
        wait_for(self.answers)

    def answers(self) -> bool:
        return self._docker("info").returncode == 0

    def load_image(self) -> None:
        self._docker("import", str(rigs_root() / image.ARCHIVE), image.NAME)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def _docker(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "DOCKER_HOST": self.address}
        return subprocess.run(["docker", *words], env=environment, capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=False)


@contextmanager
def private_daemon() -> Iterator[PrivateDaemon]:
    """One that is up and has the image; ended and forgotten with the context."""
    folder = Path(tempfile.mkdtemp(prefix="tuner-docker-"))  # a socket's path must be short
    daemon = PrivateDaemon(folder)
    try:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", "172.31.254.1/24", "dev", BRIDGE)
        daemon.start()
        daemon.load_image()
        yield daemon
    finally:
        if not daemon.answers():  # so that it ends what a killed one left
            daemon.start()
        daemon.end()
        _ip("link", "delete", BRIDGE)
        for mounted in (folder / "exec/netns/default", folder / "data"):
            subprocess.run(["umount", "--lazy", str(mounted)], capture_output=True, check=False)
        shutil.rmtree(folder)

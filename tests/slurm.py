"""A real Slurm for tests: this machine as one node, with eight CPUs to give away and four GPUs that are none.

Its daemons run as children of the test on free ports of 127.0.0.1, their files in a folder of their own.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from launchers.port import free_port
from tests.missing import missing
from tests.waiting import wait_for

NODE = "node1"
DAEMONS = ("munged", "slurmctld", "slurmd")


def needed_slurm() -> None:
    """Without its programs, and root, who may start them, the test is skipped, and fails where CI runs."""
    absent = [name for name in (*DAEMONS, "sbatch") if _program(name) is None]
    if absent:
        missing(f"no Slurm: {', '.join(absent)} not found; tests/slurm.sh installs it on Debian")
    if os.getuid():
        missing("a Slurm of its own needs root: slurmd starts jobs as their users")


@contextmanager
def slurm() -> Iterator[Mapping[str, str]]:
    """What the environment of its users says."""
    folder = Path(tempfile.mkdtemp(prefix="tuner-slurm-"))
    folder.chmod(0o755)  # munged wants everybody to reach its socket
    try:
        with ExitStack() as running:
            _configure(folder)
            key, socket = folder / "munge.key", folder / "munge.socket"
            key.write_bytes(os.urandom(128))
            key.chmod(0o400)
            here = [f"--{name}-file={folder / f'munge.{name}'}" for name in ("key", "pid", "log", "seed")]
            _start(running, folder, "munged", "--foreground", f"--socket={socket}", *here)
            wait_for(socket.exists)
            conf = str(folder / "slurm.conf")
            _start(running, folder, "slurmctld", "-D", "-f", conf)
            _start(running, folder, "slurmd", "-D", "-f", conf, "-N", NODE)
            environment = {"SLURM_CONF": conf}
            wait_for(lambda: _is_idle(environment))
            yield environment
    finally:
        shutil.rmtree(folder)


def _configure(folder: Path) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir()
    for number in range(4):
        os.mknod(folder / f"gpu{number}", stat.S_IFCHR, os.makedev(1, 3))  # another name of /dev/null
    (folder / "gres.conf").write_text(f"NodeName={NODE} Name=gpu File={folder}/gpu[0-3]\n")
    (folder / "slurm.conf").write_text(
        f"""ClusterName=tuner
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=300
GresTypes=gpu
NodeName={NODE} NodeHostname={os.uname().nodename} NodeAddr=127.0.0.1 CPUs=8 Gres=gpu:4 State=UNKNOWN
PartitionName=short Nodes={NODE} Default=YES MaxTime=60 State=UP
"""
    )


def _start(running: ExitStack, folder: Path, name: str, *options: str) -> None:
    """Ended, with a signal of its own, when `running` is closed."""
    program = _program(name)
    assert program is not None
    output = running.enter_context((folder / f"{name}.out").open("wb"))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    daemon = subprocess.Popen([program, *options], stdout=output, stderr=output, env=environment)
    running.callback(daemon.wait)
    running.callback(daemon.terminate)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def _is_idle(environment: Mapping[str, str]) -> bool:
    command = ["sinfo", "--noheader", "--format=%T"]
    asked = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    return asked.stdout.strip() == "idle"

"""NCCL as an engine has it: its release, and what its lines in a server's log mean for the server."""

from pathlib import Path

import launchers.nccl
from launchers.engines.probe import Probe
from launchers.nccl.log import cause
from launchers.nccl.rules import Version, version_of
from launchers.place import Place
from results.reasons import Reason

INSTALLED = Path(launchers.nccl.__file__).with_name("installed.py")


def nccl_version(torch: tuple[Place, str] | None) -> Version | None:
    """The release that the torch of this Python (`Engine.torch_of`) uses; None if it does not tell."""
    if torch is None:
        return None
    with Probe(*torch, INSTALLED) as probe:
        return version_of(probe.ask({"release": "nccl"}).get("release"))


def nccl_cause(log: str, *, ready: bool) -> tuple[Reason, str] | None:
    """The reason and the telling line, if NCCL ended the server; None if it did not.

    Under load an error of NCCL is a crash, unless it is known which of its variables led to it: NCCL connects
    and chooses at the first call of a kind, which may come late.
    """
    found = cause(log, {})
    if found is None:
        return None
    reason, line, variables = found
    crashed = ready and reason is Reason.NCCL_REJECTED and not variables
    return (Reason.CRASH_UNDER_LOAD if crashed else reason), line

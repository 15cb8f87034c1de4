"""What it means that a signal ended a server."""

import signal

from results.reasons import Reason


def signalled(exit_code: int, ready: bool) -> tuple[Reason, str]:
    """The reason and a sentence for a negative exit code."""
    name = signal.Signals(-exit_code).name
    if name == "SIGKILL":
        why = "killed by SIGKILL: by the kernel for lack of memory, or by somebody"
        return (Reason.SERVER_DIED if ready else Reason.START_FAILED), why
    return (Reason.CRASH_UNDER_LOAD if ready else Reason.START_FAILED), f"ended by signal {name}"

"""What NCCL's lines in a server's log mean for the server."""

from launchers.nccl.log import cause
from results.reasons import Reason


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

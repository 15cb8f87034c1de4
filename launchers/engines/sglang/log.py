"""Why an SGLang server ended: the one line that shows it, among hundreds. Pure text functions."""

import re
import signal
from collections.abc import Iterator

from launchers.engines.nccl import nccl_cause
from results.reasons import Reason

# `[2026-11-30 03:25:35 TP0] `, or only the rank in older versions.
PREFIX = re.compile(r"^\[(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*|(?:DP\d+ |PP\d+ |EP\d+ |TP\d+ ?)+)\] ")
FREE_MEMORY = re.compile(r"avail mem=([\d.]+ ?\w?B)")
EXCEPTION = re.compile(r"^(?:[\w.]+\.)?(?P<name>[A-Z]\w*(?:Error|Exception|Exit|Interrupt))(?::| at `|$)")

# In the order of precedence; the first line that matches is the root, later ones only pass it on.
MEMORY = (
    r"out of memory|OutOfMemoryError|Not enough memory|leave no GPU memory|can't allocate memory"
    r"|bad_alloc|MemoryError"
)
# What a node above the first says of its own processes, unless they were asked to end.
RANK_GONE = r"Scheduler or DataParallelController \d+ terminated with (?!0$|-15$)"
HANG = r"[Ww]atchdog timeout"
START: tuple[tuple[str, Reason], ...] = (
    (r"error: (?:unrecognized arguments|ambiguous option)", Reason.UNSUPPORTED_FLAG),
    (r"error: (?:argument|the following arguments)", Reason.CONFIG_REJECTED),
    (
        r"[Aa]ddress already in use|[Pp]ort is already in use|port at \d+ is not available",
        Reason.WRONG_SERVER,
    ),
    (r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError): ", Reason.START_FAILED),
    (
        r"Repo id must be in the form|LocalEntryNotFound|OfflineModeIsEnabled|not a valid model",
        Reason.START_FAILED,
    ),
)
# How SGLang refuses what it was configured with, as the type of the exception that reached the top.
REFUSALS = frozenset({"ValueError", "AssertionError", "NotImplementedError", "TypeError", "KeyError"})
# Exceptions that only say that another process failed before.
ECHOES = frozenset({"EOFError", "SystemExit", "KeyboardInterrupt", "BrokenPipeError", "ConnectionResetError"})
ECHO_LINES = re.compile(
    r"Rank \d+ scheduler|Initialization failed|child (?:process )?failed|scheduler.*(?:died|is dead)"
)


def cause_from_log(log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
    """The reason a server ended, and the line that shows it."""
    if line := line_with(HANG, log):
        return Reason.HANG, line
    if line := line_with(MEMORY, log):
        return (Reason.CRASH_UNDER_LOAD if ready else Reason.START_OOM), line + _free_memory(log)
    if found := nccl_cause(log, ready=ready):
        return found
    if not ready:
        for pattern, reason in START:
            if line := line_with(pattern, log):
                return reason, line
    if root := root_exception(log, ended=exit_code is not None and not ready):
        return _raised(root, ready=ready), root
    if line := line_with(RANK_GONE, log):
        return (Reason.CRASH_UNDER_LOAD if ready else Reason.START_FAILED), line
    return _unexplained(log, exit_code, ready=ready)


def line_with(pattern: str, log: str) -> str | None:
    """The first line that matches, without time and rank, but for the echo of the arguments; None without."""
    lines = (PREFIX.sub("", line).strip() for line in log.splitlines() if "server_args=" not in line)
    return next((line for line in lines if re.search(pattern, line)), None)


def root_exception(log: str, *, ended: bool) -> str | None:
    """The last line of the traceback that ended the server; None without one.

    The first process that "hit an exception" is the root: the others die of it. Without such a line only a
    server that `ended` before it was ready did so by an exception, its last: others are logged, and it goes
    on. A bare exception is shown with the code that raised it.
    """
    hit = log.find("hit an exception")
    if hit >= 0:
        return next(_exceptions(log[log.rfind("\n", 0, hit) + 1 :]), None)
    return next(reversed([*_exceptions(log)]), None) if ended else None


def _exceptions(log: str) -> Iterator[str]:
    """The exception of every chain of tracebacks; of "the direct cause of" several the last."""
    lines = [PREFIX.sub("", line).rstrip() for line in log.splitlines()]
    inside, code, found = False, "", ""
    for line in lines:
        if "Traceback (most recent call last)" in line:
            inside = True
        elif "exception:" in line and line.startswith(("The above", "During handling")):
            found = ""  # the next one passes it on with more to say
        elif inside and (match := EXCEPTION.match(line)):
            inside = False
            if match["name"] not in ECHOES and not ECHO_LINES.search(line):
                if found:
                    yield found
                found = line if ":" in line else f"{line} at `{code}`"
        elif inside and line.strip() and not set(line.strip()) <= {"^", "~"}:
            code = line.strip()
    if found:
        yield found


def _raised(line: str, *, ready: bool) -> Reason:
    if ready:
        return Reason.CRASH_UNDER_LOAD
    match = EXCEPTION.match(line)
    return Reason.CONFIG_REJECTED if match and match["name"] in REFUSALS else Reason.START_FAILED


def _free_memory(log: str) -> str:
    """The last figure of free memory that the log tells before it ended."""
    figures = FREE_MEMORY.findall(log)
    return f" ({figures[-1]} were free before)" if figures else ""


def _unexplained(log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
    told = [PREFIX.sub("", line) for line in log.splitlines() if line.strip() and "server_args=" not in line]
    last = told[-1].strip() if told else "the log is empty"
    if exit_code is None:
        return (Reason.HANG if ready else Reason.START_TIMEOUT), f"still running: {last}"
    if exit_code == -signal.SIGKILL:
        last = "killed by SIGKILL: by the kernel for lack of memory, by SGLang itself, or by somebody"
    elif exit_code < 0:
        last = f"ended by signal {signal.Signals(-exit_code).name}: {last}"
        return (Reason.CRASH_UNDER_LOAD if ready else Reason.START_FAILED), last
    return (Reason.SERVER_DIED if ready else Reason.START_FAILED), f"exit code {exit_code}: {last}"

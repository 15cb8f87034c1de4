"""What vLLM's log says: why a server ended, and what it was started with. Pure text functions."""

import json
import re
from collections.abc import Collection, Sequence

from launchers.engines.nccl import nccl_cause
from launchers.engines.signals import signalled
from results.reasons import Reason

# In front of a line, in any order and number.
PREFIXES = (
    r"\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-][\d:]+)?\s+",  # a container's time
    r"\[rank\d+\]:\s?",
    r"\([\w .:-]+? pid=\d+(?:, ip=[\d.]+)?\)\s?",  # `(EngineCore_DP0 pid=12)`, `(Worker_TP1 pid=13)`
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.]+ \[[^\]]+\]\s?",  # `ERROR 11-30 03:26:07 [a.py:9]`
)
PREFIX = re.compile(f"^(?:{'|'.join(PREFIXES)})+")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
# `torch.OutOfMemoryError: CUDA out of memory. ...`, `AssertionError`
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Failure|Exit)\b(?:: .*|:?$)")
# Exceptions that only pass on that something else failed.
ECHOES = (
    r"Engine core initialization failed",
    r"Frontend process failed",
    r"EngineDeadError|EngineGenerateError",
    r"EngineCore encountered an issue",
    r"Worker failed with error",
    r"WorkerProc initialization failed",
    r"Executor failed",
    r"CancelledError|SystemExit|ClientDisconnect",
    r"ConnectionResetError|BrokenPipeError|zmq\.error",
)
ECHO = re.compile("|".join(ECHOES))
DEATHS = (
    r"EngineDeadError",
    r"EngineCore encountered (?:a fatal error|an issue)",
    r"EngineCore failed to start",
    r"Engine process failed",
    r"died unexpectedly",
)
DEAD = re.compile("|".join(DEATHS))
STOPPED = re.compile(r"\[shutdown\].*received signal")
MEMORY = "|".join(
    (
        r"OutOfMemoryError|out of memory|bad_alloc|[Cc]an(?:no|')t allocate memory",
        r"No available memory for the cache blocks",
        r"larger than the available KV cache memory",
        r"larger than the maximum number of tokens that can be stored in KV cache",
        r"less than desired (?:GPU|CPU) memory utilization",
        r"less than requested memory for kv",
        r"too large for .* memory|(?:Decrease|Reduce) --kv-cache-memory-bytes",
    )
)
HANGS = r"RPC call to \w+ timed out|execute_model timed out|collective operation timeout"
CRASHES = "|".join(
    (
        r"illegal memory access|device-side assert|unspecified launch failure",
        r"CUDA error|HIP error|AcceleratorError|\bXid\b|Segmentation fault",
    )
)
# In the order of precedence: the first line that matches one of them is the cause of a failed start.
START_FAILURES: tuple[tuple[str, Reason], ...] = (
    (r"error: (?:unrecognized arguments|ambiguous option)|unrecognized arguments:", Reason.UNSUPPORTED_FLAG),
    (r": error: argument ", Reason.CONFIG_REJECTED),
    (r"No module named|Arctic Inference is required|^ImportError: ", Reason.START_FAILED),
    (r"[Aa]ddress already in use|error while attempting to bind", Reason.WRONG_SERVER),
    (MEMORY, Reason.START_OOM),
    (r"Can't determine cudagraph shapes|No valid cudagraph sizes", Reason.CONFIG_REJECTED),
    (r"Error: \d+ validation errors? for ", Reason.CONFIG_REJECTED),
)
# Where the memory went: the last of these lines before it ran out.
STAGES = (
    (re.compile(r"cache blocks|KV cache|kv cache|for kv"), "KV cache"),
    (re.compile(r"Free memory on device|Available memory on node"), "before loading"),
    (re.compile(r"captur", re.I), "graph capture"),
    (re.compile(r"load_model|Loading|Starting to load|load_weights"), "weights"),
    (re.compile(r"profile_run|determine_available_memory"), "KV cache"),
)
FIGURES = re.compile(
    r"(?:Model loading took|Available KV cache memory:|Graph capturing finished).*?[\d.]+ Gi?B"
)
NOISE = re.compile(
    r"^\s*$|^Traceback|^\s|nanobind|leaked|skipped remainder|resource_tracker|warnings\.warn|"
    r"^INFO: |\[shutdown\]|Shutting down"
)
DETAIL_ENDS = re.compile(r" \[type=|, input_value=")


def lines_of(log: str) -> list[str]:
    """The lines without colours, times, processes and loggers; messages of a JSON log as text."""
    bare = (PREFIX.sub("", COLOUR.sub("", line)).rstrip() for line in log.splitlines())
    return [text for line in bare for text in _unwrapped(line)]


def _unwrapped(line: str) -> list[str]:
    """`--logging-config.formatter json` writes a message and its traceback as one object."""
    try:
        record = json.loads(line) if line.startswith("{") else None
    except ValueError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("message"), str):
        return [line]
    return [*record["message"].splitlines(), *str(record.get("exc_info") or "").splitlines()]


def cause_from_log(log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
    """The reason a server ended (or no longer serves), and the line that shows it.

    vLLM ends with exit code 0 after its engine died under load, and stays up if it is told to: the log
    decides, not the exit code.
    """
    lines = lines_of(log)
    found = _under_load(lines) if ready else _at_start(lines)
    if found is not None:
        return found
    if exit_code is not None and exit_code < 0:
        return signalled(exit_code, ready)
    told = [line for line in lines if not NOISE.search(line)]
    last = told[-1].strip() if told else "the log is empty"
    if exit_code is None:
        return (Reason.HANG if ready else Reason.START_TIMEOUT), f"still running: {last}"
    return (Reason.SERVER_DIED if ready else Reason.START_FAILED), f"exit code {exit_code}: {last}"


def _under_load(lines: Sequence[str]) -> tuple[Reason, str] | None:
    """Only what killed the engine counts: requests may fail by themselves.

    A server that is told to stop declares its engine dead as well: nothing after that is a cause.
    """
    stopped = next((i for i, line in enumerate(lines) if STOPPED.search(line)), None)
    lines = lines[:stopped]
    if (at := _first(HANGS, lines)) is not None:
        return Reason.HANG, lines[at].strip()
    for pattern in (MEMORY, CRASHES):
        if (at := _first(pattern, lines, exceptions_only=True)) is not None:
            return Reason.CRASH_UNDER_LOAD, lines[at].strip()
    if found := nccl_cause("\n".join(lines), ready=True):
        return found
    if any(DEAD.search(line) for line in lines):
        return Reason.CRASH_UNDER_LOAD, _root(lines) or _first_line(DEAD, lines)
    return None if stopped is None else (Reason.SERVER_DIED, "stopped by a signal from outside")


def _at_start(lines: Sequence[str]) -> tuple[Reason, str] | None:
    for pattern, reason in START_FAILURES:
        if (at := _first(pattern, lines)) is not None:
            evidence = _with_figures(lines, at) if reason is Reason.START_OOM else _with_detail(lines, at)
            return reason, evidence
    if found := nccl_cause("\n".join(lines), ready=False):
        return found
    root = _root(lines)
    if root is None:
        return None
    rejected = re.match(r"(?:\w+\.)*(?:ValueError|NotImplementedError|VLLMValidationError)\b", root)
    return (Reason.CONFIG_REJECTED if rejected else Reason.START_FAILED), root


def _root(lines: Sequence[str]) -> str | None:
    """The last exception that is not the echo of another; else the last echo."""
    raised = [i for i, line in enumerate(lines) if EXCEPTION.match(line)]
    own = [i for i in raised if not ECHO.search(lines[i])]
    if not raised:
        return None
    return _with_detail(lines, (own or raised)[-1])


def _with_detail(lines: Sequence[str], at: int) -> str:
    """The line; what pydantic says below it, or the assertion above it."""
    line = lines[at].strip()
    if re.search(r"validation errors? for ", line):
        # Either `  Value error, ...`, or the field's name and the complaint on two lines.
        below = [text.strip() for text in lines[at + 1 : at + 3]]
        told = below[:1] if lines[at + 1 : at + 2] and lines[at + 1].startswith(" ") else below
        return DETAIL_ENDS.split(f"{line}: {': '.join(filter(None, told))}")[0]
    if re.fullmatch(r"(?:\w+\.)*\w+:?", line):
        code = [text.strip() for text in lines[max(0, at - 3) : at] if text.strip(" ^~")]
        return f"{line}: {code[-1]}" if code else line
    return line


def _with_figures(lines: Sequence[str], at: int) -> str:
    """What ran out, its line, and the memory that was reported before."""
    stage = next((name for pattern, name in STAGES if pattern.search(lines[at])), None)
    for line in reversed(lines[max(0, at - 60) : at]) if stage is None else ():
        stage = next((name for pattern, name in STAGES if pattern.search(line)), None)
        if stage:
            break
    figures = dict.fromkeys(match[0] for line in lines[:at] if (match := FIGURES.search(line)))
    told = f" ({'; '.join(figures)})" if figures else ""
    return f"{stage or 'memory'}: {lines[at].strip()}{told}"


def _first(pattern: str, lines: Sequence[str], *, exceptions_only: bool = False) -> int | None:
    """Index of the first line that matches, exceptions before others."""
    matching = [i for i, line in enumerate(lines) if re.search(pattern, line)]
    raised = [i for i in matching if EXCEPTION.match(lines[i]) and not ECHO.search(lines[i])]
    if exceptions_only:
        return raised[0] if raised else None
    return next(iter(raised or matching), None)


def _first_line(pattern: re.Pattern[str], lines: Sequence[str]) -> str:
    return next(line.strip() for line in lines if pattern.search(line))


# What it was started with


RUNNER = re.compile(r"using the V1 model runner instead")
IN_EFFECT = re.compile(
    r"speculative_config=(?:SpeculativeConfig\(method='(\w+)'.*?num_spec_tokens=(\d+)\)|(None))"
)
REFUSED = re.compile(r"(?:won't(?: currently)? work|not (?:yet )?supported) with speculative decoding", re.I)


def speculation_from_log(log: str) -> tuple[str | None, int | None] | None:
    """(method, tokens per draft) of the start lines; (None, None) if it is off, None if no line tells."""
    match = IN_EFFECT.search(log)
    if match is None:
        return None
    return (None, None) if match[3] else (match[1], int(match[2]))


def runner_from_log(log: str) -> str | None:
    """ "V1" if the server fell back to its older model runner, which ignores some settings; else None."""
    return "V1" if RUNNER.search(log) else None


def refused_sampling(text: str, fields: Collection[str]) -> str | None:
    """The line that says one of the fields is refused (an HTTP error), or has no effect (the log at start).

    The warning in the log comes with every speculative start, whatever the requests ask for.
    """
    for line in lines_of(text):
        if REFUSED.search(line) and any(re.search(rf"\b{re.escape(name)}\b", line) for name in fields):
            return line.strip()
    return None

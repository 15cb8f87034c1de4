"""What llama.cpp's log says: settings in effect, acceptance, and why it ended. Pure text functions."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from launchers.engines.engine import Recount, SlotDrafts
from launchers.engines.signals import signalled
from results.reasons import Reason
from results.records import KnobValue, SpecCounters

# `0.00.485.279 E srv    load_model: ` of recent builds.
PREFIX = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} [A-Z] (?:\w{1,5} +)?")
RENAMED = {"size_key": "size_n", "size_value": "size_m"}  # the log's own names for ngram-map
METHOD_LINE = re.compile(r"adding speculative implementation '([\w-]+)'")
SETTINGS_LINE = re.compile(r"common_specu\w*: - (\w+=[^,]+(?:, \w+=[^,]+)*)$")
# One for each request that drafted anything.
ACCEPTANCE_LINE = re.compile(
    r"(?:id +(?P<slot>\d+) \|.*)?draft acceptance(?: rate)? = +[\d.]+ "
    r"\( *(?P<accepted>\d+) accepted / *(?P<generated>\d+) generated\)"
)
# Since the start, printed below it.
DRAFTER_LINE = re.compile(
    r"statistics +(?P<drafter>[\w-]+):.*#gen drafts = +(?P<drafts>\d+),"
    r".*#gen tokens = +(?P<generated>\d+), #acc tokens = +(?P<accepted>\d+)"
)


def slot_drafts_from_log(text: str) -> list[SlotDrafts]:
    """Draft tokens per slot, summed over its requests; a request that drafted nothing has no line."""
    accepted, generated = Counter[int](), Counter[int]()
    for match in ACCEPTANCE_LINE.finditer(text):
        if match["slot"] is not None:
            accepted[int(match["slot"])] += int(match["accepted"])
            generated[int(match["slot"])] += int(match["generated"])
    return [SlotDrafts(slot, accepted[slot], generated[slot]) for slot in sorted(generated)]


def recount_from_log(text: str) -> Recount | None:
    """The server's lines summed, and the drafter's own last one.

    None without such a line, or if it counts fewer tokens: then it is of one slot only.
    """
    last = {match["drafter"]: match for match in DRAFTER_LINE.finditer(text)}.values()
    server, drafter = _counted(ACCEPTANCE_LINE.finditer(text)), _counted(last)
    return Recount(server, drafter) if last and drafter.draft_tokens >= server.draft_tokens else None


def _counted(lines: Iterable[re.Match[str]]) -> SpecCounters:
    """Sum over the lines; the server's do not tell the number of drafts."""
    found = [match.groupdict() for match in lines]
    drafts, generated, accepted = (
        sum(int(line.get(name, 0)) for line in found) for name in ("drafts", "generated", "accepted")
    )
    return SpecCounters(drafts, generated, accepted)


def effective_from_log(text: str) -> Mapping[str, KnobValue]:
    """Speculative settings printed at start, by the names of our knobs; `method` where it is printed."""
    effective: dict[str, KnobValue] = {}
    for line in text.splitlines():
        if match := METHOD_LINE.search(line):
            effective["method"] = match[1]
        elif match := SETTINGS_LINE.search(line):
            for setting in match[1].split(", "):
                name, _, value = setting.partition("=")
                effective[RENAMED.get(name, name)] = _number(value)
    return effective


def _number(text: str) -> KnobValue:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# In the order of precedence; the first line that matches is the root, later ones only pass it on.
CRASHES: tuple[tuple[str, Reason], ...] = (
    (r"insufficient memory|out of memory|failed to allocate|unable to allocate|bad_alloc", Reason.START_OOM),
    (r"GGML_ASSERT\(.*failed|terminate called|GGML_ABORT", Reason.CRASH_UNDER_LOAD),
)
START_FAILURES: tuple[tuple[str, Reason], ...] = (
    (r"unrecognized arguments|invalid argument|unknown argument|error: argument", Reason.UNSUPPORTED_FLAG),
    (r"has no attribute .*this tuner needs|cannot import xllamacpp", Reason.UNSUPPORTED_FLAG),
    (r"error: invalid value|error while handling argument", Reason.CONFIG_REJECTED),
    (r"couldn't bind|[Aa]ddress already in use", Reason.WRONG_SERVER),
    (r"gguf_init_from|not within the file bounds|error loading model|failed to load", Reason.START_FAILED),
    (r"failed to initialize speculative decoding", Reason.NOT_SPECULATING),
)
# Lines that only say that something above went wrong.
ECHOES = re.compile(r"exiting due to|cleaning up before exit|Failed to init server|^\s*$|^Traceback|^  ")


def cause_from_log(log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
    """The reason a server ended, and the line that shows it."""
    for pattern, reason in CRASHES if ready else CRASHES + START_FAILURES:
        if line := line_with(pattern, log):
            return _when(reason, ready), line
    if exit_code is not None and exit_code < 0:
        return signalled(exit_code, ready)
    told = [line for line in log.splitlines() if not ECHOES.search(line)]
    last = PREFIX.sub("", told[-1]) if told else "the log is empty"
    if exit_code is None:
        return (Reason.HANG if ready else Reason.START_TIMEOUT), f"still running: {last}"
    return (Reason.SERVER_DIED if ready else Reason.START_FAILED), f"exit code {exit_code}: {last}"


def line_with(pattern: str, log: str) -> str | None:
    """The first line that matches, without time and level; None if none does."""
    line = next((line for line in log.splitlines() if re.search(pattern, line)), None)
    return None if line is None else PREFIX.sub("", line).strip()


def _when(reason: Reason, ready: bool) -> Reason:
    """The same line means a failed start before the server was ready, and a crash after it."""
    if ready:
        return Reason.CRASH_UNDER_LOAD
    return Reason.START_FAILED if reason is Reason.CRASH_UNDER_LOAD else reason

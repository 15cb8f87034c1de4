"""What a log says of NCCL: its version, which variables it took, why it failed. Pure text functions.

Lines come with anything in front: `host:123:456 [0] NCCL INFO ...`, `(Worker_TP1 pid=13) ERROR 11-30 ...`,
a container's time; and Ray adds `[repeated 15x across cluster]`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from launchers.nccl.shm import MIB, SUGGESTED
from launchers.nccl.variables import LEVELS, integer
from results.reasons import Reason
from results.records import UNSET

COLOUR = re.compile(r"\x1b\[[\d;]*m")
REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\]\s*$")
PREFIXES = (
    r"\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-][\d:]+)?(?: (?:DP|PP|EP|TP)\d+)*\]?\s+",  # times
    r"\[rank\d+\]:\s?|\[(?:(?:DP|PP|EP|TP)\d+ ?)+\]\s?",
    r"\([\w .:-]+? pid=\d+(?:, ip=[\d.]+)?\)\s?",
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.]+ \[[^\]]+\]\s?",
    r"[\w.:-]*:\d+:\d+ \[-?\d+\]\s+(?:\S+:\d+ )?(?=NCCL )",  # `host:123:456 [0] graph/search.cc:703 `
)
PREFIX = re.compile(f"^(?:{'|'.join(PREFIXES)})+")

# What the library says of itself comes first: the rest may name another copy of it.
VERSIONS = (
    re.compile(r"\b[NR]CCL version ?:? (\d+\.\d+[\w.+-]*)"),
    re.compile(r"\bis using nccl==(\d+\.\d+[\w.+-]*)"),
)
TAKEN = re.compile(r"\b(?P<name>NCCL_[A-Z0-9_]+) set by environment to (?P<value>.*?)\.?$")
# Values that NCCL replaces, after it said that they were set.
REPLACED = (
    re.compile(r"Invalid value \S* for (?P<name>NCCL_\w+), using (?P<value>default \S+?)\.?$"),
    re.compile(r"Invalid (?P<name>NCCL_\w+) -?\d+ \((?P<value>.*?)\)"),
    re.compile(r"(?P<name>minCTAs) \d+ is larger than maxCTAs \d+, set both to (?P<value>\d+)"),
    re.compile(r"(?P<name>m\w\wCTAs) \d+ is larger than #channels upper limit \d+, cap it to (?P<value>\d+)"),
    re.compile(
        r"User asked for a (?P<name>m\w\wimum) of -?\d+ channels, (?:limiting|setting it) to (?P<value>\d+)"
    ),
)
OWN_NAMES = {
    "minCTAs": "NCCL_MIN_CTAS",
    "maxCTAs": "NCCL_MAX_CTAS",
    "minimum": "NCCL_MIN_NCHANNELS",
    "maximum": "NCCL_MAX_NCHANNELS",
}
OLD_LEVELS = ("LOC", *LEVELS[2:])  # 0 to 4, and above


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What NCCL said of the variables that were asked for, by all ranks."""

    applied: frozenset[str]
    unconfirmed: frozenset[str]  # NCCL never said that it read them: not applied
    overridden: Mapping[str, str] = field(default_factory=dict)  # to the value in effect
    unasked: Mapping[str, str] = field(default_factory=dict)  # by an image or a config file (/etc/nccl.conf)


def version_in(log: str) -> str | None:
    """ "2.28.9+cuda13.0"; None if no line tells."""
    for pattern in VERSIONS:
        if match := pattern.search(log):
            return match[1].rstrip(".")
    return None


def applied(log: str, requested: Mapping[str, str]) -> Confirmation:
    """Which variables NCCL took, from its "set by environment" lines (NCCL_DEBUG=INFO).

    NCCL writes the same for its config files, where the environment wins. A variable requested as `unset`
    is applied where no line names it.
    """
    seen = _values_in_effect(log)
    wrong = {name: value for name, value in seen.items() if not _as_asked(value, requested.get(name))}
    taken = {name for name in requested if name in seen or requested[name] == UNSET}
    return Confirmation(
        applied=frozenset(taken - wrong.keys()),
        unconfirmed=frozenset(requested.keys() - taken),
        overridden={name: ", ".join(values) for name, values in wrong.items() if name in requested},
        unasked={name: ", ".join(values) for name, values in seen.items() if name not in requested},
    )


def lines_of(log: str) -> Iterator[str]:
    """The lines without colours, times, processes, ranks and loggers."""
    for line in log.splitlines():
        yield REPEATED.sub("", PREFIX.sub("", COLOUR.sub("", line))).strip()


def _values_in_effect(log: str) -> dict[str, Sequence[str]]:
    """All values that some rank told, in order; one that NCCL replaced no longer counts."""
    told: dict[str, dict[str, None]] = {}
    replaced: dict[str, dict[str, None]] = {}
    for line in lines_of(log):
        if match := TAKEN.search(line):
            told.setdefault(match["name"], {})[match["value"].strip()] = None
        elif match := next((m for pattern in REPLACED if (m := pattern.search(line))), None):
            name = OWN_NAMES.get(match["name"], match["name"])
            replaced.setdefault(name, {})[match["value"]] = None
    return {name: tuple(values) for name, values in {**told, **replaced}.items()}


def _as_asked(values: Sequence[str], asked: str | None) -> bool:
    return asked is not None and all(_same(value, asked) for value in values)


def _same(told: str, asked: str) -> bool:
    """NCCL writes numbers in decimal, and the older numbers of NCCL_P2P_LEVEL as names."""
    if told == asked:
        return True
    number = integer(asked)
    if number is None:
        return False
    return integer(told) == number or (told in LEVELS and OLD_LEVELS[max(0, min(number, 4))] == told)


# Failures


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that shows a failure, and the variables that lead to it where they are set."""

    pattern: re.Pattern[str]
    variables: tuple[str, ...]
    remedy: str = ""


NO_SPACE = re.compile(
    r"posix_fallocate failed ?: ?No space left|Error while creating shared memory segment"
    r"|failed to extend /dev/shm/|could not create shared memory in /dev/shm"
)
SEGMENT = re.compile(r"\(size (\d+)\)|to (\d+) bytes")
SIGNS = (
    Sign(
        re.compile(r"[Nn]o algorithm/protocol (?:nor symKernelId )?available"),
        ("NCCL_ALGO", "NCCL_PROTO", "NCCL_SYM_KERNEL"),
    ),
    Sign(
        re.compile(r"Unrecognized (?:element|prefix) token|All entries except the first must have a prefix"),
        ("NCCL_ALGO", "NCCL_PROTO", "NCCL_SYM_KERNEL"),
    ),
    Sign(
        re.compile(r"XML Import Channel|Could not open XML graph file"),
        ("NCCL_GRAPH_FILE",),
        "a graph file serves one number of GPUs of one host",
    ),
    Sign(
        re.compile(r"XML Parse(?: error)? ?:|Could not open XML topology file", re.I),
        ("NCCL_GRAPH_FILE", "NCCL_TOPO_FILE"),
    ),
    Sign(
        re.compile(r"Failed to initialize any NET plugin|Error: network .+ not found"),
        ("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE", "NCCL_IB_HCA"),
    ),
    Sign(
        re.compile(
            r"no socket interface found|No usable listening interface found|No IP interface found", re.I
        ),
        ("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"),
    ),
    Sign(re.compile(r"Failed to bind NVLink SHARP|NCCL_NVLS_ENABLE has been set"), ("NCCL_NVLS_ENABLE",)),
    Sign(re.compile(r"Error while attaching to shared memory segment"), (), "the ranks share no /dev/shm"),
    Sign(re.compile(r"Duplicate GPU detected"), ()),
)
HANGS = re.compile(
    r"collective operation timeout|NCCL watchdog thread terminated|ProcessGroupNCCL's watchdog got stuck"
)
ERRORS = re.compile(
    r"NCCL [Ee]rror|\bnccl(?:System|Internal|Remote|Unhandled\w*)Error|\bncclInvalid\w+|DistBackendError"
)
WARNING = re.compile(r"NCCL WARN (?P<text>.*)")
# Warnings of a healthy start, or of the ranks that only see another one die.
PASSING = re.compile(
    r"iommu|Missing|numa|Socket recv|Connection closed|Connect(?:ion)? (?:to|refused)|proxy", re.I
)
LAST_ERROR = re.compile(r"^Last error:\s*(.*)$")
NAMED = re.compile(r"\b(NCCL_[A-Z0-9_]+) was set to ")


def cause(
    log: str, env: Mapping[str, str], shm_bytes: int | None = None
) -> tuple[Reason, str, tuple[str, ...]] | None:
    """Why NCCL failed: the reason, the telling line, the variables that led to it; None if it did not.

    `env` is the server's environment, as far as it is known: variables that the log names are added to it.
    A refusal comes before a time-out, as the other ranks wait for the one that was refused; what torch
    makes of either comes last.
    """
    lines = list(lines_of(log))
    known = {**{name: values[-1] for name, values in _values_in_effect(log).items()}, **env}
    return _no_space(lines, shm_bytes) or _refusal(lines, known) or _hang(lines) or _error(lines, known)


def _no_space(lines: Sequence[str], shm_bytes: int | None) -> tuple[Reason, str, tuple[str, ...]] | None:
    found = [line for line in lines if NO_SPACE.search(line)]
    if not found:
        return None
    size = next((int(m[1] or m[2]) for line in found if (m := SEGMENT.search(line))), None)
    segment = f"; a segment of {size / MIB:.1f} MiB did not fit" if size else ""
    has = f" ({shm_bytes / MIB:.0f} MiB)" if shm_bytes is not None else ""
    sentence = (
        f"/dev/shm{has} is too small{segment}: set `shm_size: {SUGGESTED}` or `ipc: host` "
        f"(NCCL_SHM_DISABLE=1 would measure another transport): {found[0]}"
    )
    return Reason.NCCL_REJECTED, sentence, ()


def _refusal(lines: Sequence[str], known: Mapping[str, str]) -> tuple[Reason, str, tuple[str, ...]] | None:
    for sign in SIGNS:
        at = next((i for i, line in enumerate(lines) if sign.pattern.search(line)), None)
        if at is not None:
            told = _with_next(lines, at)
            named = NAMED.findall(told)
            remedy = f" ({sign.remedy})" if sign.remedy else ""
            return Reason.NCCL_REJECTED, told + remedy, tuple(named) or _set_here(sign.variables, told, known)
    return None


def _with_next(lines: Sequence[str], at: int) -> str:
    """The line; with the next one if that goes on to name variables."""
    following = lines[at + 1] if at + 1 < len(lines) else ""
    return (
        f"{lines[at]} {following}" if following.startswith("NCCL_") and NAMED.search(following) else lines[at]
    )


def _set_here(variables: Sequence[str], told: str, known: Mapping[str, str]) -> tuple[str, ...]:
    """Of these the ones that are set; those alone whose value the line quotes, if it quotes one."""
    present = tuple(name for name in variables if known.get(name, UNSET) != UNSET)
    quoted = tuple(name for name in present if f'"{known[name]}"' in told)
    return quoted or present


def _hang(lines: Sequence[str]) -> tuple[Reason, str, tuple[str, ...]] | None:
    line = next((line for line in lines if HANGS.search(line)), None)
    return None if line is None else (Reason.HANG, line, ())


def _error(lines: Sequence[str], known: Mapping[str, str]) -> tuple[Reason, str, tuple[str, ...]] | None:
    """An error of NCCL that has no known sign: its first warning says more than what torch makes of it."""
    at = next((i for i, line in enumerate(lines) if ERRORS.search(line)), None)
    if at is None:
        return None
    warned = (line for line in lines if WARNING.search(line) and not PASSING.search(line))
    told = next(warned, None) or f"{lines[at]}{_last_error(lines[at:])}"
    variables = tuple(name for name in known if name.startswith("NCCL_") and name in told)
    return Reason.NCCL_REJECTED, told, variables


def _last_error(lines: Sequence[str]) -> str:
    """What torch quotes below `Last error:`, on the same line or on the next."""
    for at, line in enumerate(lines):
        if match := LAST_ERROR.match(line):
            text = match[1] or next(iter(lines[at + 1 : at + 2]), "")
            return f": {text}" if text else ""
    return ""

"""Which combinations of NCCL's variables cannot work, and which variables NCCL never reads. Pure functions.

Only what NCCL's sources show is excluded: to exclude a legal combination is worse than to launch one that
fails. Read in 2.20.5, in releases from 2.26 to 2.30, and in 2.31.2: `ncclTopoTuneModel` (src/graph/tuning.cc,
until 2.30), `ncclTuningCostModelInit` (src/tuning/cost_model.cc, from 2.31), src/init.cc, src/graph/paths.cc.
"""

from collections.abc import Callable, Mapping

from launchers.nccl.grammar import (
    ALGORITHMS,
    COLLECTIVES,
    PROTOCOLS,
    Choice,
    Unreadable,
    parse,
    parse_before_2_24,
)
from launchers.nccl.variables import VARIABLES, integer
from results.records import UNSET

Version = tuple[int, int, int]
Env = Mapping[str, str]

NEWEST: Version = (2, 31, 2)
STRICT: Version = (2, 24, 0)  # lists by collective; Ring is no longer the way out
NAMED_ALONE: Version = (2, 31, 0)  # NCCL_ALGO enables the collectives it names, and no others
# What tensor-parallel servers call: sums of activations, and the parts of the logits.
NEEDED = ("AllReduce", "AllGather")
IMPLEMENTED: Mapping[str, frozenset[str]] = {
    "Ring": frozenset(COLLECTIVES),
    "Tree": frozenset({"AllReduce"}),
    "CollnetDirect": frozenset({"AllReduce", "AllGather", "ReduceScatter"}),
    "CollnetChain": frozenset({"AllReduce"}),
    "NVLS": frozenset({"AllReduce", "AllGather", "ReduceScatter"}),
    "NVLSTree": frozenset({"AllReduce"}),
    "PAT": frozenset({"AllGather", "ReduceScatter"}),
}
ANY_PROTOCOL = frozenset({"Ring", "Tree"})  # the others have Simple alone


def leaves_nothing(env: Env, version: Version | None = None) -> str | None:
    """Why a server of several ranks cannot start with this environment, or not as asked; None if it may.

    The sentence names the variables and a remedy. Without a version: as the newest known release.
    """
    chosen = _set_ones(env)
    return next((told for rule in RULES if (told := rule(chosen, version or NEWEST))), None)


def unread(env: Env) -> Mapping[str, str]:
    """Variables that NCCL never reads beside the others, each with the reason: dead in a Point."""
    chosen, found = _set_ones(env), {}
    if integer(chosen.get("NCCL_P2P_DISABLE", "")) == 1 and "NCCL_P2P_LEVEL" in chosen:
        found["NCCL_P2P_LEVEL"] = "NCCL_P2P_DISABLE=1 comes first"
    if integer(chosen.get("NCCL_IB_DISABLE", "")) not in (None, 0):
        names = (name for name in chosen if name.startswith("NCCL_IB_") and name != "NCCL_IB_DISABLE")
        found.update(dict.fromkeys(names, "NCCL_IB_DISABLE=1 turns InfiniBand off"))
    for end in ("MIN", "MAX"):
        if {f"NCCL_{end}_NRINGS", f"NCCL_{end}_NCHANNELS"} <= chosen.keys():
            found[f"NCCL_{end}_NRINGS"] = f"NCCL_{end}_NCHANNELS, its newer name, comes first"
    return found


def version_of(text: str | None) -> Version | None:
    """ "2.28.9+cuda13.0" as numbers; None if it is not of that form."""
    parts = (text or "").split("+")[0].split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:3]):
        return None
    numbers = [*(int(part) for part in parts[:3]), 0]
    return numbers[0], numbers[1], numbers[2]


def _set_ones(env: Env) -> Env:
    return {name: value for name, value in env.items() if value != UNSET}


def _unreadable(env: Env, version: Version) -> str | None:
    """A list that NCCL refuses, or reads as an empty one."""
    for name, elements in (("NCCL_ALGO", ALGORITHMS), ("NCCL_PROTO", PROTOCOLS)):
        value = env.get(name, "")
        if version >= STRICT:
            try:
                parse(value, elements)
            except Unreadable as error:
                return f"{name}={value}: NCCL fails at start: {error}; legal is {VARIABLES[name].legal}"
        elif value and not parse_before_2_24(value, elements):
            release = ".".join(map(str, version[:2]))
            why = "lists by collective came with 2.24" if ":" in value else "it knows none of these names"
            return f"{name}={value} enables nothing on NCCL {release} ({why}): write a list without them"
    return None


def _no_algorithm(env: Env, version: Version) -> str | None:
    """Since 2.24 a collective fails for which no algorithm with a protocol is left."""
    if version < STRICT or env.get("NCCL_SYM_KERNEL"):
        return None
    missing = _without_algorithm(env, version)
    if missing is None:
        return None
    at_fault = [name for name in ("NCCL_ALGO", "NCCL_PROTO") if env.get(name)]
    told = " with ".join(f"{name}={env[name]}" for name in at_fault)
    return f"{told} leaves {missing} without an algorithm ({_why(env, version)}): {_remedy(env, version)}"


def _without_algorithm(env: Env, version: Version) -> str | None:
    """The first needed collective that is left with none."""
    algorithms = parse(env.get("NCCL_ALGO", ""), ALGORITHMS)
    protocols = parse(env.get("NCCL_PROTO", ""), PROTOCOLS)
    off = _turned_off(env)
    for collective in NEEDED:
        enabled = _algorithms_for(collective, algorithms, protocols, version) - off
        allowed = protocols.enabled.get(collective, frozenset(PROTOCOLS))
        if not any(
            collective in IMPLEMENTED[algorithm]
            and ("Simple" in allowed or (algorithm in ANY_PROTOCOL and allowed))
            for algorithm in enabled
        ):
            return collective
    return None


def _algorithms_for(
    collective: str, algorithms: Choice, protocols: Choice, version: Version
) -> frozenset[str]:
    every = frozenset(ALGORITHMS)
    if version < NAMED_ALONE:
        return algorithms.enabled.get(collective, every)
    if collective not in algorithms.forced | protocols.forced or not algorithms.enabled:
        return every  # the lists are not consulted
    return algorithms.enabled.get(collective, frozenset())


def _turned_off(env: Env) -> frozenset[str]:
    """Algorithms that another variable turns off, or does not turn on."""
    off: set[str] = set()
    if integer(env.get("NCCL_NVLS_ENABLE", "")) == 0:
        off |= {"NVLS", "NVLSTree"}
    if integer(env.get("NCCL_PAT_ENABLE", "")) == 0:
        off.add("PAT")
    if integer(env.get("NCCL_COLLNET_ENABLE", "")) in (None, 0):
        off |= {"CollnetDirect", "CollnetChain"}
    return frozenset(off)


def _why(env: Env, version: Version) -> str:
    algorithms = env.get("NCCL_ALGO", "").casefold()
    if not any(parse(env.get("NCCL_PROTO", "Simple"), PROTOCOLS).enabled.values()):
        return "no protocol is left"
    if version >= NAMED_ALONE and ":" in algorithms.split(";")[0]:
        return "since 2.31 NCCL_ALGO enables no collective but those it names"
    if "nvls" in algorithms and "NVLS" in _turned_off(env):
        return "NCCL_NVLS_ENABLE=0 turns NVLS off"
    if "collnet" in algorithms and "CollnetDirect" in _turned_off(env):
        return "without NCCL_COLLNET_ENABLE=1 there is no CollNet"
    if _works(_without(env, "NCCL_PROTO"), version):
        return "only Ring and Tree have another protocol than Simple"
    return "since 2.24 NCCL does not fall back to Ring"


def _remedy(env: Env, version: Version) -> str:
    """The nearest environment that works, in words."""
    value = env.get("NCCL_ALGO", "")
    by_collective = ";".join(entry for entry in value.split(";") if ":" in entry)
    better = f"ring;{by_collective or f'allreduce:{value}'}"
    if value and _works({**env, "NCCL_ALGO": better}, version):
        return f"write NCCL_ALGO={better}"
    for name in ("NCCL_PROTO", "NCCL_ALGO"):
        if name in env and _works(_without(env, name), version):
            return f"leave {name} unset"
    return "leave both unset"


def _without(env: Env, name: str) -> Env:
    return {other: value for other, value in env.items() if other != name}


def _works(env: Env, version: Version) -> bool:
    return _unreadable(env, version) is None and _without_algorithm(env, version) is None


def _no_network(env: Env, _version: Version) -> str | None:
    """`ncclIbInit` fails with NCCL_IB_DISABLE, and NCCL_NET admits no other network."""
    disabled = integer(env.get("NCCL_IB_DISABLE", "")) not in (None, 0)
    if env.get("NCCL_NET", "").casefold() == "ib" and disabled:
        return (
            "NCCL_NET=IB with NCCL_IB_DISABLE=1 leaves no network; write NCCL_NET=Socket, or leave one unset"
        )
    return None


def _threads(env: Env, _version: Version) -> str | None:
    """NCCL replaces such a number by its maximum: another Point would be measured."""
    for name in ("NCCL_NTHREADS", "NCCL_LL128_NTHREADS"):
        number, row = integer(env.get(name, "")), VARIABLES[name]
        assert row.low is not None
        assert row.high is not None
        if number is not None and number > 0 and (number % 32 or not row.low <= number <= row.high):
            return f"{name}={number} is replaced by NCCL; legal is {row.legal}"
    return None


def _blocks(env: Env, _version: Version) -> str | None:
    """`minCTAs` above `maxCTAs` is lowered to it (2.17 fails). Channels may be so: NCCL then copies them."""
    low, high = integer(env.get("NCCL_MIN_CTAS", "")), integer(env.get("NCCL_MAX_CTAS", ""))
    if low is not None and high is not None and low > high >= 1:
        return f"NCCL_MIN_CTAS={low} is above NCCL_MAX_CTAS={high}: NCCL lowers it to {high}; write that"
    return None


RULES: tuple[Callable[[Env, Version], str | None], ...] = (
    _unreadable,
    _no_algorithm,
    _no_network,
    _threads,
    _blocks,
)

"""What a server that ran out of memory at its start teaches about other Points.

Memory is never lowered for one arm alone: its cache would hold less than the other's, and the arms would
differ in more than speculation. A Point that does not fit is a failure, and a bound.
"""

import re
from collections.abc import Mapping

from launchers.engines.engine import Engine
from results.reasons import Reason
from results.records import KnobValue, Point, Trial
from sweeps.variables import NCCL

# The engine says that the cache's share was too small, not that the rest was too large.
TOO_LITTLE = re.compile(r"\b(?:increas\w+|rais\w+|larger|higher)\b", re.IGNORECASE)


def does_not_fit(point: Point, failed: Trial, engine: Engine, args: Mapping[str, KnobValue]) -> bool:
    """Whether a Point needs at least as much memory as one that did not get enough.

    `args` are the fixed arguments of both, by flag name without dashes.
    """
    if failed.failure is None or failed.failure.reason is not Reason.START_OOM:
        return False
    other, sizes = failed.launched, engine.memory_settings
    if _others(point, sizes) != _others(other, sizes):
        return False
    starved = TOO_LITTLE.search(failed.failure.evidence) is not None
    pairs = (
        (_value(point, n, args), _value(other, n, args), share and starved) for n, share in sizes.items()
    )
    return all(_is_no_easier(ours, theirs, less_is_worse=less) for ours, theirs, less in pairs)


def _others(point: Point, sizes: Mapping[str, bool]) -> tuple[str, dict[str, KnobValue]]:
    """What of a Point has to be equal for a comparison; NCCL's buffers are small beside all else."""
    kept = {k: v for k, v in point.knobs.items() if k not in sizes and not k.startswith(NCCL)}
    return point.method, kept


def _value(point: Point, name: str, args: Mapping[str, KnobValue]) -> KnobValue | None:
    return point.knobs.get(name, args.get(name.lstrip("-")))


def _is_no_easier(ours: KnobValue | None, theirs: KnobValue | None, *, less_is_worse: bool) -> bool:
    if ours == theirs:
        return True
    if not isinstance(ours, int | float) or not isinstance(theirs, int | float):
        return False  # the engine's own default may be more or less
    return ours < theirs if less_is_worse else ours > theirs

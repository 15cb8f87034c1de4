"""Goodput: requests that keep the limits of each single one, per second of the steady window.

Throughput counts the tokens of requests that came too late as well; goodput does not.
"""

from collections.abc import Mapping, Sequence

from analysis.statistics import ratio
from results.records import Measurement, Request

GOODPUT = "goodput_per_s"
BOUNDS = ("ttft_s", "tpot_s", "end_to_end_s")  # what can be limited of a Request, by the name of its property

HALF = 0.5  # what no request within the limits counts as, beside some


def goodput(
    requests: Sequence[Request], window: tuple[float, float], bounds: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """(requests within the bounds per second of the window, their share of those that ended in it).

    A request belongs to the window (start, end] that it ended in: an open loop's begins with the end of
    one, which says nothing of the rate. None, None without bounds or without a window.
    """
    start, end = window
    ended = [r for r in requests if start < r.ended_s <= end]
    good = sum(within(r, bounds) for r in ended)
    per_s = ratio(good, end - start) if bounds else None
    return (None, None) if per_s is None else (per_s, ratio(good, len(ended)))


def within(request: Request, bounds: Mapping[str, float]) -> bool:
    """Whether a request kept every bound (name of a property -> seconds); a failed one never does.

    Without any text there was no first token to be in time. An answer of one token, or all of it in one
    piece, has no time per token to be too long.
    """
    if request.error is not None or ("ttft_s" in bounds and request.ttft_s is None):
        return False
    times = {"ttft_s": request.ttft_s, "tpot_s": request.tpot_s, "end_to_end_s": request.end_to_end_s}
    return all((times[name] or 0.0) <= bound for name, bound in bounds.items())


def at_least_half(measurement: Measurement) -> float | None:
    """Goodput with half a request in place of none, so that a ratio to it is finite; None if unknown."""
    if measurement.goodput_per_s is None or measurement.wall_s <= 0:
        return None
    return max(measurement.goodput_per_s, HALF / measurement.wall_s)


def empty_windows(reference: Sequence[Measurement], candidate: Sequence[Measurement], name: str) -> str:
    """The caution for a ratio that stands on a count of nothing; "" = none. `name`: of the reference."""
    found = {name: _empty(reference), "this configuration": _empty(candidate)}
    told = [f"{who} in {', '.join(cells)}" for who, cells in found.items() if cells]
    if not told:
        return ""
    return (
        f"goodput: in some Block no request kept its limits: of {' and of '.join(told)};"
        " that counts as half a request, so the sign holds and the size of the effect does not"
    )


def _empty(windows: Sequence[Measurement]) -> list[str]:
    return [*dict.fromkeys(m.cell.label for m in windows if m.goodput_per_s == 0)]

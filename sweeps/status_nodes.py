"""The nodes of a cluster run as its status shows them: what runs where, what is lost, hours of GPUs."""

from collections.abc import Iterator

from analysis import places, words
from sweeps.cluster.board import Seat
from sweeps.cluster.seats import here
from sweeps.session import State
from sweeps.status import SECONDS_PER_HOUR, Status

SLOW = 2.0  # times as long as the Blocks before: worth a look
_MOST_LOST = 5  # shown; more are counted


def lane_facts(status: Status) -> Iterator[tuple[str, str]]:
    """One line in all, one for each Lane that is there or was lost; nothing without a cluster."""
    if not status.seats:
        return
    now = here(status.seats)
    yield "Nodes", _in_all(status, now)
    for seat in sorted(now, key=lambda s: (s.node, s.gpus)):
        yield "", f"{_name(seat)}: {_doing(status, seat)}"
    lost = [seat for seat in status.seats if seat.lost]
    for seat in lost[-_MOST_LOST:]:
        yield "", f"{_name(seat)}: lost after {_held(seat, status.read_at)}: {words.one_line(seat.lost)}"
    if len(lost) > _MOST_LOST:
        yield "", f"and {len(lost) - _MOST_LOST} lost before"


def _in_all(status: Status, now: list[Seat]) -> str:
    lost = sum(bool(seat.lost) for seat in status.seats)
    nodes = words.count(len({seat.node for seat in now}), "node")
    busy = sum(seat.block is not None for seat in now)
    seen = " when last seen" if status.standing.state is State.ELSEWHERE else ""
    there = (
        f"{words.count(len(now), 'place')} on {nodes}{seen}, {busy} of them measuring" if now else "none now"
    )
    return f"{there}; {lost} lost" if lost else there


def _doing(status: Status, seat: Seat) -> str:
    if seat.block is None or seat.block_since_at is None:
        return "waits for a Block"
    since_s = max(0.0, status.read_at - seat.block_since_at)
    usual_s = status.usual_s.get(seat.phase)
    usual = f", usually {words.long_time(usual_s)}" if usual_s is not None else ""
    slow = ": longer than usual" if usual_s is not None and since_s > SLOW * usual_s + 1 else ""
    arms = ", ".join(seat.arms)
    return f"Block {seat.block} ({seat.phase}: {arms}) for {words.long_time(since_s)}{usual}{slow}"


def _name(seat: Seat) -> str:
    return places.label((seat.node, seat.gpus))


def _held(seat: Seat, now_at: float) -> str:
    return words.long_time(max(0.0, (seat.ended_at or now_at) - seat.since_at))


def hours_fact(status: Status) -> tuple[str, str]:
    """Hours of GPUs, or of machines without any: what was held, what of it measured, and what is left."""
    assert status.spent is not None
    held, measured = status.spent.held, status.spent.measured
    share = f" ({words.percent(min(1.0, measured / held))})" if held > 0 else ""
    parts = [f"{_number(held)} held", f"{_number(measured)} in Blocks{share}"]
    left = left_hours(status)
    if left["high"]:
        span = " to ".join(dict.fromkeys(_number(left[end] or 0.0) for end in ("low", "high")))
        parts.append(f"about {span} left to measure")
    if left["budget"] is not None:
        parts.append(f"at most {_number(left['budget'])} left of the budget")
    return "GPU hours" if status.gpus else "Machine hours", ", ".join(parts)


def left_hours(status: Status) -> dict[str, float | None]:
    """Hours of GPUs (of machines where there are none): of the Blocks still to come, and of the budget."""
    per_lane, left = status.gpus or 1, status.left
    budget_s = None if status.hours is None else max(0.0, status.hours * SECONDS_PER_HOUR - status.elapsed_s)
    return {
        "low": None if left is None else left.low_work_s * per_lane / SECONDS_PER_HOUR,
        "high": None if left is None else left.high_work_s * per_lane / SECONDS_PER_HOUR,
        "budget": None if budget_s is None else budget_s * per_lane * status.lanes / SECONDS_PER_HOUR,
    }


def _number(hours: float) -> str:
    return f"{hours:.2g}" if hours < 10 else f"{hours:.0f}"

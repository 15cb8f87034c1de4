"""The status of a run for a terminal and for other programs."""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from analysis import words
from results.records import Effect
from sweeps.now import Stage
from sweeps.session import State
from sweeps.status import SECONDS_PER_HOUR, Best, Progress, Running, Status
from sweeps.status_nodes import SLOW, hours_fact, lane_facts, left_hours

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA = 1  # of the JSON document
NEXT = {
    State.INTERRUPTED: "the same command goes on",
    State.KILLED: "the same command goes on; at most the Block in flight is lost",
    State.FAILED: "what was recorded is kept",
    State.NEW: "nothing was measured yet",
}


def status_lines(status: Status) -> "RenderableType":
    """Names, and beside each what is said of it."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, text in _facts(status):
        grid.add_row(name, Text(words.clean(text)))
    return grid


def _facts(status: Status) -> Iterator[tuple[str, str]]:
    yield "Run", status.name
    yield "State", _state(status)
    if (progress := status.progress) is not None:
        yield "Stage", _stage(progress)
    for duet in status.duets:
        yield "Duets", duet.removeprefix("duet: ")
    if status.running is not None:
        yield "Now", _now(status.running)
    yield from lane_facts(status)
    if status.best is not None:
        yield "Best so far", _best(status.best)
    if status.standing.state is not State.RUNNING:
        yield "Answer", status.answer
    yield (
        "Failures",
        f"{sum(status.failures.values())} of {words.count(status.trials, 'trial')}{_by(status.failures)}",
    )
    thrown = sum(status.invalid.values())
    yield "Blocks", f"{status.blocks}, {thrown} thrown away{_by(status.invalid)}{_age(status)}"
    yield "Elapsed", _elapsed(status)
    if (left := status.left) is not None and left.high_s > 0:
        span = words.time_span(left.low_s, left.high_s)
        on = f" on {words.count(status.lanes, 'place')}" if status.seats else ""
        yield "Left", f"about {span}{on}{_hours(status, left.low_s, left.high_s)}"
    if status.spent is not None:
        yield hours_fact(status)


def _state(status: Status) -> str:
    found = status.standing
    when = (
        "" if found.since_at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.since_at))
    )
    if found.state is State.RUNNING:
        where = ", ".join(filter(None, [f"pid {found.pid}" if found.pid else "", found.why]))
        return f"running, {where}, since {when}"
    seen = {State.KILLED: "last seen ", State.ELSEWHERE: "last seen ", State.NEW: ""}.get(found.state, "")
    parts = (f"{found.state} {seen}{when}".strip(), words.one_line(found.why), NEXT.get(found.state, ""))
    return "; ".join(filter(None, parts))


def _stage(progress: Progress) -> str:
    unit = "Blocks at most" if progress.stage == Stage.CONFIRM else "trials"
    done = f"{progress.stage}: {progress.done} of {progress.total} {unit}"
    look = progress.to_next_look
    return f"{done}, {words.count(look, 'Block')} to the next look" if look else done


def _now(running: Running) -> str:
    arm = running.arm or "all arms in turns"
    doing = f"{arm}: {running.cell or 'its server starts'}, for {words.long_time(running.since_s)}"
    block = f"Block {running.block} ({', '.join(running.arms)}) for {words.long_time(running.block_since_s)}"
    usual = running.usual_block_s
    if usual is None:
        return f"{doing}; {block}"
    slow = ": longer than usual" if running.block_since_s > SLOW * usual + 1 else ""
    return f"{doing}; {block}, usually {words.long_time(usual)}{slow}"


def _best(best: Best) -> str:
    shown = words.times_with_interval(best.effect) if best.effect else words.times(best.log_speedup)
    doubt = (
        f"{best.confirmed} in the confirmation"
        if best.confirmed
        else "in the search; optimistic, as the best of many is"
    )
    return f"{shown} {best.label} ({doubt})"


def _by(reasons: Mapping[str, int]) -> str:
    return f": {', '.join(f'{reason} {times}' for reason, times in reasons.items())}" if reasons else ""


def _age(status: Status) -> str:
    age_s = status.last_block_age_s
    return "" if age_s is None else f"; the last one ended {words.long_time(age_s)} ago"


def _elapsed(status: Status) -> str:
    of = f" of {status.hours:g} h" if status.hours is not None else ""
    return f"{words.long_time(status.elapsed_s)}{of}{_hours(status, status.elapsed_s)}"


def _hours(status: Status, *seconds: float) -> str:
    """The same in hours of the GPUs, or of the machine where there are none; "" if that is not known."""
    if status.gpus is None or status.spent is not None:  # of a cluster: what was held and measured
        return ""
    hours = [s / SECONDS_PER_HOUR * (status.gpus or 1) for s in seconds]
    span = " to ".join(dict.fromkeys(f"{h:.2g}" if h < 10 else f"{h:.0f}" for h in hours))
    on = f"GPU hours ({words.count(status.gpus, 'GPU')})" if status.gpus else "machine hours (no GPU)"
    return f", {span} {on}"


def status_json(status: Status) -> str:
    """All of it, speed-ups as factors; null where it is not known."""
    document = msgspec.to_builtins(status)
    if status.best is not None:
        document["best"] = {
            "label": status.best.label,
            "speedup": words.factor(status.best.log_speedup),
            "interval": factors(status.best.effect),
            "confirmed": status.best.confirmed or None,
        }
    if status.spent is not None:
        document["gpu_hours_left"] = left_hours(status)
    document |= {"machine_hours": status.machine_hours, "gpu_hours": status.gpu_hours, "schema": SCHEMA}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def factors(effect: Effect | None) -> dict[str, float | None] | None:
    """An interval as factors."""
    if effect is None:
        return None
    return {"low": words.factor(effect.low), "high": words.factor(effect.high)}

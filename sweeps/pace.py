"""When requests go out: closed(n), poisson(rate), replay(trace). A new pace is a class here."""

import csv
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from results.errors import UsageError

_FORMS = "{closed: 4}, {poisson: 2.5, seed: 1} or {replay: trace.csv}"
_TIME_KEYS = ("arrival_s", "timestamp")


class Pace(Protocol):
    """Decides when the next request is sent. `str(pace)` names it, e.g. "closed(4)"."""

    @property
    def concurrency(self) -> int | None:
        """Requests this pace keeps in flight; None for open loops."""

    def next_s(self, sent: int, in_flight: int) -> float | None:
        """Scheduled time of request number `sent`, in seconds since the window's start.

        0.0 or any past time = now. None = not before another request has ended.
        """


@dataclass(frozen=True)
class Closed:
    """Keeps `concurrency` requests in flight: one goes out as soon as another has ended."""

    concurrency: int

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise UsageError(f"closed needs at least 1 request in flight, not {self.concurrency}")

    def __str__(self) -> str:
        return f"closed({self.concurrency})"

    def next_s(self, sent: int, in_flight: int) -> float | None:
        return 0.0 if in_flight < self.concurrency else None


@dataclass(frozen=True)
class Poisson:
    """Open loop: gaps between requests are exponential with mean 1 / rate_per_s, the same for a seed."""

    rate_per_s: float
    seed: int = 0
    concurrency: None = field(default=None, init=False)
    _random: random.Random = field(init=False, repr=False, compare=False)
    _times_s: list[float] = field(init=False, repr=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s < math.inf:
            raise UsageError(f"poisson needs a rate in requests per second above 0, not {self.rate_per_s}")
        object.__setattr__(self, "_random", random.Random(self.seed))

    def __str__(self) -> str:
        return f"poisson({self.rate_per_s:g}/s)"

    def next_s(self, sent: int, in_flight: int) -> float | None:
        while len(self._times_s) <= sent:
            last_s = self._times_s[-1] if self._times_s else 0.0
            self._times_s.append(last_s + self._random.expovariate(self.rate_per_s))
        return self._times_s[sent]


@dataclass(frozen=True)
class Replay:
    """Open loop: sends at recorded times, in seconds since the window's start; then no more."""

    times_s: Sequence[float]  # sorted when the Replay is made
    name: str = "trace"
    concurrency: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        wrong = [t for t in self.times_s if not 0 <= t < math.inf]
        if wrong:
            raise UsageError(f"replay {self.name}: an arrival time is in seconds from 0, not {wrong[0]}")
        if not self.times_s:
            raise UsageError(f"replay {self.name}: the trace has no arrival time")
        object.__setattr__(self, "times_s", tuple(sorted(self.times_s)))

    def __str__(self) -> str:
        return f"replay({self.name})"

    def next_s(self, sent: int, in_flight: int) -> float | None:
        return self.times_s[sent] if sent < len(self.times_s) else None

    @classmethod
    def from_file(cls, path: Path | str) -> "Replay":
        """Read a trace: one time per line, or JSON lines or CSV with `arrival_s` or `timestamp`, in seconds.

        `timestamp` is the time of a clock, so the earliest one becomes 0.
        """
        path = Path(path)
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
        except (OSError, UnicodeError) as error:
            raise UsageError(f"cannot read the trace {path}: {error}") from error
        key, times_s = _trace_times([line for line in lines if line], path.name)
        start_s = min(times_s, default=0.0) if key == "timestamp" else 0.0
        return cls([t - start_s for t in times_s], path.name)


def parse_pace(spec: Mapping[str, object] | str) -> Pace:
    """The Pace a sweep asks for: one of {closed: 4}, {poisson: 2.5, seed: 1}, {replay: path}.

    A string is the same in short: "closed(4)", "poisson(2.5)", "replay(path)", or with a colon.
    """
    fields = _short_form(spec) if isinstance(spec, str) else dict(spec)
    match sorted(fields):
        case ["closed"]:
            return Closed(_whole(fields["closed"]))
        case ["poisson"] | ["poisson", "seed"]:
            return Poisson(_number(fields["poisson"]), _whole(fields.get("seed", 0)))
        case ["replay"] if isinstance(fields["replay"], str | Path):
            return Replay.from_file(fields["replay"])
    raise UsageError(f"not a pace: {spec!r}; write {_FORMS}")


def _short_form(spec: str) -> dict[str, object]:
    found = re.fullmatch(r"\s*(\w+)\s*(?:\((.+)\)|:(.+))\s*", spec)
    if not found:
        raise UsageError(f"not a pace: {spec!r}; write {_FORMS}")
    name, value = found[1], (found[2] or found[3]).strip()
    if name == "replay":
        return {name: value}
    try:
        return {name: json.loads(value.removesuffix("/s"))}
    except ValueError:
        raise UsageError(f"not a pace: {spec!r}; write {_FORMS}") from None


def _trace_times(lines: Sequence[str], name: str) -> tuple[str | None, list[float]]:
    """The key that was found (None for bare times) and the times under it."""
    if not lines or _parsed(lines[0]) is not None:
        return None, [_time(line, line, name) for line in lines]
    is_json = lines[0].startswith("{")
    rows = [_json_row(line, name) for line in lines] if is_json else list(csv.DictReader(lines))
    key = next((k for k in _TIME_KEYS if rows and k in rows[0]), None)
    if key is None:
        raise UsageError(f"replay {name}: no `arrival_s` or `timestamp` in {lines[0][:80]!r}")
    return key, [_time(row.get(key), row, name) for row in rows]


def _json_row(line: str, name: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise UsageError(f"replay {name}: not a JSON object: {line[:80]!r}")
    return row


def _time(value: object, shown: object, name: str) -> float:
    time_s = _parsed(value)
    if time_s is None:
        raise UsageError(f"replay {name}: no time in seconds in {str(shown)[:80]!r}")
    return time_s


def _parsed(value: object) -> float | None:
    """A finite number from JSON or text, else None."""
    try:
        time_s = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return time_s if math.isfinite(time_s) and not isinstance(value, bool) else None


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"a pace needs a whole number here, not {value!r}; write {_FORMS}")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"a pace needs a number here, not {value!r}; write {_FORMS}")
    return value

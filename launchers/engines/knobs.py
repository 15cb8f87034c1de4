"""What every engine does with the knobs of a method: defaults, kinds of number, ranges, guesses in turn."""

from collections.abc import Collection, Mapping, Sequence

from launchers.engines.engine import Knob
from results.errors import UsageError
from results.records import KnobValue, Point

Knobs = Mapping[str, KnobValue]


def defaults_of(knobs: Sequence[Knob]) -> dict[str, KnobValue]:
    return {knob.name: knob.default for knob in knobs}


def filled(point: Point, knobs: Sequence[Knob]) -> dict[str, KnobValue]:
    """Every knob of a method, as the Point has it or by default, numbers of the default's kind."""
    return {knob.name: _typed(point.knobs.get(knob.name, knob.default), knob.default) for knob in knobs}


def without_unset(values: Knobs, knobs: Sequence[Knob]) -> dict[str, KnobValue]:
    """The values without optional knobs at their default."""
    unset = {knob.name: knob.default for knob in knobs if knob.optional}
    return {k: v for k, v in values.items() if k not in unset or v != unset[k]}


def _typed(value: KnobValue, default: KnobValue) -> KnobValue:
    if isinstance(default, bool) or isinstance(value, bool | str):
        return value
    if isinstance(default, float):
        return float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def refuse_strangers(point: Point, knobs: Sequence[Knob], dead: Collection[str] = ()) -> None:
    """Raise UsageError for a knob that the method does not have; `dead` ones may be named."""
    own = [knob.name for knob in knobs]
    strangers = sorted(set(point.speculative) - set(own) - set(dead))
    if strangers:
        raise UsageError(
            f"{point.method} has no knob {strangers[0]!r} (its knobs: {', '.join(own) or 'none'})"
        )


def check_value(point: Point, knob: Knob, value: KnobValue) -> None:
    """Raise UsageError with the nearest legal value if one is of the wrong kind or out of range."""
    place = f"{point.label}: {knob.name}"
    if knob.choices:
        if value not in knob.choices:
            raise UsageError(f"{place}={value} is none of {', '.join(map(str, knob.choices))}")
    elif isinstance(knob.default, str):
        if not isinstance(value, str):
            raise UsageError(f"{place}={value} must be text: {knob.meaning}")
    else:
        _check_number(place, knob, value)


def _check_number(place: str, knob: Knob, value: KnobValue) -> None:
    kinds = (int, float) if isinstance(knob.default, float) else (int,)
    if not isinstance(value, kinds) or isinstance(value, bool):
        whole = "" if isinstance(knob.default, float) else " (a whole number)"
        raise UsageError(f"{place} must be a number like {knob.default}{whole}, not {value!r}")
    assert knob.low is not None
    assert knob.high is not None
    if not knob.low <= value <= knob.high:
        nearest = min(max(value, knob.low), knob.high)
        raise UsageError(f"{place}={value} is outside {knob.low} to {knob.high}: nearest is {nearest}")


def in_turn(good: Mapping[str, Sequence[Knobs]]) -> list[Point]:
    """The best guess of every method, then the second of every one ..."""
    depth = max(map(len, good.values()), default=0)
    return [Point(name, of[i]) for i in range(depth) for name, of in good.items() if i < len(of)]

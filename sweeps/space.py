"""The Space: every canonical Point worth trying, without dead knobs and without illegal ones."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, cast

from launchers.engines.engine import Engine, Knob, Served
from launchers.engines.nccl import nccl_version
from launchers.nccl.rules import Version
from results.errors import UsageError
from results.records import BASELINE_METHOD, IMAGE, KnobValue, Point, is_shared, is_variable
from sweeps.mistakes import nearest
from sweeps.sweep import KnobSpec, Range
from sweeps.variables import AS_IS, live_variables, variable_values, why_not, without_dead_variables

if TYPE_CHECKING:
    from optuna import Trial as OptunaTrial

MAX_COMBINATIONS = 1_000_000
Values = tuple[KnobValue, ...]


@dataclass(frozen=True)
class Rules:
    """Which Points of the engine's may be launched."""

    ignored: bool = False  # also those that its rule table forbids
    allow_lossy: bool = False  # also those whose output is not the target model's


@dataclass(frozen=True)
class Space:
    """Values to try for each knob of each method, in order; only legal combinations become Points.

    Shared settings are knobs of every method; `AS_IS` among their values leaves the sweep's own
    argument, or the engine's default, in place.
    """

    engine: Engine
    served: Served
    methods: Mapping[str, Mapping[str, Values]]
    rules: Rules = Rules()
    notes: tuple[str, ...] = ()  # what to know about it, for people

    @property
    def is_baseline(self) -> bool:
        """Whether it holds servers without speculation only."""
        return [*self.methods] == [BASELINE_METHOD]

    @cached_property
    def points(self) -> Mapping[str, Point]:
        """All canonical Points by key, in a fixed order."""
        found: dict[str, Point] = {}
        for method, knobs in self.methods.items():
            for combination in itertools.product(*knobs.values()):
                point = self.point(method, dict(zip(knobs, combination, strict=True)))
                if point is not None:
                    found.setdefault(point.key, point)
        return found

    def point(self, method: str, knobs: Mapping[str, KnobValue]) -> Point | None:
        """The canonical Point of these values; None if it may not be launched."""
        asked = self.as_launched(method, knobs)
        point = without_dead_variables(asked, self.served, self._ranks, self._is_nccl_alone)
        return None if self.refusal(point) else self.engine.canonical(point)

    @staticmethod
    def as_launched(method: str, knobs: Mapping[str, KnobValue]) -> Point:
        """The Point without the shared settings that are left as they are."""
        return Point(method, {k: v for k, v in knobs.items() if not (is_shared(k) and v == AS_IS)})

    @cached_property
    def _ranks(self) -> Callable[[Point], int]:
        """Ranks of a Point's server; variables decide nothing of them."""
        known: dict[tuple[object, ...], int] = {}

        def ranks(point: Point) -> int:
            key = (*point.flags.items(), point.image)
            if key not in known:
                known[key] = self.engine.ranks(point, self.served)
            return known[key]

        return ranks

    @cached_property
    def _nccl_version(self) -> Callable[[Point], Version | None]:
        """The release of NCCL that a Point's server uses: each image has its own."""
        of_image = cache(lambda image: nccl_version(self.engine.torch_of(_of(image))))
        return lambda point: of_image(point.image)

    def _is_nccl_alone(self, point: Point) -> bool:
        """Whether NCCL serves every all-reduce, or the Space leaves open who does."""
        parent = self.engine.no_custom_all_reduce
        if not any(parent in knobs for knobs in self.methods.values()):
            return True
        return bool(point.flags.get(parent, self.served.args.get(parent.lstrip("-"), False)))

    def refusal(self, point: Point) -> str:
        """Why a Point may not be launched, and what to do; "" if it may."""
        plain = Point(point.method, {k: v for k, v in point.knobs.items() if not is_variable(k)})
        key = (plain.method, *plain.knobs.items())
        if key not in self._refusals:  # the engine knows nothing of variables, which multiply the Points
            self._refusals[key] = self._engines_refusal(plain)
        return self._refusals[key] or (
            "" if self.rules.ignored else why_not(point, self.served, self._nccl_version)
        )

    @cached_property
    def _refusals(self) -> dict[tuple[object, ...], str]:
        return {}

    def _engines_refusal(self, point: Point) -> str:
        try:
            if not self.rules.ignored:
                self.engine.check(point, self.served)
        except UsageError as error:
            return str(error)
        lossy = "" if self.rules.allow_lossy else self.engine.lossy(point, self.served)
        return lossy and f"{point.label}: {lossy}; set `allow_lossy: true` to try it (it never wins)"

    def neighbours(self, point: Point) -> list[Point]:
        """Points that differ from this one by one step of one knob."""
        found = {}
        for knob, values in self.methods[point.method].items():
            value = self._value(point, knob)
            at = values.index(value) if value is not None and value in values else None
            for step in (-1, 1):
                if at is None or not 0 <= at + step < len(values):
                    continue
                other = self._completed(point.method, {**point.knobs, knob: values[at + step]})
                if other is not None and other.key != point.key:
                    found[other.key] = other
        return [*found.values()]

    def distance(self, a: Point, b: Point) -> float:
        """Steps from value to value over all knobs; infinite between methods. A dead knob is no way."""
        if a.method != b.method:
            return float("inf")
        steps = 0
        for knob, values in self.methods[a.method].items():
            here, there = self._value(a, knob), self._value(b, knob)
            if here == there or here not in values or there not in values:
                continue
            apart = abs(values.index(here) - values.index(there))
            steps += apart if _is_ordered(values) else 1
        return steps

    def _value(self, point: Point, knob: str) -> KnobValue | None:
        """What this knob is set to; None where it is dead."""
        if knob in point.knobs:
            return point.knobs[knob]
        return AS_IS if is_shared(knob) else self._optional.get((point.method, knob))

    @cached_property
    def _optional(self) -> Mapping[tuple[str, str], KnobValue]:
        """What an optional knob has when it is no part of a Point."""
        known = self.engine.methods(self.served)
        return {(m, k.name): k.default for m, knobs in known.items() for k in knobs if k.optional}

    def _completed(self, method: str, knobs: Mapping[str, KnobValue]) -> Point | None:
        """The first legal Point with these values; knobs that were dead before take any value."""
        options = [(knobs[k],) if k in knobs else values for k, values in self.methods[method].items()]
        for combination in itertools.product(*options):
            point = self.point(method, dict(zip(self.methods[method], combination, strict=True)))
            if point is not None and point.key in self.points:
                return point
        return None

    def nearest(self, point: Point) -> Point | None:
        """The closest Point of this Space to one that may lie outside; None if its method is not here."""
        if point.method not in self.methods:
            return None
        knobs = {
            knob: _closest(self._value(point, knob), values)
            for knob, values in self.methods[point.method].items()
        }
        return self.point(point.method, knobs)

    def suggest(self, trial: "OptunaTrial") -> Point | None:
        """Let the sampler choose: the method first, below it only that method's knobs.

        Ordered numbers are searched by their place in the list, so that distance means something.
        """
        method = trial.suggest_categorical("method", [*self.methods])
        knobs: dict[str, KnobValue] = {}
        for knob, values in self.methods[method].items():
            name = _parameter(method, knob)
            if _is_ordered(values):
                knobs[knob] = values[trial.suggest_int(name, 0, len(values) - 1)]
            else:
                knobs[knob] = cast(KnobValue, trial.suggest_categorical(name, values))
        return self.point(method, knobs)

    def parameters(self, point: Point) -> dict[str, KnobValue]:
        """The sampler's parameters that lead to this Point."""
        parameters: dict[str, KnobValue] = {"method": point.method}
        for knob, values in self.methods[point.method].items():
            value = self._value(point, knob)
            value = values[0] if value is None or value not in values else value
            parameters[_parameter(point.method, knob)] = values.index(value) if _is_ordered(values) else value
        return parameters


def build_space(
    engine: Engine,
    served: Served,
    wanted: Mapping[str, Mapping[str, KnobSpec] | None],
    shared: Mapping[str, KnobSpec] | None = None,
    rules: Rules = Rules(),
) -> Space:
    """Resolve the sweep file's space. Raises UsageError: unknown method or knob, bad value, no Point."""
    known = {m: knobs for m, knobs in engine.methods(served).items() if m != BASELINE_METHOD}
    asked = wanted or dict.fromkeys(known)
    for method in asked:
        if method not in known:
            raise UsageError(f"space: {_why_unknown(engine, served, method)}{nearest(method, [*known])}")
    own = {m: _values(m, known, specs or {}) for m, specs in asked.items()}
    of_all, notes = live_variables(_shared_values(engine, served, shared or {}), engine, served)
    space = Space(engine, served, {m: {**values, **of_all} for m, values in own.items()}, rules, notes)
    _check_size(space)
    for method, specs in asked.items():
        _check_named(space, method, [*(specs or {}), *of_all])
    if not space.points:
        raise UsageError("space: no legal Point in it: " + _why_illegal(space))
    return space


def _of(image: str | None) -> Point:
    return Point(BASELINE_METHOD, {} if image is None else {IMAGE: image})


def baseline_space(space: Space) -> Space | None:
    """The shared settings of a Space with speculation off; None if it has none."""
    of_all = {k: v for k, v in next(iter(space.methods.values())).items() if is_shared(k)}
    return replace(space, methods={BASELINE_METHOD: of_all}) if of_all else None


def _shared_values(engine: Engine, served: Served, shared: Mapping[str, KnobSpec]) -> dict[str, Values]:
    """`--flag`, variable or `image` -> its values; the first leaves everything as the sweep has it."""
    found: dict[str, Values] = {}
    for name, spec in shared.items():
        values = _listed(spec)
        if not values:
            raise UsageError(f"shared: {name}: no value given")
        if is_variable(name):
            found[name] = variable_values(name, values, served)
        elif name == IMAGE:
            found[name] = tuple(dict.fromkeys([AS_IS, *map(str, values)]))
        else:
            flag = f"--{name.lstrip('-')}"
            found[flag] = (AS_IS, *(v for v in dict.fromkeys(values) if _changes(engine, served, flag, v)))
    return found


def _changes(engine: Engine, served: Served, flag: str, value: KnobValue) -> bool:
    """Whether a setting makes another server than the one without it; an illegal one is not settled here."""
    try:
        plain = engine.command(Point(BASELINE_METHOD), served, 0)
        return engine.command(Point(BASELINE_METHOD, {flag: value}), served, 0) != plain
    except UsageError:
        return True


def _check_size(space: Space) -> None:
    combinations = sum(prod(len(v) for v in knobs.values()) for knobs in space.methods.values())
    if combinations > MAX_COMBINATIONS:
        raise UsageError(
            f"space: {combinations:,} combinations are more than {MAX_COMBINATIONS:,}: give fewer values"
        )


def _check_named(space: Space, method: str, named: Sequence[str]) -> None:
    """A value that somebody asked for by name, and that no launch could have, is an error with its rule."""
    if not named:
        return
    knobs = space.methods[method]
    refused: dict[tuple[str, KnobValue], str] = {}
    for combination in itertools.product(*knobs.values()):
        values = dict(zip(knobs, combination, strict=True))
        why = space.refusal(space.as_launched(method, values))
        for name in named:
            place = (name, values[name])
            if not why:
                refused[place] = ""
            refused.setdefault(place, why)
    for (name, value), why in refused.items():
        if why:
            where = f"shared: {name}" if is_shared(name) else f"space: {method}.{name}"
            raise UsageError(f"{where}={value} is in no legal Point: {why}")


def _why_unknown(engine: Engine, served: Served, method: str) -> str:
    if method == BASELINE_METHOD:
        return f"{method!r} is the baseline, it is always measured"
    try:
        engine.check(Point(method), served)
    except UsageError as error:
        return str(error)
    return f"{method!r} is no method"


def _values(
    method: str, known: Mapping[str, Sequence[Knob]], specs: Mapping[str, KnobSpec]
) -> dict[str, Values]:
    knobs = {knob.name: knob for knob in known[method]}
    for name in specs:
        if name not in knobs:
            owners = [m for m, others in known.items() if any(k.name == name for k in others)]
            hint = f": it belongs to {', '.join(owners)}" if owners else nearest(name, [*knobs])
            if name.isupper() or name.startswith("--"):
                hint = ": variables and flags that both arms may have belong to `shared`"
            raise UsageError(f"space: {name!r} is no knob of {method}{hint}")
    return {name: _checked(method, knob, specs.get(name)) for name, knob in knobs.items()}


def _checked(method: str, knob: Knob, spec: KnobSpec | None) -> Values:
    place = f"space: {method}.{knob.name}"
    if spec is None:
        return knob.grid or (knob.default,)
    values = _listed(spec)
    if not values:
        raise UsageError(f"{place}: no value given")
    for value in values:
        _check_value(place, knob, value)
    unique = tuple(dict.fromkeys(values))
    return tuple(sorted(unique, key=float)) if _is_ordered(unique) else unique


def _listed(spec: KnobSpec) -> Values:
    if isinstance(spec, Range):
        return spec.values()
    return tuple(spec) if isinstance(spec, list) else (spec,)


def _parameter(method: str, knob: str) -> str:
    """The sampler's name of a knob: a shared setting is one and the same for all methods."""
    return knob if is_shared(knob) else f"{method}.{knob}"


def _check_value(place: str, knob: Knob, value: KnobValue) -> None:
    if knob.choices:
        if value not in knob.choices:
            raise UsageError(f"{place}: {value!r} is not one of {', '.join(map(str, knob.choices))}")
        return
    if isinstance(knob.default, str):  # a file, a schedule ...: what it may say is the engine's to check
        if not isinstance(value, str):
            raise UsageError(f"{place}: {value!r} is not text")
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{place}: {value!r} is not a number")
    if isinstance(knob.default, int) and not isinstance(value, int):
        raise UsageError(f"{place}: {value!r} is not a whole number")
    low, high = knob.low or 0, float("inf") if knob.high is None else knob.high
    if not low <= value <= high:
        raise UsageError(f"{place}: {value} is outside the engine's range {low:g} to {high:g}")


def _why_illegal(space: Space) -> str:
    method, knobs = next(iter(space.methods.items()))
    try:
        space.engine.check(Point(method, {k: v[0] for k, v in knobs.items() if v[0] != AS_IS}), space.served)
    except UsageError as error:
        return str(error)
    return "give at least one value to each knob"


def _is_ordered(values: Values) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _closest(value: KnobValue | None, values: Values) -> KnobValue:
    if value in values and value is not None:
        return value
    if isinstance(value, int | float) and _is_ordered(values):
        return min(values, key=lambda v: abs(float(v) - float(value)))
    return values[0]


def iter_start_points(space: Space) -> Iterator[Point]:
    """The engine's starting points, moved into the Space, each once."""
    seen = set()
    for point in space.engine.starting_points(space.served):
        inside = space.nearest(point)
        if inside is not None and inside.key in space.points and inside.key not in seen:
            seen.add(inside.key)
            yield inside

"""Environment variables as dimensions of a Space: their values, and where they cannot matter.

NCCL's variables act only where ranks exchange tensors and where NCCL is what serves them: the engine's
own all-reduce stands above them (see docs/nccl.md).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from launchers.engines.engine import Engine, Served
from launchers.nccl.rules import Version, leaves_nothing, unread
from launchers.nccl.variables import check_value, unknown_note
from results.errors import UsageError
from results.records import UNSET, KnobValue, Point
from results.secrets import is_secret, looks_secret

NCCL = "NCCL_"
AS_IS = "as is"  # of a shared setting: what the sweep's own arguments, or the engine, make of it

Values = tuple[KnobValue, ...]
V = TypeVar("V")


def variable_values(name: str, values: Sequence[KnobValue], served: Served) -> Values:
    """Values of one variable, as text; `unset` is one. The first leaves the sweep's own in place.

    Raises UsageError: a secret, a value that is none, a variable that the tool's own environment sets.
    """
    if is_secret(name) or any(looks_secret(str(value)) for value in values):
        raise UsageError(f"shared: {name} holds a secret: it belongs to `env`, the same for both arms")
    if name in os.environ and name not in served.env:
        raise UsageError(
            f"shared: {name} is set in the environment of the tool, which servers inherit:"
            f" unset it there, or give the value that both arms start from under `env`"
        )
    texts = [_text(name, value) for value in values]
    own = served.env.get(name, UNSET)
    return tuple(dict.fromkeys([AS_IS, *(text for text in texts if text != own)]))


def check_fixed(env: Mapping[str, str], version: Callable[[], Version | None] = lambda: None) -> None:
    """Raises UsageError for a fixed variable that is none, or with which NCCL could not start.

    `version` is asked for the release of NCCL; one that is not known is judged as the newest that is.
    """
    for name, value in env.items():
        if value == UNSET:
            raise UsageError(f"env: {name}: leave it out to have it unset")
        if name.startswith(NCCL):
            check_value(name, value)
    of_nccl = {k: v for k, v in env.items() if k.startswith(NCCL)}
    if of_nccl and (why := leaves_nothing(of_nccl, version())):
        raise UsageError(f"env: {why}")


def _text(name: str, value: KnobValue) -> str:
    if isinstance(value, bool):
        raise UsageError(f"shared: {name}: {value} is no text: write 1 or 0, or the value in quotes")
    text = str(value)
    if name.startswith(NCCL) and text != UNSET:
        check_value(name, text)
    return text


def why_not(point: Point, served: Served, version: Callable[[Point], Version | None]) -> str:
    """Why NCCL could not start with the variables of this Point; "" if nothing is known against it."""
    of_nccl = _of_nccl(point, served)
    return (of_nccl and leaves_nothing(of_nccl, version(point))) or ""


def _of_nccl(point: Point, served: Served) -> dict[str, str]:
    env = {**served.env, **point.variables}
    return {k: v for k, v in env.items() if k.startswith(NCCL) and v is not None}


def without_dead_variables(
    point: Point, served: Served, ranks: Callable[[Point], int], nccl_alone: Callable[[Point], bool]
) -> Point:
    """The Point without the NCCL variables that cannot matter in it.

    With one rank nothing is exchanged, below the engine's own all-reduce there is little left to NCCL, and
    some variables are not read beside others.
    """
    if not any(name.startswith(NCCL) for name in point.knobs):
        return point
    if ranks(point) == 1 or not nccl_alone(point):
        return Point(point.method, _without_nccl(point.knobs))
    dead = unread(_of_nccl(point, served))
    return Point(point.method, {k: v for k, v in point.knobs.items() if k not in dead})


def live_variables(
    shared: Mapping[str, Values], engine: Engine, served: Served
) -> tuple[dict[str, Values], tuple[str, ...]]:
    """Shared settings that some Point may have, and what to know about those of NCCL."""
    names = [name for name in shared if name.startswith(NCCL)]
    if not names:
        return dict(shared), ()
    flags = [name for name in shared if name.startswith("--")]
    points = [Point("none"), *(Point("none", {f: v}) for f in flags for v in shared[f] if v != AS_IS)]
    if all(engine.ranks(point, served) == 1 for point in points):
        note = f"{', '.join(names)}: left out, since a server of one rank exchanges nothing through NCCL"
        return _without_nccl(shared), (note,)
    return dict(shared), tuple(_notes(names, engine, served, flags))


def _notes(names: Sequence[str], engine: Engine, served: Served, flags: Sequence[str]) -> Sequence[str]:
    unknown = [note for name in names if (note := unknown_note(name))]
    parent = engine.no_custom_all_reduce
    if parent and parent not in flags and not served.args.get(parent.lstrip("-")):
        unknown.append(
            "the engine's own all-reduce may serve small messages, and NCCL's variables change nothing there:"
            f" put `{parent}: [false, true]` into `shared` to search it above them"
        )
    return unknown


def _without_nccl(knobs: Mapping[str, V]) -> dict[str, V]:
    return {name: value for name, value in knobs.items() if not name.startswith(NCCL)}

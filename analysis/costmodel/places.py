"""Points as places in space, so that near means alike."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from results.records import KnobValue, Point, is_shared

Array = NDArray[np.float64]

METHODS_APART = 1.5  # a whole knob's range is 1


def places(points: Sequence[Point]) -> Array:
    """One row per Point. A number lies by its rank among the values that its knob has here, in [0, 1].

    A knob that is dead in a Point is in its middle; names and switches are corners.
    """
    columns = [_corners([p.method for p in points]) * METHODS_APART]
    names = dict.fromkeys((_owner(p, name), name) for p in points for name in p.knobs)
    for owner, name in names:
        values = [p.knobs.get(name) if _owner(p, name) == owner else None for p in points]
        columns.append(_column(values))
    return np.hstack(columns)


def squared_distances(a: Array, b: Array) -> Array:
    """(len(a), len(b)) squared distances."""
    found: Array = (
        np.sum(a * a, axis=1)[:, None] + np.sum(b * b, axis=1)[None, :] - 2.0 * np.einsum("ik,jk->ij", a, b)
    )
    return np.maximum(found, 0.0)


def _owner(point: Point, name: str) -> str:
    """Knobs of two methods are two knobs, even under one name; a shared setting is one."""
    return "" if is_shared(name) else point.method


def _column(values: Sequence[KnobValue | None]) -> Array:
    alive = {v for v in values if v is not None}
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in alive):
        return _corners(["" if v is None else repr(v) for v in values])
    order = sorted(alive, key=float)
    last = max(len(order) - 1, 1)
    ranks = {v: i / last for i, v in enumerate(order)}
    return np.array([[0.5 if v is None else ranks[v]] for v in values])


def _corners(names: Sequence[str]) -> Array:
    """A corner of its own for each name, one apart from every other."""
    kinds = list(dict.fromkeys(names))
    found: Array = np.eye(len(kinds))[[kinds.index(n) for n in names]] / np.sqrt(2.0)
    return found

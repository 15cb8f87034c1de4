"""What the rules need of the weights: a small map read whole, and a few sampled rows of large tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import ndarray

    Array = ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Samples:
    """Of a head and its target; None for what is not there or cannot be read."""

    d2t: "Array | None" = None  # [draft vocabulary], whole numbers
    t2d: "Array | None" = None  # [target vocabulary], booleans or whole numbers
    lm_head: "Array | None" = None  # [sampled rows, hidden] float32, as all below
    target_lm_head: "Array | None" = None
    embedding: "Array | None" = None
    target_embedding: "Array | None" = None  # the same rows
    same_bytes: bool = False  # of those two
    vocabulary: Mapping[str, int] | None = None  # token -> id, if the drafter brings another tokenizer
    target_vocabulary: Mapping[str, int] | None = None
    notes: tuple[str, ...] = field(default=())  # what could not be looked into


@dataclass(frozen=True, slots=True)
class Likeness:
    """How far rows are from independent random numbers. All three are 1 for those.

    A head that was trained has a common direction, rows of unequal length and rows that are alike.
    """

    common: float  # squared length of the mean row, against what chance gives
    uneven: float  # spread of the rows' lengths, likewise
    alike: float  # mean squared cosine of two rows, likewise
    looks_random: bool  # all three within what chance gives
    is_zero: bool = False


SURE = 6.0  # standard deviations of chance
LEAST_ROWS, LEAST_WIDTH = 64, 32


def likeness(rows: "Array") -> Likeness | None:
    """Of rows [R, H] of an embedding or a head; None for too few, or for values that are no numbers."""
    import numpy as np

    count, width = rows.shape
    values = rows.astype(np.float64)
    if count < LEAST_ROWS or width < LEAST_WIDTH or not np.isfinite(values).all():
        return None
    squares = (values**2).sum(1)
    mean_square = float(squares.mean())
    if mean_square == 0:
        return Likeness(0, 0, 0, False, is_zero=True)
    if not squares.all():
        return None
    common = count * float((values.mean(0) ** 2).sum()) / mean_square
    kurtosis = float((values**4).mean()) / float((values**2).mean()) ** 2
    uneven = float(squares.var()) / mean_square**2 * width / max(kurtosis - 1, 1e-9)
    cosines = (values @ values.T) / np.sqrt(np.outer(squares, squares))
    pairs = cosines[np.triu_indices(count, 1)]
    alike = float((pairs**2).mean()) * width
    by_chance = ((common, (2 / width) ** 0.5), (uneven, (2 / count) ** 0.5), (alike, 2 / count))
    return Likeness(common, uneven, alike, all(abs(x - 1) < SURE * sd for x, sd in by_chance))

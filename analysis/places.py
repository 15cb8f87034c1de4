"""Where Blocks happened. Absolute figures are those of one place: averaged over two they are of neither."""

from collections import Counter
from collections.abc import Iterable, Sequence

from analysis.anchor import Place, place_of
from analysis.words import count
from results.records import Block

_UUID_CHARS = 12  # the beginning of a GPU's UUID, which no other of a machine shares


def busiest(blocks: Iterable[Block]) -> Place:
    """The place of most Blocks, the earlier one of equals; that of the run's machine if there are none."""
    found = Counter(map(place_of, blocks)).most_common(1)
    return found[0][0] if found else ("", ())


def at(place: Place, blocks: Iterable[Block]) -> list[Block]:
    return [b for b in blocks if place_of(b) == place]


def of_one(blocks: Sequence[Block]) -> list[Block]:
    """Those of the place that has most of them."""
    return at(busiest(blocks), blocks)


def is_cluster(blocks: Iterable[Block]) -> bool:
    """Whether the run was measured on named nodes, not on its own machine alone."""
    return any(b.node for b in blocks)


def gpus_named(gpus: Sequence[str]) -> str:
    """`0, 1`; UUIDs by their beginning."""
    return ", ".join(gpu[:_UUID_CHARS] for gpu in gpus)


def label(place: Place) -> str:
    """`node-a (GPU 0, 1)`."""
    node, gpus = place
    return (node or "this machine") + (f" (GPU {gpus_named(gpus)})" if gpus else "")


def only_of(blocks: Sequence[Block]) -> str:
    """The sentence that says which of several places an absolute figure is of; "" = there is but one."""
    places = list(dict.fromkeys(map(place_of, blocks)))
    if len(places) < 2:
        return ""
    shown = busiest(blocks)
    share = f"{len(at(shown, blocks))} of {count(len(blocks), 'Block')}"
    return (
        f"Of {label(shown)} alone, which measured {share}: absolute figures of several places do not average."
    )

"""Whether a dump that somebody names is one of this target: said before anything is computed with it."""

from collections.abc import Iterator

from results.checkpoint import Checkpoint
from results.errors import UsageError
from results.hidden_states import AnyDump, HiddenStates


def check_dump(dump: AnyDump, target: Checkpoint) -> None:
    """Goes through it once. Raises UsageError for a dump of another target, or with nothing to look at."""
    layers, own = target.whole("num_hidden_layers"), dump.header.layers
    if layers and own != layers:
        raise UsageError(f"{dump.folder} is of a target of {own} layers, {target.folder.name} has {layers}")
    count = 0
    for count, sequence in enumerate(dump, 1):
        for wrong in _misfits(sequence, own, target):
            raise UsageError(f"{dump.folder}, sequence {count}: {wrong}")
    if not count:
        raise UsageError(f"{dump.folder} holds no sequences")


def _misfits(sequence: HiddenStates, layers: int, target: Checkpoint) -> Iterator[str]:
    width, vocabulary = target.whole("hidden_size"), target.whole("vocab_size")
    if not sequence.states:
        yield "it holds no states of the target"
    for boundary, state in sequence.states.items():
        shape = tuple(state.shape)
        if not 0 <= boundary <= layers + 1:
            yield f"b{boundary} is none of a target of {layers} layers"
        elif len(shape) != 2 or (width and shape[1] != width):
            yield f"b{boundary} has the shape {shape}, the target's hidden size is {width}"
        elif shape[0] > len(sequence.token_ids):
            yield f"b{boundary} has {shape[0]} rows for {len(sequence.token_ids)} tokens"
    ids = sequence.token_ids
    if vocabulary and len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < vocabulary):
        yield f"its tokens are {int(ids.min())} to {int(ids.max())}, the target knows {vocabulary}"

"""How well a head predicts its target under a Reading, without an engine.
 The text is forced: in step j row p holds the token p + 1 + j and predicts the one after it, so that all
rows of all steps are computed at once. The score is the cross-entropy against the target's own distribution
over the draft vocabulary, less that distribution's entropy, plus what the vocabulary leaves out (minus the
logarithm of the share that it covers): nats a token, 0 for a perfect head. For readings with the same draft
vocabulary it differs from the cross-entropy by a constant.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from analysis.wiring.fusion import Fusion
from analysis.wiring.head import Chain
from analysis.wiring.tensors import linear
from analysis.wiring.vocabulary import Pair
from results.errors import UsageError
from results.hidden_states import HiddenStates
from results.wiring import D2t, Reading

if TYPE_CHECKING:
    from torch import Tensor

LIKELIEST = 1024  # draft tokens by which the target's distribution is represented in each row
LOGITS = 1 << 25  # computed at a time: 128 MB
BATCH_ROWS = 2048  # rows of candidates computed together


@dataclass(frozen=True, slots=True)
class Loss:
    """Of one Reading on one sequence, summed over rows and steps."""

    nats: float
    rows: int
    agreed: int  # rows of the first step whose likeliest token is the target's
    judged: int  # rows of the first step


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """The target's distribution over a draft vocabulary, for each row of a sequence."""

    likeliest: "Tensor"  # [rows, m] draft ids, likeliest first
    shares: "Tensor"  # [rows, m], their sum is 1
    constant: "Tensor"  # [rows] the sum of p log p, and minus the logarithm of the share covered


class Text:
    """One sequence, and what all readings share of it. At most `rows` rows of it are used."""

    def __init__(self, pair: Pair, sequence: HiddenStates, rows: int | None = None) -> None:
        self.pair = pair
        self.ids = sequence.token_ids
        self.states = {b: s[:rows] for b, s in sequence.states.items()}
        self.rows = min(len(s) for s in self.states.values())
        self._teachers: dict[bytes, Teacher] = {}

    @cached_property
    def last(self) -> "Tensor":
        """[rows, H] after the final norm."""
        return self.pair.target.last(self.states).to(self.pair.head.device)

    @cached_property
    def normaliser(self) -> "Tensor":
        return self.pair.target.log_normaliser(self.last)

    def tokens(self, shift: int) -> "Tensor":
        """The token so many after each row, [rows]; the last one stands for what comes after it."""
        import torch

        return self.ids[(torch.arange(self.rows) + shift).clamp(0, len(self.ids) - 1)]

    def surprise(self) -> float:
        """Nats a token by which the target is surprised at the text it was given."""
        known = min(self.rows, len(self.ids) - 1)
        rows = self.pair.target.lm_head[self.tokens(1)[:known]].to(self.last)
        said = (self.last[:known] * rows).sum(-1) - self.normaliser[:known]
        return -float(said.mean())

    def teacher(self, how: D2t) -> Teacher:
        ids = self.pair.draft_ids(how)
        key = ids.numpy().tobytes()
        if key not in self._teachers:
            self._teachers = {key: self._teach(ids)}  # one at a time: readings of one map come together
        return self._teachers[key]

    def _teach(self, ids: "Tensor") -> Teacher:
        import torch

        size, repeated = max(1, LOGITS // len(ids)), _repeated(ids)
        parts = [self._taught(ids, repeated, slice(n, n + size)) for n in range(0, self.rows, size)]
        return Teacher(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def _taught(self, ids: "Tensor", repeated: "Tensor", rows: slice) -> tuple["Tensor", "Tensor", "Tensor"]:
        logits = linear(self.last[rows], self.pair.target.lm_head, rows=ids)
        logits.masked_fill_(repeated.to(logits.device), float("-inf"))
        covered = logits.logsumexp(-1)
        top = logits.topk(min(LIKELIEST, int((~repeated).sum())), dim=-1)
        logs = top.values.log_softmax(-1)
        shares = logs.exp()
        return top.indices, shares, (shares * logs).sum(-1) + self.normaliser[rows] - covered


def losses(text: Text, readings: Sequence[Reading], steps: int = 1) -> list[Loss | None]:
    """Of each reading, in their order; None where the head cannot be read so.

    Raises UsageError if the text is too short, or the dump does not say what the target would.
    """
    if text.last.shape[0] < steps + 1:
        raise UsageError(f"{text.rows} rows are too few for {steps} draft steps")
    found: list[Loss | None] = [None] * len(readings)
    for places in _alike(readings).values():
        fusion = Fusion(
            text.pair.head, readings[places[0]], text.states, keeps=_shares_products(readings, places)
        )
        size = max(1, BATCH_ROWS // text.rows)
        for batch in (places[n : n + size] for n in range(0, len(places), size)):
            for place, loss in zip(
                batch, _batch(text, fusion, [readings[n] for n in batch], steps), strict=True
            ):
                found[place] = loss
    return found


def guessed(text: Text, how: D2t, steps: int = 1) -> Loss:
    """Of one who knows but how often each token comes in this text: what a head must beat."""
    import torch

    taught, tokens = text.teacher(how), text.pair.draft_tokens
    flat = taught.likeliest.flatten(), taught.shares.flatten().double()
    often = torch.zeros(tokens, dtype=torch.double, device=flat[1].device).scatter_add(0, *flat) / text.rows
    loss = taught.constant - (taught.shares * often.log()[taught.likeliest]).sum(-1)
    agreed = taught.likeliest[1:, 0] == often.argmax()
    nats = sum(float(loss[step:].sum()) for step in range(1, steps + 1))
    rows = sum(text.rows - step for step in range(1, steps + 1))
    return Loss(nats, rows, int(agreed.sum()), text.rows - 1)


def _alike(readings: Sequence[Reading]) -> Mapping[str, Sequence[int]]:
    """Places of the readings that differ in their boundaries alone; those of one map stand together."""
    groups: dict[str, list[int]] = {}
    for place in sorted(range(len(readings)), key=lambda n: readings[n].d2t):
        groups.setdefault(repr(replace(readings[place], boundaries=())), []).append(place)
    return groups


def _shares_products(readings: Sequence[Reading], places: Sequence[int]) -> bool:
    """Whether products of states and parts of the fusion layer come up again."""
    products = [(slot, b) for n in places for slot, b in enumerate(readings[n].boundaries)]
    return len(products) > 2 * len(set(products))


def _batch(text: Text, fusion: Fusion, readings: Sequence[Reading], steps: int) -> list[Loss | None]:
    import torch

    try:
        with torch.no_grad():
            fused = torch.stack([fusion(reading.boundaries) for reading in readings])
            stepped = list(_steps(text, fusion.reading, fused, steps))
    except UsageError:
        return [None] * len(readings)
    nats = sum(loss.double().sum(-1) for loss, _ in stepped)
    rows = sum(loss.shape[1] for loss, _ in stepped)
    agreed, judged = stepped[0][1].sum(-1), stepped[0][1].shape[1]
    assert isinstance(nats, torch.Tensor)
    return [Loss(float(n), rows, int(a), judged) for n, a in zip(nats, agreed, strict=True)]


def _steps(text: Text, reading: Reading, hidden: "Tensor", steps: int) -> Iterator[tuple["Tensor", "Tensor"]]:
    """Loss of each row, and whether the likeliest token is the target's, [B, rows] for each step."""
    chain, teacher = Chain(text.pair.head, reading), text.teacher(reading.d2t)
    for step in range(steps):
        embedded = text.pair.embed(reading, text.tokens(reading.token_shift + step))
        normed, hidden = chain.step(embedded[None], hidden)
        yield _judged(text.pair, reading, teacher, normed[:, : text.rows - 1 - step], step + 1)


def _judged(
    pair: Pair, reading: Reading, teacher: Teacher, normed: "Tensor", ahead: int
) -> tuple["Tensor", "Tensor"]:
    """Row p is judged by the target's distribution at p + ahead."""
    import torch

    candidates, rows, width = normed.shape
    flat, size = normed.reshape(-1, width), max(1, LOGITS // pair.draft_tokens)
    judges = (torch.arange(rows, device=normed.device) + ahead).repeat(candidates)
    parts = []
    for x, judge in zip(flat.split(size), judges.split(size), strict=True):
        logits, likeliest = pair.logits(reading, x), teacher.likeliest[judge]
        said = (teacher.shares[judge] * logits.gather(-1, likeliest)).sum(-1)
        loss = teacher.constant[judge] - said + logits.logsumexp(-1)
        parts.append((loss, logits.argmax(-1) == likeliest[:, 0]))
    loss, agrees = (torch.cat(column).unflatten(0, (candidates, rows)) for column in zip(*parts, strict=True))
    return loss, agrees


def _repeated(ids: "Tensor") -> "Tensor":
    """Draft ids whose target id an earlier one stands for already, [draft vocabulary] bool."""
    import torch

    order = ids.argsort(stable=True)
    again = torch.zeros(len(ids), dtype=torch.bool)
    again[order[1:]] = ids[order[1:]] == ids[order[:-1]]
    return again

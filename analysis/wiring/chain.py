"""What a server would accept of the drafts for a greedy answer, round by round, without the server.
 Counts are those of the engines: the prompt's own pass gives the first token; each round then verifies k
drafts after the last served token, and its accepted drafts count in full even where the answer ends within
the round.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.wiring.fusion import Fusion
from analysis.wiring.head import Chain
from analysis.wiring.vocabulary import Pair
from results.hidden_states import HiddenStates
from results.wiring import Reading

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Prediction:
    """Accepted drafts in each round of one or more answers."""

    drafts: int
    counts: tuple[int, ...]
    cut_short: int = 0  # rounds whose accepted drafts reach the end of the known text: counted as far as that

    @property
    def by_position(self) -> tuple[int, ...]:
        """Rounds in which at least the first, second, .. draft was accepted."""
        return tuple(sum(n > place for n in self.counts) for place in range(self.drafts))

    @property
    def accept_length(self) -> float | None:
        """Tokens a round: the accepted drafts and the target's own. None without rounds."""
        return 1 + sum(self.counts) / len(self.counts) if self.counts else None

    def __add__(self, other: "Prediction") -> "Prediction":
        return Prediction(self.drafts, self.counts + other.counts, self.cut_short + other.cut_short)


def predict(
    pair: Pair, reading: Reading, sequence: HiddenStates, drafts: int, answer_tokens: int | None = None
) -> Prediction:
    """Rounds of `drafts` drafts, one after the other, of an answer of so many tokens (all, if not said).

    What is known of the text past the answer's end only serves to judge the last round.
    Raises UsageError if the head cannot be read so.
    """
    prompt, known = sequence.prompt_tokens, len(sequence.token_ids)
    tokens = known - prompt if answer_tokens is None else answer_tokens
    lengths = _accepted_anywhere(pair, reading, sequence, drafts)
    counts: list[int] = []
    served = 1
    while served < tokens and prompt + served - 2 < len(lengths):
        counts.append(lengths[prompt + served - 2])
        served += counts[-1] + 1
    reached = prompt + served - 1 >= known  # the token that would have ended the round is not known
    return Prediction(drafts, tuple(counts), int(bool(counts) and reached and counts[-1] < drafts))


def _accepted_anywhere(pair: Pair, reading: Reading, sequence: HiddenStates, drafts: int) -> list[int]:
    """Drafts accepted by a round that begins at row p: that knows the states up to p and the token p + 1."""
    import torch

    with torch.no_grad():
        proposed = _proposed(pair, reading, sequence, drafts)
    rows, ids = proposed.shape[0], sequence.token_ids
    wanted = torch.cat([ids, ids.new_full((rows + drafts + 2 - len(ids),), -1)]) if rows else ids
    is_right = proposed.cpu() == wanted[2:].unfold(0, drafts, 1)[:rows]
    accepted: list[int] = is_right.long().cumprod(-1).sum(-1).tolist()
    return accepted


def _proposed(pair: Pair, reading: Reading, sequence: HiddenStates, drafts: int) -> "Tensor":
    """Target ids [rows, drafts]."""
    import torch

    ids = sequence.token_ids
    rows = min(min(len(s) for s in sequence.states.values()), len(ids) - 1)
    hidden = Fusion(pair.head, reading, {b: s[:rows] for b, s in sequence.states.items()})(
        reading.boundaries
    )[None]
    beside = (torch.arange(rows) + reading.token_shift).clamp(0, len(ids) - 1)
    chain, fresh, proposed = Chain(pair.head, reading), ids[beside], []
    meaning = pair.draft_ids(reading.d2t)
    for _ in range(drafts):
        normed, hidden = chain.step(pair.embed(reading, fresh)[None], hidden)
        fresh = meaning[_likeliest(pair, reading, normed[0]).cpu()]
        proposed.append(fresh)
    return torch.stack(proposed, dim=-1)


def _likeliest(pair: Pair, reading: Reading, normed: "Tensor") -> "Tensor":
    import torch

    return torch.cat([pair.logits(reading, part).argmax(-1) for part in normed.split(256)])

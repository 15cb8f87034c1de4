"""One acceptance, told in four ways: what an engine prints, and the accuracy of the head that gives it.

A round verifies a draft of k tokens, one after the other; up to k are accepted, and one more token, the bonus
token, comes from the target itself.

- rate: accepted / (rounds x tokens verified beside the root). vLLM, llama.cpp, SGLang since its #13212.
- length: 1 + accepted / rounds, the bonus token counted. SGLang's accept len, vLLM's mean acceptance length.
  Some papers and scripts leave the bonus token out: exactly 1 less.
- conditional accuracy a_i: accepted at i / accepted at i - 1; a_1 is accepted at 1 / rounds.
- full accuracy: accepted up to i / rounds, which is a_1 x ... x a_i. vLLM's per-position rate.

SGLang's k is its number of draft tokens less one in a chain; in a tree k is the number of steps, and the
rate, whose denominator is the whole tree, cannot reach 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from results.records import DraftShape, SpecCounters

BISECTIONS = 60  # halvings of [0, 1]: to the last bit
TABLE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # conditional accuracies


def accepted_per_round(accuracy: float, k: int) -> float:
    """a + a^2 + ... + a^k: accepted tokens of a round, if every position has the accuracy a."""
    return sum(accuracy**i for i in range(1, k + 1))


def rate_of(accuracy: float, k: int) -> float:
    """Accepted / proposed tokens of a chain of k drafts with a flat conditional accuracy."""
    return accepted_per_round(accuracy, k) / k


def accuracy_of_rate(rate: float, k: int) -> float:
    """The flat conditional accuracy that gives this rate; the inverse of `rate_of`.

    Raises ValueError for a rate outside [0, 1].
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"a rate is between 0 and 1, not {rate}")
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rate_of(middle, k) < rate else (low, middle)
    return high


def length_of(accuracy: float, k: int, *, with_bonus: bool = True) -> float:
    """Tokens that a round emits, [1, k + 1]; without the bonus token [0, k]."""
    return accepted_per_round(accuracy, k) + with_bonus


def accuracy_of_length(length: float, k: int, *, with_bonus: bool = True) -> float:
    """The inverse of `length_of`. Raises ValueError for a length that no k drafts give."""
    accepted = length - with_bonus
    if not 0 <= accepted <= k:
        least = int(with_bonus)
        raise ValueError(f"at k = {k} a length is between {least} and {k + least}, not {length}")
    return accuracy_of_rate(accepted / k, k)


def conditional_accuracies(rounds: int, accepted_per_position: Sequence[int]) -> tuple[float | None, ...]:
    """a_1 ... a_k; None where no draft got so far."""
    before = (rounds, *accepted_per_position)
    return tuple(n / b if b else None for b, n in zip(before, accepted_per_position, strict=False))


def full_accuracies(rounds: int, accepted_per_position: Sequence[int]) -> tuple[float, ...]:
    """Share of the rounds accepted at least up to each position. Raises ZeroDivisionError without a round."""
    return tuple(n / rounds for n in accepted_per_position)


def old_sglang_rate(length: float, draft_tokens: int) -> float:
    """What SGLang printed as the rate before its pull request 13212: the bonus token above, the root below.

    `draft_tokens` are those verified beside the root, as everywhere here.
    """
    return length / (draft_tokens + 1)


def highest_rate(shape: DraftShape) -> float:
    """The rate if all is accepted: 1 in a chain, less in a tree."""
    return shape.depth / shape.draft_tokens


@dataclass(frozen=True, slots=True)
class Row:
    """What one conditional accuracy gives in a run of one shape."""

    accuracy: float
    length: float  # with the bonus token
    rate: float
    old_rate: float


def table(shape: DraftShape, accuracies: Sequence[float] = TABLE) -> tuple[Row, ...]:
    """The conversions for one run. In a tree the accuracy is that of one of the branches being right."""
    lengths = [length_of(a, shape.depth) for a in accuracies]
    return tuple(
        Row(a, n, (n - 1) / shape.draft_tokens, old_sglang_rate(n, shape.draft_tokens))
        for a, n in zip(accuracies, lengths, strict=True)
    )


def counted_shape(counters: SpecCounters) -> DraftShape | None:
    """What was drafted, by the counts: depth from the positions, tokens from their mean; None without any.

    The positions tell a tree (`topk` 2 stands for more than one) from a chain; without them it is taken
    for a chain.
    """
    if counters.drafts <= 0 or counters.draft_tokens < counters.drafts:
        return None
    tokens = round(counters.draft_tokens / counters.drafts)
    depth = min(len(counters.accepted_per_position) or tokens, tokens)
    return DraftShape(depth, tokens, passes=depth, topk=1 if depth == tokens else 2)

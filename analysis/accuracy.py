"""Right answers, where the workload has references: scored per arm, compared prompt by prompt.

The unit is the prompt, however often it was asked: at temperature 0 a repeated prompt gives the same
answer again, and no further evidence.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import comb
from typing import Literal

from results.records import Accuracy, ArmRun, Request, Score

ALPHA = 0.01  # level at which fewer right answers make a candidate INVALID_OUTPUT
DOUBT = 0.05  # and at which they are a warning
Match = Literal["exact", "contains", "number"]
_NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d[\d,]*)(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Reference:
    """What answers a prompt rightly: any one of the accepted texts, as `match` compares them."""

    accepted: tuple[str, ...]
    match: Match = "exact"


def is_right(answer: str, reference: Reference) -> bool:
    """Whether an answer is one that is accepted; reasoning before `</think>` is no part of it.

    exact: the same but for white space; contains: it is somewhere in it; number: its last number has
    the same value.
    """
    said = answer.rpartition("</think>")[2]
    if reference.match == "number":
        last = last_number(said)
        return last is not None and any(last == last_number(text) for text in reference.accepted)
    told, accepted = _spaced(said), [_spaced(text) for text in reference.accepted]
    if reference.match == "contains":
        return any(text in told for text in accepted)
    return told in accepted


def last_number(text: str) -> Decimal | None:
    """`1,234.50` is 1234.5; None without a number."""
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "").replace("−", "-")) if found else None


def _spaced(text: str) -> str:
    return " ".join(text.split())


def scores(requests: Sequence[Request], references: Mapping[str, Reference]) -> dict[str, Score]:
    """How often each prompt with a reference was answered rightly, by `class/prompt id`."""
    found: dict[str, Score] = {}
    for request in requests:
        key = prompt_key(request.workload_class, request.prompt_id)
        if request.error is None and key in references:
            before = found.get(key, Score(0, 0))
            found[key] = Score(before.right + is_right(request.text, references[key]), before.asked + 1)
    return found


def prompt_key(workload_class: str, prompt_id: str) -> str:
    return f"{workload_class}/{prompt_id}"


def accuracy(pairs: Iterable[tuple[ArmRun, ArmRun]]) -> Accuracy | None:
    """Candidate against baseline over the Blocks given as (baseline, candidate); None without references."""
    both = [(dict(baseline.scores), dict(candidate.scores)) for baseline, candidate in pairs]
    theirs, ours = _is_right([b for b, _ in both]), _is_right([c for _, c in both])
    shared = theirs.keys() & ours.keys()
    if not shared:
        return None
    lost = sum(theirs[p] is True and ours[p] is False for p in shared)
    gained = sum(theirs[p] is False and ours[p] is True for p in shared)
    return Accuracy(
        prompts=len(shared),
        right=sum(ours[p] is True for p in shared),
        baseline_right=sum(theirs[p] is True for p in shared),
        lost=lost,
        gained=gained,
        p_value=chance_of_losing(lost, gained),
    )


def _is_right(blocks: Sequence[Mapping[str, Score]]) -> dict[str, bool | None]:
    """By the majority of all times it was asked; None = half of them."""
    found: dict[str, bool | None] = {}
    for prompt in {p for block in blocks for p in block}:
        told = [block[prompt] for block in blocks if prompt in block]
        balance = 2 * sum(s.right for s in told) - sum(s.asked for s in told)
        found[prompt] = None if balance == 0 else balance > 0
    return found


def chance_of_losing(lost: int, gained: int) -> float:
    """Exact McNemar test, one-sided: the chance of so many lost if either change were as likely."""
    changed = lost + gained
    return sum(comb(changed, k) for k in range(lost, changed + 1)) / (1 << changed)


def is_worse(found: Accuracy | None) -> bool:
    return found is not None and found.p_value <= ALPHA


def in_words(found: Accuracy, reference: str) -> str:
    """`12 of 40 answers right, the baseline's 31 of 40 (20 lost, 1 gained, p = 0.00001)`."""
    return (
        f"{found.right} of {found.prompts} answers right, {reference}'s {found.baseline_right} of"
        f" {found.prompts} ({found.lost} lost, {found.gained} gained, p = {found.p_value:.2g})"
    )

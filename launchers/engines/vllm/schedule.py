"""Draft lengths by batch size: `1-4:5,5-16:3,17-:0` drafts 5 tokens up to 4 requests, none from 17 on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from results.errors import UsageError

RANGE = re.compile(r"(\d+)-(\d*):(\d+)")
SHAPE = "write ranges of batch sizes and their draft length like 1-4:5,5-16:3,17-:0"


@dataclass(frozen=True, slots=True)
class Step:
    """One range of batch sizes, both ends included; `last` None = all above."""

    first: int
    last: int | None
    tokens: int

    def __str__(self) -> str:
        return f"{self.first}-{'' if self.last is None else self.last}:{self.tokens}"


def parse(text: str) -> tuple[Step, ...]:
    """The ranges, in order and without gaps, the last one open. Raises UsageError with the rule.

    vLLM itself carries the last length on to every larger batch, so a closed last range is the same.
    """
    found = [_step(part.strip()) for part in text.split(",")]
    due = 1
    for step in found:
        if step.first != due:
            raise UsageError(f"{text}: the range {step} must start at {due} (no gap, no overlap, from 1 on)")
        if step.last is None and step is not found[-1]:
            raise UsageError(f"{text}: only the last range may be open, and {step} is not the last")
        if step.last is not None and step.last < step.first:
            raise UsageError(f"{text}: the range {step} ends before it starts")
        due = (step.last or 0) + 1
    return _joined([*found[:-1], Step(found[-1].first, None, found[-1].tokens)])


def _step(part: str) -> Step:
    match = RANGE.fullmatch(part)
    if match is None:
        raise UsageError(f"{part!r} is no range: {SHAPE}")
    return Step(int(match[1]), int(match[2]) if match[2] else None, int(match[3]))


def _joined(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Neighbours with equal lengths are one range."""
    joined: list[Step] = []
    for step in steps:
        if joined and joined[-1].tokens == step.tokens:
            joined[-1] = Step(joined[-1].first, step.last, step.tokens)
        else:
            joined.append(step)
    return tuple(joined)


def text_of(steps: Sequence[Step]) -> str:
    """The one way to write them."""
    return ",".join(map(str, steps))


def as_json(steps: Sequence[Step], max_batch: int) -> list[list[int]]:
    """vLLM's form; the open end becomes the largest batch of the server."""
    return [
        [step.first, max(step.first, max_batch) if step.last is None else step.last, step.tokens]
        for step in steps
    ]


def from_json(ranges: Sequence[Sequence[int]]) -> str:
    """What the server says of itself, in our form."""
    steps = [Step(first, last, tokens) for first, last, tokens in sorted(map(tuple, ranges))]
    return text_of(_joined([*steps[:-1], Step(steps[-1].first, None, steps[-1].tokens)]))

"""What is known of the replies of a server, one by one."""

from collections.abc import Sequence
from dataclasses import dataclass

from results.records import SpecCounters


@dataclass(frozen=True, slots=True)
class Reply:
    text: str = ""
    counters: SpecCounters | None = None  # of its own drafts
    prompt_tokens: int | None = None
    accepted_by_round: Sequence[int] = ()  # in the order of its rounds, where told


def counts_by_reply(replies: Sequence[Reply]) -> tuple[SpecCounters, ...]:
    """Those of the replies that had rounds."""
    return tuple(r.counters for r in replies if r.counters is not None and r.counters.drafts > 0)

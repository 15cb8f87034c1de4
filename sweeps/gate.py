"""Ends a Point that is hopelessly slower than the baseline after a few prompts."""

from collections.abc import Callable, Mapping

from results.records import Cell, Request

MINIMUM = 3  # prompts before a Point can be called hopeless

PromptKey = tuple[str, str]  # Cell label, prompt id


def seconds_per_token(request: Request) -> float | None:
    """Wall time of a request for each of its output tokens; None if it has none."""
    return (request.ended_s - request.sent_s) / request.output_tokens if request.output_tokens else None


class Gate:
    """Compares one arm with what the baseline needed for the same prompts."""

    def __init__(self, baseline: Mapping[PromptKey, float], ratio: float) -> None:
        self._baseline = baseline  # seconds per token; may grow while the arm runs
        self._ratio = ratio
        self._seen_s: dict[Cell, list[tuple[float, float]]] = {}  # per token, theirs and ours

    @property
    def speed_ratio(self) -> float:
        """This arm's speed over the baseline's, on the prompts seen so far; 1 before any."""
        theirs_s, ours_s = (sum(side) for side in zip((0.0, 0.0), *self._pairs_s, strict=True))
        return theirs_s / ours_s if ours_s > 0 else 1.0

    @property
    def is_shut(self) -> bool:
        return len(self._pairs_s) >= MINIMUM and self.speed_ratio < self._ratio

    @property
    def _pairs_s(self) -> list[tuple[float, float]]:
        return [pair for of_cell in self._seen_s.values() for pair in of_cell]

    def watch(self, cell: Cell) -> Callable[[Request], bool]:
        """A callback for the requests of a Cell: whether to go on."""
        seen_s = self._seen_s.setdefault(cell, [])

        def go_on(request: Request) -> bool:
            theirs_s, ours_s = self._baseline.get((cell.label, request.prompt_id)), seconds_per_token(request)
            if theirs_s is not None and ours_s is not None:
                seen_s.append((theirs_s, ours_s))
            return not self.is_shut

        return go_on

    def forget(self, cell: Cell) -> None:
        """Leave a Cell out: the server did not admit its load, so that requests waited."""
        self._seen_s.pop(cell, None)

"""When requests go out: closed(n), poisson(rate), replay(trace). A new pace is a class here."""

from typing import Protocol


class Pace(Protocol):
    """Decides when the next request is sent. `str(pace)` names it, e.g. "closed(4)"."""

    concurrency: int | None  # requests this pace keeps in flight; None for open loops

    def next_s(self, sent: int, in_flight: int) -> float | None:
        """Scheduled time of request number `sent`, in seconds since the window's start.

        0.0 or any past time = now. None = not before another request has ended.
        """

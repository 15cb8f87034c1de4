"""Whether the server admits the load: with requests waiting inside it, a Cell measures the queue."""

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from results.errors import MeasurementInvalid

PERIOD_S = 0.5


class AdmissionWatch:
    """Samples (running, waiting) requests of the server from `__enter__` to `__exit__`."""

    def __init__(self, read: Callable[[], tuple[int, int] | None]) -> None:
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.running: list[int] = []
        self.waiting: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD_S):
            with suppress(MeasurementInvalid):  # a dying server is named by whoever drives the load
                seen = self._read()
                if seen is not None:
                    self.running.append(seen[0])
                    self.waiting.append(seen[1])

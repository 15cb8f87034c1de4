"""What the nodes of a run are doing at this moment, for other processes to read: one file, replaced whole."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any
from uuid import uuid4

import msgspec

from results.records import Phase, Point
from results.store import RunFolder

NODES_FILE = "nodes.json"


@dataclass(frozen=True, slots=True)
class Seat:
    """One Lane, now or when it was last seen."""

    node: str
    gpus: tuple[str, ...]
    since_at: float  # Unix time at which it came
    ended_at: float | None = None  # given back, or lost
    lost: str = ""  # why
    block: int | None = None  # what it measures; None = nothing at this moment
    phase: str = ""
    arms: tuple[str, ...] = ()
    block_since_at: float | None = None
    start: str = ""  # of a driver: the one that has it
    driver: str = ""  # see RunFolder


def ended(seat: Seat, at: float = 0.0) -> Seat:
    """A seat whose driver is gone, if it was not given back: it was there until then, or until `at`."""
    if seat.ended_at is not None:
        return seat
    seen_at = max(seat.since_at, seat.block_since_at or 0.0, at)
    what = f" during Block {seat.block}" if seat.block is not None else ""
    lost = f"its driver ended{what}"
    return replace(seat, block=None, phase="", arms=(), block_since_at=None, ended_at=seen_at, lost=lost)


class Board:
    """Written by a driver whenever something changes. Seats of others and of earlier starts are kept."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._lock = folder, Lock()
        self._start = uuid4().hex[:8]
        self._seats: list[Seat] = []
        self._hosts: dict[str, Mapping[str, object]] = {}

    def comes(self, node: str, gpus: Sequence[str], host: Mapping[str, object]) -> int:
        """A Lane is there; returns its seat."""
        with self._lock:
            self._hosts[node] = host
            whose = self._folder.driver
            self._seats.append(Seat(node, tuple(gpus), time.time(), start=self._start, driver=whose))
            self._write()
            return len(self._seats) - 1

    def begins(self, seat: int, block: int, phase: Phase, points: Sequence[Point]) -> None:
        labels = tuple(point.label for point in points)
        self._change(seat, block=block, phase=str(phase), arms=labels, block_since_at=time.time())

    def ends(self, seat: int) -> None:
        self._change(seat, block=None, phase="", arms=(), block_since_at=None)

    def goes(self, seat: int, lost: str = "") -> None:
        self._change(
            seat, block=None, phase="", arms=(), block_since_at=None, ended_at=time.time(), lost=lost
        )

    def _change(self, seat: int, **changes: Any) -> None:
        with self._lock:
            self._seats[seat] = replace(self._seats[seat], **changes)
            self._write()

    def _write(self) -> None:
        living = self._folder.living()

        def told(known: Mapping[str, Any]) -> object:
            seats = [msgspec.convert(seat, Seat, strict=False) for seat in known.get("seats", ())]
            others = [s if s.driver in living else ended(s) for s in seats if s.start != self._start]
            hosts = {**known.get("hosts", {}), **self._hosts}
            return {"seats": [asdict(seat) for seat in (*others, *self._seats)], "hosts": hosts}

        self._folder.update_json(NODES_FILE, told)

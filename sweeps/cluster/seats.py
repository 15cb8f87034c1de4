"""The seats of a run as another process reads them: who is there, what was held, what of it measured."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from analysis.nodes import gpus_of
from results.records import Block
from results.store import RunFolder
from sweeps.cluster.board import NODES_FILE, Seat

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Hours of servers' GPUs, or of their machines where they have none."""

    held: float  # while a Lane had them
    measured: float  # of that in Blocks


def seats_of(folder: RunFolder) -> list[Seat]:
    """Every Lane that a run had, in the order they came; empty unless it is on a cluster."""
    found = folder.read_json(NODES_FILE).get("seats", [])
    return [msgspec.convert(seat, Seat, strict=False) for seat in found]


def here(seats: Sequence[Seat]) -> list[Seat]:
    """Those that had not been given back when the driver last wrote."""
    return [seat for seat in seats if seat.ended_at is None]


def at_once(seats: Sequence[Seat]) -> int:
    """How many Lanes there are; where none is, how many there were at most. At least 1."""
    most = max((sum(_overlap(a, b) for b in seats) for a in seats), default=1)
    return max(1, len(here(seats)) or most)


def _overlap(at: Seat, other: Seat) -> bool:
    """Whether a seat was there when another one came."""
    return other.since_at <= at.since_at and (other.ended_at is None or other.ended_at > at.since_at)


def gpus_per_server(seats: Sequence[Seat], blocks: Sequence[Block]) -> int:
    """Of the last Lane that was given some, else as the Blocks tell; 0 = it uses none."""
    given = next((len(seat.gpus) for seat in reversed(seats) if seat.gpus), 0)
    return given or max(map(gpus_of, blocks), default=0)


def held_s(seats: Sequence[Seat], now_at: float) -> float:
    """Time that all Lanes together were there; one that was not given back was there until `now_at`."""
    return sum(_there_s(seat, now_at) for seat in seats)


def _there_s(seat: Seat, now_at: float) -> float:
    return max(0.0, (seat.ended_at or now_at) - seat.since_at)


def spent(seats: Sequence[Seat], blocks: Sequence[Block], gpus: int, now_at: float) -> Spent:
    """Until `now_at`, which is when a Lane that was not given back was last seen."""
    gpus_held_s = sum(_there_s(seat, now_at) * (len(seat.gpus) or gpus or 1) for seat in seats)
    measured_s = sum((b.ended_at - b.started_at) * (gpus_of(b) or gpus or 1) for b in blocks)
    return Spent(gpus_held_s / SECONDS_PER_HOUR, measured_s / SECONDS_PER_HOUR)

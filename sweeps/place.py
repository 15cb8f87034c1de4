"""Which machine and GPUs a driver of a shared run measures on."""

import os
from collections.abc import Sequence
from dataclasses import replace

from results.environment import host_hash
from results.records import Block, Phase, Point
from sweeps.blocks import Lane

VISIBLE = "CUDA_VISIBLE_DEVICES"


class PlacedLane:
    """A Lane whose Blocks say where they were measured: absolute figures of two places are never compared."""

    def __init__(self, lane: Lane, node: str, gpus: Sequence[str]) -> None:
        self._lane, self._node, self._gpus = lane, node, tuple(gpus)

    def measure(
        self, number: int, points: Sequence[Point], phase: Phase, baseline: Point, *, alone: bool
    ) -> Block:
        block = self._lane.measure(number, points, phase, baseline, alone=alone)
        return replace(block, node=self._node, gpus=self._gpus)


def here(lane: Lane) -> PlacedLane:
    """This machine, with the GPUs that this process was given."""
    return PlacedLane(lane, host_hash(), [gpu for gpu in os.environ.get(VISIBLE, "").split(",") if gpu])

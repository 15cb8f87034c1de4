"""Where the Blocks of a run are measured: on this machine, or in as many places as a cluster gives."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from sweeps.blocks import BlockRunner, Lane, LaneLost

Work = Callable[[BlockRunner], None]
HEARING_S = 0.5


class Lanes(Protocol):
    """All Lanes of a run."""

    def each(self, work: Work) -> None:
        """Do the work in every Lane at once; returns when it has ended in all of them.

        Work ends when there is nothing left to do for anybody. Where it ends with LaneLost, it is begun
        anew in another Lane. Any other error ends all and is raised.
        """


class OneLane:
    """The machine that the tool runs on."""

    def __init__(self, run_block: BlockRunner) -> None:
        self._run_block = run_block

    def each(self, work: Work) -> None:
        work(self._run_block)


class OpenLane(Lane, Protocol):
    """A Lane that is held until it is closed."""

    name: str  # of its node, for people

    def close(self) -> None:
        """Give the machine back. Its servers end."""


class Source(Protocol):
    """Where Lanes come from: a cluster."""

    def open(self, wanted: Callable[[], bool]) -> OpenLane | None:
        """Wait for a machine; None when it is no longer `wanted`.

        Raises UsageError or MeasurementInvalid if there will never be one.
        """


class ManyLanes:
    """So many Lanes at once at most, each in a thread; a lost one is replaced."""

    def __init__(
        self,
        source: Source,
        count: int,
        blocks_of: Callable[[Lane], BlockRunner],
        note: Callable[[str], None],
        go_on: Callable[[], bool],
    ) -> None:
        """`go_on` is asked while a machine is waited for."""
        self._source, self._count, self._blocks_of = source, count, blocks_of
        self._note, self._go_on = note, go_on
        self._idle: list[OpenLane] = []  # open, between two stages of a run
        self._open: set[OpenLane] = set()

    def each(self, work: Work) -> None:
        stage = _Stage()
        with ThreadPoolExecutor(self._count) as pool:
            lanes = [pool.submit(self._lane, work, stage) for _ in range(self._count)]
            try:
                while wait(lanes, HEARING_S).not_done:
                    pass  # a signal is heard in between
            except BaseException:
                stage.is_over = True
                self.close()  # whatever is in flight ends with LaneLost
                raise
        for lane in lanes:
            lane.result()

    def close(self) -> None:
        """Give every machine back."""
        for lane in [*self._open]:
            self._end(lane)
        self._idle.clear()

    def _lane(self, work: Work, stage: "_Stage") -> None:
        try:
            while not stage.is_over and self._go_on():
                lane = self._machine(stage)
                if lane is not None and self._is_done(work, lane, stage):
                    self._idle.append(lane)
                    return  # there is nothing left for anybody
        finally:
            stage.is_over = True

    def _is_done(self, work: Work, lane: OpenLane, stage: "_Stage") -> bool:
        try:
            work(self._blocks_of(lane))
        except LaneLost as lost:
            self._end(lane)
            if not stage.is_over:
                self._note(f"{lane.name} is lost ({lost}): what it measured is measured elsewhere")
            return False
        return True

    def _machine(self, stage: "_Stage") -> OpenLane | None:
        with suppress(IndexError):
            return self._idle.pop()
        lane = self._source.open(lambda: not stage.is_over and self._go_on())
        if lane is not None:
            self._open.add(lane)
        return lane

    def _end(self, lane: OpenLane) -> None:
        self._open.discard(lane)
        lane.close()


@dataclass
class _Stage:
    """What the threads of one stage tell each other."""

    is_over: bool = False  # nothing is left, or something went wrong

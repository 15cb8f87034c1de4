"""What every History must do, whatever keeps it. Subclass it and provide the fixture."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from results.history import open_history
from results.nights import SPEED_UP, Night
from tests.recorded_nights import any_night, night

ROOT = Path(__file__).parents[2]
_SHARED = settings(  # one history for all examples, and one test for all histories
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


class HistoryContract:
    @pytest.fixture
    def where(self) -> str:
        """What a user gives for a history that is not there yet."""
        raise NotImplementedError

    def test_is_empty_before_the_first_night(self, where: str) -> None:
        assert open_history(where).nights() == []
        assert open_history(where).nights("qwen-chat") == []
        assert open_history(where).pins() == []

    def test_nights_come_back_sorted_and_of_every_machine(self, where: str) -> None:
        added = [night(at, machine=machine) for at in (2, 0, 1) for machine in ("gpu-02", "gpu-01")]
        for one in added:
            open_history(where).add(one)
        assert open_history(where).nights() == sorted(added, key=lambda n: (n.began_at, n.id))

    def test_an_id_counts_once_and_the_first_stays(self, where: str) -> None:
        history = open_history(where)
        for said in ("first", "second"):
            history.add(night(said=(said,)))
        assert history.nights() == [night(said=("first",))]

    def test_pins_are_told_apart(self, where: str) -> None:
        history = open_history(where)
        for pin in ("qwen", "qwen-chat", "Qwen", "", "a/b", "a_b"):
            history.add(night(pin=pin))
        assert history.pins() == ["", "Qwen", "a/b", "a_b", "qwen", "qwen-chat"]
        for pin in history.pins():
            assert history.nights(pin) == [night(pin=pin)]
        assert history.nights("llama") == []

    @_SHARED
    @given(any_night())
    def test_whatever_a_night_holds_comes_back(self, where: str, one: Night) -> None:
        history = open_history(where)
        there = history.nights()
        one = replace(one, id=f"{len(there)} {one.id}")
        history.add(one)
        assert history.nights() == sorted([*there, one], key=lambda n: (n.began_at, n.id))
        assert one in history.nights(one.pin)
        assert one.pin in history.pins()

    @pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf])
    def test_no_figure_is_no_number(self, where: str, figure: float) -> None:
        history = open_history(where)
        with pytest.raises(ValueError, match="qwen-chat gpu-01 0"):
            history.add(night(values={SPEED_UP: figure}))
        with pytest.raises(ValueError, match="qwen-chat gpu-01 0"):
            history.add(night(began_at=figure))
        assert history.nights() == []

    def test_processes_that_add_at_once_lose_nothing(self, where: str) -> None:
        """One machine, whose history none of them has made yet."""
        writers = [_writer(where, f"process {at}", 12) for at in range(5)]
        for writer in writers:
            _, complaint = writer.communicate()
            assert writer.returncode == 0, complaint
        ids = {f"process {at} {number}" for at in range(5) for number in range(12)}
        recorded = open_history(where).nights()
        assert {known.id for known in recorded} == ids
        assert len(recorded) == len(ids)

    def test_a_killed_process_leaves_what_it_recorded(self, where: str) -> None:
        for kill in range(3):
            told = _killed(_writer(where, f"killed {kill}", 100_000), after=5 + kill)
            assert set(told) <= {known.id for known in open_history(where).nights()}
            after = replace(night(), id=f"after {kill}")
            open_history(where).add(after)
            assert after in open_history(where).nights()


def _writer(where: str, name: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.results.adds_nights", where, name, str(count)]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _killed(writer: "subprocess.Popen[str]", after: int) -> list[str]:
    """Kill it once it has recorded so many; the ids that it said it recorded."""
    assert writer.stdout is not None
    told = [writer.stdout.readline() for _ in range(after)]
    writer.kill()
    told += writer.stdout.readlines()
    writer.communicate()
    return [line.rstrip("\n") for line in told if line.endswith("\n")]

"""Work for several lanes: each piece once, a lost one again, and nobody leaves while something may come."""

import threading
from collections.abc import Callable, Iterator

import pytest

from results.errors import MeasurementInvalid
from results.sharing import Alone
from sweeps.blocks import LaneLost, LaneOver
from sweeps.tasks import Task, Tasks
from tests.waiting import wait_for


def tasks_of(pieces: Iterator[str], go_on: Callable[[], bool] = lambda: True) -> Tasks[str]:
    def ask() -> Task[str] | None:
        piece = next(pieces, None)
        return Task(piece, f"test: {piece}") if piece is not None else None

    return Tasks("test", ask, Alone(0), go_on)


def taken(tasks: Tasks[str]) -> list[str]:
    found: list[str] = []
    while True:
        with tasks.one() as task:
            if task is None:
                return found
            found.append(task.what)


def test_each_piece_is_handed_out_once() -> None:
    found: list[str] = []
    tasks = tasks_of(iter("abcdefgh"))
    threads = [threading.Thread(target=lambda: found.extend(taken(tasks))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(found) == [*"abcdefgh"]


def test_who_finds_nothing_waits_for_what_another_may_lose() -> None:
    found: list[str] = []
    tasks = tasks_of(iter("a"))
    with pytest.raises(LaneLost), tasks.one() as task:
        assert task is not None
        waiting = threading.Thread(target=lambda: found.extend(taken(tasks)))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive() and not found
        raise LaneLost("gone")
    waiting.join(10)
    assert found == ["a"]


def test_nothing_is_handed_out_once_the_run_is_to_end() -> None:
    goes_on = [True]
    tasks = tasks_of(iter("ab"), lambda: goes_on[0])
    with tasks.one() as task:
        assert task is not None
    goes_on[0] = False
    assert taken(tasks) == []


def test_what_another_driver_has_is_left_to_it_until_it_dies() -> None:
    class Theirs(Alone):
        dead = False

        def claim(self, what: str) -> bool:
            return super().claim(what) if what != "test: b" or self.dead else False

        def held_by_others(self, kind: str) -> int:
            return 0 if self.dead else 1

    left, theirs = [*"abc"], Theirs(0)

    def ask() -> Task[str] | None:
        return Task(left[0], f"test: {left.pop(0)}") if left else None

    tasks, found = Tasks("test", ask, theirs, lambda: True), list[str]()
    working = threading.Thread(target=lambda: found.extend(taken(tasks)))
    working.start()
    wait_for(lambda: not left, 5)
    working.join(0.3)
    assert working.is_alive()  # the last one may come back
    theirs.dead = True
    working.join(10)
    assert found == ["a", "c", "b"]


def test_an_error_ends_the_work_of_all() -> None:
    tasks = tasks_of(iter("abc"))
    with pytest.raises(ValueError), tasks.one():
        raise ValueError("no baseline")
    assert taken(tasks) == []


def test_a_task_that_takes_every_machine_with_it_ends_the_run() -> None:
    tasks = tasks_of(iter("ab"))
    for _ in range(2):
        with pytest.raises(LaneLost), tasks.one():
            raise LaneLost("gone")
    told = "test: a was lost with 3 machines, one after the other, at last: gone"
    with pytest.raises(MeasurementInvalid, match=told), tasks.one():
        raise LaneLost("gone")
    assert taken(tasks) == []


def test_machines_that_had_to_be_given_back_say_nothing_of_a_task() -> None:
    tasks = tasks_of(iter("ab"))
    for _ in range(5):
        with pytest.raises(LaneOver), tasks.one():
            raise LaneOver("its time is nearly used up")
    assert taken(tasks) == ["a", "b"]

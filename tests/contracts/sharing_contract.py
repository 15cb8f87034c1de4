"""What drivers of one run may rely on, whether there are others or not."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from results.records import BASELINE
from results.sharing import Sharing
from results.store import RunFolder
from tests.records import trial

Joined = Callable[[], tuple[RunFolder, Sharing]]


class SharingContract:
    """Subclasses give `joins`: a driver that works on the run until the test ends."""

    @pytest.fixture
    def joins(self) -> Joined:
        raise NotImplementedError

    def test_every_block_has_a_number_of_its_own(self, joins: Joined) -> None:
        _, sharing = joins()
        with ThreadPoolExecutor(4) as lanes:
            numbers = [*lanes.map(lambda _: sharing.next_block(), range(20))]
        assert sorted(numbers) == [*range(20)]

    def test_what_is_claimed_here_is_ours_until_it_is_given_back(self, joins: Joined) -> None:
        _, sharing = joins()
        assert sharing.claim("search: a")
        assert sharing.held_by_others("search") == 0
        sharing.release("search: a")
        assert sharing.claim("search: a")

    def test_threads_enter_one_by_one_and_again(self, joins: Joined) -> None:
        _, sharing = joins()
        inside: list[str] = []

        def enter(name: str) -> None:
            with ExitStack() as entered:
                entered.enter_context(sharing.exclusive())
                entered.enter_context(sharing.exclusive())
                inside.append(f"{name} in")
                sharing.next_block()
                inside.append(f"{name} out")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(enter, "abcd"))
        assert [word.split()[1] for word in inside] == ["in", "out"] * 4
        assert all(a.split()[0] == b.split()[0] for a, b in zip(inside[::2], inside[1::2], strict=True))

    def test_what_is_recorded_here_is_no_news(self, joins: Joined) -> None:
        folder, sharing = joins()
        folder.add_trial(trial(0, BASELINE, 0.0))
        assert [*map(list, sharing.news())] == [[], []]


class SeveralDrivers:
    """Beyond that, where there may be others. Every driver has a lease of `LEASE_S` in these tests."""

    LEASE_S = 1.0

    def test_numbers_and_claims_are_given_once(self, joins: Joined) -> None:
        drivers = [joins()[1] for _ in range(3)]
        with ThreadPoolExecutor(6) as lanes:
            numbers = [*lanes.map(lambda at: drivers[at % 3].next_block(), range(30))]
            claimed = [*lanes.map(lambda at: drivers[at % 3].claim(f"search: {at // 3}"), range(30))]
        assert sorted(numbers) == [*range(30)]
        assert [sum(claimed[at : at + 3]) for at in range(0, 30, 3)] == [1] * 10
        assert [d.held_by_others("search") + sum(claimed[i::3]) for i, d in enumerate(drivers)] == [10] * 3
        assert drivers[0].held_by_others("confirm") == 0

    def test_what_another_has_recorded_is_never_claimed_again(self, joins: Joined) -> None:
        (folder, one), (_, other) = joins(), joins()
        assert one.claim("search: a")
        folder.add_trial(trial(0, BASELINE, 0.0))
        one.release("search: a")
        assert other.held_by_others("search") == 0
        assert not other.claim("search: a")
        _, late = joins()  # knows the Trial from the start, and may want it again
        assert late.claim("search: a")

    def test_each_driver_hears_of_each_record_once(self, joins: Joined) -> None:
        (one, shared), (other, theirs) = joins(), joins()
        for number in range(3):
            one.add_trial(trial(number, BASELINE, 0.0))
        other.add_trial(trial(3, BASELINE, 0.0))
        assert [t.number for t in theirs.news()[0]] == [0, 1, 2]
        assert [t.number for t in shared.news()[0]] == [3]
        assert [*map(list, theirs.news())] == [[], []]
        assert sorted(t.number for t in other.trials()) == [0, 1, 2, 3]  # in its own mirror as well
        _, late = joins()
        assert list(late.news()[0]) == []

    def test_only_one_driver_is_inside(self, joins: Joined) -> None:
        drivers, inside, most = [joins()[1] for _ in range(3)], [0], [0]

        def enter(at: int) -> None:
            with drivers[at % 3].exclusive():
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                drivers[at % 3].next_block()
                inside[0] -= 1

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(enter, range(12)))
        assert most == [1]

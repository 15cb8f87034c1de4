"""What every Pace must do, whatever its rhythm."""

import pytest

from sweeps.pace import Pace

REQUESTS = 50


class PaceContract:
    """Subclass it and give the pace to test as `pace`; it must have at least `REQUESTS` requests in it."""

    @pytest.fixture
    def pace(self) -> Pace:
        raise NotImplementedError

    def test_names_itself_in_one_short_line(self, pace: Pace) -> None:
        name = str(pace)
        assert name == str(pace)
        assert name.isprintable()
        assert name.endswith(")")
        assert 0 < len(name) < 80

    def test_an_idle_load_always_gets_its_next_request(self, pace: Pace) -> None:
        times_s = [pace.next_s(sent, 0) for sent in range(REQUESTS)]
        assert None not in times_s

    def test_times_are_from_the_start_of_the_window_and_never_go_back(self, pace: Pace) -> None:
        times_s = [pace.next_s(sent, 0) or 0.0 for sent in range(REQUESTS)]
        assert times_s[0] >= 0
        assert times_s == sorted(times_s)

    def test_asking_again_changes_nothing(self, pace: Pace) -> None:
        first = [pace.next_s(sent, 0) for sent in range(REQUESTS)]
        assert [pace.next_s(sent, 0) for sent in range(REQUESTS)] == first
        assert [pace.next_s(sent, 0) for sent in reversed(range(REQUESTS))] == first[::-1]

    def test_a_closed_loop_keeps_its_concurrency_and_an_open_loop_ignores_it(self, pace: Pace) -> None:
        if pace.concurrency is None:
            assert pace.next_s(9, 1_000) == pace.next_s(9, 0) is not None
        else:
            assert pace.next_s(9, pace.concurrency - 1) == 0.0
            assert pace.next_s(9, pace.concurrency) is None

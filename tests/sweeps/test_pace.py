"""The three paces, and how a sweep asks for them."""

from pathlib import Path

import pytest

from results.errors import UsageError
from sweeps.pace import Closed, Pace, Poisson, Replay, parse_pace
from tests.contracts.pace_contract import REQUESTS, PaceContract


class TestClosed(PaceContract):
    @pytest.fixture
    def pace(self) -> Pace:
        return Closed(4)


class TestPoisson(PaceContract):
    @pytest.fixture
    def pace(self) -> Pace:
        return Poisson(2.5, seed=1)


class TestReplay(PaceContract):
    @pytest.fixture
    def pace(self) -> Pace:
        return Replay([0.1 * number for number in range(REQUESTS)])


def test_names() -> None:
    assert str(Closed(4)) == "closed(4)"
    assert str(Poisson(2.5, seed=1)) == "poisson(2.5/s)"
    assert str(Replay([0.0], "night.csv")) == "replay(night.csv)"


def test_poisson_has_its_rate_and_repeats_for_a_seed() -> None:
    pace = Poisson(10.0, seed=3)
    last_s = pace.next_s(20_000, 0)
    assert last_s == pytest.approx(2_000, rel=0.05)
    assert Poisson(10.0, seed=3).next_s(20_000, 0) == last_s
    assert Poisson(10.0, seed=4).next_s(20_000, 0) != last_s


def test_a_replay_is_sorted_and_ends() -> None:
    pace = Replay([2.0, 0.5, 1.0])
    assert [pace.next_s(sent, 0) for sent in range(4)] == [0.5, 1.0, 2.0, None]


@pytest.mark.parametrize(
    ("text", "times_s"),
    [
        ("0\n1.5\n\n3e0\n", (0.0, 1.5, 3.0)),
        ("3\n1\n", (1.0, 3.0)),
        ('{"arrival_s": 2.5, "id": 1}\n{"arrival_s": 1}\n', (1.0, 2.5)),
        ('{"timestamp": 1764460802.5}\n{"timestamp": 1764460800}\n', (0.0, 2.5)),
        ("id,arrival_s\na,2.0\nb,4\n", (2.0, 4.0)),
        ("\ufefftimestamp,tokens\r\n100,7\r\n101,8\r\n", (0.0, 1.0)),
    ],
)
def test_traces_of_three_kinds_are_read(tmp_path: Path, text: str, times_s: tuple[float, ...]) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    pace = Replay.from_file(path)
    assert pace.times_s == times_s
    assert str(pace) == "replay(trace.txt)"


@pytest.mark.parametrize(
    "text",
    [
        "", "\n\n", "-1\n", "1\nx\n", "nan\n", "inf\n", "0\n1e999\n", "id,time\n1,2\n", '{"at": 1}\n',
        '{"arrival_s": null}\n', '{"arrival_s": true}\n', '{"arrival_s": 1}\nx\n', '{"arrival_s": 1}\n7\n',
        "{broken\n", "arrival_s\n", "id,arrival_s\n1\n", '{"arrival_s": -2}\n',
    ],
)  # fmt: skip
def test_a_bad_trace_is_a_usage_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match="trace"):
        Replay.from_file(path)


def test_an_unreadable_trace_is_a_usage_error(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00\xd8")
    for path in (tmp_path / "none", tmp_path, binary):
        with pytest.raises(UsageError, match="cannot read the trace"):
            Replay.from_file(path)


def test_a_sweep_names_a_pace(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("1\n")
    assert parse_pace({"closed": 4}) == parse_pace("closed(4)") == parse_pace("closed: 4") == Closed(4)
    assert parse_pace({"poisson": 2.5, "seed": 1}) == Poisson(2.5, seed=1)
    assert parse_pace({"poisson": 2}) == parse_pace("poisson:2") == parse_pace("poisson(2/s)") == Poisson(2)
    assert parse_pace({"replay": str(path)}) == parse_pace(f"replay({path})") == Replay([1.0], "trace.txt")


@pytest.mark.parametrize(
    "spec",
    [
        {}, {"closed": 0}, {"closed": -1}, {"closed": 2.5}, {"closed": True}, {"closed": "4"},
        {"closed": None}, {"closed": [4]},
        {"closed": 4, "seed": 1}, {"closed": 4, "poisson": 1}, {"poisson": 0}, {"poisson": -2.0},
        {"poisson": float("nan")}, {"poisson": float("inf")}, {"poisson": "2"}, {"poisson": 1, "seed": "x"},
        {"seed": 1}, {"replay": 3}, {"replay": "/nowhere/trace"}, {"steady": 4},
        "", "closed", "closed(0)", "closed(x)", "steady(4)", "4", "closed(4", "poisson(-1/s)",
    ],
)  # fmt: skip
def test_a_bad_pace_is_a_usage_error(spec: dict[str, object] | str) -> None:
    with pytest.raises(UsageError):
        parse_pace(spec)

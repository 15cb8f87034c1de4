"""What `tuner status` says of a run on several nodes: what runs where, what is lost, hours held and left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from results.records import BASELINE, Phase
from results.store import RunFolder
from sweeps.cluster.board import NODES_FILE, Board, Seat
from sweeps.cluster.seats import at_once, here, seats_of, spent
from sweeps.estimate import time_left, to_looks
from sweeps.session import SESSIONS_FILE, State
from sweeps.status import status_of, time_left_in
from sweeps.status_text import status_json
from tests.analysis.clusters import blocks
from tests.sweeps.cluster.run_on_nodes import LOST, going_on, long_since
from tests.sweeps.test_status import lasting, shown


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def test_what_runs_where(folder: RunFolder) -> None:
    with going_on(folder):
        long_since(folder)
        text = shown(status_of(folder))
    assert "5 places on 3 nodes, 4 of them measuring; 1 lost" in text
    assert "alba (GPU 0, 1): Block 18 (confirm: none, eagle3 num_steps=3 topk=1" in text
    assert "for 2 min, usually 5 min" in text
    assert "bora (GPU 2, 3): waits for a Block" in text
    assert f"cima (GPU 2, 3): lost after 50 min: {LOST}" in text
    assert "longer than usual" not in text


def test_a_block_that_hangs_is_visible(folder: RunFolder) -> None:
    with going_on(folder):
        for _ in range(6):
            long_since(folder)
        assert shown(status_of(folder)).count("longer than usual") == 4


def test_hours_of_gpus_held_measured_and_left(folder: RunFolder) -> None:
    with going_on(folder):
        long_since(folder, 3600.0)
        status = status_of(folder)
    assert (status.gpus, status.lanes) == (2, 5)
    assert status.spent is not None and status.left is not None
    assert status.spent.held == pytest.approx(6 * 2, abs=0.1)
    assert status.spent.measured == pytest.approx(18 * 2 * 300 / 3600)
    assert status.gpu_hours == pytest.approx(status.spent.held)
    text = shown(status)
    assert "12 held, 3 in Blocks (25" in text
    assert "GPU hours (" not in text  # not elapsed time by GPUs
    document = json.loads(status_json(status))
    assert document["gpu_hours_left"]["budget"] == pytest.approx(6 * 2 * 5, rel=0.05)
    assert document["gpu_hours_left"]["low"] == pytest.approx(status.left.low_work_s * 2 / 3600)
    assert document["seats"][0]["node"] == "alba" and document["spent"]["held"] > 10


def test_without_a_budget_of_hours_nothing_is_left_of_it(folder: RunFolder) -> None:
    with going_on(folder, hours=None):
        status = status_of(folder)
        assert "left of the budget" not in shown(status)
        assert json.loads(status_json(status))["gpu_hours_left"]["budget"] is None


def test_nothing_runs_once_the_driver_is_gone_whatever_it_wrote_last(folder: RunFolder) -> None:
    with going_on(folder):
        pass
    sessions = folder.read_json(SESSIONS_FILE)["sessions"]
    folder.write_json(SESSIONS_FILE, {"sessions": [{**sessions[-1], "ended_at": None, "created_at": 1.0}]})
    assert len(here(seats_of(folder))) == 5  # as it stands in the file
    status = status_of(folder)
    assert status.standing.state is State.KILLED
    assert here(status.seats) == [] and all(seat.block is None for seat in status.seats)
    text = shown(status)
    assert "none now; 6 lost" in text and "its driver ended during Block 19" in text
    assert "measuring" not in text
    assert not any(seat["block"] for seat in json.loads(status_json(status))["seats"])


def test_a_driver_that_cannot_be_seen_is_told_as_last_seen(folder: RunFolder) -> None:
    with going_on(folder):
        sessions = folder.read_json(SESSIONS_FILE)["sessions"]
        folder.write_json(SESSIONS_FILE, {"sessions": [{**sessions[-1], "host": "another"}]})
        assert "5 places on 3 nodes when last seen" in shown(status_of(folder))


def test_a_machine_of_its_own_has_no_nodes(tmp_path: Path) -> None:
    from tests.sweeps.test_status import ended_run

    status = status_of(ended_run(tmp_path))
    assert status.seats == () and status.spent is None and status.lanes == 1
    assert "Nodes" not in shown(status) and "held" not in shown(status)
    assert "gpu_hours_left" not in json.loads(status_json(status))


def test_a_later_start_keeps_the_seats_of_the_earlier_one(folder: RunFolder) -> None:
    with going_on(folder):
        pass
    board = Board(folder)
    board.comes("dora", ("0",), {})
    seats = seats_of(folder)
    assert len(seats) == 7 and [seat.node for seat in here(seats)] == ["dora"]
    assert seats[0].lost == "its driver ended during Block 18"
    assert seats[5].lost == LOST


# --- lanes


def test_lanes_at_once() -> None:
    first = Seat("a", (), since_at=0.0, ended_at=10.0)
    assert at_once([]) == 1
    assert at_once([first, Seat("b", (), 20.0, 30.0)]) == 1
    assert at_once([first, Seat("b", (), 5.0, 30.0), Seat("c", (), 11.0, 30.0)]) == 2
    assert at_once([first, Seat("b", (), 40.0)]) == 1


def test_gpus_that_telemetry_alone_tells_are_counted() -> None:
    seats = [Seat("a", (), 0.0, 3600.0)]
    found = spent(seats, [replace(blocks()[0], gpus=())], 4, 7200.0)
    assert found.held == 4.0 and found.measured == pytest.approx(4 * 300 / 3600)
    assert spent(seats, [], 0, 7200.0).held == 1.0


def test_time_left_is_work_by_lanes_and_a_look_ends_a_round() -> None:
    searched = [lasting(n, 10) for n in range(4)]
    rest = {"looks": [4, 8], "finalists": 1, "trials_left": 5, "searching": True}
    alone, three = (time_left(searched, lanes=n, **rest) for n in (1, 3))  # type: ignore[arg-type]
    assert alone is not None and three is not None
    assert (alone.stage_s, alone.low_s, alone.high_s) == (50, 90, 130)
    assert (three.stage_s, three.low_s, three.high_s) == (20, 20 + 20, 20 + 40)
    assert three.low_work_s == alone.low_work_s == 90 and three.high_work_s == 130
    many = time_left(searched, lanes=100, **rest)  # type: ignore[arg-type]
    assert many is not None and (many.stage_s, many.high_s) == (10, 30)


def test_a_budget_cuts_the_work_too() -> None:
    left = time_left([lasting(0, 10)], trials_left=4, looks=[4], finalists=1, searching=True, lanes=2)
    assert left is not None
    half = left.within(left.high_s / 2)
    assert half.high_work_s == pytest.approx(left.high_work_s / 2)


def test_blocks_to_each_look() -> None:
    assert to_looks(0, [4, 8, 12]) == [4, 4, 4]
    assert to_looks(5, [4, 8, 12]) == [3, 4]
    assert to_looks(12, [4, 8, 12]) == []


def test_progress_knows_the_lanes(folder: RunFolder) -> None:
    with going_on(folder, hours=None):
        on_five = time_left_in(folder)
        (folder.path / "nodes.json").unlink()
        alone = time_left_in(folder)
    assert on_five is not None and alone is not None
    assert on_five.low_work_s == alone.low_work_s
    assert on_five.high_s < alone.high_s


def test_drivers_of_one_run_keep_each_other_s_seats(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    first, second = Board(folder), Board(folder)
    first.goes(first.comes("a", (), {}))
    second.begins(second.comes("b", ("0",), {}), 3, Phase.SEARCH, [BASELINE])
    assert [(s.node, s.block) for s in seats_of(folder)] == [("a", None), ("b", 3)]
    assert set(folder.read_json(NODES_FILE)["hosts"]) == {"a", "b"}

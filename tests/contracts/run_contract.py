"""What every place that keeps a run must do."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from results.errors import UsageError
from results.records import BASELINE, GpuSample, Phase
from results.store import RunFolder
from tests.records import baseline_arm, block, request, trial

Opened = Callable[[], RunFolder]
SAMPLE = GpuSample("code @ closed(1)", 5.0, "GPU-1", 0.9, 10, 300.0, 1e9, 2e9, 60.0, ("power",))


class RunContract:
    """Subclasses give `opened`: each call is another process's view of one run."""

    @pytest.fixture
    def opened(self) -> Opened:
        raise NotImplementedError

    def test_an_unused_one_is_empty(self, opened: Opened) -> None:
        run = opened()
        assert (run.trials(), run.blocks(), run.profiles()) == ([], [], [])
        assert run.read_json("sessions.json") == {}
        assert not run.living()

    def test_records_come_back_in_their_order(self, opened: Opened) -> None:
        run = opened()
        run.create()
        trials = [trial(number, BASELINE, 0.1 * number) for number in range(3)]
        blocks = [block(number, Phase.SEARCH, [baseline_arm()]) for number in range(2)]
        run.add_trial(trials[0])
        for made in blocks:
            run.add_block(made)
        run.add_trial(trials[1])
        other = opened()
        other.add_trial(trials[2])
        for seen in (other, opened()):
            assert seen.trials() == trials
            assert seen.blocks() == blocks

    def test_files_come_back_whole_and_go(self, opened: Opened) -> None:
        run = opened()
        run.create()
        run.write_text("sweep.yaml", "name: ä\n")
        run.write_json("now.json", {"a": [1, 2.5, None]})
        assert opened().read_json("now.json") == {"a": [1, 2.5, None]}
        assert opened().sweep_file.read_text("utf-8") == "name: ä\n"
        run.write_text("sweep.yaml", "name: b\n")
        run.remove("now.json")
        run.remove("now.json")
        assert opened().sweep_file.read_text("utf-8") == "name: b\n"
        assert opened().read_json("now.json") == {}
        assert not (opened().path / "now.json").exists()

    def test_what_one_view_has_seen_is_brought_up_to_date(self, opened: Opened) -> None:
        run, other = opened(), opened()
        run.create()
        run.write_json("finalists.json", {"points": 1})
        other.pull()
        run.write_json("finalists.json", {"points": 2})
        run.add_trial(trial(0, BASELINE, 0.0))
        other.pull()
        assert other.read_json("finalists.json") == {"points": 2}
        assert len(other.trials()) == 1

    def test_json_is_changed_by_what_is_there(self, opened: Opened) -> None:
        def one_more(known: Mapping[str, Any]) -> object:
            return {"starts": [*known.get("starts", []), len(known.get("starts", []))]}

        opened().create()
        for _ in range(3):
            opened().update_json("sessions.json", one_more)
        assert opened().read_json("sessions.json") == {"starts": [0, 1, 2]}

    def test_a_note_is_told_once(self, opened: Opened) -> None:
        run = opened()
        run.create()
        for text in ("one", "two", "one"):
            run.add_note(text)
        assert opened().read_json("notes.json") == {"notes": ["one", "two"]}

    def test_raw_records_and_logs_are_there_with_the_block_that_they_are_of(self, opened: Opened) -> None:
        run = opened()
        run.create()
        run.write_requests("block0000-0-none", [request("a"), request("b")])
        run.write_telemetry("block0000-0-none", [SAMPLE])
        (run.logs / "block0000-0-none.log").write_text("ready\n")
        run.add_block(block(0, Phase.SEARCH, [baseline_arm()]))
        (run.logs / "block0000-0-none.log").write_text("ready\nended\n")  # by another hand, later
        run.add_block(block(1, Phase.SEARCH, [baseline_arm()]))
        other = opened()
        assert other.read_requests("block0000-0-none") == [request("a"), request("b")]
        assert other.read_telemetry("block0000-0-none") == [SAMPLE]
        assert (other.logs / "block0000-0-none.log").read_text() == "ready\nended\n"

    def test_what_is_written_at_the_end_is_kept(self, opened: Opened) -> None:
        run = opened()
        run.create()
        with run.locked():
            (run.path / "capacity").mkdir()
            (run.path / "capacity" / "trials.jsonl").write_text("{}\n")
        assert (opened().path / "capacity" / "trials.jsonl").read_text() == "{}\n"

    def test_two_tools_cannot_drive_it_at_once(self, opened: Opened) -> None:
        one, other = opened(), opened()
        one.create()
        with one.locked():
            with pytest.raises(UsageError, match="another tuner is at work on"), other.locked():
                pass
            with pytest.raises(UsageError, match="another tuner is at work on"), other.joined():
                pass
        with other.locked():
            pass
        with other.joined():
            pass

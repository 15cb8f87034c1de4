"""Which servers are profiled and when, on a stand-in that writes excerpts of real traces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from launchers.engines.engine import Tracer
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from launchers.launcher import Endpoint
from results.errors import MeasurementInvalid, UsageError
from results.records import BASELINE, Point
from results.store import RunFolder
from sweeps import traced
from sweeps.outcome import read_run, sweep_of_run
from sweeps.prepare import Plan
from sweeps.profile import Look, point_of, profile_best, profile_run
from sweeps.run import run_sweep
from tests.analysis.trace_files import EXCERPTS
from tests.sweeps.test_run import Recorder, plan

EXCERPT = EXCERPTS / "sglang-eagle3.trace.json.gz"
POINT = Point("fake-ngram", {"n": 4, "m": 8})


@dataclass
class ScriptedTracer:
    """Writes the same trace for every rank when it is stopped."""

    folder: Path
    engine: "TracedEngine"

    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=lambda: {"TRACED": "yes"})

    def start(self, endpoint: Endpoint) -> None:
        self.engine.events.append("start")

    def stop(self, endpoint: Endpoint) -> None:
        self.engine.events.append("stop")
        for rank in range(self.engine.ranks_traced):
            (self.folder / f"{rank}.trace.json.gz").write_bytes(self.engine.content)

    def files(self) -> Sequence[Path]:
        return sorted(self.folder.glob("*.trace.json.gz"))

    def step_times_s(self, endpoint: Endpoint) -> Mapping[int, Sequence[float]]:
        return {1: [9.0, 0.02, 0.01]}


class TracedEngine(FakeEngine):
    """The stand-in with a profiler."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__(fault=lambda point: None if point.is_baseline else fault)
        self.events: list[str] = []
        self.ranks_traced = 2
        self.content = EXCERPT.read_bytes()

    def tracer(self, point: Point, folder: Path, *, stacks: bool = False) -> Tracer:
        return ScriptedTracer(folder, self)


def profiled(
    folder: RunFolder, engine: TracedEngine | None = None, cell: str = "", **changes: object
) -> tuple[Plan, Recorder]:
    made, recorder = replace(plan(**changes), engine=engine or TracedEngine()), Recorder()
    profile_run(made, folder, recorder, recorder.stopped, Look(), cell=cell)
    return made, recorder


def test_baseline_and_what_the_engine_starts_with(tmp_path: Path) -> None:
    folder, engine = RunFolder(tmp_path / "run"), TracedEngine()
    profiled(folder, engine)
    baseline, start = folder.profiles()
    assert (baseline.arm, baseline.point, start.arm, start.point) == ("baseline", BASELINE, "start", POINT)
    assert engine.events == ["start", "stop"] * 2
    assert baseline.trace.steps == 2
    assert baseline.step_times_s == {"1": 0.02}
    assert baseline.all_reduce_shares == (0.0, 0.0)
    assert baseline.traces == (
        "traces/baseline-code-edit-closed-1.trace.json.gz",
        "traces/baseline-code-edit-closed-1-rank1.trace.json.gz",
    )
    kept = [folder.path / name for profile in (baseline, start) for name in profile.traces]
    assert all(file.read_bytes() == EXCERPT.read_bytes() for file in kept)
    assert sorted(folder.traces.iterdir()) == sorted(kept)  # nothing half-written is left
    report, _ = read_run(folder)
    assert report.profiles == [baseline, start]
    assert report.phases_s["profiling"] > 0
    assert report.headline == "Nothing has been measured yet."


def test_the_folder_is_one_that_another_user_may_write_into(tmp_path: Path) -> None:
    seen = []

    class Looking(TracedEngine):
        def tracer(self, point: Point, folder: Path, *, stacks: bool = False) -> Tracer:
            if folder.name.startswith("writing-"):
                seen.append((folder.is_absolute(), folder.stat().st_mode & 0o777))
            return super().tracer(point, folder, stacks=stacks)

    profiled(RunFolder(tmp_path / "run"), Looking())
    assert seen == [(True, 0o777)] * 2


def test_after_a_sweep_the_winner_once_and_never_inside_a_block(tmp_path: Path) -> None:
    folder, engine, recorder = RunFolder(tmp_path / "run"), TracedEngine(), Recorder()
    made = replace(plan(), engine=engine)
    for _ in range(2):  # the same command again has nothing left to do
        run_sweep(
            made,
            folder,
            recorder,
            recorder.stopped,
            lambda observer, stopped: profile_best(made, folder, observer, stopped, Look()),
        )
    profiles, blocks = folder.profiles(), folder.blocks()
    assert [p.arm for p in profiles] == ["baseline", "winner"]
    assert profiles[1].point == read_run(folder)[0].winner.point  # type: ignore[union-attr]
    assert min(p.started_at for p in profiles) >= max(b.ended_at for b in blocks)
    assert all(
        "TRACED" not in (arm.variables.given if arm.variables else {}) for b in blocks for arm in b.arms
    )


def test_what_fails_after_a_sweep_is_a_note(tmp_path: Path) -> None:
    folder, recorder = RunFolder(tmp_path / "run"), Recorder()
    engine = TracedEngine()
    engine.content = EXCERPT.read_bytes()[:3000]
    made = replace(plan(), engine=engine)
    run_sweep(
        made,
        folder,
        recorder,
        recorder.stopped,
        lambda observer, stopped: profile_best(made, folder, observer, stopped, Look()),
    )
    assert folder.profiles() == []
    report, code = read_run(folder)
    assert report.winner is not None and code == 0
    assert "No profile of baseline (none): TRACE_UNUSABLE: the trace 0.trace.json.gz" in report.notes[-2]
    assert "No profile of winner" in report.notes[-1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (EXCERPT.read_bytes()[:3000], "ended before the end-of-stream marker"),
        (b"not packed at all", "Not a gzipped file"),
        (EXCERPT.read_bytes()[:-400] + b"\0" * 400, ""),
    ],
)
def test_a_trace_that_cannot_be_read_is_an_invalid_measurement(
    tmp_path: Path, content: bytes, said: str
) -> None:
    engine = TracedEngine()
    engine.content = content
    with pytest.raises(MeasurementInvalid, match="TRACE_UNUSABLE: the trace 0.trace.json.gz: .*" + said):
        profiled(RunFolder(tmp_path / "run"), engine)


def test_a_trace_that_never_comes_and_one_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "WRITTEN_WITHIN_S", 0.3)
    engine = TracedEngine()
    engine.ranks_traced = 0
    with pytest.raises(MeasurementInvalid, match="wrote no trace within"):
        profiled(RunFolder(tmp_path / "none"), engine)
    monkeypatch.setattr(traced, "LARGEST_BYTES", 1000)
    with pytest.raises(MeasurementInvalid, match="look for fewer --seconds"):
        profiled(RunFolder(tmp_path / "large"))


def test_one_that_does_not_start_leaves_the_other(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    _, recorder = profiled(folder, TracedEngine(Fault.REFUSES_TO_START))
    assert [p.arm for p in folder.profiles()] == ["baseline"]
    assert any("No profile of start" in note for note in recorder.notes)


def test_a_point_and_a_cell_by_name(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    workload = {"max_tokens": 60, "prompts_per_class": 2, "classes": ["code_edit", "chat"]}
    made, recorder = replace(plan(workload=workload), engine=TracedEngine()), Recorder()
    point = "fake-ngram n=2 m=16"
    profile_run(made, folder, recorder, recorder.stopped, Look(), point=point, cell="chat")
    baseline, other = folder.profiles()
    assert (other.arm, other.point.knobs) == ("point", {"n": 2, "m": 16})
    assert other.cell.workload_class == baseline.cell.workload_class == "chat"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fake-ngam n=2", "no method 'fake-ngam' \\(did you mean 'fake-ngram'"),
        ("fake-ngram n", "expected METHOD knob=value"),
        ("fake-ngram q=1", "has no knob 'q'"),
        ("fake-ngram n=99", "outside 1 to 8"),
    ],
)
def test_a_point_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        point_of(plan(), text)


def test_a_cell_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--cell poetry: no such Cell"):
        profiled(RunFolder(tmp_path / "run"), cell="poetry")


def test_tokens_of_a_step_and_what_the_profiler_costs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    profiled(folder)
    [baseline, _] = folder.profiles()
    assert baseline.tokens_per_step == pytest.approx((60 - 1) / 3)  # one request, three steps
    assert baseline.slowdown is not None and baseline.slowdown > 0


def test_a_run_folder_that_servers_cannot_be_started_from(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no run folder"):
        sweep_of_run(RunFolder(tmp_path))
    folder = RunFolder(tmp_path / "run")
    profiled(folder, env={"HF_TOKEN": "hf_abc"})
    with pytest.raises(UsageError, match="does not keep the value of HF_TOKEN: name the sweep file"):
        sweep_of_run(folder)
    other = RunFolder(tmp_path / "other")
    profiled(other)
    assert sweep_of_run(other).engine == "fake"
    other.write_json("compare.json", {"sides": []})
    with pytest.raises(UsageError, match="holds a comparison"):
        sweep_of_run(other)


def test_a_folder_of_another_sweep_is_left_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    recorder = Recorder()
    run_sweep(plan(), folder, recorder, recorder.stopped)
    before = folder.sweep_file.read_text()
    with pytest.raises(UsageError, match="records of another sweep"):
        profiled(folder, seed=7)
    assert folder.sweep_file.read_text() == before
    assert not folder.traces.exists()


def test_all_that_fails_is_the_error_of_the_command(tmp_path: Path) -> None:
    class Dead(TracedEngine):
        def __init__(self) -> None:
            super().__init__()
            self.script = FakeEngine(fault=lambda _point: Fault.REFUSES_TO_START).script

    with pytest.raises(MeasurementInvalid, match="CONFIG_REJECTED"):
        profiled(RunFolder(tmp_path / "run"), Dead())

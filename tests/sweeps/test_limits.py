"""Limits and goodput through whole sweeps on the stand-in engine, and how mistakes in them are explained."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from analysis.report import as_json, markdown
from analysis.verdict import AnswerKind
from launchers.fake import FakeEngine
from results.errors import UsageError
from results.reasons import Reason
from results.records import BASELINE, ArmRun, Block, Phase, Point, Quantiles, Trial, VerdictKind
from results.sharing import Alone
from results.store import RunFolder
from sweeps.lanes import OneLane
from sweeps.limits import check_measurable
from sweeps.opened import claim
from sweeps.outcome import EXIT_CODES, read_run
from sweeps.prepare import prepare
from sweeps.run import Run, run_sweep
from sweeps.study import finalists
from sweeps.sweep import Sweep, json_schema, parse_sweep
from tests.nvml import Scripted, gpu
from tests.records import CELL, arm, block, trial
from tests.sweeps.test_run import Recorder, run

GIB = 2**30


# The sweep file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "limits: {memory_bytes: 1}",
            "limits: unknown limit 'memory_bytes' (did you mean 'gpu_memory_bytes'?)",
        ),
        ("limits: {server_memory_bytes: 24 Gig}", ": limits.server_memory_bytes: '24 Gig' is no amount of"),
        ("limits: {ttft_p95_s: 500 ms}", "limits.ttft_p95_s: expected a number above 0, or an amount"),
        ("limits: {power_w: 0}", "limits.power_w: expected a number above 0, or an amount"),
        ("limits: {power_w: .inf}", "like '24 GiB', not inf"),
        ("goodput: {ttft_p95_s: 1}", "goodput: unknown limit 'ttft_p95_s' (did you mean 'ttft_s'?)"),
        ("goodput: {ttft_s: -1}", "goodput.ttft_s: expected a number above 0 and up to"),
        ("objective: goodput_per_s", "goodput_per_s counts requests within limits of their own: name them"),
    ],
)
def test_mistakes_are_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_sweep(text)
    assert message in str(error.value)


def test_amounts_of_memory_can_be_written_and_are_kept_in_bytes() -> None:
    sweep = parse_sweep("limits: {gpu_memory_bytes: 24 GiB, server_memory_bytes: 1e9, power_w: 300}")
    assert sweep.limits == {"gpu_memory_bytes": 24 * GIB, "server_memory_bytes": 1e9, "power_w": 300}
    assert parse_sweep(sweep.to_yaml()) == sweep
    schema = json.dumps(json_schema()["properties"]["limits"])
    assert '"type": "string"' in schema and '"type": "number"' in schema


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (
            "gpu_memory_bytes",
            "limits.gpu_memory_bytes needs GPUs that tell their memory, and there is no GPU",
        ),
        ("joules_per_token", "limits.joules_per_token needs GPUs that tell their energy or power"),
        ("power_w", "limits.power_w needs GPUs that tell their energy or power, and there is no GPU"),
    ],
)
def test_what_this_machine_cannot_tell_is_refused_before_the_start(limit: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        prepare(Sweep(engine="fake", limits={limit: 1e9}))
    assert message in str(error.value)
    assert "leave this limit out" in str(error.value)


def test_gpus_that_tell_are_enough(nvml: Scripted) -> None:
    nvml(gpu())
    prepare(Sweep(engine="fake", limits={"gpu_memory_bytes": GIB, "power_w": 300, "joules_per_token": 2}))


def test_a_gpu_that_does_not_tell_its_memory_is_named(nvml: Scripted) -> None:
    nvml(gpu(memory_used=None))
    with pytest.raises(UsageError, match="the driver does not tell it of RTX 4090: leave this limit out"):
        prepare(Sweep(engine="fake", limits={"gpu_memory_bytes": GIB}))


def test_the_hardware_of_another_machine_cannot_be_limited() -> None:
    away = Sweep(launcher="attach", url="http://gpu-box:8000", limits={"server_memory_bytes": GIB})
    with pytest.raises(UsageError, match="gpu-box:8000 is on another machine"):
        check_measurable(away)
    check_measurable(away.model_copy(update={"url": "http://127.0.0.1:8000"}))


def test_goodput_is_an_objective_of_open_loops_where_throughput_is_none() -> None:
    open_loop: dict[str, object] = {"engine": "fake", "load": [{"poisson": 2}], "goodput": {"ttft_s": 0.5}}
    with pytest.raises(UsageError, match="choose goodput_per_s"):
        prepare(Sweep.model_validate(open_loop))
    planned = prepare(Sweep.model_validate({**open_loop, "objective": "goodput_per_s"}))
    assert planned.notes[-1].startswith("goodput_per_s is a count, and a Cell has 4 requests")
    assert not [note for note in prepare(Sweep(engine="fake")).notes if "goodput" in note]


# Searched and confirmed on scripted Blocks: everything of a sweep but the servers.

SPRINTER, STEADY = Point("fake-ngram", {"n": 4, "m": 8}), Point("fake-ngram", {"n": 2, "m": 8})
REQUESTS = 20


@dataclass(frozen=True)
class Reached:
    """What a Point reaches."""

    tokens_per_s: float
    slowest_s: float = 1.0  # p99 from end to end; half of it is the median
    good: int = REQUESTS  # requests within the limits of a single one


# The sprinter is the fastest on the whole, and some of its answers are late.
LATE = {
    BASELINE.key: Reached(100, 1.0),
    SPRINTER.key: Reached(150, 2.0, good=12),
    STEADY.key: Reached(120, 0.9),
}


class ScriptedBlocks:
    """A BlockRunner without servers."""

    def __init__(self, folder: RunFolder, script: Mapping[str, Reached]) -> None:
        self._folder, self._script = folder, script
        self.blocks = folder.blocks()

    def __call__(
        self, points: Sequence[Point], phase: Phase, baseline: Point = BASELINE, *, alone: bool = False
    ) -> Block:
        number = len(self._folder.blocks())
        wobble = 1 + 0.002 * (number % 3)
        arms = [self._arm(baseline, 1.0), *(self._arm(point, wobble) for point in points)]
        made = replace(block(number, phase, arms), compared_with=baseline)
        self._folder.add_block(made)
        self.blocks.append(made)
        return made

    def _arm(self, point: Point, factor: float) -> ArmRun:
        reached = self._script.get(point.key, Reached(90))
        late = Quantiles(reached.slowest_s / 2, reached.slowest_s * 0.9, reached.slowest_s)
        speed = reached.tokens_per_s * factor
        wall_s = 2000 / speed
        (found,) = arm(point, {CELL: speed}).measurements
        found = replace(
            found,
            wall_s=wall_s,
            end_to_end_s=late,
            goodput_per_s=reached.good / wall_s,
            within_limits_share=reached.good / REQUESTS,
        )
        return replace(arm(point, {}), measurements=(found,))


def swept(
    tmp_path: Path, script: Mapping[str, Reached], stop_after: int = 1000, **changes: object
) -> tuple[RunFolder, Sweep]:
    content: dict[str, object] = {
        "engine": "fake",
        "space": {"fake-ngram": {"n": [2, 4], "m": [8]}},
        "confirm": {"looks": [3, 5], "finalists": 2},
        **changes,
    }
    plan, folder = prepare(Sweep.model_validate(content)), RunFolder(tmp_path / "run")
    folder.create()
    claim(folder, plan)
    folder.write_json("sessions.json", {"sessions": [{"began_at": 0, "ended_at": 1, "calibration": {}}]})
    recorder = Recorder(stop_after)
    run_block = ScriptedBlocks(folder, script)
    blocks, trials = run_block.blocks, folder.trials()
    started = Run(plan.space, plan.sweep, folder, OneLane(run_block), Alone(0), blocks, trials, recorder)
    baseline = started.tune_baseline(lambda: not recorder.stopped())
    started.search(baseline, lambda: not recorder.stopped())
    started.confirm(baseline, lambda: not recorder.stopped())
    return folder, plan.sweep


def told(folder: RunFolder) -> dict[str, Mapping[str, float]]:
    """The constraints that the sampler has of each Point. No value it was told is infinite or NaN."""
    storage = JournalStorage(JournalFileBackend(str(folder.study_file)))
    trials = optuna.load_study(study_name=None, storage=storage).trials
    assert all(t.value is None or math.isfinite(t.value) for t in trials)
    return {t.user_attrs["point"]: t.constraints for t in trials if "point" in t.user_attrs}


def test_a_fast_one_that_breaks_a_limit_never_wins(tmp_path: Path) -> None:
    folder, _ = swept(tmp_path, LATE)
    report, _ = read_run(folder)
    assert report.winner is not None and report.winner.point == SPRINTER
    folder, _ = swept(tmp_path / "limited", LATE, limits={"end_to_end_p99_s": 1.5})
    report, code = read_run(folder)
    assert code == 0
    assert report.winner is not None and report.winner.point == STEADY
    assert [v.point for v in report.verdicts] == [STEADY]  # the other was not even confirmed
    (sprinter,) = (t for t in folder.trials() if t.point == SPRINTER)
    assert sprinter.log_speedup is not None and sprinter.log_speedup > math.log(1.4)
    assert sprinter.failure is not None and sprinter.failure.reason is Reason.LIMIT_EXCEEDED
    assert sprinter.failure.evidence == "end_to_end_p99_s is 2 s, the limit 1.5 s"


def test_limits_are_graded_constraints_and_the_same_when_a_run_goes_on(tmp_path: Path) -> None:
    limits = {"end_to_end_p99_s": 1.5, "end_to_end_p50_s": 1.2}
    folder, _ = swept(tmp_path, LATE, stop_after=2, limits=limits)
    before = told(folder)
    constraints = {"end_to_end_p99_s": math.log(2 / 1.5), "end_to_end_p50_s": math.log(1 / 1.2), "failed": -1}
    assert {name: before[SPRINTER.label][name] for name in constraints} == pytest.approx(constraints)
    assert before[STEADY.label]["end_to_end_p99_s"] == pytest.approx(math.log(0.9 / 1.5))
    folder.study_file.unlink()
    swept(tmp_path, LATE, limits=limits)
    assert told(folder) == before
    report, _ = read_run(folder)
    assert report.winner is not None and report.winner.point == STEADY


def test_goodput_chooses_another_winner_than_throughput(tmp_path: Path) -> None:
    folder, _ = swept(tmp_path, LATE, objective="goodput_per_s", goodput={"end_to_end_s": 1.5})
    report, code = read_run(folder)
    assert code == 0
    assert report.winner is not None and report.winner.point == STEADY
    assert "x the goodput of the same server without speculation" in markdown(report)
    (sprinter,) = (t for t in folder.trials() if t.point == SPRINTER)
    assert sprinter.log_speedup == pytest.approx(math.log(1.5 * 12 / 20), abs=0.01)


@pytest.mark.parametrize("good", [(0, 5, 0), (5, 0, 0), (0, 0, 0)])
def test_no_request_within_the_limits_is_no_infinite_number(
    tmp_path: Path, good: tuple[int, int, int]
) -> None:
    points = (BASELINE, SPRINTER, STEADY)
    script = {p.key: replace(LATE[p.key], good=n) for p, n in zip(points, good, strict=True)}
    folder, _ = swept(tmp_path, script, objective="goodput_per_s", goodput={"end_to_end_s": 0.1})
    assert told(folder)
    assert all(t.log_speedup is not None and math.isfinite(t.log_speedup) for t in folder.trials())
    report, code = read_run(folder)
    assert code == 0
    assert (report.winner is not None) is (good == (0, 5, 0))  # something against nothing is better
    assert "no request kept its limits" in report.verdicts[0].warnings[-1]
    assert "inf" not in as_json(report).split('"why"')[1].split('"warnings"')[0]


SLOWER = {
    BASELINE.key: Reached(100, 2.0),
    SPRINTER.key: Reached(150, 3.0),
    STEADY.key: Reached(90, 1.0),
}


def test_where_the_baseline_breaks_a_limit_a_slower_one_that_keeps_it_is_the_answer(tmp_path: Path) -> None:
    folder, _ = swept(tmp_path, SLOWER, limits={"end_to_end_p99_s": 1.5})
    report, code = read_run(folder)
    assert code == EXIT_CODES[AnswerKind.KEEPS_LIMITS] == 0
    assert report.winner is not None
    assert (report.winner.point, report.winner.kind) == (STEADY, VerdictKind.WORSE)
    assert report.baseline_breaks == "end_to_end_p99_s is 2 s, the limit 1.5 s"
    assert report.headline.startswith(
        "The baseline breaks a limit (end_to_end_p99_s is 2 s, the limit 1.5 s);"
        " fake-ngram m=8 n=2 keeps every limit, at -9.8 %"
    )
    assert STEADY.method in report.command
    assert "Run the one that keeps the limits" in markdown(report)


def test_before_it_is_confirmed_the_baseline_is_told_to_break_a_limit(tmp_path: Path) -> None:
    folder, _ = swept(tmp_path, SLOWER, stop_after=2, limits={"end_to_end_p99_s": 1.5})
    report, code = read_run(folder)
    assert code == EXIT_CODES[AnswerKind.UNDECIDED]
    assert report.banner == ("The baseline itself breaks a limit: end_to_end_p99_s is 2 s, the limit 1.5 s.")


def test_settings_with_which_the_baseline_keeps_the_limits_become_the_baseline(tmp_path: Path) -> None:
    """Though it is slower with them: without, it is no choice."""
    script = {
        BASELINE.key: Reached(100, 2.0),
        Point("none", {"--batch": 4}).key: Reached(120, 2.0),
        Point("none", {"--batch": 8}).key: Reached(80, 1.0),
    }
    space = {"fake-ngram": {"n": [4], "m": [8]}}
    shared = {"--batch": [4, 8]}
    folder, _ = swept(tmp_path, script, space=space, shared=shared, limits={"end_to_end_p99_s": 1.5})
    assert folder.read_json("baseline.json") == {"method": "none", "knobs": {"--batch": 8}}
    report, _ = read_run(folder)
    assert report.baseline_breaks == ""
    assert report.winner is not None and report.winner.kind is VerdictKind.BETTER


def test_a_tuned_baseline_is_no_finalist(tmp_path: Path) -> None:
    """It would be confirmed against itself."""
    tuned = {"--batch": 8}
    script = {
        BASELINE.key: Reached(100),
        Point("none", tuned).key: Reached(150),
        Point("fake-ngram", {"n": 4, "m": 8, **tuned}).key: Reached(170),
    }
    space: dict[str, object] = {"fake-ngram": {"n": [4], "m": [8]}}
    folder, _ = swept(tmp_path, script, space=space, shared={"--batch": [8]})
    report, _ = read_run(folder)
    assert [v.point.label for v in report.verdicts] == ["fake-ngram --batch=8 m=8 n=4"]


def test_slower_ones_are_confirmed_where_the_baseline_is_out() -> None:
    trials: list[Trial] = [trial(1, SPRINTER, -0.2), trial(2, STEADY, -0.1)]
    assert finalists(trials, 3, 0.02) == [STEADY]
    assert finalists(trials, 3, 0.02, baseline_is_out=True) == [STEADY, SPRINTER]
    broken = trial(3, Point("fake-ngram", {"n": 8, "m": 8}), 0.5, limits={"ttft_p95_s": 0.1})
    assert finalists([*trials, broken], 3, 0.02, baseline_is_out=True) == [STEADY, SPRINTER]


# On the stand-in engine, whose streams are real


def test_goodput_is_counted_where_it_is_not_the_objective(tmp_path: Path) -> None:
    _, folder = run(tmp_path, goodput={"end_to_end_s": 60}, budget={"trials": 1})
    arms = [found for made in folder.blocks() for found in made.arms]
    windows = [m for found in arms for m in found.measurements]
    assert len(arms) >= 2
    assert [m.within_limits_share for m in windows] == [1.0] * len(windows)
    assert all(m.goodput_per_s == pytest.approx(m.requests / m.wall_s) for m in windows)
    assert "## Goodput" in markdown(read_run(folder)[0])


def test_every_request_of_the_stand_in_may_be_too_late(tmp_path: Path) -> None:
    _, folder = run(tmp_path, objective="goodput_per_s", goodput={"ttft_s": 1e-6})
    assert [t.log_speedup for t in folder.trials()] == [0.0, 0.0, 0.0]
    report, code = read_run(folder)
    assert (code, report.winner) == (0, None)
    assert {v.kind for v in report.verdicts} == {VerdictKind.SAME}


def test_a_limit_on_real_streams(tmp_path: Path) -> None:
    """One Point is fast and stumbles over one prompt: nobody would see it in its throughput."""
    prompts = [
        {"class": "sums", "split": split, "prompt": f"{'hard' if n == 1 else 'easy'} {split} {n}"}
        for split in ("tuning", "validation")
        for n in range(6)
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, prompts)))
    seconds = {BASELINE.key: (0.2, 0.2), SPRINTER.key: (0.02, 0.8), STEADY.key: (0.15, 0.15)}

    def speed(point: Point, prompt: str) -> float:
        return 40 / seconds[point.key]["hard" in prompt]

    plan = prepare(
        Sweep.model_validate(
            {
                "engine": "fake",
                "space": {"fake-ngram": {"n": [2, 4], "m": [8]}},
                "workload": {"files": [file], "classes": [], "max_tokens": 40, "prompts_per_class": 5},
                "confirm": {"looks": [2, 3], "finalists": 2},
                "limits": {"end_to_end_p99_s": 0.5},
                "patience": {"client_share": 1, "min_window_s": 0, "hopeless_ratio": 0, "foreign_cores": 100},
            }
        )
    )
    engine, folder, recorder = FakeEngine(speed, class_of=str), RunFolder(tmp_path / "run"), Recorder()
    space = replace(plan.space, engine=engine)
    run_sweep(replace(plan, engine=engine, space=space), folder, recorder, recorder.stopped)
    failures = {t.point.key: t.failure for t in folder.trials()}
    assert failures[STEADY.key] is None
    stumbled = failures[SPRINTER.key]
    assert stumbled is not None and stumbled.reason is Reason.LIMIT_EXCEEDED
    assert SPRINTER not in [v.point for v in read_run(folder)[0].verdicts]

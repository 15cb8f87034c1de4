"""Whole comparisons on the stand-in engine, and what their folder says afterwards."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import report as reports
from analysis import sides, tables
from analysis.terminal import verdict_lines
from launchers.engines.attached import Attached
from launchers.engines.engine import Served
from launchers.fake import FakeEngine, FakeLauncher
from launchers.fake_server import Fault
from launchers.launcher import Endpoint, Launch
from launchers.port import free_port
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE, Point, SpecCounters, VerdictKind
from results.store import RunFolder
from sweeps.compare import run_comparison
from sweeps.outcome import read_run
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.sides import Comparison, Side, comparison
from sweeps.sweep import parse_sweep
from tests.sweeps.test_run import Recorder
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
TEXT = """
engine: fake
space: {none: }
workload: {max_tokens: 80, prompts_per_class: 2, classes: [code_edit]}
confirm: {looks: [3, 4], same_margin: 0.5}
patience: {client_share: 1, min_window_s: 0, reruns: 0, stall_timeout_s: 2, foreign_cores: 100}
"""
ON = TEXT.replace("{none: }", "{fake-ngram: {n: 4, m: 8}}")
SPEED = 400.0

Speed = Callable[[], float]


def steady(tokens_per_s: float) -> Speed:
    return lambda: tokens_per_s


def compared(
    tmp_path: Path, a: FakeEngine, b: FakeEngine, texts: tuple[str, str] = (TEXT, TEXT)
) -> Comparison:
    """Two sides as the files describe them, each on an engine of its own."""
    files = [tmp_path / f"{name}.yaml" for name in "ab"]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    found = comparison([str(file) for file in files])
    assert found.b is not None
    return replace(found, a=on(found.a, a), b=on(found.b, b))


def on(side: Side, engine: FakeEngine) -> Side:
    space = replace(side.plan.space, engine=engine)
    return replace(side, plan=replace(side.plan, engine=engine, space=space))


def scripted(speed: Speed, fault: Fault | None = None) -> FakeEngine:
    return FakeEngine(lambda point, workload_class: speed(), lambda point: fault)


def run(found: Comparison, tmp_path: Path, stop_after: int = 1000) -> tuple[Recorder, RunFolder]:
    recorder, folder = Recorder(stop_after), RunFolder(tmp_path / "run")
    run_comparison(found, folder, recorder, recorder.stopped)
    return recorder, folder


def alternating(*tokens_per_s: float) -> Speed:
    """Another speed for every prompt of every Block: two prompts a Block."""
    seen: list[int] = []

    def speed() -> float:
        seen.append(1)
        return tokens_per_s[((len(seen) - 1) // 3) % len(tokens_per_s)]  # warm-up and two prompts

    return speed


@pytest.mark.parametrize(
    ("speed", "kind", "code", "sentence"),
    [
        (steady(2 * SPEED), VerdictKind.BETTER, 0, "% faster than A"),
        (steady(0.5 * SPEED), VerdictKind.WORSE, 0, "% slower than A"),
        (steady(SPEED), VerdictKind.SAME, 0, "B is as fast as A"),
        (alternating(SPEED, 3 * SPEED), VerdictKind.UNDECIDED, 4, "It is not decided which is faster"),
    ],
)
def test_every_verdict_with_its_sentence_and_exit_code(
    speed: Speed, kind: VerdictKind, code: int, sentence: str, tmp_path: Path
) -> None:
    found = compared(tmp_path, scripted(steady(SPEED)), scripted(speed))
    recorder, folder = run(found, tmp_path)
    report, exit_code = read_run(folder)
    (verdict,) = report.verdicts
    assert (verdict.kind, exit_code) == (kind, code)
    assert sentence in report.headline
    assert report.finished
    assert (report.winner is not None) is (kind is VerdictKind.BETTER)
    assert bool(report.command) is (kind in (VerdictKind.BETTER, VerdictKind.WORSE))
    assert recorder.looks == len(folder.blocks()) == (4 if kind is VerdictKind.UNDECIDED else 3)
    assert not folder.trials()


def test_equal_points_are_told_apart_everywhere(tmp_path: Path) -> None:
    found = compared(tmp_path, scripted(steady(SPEED)), scripted(steady(2 * SPEED)), (ON, ON))
    _, folder = run(found, tmp_path)
    for block in folder.blocks():
        assert block.invalid is None
        assert block.compared_with == Point("fake-ngram", {"n": 4, "m": 8}, "A")
        assert {arm.point.name for arm in block.arms} == {"A", "B"}
        assert block.baseline is not None
        assert [arm.point.name for arm in block.candidates] == ["B"]
        assert block.outputs[found.sides[1].point.key].identical_share == 1.0
    report, _ = read_run(folder)
    assert report.verdicts[0].kind is VerdictKind.BETTER
    lengths = [row[1].text for row in tables.acceptance(report).rows]
    assert lengths == ["4.00", "4.00"]  # A speculates as well, and is counted by itself


def test_the_report_names_the_sides_and_what_differs(tmp_path: Path) -> None:
    found = compared(tmp_path, scripted(steady(SPEED)), scripted(steady(2 * SPEED)), (TEXT, ON))
    _, folder = run(found, tmp_path)
    report, _ = read_run(folder)
    page, text = reports.html(report), reports.markdown(report)
    for shown in (page, text):
        assert "the speed of A" in shown
        assert "fake-ngram" in shown
        assert "a.yaml" in shown
        assert "without speculation" not in shown
        assert "the baseline" not in shown.lower()
    assert "| method | none | fake-ngram |" in text
    assert reports.csv(report).splitlines()[0] == ("Side,Cell,Tokens/s,TTFT p50,TPOT p50,Acceptance length")
    assert '"setting": "method"' in reports.as_json(report)
    assert printed(report).count("a.yaml") == 1


def printed(report: Any) -> str:
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=200)
    for line in verdict_lines(report):
        console.print(line)
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    found = compared(tmp_path, scripted(steady(SPEED)), scripted(steady(2 * SPEED)))
    _, folder = run(found, tmp_path, stop_after=1)
    before = folder.blocks()
    assert len(before) == 1
    report, code = read_run(folder)
    assert (code, report.finished) == (4, False)
    assert "1 of the 3 Blocks before the first look" in report.headline
    recorder, _ = run(found, tmp_path)
    assert recorder.begun[0][1] == 1
    assert folder.blocks()[:1] == before
    assert len(folder.blocks()) == 3
    run(found, tmp_path)
    assert len(folder.blocks()) == 3


def test_it_goes_on_after_a_kill(tmp_path: Path) -> None:
    texts = {"a": TEXT, "b": ON}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text.replace("max_tokens: 80", "max_tokens: 200"))
    folder = RunFolder(tmp_path / "run")
    command = [sys.executable, str(ROOT / "tuner.py"), "compare", "a.yaml", "b.yaml", "--run", "run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    tool = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    wait_for(lambda: tool.poll() is not None or bool(folder.blocks()))
    tool.send_signal(signal.SIGKILL)
    tool.wait()
    before = folder.blocks()
    assert 1 <= len(before) < 3
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "% faster than A" in done.stdout
    assert folder.blocks()[: len(before)] == before


def test_a_folder_belongs_to_one_comparison(tmp_path: Path) -> None:
    found = compared(tmp_path, scripted(steady(SPEED)), scripted(steady(SPEED)))
    _, folder = run(found, tmp_path, stop_after=1)
    other = compared(tmp_path, scripted(steady(SPEED)), scripted(steady(SPEED)), (TEXT, ON))
    with pytest.raises(UsageError, match="the configurations compared"):
        run(other, tmp_path)
    plan = prepare(parse_sweep(ON))
    recorder = Recorder()
    with pytest.raises(UsageError, match="another sweep"):
        run_sweep(plan, folder, recorder, recorder.stopped)
    swept = RunFolder(tmp_path / "swept")
    run_sweep(plan, swept, recorder, lambda: bool(recorder.trials))
    with pytest.raises(UsageError, match="holds the records of a sweep"):
        run_comparison(found, swept, recorder, recorder.stopped)


@pytest.mark.parametrize("fault", [Fault.REFUSES_TO_START, Fault.ERROR_EVENT, Fault.GARBAGE])
def test_a_side_that_fails_is_no_verdict(fault: Fault, tmp_path: Path) -> None:
    found = compared(tmp_path, scripted(steady(SPEED)), scripted(steady(2 * SPEED), fault))
    _, folder = run(found, tmp_path)
    report, code = read_run(folder)
    assert (report.verdicts[0].kind, code) == (VerdictKind.INVALID, 5)
    assert report.headline.startswith("Nothing can be said of B against A: failed in Block 0")
    assert len(folder.blocks()) == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.REFUSES_TO_START, Reason.CONFIG_REJECTED),
        (Fault.GARBAGE, Reason.INVALID_OUTPUT),  # the reference of a comparison is not trusted
    ],
)
def test_the_first_side_is_judged_too(fault: Fault, reason: Reason, tmp_path: Path) -> None:
    found = compared(tmp_path, scripted(steady(SPEED), fault), scripted(steady(SPEED)))
    with pytest.raises(MeasurementInvalid, match="A cannot be measured") as caught:
        run(found, tmp_path)
    assert caught.value.reason is reason


def test_one_side_alone_has_figures_and_no_verdict(tmp_path: Path) -> None:
    found = compared(tmp_path, scripted(steady(SPEED)), scripted(steady(SPEED)), (ON, ON))
    _, folder = run(replace(found, b=None), tmp_path)
    assert len(folder.blocks()) == 3
    report, code = read_run(folder)
    assert (code, report.verdicts, report.finished) == (4, [], True)
    assert report.headline == "Nothing to compare with: no verdict (3 of 3 Blocks)."
    (row,) = sides.sides(report).rows
    assert row[2].order == pytest.approx(SPEED, rel=0.2)
    assert row[5].text == "4.00"
    assert "Nothing to compare with" in reports.html(report) + printed(report)


# Servers that run already


@contextmanager
def running(tokens_per_s: float, tmp_path: Path, point: Point = BASELINE) -> Iterator[Endpoint]:
    engine, port = scripted(steady(tokens_per_s)), free_port()
    command = engine.command(point, Served("fake-model", None, {}, {}), port)
    with FakeLauncher(engine).start(Launch(command, port, tmp_path / f"{port}.log")) as endpoint:
        yield endpoint


def by_url(tmp_path: Path, *urls: str) -> Comparison:
    (tmp_path / "like.yaml").write_text(TEXT)
    return comparison(urls, [], tmp_path / "like.yaml")


def test_two_servers_that_run_already(tmp_path: Path) -> None:
    with running(SPEED, tmp_path) as one, running(2 * SPEED, tmp_path) as two:
        _, folder = run(by_url(tmp_path, one.base_url, two.base_url), tmp_path)
        assert one.exit_code() is None
        assert two.exit_code() is None
    report, code = read_run(folder)
    assert (report.verdicts[0].kind, code) == (VerdictKind.BETTER, 0)
    assert report.command == ""  # nobody needs to be told how to start what runs
    told = printed(report)
    for shown in (told, reports.html(report)):
        assert "Its log cannot be read" in shown
        assert "Its prefix cache could not be reset" in shown
        assert two.base_url in shown
    assert not (folder.path / "servers.jsonl").exists()


def test_a_server_that_goes_away_is_named(tmp_path: Path) -> None:
    with running(SPEED, tmp_path) as one:
        with running(SPEED, tmp_path) as two:
            found = by_url(tmp_path, one.base_url, two.base_url)
        _, folder = run_until_invalid(found, tmp_path)
    (block, *_) = folder.blocks()
    assert block.invalid is None
    (arm,) = block.candidates
    assert arm.failure is not None
    assert arm.failure.reason is Reason.SERVER_DIED


def run_until_invalid(found: Comparison, tmp_path: Path) -> tuple[Recorder, RunFolder]:
    impatient = [
        replace(side, plan=replace(side.plan, sweep=with_start_timeout(side, 0.2))) for side in found.sides
    ]
    return run(replace(found, a=impatient[0], b=impatient[1]), tmp_path)


def with_start_timeout(side: Side, seconds: float) -> Any:
    sweep = side.plan.sweep
    return sweep.model_copy(
        update={"patience": sweep.patience.model_copy(update={"start_timeout_s": seconds})}
    )


class Shared(FakeEngine):
    """Somebody else generates 1000 tokens in every window."""

    def __init__(self) -> None:
        super().__init__(lambda point, workload_class: SPEED)
        self.generated = 0

    def generated_tokens(self, endpoint: Endpoint) -> int | None:
        self.generated += 1000
        return self.generated


class Busy(FakeEngine):
    """Requests of others are in flight whenever it is asked."""

    def __init__(self) -> None:
        super().__init__(lambda point, workload_class: SPEED)

    def counters(self, endpoint: Endpoint) -> SpecCounters | None:
        raise MeasurementInvalid(Reason.OTHER_LOAD, "2 running and 1 waiting")


@pytest.mark.parametrize("kind", [Shared, Busy])
@pytest.mark.parametrize("where", ["a", "b"])
def test_load_of_others_spoils_the_block_and_in_the_end_the_run(
    kind: type[FakeEngine], where: str, tmp_path: Path
) -> None:
    engines: Mapping[str, FakeEngine] = {"a": scripted(steady(SPEED)), "b": scripted(steady(SPEED))}
    engines = {**engines, where: kind()}
    found = compared(tmp_path, engines["a"], engines["b"])
    with pytest.raises(MeasurementInvalid, match="3 Blocks in a row stayed unusable"):
        run(found, tmp_path)
    blocks = RunFolder(tmp_path / "run").blocks()
    assert [b.invalid.reason for b in blocks if b.invalid] == [Reason.OTHER_LOAD] * 3


def test_an_attached_server_is_an_engine_like_others(tmp_path: Path) -> None:
    with running(SPEED, tmp_path) as one:
        (side,) = by_url(tmp_path, one.base_url).sides
    assert isinstance(side.plan.engine, Attached)
    assert side.plan.environment()["served"] == side.plan.engine.identity(side.plan.served)

"""Wrong output through the whole pipeline: whatever its speed, it never becomes finalist or winner."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import report as reports
from analysis.report_input import ReportInput
from launchers.fake import FakeEngine
from launchers.fake_server import WORDS, Fault
from results.errors import UsageError
from results.reasons import Reason
from results.records import Phase, Point, Verdict, VerdictKind
from results.store import RunFolder
from sweeps.difference import with_difference
from sweeps.outcome import read_run
from sweeps.prepare import prepare
from sweeps.run import run_sweep
from sweeps.sweep import Sweep
from tests.sweeps.test_run import Recorder, run_with

FAST, GOOD = Point("fake-ngram", {"n": 4, "m": 16}), Point("fake-ngram", {"n": 4, "m": 8})
SPACE = {"fake-ngram": {"n": [4], "m": [8, 16]}}
CALM = {"client_share": 1, "min_window_s": 0, "hopeless_ratio": 0, "foreign_cores": 100}
Answer = Callable[[Point, str], str | None]


def speed(point: Point, _: str) -> float:
    return {FAST.key: 1200.0, GOOD.key: 700.0}.get(point.key, 400.0)


def is_invalid(verdict: Verdict) -> bool:
    return verdict.kind is VerdictKind.INVALID and "INVALID_OUTPUT" in verdict.why


def report_of(folder: RunFolder) -> ReportInput:
    report, code = read_run(folder)
    assert code in (0, 4)
    return with_difference(folder, report)


def test_the_fastest_is_garbage_everywhere(tmp_path: Path) -> None:
    engine = FakeEngine(speed, fault=lambda p: Fault.GARBAGE if p.key == FAST.key else None)
    _, folder = run_with(engine, tmp_path, space=SPACE, patience=CALM)
    failed = next(t for t in folder.trials() if t.point == FAST)
    assert failed.failure is not None and failed.failure.reason is Reason.INVALID_OUTPUT
    report = report_of(folder)
    assert [v.point for v in report.verdicts] == [GOOD]
    assert not is_invalid(report.verdicts[0])


def test_garbage_in_one_cell_is_enough(tmp_path: Path) -> None:
    planned = prepare(Sweep.model_validate({"engine": "fake", "workload": {"classes": ["chat"]}}))
    spoiled = {p.messages[-1]["content"] for w in planned.windows[Phase.SEARCH] for p in w.prompts}

    def answer(point: Point, prompt: str) -> str | None:
        return "! " * 30 if point.key == FAST.key and prompt in spoiled else None

    workload = {"max_tokens": 30, "prompts_per_class": 4, "classes": ["code_edit", "chat"]}
    _, folder = run_with(
        FakeEngine(speed, answer=answer), tmp_path, space=SPACE, patience=CALM, workload=workload
    )
    failed = next(t for t in folder.trials() if t.point == FAST)
    assert failed.failure is not None and failed.failure.reason is Reason.INVALID_OUTPUT
    assert all(v.point != FAST for v in report_of(folder).verdicts)


def test_garbage_in_the_confirmation_alone(tmp_path: Path) -> None:
    finalists = tmp_path / "run" / "finalists.json"

    def fault(point: Point) -> Fault | None:
        return Fault.GARBAGE if point.key == FAST.key and finalists.exists() else None

    _, folder = run_with(FakeEngine(speed, fault=fault), tmp_path, space=SPACE, patience=CALM)
    report = report_of(folder)
    verdicts = {v.point.key: v for v in report.verdicts}
    assert is_invalid(verdicts[FAST.key]) and not is_invalid(verdicts[GOOD.key])
    assert report.winner is None or report.winner.point == GOOD


# --- where outputs part


def words_of(prompt: str) -> str:
    import random

    chosen = random.Random(prompt)
    return " ".join(chosen.choice(WORDS) for _ in range(60))


def other_ending(point: Point, prompt: str) -> str:
    said = words_of(prompt).split()
    return " ".join(
        said if point.is_baseline else [*said[:30], *("other" for _ in said[30:-20]), *said[-20:]]
    )


def test_the_report_shows_where_outputs_part_beside_the_control(tmp_path: Path) -> None:
    engine = FakeEngine(speed, answer=other_ending)
    _, folder = run_with(engine, tmp_path, space=SPACE, patience=CALM)
    report = report_of(folder)
    verdict = report.verdicts[0]
    outputs, control = verdict.outputs, verdict.control
    assert outputs is not None and control is not None
    assert (outputs.identical, control.identical_share) == (0, 1.0)
    assert len(outputs.first_divergence_chars) == len(outputs.answer_chars) == outputs.compared
    document = json.loads(reports.as_json(report))
    shares = document["verdicts"][0]["outputs"]["first_difference_by_share_of_answer"]
    assert shares[0]["share"] == 0
    assert sum(s["share"] for s in shares[2:4]) == 1
    assert document["verdicts"][0]["control_outputs"]["identical"] == control.compared
    for text in (reports.markdown(report), reports.html(report)):
        assert "Where outputs differ first" in text
        assert "Control: baseline to itself" in text
        assert "Around the first difference" in text
        assert "lossless" not in text.lower()


def test_sampled_outputs_are_not_held_against_anyone(tmp_path: Path) -> None:
    workload = {"max_tokens": 60, "prompts_per_class": 2, "classes": ["code_edit"], "temperature": 0.7}
    _, folder = run_with(
        FakeEngine(speed, answer=other_ending), tmp_path, space=SPACE, patience=CALM, workload=workload
    )
    report = report_of(folder)
    assert report.verdicts
    assert not [w for v in report.verdicts for w in v.warnings if w.startswith("outputs")]
    for text in (reports.markdown(report), reports.html(report)):
        assert "Outputs are sampled" in text


@pytest.mark.parametrize(
    ("workload", "greedy"),
    [
        ({}, True),
        ({"temperature": 0.1}, False),
        ({"sampling": {"temperature": 1}}, False),
        ({"temperature": 1, "sampling": {"top_k": 1}}, True),
    ],
)
def test_what_is_sampled(workload: dict[str, object], greedy: bool) -> None:
    assert Sweep.model_validate({"workload": workload}).workload.is_greedy is greedy


# --- right answers


def with_references(tmp_path: Path, answer: Answer, questions: int = 40, **workload: object) -> RunFolder:
    entries = [
        {
            "id": f"q{n}",
            "class": "sums",
            "prompt": f"sums: {n} + {n} =",
            "reference": str(2 * n),
            "match": "number",
        }
        for n in range(questions)
    ]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, entries)))
    content = {
        "engine": "fake",
        "space": SPACE,
        "patience": CALM,
        "confirm": {"looks": [2, 3], "finalists": 2},
        "workload": {
            "files": [tmp_path / "sums.jsonl"],
            "classes": [],
            "endpoint": "completions",
            "lengths": "natural",
            "prompts_per_class": questions // 2,
            "max_tokens": 40,
            **workload,
        },
    }
    engine, folder, recorder = FakeEngine(speed, answer=answer), RunFolder(tmp_path / "run"), Recorder()
    planned = prepare(Sweep.model_validate(content))
    space = replace(planned.space, engine=engine)
    run_sweep(replace(planned, engine=engine, space=space), folder, recorder, recorder.stopped)
    return folder


def right(prompt: str) -> str:
    number = int(prompt.split()[1])
    return f"Twice {number} is what is asked for, and so the sum comes to {2 * number}."


def test_a_fast_point_that_answers_wrongly_is_invalid(tmp_path: Path) -> None:
    def answer(point: Point, prompt: str) -> str:
        wrong = point.key == FAST.key and int(prompt.split()[1]) % 4 != 0
        return right(prompt).replace("to ", "to 9") if wrong else right(prompt)

    folder = with_references(tmp_path, answer)
    failed = next(t for t in folder.trials() if t.point == FAST)
    assert failed.failure is not None and failed.failure.reason is Reason.INVALID_OUTPUT
    assert "answers right, the baseline's 20 of 20" in failed.failure.evidence
    report = report_of(folder)
    assert [v.point for v in report.verdicts] == [GOOD]
    found = report.verdicts[0].accuracy
    assert found is not None
    assert (found.prompts, found.right, found.baseline_right, found.p_value) == (20, 20, 20, 1.0)
    assert "20 of 20" in reports.markdown(report)
    assert json.loads(reports.as_json(report))["verdicts"][0]["accuracy"]["right"] == 20


def test_wrong_answers_in_the_confirmation_alone(tmp_path: Path) -> None:
    """Held-out prompts, each counted once however many Blocks asked it."""

    def answer(point: Point, prompt: str) -> str:
        late = (tmp_path / "run" / "finalists.json").exists()
        return right(prompt).replace("to ", "to 9") if point.key == FAST.key and late else right(prompt)

    report = report_of(with_references(tmp_path, answer))
    verdicts = {v.point.key: v for v in report.verdicts}
    assert is_invalid(verdicts[FAST.key])
    assert verdicts[FAST.key].accuracy is not None
    assert verdicts[FAST.key].accuracy.prompts == 20  # type: ignore[union-attr]
    assert report.winner is None or report.winner.point == GOOD
    assert "Right answers" in reports.html(report)


def test_a_few_more_wrong_answers_are_no_proof(tmp_path: Path) -> None:
    def answer(point: Point, prompt: str) -> str:
        wrong = point.key == FAST.key and int(prompt.split()[1]) in (1, 2, 3, 4)
        return right(prompt).replace("to ", "to 9") if wrong else right(prompt)

    report = report_of(with_references(tmp_path, answer))
    (verdict,) = [v for v in report.verdicts if v.point == FAST]
    assert not is_invalid(verdict)
    assert verdict.accuracy is not None and verdict.accuracy.gained == 0


def test_an_answer_of_fixed_length_matches_nothing_exactly(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lengths: natural"):
        with_references(tmp_path, lambda point, prompt: right(prompt), lengths="fixed")

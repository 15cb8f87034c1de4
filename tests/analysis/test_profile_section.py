"""What two profiles say together: one sentence of advice, both side by side, and what to beware of."""

import io
from collections.abc import Mapping
from dataclasses import replace

import pytest
from rich.console import Console

from analysis import report
from analysis.profile_findings import advice, cautions, headline, latest, verify_ratio
from analysis.profile_section import profile_section, profile_tables
from analysis.report_input import ReportInput
from analysis.terminal import profile_lines, verdict_lines
from results.profile import Profile, TraceSummary
from results.records import BASELINE, Cell, Point
from tests.records import CELL

EAGLE = Point("EAGLE3", {"num_steps": 3})


def trace(work: Mapping[str, float], stages: Mapping[str, float], **changes: object) -> TraceSummary:
    """100 steps of 10 ms; shares in percent, the rest is `matrix products` of the target model."""
    work_s = {"matrix products": 100 - sum(work.values()), **work}
    stages_s = {"target": 100 - sum(stages.values()), **stages}
    found = TraceSummary(
        device="gpu",
        steps=100,
        decodes=101,
        prefills=1,
        wall_s=1.0,
        work_s={k: v / 100 for k, v in work_s.items()},
        stages_s={k: v / 100 for k, v in stages_s.items()},
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def profile(
    arm: str,
    work: Mapping[str, float] | None = None,
    stages: Mapping[str, float] | None = None,
    cell: Cell = CELL,
    **changes: object,
) -> Profile:
    found = Profile(
        arm=arm,
        point=BASELINE if arm == "baseline" else EAGLE,
        cell=cell,
        started_at=0.0,
        ended_at=1.0,
        trace=trace(work or {}, stages or {"draft": 5}),
        tokens_per_step=1.0 if arm == "baseline" else 2.5,
        traces=(f"traces/{arm}.trace.json.gz",),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


PLAIN = profile("baseline", stages={"sampling": 1})


@pytest.mark.parametrize(
    ("work", "stages", "said"),
    [
        ({}, {"draft": 35}, "drafting takes 35 % of a step"),
        ({"host gaps": 25}, {"draft": 10, "host gaps": 25}, "the GPU waits for the host in 25 %"),
        ({"all-reduce": 16}, {"draft": 10}, "exchange between GPUs takes 16 %"),
        ({"all-reduce": 40}, {"draft": 35}, "exchange between GPUs takes 40 %"),  # the largest counts
        ({"all-reduce": 14, "host gaps": 19}, {"draft": 29, "host gaps": 19}, "Nothing stands out"),
    ],
)
def test_one_sentence_of_advice(work: dict[str, float], stages: dict[str, float], said: str) -> None:
    pair = latest([PLAIN, profile("winner", work, stages)])
    assert pair is not None
    assert said in advice(pair).replace("\N{NO-BREAK SPACE}", " ")


def test_a_wide_verification_is_seen_against_the_baseline_s_step() -> None:
    wide = profile("winner", stages={"draft": 10})
    wide = replace(wide, trace=replace(wide.trace, steps=50))  # 20 ms a step
    pair = latest([PLAIN, wide])
    assert pair is not None
    assert verify_ratio(pair) == pytest.approx(18 / 9.9)
    assert "a verification takes 1.8 times" in advice(pair)
    alone = latest([wide])
    assert alone is not None and verify_ratio(alone) is None


def test_python_on_a_cpu_is_told_last() -> None:
    winner = profile("winner", {"host gaps": 60}, {"draft": 35})
    on_cpu = replace(winner, trace=replace(winner.trace, device="cpu"))
    pair = latest([on_cpu])
    assert pair is not None and "drafting takes" in advice(pair)
    quiet = replace(on_cpu, trace=replace(on_cpu.trace, stages_s={"target": 1.0}))
    pair = latest([quiet])
    assert pair is not None and "Python between the operations" in advice(pair)


def test_the_headline_names_the_step_and_its_largest_parts() -> None:
    pair = latest([profile("winner", {"host gaps": 30, "attention": 12, "other": 4})])
    assert pair is not None
    said = headline(pair).replace("\N{NO-BREAK SPACE}", " ")
    assert said.startswith(
        "A step of winner takes 10 ms: matrix products 54 %, host gaps 30 %, attention 12 %."
    )


def test_the_latest_of_the_latest_cell_are_shown() -> None:
    elsewhere = Cell("chat", "closed(4)")
    older, newer = profile("winner"), profile("winner", tokens_per_step=3.0)
    pair = latest([PLAIN, older, newer])
    assert pair is not None and pair.shown == [PLAIN, newer]
    pair = latest([PLAIN, older, profile("winner", cell=elsewhere)])
    assert pair is not None and pair.baseline is None
    assert latest([]) is None
    assert profile_section([]) == "" and profile_tables([]) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slowdown": 1.4}, "the profiler made the server 1.40 times slower"),
        ({"trace": trace({}, {})}, "no drafting is marked"),
        ({"trace": trace({}, {"draft": 1}, steps=0)}, "this release marks no steps"),
        ({"trace": trace({}, {"draft": 1}, hidden_s=0.05)}, "hides behind computing is a further 5 %"),
        (
            {"trace": trace({"other": 26}, {"draft": 1}, others_s={"k1": 0.2, "k2": 0.06})},
            "other is 26 %, the largest of it k1 20 %, k2 6 %",
        ),
        ({"all_reduce_shares": (0.1, 0.3)}, "exchange takes 10 % to 30 % of a step over the 2 ranks"),
    ],
)
def test_cautions(changes: dict[str, object], said: str) -> None:
    pair = latest([profile("winner", **changes)])  # type: ignore[arg-type]
    assert pair is not None
    [caution] = cautions(pair)
    assert said in caution.replace("\N{NO-BREAK SPACE}", " ")


def test_nothing_to_beware_of() -> None:
    pair = latest([PLAIN, profile("winner", slowdown=1.05, all_reduce_shares=(0.1, 0.12))])
    assert pair is not None and cautions(pair) == []


def test_both_servers_side_by_side_per_step_and_per_token() -> None:
    stages, work, steps = profile_tables([PLAIN, profile("winner", {"attention": 10}, {"draft": 20})])
    assert stages.columns == (
        *("Stage", "baseline ms", "share", "a token"),
        *("winner ms", "share", "a token"),
    )
    texts = {row[0].text: [e.text.replace("\N{NO-BREAK SPACE}", " ") for e in row[1:]] for row in stages.rows}
    assert texts["draft"] == ["0", "0 %", "0", "2", "20 %", "0.8"]
    assert texts["target model (verify)"] == ["9.9", "99 %", "9.9", "8", "80 %", "3.2"]
    assert [row[0].text for row in work.rows] == ["attention", "matrix products"]
    assert [row[-1].text for row in steps.rows] == [
        "traces/baseline.trace.json.gz",
        "traces/winner.trace.json.gz",
    ]


def test_without_steps_there_are_shares_and_no_times() -> None:
    found = profile("winner", trace=trace({}, {"draft": 1}, steps=0))
    row = profile_tables([found])[0].rows[0]
    assert [entry.text for entry in row[1:]][::2] == ["unknown", "unknown"]


def test_every_form_of_the_report_shows_it() -> None:
    run = ReportInput(name="r", profiles=[PLAIN, profile("winner", {}, {"draft": 35})])
    page, text = report.html(run), report.markdown(run)
    assert '<section id="profile">' in page and 'href="#profile"' in page
    assert "drafting takes" in page
    assert "A step in ms, by stage" in text and "| draft |" in text
    assert '"tokens_per_step": 2.5' in report.as_json(run)
    assert '<section id="profile">' not in report.html(ReportInput(name="r"))


@pytest.mark.parametrize("lines", [profile_lines, lambda p: verdict_lines(ReportInput("r", profiles=p))])
def test_in_a_terminal(lines: object) -> None:
    written = io.StringIO()
    console = Console(file=written, width=100, highlight=False)
    for renderable in lines([PLAIN, profile("winner", {}, {"draft": 35})]):  # type: ignore[operator]
        console.print(renderable)
    shown = written.getvalue()
    assert "drafting takes" in shown and "A step in ms, by kind of work" in shown
    assert "traces/winner.trace.json.gz" in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert [*profile_lines([])] == []

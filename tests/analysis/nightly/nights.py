"""Nights to explain and to show: `python -m tests.analysis.nightly.nights FOLDER` writes them for a look.

Figures are made up; the judgements are as the rule gives them.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.nightly.explain import explain
from analysis.nightly.judgement import Judged, Judgement, State
from results.nights import BASELINE, LENGTH, POSITION, SPEED_UP, Night, NightKind, NightVerdict, series_of
from results.reasons import Reason
from results.records import Failure

DAY_S = 86400.0
TONIGHT_AT = 1796004600.0  # 2026-11-30 02:10 UTC
CHAT, CODE, MATH = "chat @ closed(4)", "code edit @ closed(4)", "math @ closed(4)"
CELLS = (CHAT, CODE, MATH)
SEGMENT = {"gpu": "4x NVIDIA H100", "driver": "580.95.05", "power limit": "700 W", "prompts": "5f2c9a81d0e3"}
VERSIONS = {"engine": "sglang 0.5.22", "image": f"lmsysorg/sglang@sha256:{'ab' * 32}", "kernel": "6.8.0-90"}
EFFECTIVE = {"winner speculative_num_steps": "5", "winner attention_backend": "fa3", "baseline tp_size": "4"}
TOLD = {
    "identical_share": 0.95,
    "winner_tokens_per_s": 484.0,
    "baseline_start_s": 61.0,
    "winner_start_s": 74.0,
    "baseline_memory_bytes": 70.1 * 2**30,
    "winner_memory_bytes": 74.3 * 2**30,
}
USUAL = {
    SPEED_UP: 1.21,
    BASELINE: 400.0,
    LENGTH: 2.71,
    f"{POSITION}1": 0.82,
    f"{POSITION}2": 0.70,
    f"{POSITION}3": 0.61,
    f"{POSITION}4": 0.52,
    **{series_of(SPEED_UP, cell): factor for cell, factor in zip(CELLS, (1.10, 1.34, 1.20), strict=True)},
    **TOLD,
}
LEAST = {SPEED_UP: 0.03, BASELINE: 0.05, LENGTH: 0.03}  # minimum effects of the rule; of a position 0.03


def night(days_ago: float = 0.0, values: Mapping[str, float] | None = None, **changed: Any) -> Night:
    """One night of `qwen3-235b` on `gpu-box-1`; tonight unless it is told when."""
    began_at = TONIGHT_AT - days_ago * DAY_S
    made = Night(
        id=f"night-{days_ago:g}",
        pin="qwen3-235b",
        kind=NightKind.CHECK,
        machine="gpu-box-1",
        began_at=began_at,
        ended_at=began_at + 1987.5,
        segment=SEGMENT,
        versions=VERSIONS,
        effective=EFFECTIVE,
        blocks=5,
        values=USUAL if values is None else values,
    )
    return replace(made, **changed)


def history(nights: int = 20, **changed: Any) -> list[Night]:
    """So many good nights before tonight, their figures a little apart."""
    return [night(ago, _wobbling(ago), **changed) for ago in range(nights, 0, -1)]


def _wobbling(ago: int) -> dict[str, float]:
    return {series: value * (1 + 0.002 * (ago % 5 - 2)) for series, value in USUAL.items()}


def judged(
    series: str, value: float, state: State = State.PASS, *, nights: int = 20, warning: str = ""
) -> Judged:
    """As the rule says it: a failed series was out in the rerun too."""
    if state is State.TOLD:
        return Judged(series, state, value)
    if state is State.INSUFFICIENT:
        return Judged(series, state, value, nights=nights, warning=warning)
    expected = USUAL[series]
    share = series.startswith(POSITION)
    least = LEAST.get(series.partition("/")[0], 0.03)
    lowest = expected - least if share else expected * (1 - least)
    out = state is State.REGRESSION
    return Judged(
        series,
        state,
        value,
        again=value * 1.004 if out else None,
        nights=nights,
        expected=expected,
        lowest=lowest,
        change=value - expected if share else value / expected - 1,
        p_value=0.0004 if out else 0.4,
        breached=out,
        warning=warning,
    )


def judgement(tonight: Night, down: Iterable[str] = (), *extra: Judged) -> Judgement:
    """Every series of a night: those named are a regression, the rest pass or are told, or as in `extra`."""
    down, mine = set(down), {j.series: j for j in extra}
    found = []
    for series, value in tonight.values.items():
        state = State.TOLD if series in TOLD else State.REGRESSION if series in down else State.PASS
        found.append(mine.get(series) or judged(series, value, state))
    return Judgement(tonight, tuple(found))


def moved(**values: float) -> dict[str, float]:
    """The usual values, some replaced: `speed_up=1.08`."""
    return {**USUAL, **values}


def drafter() -> Judgement:
    """Acceptance fell from position 3 on, after an upgrade of the engine."""
    worse = moved(speed_up=1.08, acceptance_length=2.2, acceptance_at_3=0.22, acceptance_at_4=0.10)
    worse |= {series_of(SPEED_UP, CHAT): 0.97, series_of(SPEED_UP, CODE): 1.15}
    versions = {**VERSIONS, "engine": "sglang 0.5.23", "image": f"lmsysorg/sglang@sha256:{'cd' * 32}"}
    tonight = night(values=worse, versions=versions, verdict=NightVerdict.REGRESSION)
    return judgement(tonight, [s for s in worse if worse[s] != USUAL[s]])


def cost() -> Judgement:
    """The winner is slower per step."""
    worse = moved(speed_up=1.10, winner_tokens_per_s=440.0)
    return judgement(night(values=worse, verdict=NightVerdict.REGRESSION), [SPEED_UP])


def machine() -> Judgement:
    """Both servers lost alike."""
    worse = moved(baseline_tokens_per_s=330.0, winner_tokens_per_s=399.0)
    return judgement(night(values=worse, verdict=NightVerdict.REGRESSION), [BASELINE])


def faster_baseline() -> Judgement:
    """The engine got faster without speculation, the winner did not."""
    worse = moved(speed_up=1.08, baseline_tokens_per_s=448.0)
    versions = {**VERSIONS, "engine": "sglang 0.5.23"}
    return judgement(night(values=worse, versions=versions, verdict=NightVerdict.REGRESSION), [SPEED_UP])


def fault(reason: Reason, evidence: str) -> Judgement:
    """The winner cannot be measured: a regression without figures."""
    failure = Failure(reason, evidence)
    return Judgement(night(values={}, verdict=NightVerdict.REGRESSION, failure=failure, blocks=0), ())


def invalid() -> Judgement:
    failure = Failure(Reason.HOST_PRESSURE, "other processes used 3.4 of 8 cores during 41 % of the window")
    return Judgement(night(values={}, verdict=NightVerdict.INVALID, failure=failure, blocks=0), ())


def drifted() -> Judgement:
    other = {**EFFECTIVE, "winner speculative_num_steps": "3", "winner p_min": "0.0"}
    versions = {**VERSIONS, "engine": "sglang 0.5.23"}
    tonight = night(effective=other, versions=versions, verdict=NightVerdict.CONFIG_DRIFT)
    return Judgement(tonight, judgement(tonight).series)


def young(nights: int = 5) -> Judgement:
    """Too few nights, and one series far below their median."""
    tonight = night(values=moved(speed_up=1.06), verdict=NightVerdict.INSUFFICIENT)
    early = [
        judged(s, v, State.INSUFFICIENT, nights=nights)
        for s, v in tonight.values.items()
        if s not in TOLD and s != SPEED_UP
    ]
    warned = judged(
        SPEED_UP, 1.06, State.INSUFFICIENT, nights=nights, warning=f"12 % below the median of {nights} nights"
    )
    return judgement(tonight, (), warned, *early)


def leak() -> Judgement:
    tonight = night(values=moved(speed_up=1.19), verdict=NightVerdict.REGRESSION)
    slow = judged(SPEED_UP, 1.19, State.LEAK, warning="2.4 % below the first 14 nights of the segment")
    return judgement(tonight, (), slow)


def false_alarm() -> Judgement:
    worse = {SPEED_UP: 0.96, BASELINE: 400.0}
    tonight = night(values=worse, kind=NightKind.AA, verdict=NightVerdict.REGRESSION)
    down = replace(judged(SPEED_UP, 0.96, State.REGRESSION), expected=1.0, lowest=0.97, change=-0.04)
    return judgement(tonight, (), down)


def recovered() -> Judgement:
    """Out at first, not in the rerun; and the start took longer."""
    once = replace(judged(SPEED_UP, 1.15), again=1.205, breached=True)
    return judgement(night(values=moved(speed_up=1.15, winner_start_s=131.0)), (), once)


def many(cells: int = 40) -> Judgement:
    """More series than anybody reads."""
    names = {series_of(SPEED_UP, f"class {n} @ closed({n})"): n for n in range(cells)}
    values = dict.fromkeys(names, 1.2)
    found = tuple(
        replace(
            judged(SPEED_UP, 1.05 - n / 1000, State.REGRESSION if n < 12 else State.PASS),
            series=series,
            warning="beyond the usual" if 12 <= n < 20 else "",
        )
        for series, n in names.items()
    )
    return Judgement(night(values=values, verdict=NightVerdict.REGRESSION), found)


SAMPLES = {
    "pass": lambda: judgement(night()),
    "recovered": recovered,
    "drafter": drafter,
    "cost": cost,
    "machine": machine,
    "faster-baseline": faster_baseline,
    "not-speculating": lambda: fault(
        Reason.NOT_SPECULATING, "spec_verify_ct_total stayed 0 over 4096 tokens"
    ),
    "broken-drafter": lambda: fault(Reason.BROKEN_DRAFTER, "accepted 3 of 4096 drafts"),
    "invalid-output": lambda: fault(Reason.INVALID_OUTPUT, "math 3: 'the the the the the the the the'"),
    "invalid": invalid,
    "drifted": drifted,
    "young": young,
    "leak": leak,
    "false-alarm": false_alarm,
    "many": many,
}


def explained(name: str, nights: int = 20) -> Judgement:
    """A sample with its explanation, after so many good nights of its kind."""
    sample = SAMPLES[name]()
    said = explain(history(nights, kind=sample.night.kind), sample)
    return replace(sample, night=replace(sample.night, said=said))


def _write(folder: Path) -> None:
    from rich.console import Console

    from analysis.nightly.annotations import annotations
    from analysis.nightly.junit import junit
    from analysis.nightly.text import as_json, lines, summary

    folder.mkdir(parents=True, exist_ok=True)
    for name in SAMPLES:
        shown = explained(name, nights=5 if name == "young" else 20)
        (folder / f"{name}.md").write_text(summary(shown), "utf-8")
        (folder / f"{name}.xml").write_text(junit(shown), "utf-8")
        (folder / f"{name}.json").write_text(as_json(shown), "utf-8")
        (folder / f"{name}.annotations").write_text(
            "\n".join(annotations(shown, "pinned.yaml")) + "\n", "utf-8"
        )
        for width in (80, 120):
            with (folder / f"{name}.{width}.txt").open("w", encoding="utf-8") as file:
                console = Console(
                    file=file, width=width, force_terminal=True, color_system="standard", highlight=False
                )
                for part in lines(shown):
                    console.print(part)


if __name__ == "__main__":
    _write(Path(sys.argv[1]))

"""What a dry run says of time and of the smallest effect."""

import re
from typing import Any

import pytest

from results.records import Phase
from sweeps.forecast import ON_CPUS, comparison_time, forecast, sensitivity, sweep_time
from sweeps.prepare import Plan, prepare
from sweeps.sweep import Sweep


def plan(context: int = 0, looks: tuple[int, ...] = (4, 8, 12, 20), **content: Any) -> Plan:
    """One class and one trial of 8 prompts, on the stand-in engine."""
    workload = {"classes": ["chat"], "prompts_per_class": 8, "context": [context]}
    confirm = {"looks": [*looks], "finalists": 1}
    asked = {"engine": "fake", "workload": workload, "confirm": confirm, "budget": {"trials": 1}, **content}
    return prepare(Sweep.model_validate(asked))


def test_the_first_and_the_last_look() -> None:
    said = "is seen after 4 Blocks and one of 1.6% after 20 (in 8 of 10 runs)."
    assert sensitivity(plan()).endswith(said)


def test_a_single_look_is_said_once() -> None:
    said = sensitivity(plan(looks=(4,)))
    assert said.endswith("is seen after 4 Blocks (in 8 of 10 runs).")
    assert said.count("Blocks") == 1
    assert len(re.findall(r"\d%", said)) == 2  # the noise, and the effect


@pytest.mark.parametrize("closed", [1, 2])
def test_reading_long_prompts_takes_its_time(closed: int) -> None:
    context = 30_000
    short, long = (plan(n, (4,), load=[{"closed": closed}]) for n in (0, context))
    prompts = sum(len(w.prompts) for w in long.windows[Phase.SEARCH])
    reading_min = (
        4 * 2 * prompts * context / ON_CPUS.prompt_tokens_per_s / 60
    )  # at the one look, of both sides
    before, after = (_minutes(comparison_time([p, p])) for p in (short, long))
    assert after - before == pytest.approx(reading_min, abs=2)
    for said in (comparison_time([long, long]), sweep_time(long)):
        assert "all streams together give 100 tokens/s and prompts are read at 300 tokens/s." in said


def test_streams_share_cores_but_not_gpus() -> None:
    def times(**content: Any) -> list[str]:
        workload = {"classes": ["chat"], "prompts_per_class": 8, "max_tokens": 2000}
        return [sweep_time(plan(load=[{"closed": n}], workload=workload, **content)) for n in (1, 4)]

    one, four = times()
    assert one == four
    one, four = times(launcher="ray", ray={"address": "127.0.0.1:1", "gpus": 1})
    assert _minutes(four) < _minutes(one) / 2
    assert "one stream gives 100 tokens/s and prompts are read at 2000 tokens/s." in four


def _minutes(said: str) -> int:
    found = re.match(r"About (\d+) min", said)
    assert found
    return int(found[1])


# --- a cluster


def on_cluster(**section: Any) -> Plan:
    return plan(launcher="ray", ray={"address": "127.0.0.1:1", **section}, budget={"trials": 6})


def test_a_cluster_that_cannot_be_reached_is_said_and_stops_nothing() -> None:
    found = forecast(on_cluster(gpus=8, resources={"rack": 1}, labels={"zone": "b"}))
    (said,) = (note for note in found.notes if "One server takes" in note)
    assert said.startswith(
        "One server takes 1 CPU, 8 GPU, 1 rack of a node, zone: b. How many fit is not known:"
    )
    assert "at once" not in found.time


def test_without_a_cluster_nothing_is_said_of_one() -> None:
    assert not any("One server takes" in note for note in forecast(plan()).notes)


def test_blocks_at_once_shorten_the_time_and_not_the_gpu_hours() -> None:
    asked = on_cluster(gpus=8)
    alone, six = sweep_time(asked), sweep_time(asked, 6)
    assert "with 6 Blocks at once" in six and "at once" not in alone
    in_all = [int(re.findall(r"(\d+) min", said)[-1]) for said in (alone, six)]
    assert in_all[1] < in_all[0] / 2
    hours = [said.partition("that is ")[2] for said in (alone, six)]
    assert hours[0] and hours[0] == hours[1]
    assert "On 8 GPUs for each Block" in six

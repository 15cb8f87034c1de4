"""Published failures of SGLang deployments, as data: what it says of itself and what must come of it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.acceptance import from_counters, honest_length
from analysis.settings import changed
from launchers.engines.engine import ReadBack, Served
from launchers.engines.prometheus import samples
from launchers.engines.sglang.counts import admitted, counted_by_rank, counted_in_log, counted_in_reply
from launchers.engines.sglang.engine import Sglang
from launchers.engines.sglang.flags import Flags
from launchers.engines.sglang.install import Installation
from launchers.engines.sglang.knobs import canonical, flag_values
from launchers.engines.sglang.readback import Asked, field_of, read_back_from
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE, AcceptanceState, KnobValue, Point, Rewrite, SpecCounters
from tests.launchers.sglang_folders import STUB

SERVED = Served("/models/target", "/models/draft", {}, {})
Info = dict[str, Any]


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Flags:
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    return Installation(sys.executable).flags


def asked(point: Point, **others: KnobValue) -> Asked:
    return Asked({} if point.is_baseline else {field_of(f): v for f, v in flag_values(point).items()}, others)


def info(point: Point, **changes: Any) -> Info:
    """What a server tells that does exactly what it was asked for."""
    speculative = dict(asked(point).speculative)
    algorithm = None if point.is_baseline else point.method
    return {"model_path": "/models/target", "speculative_algorithm": algorithm, **speculative, **changes}


def read(flags: Flags, told: Info, point: Point, log: str = "", **others: KnobValue) -> ReadBack:
    return read_back_from(told, log, point, SERVED, asked(point, **others), flags)


def eagle3(num_steps: int, topk: int, draft_tokens: int, **knobs: KnobValue) -> Point:
    return Point("EAGLE3", {"num_steps": num_steps, "topk": topk, "draft_tokens": draft_tokens, **knobs})


def ignored(flags: Flags, told: Info, point: Point, log: str = "") -> MeasurementInvalid:
    with pytest.raises(MeasurementInvalid) as error:
        read(flags, told, point, log)
    return error.value


# 01: topk = 1 overwrites the number of draft tokens with one warning


def test_a_dead_knob_makes_no_other_point() -> None:
    assert canonical(eagle3(4, 1, 3)).key == canonical(eagle3(4, 1, 5)).key


def test_a_rewritten_number_is_recorded_and_filed_under_what_is_in_effect(flags: Flags) -> None:
    point = eagle3(4, 1, 3)
    back = read(flags, info(point, speculative_num_draft_tokens=5), point)
    assert back.rewrites == (Rewrite("speculative_num_draft_tokens", 3, 5),)
    assert back.effective["draft_tokens"] == 5
    assert back.point == canonical(eagle3(4, 1, 5))


def test_other_rewritten_settings_are_recorded_too(flags: Flags) -> None:
    point = Point("NGRAM", {"draft_tokens": 8, "breadth": 4, "--page-size": 1})
    back = read(flags, info(point, page_size=64), point, page_size=1)
    assert back.rewrites == (Rewrite("page_size", 1, 64),)
    assert back.point is not None
    assert back.point.shared == {"--page-size": 64}


def test_nothing_is_rewritten_if_the_server_does_as_asked_or_says_nothing(flags: Flags) -> None:
    point = eagle3(3, 4, 12)
    assert read(flags, info(point), point).rewrites == ()
    told = {"model_path": "/models/target", "speculative_algorithm": "EAGLE3"}  # an older version tells less
    back = read(flags, told, point)
    assert back.rewrites == ()
    assert "topk" not in back.effective


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("auto", "fa3"),
        (8, 8.0),
        ("8k", 8192),
        ("1 2 4", [1, 2, 4]),
        (True, True),
        ('{"decode":{}}', {"decode": 1}),
    ],
)
def test_the_same_value_in_another_form_is_no_rewrite(flags: Flags, value: KnobValue, got: object) -> None:
    assert (
        read(flags, info(BASELINE, chunked_prefill_size=got), BASELINE, chunked_prefill_size=value).rewrites
        == ()
    )


# 02: speculation alone caps the running requests at 48 and switches mixed chunks off


def test_settings_that_differ_between_the_arms_are_found_by_name(flags: Flags) -> None:
    point = canonical(eagle3(3, 1, 4))
    baseline = info(BASELINE, max_running_requests=2048, enable_mixed_chunk=True)
    candidate = info(point, max_running_requests=48, enable_mixed_chunk=False)
    found = changed(
        read(flags, baseline, BASELINE).effective,
        read(flags, candidate, point).effective,
        ignoring=Sglang().speculative_settings,
    )
    assert set(found) == {"--max-running-requests", "--enable-mixed-chunk"}


def test_ports_seeds_and_figures_of_one_start_are_no_difference(flags: Flags) -> None:
    one = info(BASELINE, port=1, random_seed=7, launch_command="a", startup_time={"load": 1.0})
    other = info(BASELINE, port=2, random_seed=8, launch_command="b", startup_time={"load": 2.0})
    assert read(flags, one, BASELINE).effective == read(flags, other, BASELINE).effective


# 03: adaptive speculation falls back to static values with one warning


ADAPTIVE_LOG = (
    "[2026-01-01 00:00:00] server_args={'speculative_adaptive': True, 'disabled': 1}\n"
    "[2026-01-01 00:00:00] speculative_adaptive disabled: speculative_eagle_topk=4 (only topk=1 is supported)"
    ". Falling back to static speculative params."
)


def test_a_feature_that_is_dropped_is_an_ignored_setting_with_its_reason(flags: Flags) -> None:
    point = eagle3(3, 4, 8, adaptive=True)
    error = ignored(flags, info(point, speculative_adaptive=False), point, ADAPTIVE_LOG)
    assert error.reason is Reason.IGNORED_SETTING
    assert "only topk=1 is supported" in error.evidence


def test_any_dropped_feature_is_told_even_without_a_line_in_the_log(flags: Flags) -> None:
    point = canonical(eagle3(3, 1, 4, use_rejection_sampling=True))
    error = ignored(flags, info(point, speculative_use_rejection_sampling=False), point)
    assert error.reason is Reason.IGNORED_SETTING
    assert "speculative_use_rejection_sampling=True" in error.evidence


# Speculation off, on where it must not be, by another algorithm, or not on every rank


def test_speculation_that_is_not_active_is_found(flags: Flags) -> None:
    point = canonical(eagle3(3, 1, 4))
    error = ignored(flags, info(point, speculative_algorithm=None), point)
    assert error.reason is Reason.NOT_SPECULATING
    error = ignored(flags, info(point, speculative_algorithm="EAGLE"), point)
    assert error.reason is Reason.IGNORED_SETTING
    error = ignored(flags, info(point), BASELINE)
    assert error.reason is Reason.IGNORED_SETTING


@pytest.mark.parametrize(
    ("method", "name"), [("NEXTN", "EAGLE"), ("NEXTN", "FROZEN_KV_MTP"), ("EAGLE", "EAGLE")]
)
def test_an_algorithm_may_bear_its_other_name(flags: Flags, method: str, name: str) -> None:
    point = canonical(Point(method))
    assert read(flags, info(point, speculative_algorithm=name), point).effective["method"] == method


def test_every_rank_must_draft_alike(flags: Flags) -> None:
    point = canonical(eagle3(3, 1, 4))
    told = info(point)
    assert read(flags, {**told, "internal_states": [{}, {}]}, point).speculating
    error = ignored(flags, {**told, "internal_states": [{}, {"speculative_algorithm": None}]}, point)
    assert error.reason is Reason.NOT_SPECULATING
    assert "rank 1" in error.evidence
    error = ignored(flags, {**told, "internal_states": [{}, {"speculative_num_steps": 1}]}, point)
    assert error.reason is Reason.IGNORED_SETTING
    assert "rank 1 has speculative_num_steps=1, rank 0 has 3" in error.evidence


def test_another_model_is_another_server(flags: Flags) -> None:
    error = ignored(flags, info(BASELINE, model_path="/models/other"), BASELINE)
    assert error.reason is Reason.WRONG_SERVER


# 14: the printed rate changed its meaning between versions


OLD = (
    "[2026-01-01 00:00:00 TP0] Decode batch. #running-req: 100, #token: 108, token usage: 0.00, "
    "accept len: 2.17, accept rate: 0.54, cuda graph: True, gen throughput (token/s): 178.86, #queue-req: 0, "
)
NEW = OLD.replace("Decode batch.", "Decode batch,").replace("0.54", "0.39")
SHAPE = (
    "[2026-01-01 00:00:00] server_args={{'decode_log_interval': {}, 'speculative_num_draft_tokens': {}}}\n"
)


@pytest.mark.parametrize("line", [OLD, NEW])
def test_versions_that_print_other_rates_give_the_same_counts(line: str) -> None:
    assert counted_in_log(SHAPE.format(1, 4) + line) == SpecCounters(100, 300, 117)


def test_the_rate_is_derived_by_one_formula_and_the_length_compares_shapes() -> None:
    """0.54 was accept length / draft tokens; the best rate of a tree is not 1."""
    chain = from_counters(SpecCounters(100, 300, 117), 217, method_is_none=False)
    assert chain.rate == pytest.approx((2.17 - 1) / 3)
    assert chain.length == pytest.approx(2.17)
    steps, draft_tokens = 4, 16
    perfect = SpecCounters(100, 100 * (draft_tokens - 1), 100 * steps)
    assert from_counters(perfect, 500, method_is_none=False).rate == pytest.approx(4 / 15)
    assert honest_length(perfect, 500) == 5


def test_the_log_of_older_versions_names_its_arguments_otherwise() -> None:
    older = "server_args=ServerArgs(model_path='m', decode_log_interval=1, speculative_num_draft_tokens=4)\n"
    assert counted_in_log(older + OLD) == SpecCounters(100, 300, 117)


# 15: the cumulative average is absent after a short run, though speculation works


def reply(**stats: float) -> dict[str, float]:
    return {f"sglext.spec_tokens_details.{name}": value for name, value in stats.items()}


def test_the_reply_counts_where_the_server_tells_nothing() -> None:
    counted = counted_in_reply(
        reply(spec_verify_ct=22, spec_num_correct_drafts=42, spec_num_proposed_drafts=66)
    )
    assert counted == SpecCounters(22, 66, 42)
    assert honest_length(counted, 64) == pytest.approx(64 / 22, abs=0.001)


@pytest.mark.parametrize(
    "stats",
    [
        {},
        reply(spec_verify_ct=22),
        reply(spec_verify_ct=22, spec_num_correct_drafts=42),
        reply(spec_verify_ct=0, spec_num_correct_drafts=0, spec_num_proposed_drafts=0),
        reply(spec_renamed_verify_ct=22, spec_num_correct_drafts=42, spec_num_proposed_drafts=66),
    ],
)
def test_a_reply_that_lacks_a_count_is_unknown(stats: dict[str, float]) -> None:
    assert counted_in_reply(stats) is None


@pytest.mark.parametrize(
    "log",
    [
        "",
        NEW,
        SHAPE.format(40, 4) + NEW,  # one line in forty steps
        "server_args={'decode_log_interval': 1, 'speculative_num_draft_tokens': None}\n" + NEW,
    ],
)
def test_a_log_that_does_not_show_every_step_is_unknown(log: str) -> None:
    counters = counted_in_log(log)
    assert counters is None
    assert from_counters(counters, 64, method_is_none=False).state is AcceptanceState.UNKNOWN


def test_steps_without_speculation_count_nothing() -> None:
    plain = NEW.replace("accept len: 2.17, accept rate: 0.39, ", "")
    assert counted_in_log(SHAPE.format(1, 4) + plain) == SpecCounters(0, 0, 0)


# 16: of several ranks the first may have served nothing


def test_ranks_are_weighted_by_what_they_verified() -> None:
    """Three ranks of six served: 2.9 over 100 drafts, 3.67 over 300, 4.64 over 50."""
    lines = [
        NEW.replace("00 TP0", f"00 DP{rank} TP0")
        .replace("len: 2.17", f"len: {length}")
        .replace(": 100,", f": {n},")
        for rank, length, n in ((2, 2.9, 100), (3, 3.67, 300), (5, 4.64, 50))
    ]
    log = SHAPE.format(1, 6) + "\n".join(lines)
    ranks = counted_by_rank(log)
    assert {rank: c.drafts for rank, c in ranks.items()} == {0: 0, 2: 100, 3: 300, 5: 50}
    counted = counted_in_log(log)
    assert counted is not None
    assert 1 + counted.accepted_tokens / counted.drafts == pytest.approx(3.6067, abs=0.0001)


def test_replies_are_weighted_by_what_they_verified() -> None:
    parts = [SpecCounters(100, 500, 190), SpecCounters(300, 1500, 801), SpecCounters(50, 250, 182)]
    total = sum(parts, SpecCounters(0, 0, 0))
    assert 1 + total.accepted_tokens / total.drafts == pytest.approx(3.6067, abs=0.0001)


# Gauges: one per process, one per rank


PAGE = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{model_name="m",pp_rank="0",tp_rank="0"{0}}} 3.0
sglang:num_running_reqs{{model_name="m",pp_rank="0",tp_rank="1"{0}}} 3.0
sglang:num_running_reqs{{model_name="m",pp_rank="0",tp_rank="0"{1}}} 2.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{{model_name="m",pp_rank="0",tp_rank="0"{0}}} 1.0
sglang:num_queue_reqs{{model_name="m",pp_rank="0",tp_rank="0"{1}}} 0.0
# TYPE sglang:num_running_reqs_created gauge
sglang:num_running_reqs_created{{model_name="m",tp_rank="0"{0}}} 1764.5
"""


def test_admission_counts_data_parallel_ranks_once() -> None:
    page = samples(PAGE.format(',dp_rank="0"', ',dp_rank="1"'))
    assert admitted(page) == (5, 1)
    older = samples(
        'sglang:num_running_reqs{model_name="m"} 4.0\nsglang:num_queue_reqs{model_name="m"} 2.0\n'
    )
    assert admitted(older) == (4, 2)


def test_a_renamed_gauge_is_unknown() -> None:
    assert admitted(samples('sglang_num_running_reqs{model_name="m"} 4.0\n')) is None
    assert admitted([]) is None


# 60: a relaxed threshold wins the search


def test_thresholds_below_one_are_lossy_and_never_searched_unasked() -> None:
    engine = Sglang()
    relaxed = eagle3(3, 1, 4, accept_threshold_acc=1e-05)
    assert "accept_threshold_acc=1e-05" in engine.lossy(relaxed, SERVED)
    assert engine.lossy(eagle3(3, 1, 4), SERVED) == ""
    assert canonical(eagle3(3, 1, 4, accept_threshold_acc=1.0)) == canonical(eagle3(3, 1, 4))


def test_a_threshold_that_the_server_relaxed_itself_is_filed_and_lossy(flags: Flags) -> None:
    point = canonical(eagle3(3, 1, 4))
    back = read(flags, info(point, speculative_accept_threshold_acc=1e-05), point)
    assert back.point is not None
    assert back.point.knobs["accept_threshold_acc"] == 1e-05
    assert Sglang().lossy(back.point, SERVED) != ""

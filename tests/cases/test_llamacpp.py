"""Published failures of llama.cpp deployments, as data: what the log says and what must come of it."""

import sys
from pathlib import Path

import pytest

from launchers.engines.engine import Recount, Served, SlotDrafts
from launchers.engines.llamacpp.engine import LlamaCpp
from launchers.engines.llamacpp.log import effective_from_log, recount_from_log, slot_drafts_from_log
from launchers.engines.prometheus import by_position, samples, total
from launchers.launcher import Endpoint
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE, Point, SpecCounters
from tests.launchers.gguf_files import write_gguf
from tests.launchers.http_server import Canned

ENGINE = LlamaCpp()
MAP_K = ENGINE.canonical(Point("ngram-map-k"))

# One slot of three accepts nothing, another has drafted too little to say.
SLOT = "slot print_timing: id  {} | task {} | draft acceptance = {} ({:5d} accepted / {:5d} generated), "
SLOTS = "\n".join(
    SLOT.format(*counts) + "mean len =  1.00"
    for counts in ((0, 1, "0.74800", 561, 750), (1, 2, "0.00000", 0, 630), (2, 3, "0.00000", 0, 3))
)
BUILD_A = "common_speculative_impl_draft_simple: - n_max=16, n_min=0, p_min=0.75\n"
BUILD_B = "common_speculative_impl_draft_simple: - n_max=3, n_min=0, p_min=0.00\n"
RECENT = """\
0.00.675.936 I spec common_specu: adding speculative implementation 'ngram-map-k'
0.00.675.940 I spec common_specu: - size_key=12, size_value=48, key_only=1, min_hits=1
0.00.675.943 I spec common_specu: - gpu_layers=-1, cache_k=f16, cache_v=f16, ctx_tgt=yes, devices=[default]
0.01.413.286 I spec common_specu: statistics  ngram-map-k: #calls(b,g,a) =    1     15     15, #gen drafts = \
     15, #acc drafts =    15, #gen tokens =     44, #acc tokens =    40, #mean acc len = 3.93
"""


# 05: a draft model is loaded, uses memory and never drafts


DRAFT_FLAGS = ("md", "-md", "model-draft", "--model-draft", "spec-draft-model")


@pytest.mark.parametrize("name", [*DRAFT_FLAGS, "spec-draft-n-max", "spec-type", "spec-something-new"])
@pytest.mark.parametrize("server", ["embedded", sys.executable])
def test_a_draft_model_is_no_fixed_argument_of_any_server(tmp_path: Path, name: str, server: str) -> None:
    model = write_gguf(tmp_path / "model.gguf")
    with pytest.raises(UsageError, match="never drafts without --spec-type"):
        LlamaCpp(server).resolve(str(model), None, {name: "8"}, {})


def test_every_command_names_its_type() -> None:
    what = Served("target.gguf", "draft.gguf", {}, {})
    for method in ENGINE.methods(what):
        argv = ENGINE.command(ENGINE.canonical(Point(method)), what, 8000)
        assert argv[argv.index("--spec-type") + 1] == method
        assert ("--model-draft" in argv) is (method == "draft-simple")


# 11: the same command runs differently after an update, because defaults changed


def test_effective_values_come_from_the_start_log() -> None:
    a, b = effective_from_log(BUILD_A), effective_from_log(BUILD_B)
    changed = {name: (a[name], b[name]) for name in a if a[name] != b[name]}
    assert changed == {"n_max": (16, 3), "p_min": (0.75, 0.0)}


def test_effective_values_of_recent_builds() -> None:
    effective = effective_from_log(RECENT)
    wanted = {"method": "ngram-map-k", "size_n": 12, "size_m": 48, "min_hits": 1}
    assert wanted.items() <= effective.items()


def test_no_knob_is_left_to_a_default() -> None:
    what = Served("target.gguf", "draft.gguf", {}, {})
    argv = ENGINE.command(ENGINE.canonical(Point("draft-simple")), what, 8000)
    for knob in ("n-max", "n-min", "p-min", "p-split"):
        assert f"--spec-draft-{knob}" in argv
    for method in ("simple", "map-k", "map-k4v"):
        argv = ENGINE.command(ENGINE.canonical(Point(f"ngram-{method}")), what, 8000)
        for knob in ("size-n", "size-m", "min-hits"):
            assert f"--spec-ngram-{method}-{knob}" in argv


# 12: two counters that disagree

# Acceptance of 1.0 by construction: partially accepted rounds skipped the server's counters.
TWO_COUNTERS = """\
common_context_can_seq_rm: the target context does not support partial sequence removal
draft acceptance rate = 1.00000 (  115 accepted /   115 generated)
statistics draft: #calls(b,g,a) = 1 82 33, #gen drafts = 81, #acc drafts = 33, #gen tokens = 214, \
#acc tokens = 115, dur(b,g,a) = 0.001, 999.634, 0.005 ms
"""


def test_both_counters_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(TWO_COUNTERS)
    found = ENGINE.recount(Canned("http://stub", log, owner=True))
    assert found == Recount(server=SpecCounters(0, 115, 115), drafter=SpecCounters(81, 214, 115))


def test_the_drafter_s_last_line_counts_against_all_of_the_server_s() -> None:
    line = RECENT.splitlines()[-1] + "\n"
    earlier = line.replace("44,", "10,").replace("40,", "9,")
    found = recount_from_log(f"{earlier}{TWO_REQUESTS_OF_SLOT_1}\n{line}")
    assert found == Recount(server=SpecCounters(0, 10, 7), drafter=SpecCounters(15, 44, 40))


def test_a_drafter_that_saw_a_part_is_no_second_count() -> None:
    assert recount_from_log(f"{SLOTS}\n{TWO_COUNTERS}") is None  # 214 of 1498 tokens
    assert recount_from_log(SLOTS) is None


# 20: one slot collapses, and the mean over slots hides it


METHOD = "common_speculative_init: adding speculative implementation '{}'\n"
TWO_REQUESTS_OF_SLOT_1 = "\n".join(
    f"0.05.341.101 I {SLOT.format(*counts)} mean len =  2.67"
    for counts in ((1, 9, "0.83333", 5, 6), (1, 12, "0.50000", 2, 4))
)


def test_counts_are_kept_per_slot(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(METHOD.format("draft-simple") + SLOTS)
    found = ENGINE.drafts_by_slot(Canned("http://stub", log, owner=True))
    assert found == [SlotDrafts(0, 561, 750), SlotDrafts(1, 0, 630), SlotDrafts(2, 0, 3)]


def test_requests_of_one_slot_are_summed() -> None:
    assert slot_drafts_from_log(TWO_REQUESTS_OF_SLOT_1) == [SlotDrafts(1, 7, 10)]
    assert slot_drafts_from_log(RECENT) == []


@pytest.mark.parametrize("start", [METHOD.format("ngram-map-k"), METHOD.format("something-new"), ""])
def test_a_method_without_a_drafter_has_none_to_break(tmp_path: Path, start: str) -> None:
    log = tmp_path / "log"
    log.write_text(start + SLOTS)
    assert ENGINE.drafts_by_slot(Canned("http://stub", log, owner=True)) == ()


def test_a_slot_that_does_not_speculate_fails_the_server(tmp_path: Path) -> None:
    slots: list[dict[str, object]]
    slots = [{"id": 0, "n_ctx": 1024, "speculative": True}, {"id": 1, "n_ctx": 1024, "speculative": False}]
    reason, evidence = read_back(tmp_path, slots=slots)
    assert reason is Reason.NOT_SPECULATING
    assert "slots [1]" in evidence


# 40: a server of before still has the port


def test_a_port_of_another_process_is_the_wrong_server(tmp_path: Path) -> None:
    reason, _ = read_back(tmp_path, owner=False)
    assert reason is Reason.WRONG_SERVER


def test_an_earlier_configuration_is_found_out_even_if_the_owner_seems_right(tmp_path: Path) -> None:
    reason, evidence = read_back(tmp_path, log=RECENT.replace("size_value=48", "size_value=8"))
    assert reason is Reason.IGNORED_SETTING
    assert evidence == "size_m=48 was asked for, 8 is in effect"


def test_another_model_is_the_wrong_server(tmp_path: Path) -> None:
    reason, _ = read_back(tmp_path, model="/somewhere/other.gguf")
    assert reason is Reason.WRONG_SERVER


def test_speculation_on_the_baseline_is_found_out(tmp_path: Path) -> None:
    reason, _ = read_back(tmp_path, point=BASELINE, log="")
    assert reason is Reason.IGNORED_SETTING


def test_fewer_slots_than_asked_for(tmp_path: Path) -> None:
    reason, evidence = read_back(tmp_path, slots=[{"id": 0, "n_ctx": 1024, "speculative": True}])
    assert reason is Reason.IGNORED_SETTING
    assert evidence == "parallel=2 was asked for, 1 is in effect"


def test_what_is_printed_of_the_drafter_makes_no_other_setting_of_the_arm(tmp_path: Path) -> None:
    """A draft model's context has layers and cache types of its own, which the baseline's log lacks."""
    what = Served(tmp_path / "model.gguf", None, {"parallel": 2}, {})
    (tmp_path / "log").write_text(RECENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("launchers.engines.llamacpp.engine.get_json", pages(what).__getitem__)
        found = ENGINE.read_back(Canned("http://stub", tmp_path / "log", owner=True), MAP_K, what)
    both_arms = {"build", "parallel", "context_per_slot"}
    assert set(found.effective) - both_arms <= ENGINE.speculative_settings
    assert MAP_K.knobs.items() <= dict(found.effective).items()


def pages(
    what: Served, slots: list[dict[str, object]] | None = None, model: str | None = None
) -> dict[str, object]:
    """What a healthy server with two slots says, by address."""
    both = [{"id": i, "n_ctx": 1024, "speculative": True} for i in range(2)]
    return {
        "http://stub/props": {"model_path": model or str(what.model), "build_info": "b1"},
        "http://stub/slots": slots if slots is not None else both,
    }


def read_back(
    tmp_path: Path,
    *,
    point: Point = MAP_K,
    slots: list[dict[str, object]] | None = None,
    owner: bool = True,
    log: str = RECENT,
    model: str | None = None,
) -> tuple[Reason, str]:
    """Why the engine refuses this server for ngram-map-k with its defaults and two slots."""
    what = Served(tmp_path / "model.gguf", None, {"parallel": 2}, {})
    (tmp_path / "log").write_text(log)
    endpoint: Endpoint = Canned("http://stub", tmp_path / "log", owner)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(MeasurementInvalid) as caught:
        patch.setattr("launchers.engines.llamacpp.engine.get_json", pages(what, slots, model).__getitem__)
        ENGINE.read_back(endpoint, point, what)
    return caught.value.reason, caught.value.evidence


# 63: counters have lookalikes and labels

METRICS = """\
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total{model="a"} 6
llamacpp:spec_decode_num_drafts_total{model="b"} 4
# TYPE llamacpp:spec_decode_num_drafts_created gauge
llamacpp:spec_decode_num_drafts_created{model="a"} 1.7e9
# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter
llamacpp:spec_decode_num_accepted_tokens_total 29
# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="10"} 1
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 6
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 5
"""


def test_exact_names_summed_over_labels() -> None:
    page = samples(METRICS)
    assert total(page, "llamacpp:spec_decode_num_drafts_total") == 10
    assert total(page, "llamacpp:spec_decode_num_accepted_tokens_total") == 29
    assert total(page, "llamacpp:spec_decode_num_draft_tokens_total") is None
    positions = by_position(page, "llamacpp:spec_decode_num_accepted_tokens_per_pos_total")
    assert positions == (6, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1)

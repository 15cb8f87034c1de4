"""The same draft, other boundaries: layer ids by engine, version, architecture and trainer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.wiring.rules_layers import layer_findings
from analysis.wiring.trainers import hypotheses
from launchers.engines.sglang import layer_ids as sglang_ids
from launchers.engines.vllm.layer_ids import runner_of
from launchers.engines.wiring import Drafting, wiring_of
from results.checkpoint import Checkpoint
from results.wiring import Cause, Finding, Severity
from tests.drafters import changed

DEEPSEEK, KIMI, LLAMA = "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "LlamaForCausalLM"
GPT_OSS = "GptOssForCausalLM"
NESTED = "eagle_aux_hidden_state_layer_ids"
V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}


def target(architecture: str, layers: int) -> Checkpoint:
    config = {"architectures": [architecture], "num_hidden_layers": layers, "hidden_size": 64}
    if architecture == KIMI:
        config = {"architectures": [KIMI], "text_config": {"num_hidden_layers": layers, "hidden_size": 64}}
    return Checkpoint(Path("target"), config, {})


def head(*, nested: list[int] | None = None, top: list[int] | None = None, **more: Any) -> Checkpoint:
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, **more}
    if nested is not None:
        config["eagle_config"] = {NESTED: nested, "use_aux_hidden_state": True}
    if top is not None:
        config[NESTED] = top
    return Checkpoint(Path("head"), config, {})


def drafting(
    head: Checkpoint, architecture: str, layers: int, engine: str, version: str, **variables: str
) -> Drafting:
    method = "EAGLE3" if engine == "sglang" else "eagle3"
    return Drafting(target(architecture, layers), head, engine, version, method, {}, variables)


def boundaries(drafting: Drafting) -> tuple[int, ...]:
    reading = wiring_of(drafting.engine).reading(drafting)
    assert reading is not None
    return reading.boundaries


STORY = head(nested=[2, 30, 58])
NEW_SPECULATORS = head(top=[2, 30, 58], speculators_version="0.6.0")
SPECFORGE = head(nested=[1, 29, 57])
SPECFORGE_CHOSEN = head(nested=[1, 20, 40])
NVIDIA = head(nested=[24, 30, 36])
USUAL = (2, 30, 58)
ROWS = (  # draft, what it was trained on, then what each engine reads
    (STORY, (3, 31, 59), (3, 31, 59), (2, 30, 58), (3, 31, 59), (2, 30, 58), (2, 30, 58)),
    (NEW_SPECULATORS, USUAL, USUAL, USUAL, USUAL, USUAL, USUAL),
    (SPECFORGE, USUAL, USUAL, USUAL, USUAL, (1, 29, 57), USUAL),
    (SPECFORGE_CHOSEN, (2, 21, 41), (2, 21, 41), (2, 21, 41), (2, 21, 41), (1, 20, 40), USUAL),
)


@pytest.mark.parametrize(("draft", "trained", "old", "new", "other", "v1", "v2"), ROWS)
def test_each_engine_reads_its_own_boundaries(
    draft: Checkpoint,
    trained: tuple[int, ...],
    old: object,
    new: object,
    other: object,
    v1: object,
    v2: object,
) -> None:
    for version in ("0.5.8", "0.5.11", "0.5.12", "0.5.12.post1"):
        assert boundaries(drafting(draft, KIMI, 61, "sglang", version)) == old
        assert boundaries(drafting(draft, DEEPSEEK, 61, "sglang", version)) == old
    for version in ("0.5.13", "0.5.17", "0.5.23", ""):
        assert boundaries(drafting(draft, KIMI, 61, "sglang", version)) == new
        assert boundaries(drafting(draft, "Glm4MoeLiteForCausalLM", 61, "sglang", version)) == new
    for version in ("0.5.8", "0.5.23"):
        assert boundaries(drafting(draft, LLAMA, 61, "sglang", version)) == other
    assert boundaries(drafting(draft, LLAMA, 61, "vllm", "0.32.0", **V1)) == v1
    assert boundaries(drafting(draft, LLAMA, 61, "vllm", "0.32.0", **V2)) == v2
    assert hypotheses(draft, target(KIMI, 61))[0].reading.boundaries == trained


def test_a_head_of_gpt_oss_that_names_the_last_boundary() -> None:
    assert hypotheses(NVIDIA, target(GPT_OSS, 36))[0].reading.boundaries == (24, 30, 36)
    assert boundaries(drafting(NVIDIA, GPT_OSS, 36, "sglang", "0.5.17")) == (24, 30, 36)
    assert boundaries(drafting(NVIDIA, GPT_OSS, 36, "sglang", "0.5.16")) == (25, 31)  # the third is lost
    assert boundaries(drafting(NVIDIA, GPT_OSS, 36, "vllm", "0.32.0", **V1)) == (24, 30, 36)
    assert boundaries(drafting(NVIDIA, GPT_OSS, 36, "vllm", "0.32.0", **V2)) == (2, 18, 33)
    lost = wiring_of("sglang").findings(drafting(NVIDIA, GPT_OSS, 36, "sglang", "0.5.16"))
    assert any(f.severity is Severity.FATAL and f.cause is Cause.LAYERS for f in lost)


def test_one_more_layer_on_the_default_of_minimax_m3_vl() -> None:
    plain = head()
    architecture = "MiniMaxM3SparseForConditionalGeneration"
    assert boundaries(drafting(plain, architecture, 60, "sglang", "0.5.23")) == (3, 31, 58)
    assert boundaries(drafting(plain, "MiniMaxM3SparseForCausalLM", 60, "sglang", "0.5.23")) == (2, 30, 57)


def found(drafting: Drafting) -> list[Finding]:
    """Of the layers, as the doctor has them together."""
    wiring = wiring_of(drafting.engine)
    reading = wiring.reading(drafting)
    assert reading is not None
    layers = drafting.target.whole("num_hidden_layers")
    assert layers is not None
    trained = hypotheses(drafting.head, drafting.target)
    pure = layer_findings(reading, trained, layers, lambda wanted: wiring.fix_for(drafting, wanted))
    return [f for f in [*wiring.findings(drafting), *pure] if f.cause in (Cause.LAYERS, Cause.ORDER)]


def grave(findings: list[Finding]) -> list[Finding]:
    return [f for f in findings if f.severity is not Severity.INFO]


def test_the_story_is_right_until_the_engine_changes_its_mind() -> None:
    """Trained on the outputs of layers 2, 30 and 58 by the speculators of then."""
    for version in ("0.5.8", "0.5.12.post1"):
        assert not grave(found(drafting(STORY, KIMI, 61, "sglang", version)))
    for moved in (
        drafting(STORY, KIMI, 61, "sglang", "0.5.13"),
        drafting(STORY, KIMI, 61, "vllm", "0.32.0", **V1),
        drafting(STORY, KIMI, 61, "vllm", "0.32.0", **V2),
    ):
        [finding] = grave(found(moved))
        assert (finding.cause, finding.severity) == (Cause.LAYERS, Severity.LIKELY)
        assert "b2, b30, b58 are read" in finding.seen
        assert "b3, b31, b59" in finding.seen
        assert finding.fix is not None
        mended = replace(moved.head, config=changed(moved.head.config, finding.fix.config))
        assert boundaries(replace(moved, head=mended)) == (3, 31, 59)


def test_the_fix_of_the_story_is_recognised_as_wrong() -> None:
    """Shifted by hand so that the embedding is captured: no trainer does that."""
    shifted = head(nested=[-1, 2, 30])
    before = drafting(shifted, KIMI, 61, "sglang", "0.5.12")
    assert boundaries(before) == (0, 3, 31)
    [finding] = grave(found(before))
    assert (finding.cause, finding.severity) == (Cause.LAYERS, Severity.LIKELY)
    assert "b0 is the embedding" in finding.seen
    after = drafting(shifted, KIMI, 61, "sglang", "0.5.13")
    assert boundaries(after) == (2, 30)
    assert any(f.severity is Severity.FATAL for f in found(after))


def test_a_key_that_is_not_read_is_told() -> None:
    on_sglang = found(drafting(head(top=[4, 20, 40]), KIMI, 61, "sglang", "0.5.23"))
    assert any("where SGLang does not look" in f.seen for f in on_sglang)
    assert [f.severity for f in grave(on_sglang)] == [Severity.LIKELY]
    on_vllm = found(drafting(SPECFORGE_CHOSEN, LLAMA, 61, "vllm", "0.32.0"))
    assert any("where it does not look" in f.seen for f in on_vllm)
    assert [f.severity for f in grave(on_vllm)] == [Severity.LIKELY]


def test_undecided_conventions_are_both_listed() -> None:
    two = hypotheses(head(nested=[5, 20, 40]), target(KIMI, 61))
    assert {h.reading.boundaries for h in two} == {(5, 20, 40), (6, 21, 41)}
    for version, first in (("0.4.0.1", (6, 21, 41)), ("0.5.0", (5, 20, 40))):
        [one] = hypotheses(head(top=[5, 20, 40], speculators_version=version), target(KIMI, 61))
        assert one.reading.boundaries == first
    both = hypotheses(head(top=[3, 20, 40], nested=[2, 19, 39]), target(KIMI, 61))
    assert {h.reading.boundaries for h in both} == {(3, 20, 40)}


@pytest.mark.parametrize(
    ("version", "variables", "architecture", "runner"),
    [
        ("0.24.0", {}, LLAMA, "V1"),
        ("0.24.0", V2, LLAMA, "V2"),
        ("0.25.1", {}, LLAMA, "V2"),
        ("0.28.0", {}, DEEPSEEK, "V1"),
        ("0.29.0", {}, DEEPSEEK, "V2"),
        ("0.32.0", V1, LLAMA, "V1"),
        ("0.32.0+cpu", {}, LLAMA, "V1"),
    ],
)
def test_which_runner_vllm_takes(
    version: str, variables: dict[str, str], architecture: str, runner: str
) -> None:
    asked = drafting(STORY, architecture, 61, "vllm", version, **variables)
    if architecture == DEEPSEEK:
        asked = replace(
            asked, target=replace(asked.target, config={**asked.target.config, "n_routed_experts": 256})
        )
    assert runner_of(asked).name == runner


def test_vllm_drops_what_is_twice_and_what_no_layer_has() -> None:
    assert boundaries(drafting(head(top=[30, 2, 30]), LLAMA, 61, "vllm", "0.32.0")) == (2, 30)
    assert boundaries(drafting(head(top=[-1, 0, 61]), LLAMA, 61, "vllm", "0.32.0")) == (0, 61)
    assert boundaries(drafting(head(top=[0, 2, 61]), DEEPSEEK, 61, "vllm", "0.32.0")) == (2, 61)


ENGINES = st.sampled_from(
    [("sglang", v) for v in ("0.5.8", "0.5.12", "0.5.13", "0.5.16", "0.5.17", "0.5.23")]
    + [("vllm", "0.32.0")]
)


@given(
    st.lists(st.integers(0, 36), min_size=3, max_size=3, unique=True).map(sorted),
    st.sampled_from([LLAMA, KIMI, GPT_OSS]),
    ENGINES,
    st.sampled_from([STORY, NEW_SPECULATORS, SPECFORGE, head()]),
)
def test_a_fix_makes_the_engine_read_what_is_wanted(
    wanted: list[int], architecture: str, engine: tuple[str, str], draft: Checkpoint
) -> None:
    asked = drafting(draft, architecture, 36, *engine)
    fix = wiring_of(engine[0]).fix_for(asked, wanted)
    if fix is None:
        assert {0, 36} & set(wanted)  # only the ends are out of reach
        return
    mended = replace(draft, config=changed(draft.config, fix.config))
    assert boundaries(replace(asked, head=mended)) == tuple(wanted)


def test_what_no_ids_can_do_has_no_fix() -> None:
    for engine, version in (("sglang", "0.5.23"), ("vllm", "0.32.0")):
        asked = drafting(head(), LLAMA, 36, engine, version)
        wiring = wiring_of(engine)
        assert wiring.fix_for(asked, (30, 18, 2)) is None  # another order
        assert wiring.fix_for(asked, (2, 18)) is None  # fewer than the fusion layer takes
        assert wiring.fix_for(asked, (2, 18, 37)) is None  # after the final norm


@given(
    st.lists(st.integers(-3, 80), min_size=1, max_size=5),
    st.sampled_from([LLAMA, KIMI, GPT_OSS]),
    st.sampled_from([(), (0, 5, 8), (0, 5, 13), (0, 5, 17)]),
)
def test_what_is_captured_ascends_and_is_inside(
    ids: list[int], architecture: str, version: tuple[int, ...]
) -> None:
    captured = sglang_ids.captured(ids, architecture, version, 36)
    assert list(captured) == sorted(set(captured))
    assert all(0 <= b <= 36 for b in captured)

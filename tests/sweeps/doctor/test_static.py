"""Every static rule on a folder that breaks it, and on one that does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launchers.engines.checkpoint import read_checkpoint
from launchers.engines.wiring import Drafting
from results.errors import UsageError
from results.records import KnobValue
from results.wiring import Cause, Finding, Fix, Severity, Source
from sweeps.doctor.static import examine
from tests.drafters import (
    DRAFT_VOCABULARY,
    HIDDEN,
    VOCABULARY,
    Pair,
    changed,
    offsets,
    trained,
    untrained,
    used_tokens,
    write_model,
)

PAIR = Path(__file__).parents[2] / "rigs" / "pair"
Spoil = Callable[[Pair], None]


def findings(pair: Pair, folder: Path) -> list[Finding]:
    return list(examine(pair.written(folder)).section.findings)


def grave(found: list[Finding]) -> set[tuple[Cause, Severity]]:
    return {(f.cause, f.severity) for f in found if f.severity is not Severity.INFO}


def spoil(*, config: dict[str, Any] | None = None, **fields: Any) -> Spoil:
    """Keys of the config changed (None removes), and fields of the pair set."""

    def change(pair: Pair) -> None:
        for key, value in (config or {}).items():
            if value is None:
                pair.config.pop(key, None)
            else:
                pair.config[key] = value
        for name, value in fields.items():
            setattr(pair, name, value)

    return change


def _target_config(**changed: Any) -> dict[str, Any]:
    return Pair().target_config | changed


def tensor(name: str, value: Any) -> Spoil:
    """One tensor of the head replaced, or removed."""

    def change(pair: Pair) -> None:
        if value is None:
            del pair.tensors[name]
        else:
            pair.tensors[name] = value

    return change


def both(*spoils: Spoil) -> Spoil:
    def change(pair: Pair) -> None:
        for one in spoils:
            one(pair)

    return change


def on_vllm(pair: Pair) -> None:
    pair.on_vllm()


def renamed(pair: Pair) -> None:
    pair.tensors = {f"draft_model.{name}": value for name, value in pair.tensors.items()}


def prefixed(pair: Pair) -> None:
    pair.tensors = {
        name if name in ("lm_head.weight", "d2t", "t2d") else f"model.{name}": value
        for name, value in pair.tensors.items()
    }


def same_embedding(pair: Pair) -> None:
    pair.tensors["embed_tokens.weight"] = pair.target_tensors["model.embed_tokens.weight"]


def one_repeated() -> Any:
    repeated = offsets()
    repeated[1] = repeated[0] - 1
    return repeated


SPEC = {"speculators_model_type": "eagle3", "speculators_version": "0.6.0"}
VERIFIER = {"verifier": {"name_or_path": "org/Other-8B", "architectures": ["OtherForCausalLM"]}}
FATAL, LIKELY = Severity.FATAL, Severity.LIKELY
BROKEN: dict[str, tuple[Spoil, Cause, Severity]] = {
    "EAGLE for an EAGLE-3 head": (spoil(method="EAGLE"), Cause.ALGORITHM, FATAL),
    "no method": (spoil(method=""), Cause.NOT_ATTACHED, FATAL),
    "the method none": (spoil(method="none"), Cause.NOT_ATTACHED, FATAL),
    "eagle for an EAGLE-3 head on vLLM": (both(on_vllm, spoil(method="eagle")), Cause.ALGORITHM, FATAL),
    "first layer reads one state": (
        tensor("midlayer.self_attn.q_proj.weight", np.ones((HIDDEN, HIDDEN), "f4")),
        Cause.ALGORITHM,
        FATAL,
    ),
    "fusion layer for four": (
        tensor("fc.weight", np.ones((HIDDEN, 4 * HIDDEN), "f4")),
        Cause.FC_WIDTH,
        FATAL,
    ),
    "ids for two": (
        spoil(config={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5]}}),
        Cause.FC_WIDTH,
        FATAL,
    ),
    "an id twice": (
        spoil(config={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 5]}}),
        Cause.LAYERS,
        FATAL,
    ),
    "an id beyond the model": (
        spoil(config={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 40]}}),
        Cause.LAYERS,
        FATAL,
    ),
    "an id twice on vLLM": (
        both(on_vllm, spoil(config={"eagle_aux_hidden_state_layer_ids": [2, 6, 6]})),
        Cause.LAYERS,
        FATAL,
    ),
    "other layers at the top": (
        spoil(config={"eagle_aux_hidden_state_layer_ids": [3, 7, 10], "speculators_version": "0.6.0"}),
        Cause.LAYERS,
        LIKELY,
    ),
    "d2t missing": (tensor("d2t", None), Cause.D2T_MISSING, FATAL),
    "d2t missing on vLLM": (both(on_vllm, tensor("d2t", None)), Cause.D2T_MISSING, FATAL),
    "d2t holds ids": (tensor("d2t", used_tokens()), Cause.D2T_ABSOLUTE, FATAL),
    "d2t holds ids, without t2d": (
        both(tensor("d2t", used_tokens()), tensor("t2d", None)),
        Cause.D2T_ABSOLUTE,
        FATAL,
    ),
    "d2t counts": (
        both(tensor("d2t", np.arange(DRAFT_VOCABULARY)), tensor("t2d", None)),
        Cause.D2T_ABSOLUTE,
        FATAL,
    ),
    "d2t is short": (tensor("d2t", offsets()[:-3]), Cause.D2T, FATAL),
    "d2t is not whole": (tensor("d2t", offsets().astype("f4")), Cause.D2T, FATAL),
    "d2t leads outside": (tensor("d2t", offsets() + 200), Cause.D2T, FATAL),
    "d2t leads to one token twice": (tensor("d2t", one_repeated()), Cause.D2T, FATAL),
    "d2t is zero": (tensor("d2t", np.zeros(DRAFT_VOCABULARY, "i8")), Cause.D2T, FATAL),
    "d2t is zero, without t2d": (
        both(tensor("d2t", np.zeros(DRAFT_VOCABULARY, "i8")), tensor("t2d", None)),
        Cause.D2T,
        LIKELY,
    ),
    "t2d marks others": (
        tensor("t2d", np.roll(np.isin(np.arange(VOCABULARY), used_tokens()), 1)),
        Cause.D2T,
        LIKELY,
    ),
    "t2d marks too many": (tensor("t2d", np.ones(VOCABULARY, "?")), Cause.D2T, LIKELY),
    "a map where vLLM has no place for it": (
        both(on_vllm, spoil(config={"draft_vocab_size": VOCABULARY})),
        Cause.D2T,
        FATAL,
    ),
    "lm_head of other rows": (
        tensor("lm_head.weight", trained(DRAFT_VOCABULARY + 1, HIDDEN, 4)),
        Cause.LM_HEAD,
        FATAL,
    ),
    "no lm_head": (tensor("lm_head.weight", None), Cause.LM_HEAD, FATAL),
    "no lm_head on vLLM": (both(on_vllm, tensor("lm_head.weight", None)), Cause.LM_HEAD, FATAL),
    "lm_head tied": (spoil(config={"tie_word_embeddings": True}), Cause.LM_HEAD, FATAL),
    "lm_head at its start": (
        tensor("lm_head.weight", untrained(DRAFT_VOCABULARY, HIDDEN)),
        Cause.LM_HEAD,
        FATAL,
    ),
    "lm_head at another start": (
        tensor("lm_head.weight", untrained(DRAFT_VOCABULARY, HIDDEN, uniform=True)),
        Cause.LM_HEAD,
        FATAL,
    ),
    "lm_head of zeros": (
        tensor("lm_head.weight", np.zeros((DRAFT_VOCABULARY, HIDDEN), "f4")),
        Cause.LM_HEAD,
        FATAL,
    ),
    "a random embedding that vLLM keeps": (
        both(on_vllm, tensor("embed_tokens.weight", untrained(VOCABULARY, HIDDEN))),
        Cause.EMBEDDING,
        FATAL,
    ),
    "another embedding that SGLang replaces": (
        tensor("embed_tokens.weight", trained(VOCABULARY, HIDDEN, 9)),
        Cause.EMBEDDING,
        LIKELY,
    ),
    "input_norm left out": (
        tensor("input_norm.weight", np.ones(3 * HIDDEN, "f4")),
        Cause.NORM_BEFORE_FC,
        FATAL,
    ),
    "input_norm in an old SGLang": (
        both(
            tensor("input_norm.weight", np.ones(3 * HIDDEN, "f4")),
            spoil(config={"norm_before_fc": True}, version="0.5.16"),
        ),
        Cause.NORM_BEFORE_FC,
        FATAL,
    ),
    "norm_before_fc without weights": (
        both(on_vllm, spoil(config={"norm_before_fc": True})),
        Cause.NORM_BEFORE_FC,
        LIKELY,
    ),
    "fc_norm left out": (tensor("fc_norm.0.weight", np.ones(HIDDEN, "f4")), Cause.FC_NORM, FATAL),
    "norm_before_residual on SGLang": (
        spoil(config={"norm_before_residual": True}),
        Cause.NORM_BEFORE_RESIDUAL,
        LIKELY,
    ),
    "norm_before_residual not said on vLLM": (
        both(on_vllm, spoil(config=SPEC)),
        Cause.NORM_BEFORE_RESIDUAL,
        LIKELY,
    ),
    "norm_output one level too low": (
        spoil(config={"eagle_config": {"norm_output": True}}),
        Cause.FEEDBACK_NORM,
        LIKELY,
    ),
    "another rope_theta": (spoil(config={"rope_theta": 1000000.0}), Cause.ROPE, LIKELY),
    "a scaling of its own": (
        spoil(config={"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
        Cause.ROPE,
        LIKELY,
    ),
    "positions end on SGLang": (
        spoil(config={"max_position_embeddings": 1024}, settings={"context-length": 2048}),
        Cause.CONTEXT,
        FATAL,
    ),
    "a map that is no row": (tensor("d2t", np.zeros((2, 64), "i8")), Cause.D2T, FATAL),
    "a map of nothing": (tensor("d2t", np.zeros(0, "i8")), Cause.D2T, FATAL),
    "an lm_head of no numbers": (
        tensor("lm_head.weight", np.full((DRAFT_VOCABULARY, HIDDEN), np.nan, "f4")),
        Cause.LM_HEAD,
        FATAL,
    ),
    "positions end on an older vLLM": (
        both(spoil(config={"max_position_embeddings": 1024}), lambda pair: pair.on_vllm("0.24.0")),
        Cause.CONTEXT,
        LIKELY,
    ),
    "speculators' format on SGLang": (spoil(config=SPEC), Cause.NAMES, FATAL),
    "no name is known": (renamed, Cause.NAMES, FATAL),
    "one name is not known": (tensor("adapter.weight", np.ones(4, "f4")), Cause.NAMES, LIKELY),
    "one name stops vLLM": (both(on_vllm, tensor("adapter.weight", np.ones(4, "f4"))), Cause.NAMES, FATAL),
    "a prefix stops vLLM": (both(on_vllm, prefixed), Cause.NAMES, FATAL),
    "a tensor is missing": (tensor("midlayer.hidden_norm.weight", None), Cause.NAMES, FATAL),
    "quantisation taken over": (spoil(settings={"quantization": "fp8"}), Cause.QUANTISATION, LIKELY),
    "a vocabulary of another size": (
        spoil(config={"vocab_size": VOCABULARY + 64}),
        Cause.VOCABULARY,
        LIKELY,
    ),
    "another verifier": (spoil(config={"speculators_config": VERIFIER}), Cause.VERIFIER, LIKELY),
    "more drafts than the tree has": (
        spoil(
            settings={
                "speculative-num-steps": 2,
                "speculative-eagle-topk": 2,
                "speculative-num-draft-tokens": 100,
            }
        ),
        Cause.DEFINITION,
        FATAL,
    ),
    "partial sums": (
        spoil(
            version="0.5.12",
            settings={"tp-size": 8, "enable-flashinfer-allreduce-fusion": True},
            target_config={**Pair().target_config, "architectures": ["DeepseekV3ForCausalLM"]},
        ),
        Cause.TENSOR_PARALLEL,
        LIKELY,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found(name: str, tmp_path: Path) -> None:
    change, cause, severity = BROKEN[name]
    pair = Pair()
    change(pair)
    found = findings(pair, tmp_path)
    assert (cause, severity) in grave(found)
    assert all(f.seen and f.rule for f in found)


def mended(pair: Pair, fix: Fix) -> None:
    """As the fix says, but for its edits of tensors."""
    pair.config = changed(pair.config, fix.config)
    pair.method = fix.method or pair.method
    for flag, value in fix.args.items():
        pair.settings.pop(flag, None)
        pair.settings |= {} if value is None else {flag: value}


@pytest.mark.parametrize("name", BROKEN)
def test_a_fix_removes_what_it_is_for(name: str, tmp_path: Path) -> None:
    change, cause, _ = BROKEN[name]
    pair = Pair()
    change(pair)
    pair.settings = dict(pair.settings)
    for finding in findings(pair, tmp_path / "before"):
        if finding.cause is cause and finding.fix and (finding.fix.config or finding.fix.args):
            mended(pair, finding.fix)
            after = findings(pair, tmp_path / "after")
            assert finding.seen not in {f.seen for f in after}
            break


def full_vocabulary(pair: Pair) -> None:
    """As heads without a reduced vocabulary are."""
    pair.config["draft_vocab_size"] = VOCABULARY
    pair.tensors["lm_head.weight"] = trained(VOCABULARY, HIDDEN, 4)
    del pair.tensors["d2t"], pair.tensors["t2d"]


def with_norms(pair: Pair) -> None:
    pair.config |= {"norm_before_fc": True, "fc_norm": True}
    pair.tensors["input_norm.weight"] = np.ones(3 * HIDDEN, "f4")
    pair.tensors |= {f"fc_norm.{i}.weight": np.ones(HIDDEN, "f4") for i in range(3)}


def speculators(pair: Pair) -> None:
    """A head as speculators writes it, for vLLM."""
    pair.on_vllm()
    inner = {
        k: pair.config.pop(k) for k in ("hidden_size", "vocab_size", "rope_theta", "max_position_embeddings")
    }
    pair.config |= {
        **SPEC,
        "transformer_layer_config": inner,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": [2, 6, 9],
    }


HEALTHY: dict[str, Spoil] = {
    "on SGLang": spoil(),
    "on an old SGLang": spoil(version="0.5.8"),
    "on vLLM": on_vllm,
    "on vLLM's older runner": both(on_vllm, spoil(variables={"VLLM_USE_V2_MODEL_RUNNER": "0"})),
    "without t2d": tensor("t2d", None),
    "with the target's embedding": same_embedding,
    "with the target's embedding on vLLM": both(on_vllm, same_embedding),
    "a random embedding that SGLang replaces": tensor("embed_tokens.weight", untrained(VOCABULARY, HIDDEN)),
    "another embedding that vLLM keeps": both(
        on_vllm, tensor("embed_tokens.weight", trained(VOCABULARY, HIDDEN, 9))
    ),
    "a full vocabulary": full_vocabulary,
    "a full vocabulary on vLLM": both(on_vllm, full_vocabulary),
    "norms and their flags": with_norms,
    "norms and their flags on vLLM": both(on_vllm, with_norms),
    "speculators on vLLM": speculators,
    "model. before every name on SGLang": prefixed,
    "no rotations named": spoil(config={"rope_theta": None}),
    "rotations of its own, as SpecForge's for Kimi": spoil(
        config={"rope_theta": 1000000.0, "rope_scaling": None},
        target_config=_target_config(rope_scaling={"type": "yarn", "factor": 64.0}),
    ),
    "fewer positions than the target, no flags known": spoil(config={"max_position_embeddings": 1024}),
    "a head of research code in the format of speculators": both(
        on_vllm, spoil(config={**SPEC, "speculators_version": "0.1.0.dev42", "norm_before_residual": True})
    ),
    "an embedding of one number": tensor("embed_tokens.weight", np.ones((), "f4")),
    "positions stretched": both(
        spoil(config={"max_position_embeddings": 1024}),
        spoil(variables={"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}),
    ),
    "positions stretched by vLLM": both(on_vllm, spoil(config={"max_position_embeddings": 1024})),
    "a context that is short": spoil(
        config={"max_position_embeddings": 1024}, settings={"context-length": 1024}
    ),
    "the drafter left alone": spoil(
        settings={"quantization": "fp8", "speculative-draft-model-quantization": "unquant"}
    ),
    "a chain": spoil(
        settings={
            "speculative-num-steps": 3,
            "speculative-eagle-topk": 1,
            "speculative-num-draft-tokens": 4,
        }
    ),
    "SpecForge": spoil(config={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 8]}}),
    "trained for this": spoil(
        config={
            "speculators_config": {
                "verifier": {"name_or_path": "org/target-FP8", "architectures": ["LlamaForCausalLM"]}
            }
        }
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_drafter_is_left_alone(name: str, tmp_path: Path) -> None:
    pair = Pair()
    HEALTHY[name](pair)
    assert not grave(findings(pair, tmp_path))


REMARKS: dict[str, tuple[Spoil, Cause, str]] = {
    "two servers": (spoil(settings={"disaggregation-mode": "decode"}), Cause.PARALLELISM, "two servers"),
    "stages": (spoil(settings={"pp-size": 2}), Cause.PARALLELISM, "pipeline"),
    "stages of vLLM": (
        both(on_vllm, spoil(settings={"pipeline-parallel-size": 2})),
        Cause.PARALLELISM,
        "pipeline",
    ),
    "data parallel": (spoil(settings={"enable-dp-attention": True}), Cause.PARALLELISM, "data-parallel"),
    "cache": (spoil(settings={"kv-cache-dtype": "fp8_e5m2"}), Cause.PARALLELISM, "FP8"),
    "sequences": (
        both(on_vllm, spoil(settings={"compilation-config.pass_config.enable_sp": True})),
        Cause.PARALLELISM,
        "sequence",
    ),
    "a chain's drafts": (
        spoil(
            settings={
                "speculative-num-steps": 4,
                "speculative-eagle-topk": 1,
                "speculative-num-draft-tokens": 24,
            }
        ),
        Cause.DEFINITION,
        "a chain of 4 steps has 5",
    ),
    "order": (
        spoil(config={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [8, 5, 1]}}),
        Cause.ORDER,
        "another order than b2, b6, b9",
    ),
    "a version of later": (spoil(version="0.7.0"), Cause.LAYERS, "0.7.0 was not read"),
    "a vLLM of before": (lambda pair: pair.on_vllm("0.20.0"), Cause.LAYERS, "0.20.0 was not read"),
    "special tokens": (spoil(config={"bos_token_id": 7}), Cause.VOCABULARY, "bos_token_id is 7"),
    "no base": (spoil(config={"rope_theta": None}), Cause.ROPE, "10000, the default"),
    "a name": (
        spoil(config={"speculators_config": {"verifier": {"name_or_path": "org/Other-8B"}}}),
        Cause.VERIFIER,
        "trained for org/Other-8B",
    ),
}


@pytest.mark.parametrize("name", REMARKS)
def test_a_remark_is_no_alarm(name: str, tmp_path: Path) -> None:
    change, cause, words = REMARKS[name]
    pair = Pair()
    change(pair)
    found = findings(pair, tmp_path)
    assert not grave(found)
    assert any(f.cause is cause and words in f.seen for f in found)


@pytest.mark.parametrize(
    ("engine", "version", "method"),
    [("sglang", "0.5.23", "EAGLE3"), ("sglang", "0.5.8", "EAGLE3"), ("vllm", "0.32.0+cpu", "eagle3")],
)
def test_the_committed_pair_is_healthy(engine: str, version: str, method: str) -> None:
    found = examine(
        Drafting(read_checkpoint(PAIR / "target"), read_checkpoint(PAIR / "head"), engine, version, method)
    )
    assert not grave(list(found.section.findings))
    assert found.served is not None
    assert found.served.boundaries == found.trained[0].reading.boundaries == (2, 4, 5)
    assert found.served.lm_head is Source.OWN
    assert any("b2, b4, b5" in line for line in found.section.seen)


def eagle1(pair: Pair) -> None:
    pair.config["architectures"] = ["LlamaForCausalLMEagle"]
    del pair.config["draft_vocab_size"]
    kept = {k: v for k, v in pair.tensors.items() if "hidden_norm" not in k and k not in ("d2t", "t2d")}
    pair.tensors = {**kept, "fc.weight": np.ones((HIDDEN, 2 * HIDDEN), "f4")}


def ordinary(pair: Pair) -> None:
    pair.config |= {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}
    del pair.config["draft_vocab_size"]
    pair.tensors = {
        "model.embed_tokens.weight": trained(VOCABULARY, HIDDEN, 5),
        **{f"model.layers.{i}.mlp.up_proj.weight": np.ones((8, HIDDEN), "f4") for i in range(2)},
    }


@pytest.mark.parametrize(
    ("change", "engine", "right"),
    [(eagle1, "sglang", "EAGLE"), (ordinary, "sglang", "STANDALONE"), (ordinary, "vllm", "draft_model")],
)
def test_eagle3_for_another_kind_of_drafter(change: Spoil, engine: str, right: str, tmp_path: Path) -> None:
    pair = Pair()
    change(pair)
    if engine == "vllm":
        pair.on_vllm()
    wrong = [f for f in findings(pair, tmp_path / "wrong") if f.cause is Cause.ALGORITHM]
    assert [f.fix.method for f in wrong if f.fix] == [right]
    pair.method = right
    assert not grave(findings(pair, tmp_path / "right"))


def test_a_draft_model_that_llamacpp_never_uses(tmp_path: Path) -> None:
    for name in ("target.gguf", "draft.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    target, draft = (read_checkpoint(tmp_path / name) for name in ("target.gguf", "draft.gguf"))
    flags: dict[str, KnobValue] = {"model-draft": "draft.gguf", "spec-draft-n-max": 8}
    found = examine(Drafting(target, draft, "llamacpp", "b11549", "", flags))
    [finding] = found.section.findings
    assert (finding.cause, finding.severity) == (Cause.NOT_ATTACHED, Severity.FATAL)
    assert any("draft.gguf" in line for line in found.section.seen)
    drafts = examine(Drafting(target, draft, "llamacpp", "b11549", "draft-simple", flags))
    assert not drafts.section.findings


def tokenizer(folder: Path, tokens: dict[str, int]) -> None:
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}, "added_tokens": []}))


@pytest.mark.parametrize(
    ("own", "severity"),
    [
        ({f"t{i}": i for i in range(400)}, None),
        ({f"t{i}": i for i in range(300)}, None),  # a part of it
        ({f"t{i}": i for i in range(398)} | {"t398": 399, "t399": 398}, Severity.LIKELY),
        ({f"u{i}": i for i in range(400)}, Severity.FATAL),
    ],
)
def test_vocabularies_of_one_size_that_are_not_the_same(
    own: dict[str, int], severity: Severity | None, tmp_path: Path
) -> None:
    drafting = Pair().written(tmp_path)
    tokenizer(drafting.target.folder, {f"t{i}": i for i in range(400)})
    tokenizer(drafting.head.folder, own)
    found = [f.severity for f in examine(drafting).section.findings if f.cause is Cause.VOCABULARY]
    assert found == ([] if severity is None else [severity])


def test_weights_that_cannot_be_read_are_said_and_skipped(tmp_path: Path) -> None:
    pair = Pair()
    pair.tensors = {}
    drafting = pair.written(tmp_path)
    (drafting.head.folder / "pytorch_model.bin").write_bytes(b"\0")
    found = examine(
        Drafting(drafting.target, read_checkpoint(drafting.head.folder), "vllm", "0.32.0", "eagle3")
    )
    assert not grave(list(found.section.findings))
    assert any("pytorch_model.bin" in line for line in found.section.seen)


def test_an_engine_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="only sglang, vllm, llamacpp"):
        examine(Drafting(read_checkpoint(PAIR / "target"), read_checkpoint(PAIR / "head"), "other", "1", "x"))


def test_the_gravest_comes_first_and_what_follows_is_said(tmp_path: Path) -> None:
    pair = Pair(method="EAGLE3", settings={"quantization": "fp8", "kv-cache-dtype": "fp8_e5m2"})
    del pair.tensors["d2t"]
    section = examine(pair.written(tmp_path)).section
    order = [list(Severity).index(f.severity) for f in section.findings]
    assert order == sorted(order)
    assert section.follows[0].startswith(Cause.D2T_MISSING.value)
    assert any("--speculative-draft-model-quantization unquant" in line for line in section.follows)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 100) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "architectures",
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "draft_vocab_size",
    "eagle_config",
    "eagle_aux_hidden_state_layer_ids",
    "num_aux_hidden_states",
    "text_config",
    "transformer_layer_config",
    "speculators_config",
    "speculators_model_type",
    "speculators_version",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "max_position_embeddings",
    "quantization_config",
    "norm_before_fc",
    "bos_token_id",
    "target_hidden_size",
)
CONFIG = st.dictionaries(st.sampled_from(KEYS), ODD, max_size=8)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    head=CONFIG,
    target=CONFIG,
    engine=st.sampled_from([("sglang", "0.5.23", "EAGLE3"), ("vllm", "0.32.0", "eagle3")]),
)
def test_no_config_is_too_odd(
    head: dict[str, Any],
    target: dict[str, Any],
    engine: tuple[str, str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    base = Pair()
    pair = Pair(
        config={**base.config, **head},
        target_config={**base.target_config, **target},
        engine=engine[0],
        version=engine[1],
        method=engine[2],
    )
    examine(pair.written(folder))


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        read_checkpoint(write_model(tmp_path / "model", {}, {}).parent)


@pytest.mark.parametrize("version", ["0.5.13", "0.5.23"])
def test_a_layer_that_is_lost_is_one_cause(version: str, tmp_path: Path) -> None:
    """The width follows from it."""
    pair = Pair(version=version)
    pair.config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [-1, 2, 2]}
    assert {f.cause for f in findings(pair, tmp_path) if f.severity is Severity.FATAL} == {Cause.LAYERS}


def test_the_target_is_no_drafter_for_itself(tmp_path: Path) -> None:
    target = Pair().written(tmp_path).target
    found = {
        method: examine(Drafting(target, target, "sglang", "", method)).section
        for method in ("EAGLE3", "EAGLE")
    }
    assert grave(list(found["EAGLE3"].findings)) == {(Cause.ALGORITHM, Severity.FATAL)}
    assert not found["EAGLE"].findings  # its own layers may draft


@pytest.mark.parametrize("layers", [3, 4, 5, 6])
def test_few_layers_are_in_order(layers: int, tmp_path: Path) -> None:
    pair = Pair()
    pair.target_config["num_hidden_layers"] = layers
    found = findings(pair, tmp_path)
    assert not [f for f in found if f.severity is Severity.LIKELY]


def test_what_was_not_read_or_told_is_said(tmp_path: Path) -> None:
    pair = Pair(version="")
    told = examine(pair.written(tmp_path / "a")).section
    assert any("no version is told" in line for line in told.seen)
    assert told.follows == ("nothing is wrong by folders and flags",)
    del pair.target_config["num_hidden_layers"]
    unread = examine(pair.written(tmp_path / "b")).section
    assert unread.follows == ("nothing is wrong in what could be read of folders and flags",)

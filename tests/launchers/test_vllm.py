"""vLLM without a server: rules between knobs, command lines, and what is read of its config."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.engines.engine import Engine, Served, SlotDrafts
from launchers.engines.vllm import schedule
from launchers.engines.vllm.effective import compare_flags, compare_point, flattened, speculative_settings
from launchers.engines.vllm.engine import Vllm
from launchers.engines.vllm.flags import Capabilities, capabilities_from
from launchers.engines.vllm.knobs import METHODS
from launchers.engines.vllm.models import draft_method
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE, KnobValue, Point, Rewrite
from tests.contracts.engine_contract import EngineKnowledge
from tests.launchers.hf_folders import EAGLE3, LLAMA, MEDUSA, MTP, write_folder
from tests.launchers.http_server import Canned, canned

PROBED = json.loads(Path(__file__).with_name("vllm_probe_0_32.json").read_text())
KNOWN = capabilities_from(PROBED)


def engine(**changes: Any) -> Vllm:
    """The engine as if vLLM were installed; some Python, which is never run."""
    return Vllm("python3", replace(KNOWN, **changes))


ENGINE = engine()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "target", LLAMA)


@pytest.fixture
def plain(target: Path) -> Served:
    return Served(target, None, {}, {})


@pytest.fixture
def eagle3(target: Path, tmp_path: Path) -> Served:
    return Served(target, write_folder(tmp_path / "head", EAGLE3), {}, {})


def with_args(served: Served, **args: KnobValue) -> Served:
    return replace(served, args={name.replace("_", "-"): value for name, value in args.items()})


def config_of(command: tuple[str, ...]) -> dict[str, Any]:
    """What a command line says of speculation."""
    found: dict[str, Any] = json.loads(command[command.index("--speculative-config") + 1])
    return found


class TestVllm(EngineKnowledge):
    @pytest.fixture
    def engine(self) -> Engine:
        return engine(has_arctic_inference=True)

    @pytest.fixture
    def served(self, eagle3: Served) -> Served:
        return eagle3


class TestVllmWithMtp(TestVllm):
    @pytest.fixture
    def served(self, tmp_path: Path) -> Served:
        return Served(write_folder(tmp_path / "mtp", MTP), None, {}, {})


# Methods


def test_methods_follow_from_model_and_drafter(plain: Served, eagle3: Served, tmp_path: Path) -> None:
    assert set(ENGINE.methods(plain)) == {"none", "ngram"}
    assert set(ENGINE.methods(eagle3)) == {"none", "ngram", "eagle3"}
    mtp = Served(write_folder(tmp_path / "mtp", MTP), None, {}, {})
    assert set(ENGINE.methods(mtp)) == {"none", "ngram", "mtp"}
    medusa = Served(plain.model, write_folder(tmp_path / "medusa", MEDUSA), {}, {})
    assert set(ENGINE.methods(medusa)) == {"none", "ngram", "medusa"}
    small = Served(plain.model, write_folder(tmp_path / "small", LLAMA), {}, {})
    assert set(ENGINE.methods(small)) == {"none", "ngram", "draft_model"}


def test_suffix_needs_its_package(plain: Served) -> None:
    assert "suffix" in engine(has_arctic_inference=True).methods(plain)
    with pytest.raises(UsageError, match="arctic-inference"):
        ENGINE.check(Point("suffix"), plain)


@pytest.mark.parametrize(
    ("config", "tensors", "name", "method"),
    [
        (EAGLE3, (), "x", "eagle3"),
        ({"speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"]}, (), "x", "eagle3"),
        (LLAMA, ("fc.weight", "midlayer.mlp.up_proj.weight", "d2t"), "x", "eagle3"),
        (LLAMA, ("fc.weight", "layers.0.mlp.up_proj.weight"), "x", "eagle"),
        (LLAMA, (), "EAGLE-LLaMA3-Instruct-8B", "eagle"),
        (LLAMA, (), "EAGLE3-LLaMA3.1-Instruct-8B", "eagle3"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, (), "x", "eagle"),
        ({"medusa_num_heads": 5, "hidden_size": 4096}, (), "x", "medusa"),
        ({"model_type": "qwen3_next_mtp"}, (), "x", "mtp"),
        (LLAMA, ("model.layers.0.mlp.up_proj.weight",), "x", "draft_model"),
        (LLAMA, ("model.layers.0.mlp.up_proj.weight",), "not-eagle", "draft_model"),
        ({"architectures": ["DFlashDraftModel"], "model_type": "qwen3"}, (), "x", None),
        ({"model_type": "mlp_speculator"}, (), "x", None),
    ],
)
def test_a_drafter_tells_its_method(
    config: Mapping[str, Any], tensors: tuple[str, ...], name: str, method: str | None
) -> None:
    assert draft_method(config, tensors, name) == method


def test_a_drafter_of_another_vocabulary_is_refused(target: Path, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", {**LLAMA, "vocab_size": 512})
    with pytest.raises(UsageError, match=r"vocab_size is 512, the model's is 1024"):
        ENGINE.resolve(str(target), str(other), {}, {})


def test_incomplete_folders_are_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="download it first"):
        ENGINE.resolve("nobody/nothing", None, {}, {})
    (target / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="a weights file is missing"):
        ENGINE.resolve(str(target), None, {}, {})


# Rules


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"prompt_lookup_min": 5, "prompt_lookup_max": 2}, "lower min to 2 or raise max to 5"),
        ({"num_speculative_tokens": 0}, "nearest is 1"),
        ({"num_speculative_tokens": 200}, "nearest is 128"),
        ({"num_speculative_tokens": 2.5}, "must be a number like 3"),
        ({"num_speculative_tokens": True}, "must be a number like 3"),
        ({"topk": 4}, "no knob 'topk'"),
        ({"rejection_sample_method": "typical"}, "none of standard"),
        ({"rejection_sample_method": "fly"}, "knows rejection_sample_method standard, synthetic, block"),
        ({"tokens_per_batch_size": "1-4:9"}, "raise num_speculative_tokens to 9 or lower the drafts to 3"),
        ({"tokens_per_batch_size": "2-4:1"}, "must start at 1"),
        ({"tokens_per_batch_size": "1-4:3,6-8:2"}, "must start at 5"),
        ({"tokens_per_batch_size": "1-4:3,3-8:2"}, "must start at 5"),
        ({"tokens_per_batch_size": "1-:3,5-8:2"}, "only the last range may be open"),
        ({"tokens_per_batch_size": "3"}, "write ranges"),
    ],
)
def test_illegal_points_are_refused_with_what_is_legal(
    plain: Served, knobs: dict[str, KnobValue], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        ENGINE.check(Point("ngram", knobs), plain)


def test_mtp_drafts_whole_passes(tmp_path: Path) -> None:
    served = Served(write_folder(tmp_path / "mtp", MTP), None, {}, {})
    for tokens in (1, 2, 4, 6):
        ENGINE.check(Point("mtp", {"num_speculative_tokens": tokens}), served)
    with pytest.raises(UsageError, match="nearest are 2 and 4"):
        ENGINE.check(Point("mtp", {"num_speculative_tokens": 3}), served)
    knob = next(k for k in ENGINE.methods(served)["mtp"] if k.name == "num_speculative_tokens")
    assert knob.grid == (1, 2, 4)
    assert all(
        p.knobs.get("num_speculative_tokens") != 3
        for p in ENGINE.starting_points(served)
        if p.method == "mtp"
    )


def test_medusa_has_a_head_per_token(target: Path, tmp_path: Path) -> None:
    served = Served(target, write_folder(tmp_path / "medusa", MEDUSA), {}, {})
    ENGINE.check(Point("medusa", {"num_speculative_tokens": 4}), served)
    with pytest.raises(UsageError, match="lower it to 4"):
        ENGINE.check(Point("medusa", {"num_speculative_tokens": 5}), served)


def test_a_suffix_tree_is_as_deep_as_its_longest_draft(plain: Served) -> None:
    knobs: dict[str, KnobValue] = {"num_speculative_tokens": 24, "suffix_decoding_max_tree_depth": 8}
    with pytest.raises(UsageError, match="lower num_speculative_tokens to 8 or raise the depth to 24"):
        engine(has_arctic_inference=True).check(Point("suffix", knobs), plain)


def test_a_schedule_is_dead_with_data_parallelism(plain: Served) -> None:
    point = Point("ngram", {"tokens_per_batch_size": "1-4:3,5-:0"})
    ENGINE.check(point, plain)
    with pytest.raises(UsageError, match="ignores tokens_per_batch_size with data parallelism"):
        ENGINE.check(point, with_args(plain, data_parallel_size=2))


@pytest.mark.parametrize("method", ["suffix", "medusa"])
def test_methods_of_fixed_length_have_no_schedule(method: str, plain: Served) -> None:
    with pytest.raises(UsageError, match="no knob 'tokens_per_batch_size'"):
        engine(has_arctic_inference=True).check(Point(method, {"tokens_per_batch_size": "1-:1"}), plain)


def test_async_scheduling_is_not_for_every_method(plain: Served, eagle3: Served) -> None:
    with pytest.raises(UsageError, match="refuses --async-scheduling with ngram"):
        ENGINE.check(Point("ngram"), with_args(plain, async_scheduling=True))
    ENGINE.check(Point("ngram"), with_args(plain, no_async_scheduling=True))
    ENGINE.check(Point("eagle3"), with_args(eagle3, async_scheduling=True))


def test_lora_needs_room_for_every_draft(plain: Served) -> None:
    lora = with_args(plain, enable_lora=True, max_num_seqs=256, max_num_batched_tokens=1024)
    ENGINE.check(Point("ngram", {"num_speculative_tokens": 3}), lora)
    with pytest.raises(UsageError, match="raise it from 1024 to 1280, or lower num_speculative_tokens to 3"):
        ENGINE.check(Point("ngram", {"num_speculative_tokens": 4}), lora)


def test_methods_and_keys_are_those_of_the_installation(plain: Served) -> None:
    with pytest.raises(UsageError, match=r"vLLM 0\.32\.0 has no method ngram"):
        engine(methods=("eagle",)).check(Point("ngram"), plain)
    old = engine(speculative_keys=dict.fromkeys(("method", "num_speculative_tokens", "prompt_lookup_max")))
    with pytest.raises(UsageError, match="has no prompt_lookup_min"):
        old.check(Point("ngram"), plain)


def test_an_unknown_release_is_said(plain: Served) -> None:
    assert ENGINE.version() == "vLLM 0.32.0"
    assert ENGINE.notes(plain) == ()
    for version, rules in (("0.41.2", "0.33"), ("0.9.1", "0.32")):
        (note,) = engine(version=version).notes(plain)
        assert f"those of vLLM {rules}, not of {version}" in note


# Points


def test_optional_knobs_at_their_default_are_left_out() -> None:
    point = ENGINE.canonical(
        Point("eagle3", {"rejection_sample_method": "standard", "tokens_per_batch_size": "", "stranger": 1})
    )
    assert dict(point.knobs) == {"num_speculative_tokens": 3}
    block = ENGINE.canonical(Point("eagle3", {"rejection_sample_method": "block"}))
    assert block.knobs["rejection_sample_method"] == "block"


def test_equal_points_have_equal_keys() -> None:
    for method, knobs, same in (
        ("ngram", {"num_speculative_tokens": 4.0}, {"num_speculative_tokens": 4}),
        ("suffix", {"suffix_decoding_max_spec_factor": 1}, {"suffix_decoding_max_spec_factor": 1.0}),
        ("eagle", {"tokens_per_batch_size": "1-4:3, 5-8:3, 9-16:0"}, {"tokens_per_batch_size": "1-8:3,9-:0"}),
    ):
        assert ENGINE.canonical(Point(method, knobs)).key == ENGINE.canonical(Point(method, same)).key


def test_shared_settings_stay_and_win(plain: Served) -> None:
    point = ENGINE.canonical(Point("none", {"--max-num-seqs": 16}))
    assert point.shared == {"--max-num-seqs": 16}
    command = ENGINE.command(point, with_args(plain, max_num_seqs=8), 8000)
    assert command[command.index("--max-num-seqs") + 1] == "16"
    assert command.count("--max-num-seqs") == 1


METHODS_AND_KNOBS = st.sampled_from(sorted(METHODS)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.fixed_dictionaries(
            {},
            optional={
                knob.name: st.sampled_from(
                    [*knob.grid, *knob.choices, *([knob.low - 1, knob.high] if knob.low is not None else [])]
                    or ["1-4:2,5-:1", "1-:1", "nonsense"]
                )
                for knob in METHODS[name].knobs
            },
        ),
    )
)


@given(METHODS_AND_KNOBS)
def test_canonical_is_stable_and_decides_legality(drawn: tuple[str, dict[str, KnobValue]]) -> None:
    from launchers.engines.vllm.knobs import check

    method, knobs = drawn
    point = Point(method, knobs)
    canonical = ENGINE.canonical(point)
    assert ENGINE.canonical(canonical) == canonical
    verdicts = []
    for candidate in (point, canonical):
        try:
            check(candidate)
            verdicts.append("")
        except UsageError as error:
            verdicts.append(str(error).partition(": ")[2])
    assert verdicts[0] == verdicts[1]


STEPS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=6)


@given(STEPS)
def test_schedules_survive_every_form(widths: list[tuple[int, int]]) -> None:
    """Text, ranges and vLLM's JSON say the same length for every batch size."""
    first = 1
    parts: list[str] = []
    lengths: dict[int, int] = {}
    for width, tokens in widths:
        parts.append(f"{first}-{first + width - 1}:{tokens}")
        lengths |= dict.fromkeys(range(first, first + width), tokens)
        first += width
    steps = schedule.parse(",".join(parts))
    assert schedule.parse(schedule.text_of(steps)) == steps
    ranges = schedule.as_json(steps, first + 100)
    assert schedule.from_json(ranges) == schedule.text_of(steps)
    assert ranges[0][0] == 1
    assert all(a[1] + 1 == b[0] for a, b in pairwise(ranges))
    for batch, tokens in lengths.items():
        assert next(k for low, high, k in ranges if low <= batch <= high) == tokens


# Command lines


def test_arms_differ_in_speculation_only(eagle3: Served) -> None:
    served = with_args(eagle3, max_model_len=1024, enforce_eager=True, tp=2)
    baseline = ENGINE.command(BASELINE, served, 8000)
    candidate = ENGINE.command(Point("eagle3"), served, 8000)
    assert candidate[: len(baseline)] == baseline
    assert candidate[len(baseline) :: 2] == ("--per-request-spec-decode-metrics", "--speculative-config")
    assert not any("spec" in word for word in baseline if word.startswith("--"))


def test_every_key_that_matters_is_passed(eagle3: Served) -> None:
    served = with_args(eagle3, tensor_parallel_size=2)
    config = config_of(ENGINE.command(Point("eagle3", {"num_speculative_tokens": 4}), served, 8000))
    assert config == {
        "method": "eagle3",
        "model": str(eagle3.draft),
        "num_speculative_tokens": 4,
        "draft_tensor_parallel_size": 2,
        "rejection_sample_method": "standard",
        "draft_sample_method": "greedy",
        "disable_padded_drafter_batch": False,
        "disable_eagle_block_drop": False,
        "use_local_argmax_reduction": False,
        "parallel_drafting": False,
    }
    ngram = config_of(ENGINE.command(Point("ngram"), served, 8000))
    assert {
        "prompt_lookup_max": 5,
        "prompt_lookup_min": 5,
        "num_speculative_tokens": 3,
    }.items() <= ngram.items()
    assert "model" not in ngram


def test_keys_an_installation_does_not_have_are_not_passed(eagle3: Served) -> None:
    old = engine(speculative_keys=dict.fromkeys(("method", "model", "num_speculative_tokens")))
    assert set(config_of(old.command(Point("eagle3"), eagle3, 8000))) == {
        "method",
        "model",
        "num_speculative_tokens",
    }


def test_a_schedule_becomes_ranges_of_the_server(plain: Served) -> None:
    point = Point("ngram", {"num_speculative_tokens": 5, "tokens_per_batch_size": "1-4:5,5-:0"})
    config = config_of(ENGINE.command(point, with_args(plain, max_num_seqs=32), 8000))
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 4, 5], [5, 32, 0]]
    assert "tokens_per_batch_size" not in config


def test_users_keys_are_kept(eagle3: Served) -> None:
    args: dict[str, KnobValue] = {
        "speculative-config.parallel_drafting": True,
        "speculative_config.attention-backend": "FLASH_ATTN",
    }
    served = replace(eagle3, args=args)
    ENGINE.resolve(str(eagle3.model), str(eagle3.draft), args, {})
    config = config_of(ENGINE.command(Point("eagle3"), served, 8000))
    assert config["parallel_drafting"] is True
    assert config["attention_backend"] == "FLASH_ATTN"
    assert not any("speculative" in word for word in ENGINE.command(BASELINE, served, 8000))


def test_defaults_are_passed_by_value(plain: Served) -> None:
    command = ENGINE.command(BASELINE, plain, 8000)
    for flag, value in (
        ("--max-num-seqs", "128"),
        ("--max-num-batched-tokens", "2048"),
        ("--kv-cache-dtype", "auto"),
        ("--optimization-level", "2"),
    ):
        assert command[command.index(flag) + 1] == value
    assert {"--enable-prefix-caching", "--enable-chunked-prefill", "--no-enforce-eager"} <= set(command)


def test_batch_sizes_follow_the_device_not_the_release(plain: Served) -> None:
    def sizes(**device: Any) -> tuple[str, str]:
        command = engine(device="cuda", **device).command(BASELINE, plain, 8000)
        names = ("--max-num-batched-tokens", "--max-num-seqs")
        first, second = (command[command.index(name) + 1] for name in names)
        return first, second

    gib = 1 << 30
    assert sizes(device_name="NVIDIA H100", device_memory_bytes=80 * gib) == ("8192", "1024")
    assert sizes(device_name="NVIDIA A100", device_memory_bytes=80 * gib) == ("2048", "256")
    assert sizes(device_name="NVIDIA B200", device_memory_bytes=180 * gib) == ("16384", "1024")
    assert sizes(device_name="", device_memory_bytes=None) == ("2048", "256")


def test_more_sequences_than_batch_tokens_raise_those(plain: Served) -> None:
    command = ENGINE.command(BASELINE, with_args(plain, max_num_seqs=4096), 8000)
    assert command[command.index("--max-num-batched-tokens") + 1] == "4096"


def test_hybrid_models_keep_their_own_prefix_caching(tmp_path: Path) -> None:
    hybrid = {**LLAMA, "layer_types": ["linear_attention", "full_attention"]}
    served = Served(write_folder(tmp_path / "hybrid", hybrid), None, {}, {})
    assert not any("prefix-caching" in word for word in ENGINE.command(BASELINE, served, 8000))


def test_arguments_are_written_as_vllm_reads_them(plain: Served) -> None:
    args: dict[str, KnobValue] = {
        "tp": 2,
        "no-enable-prefix-caching": True,
        "trust_remote_code": True,
        "cudagraph-capture-sizes": "1 2 4 8",
        "served-model-name": "a b",
        "compilation-config.pass_config.enable_sp": True,
    }
    command = ENGINE.command(BASELINE, replace(plain, args=args), 8000)
    text = " ".join(command)
    assert "--tensor-parallel-size 2" in text
    assert "--no-enable-prefix-caching" in command
    assert "--enable-prefix-caching" not in command
    assert "--trust-remote-code" in command
    assert "--cudagraph-capture-sizes 1 2 4 8" in text
    assert f"--served-model-name a b {plain.model}" in text
    assert "--compilation-config.pass_config.enable_sp true" in text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("max-num-seq", "did you mean --max-num-seqs"),
        ("swap-space", "no flag --swap-space"),
        ("speculative-config", "belongs to the space"),
        ("speculative_config.method", "belongs to the space"),
        ("speculative-config.num-speculative-tokens", "belongs to the space"),
        ("speculative-config.topk", "has no topk in its speculative config"),
        ("spec-tokens", "belongs to the space"),
        ("port", "set by the tuner itself"),
        ("per-request-spec-decode-metrics", "set by the tuner itself"),
    ],
)
def test_arguments_that_cannot_be_fixed(plain: Served, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ENGINE.resolve(str(plain.model), None, {name: 3}, {})
    with pytest.raises(UsageError, match=told):
        ENGINE.check(Point("ngram", {f"--{name}": 3}), plain)


def test_a_value_that_is_no_choice_is_refused(plain: Served) -> None:
    with pytest.raises(UsageError, match="--dtype: int8 is none of auto, bfloat16"):
        ENGINE.resolve(str(plain.model), None, {"dtype": "int8"}, {})


def test_an_installation_without_a_distribution_named_vllm(plain: Served) -> None:
    command = engine(is_named_vllm=False).command(BASELINE, plain, 8000)
    assert command[1:4] == ("-m", "vllm.entrypoints.openai.api_server", "--model")
    assert ENGINE.command(BASELINE, plain, 8000)[1:4] == ("-m", "vllm.entrypoints.cli.main", "serve")


def test_the_environment_of_both_arms_is_equal_and_the_users_wins(plain: Served) -> None:
    served = replace(plain, env={"VLLM_SERVER_DEV_MODE": "0"})
    baseline, candidate = (ENGINE.environment(p, served) for p in (BASELINE, Point("ngram")))
    assert baseline == candidate
    assert baseline["VLLM_SERVER_DEV_MODE"] == "0"


def test_no_such_python_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="set `server`"):
        Vllm(str(tmp_path / "python")).version()


# Lossy


def test_synthetic_acceptance_is_lossy_and_complete(plain: Served) -> None:
    point = Point("ngram", {"num_speculative_tokens": 4, "rejection_sample_method": "synthetic"})
    assert "at random" in ENGINE.lossy(point, plain)
    config = config_of(ENGINE.command(point, plain, 8000))
    assert config["synthetic_acceptance_length"] == 3.0
    fixed = replace(plain, args={"speculative-config.synthetic_acceptance_rates": "[0.9, 0.5, 0.2, 0.1]"})
    config = config_of(ENGINE.command(point, fixed, 8000))
    assert config["synthetic_acceptance_rates"] == [0.9, 0.5, 0.2, 0.1]
    assert config.get("synthetic_acceptance_length") is None
    plainly = config_of(ENGINE.command(Point("ngram", {"num_speculative_tokens": 4}), fixed, 8000))
    assert not any(key.startswith("synthetic") for key in plainly)


def test_a_fixed_key_may_be_lossy_too(plain: Served) -> None:
    fixed = replace(plain, args={"speculative-config.rejection_sample_method": "synthetic"})
    assert ENGINE.lossy(Point("ngram"), fixed)
    assert not ENGINE.lossy(BASELINE, fixed)
    for method in ("standard", "block"):
        assert not ENGINE.lossy(Point("ngram", {"rejection_sample_method": method}), plain)


# Read-back

CONFIG: dict[str, Any] = {
    "model_config": {"model": "m", "dtype": "torch.float32", "max_model_len": 1024, "seed": 0},
    "cache_config": {"num_gpu_blocks": 2048, "enable_prefix_caching": True, "_block_size_resolved": True},
    "scheduler_config": {"max_num_batched_tokens": 1024, "max_num_scheduled_tokens": None, "max_num_seqs": 8},
    "compilation_config": {"cudagraph_capture_sizes": [1, 2], "custom_ops": ["all"], "inductor_passes": {}},
    "instance_id": "17",
    "speculative_config": None,
}
SECTION: dict[str, Any] = {
    "method": "ngram",
    "model": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 1,
    "num_speculative_tokens_per_batch_size": None,
    "rejection_sample_method": "standard",
    "parallel_drafting": False,
    "target_model_config": {"model": "m"},
}


def test_settings_go_by_the_names_of_flags() -> None:
    found = flattened(CONFIG, KNOWN.dests)
    assert found["--max-num-seqs"] == 8
    assert found["--cudagraph-capture-sizes"] == "[1, 2]"
    assert found["compilation_config.custom_ops"] == '["all"]'
    assert found["--max-num-scheduled-tokens"] == 1024
    assert not any(word in name for name in found for word in ("instance_id", "blocks", "resolved"))


def test_arms_of_one_server_differ_in_speculative_settings_only() -> None:
    speculating = {
        **CONFIG,
        "instance_id": "18",
        "cache_config": {**CONFIG["cache_config"], "num_gpu_blocks": 1820},
        "scheduler_config": {**CONFIG["scheduler_config"], "max_num_scheduled_tokens": 1024},
        "speculative_config": SECTION,
    }
    a, b = flattened(CONFIG, KNOWN.dests), flattened(speculating, KNOWN.dests)
    differing = {name for name in a.keys() | b.keys() if a.get(name) != b.get(name)}
    assert {"method", "num_speculative_tokens"} <= differing <= speculative_settings(KNOWN.speculative_keys)
    other = flattened({**CONFIG, "scheduler_config": {"max_num_seqs": 4}}, KNOWN.dests)
    assert other["--max-num-seqs"] != a["--max-num-seqs"]
    assert "--max-num-seqs" not in speculative_settings(KNOWN.speculative_keys)


ASKED = ENGINE.canonical(
    Point("ngram", {"num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 1})
)


def test_what_is_in_effect_as_asked_is_no_rewrite() -> None:
    found = compare_point(ASKED, SECTION)
    assert (found.rewrites, found.dropped, found.point) == ((), (), None)


def test_a_changed_knob_is_a_rewrite_with_its_point() -> None:
    found = compare_point(ASKED, {**SECTION, "num_speculative_tokens": 2})
    assert found.rewrites == (Rewrite("num_speculative_tokens", 3, 2),)
    assert found.point == ENGINE.canonical(Point("ngram", {**ASKED.knobs, "num_speculative_tokens": 2}))


def test_another_method_is_a_rewrite() -> None:
    found = compare_point(ENGINE.canonical(Point("eagle")), {"method": "eagle3", "num_speculative_tokens": 3})
    assert found.rewrites == (Rewrite("method", "eagle", "eagle3"),)
    assert found.point == ENGINE.canonical(Point("eagle3"))


def test_a_knob_without_effect_is_dropped() -> None:
    asked = ENGINE.canonical(Point("ngram", {**ASKED.knobs, "tokens_per_batch_size": "1-4:3,5-:0"}))
    assert compare_point(asked, SECTION).dropped == ("tokens_per_batch_size=1-4:3,5-:0",)
    effective = {**SECTION, "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 128, 0]]}
    assert compare_point(asked, effective).dropped == ()


def test_what_is_not_printed_is_unknown() -> None:
    assert compare_point(ASKED, {"method": "ngram"}).rewrites == ()


def test_changed_flags_are_told() -> None:
    asked: dict[str, KnobValue] = {
        "--max-num-seqs": "8",
        "--max-num-batched-tokens": 4096,
        "--enable-prefix-caching": False,
        "--dtype": "auto",
        "--max-model-len": -1,
        "--allowed-origins": 3,
    }
    assert set(compare_flags(asked, CONFIG, KNOWN.dests)) == {
        Rewrite("--max-num-batched-tokens", 4096, 1024),
        Rewrite("--enable-prefix-caching", False, True),
    }


def test_a_changed_shared_setting_belongs_to_the_point_in_effect() -> None:
    asked = ENGINE.canonical(Point("none", {"--max-num-seqs": 16}))
    shared = compare_flags(asked.shared, CONFIG, KNOWN.dests)
    found = compare_point(asked, None, shared)
    assert found.rewrites == (Rewrite("--max-num-seqs", 16, 8),)
    assert found.point == Point("none", {"--max-num-seqs": 8})
    gone = compare_point(asked, None, [Rewrite("--max-num-seqs", 16, None)])
    assert gone.dropped == ("--max-num-seqs=16",)


# What a server answers

V1_RUNNER = (
    "WARNING 11-30 03:14:28 [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead."
)
START_LINE = (
    "INFO 1-1 1:1:1 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: speculative_config={}, x"
)


@contextmanager
def serving(
    served: Served, tmp_path: Path, config: object = None, log: str = "", more: Mapping[str, object] = {}
) -> Iterator[Canned]:
    answers = {
        "/v1/models": {"data": [{"id": "m", "root": str(served.model), "max_model_len": 1024}]},
        "/server_info": {"vllm_config": config} if config is not None else None,
        **{f"/{name}": answer for name, answer in more.items()},
    }
    with canned(answers, tmp_path / "log", log) as endpoint:
        yield endpoint


def test_reads_back_what_is_in_effect(plain: Served, tmp_path: Path) -> None:
    with serving(plain, tmp_path, {**CONFIG, "speculative_config": SECTION}) as endpoint:
        back = ENGINE.read_back(endpoint, ASKED, plain)
        assert (back.model, back.speculating, back.rewrites, back.point) == (str(plain.model), True, (), None)
        assert ASKED.knobs.items() <= dict(back.effective).items()
        longer = ENGINE.canonical(Point("ngram", {**ASKED.knobs, "num_speculative_tokens": 6}))
        assert ENGINE.read_back(endpoint, longer, plain).point == ASKED
        changed = ENGINE.read_back(endpoint, ASKED, with_args(plain, max_num_seqs=64))
        assert changed.rewrites == (Rewrite("--max-num-seqs", 64, 8),)
        assert changed.point is None


def reason_of(endpoint: Canned, point: Point, served: Served) -> Reason:
    with pytest.raises(MeasurementInvalid) as caught:
        ENGINE.read_back(endpoint, point, served)
    return caught.value.reason


def test_speculation_that_is_not_as_asked_is_found_out(plain: Served, tmp_path: Path) -> None:
    with serving(plain, tmp_path, CONFIG) as endpoint:
        assert ENGINE.read_back(endpoint, BASELINE, plain).speculating is False
        assert reason_of(endpoint, ASKED, plain) is Reason.NOT_SPECULATING
    with serving(plain, tmp_path, {**CONFIG, "speculative_config": SECTION}, V1_RUNNER) as endpoint:
        assert reason_of(endpoint, BASELINE, plain) is Reason.IGNORED_SETTING
        block = ENGINE.canonical(Point("ngram", {**ASKED.knobs, "rejection_sample_method": "block"}))
        assert reason_of(endpoint, block, plain) is Reason.IGNORED_SETTING
        schedule = ENGINE.canonical(Point("ngram", {**ASKED.knobs, "tokens_per_batch_size": "1-4:3,5-:0"}))
        assert reason_of(endpoint, schedule, plain) is Reason.IGNORED_SETTING


def test_another_server_is_found_out(plain: Served, tmp_path: Path) -> None:
    other = replace(plain, model=tmp_path / "other")
    with serving(plain, tmp_path, CONFIG) as endpoint:
        write_folder(tmp_path / "other", LLAMA)
        assert reason_of(endpoint, BASELINE, other) is Reason.WRONG_SERVER
    with canned({}, tmp_path / "log", owner=False) as endpoint:
        assert reason_of(endpoint, BASELINE, plain) is Reason.WRONG_SERVER


def test_without_development_mode_the_log_tells_the_method(plain: Served, tmp_path: Path) -> None:
    on = START_LINE.format("SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)")
    with serving(plain, tmp_path, None, on) as endpoint:
        back = ENGINE.read_back(endpoint, ASKED, plain)
        assert (back.speculating, back.rewrites) == (True, ())
        assert reason_of(endpoint, BASELINE, plain) is Reason.IGNORED_SETTING
        assert not ENGINE.reset_cache(endpoint)
    with serving(plain, tmp_path, None, START_LINE.format("None")) as endpoint:
        assert ENGINE.read_back(endpoint, BASELINE, plain).speculating is False
        assert reason_of(endpoint, ASKED, plain) is Reason.NOT_SPECULATING
    with serving(plain, tmp_path) as endpoint:
        assert ENGINE.read_back(endpoint, ASKED, plain).speculating is None


def test_load_and_limits_are_read(plain: Served, tmp_path: Path) -> None:
    page = (
        'vllm:num_requests_running{engine="0"} 2.0\n'
        'vllm:num_requests_running{engine="1"} 1.0\n'
        'vllm:num_requests_waiting{engine="0"} 3.0\n'
        'vllm:num_requests_waiting{engine="1"} 0.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0\n'
    )
    more: dict[str, object] = {
        "metrics": page,
        "tokenize": {"count": 9},
        "reset_prefix_cache": {"success": True},
    }
    with serving(plain, tmp_path, CONFIG, more=more) as endpoint:
        assert ENGINE.admission(endpoint) == (3, 3)
        assert ENGINE.counters(endpoint) is None
        assert ENGINE.context_tokens(endpoint) == 1024
        assert ENGINE.count_tokens(endpoint, {"prompt": "x"}) == 9
        assert ENGINE.reset_cache(endpoint)
    with serving(plain, tmp_path, CONFIG, more={"reset_prefix_cache": {"success": False}}) as endpoint:
        assert not ENGINE.reset_cache(endpoint)
        assert ENGINE.admission(endpoint) is None


def test_drafts_per_engine_where_a_network_drafts(plain: Served, tmp_path: Path) -> None:
    page = "".join(
        f'vllm:spec_decode_num_{what}_total{{engine="{engine}"}} {count}\n'
        for engine, accepted in ((0, 21.0), (1, 0.0))
        for what, count in (("drafts", 15.0), ("draft_tokens", 45.0), ("accepted_tokens", accepted))
    )
    for method, slots in (("eagle3", [SlotDrafts(0, 21, 45), SlotDrafts(1, 0, 45)]), ("ngram", [])):
        line = START_LINE.format(f"SpeculativeConfig(method='{method}', model='h', num_spec_tokens=3)")
        with serving(plain, tmp_path, CONFIG, line, {"metrics": page}) as endpoint:
            assert list(ENGINE.drafts_by_slot(endpoint)) == slots


def test_capabilities_are_what_the_probe_printed() -> None:
    assert isinstance(KNOWN, Capabilities)
    flag = KNOWN.flag("enable_prefix_caching")
    assert flag is not None
    assert flag.negatable
    assert KNOWN.flag("tp") == KNOWN.flag("--tensor-parallel-size")
    assert KNOWN.flag("device-memory-utilization") == KNOWN.flag("gpu-memory-utilization")
    assert KNOWN.flag("nothing") is None

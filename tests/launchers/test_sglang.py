"""SGLang without a server: rules between knobs, command lines, parity, read-back, and what it is asked."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.engines.engine import Engine, Served
from launchers.engines.sglang.counts import counted_in_reply
from launchers.engines.sglang.engine import Sglang
from launchers.engines.sglang.install import Installation
from launchers.engines.sglang.install import resolved as resolved_by
from launchers.engines.sglang.knobs import METHODS, canonical, flag_values, rules_note
from launchers.engines.sglang.model import methods_of_draft
from launchers.engines.sglang.rules import Settings, check, tree_size
from results.errors import UsageError
from results.records import BASELINE, KnobValue, Point, SpecCounters
from tests.contracts.engine_contract import EngineKnowledge
from tests.launchers.sglang_folders import EAGLE3, LLAMA, STUB, model_folder


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The stand-in is the SGLang of this interpreter, and nothing is remembered between tests."""
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def engine() -> Sglang:
    return Sglang(sys.executable)


def resolved(
    engine: Sglang,
    folder: Path,
    args: Mapping[str, KnobValue] | None = None,
    env: Mapping[str, str] | None = None,
) -> Served:
    model, draft = model_folder(folder / "model"), model_folder(folder / "draft", EAGLE3)
    return engine.resolve(str(model), str(draft), args or {}, env or {})


class TestKnowledge(EngineKnowledge):
    @pytest.fixture
    def engine(self) -> Engine:
        return Sglang(sys.executable)

    @pytest.fixture
    def served(self, engine: Engine, tmp_path: Path) -> Served:
        model, draft = model_folder(tmp_path / "model"), model_folder(tmp_path / "draft", EAGLE3)
        return engine.resolve(str(model), str(draft), {}, {})


# Rules


def told(point: Point, settings: Settings | None = None) -> str:
    try:
        check(point, settings or {})
    except UsageError as error:
        return str(error)
    return ""


def eagle3(**knobs: KnobValue) -> Point:
    return Point("EAGLE3", knobs)


@pytest.mark.parametrize(
    ("point", "settings", "words"),
    [
        (eagle3(num_steps=2, topk=2, draft_tokens=100), {}, ["holds (7)", "nearest 2/2/7", "2/10/100"]),
        (eagle3(num_steps=5, topk=4, draft_tokens=4), {}, ["needs 6", "nearest 5/4/6, 3/4/4"]),
        (eagle3(num_steps=0), {}, ["nearest is 1"]),
        (eagle3(topk=0), {}, ["nearest is 1"]),
        (eagle3(topk=2.5), {}, ["whole number"]),
        (eagle3(topk=True), {}, ["whole number"]),
        (eagle3(num_steps="3"), {}, ["whole number"]),
        (eagle3(accept_threshold_acc=1.5), {}, ["nearest is 1.0"]),
        (eagle3(adaptive=True), {}, ["topk=1", "silently"]),
        (eagle3(adaptive=True, topk=1, num_steps=2), {}, ["[0, 1, 3, 5, 7]", "nearest is 1"]),
        (eagle3(adaptive=True, topk=1), {"attn_dp_size": 2}, ["data-parallel"]),
        (eagle3(adaptive=True, topk=1), {"enable_dp_attention": True, "dp_size": 2}, ["data-parallel"]),
        (eagle3(adaptive=True, topk=1), {"enable_pdmux": True}, ["--enable-pdmux"]),
        (eagle3(adaptive=True, topk=1, adaptive_config="/no/such/file"), {}, ["No such file"]),
        (eagle3(use_rejection_sampling=True), {}, ["topk=1"]),
        (eagle3(use_rejection_sampling=True, topk=1, accept_threshold_single=0.5), {}, ["thresholds"]),
        (eagle3(use_block_verification=True, topk=1), {"device": "cpu"}, ["needs a GPU"]),
        (eagle3(), {"attention_backend": "torch_native"}, ["torch_native does not speculate"]),
        (eagle3(), {"attention_backend": "fa3", "decode_attention_backend": "flex_attention"}, ["flex"]),
        (eagle3(), {"attention_backend": "trtllm_mha"}, ["trtllm_mha needs topk=1"]),
        (
            eagle3(),
            {"attention_backend": "fa4", "page_size": 16},
            ["flashinfer or fa3 or triton", "--page-size 1"],
        ),
        (Point("NGRAM"), {"attention_backend": "fa3", "page_size": 16}, ["needs flashinfer"]),
        (Point("NGRAM"), {"device": "npu"}, ["not on npu"]),
        (Point("NGRAM"), {"attn_dp_size": 4}, ["data-parallel"]),
        (Point("STANDALONE"), {"attn_dp_size": 4}, ["data-parallel"]),
        (Point("NGRAM", {"breadth": 2, "min_breadth": 4}), {}, ["lower min_breadth to 2"]),
        (Point("NGRAM", {"match_type": "LRU"}), {}, ["none of BFS, PROB"]),
        (Point("NGRAM", {"num_steps": 3}), {}, ["no knob 'num_steps'"]),
    ],
)
def test_illegal_points_are_refused_with_the_rule_and_the_nearest_legal(
    point: Point, settings: Settings, words: list[str]
) -> None:
    text = told(point, settings)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("point", "settings"),
    [
        (eagle3(num_steps=2, topk=2, draft_tokens=7), {}),
        (eagle3(num_steps=3, topk=4, draft_tokens=12), {"attention_backend": "fa3", "page_size": 16}),
        (eagle3(num_steps=3, topk=1), {"attention_backend": "trtllm_mha", "page_size": 64}),
        (eagle3(num_steps=3, topk=1, adaptive=True), {"dp_size": 8}),
        (eagle3(num_steps=3, topk=1, use_block_verification=True), {"device": "cuda"}),
        (Point("NGRAM", {"breadth": 1}), {"attention_backend": "fa3", "page_size": 16}),
        (BASELINE, {"attention_backend": "torch_native"}),
    ],
)
def test_legal_points_are_let_through(point: Point, settings: Settings) -> None:
    assert told(point, settings) == ""


def test_the_steps_of_an_adaptive_file_decide(tmp_path: Path) -> None:
    config = tmp_path / "steps.json"
    config.write_text(json.dumps({"1": {"candidate_steps": [2, 4]}, "32": {"candidate_steps": [0]}}))
    chain: dict[str, KnobValue] = {"topk": 1, "adaptive": True, "adaptive_config": str(config)}
    assert told(eagle3(num_steps=4, **chain)) == ""
    assert "[0, 2, 4]" in told(eagle3(num_steps=3, **chain))
    config.write_text(json.dumps({"candidate_steps": [1, 3]}))  # the flat form of older versions
    assert "batch sizes as keys" in told(eagle3(num_steps=3, **chain))


def small(method: str) -> st.SearchStrategy[dict[str, KnobValue]]:
    values: dict[str, st.SearchStrategy[KnobValue]] = {}
    for knob in METHODS[method].knobs:
        if knob.choices:
            values[knob.name] = st.sampled_from(knob.choices)
        elif isinstance(knob.default, float):
            values[knob.name] = st.sampled_from([0.0, 0.5, 1.0, 1])
        elif isinstance(knob.default, int):
            values[knob.name] = st.integers(0, 9) | st.sampled_from([2.0, 4.0, 16])
    return st.fixed_dictionaries({}, optional=values)


points = st.sampled_from([m for m in METHODS if m != "none"]).flatmap(
    lambda method: small(method).map(lambda knobs: Point(method, knobs))
)


@given(points)
def test_canonical_is_stable_and_as_legal_as_what_was_asked(point: Point) -> None:
    once = canonical(point)
    assert canonical(once) == once
    assert canonical(once).key == once.key
    if told(point) == "":
        assert told(once) == ""


@given(points, points)
def test_points_are_equal_exactly_if_the_engine_would_do_the_same(one: Point, other: Point) -> None:
    if told(one) or told(other):
        return
    same_words = [(p.method, flag_values(canonical(p))) for p in (one, other)]
    assert (canonical(one).key == canonical(other).key) is (same_words[0] == same_words[1])


@given(st.integers(1, 6), st.integers(1, 6))
def test_a_tree_holds_what_its_steps_score(num_steps: int, topk: int) -> None:
    """Every step scores `topk` children of each of the `topk` branches; the first only those of the root."""
    scored = sum(topk if step == 0 else topk * topk for step in range(num_steps))
    assert tree_size(num_steps, topk) == scored + 1


def test_rules_of_another_version_are_said_to_be_so() -> None:
    assert rules_note("0.5.23") == ""
    assert rules_note("0.5.23.post1+cu129") == ""
    assert "not of 0.6.0" in rules_note("0.6.0")


# Lossy


def test_lossy_settings_are_named(engine: Sglang, tmp_path: Path) -> None:
    served = resolved(engine, tmp_path)
    assert engine.lossy(eagle3(), served) == ""
    assert "accept_threshold_acc=1e-05" in engine.lossy(eagle3(accept_threshold_acc=1e-5), served)
    simulated = Served(served.model, served.draft, {}, {"SGLANG_SIMULATE_ACC_LEN": "3.0"})
    assert "SGLANG_SIMULATE_ACC_LEN" in engine.lossy(eagle3(), simulated)
    assert engine.lossy(BASELINE, simulated) == ""


# Models and drafts


@pytest.mark.parametrize(
    ("config", "fits"),
    [
        (EAGLE3, ("EAGLE3",)),
        ({"architectures": ["LlamaForCausalLMEagle"]}, ("EAGLE",)),
        ({"architectures": ["DeepseekV3ForCausalLMNextN"]}, ("NEXTN",)),
        ({"architectures": ["Gemma4AssistantForCausalLM"]}, ("NEXTN",)),
        (LLAMA, ("STANDALONE",)),
        ({**LLAMA, "draft_vocab_size": 32000}, ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")),
        ({}, ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")),
    ],
)
def test_a_draft_opens_the_methods_it_was_made_for(config: dict[str, object], fits: tuple[str, ...]) -> None:
    assert methods_of_draft(config) == fits


def test_methods_follow_model_and_draft(engine: Sglang, tmp_path: Path) -> None:
    plain = model_folder(tmp_path / "plain")
    mtp = model_folder(tmp_path / "mtp", {**LLAMA, "num_nextn_predict_layers": 1})
    assert list(engine.methods(engine.resolve(str(plain), None, {}, {}))) == ["none", "NGRAM"]
    assert list(engine.methods(engine.resolve(str(mtp), None, {}, {}))) == ["none", "NEXTN", "NGRAM"]
    served = resolved(engine, tmp_path)
    assert list(engine.methods(served)) == ["none", "EAGLE3", "NGRAM"]
    with pytest.raises(UsageError, match="EAGLE cannot draft with draft: it was made for EAGLE3"):
        engine.check(Point("EAGLE"), served)
    with pytest.raises(UsageError, match="needs a draft model"):
        engine.check(Point("STANDALONE"), engine.resolve(str(plain), None, {}, {}))


@pytest.mark.parametrize("name", ["/no/such/model", "./here", "~/there", "one", "a/b/c"])
def test_a_missing_model_is_told_before_anything_starts(engine: Sglang, name: str) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        engine.resolve(name, None, {}, {})


def test_a_folder_must_be_a_model(engine: Sglang, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        engine.resolve(str(tmp_path), None, {}, {})
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"config\.json cannot be read"):
        engine.resolve(str(tmp_path), None, {}, {})
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="a weights file is missing"):
        engine.resolve(str(tmp_path), None, {}, {})


def test_identity_is_of_the_content(engine: Sglang, tmp_path: Path) -> None:
    here, there = (model_folder(tmp_path / name) for name in ("here", "there"))
    ids = [engine.identity(engine.resolve(str(folder), None, {}, {})) for folder in (here, there)]
    assert ids[0] == ids[1]
    (there / "model.safetensors").write_bytes(b"others!")
    assert engine.identity(engine.resolve(str(there), None, {}, {})) != ids[0]


# Arguments


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"speculative-num-steps": 3}, "belongs to the space"),
        ({"speculative-algorithm": "EAGLE"}, "belongs to the space"),
        ({"port": 1}, "set by the tuner itself"),
        ({"model": "x"}, "--model-path is set by the tuner"),
        ({"mem-fration-static": 0.8}, "did you mean --mem-fraction-static"),
        ({"cuda-graph-max-bs": 8}, "--cuda-graph-max-bs-decode or --cuda-graph-max-bs-prefill"),
        ({"attention-backend": "flashinfr"}, "did you mean flashinfer"),
        ({"enable-metrics": 3}, "takes no value"),
        ({"page-size": True}, "needs a value"),
        ({"page-size": "large"}, "invalid int value"),
        ({"enable-mixed-chunk": True}, "SGLang changes it when it speculates"),
    ],
)
def test_fixed_arguments_that_cannot_be_are_refused(
    engine: Sglang, tmp_path: Path, args: dict[str, KnobValue], words: str
) -> None:
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        engine.resolve(str(model_folder(tmp_path / "model")), None, args, {})


def test_arguments_are_written_as_the_parser_takes_them(engine: Sglang, tmp_path: Path) -> None:
    served = resolved(
        engine,
        tmp_path,
        {
            "tensor-parallel-size": 2,
            "cuda-graph-bs-decode": "1 2 4",
            "enable-tf32-matmul": False,
            "mem-frac": 0.5,
            "enable-metrics": "true",
            "disable-overlap-schedule": False,
        },
    )
    argv = " ".join(engine.command(BASELINE, served, 8000))
    for words in (
        "--tp-size 2",
        "--cuda-graph-bs-decode 1 2 4",
        "--no-enable-tf32-matmul",
        "--mem-fraction-static 0.5",
    ):
        assert f" {words} " in f"{argv} "
    assert argv.count("--enable-metrics") == 1


def test_deprecated_flags_still_work_and_are_told(engine: Sglang, tmp_path: Path) -> None:
    served = resolved(engine, tmp_path, {"disable-cuda-graph": True})
    assert "--disable-cuda-graph" in engine.command(BASELINE, served, 8000)
    assert any("--cuda-graph-backend-decode disabled" in note for note in engine.notes(served))


def test_settings_of_the_drafter_alone_go_to_no_baseline(engine: Sglang, tmp_path: Path) -> None:
    served = resolved(engine, tmp_path, {"speculative-token-map": "map.pt"})
    assert "--speculative-token-map" not in engine.command(BASELINE, served, 8000)
    argv = engine.command(Point("EAGLE3"), served, 8000)
    assert argv[argv.index("--speculative-token-map") + 1] == "map.pt"


def test_shared_settings_win_and_bear_the_engines_name(engine: Sglang, tmp_path: Path) -> None:
    served = resolved(engine, tmp_path, {"max-running-requests": 8})
    point = Point("EAGLE3", {"num_steps": 3, "topk": 1, "--max-running-requests": 16})
    engine.check(point, served)
    assert engine.canonical(point).shared == {"--max-running-requests": 16}
    argv = engine.command(point, served, 8000)
    assert argv[argv.index("--max-running-requests") + 1] == "16"
    assert argv.count("--max-running-requests") == 1
    for name, words in (
        ("--tensor-parallel-size", "write --tp-size"),
        ("--speculative-token-map", "speculation alone"),
        ("--no-such", "no flag --no-such"),
    ):
        with pytest.raises(UsageError, match=words):
            engine.check(Point("NGRAM", {name: 1}), served)


def test_arms_differ_in_speculative_words_only(engine: Sglang, tmp_path: Path) -> None:
    served = resolved(engine, tmp_path)
    baseline = engine.command(BASELINE, served, 8000)
    for method in ("EAGLE3", "NGRAM"):
        candidate = engine.command(engine.canonical(Point(method)), served, 8000)
        assert candidate[: len(baseline)] == baseline
        rest = candidate[len(baseline) :]
        assert rest[:2] == ("--speculative-algorithm", method)
        assert all(word.startswith("--speculative-") for word in rest if word.startswith("--"))


def test_what_speculation_changes_is_pinned_in_both_arms(engine: Sglang, tmp_path: Path) -> None:
    served = resolved(engine, tmp_path, {"device": "cuda"})
    argv = engine.command(BASELINE, served, 8000)
    assert argv[argv.index("--max-running-requests") + 1] == "48"
    assert "--disable-overlap-schedule" not in argv  # drafting has no choice: that is part of what it costs
    assert argv[argv.index("--attention-backend") + 1] == "triton"
    assert argv[argv.index("--mem-fraction-static") + 1] == "0.875"
    assert engine.notes(served) == ()


def test_every_threshold_and_mode_is_passed(engine: Sglang, tmp_path: Path) -> None:
    argv = engine.command(Point("EAGLE3", {"num_steps": 3, "topk": 1}), resolved(engine, tmp_path), 8000)
    passed = {argv[i]: argv[i + 1] for i in range(len(argv) - 1)}
    assert passed["--speculative-num-draft-tokens"] == "4"
    assert passed["--speculative-accept-threshold-single"] == "1.0"
    assert passed["--speculative-accept-threshold-acc"] == "1.0"
    assert passed["--speculative-attention-mode"] == "prefill"
    assert "--speculative-adaptive" not in argv


def test_where_sglang_cannot_resolve_the_cap_is_pinned_and_the_rest_is_said(
    engine: Sglang, tmp_path: Path
) -> None:
    served = resolved(engine, tmp_path, env={"STUB_NO_GPU": "1"})
    assert "no accelerator was found" in engine.notes(served)[0]
    argv = engine.command(BASELINE, served, 8000)
    assert argv[argv.index("--max-running-requests") + 1] == "48"
    assert "--attention-backend" not in argv


def test_the_environment_is_the_users(engine: Sglang, tmp_path: Path) -> None:
    served = resolved(engine, tmp_path, env={"SGLANG_LOG_MS": "1"})
    assert engine.environment(BASELINE, served) == {"PYTHONUNBUFFERED": "1", "SGLANG_LOG_MS": "1"}


# The installation


def test_the_interpreter_must_exist_and_have_sglang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"cannot run /no/python.*set `server`"):
        Sglang("/no/python").version()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UsageError, match="has no SGLang"):
        Sglang(sys.executable).version()


def test_a_broken_installation_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "site"
    (broken / "sglang" / "srt").mkdir(parents=True)
    (broken / "sglang-9.dist-info").mkdir()
    (broken / "sglang-9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sglang\nVersion: 9\n"
    )
    (broken / "sglang" / "srt" / "server_args.py").write_text("import no_such_kernel")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    with pytest.raises(UsageError, match="No module named 'no_such_kernel'"):
        _ = Installation(sys.executable).flags
    (broken / "sglang" / "srt" / "server_args.py").write_text("import os; os._exit(3)")
    with pytest.raises(UsageError, match="does not say its flags"):
        _ = Installation(sys.executable).flags


def test_answers_are_remembered_until_something_they_depend_on_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_folder(tmp_path / "model")
    argv = ["--model-path", str(model)]
    install = Installation(sys.executable)

    def starts_a_process(env: Mapping[str, str]) -> bool:
        with install.probe(env) as probe:
            assert "resolved" in resolved_by(probe, argv)
            return probe.is_running

    assert starts_a_process({})
    assert not starts_a_process({})
    assert not starts_a_process({"UNRELATED": "1"})
    assert starts_a_process({"SGLANG_USE_CPU_ENGINE": "1"})
    (model / "config.json").write_text('{"num_hidden_layers": 2}')
    assert starts_a_process({})


# Counts


def reply(**stats: float) -> dict[str, float]:
    return {f"sglext.spec_tokens_details.{name}": value for name, value in stats.items()}


def test_a_reply_tells_its_drafts_with_the_share_per_position() -> None:
    histogram = {f"spec_correct_drafts_histogram.{i}": n for i, n in enumerate((10, 7, 4, 1))}
    counts = {"spec_verify_ct": 22, "spec_num_correct_drafts": 18, "spec_num_proposed_drafts": 66}
    assert counted_in_reply(reply(**counts, **histogram)) == SpecCounters(22, 66, 18, (12, 5, 1))
    cut = {**histogram, "spec_correct_drafts_histogram.0": 9}
    assert counted_in_reply(reply(**counts, **cut)) == SpecCounters(22, 66, 18)

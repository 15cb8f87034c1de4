"""llama.cpp without a server: rules between knobs, command lines, and what a log's end means."""

import sys
from pathlib import Path

import pytest

from launchers.embedded.flags import FLAGS, flag_name
from launchers.engines.engine import Served
from launchers.engines.llamacpp.engine import LlamaCpp
from results.errors import UsageError
from results.reasons import Reason
from results.records import BASELINE, Point
from tests.launchers.gguf_files import write_gguf

ENGINE = LlamaCpp()
PLAIN = Served("/models/target.gguf", None, {}, {})
WITH_DRAFT = Served("/models/target.gguf", "/models/draft.gguf", {}, {})


def test_draft_methods_need_a_draft_model() -> None:
    assert "draft-simple" not in ENGINE.methods(PLAIN)
    assert "draft-simple" in ENGINE.methods(WITH_DRAFT)
    with pytest.raises(UsageError, match="needs a draft model"):
        ENGINE.check(Point("draft-simple"), PLAIN)


@pytest.mark.parametrize(
    ("point", "told"),
    [
        (Point("ngram-simple", {"size_n": 8, "size_m": 4}), "raise size_m to 8"),
        (Point("ngram-mod", {"n_match": 8, "n_min": 9, "n_max": 8}), "lower n_min to 8"),
        (Point("draft-simple", {"n_max": 2, "n_min": 3}), "lower n_min to 2"),
        (Point("draft-simple", {"n_max": 0}), "nearest is 1"),
        (Point("draft-simple", {"n_max": -5}), "outside 1 to 1024"),
        (Point("draft-simple", {"p_min": 1.5}), "nearest is 0.99"),
        (Point("ngram-mod", {"n_match": 0}), "nearest is 1"),
        (Point("ngram-simple", {"size_n": 2.5}), "must be a number like 12"),
        (Point("ngram-simple", {"size_n": "4"}), "must be a number like 12"),
        (Point("ngram-simple", {"size_n": True}), "must be a number like 12"),
    ],
)
def test_illegal_points_are_refused_with_the_nearest_legal_value(point: Point, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ENGINE.check(point, WITH_DRAFT)


def test_dead_knobs_do_not_make_points_differ() -> None:
    for method, dead in (
        ("ngram-simple", "min_hits"),
        ("ngram-map-k", "min_hits"),
        ("draft-simple", "p_split"),
    ):
        point = Point(method, {dead: 0.5 if dead == "p_split" else 3})
        ENGINE.check(point, WITH_DRAFT)
        assert ENGINE.canonical(point) == ENGINE.canonical(Point(method))
    alive = Point("ngram-map-k4v", {"min_hits": 3})
    assert ENGINE.canonical(alive) != ENGINE.canonical(Point("ngram-map-k4v"))


def test_equal_numbers_make_equal_points() -> None:
    assert ENGINE.canonical(Point("ngram-simple", {"size_n": 4.0})).key == (
        ENGINE.canonical(Point("ngram-simple", {"size_n": 4})).key
    )
    assert ENGINE.canonical(Point("draft-simple", {"p_min": 0})).key == (
        ENGINE.canonical(Point("draft-simple", {"p_min": 0.0})).key
    )


def test_arms_differ_in_speculative_flags_only() -> None:
    what = Served("/models/target.gguf", None, {"c": 2048, "parallel": 4, "no-warmup": True}, {})
    baseline = ENGINE.command(BASELINE, what, 8000)
    candidate = ENGINE.command(Point("ngram-simple", {"size_n": 4, "size_m": 8}), what, 8000)
    cut = baseline.index("--spec-type")
    assert candidate[:cut] == baseline[:cut]
    assert baseline[cut:] == ("--spec-type", "none")
    assert all(word.startswith("--spec-") for word in candidate[cut::2])


def test_fixed_arguments_replace_the_defaults() -> None:
    argv = ENGINE.command(
        BASELINE, Served("/m.gguf", None, {"c": 2048, "no-warmup": True, "kvu": False}, {}), 8000
    )
    assert argv.count("--ctx-size") == 1
    assert argv[argv.index("--ctx-size") + 1] == "2048"
    assert "--no-warmup" in argv
    assert "--kv-unified" not in argv


def test_both_servers_take_the_same_flags() -> None:
    embedded = ENGINE.command(BASELINE, PLAIN, 8000)
    binary = LlamaCpp("/opt/llama-server").command(BASELINE, PLAIN, 8000)
    assert embedded[:4] == (sys.executable, "-P", "-m", "launchers.embedded")
    assert binary == ("/opt/llama-server", *embedded[4:])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ctx-sise", "did you mean --ctx-size"),
        ("port", "set by the tuner itself"),
        ("m", "set by the tuner itself"),
        ("td", "speculative"),
    ],
)
def test_fixed_arguments_are_checked(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ENGINE.check_served(Served(write_gguf(tmp_path / "m.gguf"), None, {name: 1}, {}))


def test_damaged_models_are_refused_before_anything_starts(tmp_path: Path) -> None:
    good, bad = write_gguf(tmp_path / "good.gguf"), write_gguf(tmp_path / "bad.gguf", missing_bytes=1)
    for what in (Served(bad, None, {}, {}), Served(good, bad, {}, {}), Served(good, "/no/draft", {}, {})):
        with pytest.raises(UsageError):
            ENGINE.check_served(what)


def test_a_binary_that_is_not_there(tmp_path: Path) -> None:
    model = str(write_gguf(tmp_path / "m.gguf"))
    for server in ("/no/llama-server", "no-such-llama-server", model):  # the last may not be executed
        with pytest.raises(UsageError, match=f"cannot run {server}: there is no such program"):
            LlamaCpp(server).resolve(model, None, {}, {})
    with pytest.raises(UsageError, match="cannot run /no/llama-server"):
        LlamaCpp("/no/llama-server").version()
    assert LlamaCpp(sys.executable).resolve(model, None, {}, {}).model == Path(model)


@pytest.mark.parametrize("server", ["embedded", "/opt/llama-server"])
@pytest.mark.parametrize("name", ["flash-attn", "fa"])
def test_a_switch_of_yaml_is_on_or_off_for_a_flag_with_a_value(server: str, name: str) -> None:
    for written, passed in ((True, "on"), (False, "off"), ("auto", "auto")):
        argv = LlamaCpp(server).command(BASELINE, Served("/m.gguf", None, {name: written}, {}), 8000)
        assert argv[argv.index("--flash-attn") + 1] == passed


def test_flag_names_as_users_write_them() -> None:
    for name in ("c", "-c", "ctx-size", "--ctx-size"):
        assert flag_name(name) == "--ctx-size"
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names))


OOM_LOG = """\
0.00.384.536 W llama_context: n_ctx_seq (4000000) > n_ctx_train (8192) -- possible training context overflow
0.00.475.409 E ggml_aligned_malloc: insufficient memory (attempted to allocate 87890.62 MB)
0.00.485.283 E srv    load_model: failed to create_context with model '/m.gguf'
0.00.485.722 E srv          init: exiting due to model loading error
RuntimeError: Failed to init server, please check the input params.
"""


@pytest.mark.parametrize(
    ("log", "exit_code", "ready", "reason", "evidence"),
    [
        (
            OOM_LOG,
            1,
            False,
            Reason.START_OOM,
            "ggml_aligned_malloc: insufficient memory (attempted to allocate",
        ),
        (OOM_LOG, 1, True, Reason.CRASH_UNDER_LOAD, "ggml_aligned_malloc"),
        ("error: invalid argument: --draft-max\n", 1, False, Reason.UNSUPPORTED_FLAG, "--draft-max"),
        (
            "ctx.cpp:2289: GGML_ASSERT(a <= b) failed\n#1 0x0 in f ()\n",
            -6,
            True,
            Reason.CRASH_UNDER_LOAD,
            "a <= b",
        ),
        ("ctx.cpp:2289: GGML_ASSERT(a <= b) failed\n", -6, False, Reason.START_FAILED, "a <= b"),
        ("all fine\n", -9, True, Reason.SERVER_DIED, "SIGKILL"),
        ("all fine\n", -11, True, Reason.CRASH_UNDER_LOAD, "SIGSEGV"),
        ("all fine\n\n", 1, True, Reason.SERVER_DIED, "exit code 1: all fine"),
        ("loading\n", None, False, Reason.START_TIMEOUT, "still running: loading"),
        ("E failed to load a thing\nall fine\n", -9, True, Reason.SERVER_DIED, "SIGKILL"),
        ("", 1, False, Reason.START_FAILED, "the log is empty"),
        (
            "0.00.003.816 E srv  x: couldn't bind HTTP server socket, port: 1\n",
            1,
            False,
            Reason.WRONG_SERVER,
            "bind",
        ),
    ],
)
def test_cause(log: str, exit_code: int | None, ready: bool, reason: Reason, evidence: str) -> None:
    named, line = ENGINE.cause(log, exit_code, ready=ready)
    assert named is reason
    assert evidence in line
    assert not line.startswith("0.00")

"""The embedded engine for real: every method starts, is what was asked for, and serves."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import requests

from launchers.embedded.model import find_model
from launchers.engines.engine import Engine, Served, SlotDrafts
from launchers.engines.llamacpp.engine import LlamaCpp
from launchers.launcher import Launch, Launcher
from launchers.port import free_port
from launchers.process import ProcessEndpoint, ProcessLauncher
from launchers.telemetry import HostWindow
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE, Point
from tests.contracts.engine_contract import EngineContract, running, stream
from tests.waiting import wait_for

pytestmark = pytest.mark.rig
pytest.importorskip("xllamacpp")

ENGINE = LlamaCpp()


def served(draft: Path | None = None, **args: int) -> Served:
    return Served(find_model("smollm2-135m"), draft, {"ctx-size": 2048, "threads": 1, **args}, {})


@contextmanager
def ending(run_dir: Path, argv: tuple[str, ...], port: int) -> Iterator[ProcessEndpoint]:
    """A server started with argv, ready or ended."""
    launch = Launch(argv, port, run_dir / "server.log", ENGINE.environment(BASELINE, served()))
    with ProcessLauncher(run_dir).start(launch) as endpoint:
        wait_for(lambda: ENGINE.is_ready(endpoint) or endpoint.exit_code() is not None)
        yield endpoint


def with_flags(port: int, *flags: str) -> tuple[str, ...]:
    return (*ENGINE.command(BASELINE, served(), port), *flags)


class TestEmbedded(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return ENGINE

    @pytest.fixture
    def served(self) -> Served:
        return served()

    @pytest.fixture
    def launcher(self, engine: Engine, tmp_path: Path) -> Launcher:
        return ProcessLauncher(tmp_path)


SPECULATIVE = [
    Point("ngram-simple", {"size_n": 3, "size_m": 5}),
    Point("ngram-map-k", {"size_n": 3, "size_m": 5}),
    Point("ngram-map-k4v", {"size_n": 3, "size_m": 5, "min_hits": 2}),
    Point("ngram-mod", {"n_match": 4, "n_min": 1, "n_max": 8}),
    Point("draft-simple", {"n_max": 4, "n_min": 1, "p_min": 0.25}),
]


@pytest.mark.parametrize("point", SPECULATIVE, ids=lambda p: p.method)
def test_every_method_drafts_with_the_knobs_asked_for(tmp_path: Path, point: Point) -> None:
    what = served(draft=find_model("smollm2-135m"), parallel=2)
    with running(ENGINE, ProcessLauncher(tmp_path), what, point) as endpoint:
        back = ENGINE.read_back(endpoint, point, what)
        assert {**point.knobs, "method": point.method, "parallel": 2}.items() <= dict(back.effective).items()
        assert set(back.effective) - {"build", "parallel", "context_per_slot"} <= ENGINE.speculative_settings
        assert ENGINE.context_tokens(endpoint) == 1024
        timings = stream(endpoint, ENGINE, max_tokens=60)[-1]["timings"]
        counters = ENGINE.counters(endpoint)
        assert counters is not None
        assert counters.draft_tokens == timings["draft_n"] > 0
        assert counters.accepted_tokens == timings["draft_n_accepted"] == sum(counters.accepted_per_position)
        assert timings["cache_n"] == 0
        drafted = SlotDrafts(0, int(timings["draft_n_accepted"]), int(timings["draft_n"]))
        recount = ENGINE.recount(endpoint)
        assert recount is not None
        assert recount.server == replace(recount.drafter, drafts=0)
        assert (recount.drafter.draft_tokens, recount.drafter.accepted_tokens) == (
            counters.draft_tokens,
            counters.accepted_tokens,
        )
        by_slot = [replace(s, slot=0) for s in ENGINE.drafts_by_slot(endpoint)]
        assert by_slot == ([drafted] if point.method == "draft-simple" else [])


def test_starts_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for shadow in ("launchers", "results"):
        (tmp_path / shadow).mkdir()
        (tmp_path / shadow / "__init__.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    with running(ENGINE, ProcessLauncher(tmp_path), served(), BASELINE) as endpoint:
        assert ENGINE.is_ready(endpoint)


def test_baseline_counts_no_drafts(tmp_path: Path) -> None:
    with running(ENGINE, ProcessLauncher(tmp_path), served(), BASELINE) as endpoint:
        events = stream(endpoint, ENGINE, max_tokens=30)
        counters = ENGINE.counters(endpoint)
        assert counters is not None
        assert (counters.drafts, counters.accepted_per_position) == (0, ())
        assert "draft_n" not in events[-1]["timings"]


def test_cached_prefixes_are_not_used(tmp_path: Path) -> None:
    with running(ENGINE, ProcessLauncher(tmp_path), served(), BASELINE) as endpoint:
        for _ in range(2):
            assert stream(endpoint, ENGINE, max_tokens=4)[-1]["timings"]["cache_n"] == 0


def test_healthy_server_with_a_drafter_it_cannot_use(tmp_path: Path) -> None:
    port, point = free_port(), Point("draft-simple")
    argv = with_flags(port, "--spec-type", "draft-simple")  # no draft model: it comes up all the same
    with ending(tmp_path, argv, port) as endpoint:
        with pytest.raises(MeasurementInvalid, match="requires a draft context") as caught:
            ENGINE.read_back(endpoint, point, served())
        assert caught.value.reason is Reason.NOT_SPECULATING


def test_another_knob_in_effect(tmp_path: Path) -> None:
    asked, started = Point("ngram-simple", {"size_n": 4, "size_m": 8}), {"size_n": 4, "size_m": 9}
    with running(ENGINE, ProcessLauncher(tmp_path), served(), Point("ngram-simple", started)) as endpoint:
        with pytest.raises(MeasurementInvalid, match="size_m=8 was asked for, 9 is in effect") as caught:
            ENGINE.read_back(endpoint, asked, served())
        assert caught.value.reason is Reason.IGNORED_SETTING


def test_another_model_is_the_wrong_server(tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(served_model().read_bytes())
    with running(ENGINE, ProcessLauncher(tmp_path), served(), BASELINE) as endpoint:
        with pytest.raises(MeasurementInvalid) as caught:
            ENGINE.read_back(endpoint, BASELINE, Served(copy, None, {}, {}))
        assert caught.value.reason is Reason.WRONG_SERVER


def served_model() -> Path:
    return find_model("smollm2-135m")


def test_killed_server(tmp_path: Path) -> None:
    with running(ENGINE, ProcessLauncher(tmp_path), served(), BASELINE) as endpoint:
        assert isinstance(endpoint, ProcessEndpoint)
        psutil.Process(endpoint.pid).kill()
        wait_for(lambda: endpoint.exit_code() is not None)
        assert endpoint.exit_code() == -signal.SIGKILL
        with pytest.raises(MeasurementInvalid) as caught:
            ENGINE.counters(endpoint)
        assert caught.value.reason is Reason.SERVER_DIED
        reason, evidence = ENGINE.cause(endpoint.log_path.read_text(), -signal.SIGKILL, ready=True)
        assert reason is Reason.SERVER_DIED
        assert "SIGKILL" in evidence


def test_sigterm_ends_the_server_in_order(tmp_path: Path) -> None:
    with running(ENGINE, ProcessLauncher(tmp_path), served(), BASELINE) as endpoint:
        wait_for(lambda: "embedded server: http" in endpoint.log_path.read_text())
    assert endpoint.exit_code() == 0


def test_assertion_under_load_is_a_crash_with_its_line(tmp_path: Path) -> None:
    port, model = free_port(), str(served_model())
    flags = ("--spec-type", "draft-simple", "--model-draft", model, "--spec-draft-n-max", "0")
    with ending(tmp_path, with_flags(port, *flags), port) as endpoint:
        with pytest.raises(requests.RequestException):
            stream(endpoint, ENGINE, max_tokens=20)
        wait_for(lambda: endpoint.exit_code() is not None)
        assert endpoint.exit_code() == -signal.SIGABRT
        reason, evidence = ENGINE.cause(endpoint.log_path.read_text(), endpoint.exit_code(), ready=True)
        assert reason is Reason.CRASH_UNDER_LOAD
        assert "GGML_ASSERT" in evidence


@pytest.mark.parametrize(
    ("flags", "exit_code", "reason", "told"),
    [
        (("--draft-max", "3"), 2, Reason.UNSUPPORTED_FLAG, "--draft-max"),
        (("--spec-type", "foo"), 2, Reason.CONFIG_REJECTED, "foo"),
        (("--spec-ngram-simple-size-n", "70000"), 2, Reason.CONFIG_REJECTED, "--spec-ngram-simple-size-n"),
        (("--ctx-size", "40000000"), 1, Reason.START_OOM, "insufficient memory"),
        (("--model", "/no/such.gguf"), 1, Reason.START_FAILED, "No such file"),
        (("--model", sys.executable), 1, Reason.START_FAILED, "invalid magic"),
        (
            ("--model-draft", "/no/such.gguf", "--spec-type", "draft-simple"),
            1,
            Reason.START_FAILED,
            "No such",
        ),
        (("--host", "0.0.0.0"), 2, Reason.CONFIG_REJECTED, "127.0.0.1 only"),
    ],
)
def test_failed_starts_are_named(
    tmp_path: Path, flags: tuple[str, ...], exit_code: int, reason: Reason, told: str
) -> None:
    port = free_port()
    with ending(tmp_path, with_flags(port, *flags), port) as endpoint:
        assert endpoint.exit_code() == exit_code
        named, evidence = ENGINE.cause(endpoint.log_path.read_text(), exit_code, ready=False)
    assert named is reason
    assert told in evidence


def test_taken_port_is_named(tmp_path: Path) -> None:
    with running(ENGINE, ProcessLauncher(tmp_path), served(), BASELINE) as endpoint:
        port = int(endpoint.base_url.rpartition(":")[2])
        other = Launch(with_flags(free_port(), "--port", str(port)), free_port(), tmp_path / "other.log")
        with ProcessLauncher(tmp_path).start(other) as late:
            wait_for(lambda: late.exit_code() is not None)
            assert not late.owns_port()
            named, evidence = ENGINE.cause(other.log_path.read_text(), late.exit_code(), ready=False)
            assert named is Reason.WRONG_SERVER, evidence
        assert endpoint.owns_port()


def test_telemetry_sees_the_server_work(tmp_path: Path) -> None:
    with running(ENGINE, ProcessLauncher(tmp_path), served(), BASELINE) as endpoint:
        with HostWindow(endpoint.pids) as window:
            stream(endpoint, ENGINE, max_tokens=100)
        seen = window.telemetry
    assert seen.server_cores is not None
    assert seen.server_cores > 0
    assert seen.foreign_cores is not None
    assert seen.server_memory_bytes is not None
    assert seen.server_memory_bytes > 50_000_000

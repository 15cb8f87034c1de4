"""The stand-in keeps both contracts, and plays every fault."""

from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from launchers.engines.engine import Engine, Served
from launchers.fake import FakeEngine, FakeLauncher
from launchers.fake_server import Fault
from launchers.launcher import Launch, Launcher
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE, Point
from tests.contracts.engine_contract import EngineContract, running, stream
from tests.contracts.launcher_contract import LauncherContract
from tests.waiting import wait_for

POINT = Point("fake-ngram", {"n": 4, "m": 8})
SERVED = Served("fake-model", None, {}, {})


def fast(point: Point, workload_class: str) -> float:
    return 5000.0


def failing(fault: Fault) -> FakeEngine:
    return FakeEngine(fast, lambda point: None if point.is_baseline else fault)


class TestFakeLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Launcher:
        return FakeLauncher(FakeEngine(fast))

    @pytest.fixture
    def launch(self, tmp_path: Path) -> Callable[[int], Launch]:
        engine = FakeEngine(fast)
        return lambda port: Launch(engine.command(POINT, SERVED, port), port, tmp_path / f"{port}.log")


class TestFakeEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return FakeEngine(fast)

    @pytest.fixture
    def served(self) -> Served:
        return SERVED

    @pytest.fixture
    def launcher(self, engine: Engine, tmp_path: Path) -> Launcher:
        assert isinstance(engine, FakeEngine)
        return FakeLauncher(engine)


def test_same_prompt_gives_same_text_and_chunks_hold_several_tokens() -> None:
    engine = FakeEngine(fast)
    texts, chunks = [], []
    for point in (BASELINE, POINT):
        with running(engine, FakeLauncher(engine), SERVED, point) as endpoint:
            events = stream(endpoint, engine, max_tokens=20)
        parts = [c["delta"].get("content", "") for e in events for c in e["choices"]]
        texts.append("".join(parts))
        chunks.append(len([part for part in parts if part]))
    assert texts[0] == texts[1]
    assert chunks == [20, 5]


def test_the_workload_class_reaches_the_script() -> None:
    asked: list[str] = []
    engine = FakeEngine(lambda point, workload_class: asked.append(workload_class) or 5000.0)  # type: ignore[func-returns-value]
    with running(engine, FakeLauncher(engine), SERVED, BASELINE) as endpoint:
        stream(endpoint, engine, max_tokens=4)
    assert asked == ["Repeat"]


def test_refuses_to_start() -> None:
    engine = failing(Fault.REFUSES_TO_START)
    with pytest.raises(AssertionError, match="refused"), running(engine, FakeLauncher(engine), SERVED, POINT):
        pass
    assert engine.cause("error: refused\n", 1, ready=False)[0] is Reason.CONFIG_REJECTED


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.IGNORES_SETTING, Reason.IGNORED_SETTING),
        (Fault.DOES_NOT_SPECULATE, Reason.NOT_SPECULATING),
    ],
)
def test_read_back_finds_out(fault: Fault, reason: Reason) -> None:
    engine = failing(fault)
    with running(engine, FakeLauncher(engine), SERVED, POINT) as endpoint:
        with pytest.raises(MeasurementInvalid) as caught:
            engine.read_back(endpoint, POINT, SERVED)
        assert caught.value.reason is reason


def test_dies_under_load_and_answers_no_more() -> None:
    engine = failing(Fault.DIES_UNDER_LOAD)
    with running(engine, FakeLauncher(engine), SERVED, POINT) as endpoint, requests.Session() as session:
        assert session.get(f"{endpoint.base_url}/health", timeout=5).ok
        with pytest.raises(requests.RequestException):
            stream(endpoint, engine, max_tokens=40)
        wait_for(lambda: endpoint.exit_code() == -9)
        assert not endpoint.owns_port()
        with pytest.raises(requests.RequestException):
            session.get(f"{endpoint.base_url}/health", timeout=5)


def test_hangs_after_the_first_chunk() -> None:
    engine = failing(Fault.HANGS)
    with running(engine, FakeLauncher(engine), SERVED, POINT) as endpoint:
        with pytest.raises(requests.ConnectionError, match="Read timed out"):
            stream(endpoint, engine, max_tokens=40, timeout_s=0.5)
        assert engine.is_ready(endpoint)  # health says nothing


def test_garbage_and_error_events() -> None:
    engine = failing(Fault.GARBAGE)
    with running(engine, FakeLauncher(engine), SERVED, POINT) as endpoint:
        events = stream(endpoint, engine, max_tokens=8)
        assert events[0]["choices"][0]["delta"]["content"] == "! ! ! ! "
    engine = failing(Fault.ERROR_EVENT)
    with running(engine, FakeLauncher(engine), SERVED, POINT) as endpoint:
        assert stream(endpoint, engine, max_tokens=40)[-1]["error"]["message"] == "scripted failure"

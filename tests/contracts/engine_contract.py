"""What every Engine must do. Subclass it and provide the fixtures; only EngineContract starts servers."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import requests

from launchers.engines.engine import Engine, Knob, Served
from launchers.launcher import Endpoint, Launch, Launcher
from launchers.port import free_port
from results.errors import MeasurementInvalid, UsageError
from results.records import BASELINE, KnobValue, Point
from tests.waiting import wait_for

REPEATING = "Repeat: a b c d e f g h a b c d e f g h a b c d e f g h a b c"


class EngineKnowledge:
    """What an engine knows without a server: for where none can be started."""

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    @pytest.fixture
    def served(self) -> Served:
        raise NotImplementedError

    def test_names_its_version(self, engine: Engine) -> None:
        assert engine.version()

    def test_has_a_baseline_and_something_to_search(self, engine: Engine, served: Served) -> None:
        methods = engine.methods(served)
        assert methods[BASELINE.method] == ()
        assert len(methods) > 1
        assert engine.canonical(BASELINE) == BASELINE

    def test_starting_points_are_canonical_legal_and_distinct(self, engine: Engine, served: Served) -> None:
        points = engine.starting_points(served)
        assert points
        for point in points:
            engine.check(point, served)
            assert engine.canonical(point).key == point.key
            assert not point.is_baseline
        assert len({p.key for p in points}) == len(points)

    def test_canonical_fills_defaults_drops_strangers_and_is_stable(
        self, engine: Engine, served: Served
    ) -> None:
        for method, knobs in engine.methods(served).items():
            point = engine.canonical(Point(method, {"stranger": 1}))
            defaults = {knob.name: knob.default for knob in knobs if not knob.optional}
            assert point.knobs.items() <= defaults.items(), "dead ones may be missing, but none may be new"
            assert bool(point.knobs) is bool(defaults)
            assert engine.canonical(point) == point

    def test_a_draft_has_a_shape_and_the_baseline_none(self, engine: Engine, served: Served) -> None:
        assert engine.draft_shape(BASELINE) is None
        for point in engine.starting_points(served):
            shape = engine.draft_shape(point)
            assert shape is not None
            assert 1 <= shape.depth <= shape.draft_tokens
            assert shape.passes in (0, 1, shape.depth)
            assert shape.topk >= 1

    def test_every_grid_value_is_legal_somewhere(self, engine: Engine, served: Served) -> None:
        for method, knobs in engine.methods(served).items():
            searched = tuple(knob for knob in knobs if knob.grid)
            legal = [p for p in grid(method, searched) if is_legal(engine, p, served)]
            for knob in searched:
                tried = {p.knobs[knob.name] for p in legal if knob.name in p.knobs}
                assert tried == set(knob.grid), f"{method} {knob.name}"

    def test_values_out_of_range_and_unknown_names_are_refused(self, engine: Engine, served: Served) -> None:
        with pytest.raises(UsageError, match="no-such-method"):
            engine.check(Point("no-such-method"), served)
        for method, knobs in engine.methods(served).items():
            with pytest.raises(UsageError, match="stranger"):
                engine.check(Point(method, {"stranger": 1}), served)
            for knob in knobs:
                for value in outside(knob):
                    with pytest.raises(UsageError, match=knob.name):
                        engine.check(Point(method, {knob.name: value}), served)

    def test_command_names_port_and_every_knob(self, engine: Engine, served: Served) -> None:
        for point in engine.starting_points(served):
            command = engine.command(point, served, 12345)
            assert any("12345" in word for word in command)
            other = engine.command(engine.canonical(Point(point.method)), served, 12345)
            same_knobs = engine.canonical(Point(point.method)).key == point.key
            assert (command == other) is same_knobs

    @pytest.mark.parametrize("ready", [False, True])
    @pytest.mark.parametrize("exit_code", [None, 1, -9, -11])
    def test_always_names_a_cause(self, engine: Engine, exit_code: int | None, ready: bool) -> None:
        reason, evidence = engine.cause("", exit_code, ready=ready)
        assert reason
        assert evidence


class EngineContract(EngineKnowledge):
    """The same and what it does with a server."""

    @pytest.fixture
    def launcher(self, engine: Engine, tmp_path: Path) -> Launcher:
        raise NotImplementedError

    def test_ready_only_while_it_is_up(self, engine: Engine, served: Served, launcher: Launcher) -> None:
        with running(engine, launcher, served, BASELINE) as endpoint:
            assert engine.is_ready(endpoint)
        assert not engine.is_ready(endpoint)

    def test_reads_back_what_was_asked(self, engine: Engine, served: Served, launcher: Launcher) -> None:
        point = engine.starting_points(served)[0]
        with running(engine, launcher, served, point) as endpoint:
            back = engine.read_back(endpoint, point, served)
            assert back.speculating
            assert point.knobs.items() <= dict(back.effective).items()
        with running(engine, launcher, served, BASELINE) as endpoint:
            assert not engine.read_back(endpoint, BASELINE, served).speculating

    def test_another_server_than_asked_for_is_found_out(
        self, engine: Engine, served: Served, launcher: Launcher
    ) -> None:
        asked, started = engine.starting_points(served)[0], BASELINE
        with running(engine, launcher, served, started) as endpoint, pytest.raises(MeasurementInvalid):
            engine.read_back(endpoint, asked, served)

    def test_streams_usage_and_counts_drafts(
        self, engine: Engine, served: Served, launcher: Launcher
    ) -> None:
        point = engine.starting_points(served)[0]
        with running(engine, launcher, served, point) as endpoint:
            before = engine.counters(endpoint)
            events = stream(endpoint, engine, max_tokens=40)
            after = engine.counters(endpoint)
        assert events[-1]["usage"]["completion_tokens"] == 40
        assert before is not None
        assert after is not None
        counted = after.since(before)
        assert 0 < counted.drafts <= counted.draft_tokens
        assert 0 <= counted.accepted_tokens <= counted.draft_tokens

    def test_knows_the_context(self, engine: Engine, served: Served, launcher: Launcher) -> None:
        with running(engine, launcher, served, BASELINE) as endpoint:
            tokens = engine.context_tokens(endpoint)
            assert tokens is None or tokens > 0
            assert engine.reset_cache(endpoint) in (True, False)


def outside(knob: Knob) -> Sequence[KnobValue]:
    """Values of the right kind that no engine takes, or of no kind at all."""
    if knob.choices:
        return ("no-such-value",)
    if isinstance(knob.default, str):
        return (1,)
    assert knob.low is not None
    assert knob.high is not None
    return (knob.low - 1, knob.high + 1)


def grid(method: str, knobs: tuple[Any, ...]) -> Iterator[Point]:
    for values in itertools.product(*(knob.grid for knob in knobs)):
        yield Point(method, {knob.name: value for knob, value in zip(knobs, values, strict=True)})


def is_legal(engine: Engine, point: Point, served: Served) -> bool:
    try:
        engine.check(point, served)
    except UsageError:
        return False
    return True


@contextmanager
def running(engine: Engine, launcher: Launcher, served: Served, point: Point) -> Iterator[Endpoint]:
    """A ready server of the Point."""
    port = free_port()
    with (
        TemporaryDirectory() as folder,
        launcher.start(
            Launch(
                engine.command(point, served, port),
                port,
                Path(folder) / "server.log",
                engine.environment(point, served),
            )
        ) as endpoint,
    ):
        wait_for(lambda: engine.is_ready(endpoint) or endpoint.exit_code() is not None, cap_s=240)
        assert endpoint.exit_code() is None, endpoint.log_path.read_text()
        yield endpoint


def stream(
    endpoint: Endpoint, engine: Engine, max_tokens: int, timeout_s: float = 60
) -> list[Mapping[str, Any]]:
    """The events of one streamed chat request, without the closing [DONE]."""
    body = {
        "messages": [{"role": "user", "content": REPEATING}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **engine.request_fields(fixed_length=True),
    }
    url = f"{endpoint.base_url}/v1/chat/completions"
    with requests.post(url, json=body, stream=True, timeout=timeout_s) as answer:
        assert answer.ok, answer.text
        lines = [line.removeprefix(b"data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]

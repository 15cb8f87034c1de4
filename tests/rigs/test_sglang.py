"""SGLang for real, on a CPU: it is what was asked for, counts what it accepts, rewrites, and dies."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from analysis.settings import changed
from launchers.engines.attached import attach
from launchers.engines.engine import Engine, Served
from launchers.engines.sglang.engine import Sglang
from launchers.launcher import Endpoint, Launch, Launcher
from launchers.port import free_port
from launchers.process import ProcessLauncher
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import BASELINE, KnobValue, Point, Rewrite, SpecCounters
from tests.contracts.engine_contract import EngineContract, running
from tests.rigs.needed import needed_rig
from tests.waiting import wait_for

pytestmark = [pytest.mark.rig, pytest.mark.timeout(600)]

PAIR = Path(__file__).with_name("pair")
ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # else the first speculative request takes a minute
}
ARGS: dict[str, KnobValue] = {
    "device": "cpu",
    "dtype": "float32",
    "mem-fraction-static": 0.4,
    "max-total-tokens": 8192,
    "sleep-on-idle": True,
}
CHAIN = Point("EAGLE3", {"num_steps": 3, "topk": 1})
TREE = Point("EAGLE3", {"num_steps": 3, "topk": 4, "draft_tokens": 12})
NGRAM = Point("NGRAM", {"draft_tokens": 8, "breadth": 4})
MAX_TOKENS = 48


class KeepingLauncher:
    """Keeps the server of a command line for the next who asks: a start takes half a minute."""

    def __init__(self, run_dir: Path) -> None:
        self._launcher = ProcessLauncher(run_dir)
        self._servers: dict[tuple[str, ...], tuple[ExitStack, Endpoint]] = {}

    @contextmanager
    def start(self, launch: Launch) -> Iterator[Endpoint]:
        key = tuple(word for word in launch.argv if word != str(launch.port))
        if key not in self._servers:
            if len(self._servers) == 2:
                self._servers.pop(next(iter(self._servers)))[0].close()
            stack = ExitStack()
            log_path = launch.log_path.parent.parent / f"server-{launch.port}.log"  # outlives its folder
            kept = Launch(launch.argv, launch.port, log_path, launch.env)
            self._servers[key] = stack, stack.enter_context(self._launcher.start(kept))
        yield self._servers[key][1]

    def close(self) -> None:
        for stack, _ in self._servers.values():
            stack.close()


@pytest.fixture(scope="module")
def sglang() -> Sglang:
    return Sglang(str(needed_rig("sglang")))


@pytest.fixture(scope="module")
def pair(sglang: Sglang) -> Served:
    return sglang.resolve(str(PAIR / "target"), str(PAIR / "head"), ARGS, ENV)


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    launcher = KeepingLauncher(tmp_path_factory.mktemp("servers"))
    yield launcher
    launcher.close()


def prompts(count: int) -> list[str]:
    lines = (PAIR / "prompts.jsonl").read_text().splitlines()[:count]
    return [str(json.loads(line)["prompt"]) for line in lines]


def complete(
    endpoint: Endpoint, engine: Engine, prompt: str, **sampling: Any
) -> tuple[str, Mapping[str, Any], dict[str, float]]:
    """Text, usage and the numbers of the extension object of one streamed completion."""
    body = {
        "model": "any",
        "prompt": prompt,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **engine.request_fields(fixed_length=True),
        **sampling,
    }
    with requests.post(f"{endpoint.base_url}/v1/completions", json=body, stream=True, timeout=120) as answer:
        assert answer.ok, answer.text
        lines = [line.removeprefix(b"data: ") for line in answer.iter_lines() if line]
    events = [json.loads(line) for line in lines[:-1]]
    text = "".join(choice["text"] for event in events for choice in event["choices"])
    details = [event["sglext"]["spec_tokens_details"] for event in events if event.get("sglext")]
    return text, events[-1]["usage"], flat("sglext.spec_tokens_details", details[0]) if details else {}


def flat(prefix: str, value: Any) -> dict[str, float]:
    if isinstance(value, int | float):
        return {prefix: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for name, inner in items for k, v in flat(f"{prefix}.{name}", inner).items()}


class TestContract(EngineContract):
    @pytest.fixture
    def engine(self, sglang: Sglang) -> Engine:
        return sglang

    @pytest.fixture
    def served(self, pair: Served) -> Served:
        return pair

    @pytest.fixture
    def launcher(self, keeping: Launcher) -> Launcher:
        return keeping

    def test_ready_only_while_it_is_up(self, engine: Engine, served: Served, launcher: Launcher) -> None:
        with running(engine, launcher, served, BASELINE) as endpoint:
            assert engine.is_ready(endpoint)  # its end is seen where it crashes

    def test_streams_usage_and_counts_drafts(
        self, engine: Engine, served: Served, launcher: Launcher
    ) -> None:
        with running(engine, launcher, served, CHAIN) as endpoint:
            before = engine.counters(endpoint)
            _, usage, _ = complete(endpoint, engine, "def f(x):")
            after = engine.counters(endpoint)
        assert usage["completion_tokens"] == MAX_TOKENS
        assert before is not None
        assert after is not None
        assert 0 < after.since(before).drafts < MAX_TOKENS


def test_arms_are_alike_in_all_but_speculation(sglang: Sglang, pair: Served, keeping: Launcher) -> None:
    found = {}
    for point in (BASELINE, CHAIN):
        with running(sglang, keeping, pair, point) as endpoint:
            found[point.method] = sglang.read_back(endpoint, point, pair)
    baseline, chain = found["none"], found["EAGLE3"]
    assert baseline.rewrites == chain.rewrites == ()
    assert chain.effective["--max-running-requests"] == 48
    assert changed(baseline.effective, chain.effective, ignoring=sglang.speculative_settings) == {}
    assert "topk" in changed(baseline.effective, chain.effective)


def test_replies_and_log_count_the_same_drafts(sglang: Sglang, pair: Served, keeping: Launcher) -> None:
    """The two are independent: one counts per request, the other per step of the scheduler."""
    with running(sglang, keeping, pair, CHAIN) as endpoint:
        before = sglang.counters(endpoint)
        with ThreadPoolExecutor(3) as pool:
            replies = list(pool.map(lambda prompt: complete(endpoint, sglang, prompt), prompts(6)))
        after = sglang.counters(endpoint)
        slots = sglang.drafts_by_slot(endpoint)
    told = [sglang.counted_in_reply(stats) for _, _, stats in replies]
    counted = sum((c for c in told if c is not None), SpecCounters(0, 0, 0))
    assert before is not None
    assert after is not None
    logged = after.since(before)
    assert (counted.drafts, counted.draft_tokens, counted.accepted_tokens) == (
        logged.drafts,
        logged.draft_tokens,
        logged.accepted_tokens,
    )
    assert counted.draft_tokens == 3 * counted.drafts
    assert sum(counted.accepted_per_position) == counted.accepted_tokens
    assert slots[0].generated == after.drafts


def test_the_baseline_tells_no_drafts_and_takes_the_same_request(
    sglang: Sglang, pair: Served, keeping: Launcher
) -> None:
    with running(sglang, keeping, pair, BASELINE) as endpoint:
        _, usage, stats = complete(endpoint, sglang, "def f(x):")
        assert usage["completion_tokens"] == MAX_TOKENS
        assert sglang.counted_in_reply(stats) is None
        assert sglang.counters(endpoint) is None


def test_asks_the_server_for_what_it_knows(sglang: Sglang, pair: Served, keeping: Launcher) -> None:
    with running(sglang, keeping, pair, BASELINE) as endpoint:
        assert sglang.admission(endpoint) == (0, 0)
        assert sglang.reset_cache(endpoint)
        _, usage, _ = complete(endpoint, sglang, "def f(x):")
        assert sglang.count_tokens(endpoint, {"prompt": "def f(x):"}) == usage["prompt_tokens"]
        context = sglang.context_tokens(endpoint)
        assert context is not None
        assert (
            0 < context < json.loads((PAIR / "target" / "config.json").read_text())["max_position_embeddings"]
        )


@pytest.mark.parametrize(
    ("point", "length"), [(CHAIN, 2.0), (TREE, 2.4), (NGRAM, 1.0)], ids=["chain", "tree", "ngram"]
)
def test_greedy_text_is_the_baselines_however_much_is_accepted(
    sglang: Sglang, pair: Served, keeping: Launcher, point: Point, length: float
) -> None:
    """In float32 on one engine verification in batches changes no token of so small a model."""
    asked = prompts(12)
    with running(sglang, keeping, pair, BASELINE) as endpoint:
        expected = [complete(endpoint, sglang, prompt)[0] for prompt in asked]
    with running(sglang, keeping, pair, point) as endpoint:
        before = sglang.counters(endpoint)
        got = [complete(endpoint, sglang, prompt) for prompt in asked]
        after = sglang.counters(endpoint)
    assert [text for text, _, _ in got] == expected
    told = [sglang.counted_in_reply(stats) for _, _, stats in got]
    counted = sum((c for c in told if c is not None), SpecCounters(0, 0, 0))
    assert before is not None
    assert after is not None
    assert after.since(before).accepted_tokens == counted.accepted_tokens > 0
    assert 1 + counted.accepted_tokens / counted.drafts >= length


def started(sglang: Sglang, pair: Served, point: Point, folder: Path) -> Any:
    return running(sglang, ProcessLauncher(folder), pair, point)


def test_a_rewritten_setting_is_filed_under_what_is_in_effect(
    sglang: Sglang, pair: Served, tmp_path: Path
) -> None:
    asked = Point("EAGLE3", {"num_steps": 4, "topk": 1, "draft_tokens": 3})
    with started(sglang, pair, asked, tmp_path) as endpoint:
        back = sglang.read_back(endpoint, asked, pair)
        with pytest.raises(MeasurementInvalid) as wrong:
            sglang.read_back(endpoint, BASELINE, pair)
    assert back.rewrites == (Rewrite("speculative_num_draft_tokens", 3, 5),)
    assert back.point == Point("EAGLE3", {"num_steps": 4, "topk": 1})
    assert wrong.value.reason is Reason.IGNORED_SETTING


def test_a_tree_that_does_not_hold_its_tokens_dies_at_the_first_request(
    sglang: Sglang, pair: Served, tmp_path: Path
) -> None:
    forced = Point("EAGLE3", {"num_steps": 2, "topk": 2, "draft_tokens": 100})
    with started(sglang, pair, forced, tmp_path) as endpoint:
        sglang.read_back(endpoint, forced, pair)  # up and healthy until then
        with pytest.raises(requests.RequestException):
            complete(endpoint, sglang, "def f(x):")
        wait_for(lambda: endpoint.exit_code() is not None, cap_s=60)
        assert not sglang.is_ready(endpoint)
        reason, line = sglang.cause(endpoint.log_path.read_text(), endpoint.exit_code(), ready=True)
    assert reason is Reason.CRASH_UNDER_LOAD
    assert line == "RuntimeError: selected index k out of range"


def test_adaptive_in_vain_is_an_ignored_setting(sglang: Sglang, pair: Served, tmp_path: Path) -> None:
    forced = Point("EAGLE3", {"num_steps": 3, "topk": 2, "draft_tokens": 6, "adaptive": True})
    with started(sglang, pair, forced, tmp_path) as endpoint, pytest.raises(MeasurementInvalid) as ignored:
        sglang.read_back(endpoint, forced, pair)
    assert ignored.value.reason is Reason.IGNORED_SETTING
    assert "only topk=1 is supported" in ignored.value.evidence


def test_too_little_memory_is_named_with_its_figure(sglang: Sglang, pair: Served, tmp_path: Path) -> None:
    """More faults at start are told from lines of their logs in the cases: each start takes half a minute."""
    served = Served(pair.model, pair.draft, {**ARGS, "mem-fraction-static": 0.0001}, ENV)
    port = free_port()
    launch = Launch(
        sglang.command(TREE, served, port), port, tmp_path / "log", sglang.environment(TREE, served)
    )
    with ProcessLauncher(tmp_path).start(launch) as endpoint:
        wait_for(lambda: endpoint.exit_code() is not None, cap_s=240)
        reason, line = sglang.cause(endpoint.log_path.read_text(), endpoint.exit_code(), ready=False)
    assert reason is Reason.START_OOM
    assert "leave no GPU memory for the KV cache" in line
    assert "GB were free before" in line


def test_attached_to_it_tells_its_point_and_counts_as_usage_does(
    sglang: Sglang, pair: Served, keeping: Launcher
) -> None:
    with running(sglang, keeping, pair, TREE) as endpoint:
        engine = attach(endpoint.base_url)
        assert engine.version() == sglang.version()
        assert engine.found.point == TREE
        assert engine.found.effective["--max-total-tokens"] == 8192
        assert engine.reset_cache(endpoint)
        assert engine.admission(endpoint) == (0, 0)
        before = engine.generated_tokens(endpoint)
        _, usage, _ = complete(endpoint, engine, prompts(1)[0])
        after = engine.generated_tokens(endpoint)
        assert before is not None and after is not None
        assert abs(after - before - int(usage["completion_tokens"])) <= 1
        assert engine.read_back(endpoint, TREE, pair).speculating

"""vLLM for real, on a CPU: what is asked is in effect, counted, equal in output, and named when it dies.

A server takes half a minute to start: one of each Point serves all tests of this file.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from analysis.settings import changed
from launchers.engines.attached import attach
from launchers.engines.engine import Engine, Served
from launchers.engines.vllm.engine import Vllm
from launchers.launcher import Endpoint, Launch, Launcher
from launchers.port import free_port
from launchers.process import ProcessLauncher
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE, KnobValue, Point, SpecCounters
from tests.contracts.engine_contract import EngineContract
from tests.rigs.build import rig_python
from tests.waiting import wait_for

pytestmark = pytest.mark.rig
PYTHON = rig_python("vllm")
if PYTHON is None and os.environ.get("CI") != "true":
    pytest.skip("build it first: python -m tests.rigs.build vllm", allow_module_level=True)

PAIR = Path(__file__).parent / "pair"
START_CAP_S = 300  # three processes import torch, on whatever is left of two cores
ARGS: dict[str, KnobValue] = {
    "dtype": "float32",
    "max-model-len": 1024,
    "enforce-eager": True,
    "max-num-seqs": 8,
    "max-num-batched-tokens": 1024,
}
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
ENGINE = Vllm(str(PYTHON))
SERVED = Served(PAIR / "target", PAIR / "head", ARGS, ENV)
NGRAM = ENGINE.canonical(
    Point("ngram", {"num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2})
)
EAGLE3 = ENGINE.canonical(Point("eagle3", {"num_speculative_tokens": 3}))
PROMPTS = [json.loads(line)["prompt"] for line in (PAIR / "prompts.jsonl").read_text().splitlines()][:12]
TOKENS = 64


class Pool:
    """A Launcher that leaves servers up, so that the next test with the same command finds its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._real = ProcessLauncher(folder)
        self._up: dict[tuple[str, ...], Endpoint] = {}
        self._servers = ExitStack()

    @contextmanager
    def start(self, launch: Launch) -> Iterator[Endpoint]:
        port = launch.argv.index("--port") + 1
        key = (*launch.argv[:port], *launch.argv[port + 1 :])
        if key not in self._up:
            log = self._folder / f"{len(self._up)}.log"
            own = Launch(launch.argv, launch.port, log, launch.env)
            self._up[key] = self._servers.enter_context(self._real.start(own))
        endpoint = self._up[key]
        wait_for(lambda: ENGINE.is_ready(endpoint) or endpoint.exit_code() is not None, START_CAP_S)
        yield endpoint

    def of(self, point: Point) -> Endpoint:
        port = free_port()
        command = ENGINE.command(point, SERVED, port)
        with self.start(Launch(command, port, self._folder, ENGINE.environment(point, SERVED))) as endpoint:
            return endpoint

    def close(self) -> None:
        self._servers.close()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    assert PYTHON is not None, "the vLLM rig is not built"
    pool = Pool(tmp_path_factory.mktemp("servers"))
    yield pool
    pool.close()


@pytest.mark.timeout(900)
class TestServer(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return ENGINE

    @pytest.fixture
    def served(self) -> Served:
        return SERVED

    @pytest.fixture
    def launcher(self, pool: Pool) -> Launcher:
        return pool

    def test_ready_only_while_it_is_up(self, engine: Engine, served: Served, launcher: Launcher) -> None:
        """Here while it is up; how one that ended looks is seen below, where one is killed anyway."""
        assert isinstance(launcher, Pool)
        assert engine.is_ready(launcher.of(BASELINE))


def completions(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Greedy answers to the prompts, one after the other, each of the same length."""
    asked = {"max_tokens": TOKENS, "temperature": 0, "return_token_ids": True, "model": str(SERVED.model)}
    fields = {**asked, **ENGINE.request_fields(fixed_length=True)}
    answers = [
        requests.post(f"{endpoint.base_url}/v1/completions", json={**fields, "prompt": prompt}, timeout=120)
        for prompt in PROMPTS
    ]
    return [answer.json() for answer in answers]


def token_ids(answers: Sequence[dict[str, Any]]) -> list[list[int]]:
    return [answer["choices"][0]["token_ids"] for answer in answers]


def told_by(answer: dict[str, Any]) -> SpecCounters:
    """What one answer says of its drafts, by the names a stream's event would have."""
    told = answer["metrics"]["speculative_decoding"]
    flat = {
        f"metrics.speculative_decoding.{k}": float(v) for k, v in told.items() if isinstance(v, int | float)
    }
    for i, steps in enumerate(told["acceptance_histogram"]):
        flat[f"metrics.speculative_decoding.acceptance_histogram.{i}"] = float(steps)
    counted = ENGINE.counted_in_reply(flat)
    assert counted is not None
    return counted


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", [NGRAM, EAGLE3], ids=lambda p: p.method)
def test_output_is_the_baseline_s_and_every_count_agrees(pool: Pool, point: Point) -> None:
    plain = token_ids(completions(pool.of(BASELINE)))
    endpoint = pool.of(point)
    ENGINE.reset_cache(endpoint)
    before = ENGINE.counters(endpoint)
    answers = completions(endpoint)
    after = ENGINE.counters(endpoint)
    assert token_ids(answers) == plain
    assert before is not None
    assert after is not None
    counted = after.since(before)
    replies = [told_by(answer) for answer in answers]
    assert counted == sum(replies[1:], replies[0])
    assert counted.drafts > 0
    assert sum(counted.accepted_per_position) == counted.accepted_tokens
    assert all(
        later <= earlier for earlier, later in pairwise((counted.drafts, *counted.accepted_per_position))
    )


@pytest.mark.timeout(900)
def test_the_trained_head_s_drafts_are_accepted(pool: Pool) -> None:
    endpoint = pool.of(EAGLE3)
    before = ENGINE.counters(endpoint)
    completions(endpoint)
    after = ENGINE.counters(endpoint)
    assert before is not None
    assert after is not None
    counted = after.since(before)
    emitted = TOKENS * len(PROMPTS)
    assert emitted / (emitted - counted.accepted_tokens) > 2.0
    [engine] = ENGINE.drafts_by_slot(endpoint)
    assert engine.accepted >= counted.accepted_tokens


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", [NGRAM, EAGLE3], ids=lambda p: p.method)
def test_the_arms_differ_in_speculative_settings_only(pool: Pool, point: Point) -> None:
    baseline = ENGINE.read_back(pool.of(BASELINE), BASELINE, SERVED)
    candidate = ENGINE.read_back(pool.of(point), point, SERVED)
    assert changed(baseline.effective, candidate.effective, ignoring=ENGINE.speculative_settings) == {}
    assert (candidate.rewrites, candidate.point) == ((), None)
    assert candidate.effective["method"] == point.method
    assert baseline.effective["--max-num-seqs"] == 8


@pytest.mark.timeout(900)
def test_another_length_than_asked_is_a_rewrite(pool: Pool) -> None:
    asked = ENGINE.canonical(Point("ngram", {**NGRAM.knobs, "num_speculative_tokens": 6}))
    found = ENGINE.read_back(pool.of(NGRAM), asked, SERVED)
    assert found.point == NGRAM
    with pytest.raises(MeasurementInvalid) as caught:
        ENGINE.read_back(pool.of(NGRAM), BASELINE, SERVED)
    assert caught.value.reason is Reason.IGNORED_SETTING


@pytest.mark.timeout(900)
def test_sampling_that_only_speculation_refuses(pool: Pool) -> None:
    body = {"model": str(SERVED.model), "prompt": "def f", "max_tokens": 2, "min_p": 0.1}
    plain, speculating = (
        requests.post(f"{pool.of(point).base_url}/v1/completions", json=body, timeout=60)
        for point in (BASELINE, NGRAM)
    )
    assert plain.ok
    assert speculating.status_code == 400
    assert ENGINE.refused_sampling(speculating.text, {"min_p"})


@pytest.mark.timeout(900)
def test_it_tells_load_context_and_tokens(pool: Pool) -> None:
    endpoint = pool.of(BASELINE)
    assert ENGINE.counters(endpoint) is None
    assert ENGINE.admission(endpoint) == (0, 0)
    assert ENGINE.context_tokens(endpoint) == 1024
    assert ENGINE.reset_cache(endpoint)
    text = ENGINE.count_tokens(endpoint, {"prompt": "def f(x):"})
    chat = ENGINE.count_tokens(endpoint, {"messages": [{"role": "user", "content": "def f(x):"}]})
    assert 0 < text <= chat


@pytest.mark.timeout(900)
def test_attached_to_it_tells_its_point_and_counts_as_usage_does(pool: Pool) -> None:
    for point in (BASELINE, EAGLE3):
        endpoint = pool.of(point)
        engine = attach(endpoint.base_url)
        assert engine.version() == ENGINE.version()
        assert engine.found.point == point
        assert engine.found.effective["scheduler_config.max_num_seqs"] == 8
        assert engine.reset_cache(endpoint)
        assert engine.admission(endpoint) == (0, 0)
        before = engine.generated_tokens(endpoint)
        tokens = sum(int(answer["usage"]["completion_tokens"]) for answer in completions(endpoint))
        after = engine.generated_tokens(endpoint)
        assert before is not None and after is not None
        assert abs(after - before - tokens) <= 1
        assert (engine.counters(endpoint) is None) is point.is_baseline


@pytest.mark.timeout(900)
def test_a_crash_at_the_first_verified_request_is_named(tmp_path: Path) -> None:
    """It passes its start and its read-back, and ends with exit code 0."""
    point = ENGINE.canonical(Point("ngram", {**NGRAM.knobs, "rejection_sample_method": "synthetic"}))
    ENGINE.check(point, SERVED)
    assert ENGINE.lossy(point, SERVED)
    port = free_port()
    launch = Launch(
        ENGINE.command(point, SERVED, port), port, tmp_path / "log", ENGINE.environment(point, SERVED)
    )
    with ProcessLauncher(tmp_path).start(launch) as endpoint:
        wait_for(lambda: ENGINE.is_ready(endpoint) or endpoint.exit_code() is not None, START_CAP_S)
        assert ENGINE.read_back(endpoint, point, SERVED).point is None
        completions_that_fail(endpoint)
        wait_for(lambda: endpoint.exit_code() is not None, 60)
        assert endpoint.exit_code() == 0
        assert not ENGINE.is_ready(endpoint)
        reason, evidence = ENGINE.cause(launch.log_path.read_text(), endpoint.exit_code(), ready=True)
    assert reason is Reason.CRASH_UNDER_LOAD
    assert evidence == "AssertionError: Synthetic acceptance not supported with CPU sampling"


def completions_that_fail(endpoint: Endpoint) -> None:
    body = {"prompt": "a b c a b c a b c a b c", "max_tokens": 32, "temperature": 0}
    answer = requests.post(f"{endpoint.base_url}/v1/completions", json=body, timeout=60)
    assert not answer.ok


def test_every_flag_and_key_of_the_adapter_is_one_of_this_release() -> None:
    known = ENGINE.known
    assert known.version == "0.32.0"
    assert known.has_arctic_inference
    command = ENGINE.command(EAGLE3, SERVED, 1)
    named = [word for word in command if word.startswith("--")]
    assert all(known.flag(word.replace("--no-", "--", 1)) for word in named)
    for flag in ("--max-num-seqs", "--max-num-batched-tokens", "--performance-mode", "--stream-interval"):
        assert flag in named
    with pytest.raises(UsageError, match="did you mean --max-num-seqs"):
        ENGINE.resolve(str(SERVED.model), None, {"max-num-seq": 3}, {})
    assert "suffix" in ENGINE.methods(SERVED)

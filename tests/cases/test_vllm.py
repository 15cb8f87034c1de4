"""Published failures of vLLM deployments, as data: what it says and what must come of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.acceptance import from_counters
from launchers.engines.engine import Served
from launchers.engines.prometheus import samples
from launchers.engines.vllm.counters import counted_in_reply, counters_of, drafts_by_engine
from launchers.engines.vllm.log import runner_from_log, speculation_from_log
from results.errors import UsageError
from results.reasons import Reason
from results.records import AcceptanceState, KnobValue, Point, SpecCounters
from tests.launchers.test_vllm import ENGINE, engine, with_args
from tests.launchers.test_vllm import plain as plain
from tests.launchers.test_vllm import target as target


def under_load(log: str, exit_code: int | None = 0) -> tuple[Reason, str]:
    return ENGINE.cause(log, exit_code, ready=True)


def at_start(log: str, exit_code: int | None = 1) -> tuple[Reason, str]:
    return ENGINE.cause(log, exit_code, ready=False)


# 07: min_p is refused only when speculating

REFUSED_400 = (
    '{"error":{"message":"The min_p and logit_bias sampling parameters are not yet supported with '
    'speculative decoding.","type":"BadRequestError","param":null,"code":400}}'
)
OLD_WARNING = (
    "WARNING 08-12 10:00:00 [__init__.py:120] min_p, logit_bias, and min_tokens parameters won't currently "
    "work with speculative decoding enabled."
)
# Printed by newer releases at every speculative start, whatever the requests ask for.
START_WARNING = (
    "(Worker pid=25171) WARNING 11-30 03:15:52 [__init__.py:211] min_p and logit_bias parameters won't work "
    "with speculative decoding."
)


def test_refused_and_ignored_sampling_fields_are_found() -> None:
    asked = {"temperature": 0, "min_p": 0.1}
    assert "not yet supported" in (ENGINE.refused_sampling(REFUSED_400, asked) or "")
    found = ENGINE.refused_sampling(f"INFO 08-12 10:00:00 [api.py:1] up\n{OLD_WARNING}\n", asked)
    assert found is not None
    assert found.startswith("min_p, logit_bias, and min_tokens")


def test_the_warning_of_every_start_counts_only_if_the_field_is_asked_for() -> None:
    assert ENGINE.refused_sampling(START_WARNING, {"temperature": 0, "seed": 1, "top_p": 0.9}) is None
    assert "min_p and logit_bias" in (ENGINE.refused_sampling(START_WARNING, {"logit_bias": "{}"}) or "")
    other = '{"error":{"message":"min_p is too large","code":400}}'
    assert ENGINE.refused_sampling(other, {"min_p": 2}) is None


# 09: a draft length for which no graph can be captured

CAPTURE = (
    "RuntimeError: Worker failed with error 'Can't determine cudagraph shapes that are both a multiple of 3 "
    "(num_speculative_tokens + 1) required by spec-decode and 4 (tensor_parallel_size) required by sequence "
    "parallelism please adjust num_speculative_tokens or disable sequence parallelism'"
)
WEIGHTS_LOADED = (
    "(Worker_TP0 pid=7) INFO 11-19 03:14:41 [default_loader.py:314] Loading weights took 5.13 seconds\n"
)


def test_a_refusal_after_the_weights_are_loaded_is_a_refusal() -> None:
    reason, evidence = at_start(f"{WEIGHTS_LOADED}{CAPTURE}\n")
    assert reason is Reason.CONFIG_REJECTED
    assert "multiple of 3" in evidence


SEQUENCE_PARALLEL = "compilation-config.pass_config.enable_sequence_parallelism"


@pytest.mark.parametrize(("tokens", "legal"), [(1, True), (2, False), (3, True), (4, False), (7, True)])
def test_the_releases_with_that_rule_are_not_started(plain: Served, tokens: int, legal: bool) -> None:
    args: dict[str, KnobValue] = {"tensor-parallel-size": 4, SEQUENCE_PARALLEL: True}
    served = replace(plain, args=args)
    point = Point("ngram", {"num_speculative_tokens": tokens})
    ENGINE.check(point, served)  # 0.32 rounds its sizes instead
    old = engine(version="0.12.0")
    if legal:
        old.check(point, served)
    else:
        with pytest.raises(UsageError, match="nearest are"):
            old.check(point, served)
    old.check(point, replace(served, args={"tensor-parallel-size": 4}))
    old.check(point, replace(served, args={SEQUENCE_PARALLEL: True}))


# 18: counters that stay zero

ZEROS = """\
vllm:spec_decode_num_drafts_total{engine="0"} 0.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 0.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 0.0
vllm:generation_tokens_total{engine="0"} 4096.0
"""


def test_zero_drafts_while_tokens_were_generated_is_no_speculation() -> None:
    counted = counters_of(samples(ZEROS))
    assert counted == SpecCounters(0, 0, 0)
    found = from_counters(counted.since(SpecCounters(0, 0, 0)), 4096, method_is_none=False)
    assert found.state is AcceptanceState.NOT_SPECULATING
    assert found.rate is None


def test_without_the_suffix_they_are_the_same_counters() -> None:
    assert counters_of(samples(ZEROS.replace("_total{", "{"))) == SpecCounters(0, 0, 0)


# 63: labels and look-alikes

LABELLED = """\
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 120.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 30.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 210.0
# TYPE vllm:spec_decode_num_accepted_tokens_created gauge
vllm:spec_decode_num_accepted_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 150.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 450.0
vllm:request_decode_time_seconds_sum{engine="0",model_name="m"} 4.2
"""


def test_families_are_matched_whole() -> None:
    counted = counters_of(samples(LABELLED))
    assert counted == SpecCounters(150, 450, 210, (120, 60, 30))
    found = from_counters(counted, 360, method_is_none=False)
    assert found.rate == pytest.approx(0.4667, abs=1e-4)
    assert found.length == pytest.approx(1 + 210 / 150)
    assert found.per_position == pytest.approx((0.8, 0.4, 0.2))


def test_an_absent_series_is_unknown_not_zero() -> None:
    for family in ("drafts", "draft_tokens", "accepted_tokens"):
        page = "\n".join(
            line for line in LABELLED.splitlines() if f"spec_decode_num_{family}_total{{" not in line
        )
        assert counters_of(samples(page)) is None
    assert counters_of([]) is None


def test_engines_of_one_server_are_summed_and_told_apart() -> None:
    second = LABELLED.replace('engine="0"', 'engine="1"').replace("210.0", "0.0")
    second = second.replace("120.0", "0.0").replace("60.0", "0.0").replace("30.0", "0.0")
    page = samples(LABELLED + second)
    assert counters_of(page) == SpecCounters(300, 900, 210, (120, 60, 30))
    assert [(s.slot, s.accepted, s.generated) for s in drafts_by_engine(page)] == [(0, 210, 450), (1, 0, 450)]


def test_positions_that_do_not_add_up_leave_it_unknown() -> None:
    counted = counters_of(samples(LABELLED.replace("210.0", "230.0")))
    found = from_counters(counted, 400, method_is_none=False)
    assert found.state is AcceptanceState.UNKNOWN
    assert "210 over all positions" in found.note


# What a reply tells of its own drafts

REPLY = {
    "metrics.speculative_decoding.mean_acceptance_length": 1.5,
    "metrics.speculative_decoding.draft_acceptance_rate": 0.1667,
    "metrics.speculative_decoding.acceptance_histogram.0": 3.0,
    "metrics.speculative_decoding.acceptance_histogram.1": 2.0,
    "metrics.speculative_decoding.acceptance_histogram.2": 0.0,
    "metrics.speculative_decoding.acceptance_histogram.3": 1.0,
    "metrics.speculative_decoding.num_spec_steps": 6.0,
    "metrics.speculative_decoding.num_accepted_draft_tokens": 5.0,
    "metrics.speculative_decoding.num_draft_tokens": 18.0,
    "metrics.speculative_decoding.num_spec_tokens": 3.0,
    "metrics.time_to_first_token_ms": 12.0,
}


def test_a_reply_counts_as_the_counters_do() -> None:
    assert counted_in_reply(REPLY) == SpecCounters(6, 18, 5, (3, 1, 1))
    assert ENGINE.counted_in_reply({"metrics.time_to_first_token_ms": 12.0}) is None
    assert ENGINE.counted_in_reply({}) is None


# 38: the engine dies and the server stays up


DEAD_ENGINE = """\
(EngineCore_DP0 pid=311) ERROR 07-01 11:07:27 [core.py:708] Traceback (most recent call last):
(EngineCore_DP0 pid=311) ERROR 07-01 11:07:27 [core.py:708]     output = self.model_executor.execute_model(x)
(EngineCore_DP0 pid=311) ERROR 07-01 11:07:27 [core.py:708] torch.AcceleratorError: CUDA error: an illegal \
memory access was encountered
(APIServer pid=1) ERROR 07-01 11:07:27 [async_llm.py:480] vllm.v1.engine.exceptions.EngineDeadError: \
EngineCore encountered an issue. See stack trace (above) for the root cause.
(APIServer pid=1) INFO:     127.0.0.1:53816 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
"""
# The published log had the echo first.
ECHO_FIRST = """\
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the \
root cause.
torch.AcceleratorError: CUDA error: an illegal memory access was encountered
"""


@pytest.mark.parametrize("log", [DEAD_ENGINE, ECHO_FIRST])
@pytest.mark.parametrize("exit_code", [None, 0, 1])
def test_a_dead_engine_is_a_crash_whatever_the_exit_code(log: str, exit_code: int | None) -> None:
    reason, evidence = under_load(log, exit_code)
    assert reason is Reason.CRASH_UNDER_LOAD
    assert evidence == "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


SYNTHETIC = """\
(Worker pid=8813) ERROR 11-30 03:26:07 [multiproc_executor.py:1063] Traceback (most recent call last):
(Worker pid=8813) ERROR 11-30 03:26:07 [multiproc_executor.py:1063]     assert not SYNTHETIC_MODE, \
"Synthetic acceptance not supported with CPU sampling"
(Worker pid=8813) ERROR 11-30 03:26:07 [multiproc_executor.py:1063] AssertionError: Synthetic acceptance not \
supported with CPU sampling
(Worker pid=8813) ERROR 11-30 03:26:07 [multiproc_executor.py:1063]
(EngineCore pid=8244) ERROR 11-30 03:26:07 [dump_input.py:81] Dumping scheduler stats: SchedulerStats(x=1)
(EngineCore pid=8244) ERROR 11-30 03:26:07 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=8244) ERROR 11-30 03:26:07 [core.py:1512] RuntimeError: Worker failed with error 'Synthetic \
acceptance not supported with CPU sampling', please check the stack trace above for the root cause
(EngineCore pid=8244) INFO 11-30 03:26:07 [multiproc_executor.py:479] [shutdown] Executor: waiting for worker
(APIServer pid=7707) ERROR 11-30 03:26:07 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: \
EngineCore encountered an issue. See stack trace (above) for the root cause.
(APIServer pid=7707) ERROR 11-30 03:26:07 [serving.py:500] Error in completion stream generator.
INFO:     Application shutdown complete.
nanobind: leaked 64 types!
 - leaked type "triton._C.libtriton.ir.location"
  warnings.warn('resource_tracker: There appear to be %d '
"""


def test_the_root_is_found_below_and_above_its_echoes() -> None:
    found = under_load(SYNTHETIC, 0)
    assert found == (
        Reason.CRASH_UNDER_LOAD,
        "AssertionError: Synthetic acceptance not supported with CPU sampling",
    )


def test_a_dead_worker_without_an_exception_is_a_crash() -> None:
    log = (
        "(EngineCore pid=2) ERROR 11-30 03:26:07 [multiproc_executor.py:316] Worker proc VllmWorker-1 died "
        "unexpectedly (exit code: -9), shutting down executor.\n"
    )
    reason, evidence = under_load(log, 0)
    assert reason is Reason.CRASH_UNDER_LOAD
    assert "VllmWorker-1 died unexpectedly" in evidence


def test_a_server_that_was_told_to_stop_did_not_crash() -> None:
    log = (
        "(EngineCore pid=3) INFO 11-30 03:29:27 [core.py:1454] [shutdown] EngineCore: trigger received "
        "signal=SIGTERM\n" + DEAD_ENGINE.splitlines(keepends=True)[-2]
    )
    assert under_load(log, 0)[0] is Reason.SERVER_DIED


def test_requests_that_failed_by_themselves_are_no_crash() -> None:
    log = (
        "(APIServer pid=1) ERROR 11-30 03:26:07 [serving.py:9] ValueError: The prompt is too long\n"
        "(APIServer pid=1) ERROR 11-30 03:26:08 [serving.py:9] VLLMValidationError: The min_p and logit_bias "
        "sampling parameters are not yet supported with speculative decoding.\n"
    )
    assert under_load(log, None)[0] is Reason.HANG  # the server still runs
    assert under_load(log, 0)[0] is Reason.SERVER_DIED


def test_a_worker_that_stopped_answering_is_a_hang() -> None:
    log = (
        "(EngineCore pid=2) ERROR 11-30 03:26:07 [core.py:9] TimeoutError: RPC call to sample_tokens timed "
        "out.\n" + DEAD_ENGINE.splitlines(keepends=True)[-2]
    )
    assert under_load(log, 0)[0] is Reason.HANG


# Failed starts: the root among the noise

INIT_FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
)


@pytest.mark.parametrize(
    ("root", "stage"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
            "KV cache",
        ),
        (
            "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV "
            "cache is needed, which is larger than the available KV cache memory (3.1 GiB).",
            "KV cache",
        ),
        (
            "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that "
            "can be stored in KV cache (24528).",
            "KV cache",
        ),
        (
            "ValueError: Free memory on device cuda:0 (4.1/23.6 GiB) on startup is less than desired GPU "
            "memory utilization (0.92, 21.7 GiB).",
            "before loading",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.", "weights"),
    ],
)
def test_out_of_memory_at_start_says_for_what(root: str, stage: str) -> None:
    log = (
        "(Worker pid=9) INFO 11-30 03:14:41 [gpu_model_runner.py:9] Starting to load model m...\n"
        f"(Worker pid=9) ERROR 11-30 03:14:44 [worker.py:1] {root}\n"
        + "(EngineCore pid=8) ERROR 11-30 03:14:44 [core.py:1510]   File x\n" * 100
        + INIT_FAILED
    )
    reason, evidence = at_start(log)
    assert reason is Reason.START_OOM
    assert evidence == f"{stage}: {root}"


def test_out_of_memory_while_graphs_are_captured_has_the_figures() -> None:
    log = (
        "(Worker pid=9) INFO 1-1 1:1:1 [a.py:1] Model loading took 14.99 GiB memory and 7.1 seconds\n"
        "(Worker pid=9) INFO 1-1 1:1:2 [a.py:1] Available KV cache memory: 5.31 GiB\n"
        "(Worker pid=9) \rCapturing CUDA graphs (decode, FULL):  40%|####      | 14/35\n"
        "(Worker pid=9) ERROR 1-1 1:1:3 [a.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB.\n"
        + INIT_FAILED
    )
    reason, evidence = at_start(log)
    assert reason is Reason.START_OOM
    assert evidence.startswith("graph capture: torch.OutOfMemoryError")
    assert "Model loading took 14.99 GiB" in evidence
    assert "Available KV cache memory: 5.31 GiB" in evidence


@pytest.mark.parametrize(
    ("log", "exit_code", "reason", "told"),
    [
        (
            "usage: vllm [-h] [-v]\nvllm: error: unrecognized arguments: --no-such-flag 3\n",
            2,
            Reason.UNSUPPORTED_FLAG,
            "--no-such-flag",
        ),
        (
            "vllm serve: error: ambiguous option: --max-num could match --max-num-seqs, --max-num-x\n",
            2,
            Reason.UNSUPPORTED_FLAG,
            "ambiguous",
        ),
        (
            "vllm serve: error: argument --max-num-seqs: invalid int value: 'eight'\n",
            2,
            Reason.CONFIG_REJECTED,
            "'eight'",
        ),
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
            "  Value error, prompt_lookup_min=5 must be <= prompt_lookup_max=2 [type=value_error, input=A]\n"
            "    For further information visit https://errors.pydantic.dev/2.14/v/value_error\n",
            1,
            Reason.CONFIG_REJECTED,
            "prompt_lookup_min=5 must be <= prompt_lookup_max=2",
        ),
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
            "method\n"
            "  Input should be 'ngram', 'medusa' or 'mtp' [type=literal_error, input_value='telepathy']\n",
            1,
            Reason.CONFIG_REJECTED,
            "method: Input should be 'ngram'",
        ),
        (
            "(EngineCore pid=2) ERROR 11-30 03:24:00 [core.py:1510] ValueError: The first batch-size range "
            "must start at 1 so every runtime batch size has a defined schedule.\n" + INIT_FAILED,
            1,
            Reason.CONFIG_REJECTED,
            "must start at 1",
        ),
        (
            "ImportError: Arctic Inference is required for suffix decoding. "
            "Install via `pip install arctic-inference==0.1.1`.\n",
            1,
            Reason.START_FAILED,
            "Arctic Inference",
        ),
        ("/usr/bin/python3: No module named vllm\n", 1, Reason.START_FAILED, "No module named vllm"),
        (
            "OSError: [Errno 98] Address already in use\n",
            1,
            Reason.WRONG_SERVER,
            "Address already in use",
        ),
        (
            "(Worker_TP1 pid=9) ERROR 1-1 1:1:3 [a.py:1] RuntimeError: NCCL error: invalid usage (run with "
            "NCCL_DEBUG=WARN for details)\n" + INIT_FAILED,
            1,
            Reason.NCCL_REJECTED,
            "invalid usage",
        ),
        (
            "OSError: m does not appear to have a file named config.json.\n" + INIT_FAILED,
            1,
            Reason.START_FAILED,
            "config.json",
        ),
        (INIT_FAILED, 1, Reason.START_FAILED, "Engine core initialization failed"),
    ],
)
def test_failed_starts_are_named(log: str, exit_code: int, reason: Reason, told: str) -> None:
    found, evidence = at_start(log, exit_code)
    assert found is reason
    assert told in evidence
    assert "\n" not in evidence


PREFIXES = (
    "",
    "\x1b[0;36m(EngineCore_DP0 pid=7)\x1b[0;0m ERROR 11-30 03:26:07 [core.py:9] ",
    "(Worker_TP0_EP0 pid=7, ip=10.0.0.2) ERROR 11-30 03:26:07 [worker.py:9] ",
    "2026-11-30T03:26:07.123456789Z (EngineCore pid=7) ERROR 11-30 03:26:07 [core.py:9] ",
    "ERROR 11-30 03:26:07.123 [core.py:9] ",
    "[rank0]: ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_processes_times_and_colours_do_not_hide_the_cause(prefix: str) -> None:
    log = f"{prefix}torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    found = under_load(log + DEAD_ENGINE.splitlines(keepends=True)[-2], 0)
    assert found[1] == "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


def test_a_log_in_json_is_read_too() -> None:
    raised = "Traceback (most recent call last):\n  File x\ntorch.AcceleratorError: CUDA error: illegal"
    lines = (
        {"levelname": "ERROR", "message": "EngineCore encountered a fatal error.", "exc_info": raised},
        {"levelname": "INFO", "message": "[shutdown] Executor: waiting"},
    )
    log = "".join(f"(EngineCore pid=7) {json.dumps(line)}\n" for line in lines)
    assert under_load(log) == (Reason.CRASH_UNDER_LOAD, "torch.AcceleratorError: CUDA error: illegal")
    assert under_load('{"message" is no JSON\n')[0] is Reason.SERVER_DIED


# What the start lines tell

STARTED = (
    "(EngineCore pid=25017) INFO 11-30 03:15:44 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with "
    "config: model='m', speculative_config={}, tokenizer='m', dtype=torch.float32\n"
)


def test_the_start_line_tells_the_method() -> None:
    on = "SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)"
    assert speculation_from_log(STARTED.format(on)) == ("ngram", 3)
    assert speculation_from_log(STARTED.format("None")) == (None, None)
    assert speculation_from_log("nothing of the kind") is None


def test_the_older_model_runner_is_told() -> None:
    line = "(APIServer pid=1) WARNING 11-30 03:14:28 [vllm.py:725] {}; using the V1 model runner instead."
    assert (
        runner_from_log(line.format("Model Runner V2 does not yet support speculative method 'suffix'"))
        == "V1"
    )
    assert runner_from_log(STARTED) is None


# 60: a setting that changes what is said is no speed-up


def test_what_changes_the_output_is_called_lossy(plain: Served, tmp_path: Path) -> None:
    served = with_args(plain)
    fly = engine(rejection_sample_methods=("standard", "fly"))
    point = Point("ngram", {"rejection_sample_method": "fly"})
    fly.check(point, served)
    assert "rejected" in fly.lossy(point, served)
    assert all(not ENGINE.lossy(p, served) for p in ENGINE.starting_points(served))
    grids = [knob.grid for knobs in fly.methods(served).values() for knob in knobs]
    assert not any("fly" in grid or "synthetic" in grid for grid in grids)

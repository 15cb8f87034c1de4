"""How SGLang servers ended, as data: the reason and the one line that shows it, among hundreds."""

import pytest

from launchers.engines.sglang.log import cause_from_log
from results.reasons import Reason

# 34: the scheduler hangs while /health answers 200, and its watchdog ends it


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        "[TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "[2026-01-01 00:00:00 DP1 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300)",
        "[2026-01-01 00:00:00] Watchdog timeout (self.watchdog_timeout=300)",
    ],
)
def test_the_watchdog_means_a_hang(line: str, ready: bool) -> None:
    log = f"[2026-01-01 00:00:00] server_args={{'watchdog_timeout': 300}}\n{line}\nRuntimeError: x\n"
    reason, evidence = cause_from_log(log, -9, ready=ready)
    assert reason is Reason.HANG
    assert evidence.split("] ")[-1] == evidence
    assert "atchdog timeout" in evidence


# 35: no memory is left for the CUDA graphs


GRAPHS = """\
[TP0] Load weight begin. avail mem=78.50 GB
[TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=62.90 GB, mem usage=15.60 GB.
[TP0] Load weight begin. avail mem=4.10 GB
Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB.
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
"""
KV = (
    "[2026-01-01 00:00:00] Load weight begin. avail mem=19.22 GB\n"
    "[2026-01-01 00:00:00] Scheduler hit an exception: Traceback (most recent call last):\n"
    "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.0001.\n"
    "[2026-01-01 00:00:01] Received sigquit from a child process. It usually means the child failed.\n"
)
OLDER_KV = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
WEIGHTS = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has ...\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (GRAPHS, ["Capture cuda graph failed", "2.00 GiB", "4.10 GB were free before"]),
        (KV, ["leave no GPU memory for the KV cache", "19.22 GB"]),
        (OLDER_KV, ["Not enough memory"]),
        (WEIGHTS, ["1.96 GiB"]),
    ],
)
def test_memory_that_does_not_suffice_is_told_with_its_figures(log: str, words: list[str]) -> None:
    reason, line = cause_from_log(log, 1, ready=False)
    assert reason is Reason.START_OOM
    assert all(word in line for word in words), line
    assert cause_from_log(log, 1, ready=True)[0] is Reason.CRASH_UNDER_LOAD


# Other ends, from logs of 0.5.23


NOISE = """\
/site-packages/sglang/launch_server.py:71: UserWarning: 'python -m sglang.launch_server' is still supported
  warnings.warn(
[2026-01-01 00:00:00] server_args={'model_path': 'm', 'watchdog_timeout': 300}
[2026-01-01 00:00:01] post-warmup freeze_gc failed
Traceback (most recent call last):
  File "urllib3/connectionpool.py", line 787, in urlopen
urllib3.exceptions.MaxRetryError: HTTPConnectionPool(host='127.0.0.1', port=1): Max retries exceeded
"""
CRASH = """\
[2026-01-01 00:25:35] Scheduler hit an exception: Traceback (most recent call last):
  File "sglang/srt/managers/scheduler.py", line 6365, in run_scheduler_process
    dispatch_event_loop(scheduler)
  File "sglang/srt/speculative/eagle_utils.py", line 110, in organize_draft_results
    top_scores = torch.topk(score_list, num_draft_token - 1, dim=-1)
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: selected index k out of range

[2026-01-01 00:25:35] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
nanobind: leaked 518 functions!
 - leaked function "__init__"
See https://nanobind.readthedocs.io/en/latest/refleaks.html[2026-01-01 00:25:40] No live scheduler
[2026-01-01 00:25:40] kill_process_tree called: parent_pid=7317, include_parent=True, pid=7317
"""
CHAIN_OF_CAUSES = """\
Traceback (most recent call last):
  File "transformers/utils/hub.py", line 537, in cached_files
huggingface_hub.errors.HFValidationError: something inner

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "sglang/srt/arg_groups/speculative_hook.py", line 1162, in _handle_eagle_family
ValueError: the outer one says what to do
"""
BARE = """\
Traceback (most recent call last):
  File "sglang/srt/arg_groups/speculative_hook.py", line 1162, in _handle_eagle_family
    and cfg.speculative_num_draft_tokens is None
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
AssertionError
"""
ECHO = """\
[2026-01-01 00:00:00] Scheduler hit an exception: Traceback (most recent call last):
  File "sglang/srt/speculative/draft_utils.py", line 153, in _create_backend
ValueError: EAGLE is not supported in decode attention backend torch_native

Traceback (most recent call last):
  File "sglang/srt/entrypoints/engine.py", line 1, in _wait_for_scheduler_ready
EOFError
"""


@pytest.mark.parametrize(
    ("log", "exit_code", "ready", "reason", "words"),
    [
        (NOISE + CRASH, -9, True, Reason.CRASH_UNDER_LOAD, "RuntimeError: selected index k out of range"),
        (NOISE + CRASH, 0, False, Reason.START_FAILED, "RuntimeError: selected index k out of range"),
        (NOISE, -9, True, Reason.SERVER_DIED, "killed by SIGKILL"),
        (NOISE, None, True, Reason.HANG, "still running"),
        (NOISE, None, False, Reason.START_TIMEOUT, "still running"),
        (NOISE, 1, False, Reason.START_FAILED, "MaxRetryError"),
        ("[2026-01-01 00:00:00] loading", None, False, Reason.START_TIMEOUT, "still running: loading"),
        (CHAIN_OF_CAUSES, 1, False, Reason.CONFIG_REJECTED, "ValueError: the outer one says what to do"),
        (
            BARE,
            1,
            False,
            Reason.CONFIG_REJECTED,
            "AssertionError at `and cfg.speculative_num_draft_tokens is None`",
        ),
        (
            ECHO,
            1,
            False,
            Reason.CONFIG_REJECTED,
            "EAGLE is not supported in decode attention backend torch_native",
        ),
        (
            "usage: sglang serve [-h]\nsglang serve: error: unrecognized arguments: --no-such-flag 1\n",
            2,
            False,
            Reason.UNSUPPORTED_FLAG,
            "unrecognized arguments: --no-such-flag 1",
        ),
        (
            "sglang serve: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max\n",
            2,
            False,
            Reason.UNSUPPORTED_FLAG,
            "ambiguous option",
        ),
        (
            "sglang serve: error: argument --attention-backend: invalid choice: 'x' (choose from 'triton')\n",
            2,
            False,
            Reason.CONFIG_REJECTED,
            "invalid choice",
        ),
        (
            "Traceback (most recent call last):\nValueError: Unknown speculative algorithm name: FOO\n",
            1,
            False,
            Reason.CONFIG_REJECTED,
            "Unknown speculative algorithm name: FOO",
        ),
        (
            "ERROR:    [Errno 98] error while attempting to bind on address: address already in use",
            1,
            False,
            Reason.WRONG_SERVER,
            "address already in use",
        ),
        (
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'sgl_kernel'\n",
            1,
            False,
            Reason.START_FAILED,
            "No module named 'sgl_kernel'",
        ),
        (
            "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/no/model'.\n",
            1,
            False,
            Reason.START_FAILED,
            "Repo id must be in the form",
        ),
        (
            "[2026-01-01 00:00:00 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, ncclInvalidUsage\n",
            1,
            False,
            Reason.NCCL_REJECTED,
            "ncclInvalidUsage",
        ),
        ("", 3, True, Reason.SERVER_DIED, "exit code 3: the log is empty"),
        ("", -11, True, Reason.CRASH_UNDER_LOAD, "SIGSEGV"),
    ],
)
def test_the_one_line_is_found(
    log: str, exit_code: int | None, ready: bool, reason: Reason, words: str
) -> None:
    found, line = cause_from_log(log, exit_code, ready=ready)
    assert found is reason, line
    assert words in line

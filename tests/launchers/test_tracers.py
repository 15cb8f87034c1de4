"""How each engine is traced: what a launch needs, what is asked of the server, where the files lie."""

import json
from pathlib import Path

import pytest

from launchers.engines import instrumented
from launchers.engines.attached import Attached, Found
from launchers.engines.llamacpp.engine import LlamaCpp
from launchers.engines.sglang.tracer import SglangTracer, step_times_s
from launchers.engines.vllm.tracer import VllmTracer
from launchers.fake import FakeEngine
from launchers.launcher import Launch
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE
from tests.launchers.http_server import canned

LAUNCH = Launch(("python", "-m", "server"), 1, Path("log"), {"A": "1"})


def test_a_launch_is_prepared_and_may_write(tmp_path: Path) -> None:
    sglang = instrumented(LAUNCH, SglangTracer(tmp_path))
    assert sglang.argv == LAUNCH.argv
    assert sglang.env == {
        "A": "1",
        "SGLANG_TORCH_PROFILER_DIR": str(tmp_path),
        "SGLANG_RECORD_STEP_TIME": "1",
    }
    vllm = instrumented(LAUNCH, VllmTracer(tmp_path, stacks=True))
    flag, config = vllm.argv[3:]
    assert flag == "--profiler-config"
    assert json.loads(config)["torch_profiler_dir"] == str(tmp_path)
    assert json.loads(config)["torch_profiler_with_stack"] is True
    assert vllm.writes == sglang.writes == (tmp_path,)


def test_an_older_vllm_is_told_by_variables(tmp_path: Path) -> None:
    older = instrumented(LAUNCH, VllmTracer(tmp_path, has_flag=False))
    assert older.argv == LAUNCH.argv
    assert older.env["VLLM_TORCH_PROFILER_DIR"] == str(tmp_path)
    assert older.env["VLLM_TORCH_PROFILER_WITH_STACK"] == "0"


def test_files_of_all_ranks_in_their_order(tmp_path: Path) -> None:
    def made(*names: str) -> list[Path]:
        for name in names:
            (tmp_path / name).touch()
        return [tmp_path / name for name in names]

    sglang = made(*(f"1796037.5-TP-{rank}.trace.json.gz" for rank in (0, 2, 10)))
    vllm = made(*(f"rank{rank}.179603725148238132.pt.trace.json.gz" for rank in (0, 2, 10)))
    made("host_77.async_llm.1796.pt.trace.json.gz", "rank0.profiler_out.txt")
    assert SglangTracer(tmp_path).files() == sglang
    assert VllmTracer(tmp_path).files() == vllm


def test_step_times_of_all_ranks_by_batch_size() -> None:
    states = [{"step_time_dict": {"1": [0.5, 0.01], "4": [0.02]}}, {"step_time_dict": {"1": [0.011]}}, {}]
    assert step_times_s({"internal_states": states}) == {1: [0.5, 0.01, 0.011], 4: [0.02]}
    assert step_times_s({"version": "older"}) == {}


@pytest.mark.parametrize("kind", [SglangTracer, VllmTracer])
def test_a_profiler_that_refuses_is_quoted(kind: type[SglangTracer | VllmTracer], tmp_path: Path) -> None:
    with canned({"/start_profile": "Start profiling.\n"}, tmp_path / "log") as endpoint:
        tracer = kind(tmp_path)
        tracer.start(endpoint)
        with pytest.raises(MeasurementInvalid, match="stop_profile: HTTP 404") as refused:
            tracer.stop(endpoint)
    assert refused.value.reason is Reason.TRACE_UNUSABLE


def test_engines_without_a_profiler_say_so(tmp_path: Path) -> None:
    attached = Attached("http://host:1", Found("1", "m", BASELINE, {}))
    for engine, said in (
        (LlamaCpp(), "llama.cpp has no profiler endpoint"),
        (FakeEngine(), "no profiler"),
        (attached, "http://host:1: a server that somebody else runs writes its trace on its own machine"),
    ):
        with pytest.raises(UsageError, match=said):
            engine.tracer(BASELINE, tmp_path)

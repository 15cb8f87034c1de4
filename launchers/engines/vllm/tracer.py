"""vLLM traced by its own endpoints, which are there only if the server was started for it.

From `config/profiler.py`, `profiler/wrapper.py` and `v1/worker/gpu_worker.py` of 0.32: every worker writes
`[prefix_]<rank>.<nanoseconds>.pt.trace.json.gz`, and `/stop_profile` answers after that. Workers mark their
steps; the parts of a step are marked if VLLM_CUSTOM_SCOPES_FOR_PROFILING asks for it, and by the first
model runner alone. Older releases know variables in place of the flag.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launchers.engines.traces import by_rank, told
from launchers.launcher import Endpoint

PROFILER_CONFIG = "--profiler-config"
FRONTEND = "async_llm"  # in the name of a file of the API server, which runs no model


@dataclass(frozen=True, slots=True)
class VllmTracer:
    """The Tracer of vLLM's servers. `has_flag`: this release has --profiler-config."""

    folder: Path
    stacks: bool = False
    has_flag: bool = True

    @property
    def words(self) -> tuple[str, ...]:
        if not self.has_flag:
            return ()
        config = {
            "profiler": "torch",
            "torch_profiler_dir": str(self.folder),
            "torch_profiler_with_stack": self.stacks,
            "torch_profiler_dump_cuda_time_total": False,  # a table in the log that nobody reads here
            "ignore_frontend": True,
        }
        return (PROFILER_CONFIG, json.dumps(config))

    @property
    def variables(self) -> Mapping[str, str]:
        scopes = {"VLLM_CUSTOM_SCOPES_FOR_PROFILING": "1"}
        if self.has_flag:
            return scopes
        stacks = str(int(self.stacks))
        older = {"VLLM_TORCH_PROFILER_DIR": str(self.folder), "VLLM_TORCH_PROFILER_WITH_STACK": stacks}
        return {**scopes, **older}

    def start(self, endpoint: Endpoint) -> None:
        told("POST", f"{endpoint.base_url}/start_profile")

    def stop(self, endpoint: Endpoint) -> None:
        told("POST", f"{endpoint.base_url}/stop_profile")

    def files(self) -> Sequence[Path]:
        written = self.folder.glob("*.pt.trace.json.gz")
        return by_rank(file for file in written if FRONTEND not in file.name)

    def step_times_s(self, endpoint: Endpoint) -> Mapping[int, Sequence[float]]:
        return {}  # it keeps none

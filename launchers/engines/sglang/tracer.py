"""SGLang traced by its own endpoints, and the step times that it keeps.

From `srt/managers/scheduler_components/profiler_manager.py` of 0.5.23: every rank writes
`<id>-TP-<rank>[-DP-..][-PP-..][-EP-..].trace.json.gz`, and `/stop_profile` answers after that. Its
scheduler marks steps and stages by itself while a trace is taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchers.engines.sglang.server_info import server_info
from launchers.engines.traces import by_rank, told
from launchers.launcher import Endpoint


@dataclass(frozen=True, slots=True)
class SglangTracer:
    """The Tracer of SGLang's servers."""

    folder: Path
    stacks: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        return ()

    @property
    def variables(self) -> Mapping[str, str]:
        return {"SGLANG_TORCH_PROFILER_DIR": str(self.folder), "SGLANG_RECORD_STEP_TIME": "1"}

    def start(self, endpoint: Endpoint) -> None:
        asked = {
            "output_dir": str(self.folder),
            "activities": ["CPU", "GPU"],
            "with_stack": self.stacks,
            "record_shapes": False,
        }
        told("POST", f"{endpoint.base_url}/start_profile", asked)

    def stop(self, endpoint: Endpoint) -> None:
        told("POST", f"{endpoint.base_url}/stop_profile")

    def files(self) -> Sequence[Path]:
        return by_rank(self.folder.glob("*-TP-*.trace.json.gz"))

    def step_times_s(self, endpoint: Endpoint) -> Mapping[int, Sequence[float]]:
        return step_times_s(server_info(endpoint))


def step_times_s(info: Mapping[str, Any]) -> Mapping[int, Sequence[float]]:
    """`step_time_dict` of `/server_info`, of all data-parallel ranks: seconds of each step by batch size.

    A step after a pause counts the pause, so a median says more than a mean.
    """
    found: dict[int, list[float]] = {}
    for state in info.get("internal_states") or ():
        for size, times in (state.get("step_time_dict") or {}).items():
            found.setdefault(int(size), []).extend(float(t) for t in times)
    return found

"""Which boundaries vLLM captures for the layer ids of a draft's config, by its model runner.

In vLLM an id is a boundary. What differs is which key of the config is read.
Read from vLLM 0.32 and 0.33: `v1/worker/gpu/spec_decode/eagle/eagle3_utils.py` (V2),
`v1/worker/gpu_model_runner.py` (V1), `model_executor/models/interfaces.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from launchers.engines.wiring import Drafting, default_boundaries, version_of
from results.checkpoint import Checkpoint
from results.head_config import Head

V1, V2 = "V1", "V2"
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
# Runner V2 unless told otherwise, from release to release (PR #44443, notes of 0.25, 0.29).
V2_FOR_DENSE = (0, 25)
V2_FOR_ALL = (0, 29)
# Settings of --speculative-config and flags that V2 leaves to V1 (config/vllm.py, 0.32).
ONLY_V1 = ("speculative-config.parallel_drafting", "enable-dbo")
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
# Their decoder adds the residual to the state before layer 0, where there is none (deepseek_v2.py).
NO_EMBEDDING = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "KimiK25ForConditionalGeneration",
    "MistralLarge3ForCausalLM",
)


@dataclass(frozen=True, slots=True)
class Runner:
    name: str
    because: str


def runner_of(drafting: Drafting) -> Runner:
    """Which of its two model runners vLLM uses for this."""
    set_to = drafting.variables.get(RUNNER_VARIABLE, "")
    if set_to:
        return Runner(V2 if set_to not in ("0", "false", "False") else V1, f"{RUNNER_VARIABLE}={set_to}")
    version = version_of(drafting.version)
    if "cpu" in drafting.version or drafting.text("device") == "cpu":
        return Runner(V1, "on a CPU there is no Triton, which V2 needs")
    if version and version < V2_FOR_DENSE:
        return Runner(V1, f"V2 was not the default before {_release(V2_FOR_DENSE)}")
    if version and version < V2_FOR_ALL and _is_sparse(drafting.target):
        return Runner(V1, f"V2 was not the default for models of experts before {_release(V2_FOR_ALL)}")
    if any(drafting.is_on(name) for name in ONLY_V1):
        return Runner(V1, "V2 cannot do what the flags ask for")
    return Runner(V2, f"the default since {_release(V2_FOR_DENSE)}")


def _release(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _is_sparse(target: Checkpoint) -> bool:
    return any(target.whole(name) for name in EXPERTS)


def ids_read(head: Head, runner: str) -> tuple[int, ...] | None:
    """The ids that this runner reads; None: it takes its default."""
    if head.outer_ids:
        return head.outer_ids
    if head.is_speculators:  # only the key at the top comes through (configs/speculators/algos.py)
        return None
    if runner == V1:
        return head.nested_ids
    other = head.nested.get("layer_ids")
    is_list = isinstance(other, list) and all(type(one) is int for one in other)
    return tuple(other) if is_list and other else None


def captured(ids: Sequence[int] | None, target: Checkpoint, layers: int) -> tuple[int, ...]:
    """Boundaries in the order in which they stand side by side: ascending, each once."""
    if ids is None:
        return default_boundaries(layers)
    first = int(target.architecture in NO_EMBEDDING)
    return tuple(b for b in sorted(set(ids)) if first <= b <= layers)

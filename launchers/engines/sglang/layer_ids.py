"""Which boundaries SGLang captures for the layer ids of a draft's config, by architecture and version.

Its models number layers in three ways. Each row below is `set_eagle3_layers_to_capture` of that model's
file in `sglang/srt/models/`, read in the wheels 0.5.8 to 0.5.23.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launchers.engines.wiring import default_boundaries

OUTPUTS = "an id means the output of that layer"  # b = id + 1
FIRST_ID = "an id means a layer's output if the first one is 1, else its input"
LAST_ID = "an id means a layer's input if the largest one is the number of layers, else its output"


@dataclass(frozen=True, slots=True)
class Family:
    """Models that share one way to number layers."""

    architectures: tuple[str, ...]
    rule: str
    since: tuple[int, ...]  # before that, OUTPUTS
    source: str


DEEPSEEK = Family(
    (
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "GlmMoeDsaForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "KimiK25ForConditionalGeneration",
        "MistralLarge3ForCausalLM",
    ),
    FIRST_ID,
    (0, 5, 13),
    "SGLang PR #25454: models/deepseek_v2.py and glm4_moe_lite.py since 0.5.13, id + 1 up to 0.5.12.post1",
)
GPT_OSS = Family(
    ("GptOssForCausalLM",),
    LAST_ID,
    (0, 5, 17),
    "SGLang issue #32226: models/gpt_oss.py since 0.5.17, id + 1 up to 0.5.16",
)
FAMILIES = (DEEPSEEK, GPT_OSS)
OTHERS = Family((), OUTPUTS, (), "SGLang models/llama.py and all others: b = id + 1")
# These shift the default as well (models/minimax_m3_vl.py).
SHIFTED_DEFAULT = ("MiniMaxM3SparseForConditionalGeneration",)
# These capture the last boundary; all others stop before it (layers/logits_processor.py).
CAPTURE_LAST = {
    "GptOssForCausalLM": (0, 5, 17),
    "MiniMaxM3SparseForCausalLM": (0, 5, 23),
    "MiniMaxM3SparseForConditionalGeneration": (0, 5, 23),
}
LATEST = (9999,)  # of a version that is not known


def family_of(architecture: str) -> Family:
    return next((family for family in FAMILIES if architecture in family.architectures), OTHERS)


def rule_of(architecture: str, version: tuple[int, ...]) -> str:
    family = family_of(architecture)
    return family.rule if (version or LATEST) >= family.since else OUTPUTS


def captured(
    ids: Sequence[int] | None, architecture: str, version: tuple[int, ...], layers: int
) -> tuple[int, ...]:
    """Boundaries in the order in which they stand side by side: always ascending, each once.

    Ids that hit none are lost: the capture is `if i in ids` before each layer i.
    """
    if ids is None:
        shift = int(architecture in SHIFTED_DEFAULT)
        return tuple(b + shift for b in default_boundaries(layers))
    last = reaches_last(architecture, version)
    return tuple(
        sorted({b for b in _meant(ids, rule_of(architecture, version), layers) if 0 <= b < layers + last})
    )


def reaches_last(architecture: str, version: tuple[int, ...]) -> bool:
    since = CAPTURE_LAST.get(architecture)
    return since is not None and (version or LATEST) >= since


def _meant(ids: Sequence[int], rule: str, layers: int) -> Iterable[int]:
    as_they_are = (rule == FIRST_ID and ids[0] != 1) or (rule == LAST_ID and max(ids) == layers)
    return ids if as_they_are else [i + 1 for i in ids]


def ids_for(
    boundaries: Sequence[int], architecture: str, version: tuple[int, ...], layers: int
) -> tuple[int, ...] | None:
    """Ids that make it capture these boundaries; None if there are none.

    Where the first id decides, the order in the config is free: another may stand first.
    """
    wanted = tuple(boundaries)
    turned = (*wanted[1:], *wanted[:1])
    for ids in (tuple(b - 1 for b in wanted), wanted, turned):
        if ids and captured(ids, architecture, version, layers) == wanted:
            return ids
    return None

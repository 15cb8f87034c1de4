"""What the config.json of a drafter says, whichever trainer wrote it; what makes no sense is left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from results.checkpoint import Checkpoint, StoredTensor, number, whole

IDS = "eagle_aux_hidden_state_layer_ids"
USUAL_STATES = 3  # of an EAGLE-3 head that names no layers
USUAL_THETA = 10_000.0
# Names of older checkpoints, and what all loaders take them for.
RENAMED = (
    ("midlayer.", "layers.0."),
    ("aux_norm_low.", "fc_norm.0."),
    ("aux_norm_mid.", "fc_norm.1."),
    ("aux_norm_high.", "fc_norm.2."),
)


class HeadKind(StrEnum):
    EAGLE3 = "an EAGLE-3 head"
    EAGLE = "an EAGLE-1 head"
    MTP = "draft layers of the target's own kind (MTP)"
    MODEL = "an ordinary model"
    UNKNOWN = "a drafter of unknown kind"


@dataclass(frozen=True, slots=True)
class Head:
    """A drafter's checkpoint, read as an EAGLE head's."""

    checkpoint: Checkpoint

    @property
    def is_speculators(self) -> bool:
        """Whether it is in the format of speculators, with the layer's config one level down."""
        return "speculators_model_type" in self.checkpoint.config

    @property
    def config(self) -> Mapping[str, Any]:
        """All of it on one level; in the format of speculators, what stands outside wins."""
        config = self.checkpoint.config
        inner = config.get("transformer_layer_config")
        return {**inner, **config} if self.is_speculators and isinstance(inner, Mapping) else config

    @property
    def nested(self) -> Mapping[str, Any]:
        """`eagle_config`, empty if there is none."""
        inner = self.checkpoint.config.get("eagle_config")
        return inner if isinstance(inner, Mapping) else {}

    @property
    def outer_ids(self) -> tuple[int, ...] | None:
        """Layer ids at the top of the config, as speculators writes them."""
        return _ids(self.checkpoint.config.get(IDS))

    @property
    def nested_ids(self) -> tuple[int, ...] | None:
        """Layer ids in `eagle_config`, as SpecForge and NVIDIA write them."""
        return _ids(self.nested.get(IDS))

    @property
    def hidden_size(self) -> int | None:
        return whole(self.config, "hidden_size")

    @property
    def target_hidden_size(self) -> int | None:
        """Width of one of the target's states, as the head's config has it."""
        return whole(self.config, "target_hidden_size") or self.hidden_size

    @property
    def vocabulary(self) -> int | None:
        return whole(self.config, "vocab_size")

    @property
    def draft_vocabulary(self) -> int | None:
        return whole(self.config, "draft_vocab_size")

    @property
    def declared_states(self) -> int:
        """How many states the engines make the fusion layer for.

        SGLang 0.5.23 and vLLM 0.32, models/llama_eagle3.py: the count, else the nested ids, else three.
        """
        return (
            whole(self.checkpoint.config, "num_aux_hidden_states")
            or len(self.nested_ids or ())
            or USUAL_STATES
        )

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """By the names that loaders give them in the end, without the model's own prefix."""
        return {usual_name(name): tensor for name, tensor in self.checkpoint.tensors.items()}

    @property
    def fusion_width(self) -> int | None:
        """Numbers that the fusion layer takes in, by its tensor; None if there is none to look at."""
        fc = self.tensors.get("fc.weight")
        return fc.shape[1] if fc is not None and len(fc.shape) == 2 and fc.dtype in FLOATS else None

    def states_of(self, target: Checkpoint) -> int:
        """How many states of this target the fusion layer takes, by its tensor or else by the config."""
        width, one = self.fusion_width, target.whole("hidden_size") or self.target_hidden_size
        return width // one if width and one and width % one == 0 else self.declared_states

    @property
    def is_quantised(self) -> bool:
        """Whether its weights are packed, so that shapes and names say little."""
        return isinstance(self.checkpoint.config.get("quantization_config"), Mapping)

    @property
    def kind(self) -> HeadKind:
        """By its tensors, else by its config."""
        return self._kind_by_tensors() or self._kind_by_config()

    def _kind_by_tensors(self) -> HeadKind | None:
        names = self.tensors
        if {"d2t", "t2d", "layers.0.hidden_norm.weight"} & set(names):
            return HeadKind.EAGLE3
        width, hidden = self.fusion_width, self.hidden_size
        if width and hidden:
            return HeadKind.EAGLE if width == 2 * hidden else HeadKind.EAGLE3
        if any(name.startswith("layers.1.") for name in names) and "embed_tokens.weight" in names:
            return HeadKind.MODEL
        return None

    def _kind_by_config(self) -> HeadKind:
        config = self.checkpoint.config
        said = " ".join(str(config.get(k, "")) for k in ("architectures", "speculators_model_type")).lower()
        if "eagle3" in said or "draft_vocab_size" in config or "eagle_config" in config:
            return HeadKind.EAGLE3
        if "eagle" in said:
            return HeadKind.EAGLE
        if any(mark in said for mark in ("nextn", "mtp", "assistant")):
            return HeadKind.MTP
        ordinary = self.checkpoint.architecture and (whole(config, "num_hidden_layers") or 1) > 1
        return HeadKind.MODEL if ordinary else HeadKind.UNKNOWN


FLOATS = ("F64", "F32", "F16", "BF16")


def usual_name(name: str) -> str:
    """`layers.0.mlp.up_proj.weight` of `model.midlayer.mlp.up_proj.weight`."""
    name = name.removeprefix("model.")
    for old, new in RENAMED:
        name = name.replace(old, new)
    return name


def rope_of(config: Mapping[str, Any]) -> tuple[float | None, Mapping[str, Any] | None]:
    """Base and scaling of the rotations as a config gives them; None for what it does not give."""
    new = config.get("rope_parameters")
    new = new if isinstance(new, Mapping) else {}
    theta = number(new, "rope_theta") or number(config, "rope_theta")
    old = config.get("rope_scaling")
    scaling = {**new, **(old if isinstance(old, Mapping) else {})}
    scaling.pop("rope_theta", None)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    return theta, None if kind == "default" else scaling


def _ids(value: object) -> tuple[int, ...] | None:
    """A list of whole numbers; None for anything else, and for an empty one, as engines have it."""
    if not isinstance(value, list | tuple) or not value:
        return None
    if any(isinstance(one, bool) or not isinstance(one, int) for one in value):
        return None
    return tuple(value)

"""The pair's head made wrong, one way at a time, as published ones were; what the doctor should say."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.wiring import Cause, Outcome

if TYPE_CHECKING:
    from torch import Tensor

HEAD = Path(__file__).with_name("pair") / "head"
IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Injection:
    """One fault, in the head's folder or in how the server is started."""

    what: str
    causes: frozenset[Cause]  # any of these is right: no data tells them apart
    config: Mapping[str, Any] = field(default_factory=dict)
    edit: "Callable[[dict[str, Tensor]], None] | None" = None
    method: str = "EAGLE3"
    outcome: Outcome = Outcome.NAMED

    def make(self, into: Path) -> Path:
        """The head with this fault, in a folder of its own."""
        from safetensors.torch import load_file, save_file

        shutil.copytree(HEAD, into)
        config = json.loads((HEAD / "config.json").read_text()) | dict(self.config)
        (into / "config.json").write_text(json.dumps(config))
        if self.edit is not None:
            tensors = load_file(HEAD / "model.safetensors")
            self.edit(tensors)
            kept = {name: tensor.contiguous() for name, tensor in tensors.items()}
            save_file(kept, into / "model.safetensors", {"format": "pt"})
        return into


def _ids(*layers: int) -> Mapping[str, Any]:
    return {"eagle_config": {IDS: list(layers)}}


def _reversed_fc(tensors: "dict[str, Tensor]") -> None:
    import torch

    tensors["fc.weight"] = torch.cat(tensors["fc.weight"].chunk(3, dim=1)[::-1], dim=1)


def _no_d2t(tensors: "dict[str, Tensor]") -> None:
    del tensors["d2t"]


def _absolute_d2t(tensors: "dict[str, Tensor]") -> None:
    import torch

    tensors["d2t"] = tensors["d2t"] + torch.arange(len(tensors["d2t"]))


def _random_lm_head(tensors: "dict[str, Tensor]") -> None:
    import torch

    like = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = torch.randn(like.shape, generator=torch.Generator().manual_seed(1)) * 0.02


INJECTIONS: Mapping[str, Injection] = {
    "healthy": Injection("nothing", frozenset(), outcome=Outcome.CLEARED),
    "layers-up": Injection("all layers one too high", frozenset({Cause.LAYERS}), _ids(2, 4, 5)),
    "embedding-first": Injection(
        "the embedding in the first place", frozenset({Cause.LAYERS}), _ids(-1, 1, 3)
    ),
    "reversed": Injection(
        "the fusion layer's columns in reverse", frozenset({Cause.ORDER}), edit=_reversed_fc
    ),
    "algorithm": Injection(
        "started with EAGLE in place of EAGLE3", frozenset({Cause.ALGORITHM}), method="EAGLE"
    ),
    "no-d2t": Injection("d2t left out", frozenset({Cause.D2T_MISSING}), edit=_no_d2t),
    "absolute-d2t": Injection("d2t with ids", frozenset({Cause.D2T_ABSOLUTE}), edit=_absolute_d2t),
    "random-lm-head": Injection("a random lm_head", frozenset({Cause.LM_HEAD}), edit=_random_lm_head),
    "norm-output": Injection("norm_output set", frozenset({Cause.FEEDBACK_NORM}), {"norm_output": True}),
    "norm-before-fc": Injection(
        "norm_before_fc set", frozenset({Cause.NORM_BEFORE_FC}), {"norm_before_fc": True}
    ),
    "rope": Injection("rope_theta 500000", frozenset({Cause.ROPE}), {"rope_theta": 500000.0}),
    "context": Injection(
        "max_position_embeddings 64", frozenset({Cause.CONTEXT}), {"max_position_embeddings": 64}
    ),
}

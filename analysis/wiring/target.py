"""What a replay needs of the target: its embedding, its last norm and the rows that make its logits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.wiring.tensors import linear, rms_norm
from results.checkpoint import Checkpoint, number, whole
from results.errors import UsageError
from results.head_config import rope_of

if TYPE_CHECKING:
    from torch import Tensor

# Ends of names in checkpoints: of Llama and most others, Mistral's own, GPT-NeoX, GPT-2.
EMBEDDING = ("embed_tokens.weight", "tok_embeddings.weight", "embed_in.weight", "wte.weight")
LM_HEAD = ("lm_head.weight", "output.weight", "embed_out.weight")
NORM = ("model.norm.weight", "language_model.norm.weight", "norm.weight", "final_layernorm.weight")
VOCABULARY_CHUNK = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """V tokens, hidden size H."""

    layers: int
    embedding: "Tensor"  # [V, H]
    lm_head: "Tensor"  # [V, H]
    norm: "Tensor | None"  # [H]
    eps: float
    rope_theta: float | None = None
    rope_scaling: Mapping[str, Any] | None = None

    @property
    def hidden(self) -> int:
        return int(self.lm_head.shape[1])

    @property
    def vocabulary(self) -> int:
        return int(self.lm_head.shape[0])

    def last(self, states: Mapping[int, "Tensor"]) -> "Tensor":
        """States after the final norm [rows, H], of a dump's. Raises UsageError if they are not in it."""
        if self.layers + 1 in states:
            return states[self.layers + 1].float()
        if self.layers in states and self.norm is not None:
            return rms_norm(states[self.layers].float(), self.norm, self.eps)
        raise UsageError(
            "the dump holds no states after the target's last layer: what it would say is not known"
        )

    def log_normaliser(self, last: "Tensor") -> "Tensor":
        """Logarithm of the sum of exp(logits) over all V, [rows], of states after the final norm."""
        import torch

        total = last.new_full(last.shape[:1], float("-inf"))
        for part in self.lm_head.split(VOCABULARY_CHUNK):
            total = torch.logaddexp(total, linear(last, part).logsumexp(-1))
        return total


def open_target(config: Mapping[str, Any], tensors: Mapping[str, "Tensor"]) -> Target:
    """Raises UsageError if what is needed is not there, or not in a form to compute with."""
    text = Checkpoint(Path(), config, {}).text_config
    layers = whole(text, "num_hidden_layers")
    if layers is None:
        raise UsageError("the target's config.json names no num_hidden_layers")
    embedding = find(tensors, EMBEDDING)
    lm_head = find(tensors, LM_HEAD)
    if embedding is None:
        raise UsageError("the target's folder holds no embedding under a known name")
    if lm_head is None and not (text.get("tie_word_embeddings") or config.get("tie_word_embeddings")):
        raise UsageError(
            "the target's folder holds no lm_head, and its config.json ties none to the embedding"
        )
    head = embedding if lm_head is None else lm_head
    if not head.is_floating_point() or head.element_size() < 2:
        raise UsageError(
            f"the target's lm_head is stored as {head.dtype}: only plain weights can be replayed"
        )
    theta, scaling = rope_of(text)
    return Target(
        layers=layers,
        embedding=embedding,
        lm_head=head,
        norm=find(tensors, NORM),
        eps=number(text, "rms_norm_eps") or 1e-6,
        rope_theta=theta,
        rope_scaling=scaling,
    )


def find(tensors: Mapping[str, "Tensor"], endings: tuple[str, ...]) -> "Tensor | None":
    """The tensor of the shortest name with the first of the endings that occurs: towers have longer ones."""
    for ending in endings:
        names = [n for n in tensors if n == ending or n.endswith(f".{ending}")]
        names = [n for n in names if not n.startswith(("visual", "vision", "audio"))]
        if names:
            return tensors[min(names, key=len)]
    return None

"""Draft tokens: which token of the target each stands for, and the rows their logits are made with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.wiring.head import Head
from analysis.wiring.target import Target
from analysis.wiring.tensors import linear, random_rows
from results.errors import UsageError
from results.wiring import D2t, Reading, Source

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Pair:
    """A head, and the target it drafts for."""

    head: Head
    target: Target

    def draft_ids(self, how: D2t) -> "Tensor":
        """Target ids by draft id, [draft vocabulary]. Raises UsageError where the head does not give them."""
        import torch

        count = self.draft_tokens
        if how is D2t.ABSENT:
            ids = torch.arange(count)
        elif how is D2t.FROM_T2D:
            ids = self.head.tensor("t2d").nonzero().flatten()
        elif how is D2t.OFFSETS and not self.head.has("d2t") and count == self.target.vocabulary:
            ids = torch.arange(count)
        else:
            stored = self.head.tensor("d2t").long()
            ids = stored + torch.arange(len(stored)) if how is D2t.OFFSETS else stored
        if not count or len(ids) != count or int(ids.min()) < 0 or int(ids.max()) >= self.target.vocabulary:
            raise UsageError(
                f"read as {how}, d2t does not map {count} draft tokens into the target's vocabulary"
            )
        return ids

    def embed(self, reading: Reading, ids: "Tensor") -> "Tensor":
        """[.., h] of target ids."""
        if reading.embedding is Source.RANDOM:
            return random_rows(ids, self.head.hidden).to(self.head.device)
        own = reading.embedding is Source.OWN
        table = self.head.tensor("embed_tokens.weight") if own else self.target.embedding
        if table.shape[1] != self.head.hidden:
            raise UsageError(
                f"an embedding of {table.shape[1]} numbers does not fit a head of {self.head.hidden}"
            )
        return table[ids.to(table.device)].to(self.head.device).float()

    def logits(self, reading: Reading, normed: "Tensor") -> "Tensor":
        """[.., draft vocabulary] of what a step gives, [.., h]."""
        import torch

        if reading.lm_head is Source.TARGET:
            return linear(normed, self.target.lm_head, rows=self.draft_ids(reading.d2t))
        if reading.lm_head is Source.RANDOM:
            return normed @ random_rows(torch.arange(self.draft_tokens), self.head.hidden).to(normed).T
        return linear(normed, self.head.weight("lm_head.weight"))

    @property
    def draft_tokens(self) -> int:
        for name in ("lm_head.weight", "d2t"):
            if self.head.has(name):
                return int(self.head.tensor(name).shape[0])
        if self.head.has("t2d"):
            return int(self.head.tensor("t2d").sum())
        told = self.head.published.get("draft_vocab_size")
        return self.target.vocabulary if told is None else int(told)

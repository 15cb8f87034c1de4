"""The one operation that SGLang imports from this submodule: NGRAM's trees."""

import torch
from torch import Tensor


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,  # [B * n * n] bool: column is an ancestor of row, or is it
    verified_seq_len: Tensor,  # [B]
    positions: Tensor,  # [B * n], written
    retrieve_index: Tensor,  # [B, n], written: each token's index among the B * n
    retrieve_next_token: Tensor,  # [B, n], written: first child, -1 for none
    retrieve_next_sibling: Tensor,  # [B, n], written: next child of the same parent, -1 for none
    batch_size: int,
    draft_token_num: int,
) -> None:
    """The links of trees of which only the ancestors are known; ancestors come before their descendants."""
    count = draft_token_num
    token = torch.arange(count)
    ancestors = tree_mask.view(-1, count, count).bool().tril(-1)  # [B, descendant, ancestor]
    parents = torch.where(ancestors, token, -1).amax(2)  # [B, n]
    later = token[:, None] > token
    siblings = (parents[:, :, None] == parents[:, None, :]) & (parents >= 0)[:, None, :] & later
    positions.view(-1, count).copy_(ancestors.sum(2) + verified_seq_len[:, None])
    retrieve_index.view(-1).copy_(torch.arange(retrieve_index.numel()))
    retrieve_next_token.view(-1, count).copy_(_first(ancestors))
    retrieve_next_sibling.view(-1, count).copy_(_first(siblings))


def _first(flags: Tensor) -> Tensor:
    """[B, rows, columns] -> [B, columns]: the first row that is set, -1 for none."""
    return torch.where(flags.any(1), flags.int().argmax(1), -1)

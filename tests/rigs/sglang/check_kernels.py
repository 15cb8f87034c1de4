"""Checks of the stand-in kernels. They run in the rig's own venv, which has torch and no pytest:

<rig>/bin/python tests/rigs/sglang/check_kernels.py
"""

import sgl_kernel
import torch
from sgl_kernel.speculative import reconstruct_indices_from_tree_mask
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

HEADS, KV_HEADS, HEAD_DIM, SLOTS = 4, 2, 8, 64

# Trees of 6 tokens, as the parents of tokens 1..5; token 0 is the root.
BRANCHED = [0, 0, 1, 1, 2]
CHAIN = [0, 1, 2, 3, 4]


def check_decode_attention() -> None:
    """Sequences of unlike lengths, each compared with torch's attention on its own keys alone."""
    requests, lengths = torch.tensor([2, 0, 1]), torch.tensor([5, 9, 1])
    cache, table = _cache(), _table()
    query, key, value = _new_tokens(3)
    loc = table[requests, lengths - 1].long()
    output = torch.empty_like(query)
    torch.ops.sgl_kernel.decode_attention_cpu(
        query, *cache, 1.0, 1.0, output, key, value, loc, torch.empty(0), table, requests, lengths,
        HEAD_DIM**-0.5, 0.0, False, 0, None, None,
    )  # fmt: skip
    torch.testing.assert_close(cache[0][loc], key)
    for row in range(3):
        keys, values = _history(cache, table, int(requests[row]), int(lengths[row]))
        torch.testing.assert_close(output[row, None], _reference(query[row, None], keys, values, None))


def check_extend_attention_is_causal() -> None:
    requests, lengths, new = torch.tensor([1, 0]), torch.tensor([7, 4]), torch.tensor([3, 4])
    cache, table = _cache(), _table()
    query, key, value = _new_tokens(7)
    output = torch.empty_like(query)
    _extend(query, key, value, output, cache, table, requests, lengths, new, None)
    for start, row in ((0, 0), (3, 1)):
        count, length = int(new[row]), int(lengths[row])
        keys, values = _history(cache, table, int(requests[row]), length)
        visible = torch.ones(count, length).tril(length - count).bool()
        own = slice(start, start + count)
        torch.testing.assert_close(output[own], _reference(query[own], keys, values, visible))


def check_extend_attention_sees_only_ancestors() -> None:
    """A token's output equals causal attention over the prefix and its own path, the others left out."""
    requests, lengths, new = torch.tensor([1, 0]), torch.tensor([10, 8]), torch.tensor([6, 6])
    cache, table = _cache(), _table()
    query, key, value = _new_tokens(12)
    output = torch.empty_like(query)
    parents = [BRANCHED, CHAIN]
    mask = torch.stack([_mask(tree) for tree in parents]).flatten()
    _extend(query, key, value, output, cache, table, requests, lengths, new, mask)
    for row, tree in enumerate(parents):
        keys, values = _history(cache, table, int(requests[row]), int(lengths[row]))
        prefix = list(range(int(lengths[row]) - 6))
        for token in range(6):
            seen = [*prefix, *(len(prefix) + node for node in _path(tree, token))]
            expected = _reference(query[row * 6 + token, None], keys[seen], values[seen], None)
            torch.testing.assert_close(output[row * 6 + token, None], expected)


def check_unsupported_attention_is_refused() -> None:
    cache, table = _cache(), _table()
    query, key, value = _new_tokens(1)
    one = torch.tensor([1])
    try:
        torch.ops.sgl_kernel.decode_attention_cpu(
            query, *cache, 1.0, 1.0, query.clone(), key, value, one, one, table, one, one,
            1.0, 0.0, False, 128, None, None,
        )  # fmt: skip
    except NotImplementedError:
        return
    raise AssertionError("a sliding window was accepted")


def check_build_tree() -> None:
    """Candidates of topk 2, 3 steps: 0, 1 below the root, 2..5 below those, 6..9 below two of these."""
    parent_list = torch.tensor([[-1, 0, 1, 2, 4]])
    selected = torch.tensor([[0, 1, 3, 4, 8]])  # 3 descends from 0, 4 from 1, and 8 from 4
    mask, positions, index, child, sibling = _tree_buffers(1, 6)
    sgl_kernel.build_tree_kernel_efficient_cpu(
        parent_list, selected, torch.tensor([10]), mask, positions, index, child, sibling, 2, 3, 6, 1
    )
    parents = [0, 0, 1, 2, 4]
    assert positions.tolist() == [10, 11, 11, 12, 12, 13]
    assert index.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert child.tolist() == [[1, 3, 4, -1, 5, -1]]
    assert sibling.tolist() == [[-1, 2, -1, -1, -1, -1]]
    assert torch.equal(mask.view(6, 6), _mask(parents))


def check_trees_rebuilt_from_their_mask() -> None:
    """NGRAM knows the ancestors alone: the links found from them are those of the tree."""
    mask = torch.stack([_mask(BRANCHED), _mask(CHAIN)]).flatten()
    _, positions, index, child, sibling = _tree_buffers(2, 6)
    reconstruct_indices_from_tree_mask(mask, torch.tensor([3, 20]), positions, index, child, sibling, 2, 6)
    assert positions.tolist() == [3, 4, 4, 5, 5, 5, 20, 21, 22, 23, 24, 25]
    assert index.flatten().tolist() == list(range(12))
    assert child.tolist() == [[1, 3, 5, -1, -1, -1], [1, 2, 3, 4, 5, -1]]
    assert sibling.tolist() == [[-1, 2, -1, 4, -1, -1], [-1] * 6]


def check_verify_tree_greedy() -> None:
    """Row 0 takes the second child, then stops; row 1 accepts a chain as long as accept_index allows."""
    candidates = torch.tensor([[7, 11, 12, 13, 14, 15], [7, 21, 22, 23, 24, 25]])
    target = torch.tensor([[12, 0, 99, 0, 0, 0], [21, 22, 23, 24, 25, 26]])
    child = torch.tensor([[1, 3, 5, -1, -1, -1], [1, 2, 3, 4, 5, -1]])
    sibling = torch.tensor([[-1, 2, -1, 4, -1, -1], [-1] * 6])
    predicts = torch.zeros(12, dtype=torch.int32)
    accept_index = torch.full((2, 4), -1, dtype=torch.int32)
    accepted = torch.empty(2, dtype=torch.int32)
    sgl_kernel.verify_tree_greedy_cpu(
        predicts, accept_index, accepted, candidates, torch.arange(12).view(2, 6), child, sibling, target
    )
    assert accept_index.tolist() == [[0, 2, -1, -1], [6, 7, 8, 9]]
    assert accepted.tolist() == [1, 3]
    assert predicts[[0, 2]].tolist() == [12, 99]
    assert predicts[6:10].tolist() == [21, 22, 23, 24]


def check_slots() -> None:
    table = torch.zeros(3, 12, dtype=torch.int32)
    requests, start, end = torch.tensor([2, 0]), torch.tensor([0, 1]), torch.tensor([9, 8])
    sgl_kernel.assign_req_to_token_pool_cpu(requests, table, start, end, torch.arange(20, 36), 12)
    assert table[2].tolist() == [*range(20, 29), 0, 0, 0]
    assert table[0].tolist() == [0, *range(29, 36), 0, 0, 0, 0]
    found = torch.empty(16, dtype=torch.int64)
    sgl_kernel.assign_extend_cache_locs_cpu(requests, table, start, end, found, 12)
    assert found.tolist() == list(range(20, 36))


def check_branches_of_a_draft() -> None:
    """Topk 2, 3 steps: each branch sees the request's tokens, then its own run of 3 slots."""
    table = torch.arange(24, dtype=torch.int32).view(2, 12)
    requests, lengths = torch.tensor([1, 0]), torch.tensor([2, 5])
    found = torch.empty(12, dtype=torch.int64)
    sgl_kernel.assign_draft_cache_locs_contiguous_cpu(requests, table, lengths, found, 12, 2, 3)
    assert found.tolist() == [*range(14, 20), *range(5, 11)]
    rows = sgl_kernel.build_draft_decode_metadata_cpu(table, requests, lengths, 2, 3, 12)
    assert rows[:2, :5].tolist() == [[12, 13, 14, 15, 16], [12, 13, 17, 18, 19]]
    assert rows[2:].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 8, 9, 10]]


def check_accepted_tokens() -> None:
    bonus = torch.empty(2, dtype=torch.int32)
    sgl_kernel.fill_bonus_tokens_cpu(torch.arange(8), torch.tensor([1, 4]), bonus, 4)
    assert bonus.tolist() == [0, 7]
    slots = torch.zeros(4, dtype=torch.int64)
    sgl_kernel.fill_accept_out_cache_loc_cpu(torch.tensor([0, 2, -1, 5]), torch.arange(10, 16), slots)
    assert slots.tolist() == [10, 12, 15, 0]
    ids = torch.arange(5)
    sgl_kernel.rotate_input_ids_cpu(
        ids, torch.tensor([0, 2]), torch.tensor([2, 3]), torch.tensor([8, 9]), None
    )
    assert ids.tolist() == [1, 8, 3, 4, 9]


def check_cache_copy() -> None:
    """Slots 1, 2 move to 0, 1: what is overwritten was read before."""
    buffers = [torch.arange(12.0).view(4, 3), torch.arange(4).view(4, 1)]
    before = [buffer.clone() for buffer in buffers]
    addresses = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    strides = torch.tensor([buffer.stride(0) * buffer.element_size() for buffer in buffers])
    sgl_kernel.copy_all_layer_kv_cache_cpu(addresses, strides, torch.tensor([0, 1]), torch.tensor([1, 2]))
    for buffer, was in zip(buffers, before, strict=True):
        assert torch.equal(buffer, was[[1, 2, 2, 3]])


def _cache() -> tuple[Tensor, Tensor]:
    return torch.randn(SLOTS, KV_HEADS, HEAD_DIM), torch.randn(SLOTS, KV_HEADS, HEAD_DIM)


def _table() -> Tensor:
    """Three requests of up to 16 tokens, in slots of no order."""
    return torch.randperm(SLOTS)[:48].view(3, 16).int()


def _new_tokens(count: int) -> tuple[Tensor, Tensor, Tensor]:
    kv = torch.randn(2, count, KV_HEADS, HEAD_DIM)
    return torch.randn(count, HEADS, HEAD_DIM), kv[0], kv[1]


def _extend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    cache: tuple[Tensor, Tensor],
    table: Tensor,
    requests: Tensor,
    lengths: Tensor,
    new: Tensor,
    mask: Tensor | None,
) -> None:
    torch.ops.sgl_kernel.extend_attention_cpu(
        query, key, value, output, *cache, 1.0, 1.0, table, requests, lengths, new, new.cumsum(0) - new,
        int(new.max()), HEAD_DIM**-0.5, 0.0, False, 0, None, None, mask, True,
    )  # fmt: skip


def _history(cache: tuple[Tensor, Tensor], table: Tensor, request: int, length: int) -> tuple[Tensor, Tensor]:
    slots = table[request, :length].long()
    return cache[0][slots], cache[1][slots]


def _reference(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    """query [q, H, D], keys and values [L, G, D] -> [q, H, D]: KV heads written out, one per query head."""
    wide = [side.repeat_interleave(HEADS // KV_HEADS, dim=1).transpose(0, 1) for side in (keys, values)]
    mixed = scaled_dot_product_attention(query.transpose(0, 1), wide[0], wide[1], attn_mask=visible)
    return mixed.transpose(0, 1)


def _path(parents: list[int], token: int) -> list[int]:
    return [0] if token == 0 else [*_path(parents, parents[token - 1]), token]


def _mask(parents: list[int]) -> Tensor:
    count = len(parents) + 1
    return torch.tensor(
        [[other in _path(parents, token) for other in range(count)] for token in range(count)]
    )


def _tree_buffers(batch: int, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """As SGLang makes them: the mask all true, positions unset, links -1."""
    index, child, sibling = torch.full((3, batch, count), -1)
    mask = torch.ones(batch * count * count, dtype=torch.bool)
    return mask, torch.empty(batch * count, dtype=torch.int64), index, child, sibling


if __name__ == "__main__":
    torch.manual_seed(0)
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print(f"{name} passed")

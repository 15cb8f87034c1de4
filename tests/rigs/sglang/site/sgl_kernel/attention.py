"""Attention over a paged KV cache.

Shapes: T tokens in all, B sequences, H query heads, G KV heads, D head size, P slots, L longest sequence.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def decode_attention_cpu(
    query: Tensor,  # [B, H, D]
    k_buffer: Tensor,  # [P, G, D], written
    v_buffer: Tensor,  # [P, G, D], written
    k_scale: float,
    v_scale: float,
    output: Tensor,  # [B, H, D], written
    key: Tensor | None,  # [B, G, D] or [B, G * D]; None: already in the buffers
    value: Tensor | None,
    loc: Tensor,  # [B], the slots of key and value
    attn_logits: Tensor,  # scratch space of the real kernel
    req_to_token: Tensor,  # [requests, max length]
    req_pool_indices: Tensor,  # [B], rows of req_to_token
    seq_lens: Tensor,  # [B], the new token included
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """One new token per sequence: writes its key and value, then attends to all of the sequence."""
    _refuse(k_scale, v_scale, logit_cap, is_cross_attn, sliding_window_size, sinks)
    if key is not None and value is not None:
        k_buffer.index_copy_(0, loc, key.view(-1, *k_buffer.shape[1:]))
        v_buffer.index_copy_(0, loc, value.view(-1, *v_buffer.shape[1:]))
    table = req_to_token, req_pool_indices, seq_lens
    output.copy_(_attend(query[:, None], k_buffer, v_buffer, table, None, sm_scale)[:, 0])


def extend_attention_cpu(
    q_extend: Tensor,  # [T, H, D]
    k_extend: Tensor | None,  # [T, G, D]: the backend has stored it before the call
    v_extend: Tensor | None,
    o_extend: Tensor,  # [T, H, D], written
    k_buffer: Tensor,  # [P, G, D]
    v_buffer: Tensor,  # [P, G, D]
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,  # [requests, max length]
    req_pool_indices: Tensor,  # [B]
    seq_lens: Tensor,  # [B], the new tokens included
    extend_seq_lens: Tensor,  # [B], new tokens per sequence; they sum to T
    extend_start_loc: Tensor,  # [B], the first new token of each sequence among the T
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,  # B * n * n bools, n new tokens per sequence: row sees column; None: causal
    is_causal: bool,
) -> None:
    """Many new tokens per sequence (prefill, verification), whose keys and values are in the buffers."""
    _refuse(k_scale, v_scale, logit_cap, is_cross_attn, sliding_window_size, sinks)
    if not is_causal:
        raise NotImplementedError("attention that is not causal")
    counts = extend_seq_lens.tolist()
    groups = [slice(None)] if len(set(counts)) == 1 else [slice(row, row + 1) for row in range(len(counts))]
    start = 0  # SGLang lays the sequences one after another, in the order of extend_start_loc
    for rows in groups:
        count = counts[rows][0]
        end = start + sum(counts[rows])
        query = q_extend[start:end].unflatten(0, (-1, count))
        tree = None if tree_mask is None else tree_mask.view(-1, count, count)[rows]
        table = req_to_token, req_pool_indices[rows], seq_lens[rows]
        o_extend[start:end] = _attend(query, k_buffer, v_buffer, table, tree, sm_scale).flatten(0, 1)
        start = end


def _attend(
    query: Tensor,  # [B, q, H, D]: the last q tokens of each sequence
    k_buffer: Tensor,  # [P, G, D]
    v_buffer: Tensor,  # [P, G, D]
    table: tuple[Tensor, Tensor, Tensor],  # req_to_token [requests, max length], its rows [B], lengths [B]
    tree: Tensor | None,  # [B, q, q]
    scale: float,
) -> Tensor:  # [B, q, H, D]
    """One call for all sequences, the shorter ones padded with slots that the mask hides."""
    req_to_token, rows, lengths = table
    longest = int(lengths.max())
    slots = req_to_token[:, :longest].index_select(0, rows).flatten()
    # index_select, not [slots]: ten times as fast here, and attention is most of what this rig adds to a step
    keys, values = (
        buffer.index_select(0, slots).view(len(rows), longest, *buffer.shape[1:]).transpose(1, 2)
        for buffer in (k_buffer, v_buffer)
    )
    visible = _visible(lengths, longest, query.shape[1], tree)
    grouped = query.shape[2] != k_buffer.shape[1]
    return scaled_dot_product_attention(
        query.transpose(1, 2), keys, values, visible, scale=scale, enable_gqa=grouped
    ).transpose(1, 2)


def _visible(lengths: Tensor, longest: int, count: int, tree: Tensor | None) -> Tensor | None:
    """Which tokens each of the last `count` sees: [B, 1, count, longest] bool; None: all of them."""
    shortest = int(lengths.min())
    if count == 1 and shortest == longest:
        return None
    position = torch.arange(longest)
    first_new = (lengths - count)[:, None, None]
    if tree is None:
        return (position <= first_new + torch.arange(count)[:, None])[:, None]
    visible = (position < first_new).repeat(1, count, 1)
    for row, length in enumerate(lengths.tolist()):
        visible[row, :, length - count : length] = tree[row]
    return visible[:, None]


def _refuse(
    k_scale: float, v_scale: float, logit_cap: float, cross: bool, window: int, sinks: Tensor | None
) -> None:
    if (k_scale, v_scale) != (1.0, 1.0) or logit_cap or cross or window > 0 or sinks is not None:
        raise NotImplementedError("scaled KV caches, logit caps, cross attention, sliding windows and sinks")

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
        k_buffer[loc] = key.view(-1, *k_buffer.shape[1:])
        v_buffer[loc] = value.view(-1, *v_buffer.shape[1:])
    slots, visible = _decode_slots(req_to_token, req_pool_indices, seq_lens)
    output.copy_(_attend(query[:, None], k_buffer[slots], v_buffer[slots], visible, sm_scale)[:, 0])


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
    starts, counts = extend_start_loc.tolist(), extend_seq_lens.tolist()
    rows = zip(req_pool_indices.tolist(), seq_lens.tolist(), starts, counts, strict=True)
    for index, (request, length, start, count) in enumerate(rows):
        slots = req_to_token[request, :length]
        tree = None if tree_mask is None else tree_mask.view(-1, count, count)[index]
        visible = _extend_visible(length, count, tree)
        new = slice(start, start + count)
        o_extend[new] = _attend(
            q_extend[None, new], k_buffer[slots][None], v_buffer[slots][None], visible, sm_scale
        )[0]


def _decode_slots(req_to_token: Tensor, requests: Tensor, seq_lens: Tensor) -> tuple[Tensor, Tensor | None]:
    """The slots [B, L] of each sequence, and the mask [B, 1, 1, L] where lengths differ (else None)."""
    lengths = seq_lens.tolist()
    longest = max(lengths)
    slots = req_to_token[requests, :longest]
    if min(lengths) == longest:
        return slots, None
    return slots, (torch.arange(longest) < seq_lens[:, None])[:, None, None]


def _extend_visible(length: int, count: int, tree: Tensor | None) -> Tensor | None:
    """Which of `length` tokens each of the last `count` sees, [count, length]; None: all."""
    if count == 1 and tree is None:
        return None
    visible = torch.ones(count, length, dtype=torch.bool)
    visible[:, length - count :] = visible.new_ones(count, count).tril() if tree is None else tree
    return visible


def _attend(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, scale: float) -> Tensor:
    """query [B, q, H, D], keys and values [B, L, G, D], visible broadcast to [B, H, q, L] -> [B, q, H, D]."""
    heads_first = [tensor.transpose(1, 2) for tensor in (query, keys, values)]
    grouped = query.shape[2] != keys.shape[2]
    attended = scaled_dot_product_attention(*heads_first, visible, scale=scale, enable_gqa=grouped)
    return attended.transpose(1, 2)


def _refuse(
    k_scale: float, v_scale: float, logit_cap: float, cross: bool, window: int, sinks: Tensor | None
) -> None:
    if (k_scale, v_scale) != (1.0, 1.0) or logit_cap or cross or window > 0 or sinks is not None:
        raise NotImplementedError("scaled KV caches, logit caps, cross attention, sliding windows and sinks")

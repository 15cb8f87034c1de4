"""Bookkeeping of KV cache slots and of the tokens that go with them. B is the number of requests."""

import ctypes

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,  # [B]
    req_to_token: Tensor,  # [requests, max length], written
    start_offset: Tensor,  # [B]
    end_offset: Tensor,  # [B]
    out_cache_loc: Tensor,  # the slots of all requests, one after another
    pool_len: int,
) -> None:
    """Files the next slots as tokens start..end of each request."""
    taken = 0
    for request, start, end in _rows(req_pool_indices, start_offset, end_offset):
        req_to_token[request, start:end] = out_cache_loc[taken : taken + end - start]
        taken += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,  # [B]
    req_to_token: Tensor,  # [requests, max length]
    start_offset: Tensor,  # [B]
    end_offset: Tensor,  # [B]
    out_cache_loc: Tensor,  # written: the slots of all requests, one after another
    pool_len: int,
) -> None:
    """Collects the slots of tokens start..end of each request."""
    rows = _rows(req_pool_indices, start_offset, end_offset)
    slots = torch.cat([req_to_token[request, start:end] for request, start, end in rows])
    out_cache_loc[: len(slots)] = slots


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,  # [B]
    req_to_token: Tensor,  # [requests, max length]
    seq_lens: Tensor,  # [B]
    out_cache_loc: Tensor,  # [B * topk * num_steps], written
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Collects the `topk * num_steps` slots that follow each request's tokens: a run of steps per branch."""
    end = seq_lens + topk * num_steps
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, seq_lens, end, out_cache_loc, pool_len)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,  # [requests, max length]
    req_pool_indices: Tensor,  # [B]
    seq_lens: Tensor,  # [B]
    topk: int,
    num_steps: int,
    pool_len: int,
) -> Tensor:
    """A `req_to_token` with a row per branch, [B * topk, longest + num_steps]: the request's tokens, then the
    slots of that branch's steps (see `assign_draft_cache_locs_contiguous_cpu`)."""
    table = req_to_token.new_zeros(len(seq_lens), topk, int(seq_lens.max()) + num_steps)
    for row, request, length in zip(table, req_pool_indices.tolist(), seq_lens.tolist(), strict=True):
        row[:, :length] = req_to_token[request, :length]
        drafts = req_to_token[request, length : length + topk * num_steps]
        row[:, length : length + num_steps] = drafts.view(topk, num_steps)
    return table.flatten(0, 1)


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor,  # [B * accept_stride]
    accept_lens: Tensor,  # [B], the bonus token included
    bonus_tokens: Tensor,  # [B], written
    accept_stride: int,
) -> None:
    """The last accepted token of each request."""
    last = accept_lens - 1 + accept_stride * torch.arange(len(accept_lens))
    bonus_tokens.copy_(accept_tokens.flatten()[last])


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor,  # indices into out_cache_loc, -1: none
    out_cache_loc: Tensor,
    accept_out_cache_loc: Tensor,  # written from its start on
) -> None:
    """The slots of the accepted tokens, closed up."""
    accepted = accept_index[accept_index > -1]
    accept_out_cache_loc[: len(accepted)] = out_cache_loc[accepted]


def rotate_input_ids_cpu(
    input_ids: Tensor,  # written: the segments of all requests
    extend_start_loc: Tensor,  # [B]
    extend_seq_lens: Tensor,  # [B]
    topk_index: Tensor,  # [B] or [B, 1], the token that enters
    select_index: Tensor | None,  # [B], where it enters; None: at the end of the segment
) -> None:
    """Moves each segment one token to the left, in place."""
    enters_at = extend_start_loc + extend_seq_lens - 1 if select_index is None else select_index
    rows = _rows(extend_start_loc, extend_seq_lens, enters_at, topk_index.flatten())
    for start, length, position, token in rows:
        input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        if length > 0:
            input_ids[position] = token


def copy_all_layer_kv_cache_cpu(
    data_ptrs: Tensor,  # [buffers], addresses of contiguous K and V buffers
    strides: Tensor,  # [buffers], bytes per slot
    tgt_loc: Tensor,
    src_loc: Tensor,
) -> None:
    """Copies slots `src_loc` to slots `tgt_loc` in every buffer; all are read before any is written."""
    if tgt_loc.numel() == 0:
        return
    slots = 1 + max(int(tgt_loc.max()), int(src_loc.max()))
    for address, stride in _rows(data_ptrs, strides):
        memory = (ctypes.c_uint8 * (slots * stride)).from_address(address)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(slots, stride)
        buffer[tgt_loc] = buffer[src_loc]


def _rows(*columns: Tensor) -> "zip[tuple[int, ...]]":
    return zip(*(column.tolist() for column in columns), strict=True)

"""Stand-in, in plain torch, for the CPU kernels of SGLang 0.5.23, which no package index carries.

It covers a dense model with full attention, with or without a token tree, and nothing else: what it cannot
do, it refuses. Names, argument orders and what is written in place are those of SGLang's call sites
(`sglang/kernels/ops/` and `sglang/srt/`); "slot" is a row of the KV cache, `req_to_token[r, i]` the slot of
the i-th token of request r.
"""

import torch

from .attention import decode_attention_cpu, extend_attention_cpu
from .slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from .trees import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

# SGLang looks these two up among torch's operators and only ever calls them: no schema is needed.
torch.ops.sgl_kernel.decode_attention_cpu = decode_attention_cpu
torch.ops.sgl_kernel.extend_attention_cpu = extend_attention_cpu

"""What the names in a trace mean: kinds of work, and the marks that engines set around parts of a step.

Kernels are those of CUDA and ROCm servers, operations those of torch on a CPU. A name that no pattern
knows is OTHER: it is never guessed.
"""

import re
from dataclasses import dataclass
from functools import cache

from results.profile import Stage, Work

# In this order: an expert's product is MoE, the softmax inside attention is attention.
_KERNELS = (
    (
        Work.ALL_REDUCE,
        r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|cross_device_reduce|custom_ar|quickreduce"
        r"|one_?shot|two_?shot|multimem|lamport|nvshmem|deep_?ep|all_?to_?all|sendrecv",
    ),
    (Work.MOE, r"moe|fused_experts|expert|grouped_gemm|group_gemm|m_grouped"),
    (
        Work.ATTENTION,
        r"attention|attn|fmha|\bflash::|flash_?(fwd|attn|mla)|\bmla_|_mla\b|paged|reshape_and_cache|kv_?cache"
        r"|BatchDecode|BatchPrefill|_fwd_grouped_kernel|\b_fwd_kernel|merge_state|aiter::mla",
    ),
    (
        Work.SAMPLING,
        r"sampl|softmax|top_?k|top_?p|arg_?max|multinomial|verify_?tree|build_tree|rejection|min_?p_|renorm"
        r"|exponential|penalt",
    ),
    (Work.COPIES, r"memcpy|memset|direct_copy_kernel|CatArrayBatchedCopy"),
    (
        Work.MATMUL,
        r"gemm|gemv|cutlass|cublas|nvjet|matmul|xmma|ampere_|sm80_|sm90_|sm100_|sm120_|wgmma|dot_kernel"
        r"|splitKreduce|marlin|machete|\bCijk_|wvSplitK|_w8a8_",
    ),
)
_OPERATIONS = (
    (Work.ALL_REDUCE, r"c10d::|gloo|all_?reduce|all_?gather|reduce_?scatter|shm_all"),
    (Work.MOE, r"moe|fused_experts|grouped_mm"),
    (Work.ATTENTION, r"attention|attn|kv_?cache|reshape_and_cache"),
    (Work.SAMPLING, r"softmax|::topk|::sort|arg_?max|multinomial|sampl|rejection|::exponential"),
    (Work.COPIES, r"::(copy_|_to_copy|to|clone|contiguous|_pin_memory)$"),
    (Work.MATMUL, r"::(mm|bmm|addmm|baddbmm|matmul|linear|einsum)$|_mm\b|gemm|packed_linear|scaled_mm"),
)
_COMPILED_KERNELS = tuple((work, re.compile(pattern, re.IGNORECASE)) for work, pattern in _KERNELS)
_COMPILED_OPERATIONS = tuple((work, re.compile(pattern, re.IGNORECASE)) for work, pattern in _OPERATIONS)


def work_of_kernel(name: str) -> Work:
    return next((work for work, pattern in _COMPILED_KERNELS if pattern.search(name)), Work.OTHER)


@cache
def work_of_operation(name: str) -> Work:
    """Of a torch operation on a CPU, by its own name: what calls it may know better."""
    return next((work for work, pattern in _COMPILED_OPERATIONS if pattern.search(name)), Work.OTHER)


@dataclass(frozen=True, slots=True)
class Mark:
    """What an engine's annotation says of the time it spans."""

    stage: Stage | None = None
    is_step: bool = False  # one step of the engine begins with it
    decodes: bool | None = None  # whether that step is decode alone; None = what is inside says it


# SGLang marks its scheduler, the forward passes and the parts of a speculative step; vLLM a worker's
# step, and its parts where it is asked to. Functions of Python are in a trace with stacks alone.
_MARKS = (
    (r"scheduler\.run_batch", Mark(is_step=True)),
    (r"draft|draft_extend|step\[DRAFT.*", Mark(Stage.DRAFT)),
    (r"step\[(VERIFY|DECODE)\b.*", Mark(Stage.TARGET, decodes=True)),
    (r"step\[.*", Mark(Stage.TARGET, decodes=False)),
    (
        r"execute_(\d+_)?context_0\(.*\)_generation_[1-9]\d*\(.*",
        Mark(Stage.TARGET, is_step=True, decodes=True),
    ),
    (r"execute_(\d+_)?context_\d+\(.*", Mark(Stage.TARGET, is_step=True, decodes=False)),
    (r"gpu_model_runner: draft", Mark(Stage.DRAFT)),
    (r"gpu_model_runner: sample", Mark(Stage.SAMPLING)),
    (r".*spec_decode/.*\.py\(\d+\): propose", Mark(Stage.DRAFT)),
    (r".*gpu/model_runner\.py\(\d+\): sample", Mark(Stage.SAMPLING)),
)
_COMPILED_MARKS = tuple((re.compile(pattern), mark) for pattern, mark in _MARKS)


@cache
def mark_of(name: str) -> Mark | None:
    """The mark that an annotation, or a function of Python, is; None for one that means nothing here."""
    return next((mark for pattern, mark in _COMPILED_MARKS if pattern.fullmatch(name)), None)

"""Where the time of a step goes: every moment counted once, on a CPU and on a GPU."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.trace_events import TraceDamaged
from analysis.trace_names import work_of_kernel, work_of_operation
from results.profile import Stage, TraceSummary, Work
from tests.analysis.trace_files import COPY_STREAM, Event, decode, excerpt, kernel, mark, op, summary


def microseconds(found: TraceSummary) -> tuple[Any, Any]:
    """By kind of work and by stage, without what is 0."""
    work, stages = (
        {name: pytest.approx(1e6 * s) for name, s in part.items() if s}
        for part in (found.work_s, found.stages_s)
    )
    return work, stages


# CPU


def test_nested_operations_count_once_and_by_the_outermost_that_is_known() -> None:
    steps = [*decode(0, 90), *decode(100, 190)]
    inside = [
        op("aten::linear", 10, 40),
        op("aten::matmul", 12, 38),
        op("aten::copy_", 14, 20),  # a part of the product
        op("aten::add", 50, 60),
        op("aten::to", 52, 57),  # called by something unknown: known by itself
    ]
    found = summary([*steps, *inside])
    work, stages = microseconds(found)
    assert (found.device, found.steps) == ("cpu", 1)
    assert found.wall_s == pytest.approx(100e-6)
    assert work == {"matrix products": 30, "memory copies": 5, "other": 5, "host gaps": 60}
    assert stages == {"target": 90, "host gaps": 10}
    assert found.others_s == {"aten::add": pytest.approx(5e-6)}


def test_stages_of_a_speculative_step() -> None:
    def step(at: float) -> list[Event]:
        return [
            mark("scheduler.run_batch", at, at + 90),
            mark("draft", at + 5, at + 35),
            mark("step[DRAFT bs=1]", at + 6, at + 20),
            mark("step[VERIFY bs=1]", at + 40, at + 70),
            mark("draft_extend", at + 80, at + 90),
            op("aten::mm", at + 7, at + 9),
            op("aten::argmax", at + 72, at + 75),
        ]

    _, stages = microseconds(summary([*step(0), *step(100)]))
    assert stages == {"draft": 40, "target": 30, "sampling": 3, "host gaps": 27}


def test_only_decode_steps_that_a_decode_step_follows() -> None:
    """A prefill, and what comes after the last step of a request, belong to no step."""
    prefill = [mark("scheduler.run_batch", 200, 260), mark("step[EXTEND bs=1 toks=9]", 200, 260)]
    steps = [*decode(0, 10), *decode(20, 30), *decode(40, 50), *prefill, *decode(300, 310), *decode(330, 340)]
    found = summary([*steps, op("aten::mm", 205, 255), op("aten::mm", 22, 25)])
    assert (found.steps, found.decodes, found.prefills) == (3, 5, 1)
    assert found.wall_s == pytest.approx(70e-6)
    assert found.work_s["matrix products"] == pytest.approx(3e-6)


def test_vllm_s_steps_are_known_by_what_they_hold() -> None:
    names = ["1(65)_generation_0(0)", "0(0)_generation_1(4)", "0(0)_generation_1(4)", "0(0)_generation_0(0)"]
    steps = [mark(f"execute_context_{name}", 100 * i, 100 * i + 40) for i, name in enumerate(names)]
    parts = [mark("gpu_model_runner: sample", 145, 150), mark("gpu_model_runner: draft", 150, 170)]
    found = summary([*steps, *parts, op("aten::mm", 110, 120)])
    assert (found.steps, found.decodes, found.prefills) == (1, 2, 2)
    assert microseconds(found)[1] == {"target": 40, "sampling": 5, "draft": 20, "host gaps": 35}


def test_other_threads_and_what_lies_outside_are_not_of_a_step() -> None:
    steps = [*decode(50, 90), *decode(150, 190)]
    elsewhere = {**op("aten::mm", 60, 80), "tid": 2}
    found = summary([op("aten::mm", 10, 40), *steps, elsewhere, op("aten::mm", 140, 170)])
    assert microseconds(found)[0] == {"matrix products": 10, "host gaps": 90}


# GPU


def test_streams_that_overlap_are_busy_once() -> None:
    trace = [
        *decode(0, 20),
        *kernel("nvjet_tst_64x8", 1, 100, 140),
        *kernel("Memcpy DtoH (Device -> Pinned)", 2, 130, 160, COPY_STREAM),
        *decode(30, 50),
        *kernel("nvjet_tst_64x8", 31, 200, 240),
    ]
    found = summary([*trace, op("aten::mm", 0, 20)])
    work, stages = microseconds(found)
    assert (found.device, found.steps) == ("gpu", 1)
    assert work == {"matrix products": 40, "memory copies": 20, "host gaps": 40}
    assert stages == {"target": 60, "host gaps": 40}


def test_kernels_side_by_side_share_a_moment() -> None:
    trace = [*decode(0, 9), *kernel("nvjet", 1, 100, 140), *kernel("fmha_v2", 2, 120, 140, 9)]
    found = summary([*trace, *decode(10, 19), *kernel("nvjet", 11, 140, 150)])
    assert microseconds(found)[0] == {"matrix products": 30, "attention": 10}


def test_exchange_between_ranks_is_exposed_or_hidden() -> None:
    trace = [
        *decode(0, 9),
        *kernel("nvjet_tst_64x8", 1, 100, 150),
        *kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 2, 130, 180, 9),
        *decode(10, 19),
        *kernel("nvjet_tst_64x8", 11, 200, 250),
    ]
    found = summary(trace)
    assert microseconds(found)[0] == {"matrix products": 50, "all-reduce": 30, "host gaps": 20}
    assert found.hidden_s == pytest.approx(20e-6)
    assert found.share(Work.ALL_REDUCE) == pytest.approx(0.3)


def test_a_kernel_is_of_the_stage_that_launched_it_though_it_runs_later() -> None:
    """Also a graph's kernels, which share the number of its launch."""
    graph = kernel("nvjet_a", 16, 140, 160)
    graph.append({**graph[1], "name": "nvjet_b", "ts": 160, "dur": 15})
    trace = [
        *(mark("scheduler.run_batch", 0, 30), mark("draft", 1, 10), mark("step[VERIFY bs=2]", 15, 25)),
        *kernel("nvjet_d", 5, 100, 130),
        *graph,
        *kernel("void at::native::argmax", 27, 175, 180),
        *(mark("scheduler.run_batch", 40, 70), mark("step[VERIFY bs=2]", 45, 50)),
        *kernel("nvjet_d", 46, 200, 210),
    ]
    assert microseconds(summary(trace))[1] == {"draft": 30, "target": 35, "sampling": 5, "host gaps": 30}


def test_stages_of_python_functions_where_the_engine_marks_none() -> None:
    def call(name: str, start: float, end: float) -> Event:
        return {**mark(name, start, end), "cat": "python_function"}

    def step(at: float) -> list[Event]:
        return [
            mark("execute_context_0(0)_generation_1(4)", at, at + 10),
            call("vllm/v1/worker/gpu/model_runner.py(2088): sample_tokens", at + 11, at + 39),
            call("vllm/v1/worker/gpu/model_runner.py(1592): sample", at + 12, at + 14),
            call(
                "vllm/v1/worker/gpu/spec_decode/autoregressive/speculator.py(74): propose", at + 20, at + 30
            ),
        ]

    kernels = [*kernel("nvjet_t", 5, 100, 110), *kernel("k", 13, 110, 115), *kernel("nvjet_d", 25, 115, 135)]
    found = summary([*step(0), *kernels, *step(50), *kernel("nvjet_t", 55, 135, 150)])
    assert microseconds(found)[1] == {"target": 10, "sampling": 5, "draft": 20}


def test_without_marks_the_whole_trace_is_summed_and_says_so() -> None:
    found = summary([*kernel("nvjet", 1, 100, 150), *kernel("unheard_of", 2, 160, 200)])
    assert (found.steps, found.step_s) == (0, None)
    assert microseconds(found) == (
        {"matrix products": 50, "other": 40, "host gaps": 10},
        {"other": 90, "host gaps": 10},
    )
    assert [*found.others_s] == ["unheard_of"]


# Real excerpts


@pytest.mark.parametrize(
    ("name", "draft", "target"), [("sglang-eagle3", 0.37, 0.50), ("vllm-eagle3", 0.30, 0.50)]
)
def test_excerpts_of_what_the_engines_wrote(name: str, draft: float, target: float) -> None:
    found = summary(excerpt(name))
    assert (found.device, found.steps, found.prefills) == ("cpu", 2, 0)
    assert found.share(Stage.DRAFT) == pytest.approx(draft, abs=0.01)
    assert found.share(Stage.TARGET) == pytest.approx(target, abs=0.01)
    known = {part: found.share(part) for part in (Work.MATMUL, Work.ATTENTION, Work.COPIES, Work.SAMPLING)}
    assert all(known.values())
    assert max(known.values()) == pytest.approx(known[Work.MATMUL], abs=0.005)


def test_the_order_of_events_means_nothing() -> None:
    trace = excerpt("sglang-eagle3")
    mixed = random.Random(1).sample(trace, len(trace))
    assert summary(mixed).work_s == pytest.approx(summary(trace).work_s)


# Damage


def test_nothing_to_sum_up_is_said() -> None:
    with pytest.raises(TraceDamaged, match="no kernel and no operation"):
        summary([])
    with pytest.raises(TraceDamaged, match="of its 1 steps no two decode in a row"):
        summary([*decode(0, 10), op("aten::mm", 1, 2)])


# Any trace

INSTANTS = st.integers(0, 400)
SPANS = st.tuples(INSTANTS, st.integers(0, 80))
OPERATIONS = st.sampled_from(["aten::mm", "aten::add", "aten::copy_", "aten::softmax", "x::attention"])
KERNELS = st.sampled_from(["nvjet", "ncclDevKernel_AllReduce", "fmha", "mystery", "Memcpy DtoD"])
STEPS = [event for i in range(4) for event in decode(100 * i, 100 * i + 60)]


def assert_whole(found: TraceSummary) -> None:
    assert sum(found.work_s.values()) == pytest.approx(found.wall_s, abs=1e-12)
    assert sum(found.stages_s.values()) == pytest.approx(found.wall_s, abs=1e-12)
    assert all(s >= 0 for s in (*found.work_s.values(), *found.stages_s.values()))


@settings(deadline=None)
@given(st.lists(st.tuples(OPERATIONS, SPANS), min_size=1, max_size=25))
def test_shares_of_a_cpu_sum_to_one(spans: list[tuple[str, tuple[int, int]]]) -> None:
    """Whatever overlaps what, which a thread's spans should not."""
    found = summary([*STEPS, *(op(name, start, start + length) for name, (start, length) in spans)])
    assert found.wall_s == pytest.approx(300e-6)
    assert_whole(found)


@settings(deadline=None)
@given(st.lists(st.tuples(KERNELS, SPANS, st.integers(0, 399)), min_size=1, max_size=25))
def test_shares_of_a_gpu_sum_to_one(spans: list[tuple[str, tuple[int, int], int]]) -> None:
    anchors = [event for i in range(4) for event in kernel("nvjet", 100 * i + 1, 100 * i + 1, 100 * i + 2)]
    kernels = [
        event
        for name, (start, length), launched in spans
        for event in kernel(name, launched, start + 400, start + 400 + length)
    ]
    found = summary([*STEPS, *anchors, *kernels])
    assert_whole(found)


# Names


@pytest.mark.parametrize(
    ("work", "names"),
    [
        (
            Work.ALL_REDUCE,
            [
                "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
                "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<bf16>",
                "multimem_all_reduce_kernel",
            ],
        ),
        (
            Work.MOE,
            ["fused_moe_kernel", "void vllm::moe::topkGatingSoftmax<float, 8>", "moe_align_block_size"],
        ),
        (
            Work.ATTENTION,
            [
                "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<bf16>>>",
                "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>",
                "void flashinfer::BatchDecodeWithPagedKVCacheKernel<2u>",
                "_fwd_grouped_kernel_stage1",
                "kernel_unified_attention_2d",
                "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>",
                "fmhaSm100fKernel_QkvBfloat16",
            ],
        ),
        (
            Work.SAMPLING,
            [
                "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>",
                "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>",
                "void at::native::reduce_kernel<512, 1, ReduceOp<float, at::native::ArgMaxOps<float>>>",
                "void VerifyTreeGreedy<long, long>",
                "rejection_greedy_sample_kernel",
            ],
        ),
        (
            Work.MATMUL,
            [
                "nvjet_tst_64x8_64x16_4x1_v_bz_TNT",
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64",
                "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn",
                "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>",
                "void gemv2T_kernel_val<int, int, __nv_bfloat16>",
                "void marlin::Marlin<__nv_bfloat16, 256>",
                "Cijk_Alik_Bljk_BBS_BH_MT64x16x64",
            ],
        ),
        (
            Work.OTHER,
            [
                "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>",
                "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16>",
                "triton_red_fused_add_rms_norm_0",
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
                "void vllm::rotary_embedding_kernel<c10::BFloat16, true>",
            ],
        ),
    ],
)
def test_kernels_by_their_names(work: Work, names: list[str]) -> None:
    assert {name: work_of_kernel(name) for name in names} == dict.fromkeys(names, work)


def test_operations_by_their_names() -> None:
    named = {
        "aten::addmm": Work.MATMUL,
        "_C::onednn_mm": Work.MATMUL,
        "vllm::unified_attention_with_output": Work.ATTENTION,
        "aten::scaled_dot_product_attention": Work.ATTENTION,
        "aten::_softmax": Work.SAMPLING,
        "aten::to": Work.COPIES,
        "aten::add": Work.OTHER,
        "aten::topk": Work.SAMPLING,
        "c10d::allreduce_": Work.ALL_REDUCE,
    }
    assert {name: work_of_operation(name) for name in named} == named

"""What SGLang's flags do to a drafter: quantisation, parallelism, the shape of the tree."""

from collections.abc import Iterator

from launchers.engines.head_rules import parallelism_findings
from launchers.engines.sglang import layer_ids
from launchers.engines.wiring import Drafting, version_of
from results.head_config import Head
from results.wiring import Cause, Finding, Fix, Severity

PARTIAL_SUMS_UNTIL = (0, 5, 15)  # seen in 0.5.8 to 0.5.13, repaired by PR #28343, seen in 0.5.16
NOT_QUANTISED = "unquant"


def flag_findings(drafting: Drafting) -> list[Finding]:
    if not drafting.attached:
        return []
    return [
        *_quantisation(drafting),
        *_tree(drafting),
        *_partial_sums(drafting),
        *_parallelism(drafting),
    ]


def inherited_quantisation(drafting: Drafting) -> str:
    """What the draft takes over of --quantization; "" if nothing."""
    named = drafting.text("quantization")
    own = drafting.text("speculative-draft-model-quantization")
    return "" if own or named in ("", "None", NOT_QUANTISED) else named


def _quantisation(drafting: Drafting) -> Iterator[Finding]:
    inherited = inherited_quantisation(drafting)
    if not inherited or Head(drafting.head).is_quantised:
        return
    yield Finding(
        Cause.QUANTISATION,
        Severity.LIKELY,
        f"--quantization {inherited} is the target's, and the drafter takes it over",
        "the drafter inherits it unless --speculative-draft-model-quantization is given "
        "(arg_groups/serving_hook.py, 0.5.23)",
        Fix(
            f"add --speculative-draft-model-quantization {NOT_QUANTISED}",
            args={"speculative-draft-model-quantization": NOT_QUANTISED},
        ),
    )


def _partial_sums(drafting: Drafting) -> Iterator[Finding]:
    ranks = drafting.whole("tp-size", "tensor-parallel-size", "tp") or 1
    deepseek = layer_ids.family_of(drafting.target.architecture) is layer_ids.DEEPSEEK
    version = version_of(drafting.version)
    if ranks > 1 and deepseek and version and version[:3] <= PARTIAL_SUMS_UNTIL:
        fused = drafting.is_on("enable-flashinfer-allreduce-fusion")
        yield Finding(
            Cause.TENSOR_PARALLEL,
            Severity.LIKELY if fused else Severity.INFO,
            f"{ranks} ranks, all-reduces {'' if fused else 'perhaps '}fused: partial sums may be captured",
            "the sum was not completed before the capture (PR #28343)",
            Fix(
                "leave out --enable-flashinfer-allreduce-fusion, or upgrade",
                args={"enable-flashinfer-allreduce-fusion": None},
            ),
        )


def _parallelism(drafting: Drafting) -> Iterator[Finding]:
    checks = (
        (
            drafting.is_on("enable-dp-attention"),
            "data-parallel attention",
            "states are gathered over ranks before the capture (layers/layer_boundary/stage.py)",
        ),
        (
            (drafting.whole("pp-size", "pipeline-parallel-size") or 1) > 1,
            "pipeline parallelism",
            "only the last stage captures (set_eagle3_layers_to_capture)",
        ),
        (
            drafting.text("disaggregation-mode") not in ("", "null", "None"),
            "prefill and decode on two servers",
            "states passed between them were of the wrong width or kind (issues #10547, #10059, #10801)",
        ),
        (
            drafting.text("kv-cache-dtype").startswith("fp8"),
            "an FP8 cache for keys and values",
            "it is the drafter's as well; seen to cost acceptance (vLLM issue #24505)",
        ),
    )
    yield from parallelism_findings(checks)


def _tree(drafting: Drafting) -> Iterator[Finding]:
    steps = drafting.whole("speculative-num-steps")
    topk = drafting.whole("speculative-eagle-topk")
    tokens = drafting.whole("speculative-num-draft-tokens")
    if steps and topk == 1 and tokens and tokens != steps + 1:
        yield Finding(
            Cause.DEFINITION,
            Severity.INFO,
            f"{tokens} draft tokens are asked for, a chain of {steps} steps has {steps + 1}",
            f"SGLang makes it {steps + 1}: a rate is out of {steps} (arg_groups/speculative_hook.py)",
            Fix(
                f"set --speculative-num-draft-tokens {steps + 1}",
                args={"speculative-num-draft-tokens": steps + 1},
            ),
        )
    most = 1 + (topk or 0) + ((steps or 1) - 1) * (topk or 0) ** 2
    if steps and topk and topk > 1 and tokens and tokens > most:
        yield Finding(
            Cause.DEFINITION,
            Severity.FATAL,
            f"{tokens} draft tokens are asked for, the tree has {most}",
            "the first request kills the scheduler (seen on 0.5.23)",
            Fix(f"set --speculative-num-draft-tokens {most}", args={"speculative-num-draft-tokens": most}),
        )

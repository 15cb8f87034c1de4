"""What vLLM's own rules say of a drafting, with the file of the version in which each was read."""

from collections.abc import Iterator, Sequence

from launchers.engines.head_rules import (
    NormFlags,
    layout_findings,
    method_findings,
    name_findings,
    norm_findings,
    parallelism_findings,
    targets_rows,
)
from launchers.engines.vllm import layer_ids
from launchers.engines.wiring import Drafting, version_of, width_findings
from results.checkpoint import whole
from results.head_config import Head, HeadKind
from results.wiring import Cause, Finding, Fix, Severity, boundary_names

READ = ((0, 32), (0, 33))  # versions of which the sources were read
LONGER_POSITIONS_SINCE = (0, 32)  # config/speculative.py, issue #48894
METHODS = {
    HeadKind.EAGLE3: "eagle3",
    HeadKind.EAGLE: "eagle",
    HeadKind.MTP: "mtp",
    HeadKind.MODEL: "draft_model",
}
HEAD = "vLLM model_executor/models/llama_eagle3.py"
SPECULATORS = "vLLM transformers_utils/configs/speculators/algos.py"
SEQUENCE_PARALLEL = (
    "compilation-config.pass_config.enable_sp",
    "compilation-config.pass_config.enable_sequence_parallelism",
)


def findings(drafting: Drafting, boundaries: Sequence[int] | None) -> list[Finding]:
    """All of them; `boundaries` are those captured, None if that is not known."""
    method = "mtp" if "mtp" in drafting.method else drafting.method
    found = [*method_findings(drafting, method, METHODS, "vLLM config/speculative.py"), *_settings(drafting)]
    if Head(drafting.head).kind is HeadKind.EAGLE3 and drafting.attached:
        found += [*_head(drafting), *_maps(drafting), *_context(drafting), *_captured(drafting, boundaries)]
    return found


def gets_states(drafting: Drafting) -> bool:
    """Whether the head is given the states of several layers, and so its fusion layer is used."""
    uses = Head(drafting.head).nested.get("use_aux_hidden_state", True)
    return drafting.method == "eagle3" and uses is not False


def norm_flags(head: Head) -> NormFlags:
    """The nested flag wins, but not in a head in the format of speculators."""
    before = head.config.get("norm_before_fc", False)
    if not head.is_speculators:
        before = head.nested.get("norm_before_fc", before)
    return NormFlags(bool(before), bool(head.config.get("fc_norm", False)))


def norm_before_residual(head: Head) -> bool:
    """Off unless set; in the format of speculators on unless set."""
    return bool(head.config.get("norm_before_residual", head.is_speculators))


def served_context(drafting: Drafting) -> int | None:
    return drafting.whole("max-model-len") or drafting.target.whole("max_position_embeddings")


def positions(drafting: Drafting) -> int | None:
    """Positions for which the draft has rotations."""
    own, served = (
        whole(Head(drafting.head).config, "max_position_embeddings"),
        served_context(drafting),
    )
    version = version_of(drafting.version)
    if own and served and (not version or version >= LONGER_POSITIONS_SINCE):
        return max(own, served)
    return own


def _head(drafting: Drafting) -> Iterator[Finding]:
    head = Head(drafting.head)
    yield from norm_findings(drafting, norm_flags(head), f"{HEAD}; issue #38111")
    yield from layout_findings(drafting, HEAD)
    yield from name_findings(drafting, prefix="model.", stops=True, source=f"{HEAD}, load_weights")
    if head.is_speculators and "norm_before_residual" not in head.config:
        yield Finding(
            Cause.NORM_BEFORE_RESIDUAL,
            Severity.LIKELY,
            "the head does not say norm_before_residual, vLLM turns it on, speculators trains without it",
            f"two defaults differ ({SPECULATORS}; speculators models/eagle3/config.py)",
            Fix("set norm_before_residual to false", config={"norm_before_residual": False}),
        )
    for flag, cause in (
        ("norm_output", Cause.FEEDBACK_NORM),
        ("norm_before_residual", Cause.NORM_BEFORE_RESIDUAL),
    ):
        if flag in head.nested and flag not in head.config:
            yield Finding(
                cause,
                Severity.LIKELY,
                f"{flag} stands in eagle_config, where it is not read",
                f"it is read at the top of config.json ({HEAD})",
                Fix(f"set {flag} at the top of config.json", config={flag: head.nested[flag]}),
            )
    if not gets_states(drafting) and drafting.method == "eagle3":
        yield Finding(
            Cause.ALGORITHM,
            Severity.INFO,
            "eagle_config says use_aux_hidden_state: false; runner V2 captured states all the same",
            "issues #40551 and #40656",
        )


def _maps(drafting: Drafting) -> Iterator[Finding]:
    head = Head(drafting.head)
    served = drafting.target.whole("vocab_size")
    draft = head.draft_vocabulary or head.vocabulary
    if not head.checkpoint.tensors or not served or not draft:
        return
    if "d2t" in head.tensors and draft == served:
        yield Finding(
            Cause.D2T,
            Severity.FATAL,
            f"the head has a map, and its vocabulary of {draft} is the target's",
            f"there is no parameter for it then, and loading stops ({HEAD}, draft_id_to_target_id)",
            Fix("remove d2t from the checkpoint", tensors=("d2t: remove",)),
        )
    if "lm_head.weight" not in head.tensors and draft != served and not head.is_quantised:
        yield Finding(
            Cause.LM_HEAD,
            Severity.FATAL,
            f"there is no lm_head for the reduced vocabulary of {draft}",
            "the target's is shared then, with other rows (v1/spec_decode/llm_base_proposer.py)",
            targets_rows(drafting),
        )


def _captured(drafting: Drafting, boundaries: Sequence[int] | None) -> Iterator[Finding]:
    head, layers = Head(drafting.head), drafting.target.whole("num_hidden_layers") or 0
    if boundaries is None or not gets_states(drafting):
        return
    runner = layer_ids.runner_of(drafting)
    names = boundary_names(boundaries, layers)
    ids = layer_ids.ids_read(head, runner.name)
    yield from width_findings(drafting, boundaries, len(ids or ()), HEAD)
    if ids and len(boundaries) < len(ids):
        yield Finding(
            Cause.LAYERS,
            Severity.FATAL,
            f"of {len(ids)} layers named, {len(boundaries)} are captured: {names}",
            "repeated layers count once, negative ones are lost, and DeepSeek's models cannot capture the "
            "embedding (model_executor/models/interfaces.py, deepseek_v2.py)",
        )
    if ids and list(ids) != sorted(ids):
        yield Finding(
            Cause.ORDER,
            Severity.INFO,
            f"the config names the layers in another order than {names}",
            "they stand side by side in ascending order (interfaces.py, sorted(set(layers)))",
        )
    if head.nested_ids and ids is None:
        yield Finding(
            Cause.LAYERS,
            Severity.INFO,
            f"layers are named in eagle_config, where it does not look: it takes its default, {names} "
            f"(runner {runner.name}: {runner.because})",
            "only the key at the top is read (v1/worker/gpu/spec_decode/eagle/eagle3_utils.py)",
        )
    version = version_of(drafting.version)[:2]
    if version and not READ[0] <= version <= READ[1]:
        yield Finding(
            Cause.LAYERS,
            Severity.INFO,
            f"vLLM {drafting.version} was not read",
            "the rules are those of 0.32 and 0.33",
        )


def _context(drafting: Drafting) -> Iterator[Finding]:
    own, served = whole(Head(drafting.head).config, "max_position_embeddings"), served_context(drafting)
    if not own or not served or own >= served:
        return
    stretched = positions(drafting) == served
    fix = Fix(
        f"set max_position_embeddings of the drafter to {served}", config={"max_position_embeddings": served}
    )
    rule = (
        "vLLM stretches it since 0.32; it was not trained there" if stretched else "it is read past its end"
    )
    yield Finding(
        Cause.CONTEXT,
        Severity.INFO if stretched else Severity.LIKELY,
        f"the drafter knows {own} positions, requests may have {served}",
        f"{rule} (config/speculative.py, issue #48894)",
        None if stretched else fix,
    )


def _settings(drafting: Drafting) -> Iterator[Finding]:
    if not drafting.attached:
        return
    checks = (
        (
            drafting.is_on(*SEQUENCE_PARALLEL),
            "sequence parallelism",
            "each rank's slice of the tokens must be gathered (vllm-ascend issue #5825)",
        ),
        (
            (drafting.whole("pipeline-parallel-size") or 1) > 1,
            "pipeline parallelism",
            "states travel between the stages only for some models (eagle3_utils.py)",
        ),
        (
            bool(drafting.text("kv-transfer-config")),
            "a connector for keys and values",
            "see vLLM issue #24505",
        ),
        (
            drafting.text("kv-cache-dtype").startswith("fp8"),
            "an FP8 cache for keys and values",
            "it is the drafter's as well; seen to cost acceptance (issue #24505)",
        ),
    )
    yield from parallelism_findings(checks)

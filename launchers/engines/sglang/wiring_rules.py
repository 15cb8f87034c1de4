"""What SGLang's own rules say of a drafting, with the file of the version in which each was read."""

from collections.abc import Iterator, Sequence

from launchers.engines.head_rules import (
    NormFlags,
    layout_findings,
    method_findings,
    name_findings,
    norm_findings,
    targets_rows,
)
from launchers.engines.sglang import layer_ids
from launchers.engines.sglang.wiring_flags import flag_findings
from launchers.engines.wiring import Drafting, version_of, width_findings
from results.head_config import Head, HeadKind
from results.wiring import Cause, Finding, Fix, Severity, boundary_names

READ = ((0, 5, 8), (0, 5, 23))  # oldest and newest version of which the sources were read
NORM_BEFORE_FC_SINCE = (0, 5, 17)  # models/llama_eagle3.py; issue #32334
LONGER_CONTEXT = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
METHODS = {
    HeadKind.EAGLE3: "EAGLE3",
    HeadKind.EAGLE: "EAGLE",
    HeadKind.MTP: "EAGLE",
    HeadKind.MODEL: "STANDALONE",
}
HEAD = "SGLang models/llama_eagle3.py"


def findings(drafting: Drafting, boundaries: Sequence[int] | None) -> list[Finding]:
    """All of them; `boundaries` are those captured, None if that is not known."""
    found = [
        *method_findings(drafting, method_of(drafting), METHODS, "SGLang issue #21272"),
        *flag_findings(drafting),
    ]
    if Head(drafting.head).kind is HeadKind.EAGLE3 and drafting.attached:
        found += [*_head(drafting), *_context(drafting), *_captured(drafting, boundaries)]
    return found


def method_of(drafting: Drafting) -> str:
    """NEXTN is EAGLE in SGLang (arg_groups/speculative_hook.py)."""
    method = drafting.method.upper()
    return "EAGLE" if method == "NEXTN" else method


def gets_states(drafting: Drafting) -> bool:
    """Whether the head is given the states of several layers, and so its fusion layer is used."""
    uses = Head(drafting.head).nested.get("use_aux_hidden_state", True)
    return method_of(drafting) == "EAGLE3" and uses is not False


def norm_flags(drafting: Drafting) -> NormFlags:
    head, version = Head(drafting.head), version_of(drafting.version)
    knows = (version or layer_ids.LATEST) >= NORM_BEFORE_FC_SINCE
    before_fc = head.nested.get("norm_before_fc", head.config.get("norm_before_fc", False))
    return NormFlags(
        knows and bool(before_fc), bool(head.config.get("fc_norm") or head.config.get("use_aux_norm"))
    )


def served_context(drafting: Drafting) -> int | None:
    """Positions that a request may use."""
    return drafting.whole("context-length") or drafting.target.whole("max_position_embeddings")


def positions(drafting: Drafting) -> int | None:
    """Positions for which the draft has rotations (configs/model_config.py, _derive_context_length)."""
    own = Head(drafting.head).checkpoint.whole("max_position_embeddings")
    served = served_context(drafting)
    if (
        own
        and served
        and own < served
        and drafting.variables.get(LONGER_CONTEXT, "") in ("1", "true", "True")
    ):
        return served
    return own


def _head(drafting: Drafting) -> Iterator[Finding]:
    head = Head(drafting.head)
    if head.is_speculators:
        yield Finding(
            Cause.NAMES,
            Severity.FATAL,
            "the head is in the format of speculators",
            "SGLang has no reader for it: its layer's config stands one level down (sglang/srt, 0.5.23)",
            Fix("convert the head to the plain layout of EAGLE-3, its layer's config at the top"),
        )
    yield from norm_findings(drafting, norm_flags(drafting), f"{HEAD}; norm_before_fc since 0.5.17, #32334")
    yield from layout_findings(drafting, HEAD)
    yield from name_findings(drafting, prefix=None, stops=False, source=f"{HEAD}, load_weights")
    if head.config.get("norm_before_residual") is True:
        yield Finding(
            Cause.NORM_BEFORE_RESIDUAL,
            Severity.LIKELY,
            "the head says norm_before_residual, and SGLang takes the residual before the norm",
            f"the flag is read nowhere ({HEAD}, 0.5.8 to 0.5.23)",
        )
    if "norm_output" in head.nested and "norm_output" not in head.config:
        yield Finding(
            Cause.FEEDBACK_NORM,
            Severity.LIKELY,
            "norm_output stands in eagle_config, where it is not read",
            f"it is read at the top of config.json ({HEAD})",
            Fix(
                "set norm_output at the top of config.json",
                config={"norm_output": head.nested["norm_output"]},
            ),
        )
    yield from _lm_head(drafting, head)


def _lm_head(drafting: Drafting, head: Head) -> Iterator[Finding]:
    names, draft, vocabulary = head.tensors, head.draft_vocabulary, head.vocabulary
    if not names or head.is_quantised:
        return
    if head.config.get("tie_word_embeddings") is True:
        if draft and vocabulary and draft < vocabulary:
            yield Finding(
                Cause.LM_HEAD,
                Severity.FATAL,
                f"the head is tied to the embedding, its vocabulary reduced to {draft} of {vocabulary}",
                f"a tied head is the target's embedding ({HEAD})",
                Fix("set tie_word_embeddings to false", config={"tie_word_embeddings": False}),
            )
    elif "lm_head.weight" not in names and draft is not None:
        same = draft == vocabulary
        fix = Fix(
            "remove draft_vocab_size: the target's head is used then", config={"draft_vocab_size": None}
        )
        yield Finding(
            Cause.LM_HEAD,
            Severity.FATAL,
            f"there is no lm_head, and draft_vocab_size is {draft}",
            f"the head keeps its random start; the target's is used only without draft_vocab_size ({HEAD}, "
            "issue #27908)",
            fix if same else targets_rows(drafting),
        )


def _captured(drafting: Drafting, boundaries: Sequence[int] | None) -> Iterator[Finding]:
    head, layers = Head(drafting.head), drafting.target.whole("num_hidden_layers") or 0
    if boundaries is None or not gets_states(drafting):
        return
    family = layer_ids.family_of(drafting.target.architecture)
    ids = head.nested_ids
    yield from width_findings(drafting, boundaries, len(ids or ()), "SGLang layers/aux_hidden_states.py")
    if ids and len(boundaries) < len(ids):
        yield Finding(
            Cause.LAYERS,
            Severity.FATAL,
            f"of {len(ids)} layers named, {len(boundaries)} are captured: "
            f"{boundary_names(boundaries, layers)}",
            f"repeated layers count once, and those outside the model are lost ({family.source})",
        )
    if ids and list(ids) != sorted(ids):
        yield Finding(
            Cause.ORDER,
            Severity.INFO,
            f"the config names the layers in another order than {boundary_names(boundaries, layers)}",
            "they stand side by side in ascending order (models/deepseek_v2.py: the loop over layers)",
        )
    if head.outer_ids and not ids:
        yield Finding(
            Cause.LAYERS,
            Severity.INFO,
            "the layers are named at the top of config.json, where SGLang does not look: "
            f"it takes its default, {boundary_names(boundaries, layers)}",
            "only eagle_config is read (model_runner_components/spec_aux_hidden_state.py, 0.5.23)",
        )
    version = version_of(drafting.version)
    if version and not READ[0] <= version[:3] <= READ[1]:
        oldest, newest = (".".join(map(str, v)) for v in READ)
        yield Finding(
            Cause.LAYERS,
            Severity.INFO,
            f"SGLang {drafting.version} was not read",
            f"the rules are those of {oldest} to {newest}",
        )


def _context(drafting: Drafting) -> Iterator[Finding]:
    own, served = drafting.head.whole("max_position_embeddings"), served_context(drafting)
    if not own or not served or own >= served:
        return
    grows = positions(drafting) == served
    seen = f"the drafter knows {own} positions, requests may have {served}"
    if grows or not drafting.settings:  # of a server that is only told of, the flags are not known
        rule = f"{LONGER_CONTEXT} stretches it; it was not trained there (issue #6783)"
        yield Finding(Cause.CONTEXT, Severity.INFO, seen, rule)
        return
    yield Finding(
        Cause.CONTEXT,
        Severity.FATAL,
        seen,
        f"SGLang refuses it without {LONGER_CONTEXT}=1 (configs/model_config.py, 0.5.23; issue #6783)",
        Fix(
            f"set max_position_embeddings of the drafter to {served}",
            config={"max_position_embeddings": served},
        ),
    )

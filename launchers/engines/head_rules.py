"""Rules about a drafter that SGLang and vLLM share; each has its own names for methods and its own files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from launchers.engines.wiring import Drafting
from results.head_config import Head, HeadKind, usual_name
from results.wiring import Cause, Finding, Fix, Severity

# What the loaders of both engines know of a head of EAGLE-3, by usual names.
KNOWN_NAMES = re.compile(
    r"(layers\.\d+\.(self_attn|mlp|input_layernorm|hidden_norm|post_attention_layernorm)"
    r"|fc|norm|embed_tokens|lm_head|input_norm|fc_norm\.\d+)\..+|.*(d2t|t2d).*"
)
HARMLESS = re.compile(r".*rotary_emb\..*|mask_hidden")
LAYER = "layers.0."
REQUIRED: tuple[tuple[str, ...], ...] = (  # one of each is needed
    ("fc.weight",),
    ("norm.weight",),
    (f"{LAYER}input_layernorm.weight",),
    (f"{LAYER}hidden_norm.weight",),
    (f"{LAYER}post_attention_layernorm.weight",),
    tuple(f"{LAYER}self_attn.{name}.weight" for name in ("q_proj", "qkv_proj", "q_b_proj")),
    (f"{LAYER}self_attn.o_proj.weight",),
    (f"{LAYER}mlp.up_proj.weight", f"{LAYER}mlp.gate_up_proj.weight"),
    (f"{LAYER}mlp.down_proj.weight",),
)
READS_BOTH = ("q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "kv_a_proj_with_mqa")


@dataclass(frozen=True, slots=True)
class NormFlags:
    """Norms that the engine puts before the fusion layer."""

    before_fc: bool
    of_states: bool


def parallelism_findings(checks: Sequence[tuple[bool, str, str]]) -> Iterator[Finding]:
    """Of each whether it is on, what it is, and the rule: what is known to break what a drafter gets."""
    for on, seen, rule in checks:
        if on:
            yield Finding(Cause.PARALLELISM, Severity.INFO, seen, rule)


def method_findings(
    drafting: Drafting, method: str, methods: Mapping[HeadKind, str], source: str
) -> list[Finding]:
    """Whether a method is set, and whether it is the one that this kind of drafter was made for."""
    kind = Head(drafting.head).kind
    fitting = methods.get(kind, "")
    fix = Fix(f"use the method {fitting}", method=fitting) if fitting else None
    if not drafting.attached:
        seen = f"{drafting.head.folder.name} is named as a drafter, and no speculative method is set"
        return [Finding(Cause.NOT_ATTACHED, Severity.FATAL, seen, f"nothing is drafted then ({source})", fix)]
    of_one_folder = drafting.head.folder == drafting.target.folder  # the target's own draft layers
    if of_one_folder and method == methods[HeadKind.EAGLE3] and kind is not HeadKind.EAGLE3:
        seen = f"the method is {drafting.method}, the drafter is the target itself"
        return [Finding(Cause.ALGORITHM, Severity.FATAL, seen, f"it needs an EAGLE-3 head ({source})")]
    if not fitting or of_one_folder or fitting == method:
        return []
    seen = f"the method is {drafting.method}, the drafter is {kind.value}"
    return [Finding(Cause.ALGORITHM, Severity.FATAL, seen, f"{kind.value} needs {fitting} ({source})", fix)]


def norm_findings(drafting: Drafting, flags: NormFlags, source: str) -> list[Finding]:
    """Norms before the fusion layer: flags against tensors."""
    head = Head(drafting.head)
    names = head.tensors
    if not names:
        return []
    has_one = "input_norm.weight" in names
    has_each = any(name.startswith("fc_norm.") for name in names)
    return [
        *_norm(Cause.NORM_BEFORE_FC, "norm_before_fc", has_one, flags.before_fc, head, source),
        *_norm(Cause.FC_NORM, "fc_norm", has_each, flags.of_states, head, source),
    ]


def _norm(cause: Cause, flag: str, there: bool, applied: bool, head: Head, source: str) -> list[Finding]:
    if there == applied:
        return []
    set_to = {flag: there, **({f"eagle_config.{flag}": there} if flag in head.nested else {})}
    fix = Fix(f"set {flag} to {str(there).lower()}", config=set_to)
    if there:
        is_on = bool(head.config.get(flag) or head.nested.get(flag))
        seen = f"the checkpoint has the weights of {flag}, and the norm is not applied"
        rule = f"a trained norm may not be left out ({source})"
        return [Finding(cause, Severity.FATAL, seen, rule, None if is_on else fix)]
    seen = f"{flag} is on, and the checkpoint has no weights for it"
    rule = f"the norm would be applied with weights that nobody trained ({source})"
    return [Finding(cause, Severity.LIKELY, seen, rule, fix)]


def name_findings(drafting: Drafting, *, prefix: str | None, stops: bool, source: str) -> list[Finding]:
    """Tensors that no loader maps, and those that are not there.

    `prefix`: one that this engine's loader does not take off. `stops`: the engine refuses what it cannot map.
    """
    head = Head(drafting.head)
    if not head.checkpoint.tensors or head.is_quantised:
        return []
    strange = [name for name in head.checkpoint.tensors if _is_strange(name, prefix)]
    there = {usual_name(name) for name in head.checkpoint.tensors if name not in strange}
    missing = [names[0] for names in REQUIRED if not there & {*names}]
    found = []
    if strange:
        what = "stops at" if stops else "drops without a word"
        severity = Severity.FATAL if stops else Severity.LIKELY
        rule = f"the loader {what} names that it cannot map ({source})"
        fix = _prefix_fix(strange, prefix)
        found.append(Finding(Cause.NAMES, severity, f"no place for {_few(strange)}", rule, fix))
    if missing and not (strange and stops):
        rule = f"a parameter without a tensor keeps its random start ({source})"
        fix = _prefix_fix(strange, prefix)
        found.append(Finding(Cause.NAMES, Severity.FATAL, f"no tensor for {_few(missing)}", rule, fix))
    return found


def _prefix_fix(strange: Sequence[str], prefix: str | None) -> Fix | None:
    """Where all that is strange about the names is what stands before them."""
    first = {f"{name.split('.', 1)[0]}." for name in strange}
    if len(first) != 1 or any(_is_strange(name.removeprefix(*first), prefix) for name in strange):
        return None
    return Fix(f"take {first.pop()} off the names of the tensors")


def _is_strange(name: str, prefix: str | None) -> bool:
    if HARMLESS.fullmatch(name):
        return False
    if prefix and name.startswith(prefix):
        return True
    return not KNOWN_NAMES.fullmatch(usual_name(name))


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def layout_findings(drafting: Drafting, source: str) -> list[Finding]:
    """The first layer of an EAGLE-3 head reads the embedding and the fused state side by side."""
    head = Head(drafting.head)
    hidden = head.hidden_size
    if head.is_quantised or not hidden:
        return []
    for part in READS_BOTH:
        tensor = head.tensors.get(f"{LAYER}self_attn.{part}.weight")
        if tensor is not None and len(tensor.shape) == 2 and tensor.shape[1] != 2 * hidden:
            seen = f"{part} of its first layer takes {tensor.shape[1]} numbers, not 2 x {hidden}"
            rule = f"it reads the embedding and the fused state side by side ({source})"
            return [Finding(Cause.ALGORITHM, Severity.FATAL, seen, rule)]
    return []


def targets_rows(drafting: Drafting) -> Fix | None:
    """A stand-in for a head that is lost: the target's own rows, of the draft tokens where they are fewer."""
    if Head(drafting.head).hidden_size != drafting.target.whole("hidden_size"):
        return None
    return Fix(
        "take lm_head from the training again, or the target's rows", tensors=("lm_head: from target",)
    )

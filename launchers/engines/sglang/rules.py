"""Which combinations of SGLang's settings must not be launched, with the nearest ones that may.

A rule is a function of a canonical Point's knobs and of the server's settings (by field of ServerArgs); it
says what is wrong and what would be right, or None. Where a rule was found: see `sglang_knobs`.
"""

import json
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path

from launchers.engines.engine import Served
from launchers.engines.knobs import Knobs, check_value, filled, refuse_strangers
from launchers.engines.model_folder import config_if_here
from launchers.engines.sglang.knobs import (
    ADAPTIVE_STEPS,
    LOSSY_KNOBS,
    METHODS,
    canonical,
    method_of,
)
from launchers.engines.sglang.model import brings_draft, methods_of_draft
from results.errors import UsageError
from results.records import Point

Settings = Mapping[str, object]  # field of ServerArgs -> value; a field that is not known is absent
Rule = Callable[[str, Knobs, Settings], str | None]

NO_SPECULATION = ("torch_native", "flex_attention")
PAGED_TREES = {"NGRAM": ("flashinfer",)}
PAGED_EAGLE_TREES = ("flashinfer", "fa3", "triton")
NGRAM_DEVICES = ("cuda", "cpu", "xpu")
MOST_STEPS, MOST_BRANCHES = 64, 64


def check(point: Point, settings: Settings) -> None:
    """Raise UsageError with the rule and the nearest legal values if a Point is illegal here."""
    method = method_of(point)
    refuse_strangers(point, method.knobs)
    given = filled(point, method.knobs)
    knobs = {**method.defaults, **canonical(point).speculative}
    for knob in method.knobs:
        check_value(point, knob, given[knob.name])
    if point.is_baseline:
        return
    for rule in RULES:
        if broken := rule(point.method, knobs, settings):
            raise UsageError(f"{point.label}: {broken}")


def open_methods(served: Served) -> list[str]:
    """Methods that model and draft allow, those the draft was made for first."""
    fitting = methods_of_draft(config_if_here(Path(served.draft))) if served.draft is not None else ()
    model = Path(served.model)
    may_draft_alone = brings_draft(config_if_here(model)) or not model.is_dir()
    return [
        name
        for name, method in METHODS.items()
        if not method.needs_draft or name in fitting or (name == "NEXTN" and may_draft_alone)
    ]


def why_closed(method: str, served: Served) -> str:
    """Why a method that there is cannot be used with this model and draft."""
    if served.draft is None:
        return f"{method} needs a draft model: name one, or choose another method"
    fitting = " or ".join(methods_of_draft(config_if_here(Path(served.draft))))
    return f"{method} cannot draft with {Path(served.draft).name}: it was made for {fitting}"


def tree_size(num_steps: int, topk: int) -> int:
    """Nodes that can be drafted and verified, root included (run: one more kills the first request)."""
    return 1 + topk + (num_steps - 1) * topk**2


def _whole(knobs: Knobs, *names: str) -> list[int]:
    return [int(knobs[name]) for name in names]


def _tree_is_too_small(method: str, knobs: Knobs, settings: Settings) -> str | None:
    """Not validated by the engine; the nodes beyond the tree do not exist (run)."""
    if "topk" not in knobs or knobs["topk"] == 1:
        return None
    steps, topk, draft = _whole(knobs, "num_steps", "topk", "draft_tokens")
    size = tree_size(steps, topk)
    if draft <= size:
        return None
    legal = [f"{steps}/{topk}/{size}"]
    deeper = (s for s in range(steps, MOST_STEPS + 1) if tree_size(s, topk) >= draft)
    wider = (k for k in range(topk, MOST_BRANCHES + 1) if tree_size(steps, k) >= draft)
    legal += [f"{s}/{topk}/{draft}" for s in islice(deeper, 1)]
    legal += [f"{steps}/{k}/{draft}" for k in islice(wider, 1)]
    return (
        f"draft_tokens={draft} is more than the tree of num_steps={steps} topk={topk} holds ({size}): "
        f"nearest {', '.join(legal)}"
    )


def _tree_cannot_be_climbed(method: str, knobs: Knobs, settings: Settings) -> str | None:
    """Accepted by the engine, which then drafts steps that it cannot verify."""
    if "topk" not in knobs or knobs["topk"] == 1:
        return None
    steps, topk, draft = _whole(knobs, "num_steps", "topk", "draft_tokens")
    if draft >= steps + 1:
        return None
    return (
        f"draft_tokens={draft} cannot verify num_steps={steps} (it needs {steps + 1}): nearest "
        f"{steps}/{topk}/{steps + 1}, {draft - 1}/{topk}/{draft}"
    )


def _adaptive_is_dropped(method: str, knobs: Knobs, settings: Settings) -> str | None:
    """The engine only warns, and goes on with static values."""
    if not knobs.get("adaptive"):
        return None
    if knobs["topk"] != 1:
        return f"adaptive needs topk=1, not {knobs['topk']} (the engine would silently be static): set topk=1"
    if _attention_ranks(settings) > 1:
        return "adaptive does not work with data-parallel attention: leave out attn-dp-size"
    for field in ("enable_multi_layer_eagle", "enable_two_batch_overlap", "enable_pdmux"):
        if settings.get(field):
            return f"adaptive does not work with --{field.replace('_', '-')}: leave it out"
    steps = _candidate_steps(str(knobs.get("adaptive_config") or ""))
    if knobs["num_steps"] in steps:
        return None
    nearest = min((s for s in steps if s), key=lambda s: abs(s - int(knobs["num_steps"])), default=1)
    return f"num_steps={knobs['num_steps']} is not among adaptive's steps {steps}: nearest is {nearest}"


def _candidate_steps(config: str) -> list[int]:
    """Every step of a file for `adaptive_config`. Raises UsageError if it is not in that format."""
    if not config:
        return list(ADAPTIVE_STEPS)
    try:
        rows = json.loads(Path(config).expanduser().read_text("utf-8"))
        steps = [s for key, row in rows.items() if key.isdigit() for s in row["candidate_steps"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"adaptive_config {config}: {error}") from None
    if not steps:
        raise UsageError(
            f'adaptive_config {config}: needs batch sizes as keys: {{"1": {{"candidate_steps": [1, 3]}}}}'
        )
    return sorted(set(steps))


def _sampling_needs_a_chain(method: str, knobs: Knobs, settings: Settings) -> str | None:
    blocks = knobs.get("use_block_verification")
    if not blocks and not knobs.get("use_rejection_sampling"):
        return None
    name = "use_block_verification" if blocks else "use_rejection_sampling"
    if knobs["topk"] != 1:
        return f"{name} needs topk=1, not {knobs['topk']}"
    if any(knobs[threshold] != 1.0 for threshold in LOSSY_KNOBS):
        return f"{name} ignores the accept thresholds: leave them at 1.0"
    if blocks and settings.get("device") not in (None, "cuda"):
        return f"use_block_verification needs a GPU, not device {settings['device']}"
    return None


def _backend_cannot(method: str, knobs: Knobs, settings: Settings) -> str | None:
    """Trees and pages; a backend that is not known forbids nothing."""
    backends = {
        str(settings[field])
        for field in ("attention_backend", "decode_attention_backend", "prefill_attention_backend")
        if settings.get(field)
    }
    if without := sorted(backends & set(NO_SPECULATION)):
        return f"attention backend {without[0]} does not speculate: choose another --attention-backend"
    width = int(knobs.get("topk", knobs.get("breadth", 1)))
    knob = "topk" if "topk" in knobs else "breadth"
    if width > 1 and "topk" in knobs and "trtllm_mha" in backends:
        return f"attention backend trtllm_mha needs topk=1, not {width}"
    page_size = settings.get("page_size") or 1
    paged = PAGED_TREES.get(method, PAGED_EAGLE_TREES)
    main = settings.get("attention_backend")
    if width > 1 and isinstance(page_size, int) and page_size > 1 and main and main not in paged:
        names = " or ".join(paged)
        cure = f"set {knob}=1 or --page-size 1"
        return f"{knob}={width} with page size {page_size} needs {names}, not {main}: {cure}"
    return None


def _method_cannot(method: str, knobs: Knobs, settings: Settings) -> str | None:
    if method in ("NGRAM", "STANDALONE") and _attention_ranks(settings) > 1:
        return f"{method} does not work with data-parallel attention: leave out attn-dp-size"
    device = settings.get("device")
    if method == "NGRAM" and device is not None and device not in NGRAM_DEVICES:
        return f"NGRAM runs on {', '.join(NGRAM_DEVICES)}, not on {device}"
    return None


def _ngram_breadths(method: str, knobs: Knobs, settings: Settings) -> str | None:
    """The scheduler dies at its start otherwise."""
    if method != "NGRAM" or int(knobs["min_breadth"]) <= int(knobs["breadth"]):
        return None
    low, high = knobs["min_breadth"], knobs["breadth"]
    return f"min_breadth <= breadth: lower min_breadth to {high} or raise breadth to {low}"


def _attention_ranks(settings: Settings) -> int:
    ranks = settings.get("attn_dp_size")
    if settings.get("enable_dp_attention") and not (isinstance(ranks, int) and ranks > 1):
        ranks = settings.get("dp_size")
    return ranks if isinstance(ranks, int) else 1


RULES: tuple[Rule, ...] = (
    _tree_is_too_small,
    _tree_cannot_be_climbed,
    _adaptive_is_dropped,
    _sampling_needs_a_chain,
    _backend_cannot,
    _method_cannot,
    _ngram_breadths,
)

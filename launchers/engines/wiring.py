"""How an engine wires a drafter to its target: what it reads of the folders and flags, and what follows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from results.checkpoint import Checkpoint
from results.errors import UsageError
from results.head_config import FLOATS, IDS, Head
from results.records import BASELINE_METHOD, KnobValue
from results.wiring import Cause, D2t, Finding, Fix, Reading, Severity


@dataclass(frozen=True, slots=True)
class Drafting:
    """A drafter as an engine is told to use it."""

    target: Checkpoint
    head: Checkpoint
    engine: str  # as `Engine.name`
    version: str  # "" = not known
    method: str  # the speculative method in effect, by the engine's name; "" or "none" = none is set
    settings: Mapping[str, KnobValue] = field(default_factory=dict)  # by flag name without dashes
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def attached(self) -> bool:
        return self.method not in ("", BASELINE_METHOD)

    def whole(self, *names: str) -> int | None:
        """The first of these settings that is a whole number."""
        for name in names:
            value = str(self.settings.get(name, "")).strip()
            if re.fullmatch(r"\d+", value):
                return int(value)
        return None

    def is_on(self, *names: str) -> bool:
        """Whether one of these switches is set."""
        return any(str(self.settings.get(name, "")).lower() in ("true", "1", "yes") for name in names)

    def text(self, *names: str) -> str:
        """The first of these settings that there is, as it is written; "" if there is none."""
        return next((str(self.settings[name]) for name in names if name in self.settings), "")


class EngineWiring(Protocol):
    """What one engine makes of a drafting. Nothing is started, no weights are loaded."""

    def reading(self, drafting: Drafting) -> Reading | None:
        """How it runs the head; None if the head is none of EAGLE-3, or the target's layers are unknown."""

    def findings(self, drafting: Drafting) -> Sequence[Finding]:
        """What is wrong by this engine's own rules, each with its source."""

    def fix_for(self, drafting: Drafting, boundaries: Sequence[int]) -> Fix | None:
        """The change that makes it read these boundaries; None if no change can."""


def wiring_of(engine: str) -> EngineWiring:
    """Raises UsageError for an engine that is not known."""
    from launchers.engines.llamacpp.wiring import LlamaCppWiring
    from launchers.engines.sglang.wiring import SglangWiring
    from launchers.engines.vllm.wiring import VllmWiring

    known: dict[str, EngineWiring] = {
        "sglang": SglangWiring(),
        "vllm": VllmWiring(),
        "llamacpp": LlamaCppWiring(),
    }
    if engine not in known:
        raise UsageError(f"how {engine} wires a drafter is not known: only {', '.join(known)}")
    return known[engine]


def version_of(text: str) -> tuple[int, ...]:
    """(0, 5, 12) of `0.5.12.post1`, `v0.5.12rc1` or `0.5.12+cpu`; () if it is none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(map(int, match[1].split("."))) if match else ()


def default_boundaries(layers: int) -> tuple[int, ...]:
    """What both engines take where no layers are named."""
    return tuple(sorted({2, layers // 2, layers - 3}))


def d2t_of(head: Head, target: Checkpoint) -> D2t:
    """As both engines have it: offsets if there is a map, else draft ids go for target ids."""
    return D2t.OFFSETS if "d2t" in head.tensors else D2t.ABSENT


def width_findings(drafting: Drafting, boundaries: Sequence[int], named: int, source: str) -> list[Finding]:
    """The fusion layer as its tensor is, as the engine makes it, and as the target fills it.

    Where of the `named` layers some are lost, that is what is wrong, and the width follows from it.
    """
    head = Head(drafting.head)
    fc = head.tensors.get("fc.weight")
    made = head.declared_states * (head.target_hidden_size or 0)
    width, one = head.fusion_width, drafting.target.whole("hidden_size")
    found = []
    if fc is None or fc.dtype not in FLOATS or width is None:
        return []
    if made and made != width:
        found.append(
            _too_wide(
                f"the fusion layer's tensor takes {width} numbers, the config says {made} "
                f"({head.declared_states} states of {head.target_hidden_size})",
                f"the config and the tensor must agree, or loading fails ({source})",
                _count_fix(head, len(boundaries), one),
            )
        )
    if one and len(boundaries) * one != width and named <= len(boundaries):
        found.append(
            _too_wide(
                f"the target fills {len(boundaries)} states of {one} = {len(boundaries) * one} numbers, "
                f"the fusion layer takes {width}",
                f"what is captured must fill the fusion layer ({source})",
            )
        )
    return found


def _too_wide(seen: str, rule: str, fix: Fix | None = None) -> Finding:
    return Finding(Cause.FC_WIDTH, Severity.FATAL, seen, rule, fix)


def _count_fix(head: Head, captured: int, one: int | None) -> Fix | None:
    """Where only the count in the config is wrong."""
    if head.fusion_width != captured * (one or 0) or head.target_hidden_size != one:
        return None
    return Fix(f"set num_aux_hidden_states to {captured}", config={"num_aux_hidden_states": captured})


def ids_fix(head: Head, key: str, ids: Sequence[int], words: str) -> Fix:
    """Names these layers under the key; the number of states too, where the engine would count otherwise."""
    changes: dict[str, Any] = {key: list(ids)}
    counted_from = len(ids) if key != IDS else len(head.nested_ids or ())
    if "num_aux_hidden_states" in head.checkpoint.config or (counted_from or 3) != len(ids):
        changes["num_aux_hidden_states"] = len(ids)
    return Fix(f"{words}: set {' and '.join(f'{k} to {v}' for k, v in changes.items())}", config=changes)

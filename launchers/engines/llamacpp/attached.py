"""A llama.cpp server that somebody else runs: it tells whether it speculates, not how."""

from collections.abc import Mapping
from typing import Any, Self

from launchers.engines.attached import SPECULATING, UNKNOWN, AttachedKnown, Found, told_at
from launchers.engines.http import ask
from launchers.engines.llamacpp.engine import LlamaCpp
from launchers.engines.prometheus import fetch_samples, total
from launchers.launcher import Endpoint
from results.records import BASELINE_METHOD, KnobValue, Point, SpecCounters

PREDICTED = "llamacpp:tokens_predicted_total"


class AttachedLlamaCpp(AttachedKnown):
    """Engine of a running llama-server, or of the embedded one."""

    name = "llamacpp"
    title = "llama.cpp"
    _own = LlamaCpp()

    @classmethod
    def at(cls, url: str, entry: Mapping[str, Any]) -> Self | None:
        props = told_at(f"{url}/props")
        if props is None or "model_path" not in props:
            return None
        slots = _slots(url)
        method = UNKNOWN
        if slots:
            method = SPECULATING if any(slot.get("speculative") for slot in slots) else BASELINE_METHOD
        untold = {
            SPECULATING: "By which method it speculates, and with what knobs, it does not tell.",
            UNKNOWN: "Whether it speculates it does not tell: it was started without --slots.",
        }.get(method, "")
        version = str(props.get("build_info", "unknown"))
        return cls(url, Found(version, str(entry["id"]), Point(method), _effective(props, slots), untold))

    def context_tokens(self, endpoint: Endpoint) -> int | None:
        return min((int(slot["n_ctx"]) for slot in _slots(self.url)), default=None)

    def _counters(self, endpoint: Endpoint) -> SpecCounters | None:
        return self._own.counters(endpoint)

    def _load(self) -> tuple[int, int] | None:
        """From the slots where there are no metrics."""
        page = fetch_samples(f"{self.url}/metrics") or []
        running, waiting = (total(page, f"llamacpp:requests_{name}") for name in ("processing", "deferred"))
        if running is not None and waiting is not None:
            return running, waiting
        slots = _slots(self.url)
        return (sum(bool(slot.get("is_processing")) for slot in slots), 0) if slots else None

    def _generated(self) -> int | None:
        return total(fetch_samples(f"{self.url}/metrics") or [], PREDICTED)

    def _reset(self, endpoint: Endpoint) -> bool:
        return True  # not needed: every request forbids the use of cached prefixes


def _slots(url: str) -> list[Mapping[str, Any]]:
    """Empty on a server started without them."""
    answer = ask("GET", f"{url}/slots")
    told = answer.json() if answer.ok else []
    return told if isinstance(told, list) else []


def _effective(props: Mapping[str, Any], slots: list[Mapping[str, Any]]) -> dict[str, KnobValue | None]:
    context = [int(slot["n_ctx"]) for slot in slots]
    return {
        "build": props.get("build_info"),
        "model_path": props.get("model_path"),
        "quantization": props.get("model_ftype"),
        "parallel": props.get("total_slots"),
        "context_per_slot": min(context, default=None),
    }

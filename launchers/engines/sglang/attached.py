"""An SGLang server that somebody else runs: it tells all its arguments; its drafts only in its replies."""

from collections.abc import Mapping
from typing import Any, Self

from launchers.engines.attached import AttachedKnown, Found, known_point, told_at
from launchers.engines.prometheus import fetch_samples, total
from launchers.engines.sglang import knobs
from launchers.engines.sglang.counts import admitted
from launchers.engines.sglang.engine import Sglang
from launchers.engines.sglang.parity import is_speculative
from launchers.engines.sglang.readback import CAPACITY, KNOB_OF_FIELD, NOT_SETTINGS, plain, ranks
from launchers.launcher import Endpoint
from results.records import BASELINE_METHOD, KnobValue, Point
from results.secrets import is_secret

GENERATED = "sglang:generation_tokens_total"
STATE = frozenset({"internal_states", "version", "frontend"})  # no arguments


class AttachedSglang(AttachedKnown):
    """Engine of a running SGLang."""

    name = "sglang"
    title = "SGLang"
    _own = Sglang()

    @classmethod
    def at(cls, url: str, entry: Mapping[str, Any]) -> Self | None:
        info = told_at(f"{url}/server_info") or told_at(f"{url}/get_server_info")
        if info is None or "speculative_algorithm" not in info:
            return None
        version = str(info.get("version", "unknown"))
        return cls(url, Found(version, str(entry["id"]), _point(info), _effective(info)))

    def lossy(self, point: Point, served: object) -> str:
        below = [f"{k}={v}" for k, v in point.knobs.items() if k in knobs.LOSSY_KNOBS and v != 1.0]
        return f"{', '.join(below)} keeps drafts the model would reject" if below else ""

    def context_tokens(self, endpoint: Endpoint) -> int | None:
        return self._own.context_tokens(endpoint)

    def _load(self) -> tuple[int, int] | None:
        """The live counts of recent versions, else the gauges, which may be late."""
        told = told_at(f"{self.url}/v1/loads")
        loads = told.get("loads") if told else None
        if loads:
            return (
                sum(int(rank["num_running_reqs"]) for rank in loads),
                sum(int(rank["num_waiting_reqs"]) for rank in loads),
            )
        return admitted(fetch_samples(f"{self.url}/metrics") or [])

    def _generated(self) -> int | None:
        """The counter is not there before the first request has ended."""
        page = fetch_samples(f"{self.url}/metrics")
        return None if page is None else total(page, GENERATED) or 0

    def _reset(self, endpoint: Endpoint) -> bool:
        return self._own.reset_cache(endpoint)


def _point(info: Mapping[str, Any]) -> Point:
    server = ranks(info)[0]
    method = str(server.get("speculative_algorithm") or BASELINE_METHOD)
    if method == BASELINE_METHOD:
        return Point(method)
    told = {knob: plain(server.get(field)) for field, knob in KNOB_OF_FIELD.items()}
    known = {knob: value for knob, value in told.items() if value is not None}
    return known_point(method, known, knobs.canonical, knobs.METHODS)


def _effective(info: Mapping[str, Any]) -> dict[str, KnobValue | None]:
    """By flag, as in the records of servers that are started here."""
    flags = {
        f"--{name.replace('_', '-')}": plain(value)
        for name, value in info.items()
        if name not in STATE | NOT_SETTINGS | {CAPACITY} and not is_speculative(name) and not is_secret(name)
    }
    method = info.get("speculative_algorithm") or BASELINE_METHOD
    own = {knob: plain(info.get(field)) for field, knob in KNOB_OF_FIELD.items()}
    told = {"version": plain(info.get("version")), "method": method, CAPACITY: plain(info.get(CAPACITY))}
    return {**told, **own, **flags}

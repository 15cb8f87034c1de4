"""A vLLM server that somebody else runs: its settings in development mode, else what its metrics tell."""

from collections.abc import Mapping
from typing import Any, Self

from launchers.engines.attached import SPECULATING, UNKNOWN, AttachedKnown, Found, known_point, told_at
from launchers.engines.prometheus import total
from launchers.engines.vllm import knobs
from launchers.engines.vllm.counters import FAMILY, RUNNING, WAITING, admission_of, counters_of, fetch
from launchers.engines.vllm.effective import SPECULATIVE, flattened
from launchers.engines.vllm.engine import Vllm
from launchers.engines.vllm.readback import INFO_TIMEOUT_S
from launchers.launcher import Endpoint
from results.records import BASELINE_METHOD, KnobValue, Point, SpecCounters
from results.secrets import is_secret

GENERATED = "vllm:generation_tokens_total"


class AttachedVllm(AttachedKnown):
    """Engine of a running vLLM."""

    name = "vllm"
    title = "vLLM"
    _own = Vllm()

    @classmethod
    def at(cls, url: str, entry: Mapping[str, Any]) -> Self | None:
        told = told_at(f"{url}/version")
        if told is None or "version" not in told:
            return None
        info = told_at(f"{url}/server_info?config_format=json", INFO_TIMEOUT_S) or {}
        config, model = info.get("vllm_config"), str(entry["id"])
        if isinstance(config, dict):
            settings = {k: v for k, v in flattened(config, {}).items() if not is_secret(k.split(".")[-1])}
            return cls(url, Found(str(told["version"]), model, _point(config, settings), settings))
        untold = "Its settings it does not tell: it was started without VLLM_SERVER_DEV_MODE=1."
        return cls(url, Found(str(told["version"]), model, _point_from_metrics(url), {}, untold))

    def lossy(self, point: Point, served: object) -> str:
        return knobs.LOSSY.get(str(point.knobs.get("rejection_sample_method")), "")

    def _counters(self, endpoint: Endpoint) -> SpecCounters | None:
        return counters_of(fetch(self.url, FAMILY))

    def _load(self) -> tuple[int, int] | None:
        return admission_of(fetch(self.url, RUNNING, WAITING))

    def _generated(self) -> int | None:
        return total(fetch(self.url, GENERATED), GENERATED)

    def _reset(self, endpoint: Endpoint) -> bool:
        return self._own.reset_cache(endpoint)


def _point(config: Mapping[str, Any], settings: Mapping[str, KnobValue | None]) -> Point:
    if config.get(SPECULATIVE) is None:
        return Point(BASELINE_METHOD)
    told = {k: v for k, v in settings.items() if k in knobs.KNOB_NAMES and v is not None}
    return known_point(str(settings["method"]), told, knobs.canonical, knobs.METHODS)


def _point_from_metrics(url: str) -> Point:
    """Counters of drafts are there only while it speculates, one for each position of a draft."""
    counted = counters_of(fetch(url, FAMILY))
    if counted is not None:
        tokens = len(counted.accepted_per_position)
        return Point(SPECULATING, {"num_speculative_tokens": tokens} if tokens else {})
    return Point(BASELINE_METHOD if admission_of(fetch(url, RUNNING, WAITING)) is not None else UNKNOWN)

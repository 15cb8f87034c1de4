"""What a running vLLM says is in effect: its whole config, or the start lines of its log."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launchers.engines.engine import ReadBack
from launchers.engines.http import ask, get_json
from launchers.engines.vllm.effective import SPECULATIVE, compare_flags, compare_point, flattened
from launchers.engines.vllm.flags import Capabilities
from launchers.engines.vllm.log import runner_from_log, speculation_from_log
from launchers.launcher import Endpoint
from results.errors import MeasurementInvalid
from results.reasons import Reason
from results.records import KnobValue, Point

INFO_TIMEOUT_S = 60  # it also describes the machine, once


def read_back(
    endpoint: Endpoint, point: Point, model: str, chosen: Mapping[str, KnobValue], known: Capabilities
) -> ReadBack:
    """Of a server started for a canonical Point; `chosen` are the user's own flags."""
    if not endpoint.owns_port():
        raise MeasurementInvalid(Reason.WRONG_SERVER, f"{endpoint.base_url} is not served by this launch")
    _check_model(endpoint, model)
    log = endpoint.log_path.read_text("utf-8", "replace")
    config = _config(endpoint)
    if config is None:
        return _from_log(point, model, log)
    return _from_config(point, model, config, chosen, known, runner_from_log(log))


def _check_model(endpoint: Endpoint, model: str) -> None:
    """/v1/models calls the path that is served `root`."""
    served = get_json(f"{endpoint.base_url}/v1/models")["data"]
    roots = [str(entry.get("root") or entry["id"]) for entry in served]
    if Path(model).resolve() not in [Path(root).resolve() for root in roots]:
        raise MeasurementInvalid(Reason.WRONG_SERVER, f"serves {', '.join(roots)}, not {model}")


def _config(endpoint: Endpoint) -> Mapping[str, Any] | None:
    """None on a server without development mode, or too old to tell it as JSON."""
    answer = ask("GET", f"{endpoint.base_url}/server_info?config_format=json", timeout_s=INFO_TIMEOUT_S)
    config = answer.json().get("vllm_config") if answer.ok else None
    return config if isinstance(config, dict) else None


def _from_config(
    point: Point,
    model: str,
    config: Mapping[str, Any],
    chosen: Mapping[str, KnobValue],
    known: Capabilities,
    runner: str | None,
) -> ReadBack:
    section = config.get(SPECULATIVE)
    _check_speculating(point, on=section is not None)
    fixed = compare_flags(chosen, config, known.dests)
    found = compare_point(point, section, compare_flags(point.flags, config, known.dests))
    if found.dropped:
        ignored = f"{', '.join(found.dropped)} was asked for and is not in effect"
        raise MeasurementInvalid(Reason.IGNORED_SETTING, ignored)
    if point.knobs.get("rejection_sample_method") == "block" and runner == "V1":
        ignored = "rejection_sample_method=block: the V1 model runner verifies as `standard`"
        raise MeasurementInvalid(Reason.IGNORED_SETTING, ignored)
    effective = {**flattened(config, known.dests), "model_runner": runner}
    return ReadBack(model, section is not None, effective, (*found.rewrites, *fixed), found.point)


def _from_log(point: Point, model: str, log: str) -> ReadBack:
    """The start lines tell the method and its draft length, no more."""
    told = speculation_from_log(log)
    if told is None:
        return ReadBack(model, None, {})
    method, tokens = told
    _check_speculating(point, on=method is not None)
    effective: dict[str, KnobValue | None] = {"method": method, "num_speculative_tokens": tokens}
    if method is None:
        return ReadBack(model, False, {})
    found = compare_point(point, effective)
    return ReadBack(model, True, effective, found.rewrites, found.point)


def _check_speculating(point: Point, *, on: bool) -> None:
    if point.is_baseline and on:
        raise MeasurementInvalid(Reason.IGNORED_SETTING, "no speculation was asked for, and it is on")
    if not point.is_baseline and not on:
        off = f"{point.method} was asked for, and speculation is off"
        raise MeasurementInvalid(Reason.NOT_SPECULATING, off)

"""What a night was measured with: what must be equal to compare two nights, and what may explain a change."""

from collections.abc import Mapping
from typing import Any

from results.environment import short_hash
from results.records import Phase, Point
from sweeps.sweep import Sweep

GIB = 2**30
# What asks for the same load; the rest of a sweep file is for the search.
LOAD = ("workload", "load", "weights", "pairing", "objective", "seed", "args", "env", "goodput")


def segment_of(
    environment: Mapping[str, Any], sweep: Sweep, baseline: Point, winner: Point
) -> dict[str, str]:
    """Hardware, driver, what is served and what is asked of it.

    `environment` as `sweeps.prepare.Plan.environment` gives it. The engine's version is not in it: what a
    new version does is what the gate is for.
    """
    host, public = environment.get("host", {}), sweep.public()
    found = {
        "cpu": f"{host.get('cpu')}, {host.get('logical_cores')} cores",
        "memory": f"{round(host.get('memory_bytes', 0) / GIB)} GiB",
        "gpus": ", ".join(gpu["name"] for gpu in host.get("gpus", ())) or "none",
        "power limits": _told(host, "power_limit_w", " W"),
        "clock limits": _told(host, "max_sm_clock_hz", " Hz"),
        "driver": host.get("gpu_driver") or "none",
        **environment.get("served", {}),
        "prompts": environment.get("prompts", {}).get(Phase.CONFIRM, ""),
        "load": short_hash([public[key] for key in LOAD]),
        "baseline": baseline.label,
        "winner": winner.label,
    }
    return {name: str(value) for name, value in found.items() if value}


def _told(host: Mapping[str, Any], name: str, unit: str) -> str:
    values = [gpu[name] for gpu in host.get("gpus", ()) if gpu.get(name) is not None]
    return ", ".join(f"{value:g}{unit}" for value in values)


def versions_of(environment: Mapping[str, Any]) -> dict[str, str]:
    """Software, and the cores it may use: named where something changed, and no reason not to compare."""
    host = environment.get("host", {})
    found = {name: host.get(name) for name in ("engine", "kernel", "system", "python", "tuner")}
    found["usable cores"] = host.get("usable_cores")
    images = {f"image {name}": digest for name, digest in environment.get("images", {}).items()}
    return {name: str(value) for name, value in {**found, **images}.items() if value}

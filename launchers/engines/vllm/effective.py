"""vLLM's config in effect: flattened by the names users know, and compared with what was asked for."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launchers.engines.vllm import schedule
from launchers.engines.vllm.knobs import KNOB_NAMES, canonical
from launchers.engines.vllm.rules import KEY_OF
from results.records import KnobValue, Point, Rewrite

SPECULATIVE = "speculative_config"
KNOB_OF = {key: knob for knob, key in KEY_OF.items()}
# Of one start alone: ports, identities, what was compiled, how many KV blocks the free memory gave.
OF_ONE_START = frozenset(
    {
        "instance_id",
        "master_addr",
        "data_parallel_master_ip",
        "num_gpu_blocks",
        "num_cpu_blocks",
        "kv_cache_size_tokens",
        "kv_cache_max_concurrency",
        "kv_cache_memory_bytes",
        "cache_dir",
        "local_cache_dir",
        "debug_dump_path",
        "compilation_time",
        "encoder_compilation_time",
        "traced_files",
        "enabled_custom_ops",
        "disabled_custom_ops",
        "static_forward_context",
        "static_all_moe_layers",
    }
)
# What vLLM itself sets by the method or its draft length. A user who wants it equal passes it.
CONSEQUENCES = frozenset(
    {
        "--async-scheduling",  # off for methods that cannot
        "--disable-nccl-for-dp-synchronization",  # follows it
        "--cudagraph-capture-sizes",  # multiples of K + 1
        "--max-cudagraph-capture-size",
        "compilation_config.cudagraph_mode",  # a schedule of draft lengths captures pieces only
        "compilation_config.fast_moe_cold_start",
        "--disable-hybrid-kv-cache-manager",
        "--per-request-spec-decode-metrics",
        "model_runner",  # some methods have none in the newer one
    }
)


def speculative_settings(keys: Mapping[str, KnobValue | None]) -> frozenset[str]:
    """Names in `flattened` that only speculation sets."""
    return frozenset(
        {"method", "draft", *KNOB_NAMES, *CONSEQUENCES, *(f"{SPECULATIVE}.{key}" for key in keys)}
    )


def flattened(config: Mapping[str, Any], dests: Mapping[str, str]) -> dict[str, KnobValue | None]:
    """Setting -> value, of the server's whole config. A setting that has a flag goes by that flag.

    Objects of the drafter and the target inside the speculative part repeat what is elsewhere, and
    settings of one start alone are left out.
    """
    found: dict[str, KnobValue | None] = {}
    for path, value in _leaves(config):
        leaf = path.rpartition(".")[2]
        if leaf in OF_ONE_START or leaf.startswith("_") or "_port" in leaf or path.startswith(SPECULATIVE):
            continue
        name = dests[leaf] if leaf in dests and dests[leaf] not in found else path
        found[name] = _plain(value)
    limit = "--max-num-scheduled-tokens"
    if limit in found and found[limit] is None:  # what the scheduler then takes
        found[limit] = found.get("--max-num-batched-tokens")
    return {**found, **_speculation(config.get(SPECULATIVE))}


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _speculation(section: Mapping[str, Any] | None) -> dict[str, KnobValue | None]:
    """Knobs by their name, the rest of the section's plain values by their path."""
    if section is None:
        return {}
    named: dict[str, KnobValue | None] = {
        "method": _plain(section.get("method")),
        "draft": section.get("model"),
    }
    for key, value in section.items():
        knob = KNOB_OF.get(key, key)
        if key in ("method", "model") or isinstance(value, Mapping):
            continue
        if knob not in KNOB_NAMES:
            named[f"{SPECULATIVE}.{key}"] = _plain(value)
        elif knob == "tokens_per_batch_size":
            named[knob] = schedule.from_json(value) if value else None
        else:
            named[knob] = _plain(value)
    return named


def _plain(value: Any) -> KnobValue | None:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was asked for against what is in effect."""

    rewrites: tuple[Rewrite, ...]
    dropped: tuple[str, ...]  # `name=value` of what is not in effect at all
    point: Point | None  # in effect, if another than asked for


def compare_point(
    point: Point, section: Mapping[str, Any] | None, shared: Sequence[Rewrite] = ()
) -> Comparison:
    """The knobs of a Point against the speculative part of the config. What it does not print is unknown.

    `shared` are the changes of its settings for both arms.
    """
    effective = _speculation(section)
    asked: dict[str, KnobValue] = {"method": point.method, **point.speculative}
    known = [name for name in asked if name in effective]
    own = [Rewrite(n, asked[n], effective[n]) for n in known if not same(asked[n], effective[n])]
    changes = [*own, *shared]
    dropped = tuple(f"{change.name}={change.asked}" for change in changes if change.got is None)
    rewrites = tuple(change for change in changes if change.got is not None)
    return Comparison(rewrites, dropped, _in_effect(point, rewrites))


def _in_effect(point: Point, rewrites: Sequence[Rewrite]) -> Point | None:
    got = {rewrite.name: rewrite.got for rewrite in rewrites if rewrite.got is not None}
    if not got:
        return None
    method = str(got.pop("method", point.method))
    return canonical(Point(method, {**point.knobs, **got}))


def compare_flags(
    asked: Mapping[str, KnobValue], config: Mapping[str, Any], dests: Mapping[str, str]
) -> tuple[Rewrite, ...]:
    """Flags that a user chose and the server changed; only numbers and switches are comparable."""
    leaf_of = {flag: dest for dest, flag in dests.items()}
    values: dict[str, Any] = {}
    for path, value in _leaves(config):
        if not path.startswith(SPECULATIVE):
            values.setdefault(path.rpartition(".")[2], value)
    found = []
    for flag, value in asked.items():
        wanted = _number(value)
        leaf = leaf_of.get(flag)
        if wanted is None or leaf not in values or same(wanted, got := _plain(values[leaf])):
            continue
        found.append(Rewrite(flag, value, got))
    return tuple(found)


def _number(value: KnobValue) -> KnobValue | None:
    """A switch or a number, also one written as text; None for anything else (also -1, which means auto)."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return None if not isinstance(value, bool) and value < 0 else value


def same(asked: KnobValue, got: KnobValue | None) -> bool:
    """Numbers by value; True is not 1."""
    if isinstance(asked, bool) or isinstance(got, bool):
        return asked is got
    if isinstance(asked, int | float) and isinstance(got, int | float):
        return math.isclose(asked, got, rel_tol=1e-6, abs_tol=1e-9)
    return asked == got

"""The value of --speculative-config for a Point, with every key that matters."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from launchers.engines.engine import Knob
from launchers.engines.vllm import schedule
from launchers.engines.vllm.flags import Capabilities
from launchers.engines.vllm.knobs import METHODS
from launchers.engines.vllm.models import Models
from launchers.engines.vllm.rules import KEY_OF, draft_length
from results.records import KnobValue, Point

FLAG = "--speculative-config"
# The space's own: the Point or the draft model decides them.
SPACE_KEYS = {"method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size"}
# Left to vLLM, a release could change them. Only keys that the installation has are passed.
DEFAULTS: Mapping[str, KnobValue] = {
    "rejection_sample_method": "standard",
    "draft_sample_method": "greedy",
    "disable_padded_drafter_batch": False,
    "disable_eagle_block_drop": False,
    "use_local_argmax_reduction": False,
    "parallel_drafting": False,
}


def split(settings: Mapping[str, KnobValue]) -> tuple[dict[str, KnobValue], dict[str, KnobValue]]:
    """(flags for both arms, keys of --speculative-config) of what a user fixed."""
    prefix = f"{FLAG}."
    keys = {f[len(prefix) :].replace("-", "_"): v for f, v in settings.items() if f.startswith(prefix)}
    return {f: v for f, v in settings.items() if not f.startswith(prefix)}, keys


def config_of(
    point: Point,
    settings: Mapping[str, KnobValue],
    own_keys: Mapping[str, KnobValue],
    draft: Path | str | None,
    models: Models,
    known: Capabilities,
) -> dict[str, Any]:
    """Our defaults, over them the user's own keys, over them the (canonical) Point."""
    optional = {k.name: k.default for k in METHODS[point.method].knobs if k.optional and k.default != ""}
    config: dict[str, Any] = {
        **DEFAULTS,
        **optional,
        **_drafter(point.method, settings, draft, models),
        **{key: _value(value) for key, value in own_keys.items()},
        **point.speculative,
        "method": point.method,
    }
    if text := config.pop("tokens_per_batch_size", None):
        largest = settings.get("--max-num-seqs")
        steps = schedule.as_json(schedule.parse(text), largest if isinstance(largest, int) else 1)
        config[KEY_OF["tokens_per_batch_size"]] = steps
    return _consistent({k: v for k, v in config.items() if k in known.speculative_keys})


def _value(value: KnobValue) -> Any:
    """A user's list or object arrives as JSON text."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _drafter(
    method: str, settings: Mapping[str, KnobValue], draft: Path | str | None, models: Models
) -> dict[str, Any]:
    """The network that drafts; MTP layers usually are the model's own."""
    if not METHODS[method].has_drafter:
        return {}
    keys: dict[str, Any] = {"draft_tensor_parallel_size": settings.get("--tensor-parallel-size", 1)}
    if draft is not None and (method != "mtp" or models.draft_method == "mtp"):
        keys["model"] = str(Path(draft).absolute())
    return keys


def _consistent(config: dict[str, Any]) -> dict[str, Any]:
    """Figures for synthetic acceptance: refused without that method, one of them required with it."""
    given = {key for key in config if key.startswith("synthetic_")}
    if config.get("rejection_sample_method") != "synthetic":
        return {k: v for k, v in config.items() if k not in given}
    if not given:
        config["synthetic_acceptance_length"] = 1 + config["num_speculative_tokens"] / 2
    return config


def offered(method: str, models: Models, known: Capabilities) -> tuple[Knob, ...]:
    """The knobs of a method that this installation has, grids cut to what this model allows."""
    choices = {
        "rejection_sample_method": known.rejection_sample_methods,
        "draft_sample_method": known.draft_sample_methods,
    }
    found = []
    for knob in METHODS[method].knobs:
        if KEY_OF.get(knob.name, knob.name) not in known.speculative_keys:
            continue
        if knob.name == "num_speculative_tokens":
            knob = replace(knob, grid=tuple(k for k in knob.grid if _fits(method, int(k), models)))
        elif have := choices.get(knob.name):
            knob = replace(
                knob,
                choices=tuple(c for c in knob.choices if c in have),
                grid=tuple(c for c in knob.grid if c in have),
            )
        found.append(knob)
    return tuple(found)


def _fits(method: str, tokens: int, models: Models) -> bool:
    return not list(draft_length(method, tokens, models))

"""What to change in a drafter's folder so that an engine reads it as it was trained."""

from collections.abc import Mapping
from typing import Any

from results.head_config import Head
from results.wiring import Cause, D2t, Fix, Reading, Source

NESTED = "eagle_config"
# Fields of a Reading that are keys of the drafter's config.json as well, in every engine that knows them.
_KEYS = {
    Cause.NORM_BEFORE_FC: "norm_before_fc",
    Cause.FC_NORM: "fc_norm",
    Cause.NORM_BEFORE_RESIDUAL: "norm_before_residual",
    Cause.FEEDBACK_NORM: "norm_output",
}


def fix_of(cause: Cause, served: Reading, trained: Reading, head: Head) -> Fix | None:
    """The change that turns one aspect of a Reading into the other; None if no change of the folder does.

    Layers are the engine's: see `EngineWiring.fix_for`.
    """
    if cause in _KEYS:
        key = _KEYS[cause]
        return _config({_place(head, key): getattr(trained, key)})
    if cause is Cause.ORDER:
        return _order(served.boundaries, trained.boundaries)
    if cause is Cause.ROPE:
        return _rope(head, trained)
    if cause is Cause.LM_HEAD and trained.lm_head is Source.TARGET:
        return Fix(
            "fetch or export the head again: its lm_head is not that of the training; until then the target's"
            " rows of the draft vocabulary serve better",
            tensors=("lm_head: from target",),
        )
    if cause is Cause.EMBEDDING and trained.embedding is Source.TARGET:
        return Fix(
            "remove the head's embedding: the target's is used then", tensors=("embed_tokens: remove",)
        )
    if cause in (Cause.D2T_MISSING, Cause.D2T_ABSOLUTE, Cause.D2T):
        return _map(trained.d2t)
    return None


def _config(changes: Mapping[str, Any]) -> Fix:
    said = ", ".join(f"{key} to {_json(value)}" for key, value in changes.items())
    return Fix(f"set {said} in the drafter's config.json", config=dict(changes))


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place(head: Head, key: str) -> str:
    """Where the key stands in this config, or would be read."""
    nested = head.checkpoint.config.get(NESTED)
    return f"{NESTED}.{key}" if isinstance(nested, Mapping) and key in nested else key


def _order(served: tuple[int, ...], trained: tuple[int, ...]) -> Fix | None:
    """Engines give the layers in ascending order whatever the config says, so the weights must follow."""
    if sorted(served) != sorted(trained) or len(set(trained)) != len(trained):
        return None
    places = [trained.index(boundary) for boundary in served]
    return Fix(
        "put the fusion layer's columns into the order in which the engine gives the layers: blocks"
        f" {', '.join(str(place + 1) for place in places)} of fc.weight",
        tensors=(f"fc: blocks {','.join(map(str, places))}",),
    )


def _rope(head: Head, trained: Reading) -> Fix:
    config = head.checkpoint.config
    nested = isinstance(config.get("rope_parameters"), Mapping)
    changes: dict[str, Any] = {"rope_parameters.rope_theta" if nested else "rope_theta": trained.rope_theta}
    if not nested and (trained.rope_scaling or config.get("rope_scaling")):
        changes["rope_scaling"] = dict(trained.rope_scaling) if trained.rope_scaling else None
    return _config(changes)


def _map(trained: D2t) -> Fix | None:
    if trained is D2t.FROM_T2D:
        return Fix("make d2t of t2d", tensors=("d2t: from t2d",))
    if trained is D2t.IDS:
        return Fix("subtract 0, 1, 2 ... from d2t", tensors=("d2t: ids to offsets",))
    return None

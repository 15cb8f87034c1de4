"""What a Reading leaves open beside the layers: every other way to read the same weights, one change each.
 Left out is what no text can tell apart: a shift of all positions, a map that gives the same ids, weights
rounded that the server does not round.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from analysis.wiring.rope import kind_of
from analysis.wiring.vocabulary import Pair
from results.errors import UsageError
from results.head_config import rope_of
from results.wiring import Cause, D2t, Reading, Source

if TYPE_CHECKING:
    from torch import Tensor

# Of Llama 2, Kimi K2, gpt-oss, Qwen 1.5 and GLM, Llama 3, Qwen 2 and 3, MiniMax, long Qwen.
THETAS = (1e4, 5e4, 1.5e5, 5e5, 1e6, 5e6, 1e7)
DEFAULT_THETA = 10_000.0
_CAUSES: Mapping[str, Cause] = {
    "uses_fc": Cause.ALGORITHM,
    "lm_head": Cause.LM_HEAD,
    "embedding": Cause.EMBEDDING,
    "norm_before_fc": Cause.NORM_BEFORE_FC,
    "fc_norm": Cause.FC_NORM,
    "norm_before_residual": Cause.NORM_BEFORE_RESIDUAL,
    "adds_residual": Cause.RESIDUAL,
    "norm_output": Cause.FEEDBACK_NORM,
    "rope_theta": Cause.ROPE,
    "rope_scaling": Cause.ROPE,
    "max_positions": Cause.CONTEXT,
    "token_shift": Cause.TOKEN_SHIFT,
    "hidden_lag": Cause.TOKEN_SHIFT,
    "step_position_shift": Cause.POSITIONS,
    "weight_bits": Cause.QUANTISATION,
}
_FLAGS = ("norm_before_fc", "fc_norm", "norm_before_residual", "adds_residual", "norm_output")


def published_reading(pair: Pair) -> Reading:
    """As the head's own folder says it, and EAGLE-3's paper where that says nothing."""
    head, target = pair.head, pair.target
    theta, scaling = rope_of(head.config)
    return Reading(
        boundaries=_spread(target.layers, head.slots(target.hidden)),
        uses_fc=head.has("fc.weight"),
        d2t=_map(pair),
        lm_head=Source.OWN if head.has("lm_head.weight") else Source.TARGET,
        embedding=Source.TARGET if head.hidden == target.hidden else Source.OWN,
        norm_before_fc=head.has("input_norm.weight"),
        fc_norm=head.has("fc_norm.0.weight"),
        norm_before_residual=bool(head.published.get("norm_before_residual", False)),
        norm_output=bool(head.published.get("norm_output", False)),
        rope_theta=theta or DEFAULT_THETA,
        rope_scaling=scaling,
    )


def variants(reading: Reading, pair: Pair) -> list[Reading]:
    """Those that differ from it in one thing. Some may not be readable: see replay.losses."""
    changes = [*_flags(reading), *_sources(reading, pair), *_ropes(reading, pair), *_places(reading)]
    changes += [{"d2t": d2t} for d2t in _other_maps(pair, reading.d2t)]
    made = [replace(reading, **change) for change in changes]
    if not reading.uses_fc:
        made.append(replace(published_reading(pair), uses_fc=True))
    return [variant for variant in made if variant != reading]


def causes(served: Reading, trained: Reading) -> tuple[Cause, ...]:
    """What is wrong if a server reads so what was trained so; empty if nothing is."""
    found = [_layers(served, trained)] if served.boundaries != trained.boundaries else []
    found += [_CAUSES[name] for name in _CAUSES if getattr(served, name) != getattr(trained, name)]
    if served.d2t != trained.d2t:
        found.append(_d2t(served.d2t, trained.d2t))
    if Cause.LM_HEAD in found and trained.lm_head is Source.TARGET:
        return (Cause.LM_HEAD,)  # another's stands in for it, and with that the rest is told wrongly
    if Cause.ALGORITHM in found:  # without the fusion layer the states are another kind of thing altogether
        found = [cause for cause in found if cause not in (Cause.LAYERS, Cause.ORDER)]
    return tuple(dict.fromkeys(found))


def changed(served: Reading, trained: Reading, named: Collection[Cause]) -> Reading:
    """How a server reads after a change of these causes alone."""
    fields = [name for name, cause in _CAUSES.items() if cause in named]
    fields += ["boundaries"] if {Cause.LAYERS, Cause.ORDER, Cause.ALGORITHM} & set(named) else []
    fields += ["d2t"] if {Cause.D2T, Cause.D2T_MISSING, Cause.D2T_ABSOLUTE} & set(named) else []
    return replace(served, **{name: getattr(trained, name) for name in fields})


def _layers(served: Reading, trained: Reading) -> Cause:
    return Cause.ORDER if sorted(served.boundaries) == sorted(trained.boundaries) else Cause.LAYERS


def _d2t(served: D2t, trained: D2t) -> Cause:
    if served is D2t.ABSENT:
        return Cause.D2T_MISSING
    return Cause.D2T_ABSOLUTE if (served, trained) == (D2t.OFFSETS, D2t.IDS) else Cause.D2T


def _spread(layers: int, slots: int) -> tuple[int, ...]:
    """EAGLE's three; of another number, as far apart as they can be within the same bounds."""
    if slots == 1:
        return (layers,)
    if slots == 3:
        return (2, layers // 2, layers - 3)
    return tuple(2 + round(slot * (layers - 5) / (slots - 1)) for slot in range(slots))


def _map(pair: Pair) -> D2t:
    if pair.head.has("d2t"):
        return D2t.OFFSETS
    return D2t.FROM_T2D if pair.head.has("t2d") else D2t.ABSENT


def _flags(reading: Reading) -> Iterator[dict[str, Any]]:
    for name in _FLAGS:
        yield {name: not getattr(reading, name)}
    if reading.weight_bits is not None:
        yield {"weight_bits": None}
    if reading.max_positions is not None:
        yield {"max_positions": None}


def _sources(reading: Reading, pair: Pair) -> Iterator[dict[str, Any]]:
    if pair.head.has("lm_head.weight"):
        yield {"lm_head": Source.OWN}
    if pair.head.hidden == pair.target.hidden:
        yield {"lm_head": Source.TARGET}
        yield {"embedding": Source.TARGET}
    if pair.head.has("embed_tokens.weight"):
        yield {"embedding": Source.OWN}


def _ropes(reading: Reading, pair: Pair) -> Iterator[dict[str, Any]]:
    told = rope_of(pair.head.config), (pair.target.rope_theta, pair.target.rope_scaling)
    for theta in dict.fromkeys([*THETAS, *(told_theta for told_theta, _ in told if told_theta)]):
        yield {"rope_theta": theta}
    for told_theta, scaling in told:
        yield {"rope_theta": told_theta or DEFAULT_THETA, "rope_scaling": scaling}
    if reading.rope_scaling is not None and kind_of(reading.rope_scaling) != "default":
        yield {"rope_scaling": None}


def _places(reading: Reading) -> Iterator[dict[str, Any]]:
    yield {"boundaries": tuple(reversed(reading.boundaries))}
    for shift, lag in ((1, 0), (0, 0), (2, 0), (1, 1)):
        yield {"token_shift": shift, "hidden_lag": lag}
    for shift in (-1, 0, 1):
        yield {"step_position_shift": shift}


def _other_maps(pair: Pair, how: D2t) -> list[D2t]:
    """Those that can be read and give other ids, than this one and than each other."""
    seen, others = [_ids(pair, how)], []
    for other in D2t:
        ids = _ids(pair, other)
        if ids is not None and not any(known is not None and ids.equal(known) for known in seen):
            seen.append(ids)
            others.append(other)
    return others


def _ids(pair: Pair, how: D2t) -> "Tensor | None":
    try:
        return pair.draft_ids(how)
    except UsageError:
        return None


def changes(one: Reading, other: Reading) -> int:
    """In how many things the two differ."""
    return sum(getattr(one, f.name) != getattr(other, f.name) for f in fields(Reading))

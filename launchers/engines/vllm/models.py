"""What a model's config tells of speculation in vLLM: which methods fit, and how far they reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchers.engines.model_folder import read_config, tensor_names
from results.errors import UsageError

MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "n_predict")
NOT_HERE = ("dflash", "dspark", "mlp_speculator", "mlpspeculator")


@dataclass(frozen=True, slots=True)
class Models:
    """The model and its drafter, as far as the rules need them."""

    mtp_tokens: int | None = (
        None  # tokens one pass of the model's own MTP layers predicts; None = it has none
    )
    draft_method: str | None = None  # the method that the draft folder is made for
    medusa_heads: int | None = None
    draft_mtp_tokens: int | None = None
    is_hybrid: bool = False  # state-space or linear-attention layers: prefix caching is another thing there
    unseen: tuple[str, ...] = ()  # in a plan: which of "model" and "draft" are not on this machine


def models_of(model: Path, draft: Path | None) -> Models:
    """Reads both config.json. Raises UsageError for a draft that fits no method, or not this model."""
    if unseen := [role for role, path in (("model", model), ("draft", draft)) if path and not path.is_dir()]:
        return Models(unseen=tuple(unseen))
    config = read_config(model)
    mtp_tokens, is_hybrid = _mtp_tokens(config), _is_hybrid(config)
    if draft is None:
        return Models(mtp_tokens, is_hybrid=is_hybrid)
    draft_config = read_config(draft)
    method = draft_method(draft_config, tensor_names(draft), draft.name)
    if method is None:
        raise UsageError(f"{draft}: no method of vLLM that this tool knows drafts with {_kind(draft_config)}")
    _check_fit(config, draft_config, method, draft)
    heads = _medusa_heads(draft_config) if method == "medusa" else None
    return Models(mtp_tokens, method, heads, _mtp_tokens(draft_config), is_hybrid)


def layers_of(model: Path) -> int:
    """Layers of a model. Raises UsageError if its folder is not here, or does not tell."""
    layers = _text(read_config(model)).get("num_hidden_layers")
    if not isinstance(layers, int):
        raise UsageError(f"{model}: its config.json does not tell num_hidden_layers")
    return layers


def draft_method(config: Mapping[str, Any], tensors: Sequence[str] = (), name: str = "") -> str | None:
    """The method a draft model is made for; None if it is one this tool does not know.

    An EAGLE head often calls itself an ordinary Llama of one layer: its extra projection `fc` tells.
    """
    declared = str(config.get("speculators_model_type") or config.get("model_type") or "").lower()
    kinds = [declared, *(str(a).lower() for a in config.get("architectures") or ())]
    if any(other in kind for kind in kinds for other in NOT_HERE):
        return None
    for mark, method in (("eagle3", "eagle3"), ("eagle", "eagle"), ("medusa", "medusa"), ("mtp", "mtp")):
        if any(mark in kind for kind in kinds):
            return method
    if any("medusa" in key for key in config):
        return "medusa"
    if any(tensor == "fc.weight" for tensor in tensors):
        return "eagle3" if any(t in ("d2t", "t2d") or t.startswith("midlayer.") for t in tensors) else "eagle"
    if not tensors and "eagle" in name.lower():
        return "eagle3" if "eagle3" in name.lower().replace("-", "") else "eagle"
    return "draft_model"


def _check_fit(config: Mapping[str, Any], draft: Mapping[str, Any], method: str, where: Path) -> None:
    """An EAGLE-3 head brings a vocabulary and a width of its own."""
    key = {"medusa": "hidden_size", "eagle3": ""}.get(method, "vocab_size")
    ours, theirs = _text(config).get(key), _text(draft).get(key)
    if ours is not None and theirs is not None and ours != theirs:
        raise UsageError(f"{where}: {key} is {theirs}, the model's is {ours}: it cannot draft for this model")


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A model of several modalities keeps its language model's config one level down."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, Mapping) else config


def _mtp_tokens(config: Mapping[str, Any]) -> int | None:
    text = _text(config)
    counts = [text[key] for key in MTP_LAYERS if isinstance(text.get(key), int) and text[key] > 0]
    return counts[0] if counts else None


def _medusa_heads(config: Mapping[str, Any]) -> int | None:
    keys = [key for key in config if "num" in key and "heads" in key]
    return int(config[keys[0]]) if keys else None


def _is_hybrid(config: Mapping[str, Any]) -> bool:
    text = _text(config)
    kinds = [str(kind) for kind in text.get("layer_types") or ()]
    return any(key.startswith(("mamba", "ssm")) for key in text) or any(
        word in kind for kind in kinds for word in ("linear", "mamba", "recurrent")
    )


def _kind(config: Mapping[str, Any]) -> str:
    return ", ".join(config.get("architectures") or ()) or str(config.get("model_type"))

"""What a model's config tells of speculation in SGLang: draft layers of its own, what a draft is made for."""

from collections.abc import Mapping
from typing import Any

# Fields by which a checkpoint says that it brings draft layers of its own.
NEXTN_FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "n_predict")
PLAIN_DRAFT = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")


def brings_draft(config: Mapping[str, Any]) -> bool:
    """Whether the model's own checkpoint has layers that draft (NEXTN, also called MTP)."""
    text = config.get("text_config")
    places = [config, text] if isinstance(text, dict) else [config]
    return any(place.get(name) for place in places for name in NEXTN_FIELDS)


def methods_of_draft(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The algorithms a draft was made for. With another one SGLang starts, and accepts nothing.

    The architecture says it for sure where it names one; a plain model of several layers drafts on its own;
    of the rest any may be right.
    """
    architecture = " ".join(map(str, config.get("architectures") or ())).lower()
    if "eagle3" in architecture:
        return ("EAGLE3",)
    if "eagle" in architecture:
        return ("EAGLE",)
    if "nextn" in architecture or "mtp" in architecture or "assistant" in architecture:
        return ("NEXTN",)
    is_head = "draft_vocab_size" in config or "eagle_config" in config
    if architecture and not is_head and (config.get("num_hidden_layers") or 1) > 1:
        return ("STANDALONE",)
    return PLAIN_DRAFT

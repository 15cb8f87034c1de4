"""How SGLang wires an EAGLE-3 head, read from its versions 0.5.8 to 0.5.23 (`sglang/srt/`)."""

from collections.abc import Sequence

from launchers.engines.sglang import layer_ids, wiring_flags, wiring_rules
from launchers.engines.wiring import Drafting, d2t_of, ids_fix, version_of
from results.head_config import IDS, USUAL_THETA, Head, HeadKind, rope_of
from results.wiring import Finding, Fix, Reading, Source

NESTED = f"eagle_config.{IDS}"
# Kinds of --quantization that make numbers of so many bits of a draft's weights while they are loaded.
ON_LOADING = {"fp8": 8, "w8a8_fp8": 8, "w8a8_int8": 8}


class SglangWiring:
    def reading(self, drafting: Drafting) -> Reading | None:
        head, layers = Head(drafting.head), drafting.target.whole("num_hidden_layers")
        if head.kind is not HeadKind.EAGLE3 or layers is None:
            return None
        theta, scaling = rope_of(head.config)
        gets_states = wiring_rules.gets_states(drafting)
        flags = wiring_rules.norm_flags(drafting)
        return Reading(
            boundaries=self._boundaries(drafting, layers) if gets_states else (layers + 1,),
            uses_fc=gets_states,
            d2t=d2t_of(head, drafting.target),
            lm_head=_lm_head(head),
            embedding=_embedding(head),
            norm_before_fc=flags.before_fc,
            fc_norm=flags.of_states,
            norm_before_residual=False,  # there is none in any version read
            norm_output=head.config.get("norm_output") is True,
            rope_theta=theta or USUAL_THETA,
            rope_scaling=scaling,
            max_positions=wiring_rules.positions(drafting),
            weight_bits=ON_LOADING.get(wiring_flags.inherited_quantisation(drafting)),
        )

    def findings(self, drafting: Drafting) -> Sequence[Finding]:
        layers = drafting.target.whole("num_hidden_layers")
        boundaries = self._boundaries(drafting, layers) if layers else None
        return wiring_rules.findings(drafting, boundaries)

    def fix_for(self, drafting: Drafting, boundaries: Sequence[int]) -> Fix | None:
        head, layers = Head(drafting.head), drafting.target.whole("num_hidden_layers")
        if layers is None or len(boundaries) != head.states_of(drafting.target):
            return None
        version = version_of(drafting.version)
        ids = layer_ids.ids_for(boundaries, drafting.target.architecture, version, layers)
        release = f"SGLang {drafting.version}".strip()
        return None if ids is None else ids_fix(head, NESTED, ids, f"for {release}")

    def _boundaries(self, drafting: Drafting, layers: int) -> tuple[int, ...]:
        """Only the nested key is read (model_runner_components/spec_aux_hidden_state.py)."""
        version = version_of(drafting.version)
        ids = Head(drafting.head).nested_ids
        return layer_ids.captured(ids, drafting.target.architecture, version, layers)


def _lm_head(head: Head) -> Source:
    """models/llama_eagle3.py: the target's only if there is no draft_vocab_size; tied = the embedding."""
    if head.config.get("tie_word_embeddings") is True:
        return Source.TARGET
    if "lm_head.weight" in head.tensors or not head.checkpoint.tensors:
        return Source.OWN
    return Source.TARGET if head.draft_vocabulary is None else Source.RANDOM


def _embedding(head: Head) -> Source:
    """models/llama.py, set_embed: the target's, unless the widths differ."""
    if head.target_hidden_size == head.hidden_size:
        return Source.TARGET
    return Source.OWN if "embed_tokens.weight" in head.tensors else Source.RANDOM

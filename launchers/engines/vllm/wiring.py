"""How vLLM wires an EAGLE-3 head, read from its versions 0.32 and 0.33 (`vllm/`)."""

from collections.abc import Sequence

from launchers.engines.vllm import layer_ids, wiring_rules
from launchers.engines.wiring import Drafting, d2t_of, ids_fix
from results.head_config import IDS, USUAL_THETA, Head, HeadKind, rope_of
from results.wiring import Finding, Fix, Reading, Source


class VllmWiring:
    def reading(self, drafting: Drafting) -> Reading | None:
        head, layers = Head(drafting.head), drafting.target.whole("num_hidden_layers")
        if head.kind is not HeadKind.EAGLE3 or layers is None:
            return None
        theta, scaling = rope_of(head.config)
        gets_states = wiring_rules.gets_states(drafting)
        flags = wiring_rules.norm_flags(head)
        return Reading(
            boundaries=_boundaries(drafting, layers) if gets_states else (layers + 1,),
            uses_fc=gets_states,
            d2t=d2t_of(head, drafting.target),
            lm_head=_own("lm_head.weight", head),
            embedding=_own("embed_tokens.weight", head),
            norm_before_fc=flags.before_fc,
            fc_norm=flags.of_states,
            norm_before_residual=wiring_rules.norm_before_residual(head),
            norm_output=head.config.get("norm_output") is True,
            rope_theta=theta or USUAL_THETA,
            rope_scaling=scaling,
            max_positions=wiring_rules.positions(drafting),
        )

    def findings(self, drafting: Drafting) -> Sequence[Finding]:
        layers = drafting.target.whole("num_hidden_layers")
        return wiring_rules.findings(drafting, _boundaries(drafting, layers) if layers else None)

    def fix_for(self, drafting: Drafting, boundaries: Sequence[int]) -> Fix | None:
        """The key at the top is read by both runners, and wins (see `layer_ids.ids_read`)."""
        head, layers = Head(drafting.head), drafting.target.whole("num_hidden_layers")
        wanted = tuple(boundaries)
        if layers is None or len(wanted) != head.states_of(drafting.target):
            return None
        if layer_ids.captured(wanted, drafting.target, layers) != wanted:
            return None
        return ids_fix(head, IDS, wanted, f"for vLLM {drafting.version}".strip())


def _boundaries(drafting: Drafting, layers: int) -> tuple[int, ...]:
    runner = layer_ids.runner_of(drafting).name
    return layer_ids.captured(layer_ids.ids_read(Head(drafting.head), runner), drafting.target, layers)


def _own(name: str, head: Head) -> Source:
    """Shared with the target where the checkpoint has none, or has the same (llm_base_proposer.py)."""
    return Source.OWN if name in head.tensors or not head.checkpoint.tensors else Source.TARGET

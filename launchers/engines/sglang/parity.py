"""What SGLang sets differently when it speculates, found by asking it, and pinned alike in both arms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from launchers.engines.probe import Answer, Probe
from launchers.engines.sglang.flags import Flags
from launchers.engines.sglang.install import resolved as resolve
from results.errors import UsageError

# Passed explicitly even where both arms resolve alike, so that a new release's defaults move no series.
PINNED = frozenset(
    {
        "attention_backend",
        "attn_dp_size",
        "bf16_gemm_backend",
        "chunked_prefill_size",
        "context_length",
        "cpu_offload_gb",
        "cuda_graph_config",
        "decode_attention_backend",
        "disable_chunked_prefix_cache",
        "disable_cuda_graph_padding",
        "disable_custom_all_reduce",
        "disable_hybrid_swa_memory",
        "disable_radix_cache",
        "dp_size",
        "dtype",
        "enable_mixed_chunk",
        "enable_single_batch_overlap",
        "enable_torch_compile",
        "enable_two_batch_overlap",
        "ep_size",
        "fp4_gemm_runner_backend",
        "fp8_gemm_runner_backend",
        "grammar_backend",
        "kv_cache_dtype",
        "load_balance_method",
        "max_prefill_tokens",
        "max_running_requests",
        "max_total_tokens",
        "mem_fraction_static",
        "moe_a2a_backend",
        "moe_runner_backend",
        "num_continuous_decode_steps",
        "page_size",
        "pp_size",
        "prefill_attention_backend",
        "quantization",
        "radix_eviction_policy",
        "sampling_backend",
        "sampling_defaults",
        "schedule_conservativeness",
        "schedule_policy",
        "scheduler_recv_interval",
        "stream_interval",
        "torch_compile_max_bs",
        "tp_size",
    }
)
# Of one start, one arm or one resolution alone: never compared.
VOLATILE = frozenset(
    {
        "random_seed",
        "port",
        "host",
        "nccl_port",
        "dist_init_addr",
        "enable_dp_attention",
        "pp_max_micro_batch_size",
    }
)
# What a method of drafting leaves no choice about is part of what it costs: the baseline keeps its own.
FORCED = frozenset({"disable_overlap_schedule"})
# SGLang's own cap under speculation, for where it cannot be asked.
UNASKED: Mapping[str, object] = {"max_running_requests": 48}

REFUSED = "SystemExit: "  # the parser itself refuses a word: never the machine's fault
GRAPH_KEYS = ("backend", "max_bs", "bs")  # of cuda_graph_config: what the command line takes for every phase

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Parity:
    """Words for both command lines, and the settings known to be in effect then."""

    words: tuple[str, ...]
    settings: Fields  # field of ServerArgs -> resolved value; empty if SGLang could not be asked
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arms:
    """The two kinds of command lines: without speculation, and one per method and shape of draft."""

    plain: tuple[str, ...]
    speculative: Mapping[str, tuple[str, ...]]  # label -> words added to the plain ones
    fixed: frozenset[str] = field(default_factory=frozenset)  # fields the user has set

    def resolve(self, probe: Probe, pins: Sequence[str] = ()) -> tuple[Answer, Mapping[str, Answer]]:
        plain = [*self.plain, *pins]
        return resolve(probe, plain), {k: resolve(probe, [*plain, *v]) for k, v in self.speculative.items()}


def is_speculative(field_name: str) -> bool:
    """Whether only speculation reads this field of ServerArgs."""
    return field_name.startswith(("speculative_", "_speculative_", "spec_", "decoupled_spec_", "uno_"))


def find_parity(probe: Probe, flags: Flags, arms: Arms) -> Parity:
    """Pins under which the arms resolve alike. Raises UsageError if a setting the user fixed prevents it."""
    plain, speculative = arms.resolve(probe)
    if plain.get("error", "").startswith(REFUSED):
        raise UsageError(plain["error"].removeprefix(REFUSED))
    resolved = [answer["resolved"] for answer in speculative.values() if "resolved" in answer]
    if "resolved" not in plain or not resolved:
        return _unasked(flags, arms, plain, speculative)
    alike = replace(
        arms, speculative={k: arms.speculative[k] for k, a in speculative.items() if "resolved" in a}
    )
    wanted = _chosen(plain["resolved"], resolved, arms.fixed)
    pins = _accepted(probe, alike, {name: _words(flags, name, value) for name, value in wanted.items()})
    words = [word for name in sorted(pins) for word in pins[name]]
    pinned, pinned_speculative = alike.resolve(probe, words)
    if "resolved" not in pinned:
        return _unasked(flags, arms, pinned, pinned_speculative)
    left = _differences(pinned, pinned_speculative)
    _refuse_fixed(left, arms.fixed, flags)
    errors = [f"{label} does not resolve: {a['error']}" for label, a in speculative.items() if "error" in a]
    unpinned = [f"differs between the arms and cannot be pinned: {text}" for text in left.values()]
    return Parity(tuple(words), pinned["resolved"], (*unpinned, *errors))


def _unasked(flags: Flags, arms: Arms, plain: Answer, speculative: Mapping[str, Answer]) -> Parity:
    pins = {name: value for name, value in UNASKED.items() if name not in arms.fixed}
    words = [word for name, value in pins.items() for word in _words(flags, name, value)]
    why = next(a["error"] for a in (plain, *speculative.values()) if "error" in a)
    note = f"SGLang could not resolve its arguments here ({why}): only {', '.join(UNASKED)} is pinned"
    return Parity(tuple(words), {}, (note,))


def _chosen(base: Fields, resolved: Sequence[Fields], fixed: frozenset[str]) -> dict[str, object]:
    """What to pin, with the value of the first speculative arm; a switch is on if any arm needs it on."""
    chosen: dict[str, object] = {}
    for name in base:
        values = [fields.get(name) for fields in resolved]
        differs = any(value != base[name] for value in values)
        if is_speculative(name) or name in VOLATILE | FORCED | fixed or not (differs or name in PINNED):
            continue
        chosen[name] = any(values) if isinstance(values[0], bool) else values[0]
    return chosen


def _words(flags: Flags, name: str, value: object) -> list[str]:
    """No words for what is unset, off by leaving it out, or not to be set by the command line."""
    flag = flags.of_field(name)
    if flag is None or value is None:
        return []
    if isinstance(value, list):
        return [flag.name, *map(str, value)] if value else []
    if isinstance(value, dict):
        settable = {phase: {k: v for k, v in row.items() if k in GRAPH_KEYS} for phase, row in value.items()}
        return [flag.name, json.dumps(settable, separators=(",", ":"))]
    if flag.kind == "value":
        return [flag.name, str(value)]
    return flag.words(bool(value))


def _accepted(probe: Probe, arms: Arms, pins: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
    """The pins that SGLang takes: all of them, or else those that it takes alone."""
    plain, speculative = arms.resolve(probe, [word for name in sorted(pins) for word in pins[name]])
    if "error" not in plain and not any("error" in answer for answer in speculative.values()):
        return pins
    return {
        name: words for name, words in pins.items() if "error" not in resolve(probe, [*arms.plain, *words])
    }


def _differences(plain: Answer, speculative: Mapping[str, Answer]) -> dict[str, str]:
    """Field -> what differs, for everything that is not of speculation alone."""
    found: dict[str, str] = {}
    base: Fields = plain["resolved"]
    for label, answer in speculative.items():
        for name, value in answer.get("resolved", {}).items():
            if not is_speculative(name) and name not in VOLATILE | FORCED and value != base.get(name):
                found.setdefault(name, f"{name} is {base.get(name)}, with {label} {value}")
    return found


def _refuse_fixed(left: Mapping[str, str], fixed: frozenset[str], flags: Flags) -> None:
    for name in sorted(fixed & set(left)):
        flag = flags.of_field(name)
        raise UsageError(
            f"{flag.name if flag else name}: SGLang changes it when it speculates ({left[name]}), so that "
            "the arms would differ: leave it out"
        )

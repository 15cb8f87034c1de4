"""What vLLM counts of its drafts: on /metrics, and in the last event of a reply."""

from collections.abc import Mapping, Sequence

from launchers.engines.engine import SlotDrafts
from launchers.engines.http import ask
from launchers.engines.prometheus import Sample, by_position, samples, total
from results.records import SpecCounters

FAMILY = "vllm:spec_decode_"
DRAFTS = "vllm:spec_decode_num_drafts"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
IN_REPLY = "metrics.speculative_decoding"


def fetch(base_url: str, *families: str) -> list[Sample]:
    """Samples whose name begins like one of these; parsing the whole page would take tens of milliseconds."""
    answer = ask("GET", f"{base_url}/metrics")
    lines = answer.text.splitlines() if answer.ok else []
    return samples("".join(f"{line}\n" for line in lines if line.startswith(families)))


def admission_of(page: Sequence[Sample]) -> tuple[int, int] | None:
    """Requests (running, waiting), summed over engines; the same by reason is another family."""
    running, waiting = total(list(page), RUNNING), total(list(page), WAITING)
    return None if running is None or waiting is None else (running, waiting)


def counters_of(page: Sequence[Sample]) -> SpecCounters | None:
    """Summed over engines and labels; None if any of the three is absent.

    Steps in which an n-gram method found nothing are no drafts, so `1 + accepted / drafts` is too long.
    """
    drafts, draft_tokens, accepted = (_count(page, name) for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED))
    if drafts is None or draft_tokens is None or accepted is None:
        return None
    positions = by_position(list(page), _spelled(page, PER_POSITION))
    return SpecCounters(drafts, draft_tokens, accepted, positions)


def _count(page: Sequence[Sample], name: str) -> int | None:
    return total(list(page), _spelled(page, name))


def _spelled(page: Sequence[Sample], name: str) -> str:
    """Counters end in `_total`; some releases and proxies leave that out. `_created` is a time."""
    return f"{name}_total" if any(sample.name == f"{name}_total" for sample in page) else name


def drafts_by_engine(page: Sequence[Sample]) -> list[SlotDrafts]:
    """Draft tokens of every engine (data-parallel rank) since it started."""
    engines = sorted({s.labels["engine"] for s in page if s.name.startswith(DRAFTS) and "engine" in s.labels})
    own = {engine: [s for s in page if s.labels.get("engine") == engine] for engine in engines}
    return [
        SlotDrafts(int(engine), _count(samples, ACCEPTED) or 0, _count(samples, DRAFT_TOKENS) or 0)
        for engine, samples in own.items()
        if engine.isdigit()
    ]


def counted_in_reply(stats: Mapping[str, float]) -> SpecCounters | None:
    """Of one request; None where the server does not tell (several answers at once, an older release)."""
    told = {k.removeprefix(f"{IN_REPLY}."): int(v) for k, v in stats.items() if k.startswith(f"{IN_REPLY}.")}
    if "num_draft_tokens" not in told or "num_accepted_draft_tokens" not in told:
        return None
    steps = [told.get(f"acceptance_histogram.{i}", 0) for i in range(told.get("num_spec_tokens", 0) + 1)]
    return SpecCounters(
        told.get("num_spec_steps", 0),
        told["num_draft_tokens"],
        told["num_accepted_draft_tokens"],
        tuple(sum(steps[i:]) for i in range(1, len(steps))),  # accepted up to position i or further
    )

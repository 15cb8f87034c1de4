"""What SGLang counts: its drafts, from replies and log, and its requests, from its metrics.

One definition throughout, whatever a version prints: a draft is one verification; its tokens are the tree's
nodes without the root; accepted are the drafted tokens kept, without the bonus token. So the length is
1 + accepted / drafts, and rates of different shapes (steps, topk, tokens) are not comparable.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import count

from launchers.engines.prometheus import Sample
from results.records import SpecCounters

RUNNING, WAITING = "sglang:num_running_reqs", "sglang:num_queue_reqs"
REPLY = "sglext.spec_tokens_details."
# "accept rate" changed its meaning between versions and is not read.
DECODE_LINE = re.compile(
    r"^\[[^\]]*?(?:DP(?P<rank>\d+)[^\]]*)?\] Decode batch.*?#running-req: (?P<running>\d+),"
    r".*?accept len: (?P<length>[\d.]+)",
    re.MULTILINE,
)
# Printed at start: `'name': value` of 0.5.23, `name=value` of older versions.
ARGUMENT = r"server_args=.*?['\" (]{name}'?(?:: |=)(?P<value>\d+)"


def counted_in_reply(stats: Mapping[str, float]) -> SpecCounters | None:
    """What one reply says of its own drafts; None if it lacks any of the three counts."""
    names = ("spec_verify_ct", "spec_num_proposed_drafts", "spec_num_correct_drafts")
    drafts, proposed, accepted = (stats.get(REPLY + name) for name in names)
    if not drafts or not proposed or accepted is None:
        return None
    return SpecCounters(int(drafts), int(proposed), int(accepted), _per_position(stats, int(drafts)))


def _per_position(stats: Mapping[str, float], drafts: int) -> tuple[int, ...]:
    """Drafts accepted at least up to position 1, 2 ...; empty if the histogram is not of these drafts."""
    names = (f"{REPLY}spec_correct_drafts_histogram.{i}" for i in count())
    histogram: list[int] = []
    for name in names:
        if name not in stats:
            break
        histogram.append(int(stats[name]))
    if sum(histogram) != drafts:
        return ()
    return tuple(sum(histogram[i:]) for i in range(1, len(histogram)))


def counted_in_log(log: str) -> SpecCounters | None:
    """Since the start, over all ranks; None unless every step has its line."""
    ranks = counted_by_rank(log)
    return sum(ranks.values(), SpecCounters(0, 0, 0)) if ranks else None


def counted_by_rank(log: str) -> Mapping[int, SpecCounters]:
    """Since the start, for every data-parallel rank that printed its steps, from one line per step.

    A line tells the mean length of the requests of its step to two decimals, which gives back whole counts.
    Empty unless the log says that every step has its line.
    """
    tokens = _argument("speculative_num_draft_tokens", log)
    if tokens is None or _argument("decode_log_interval", log) != 1:
        return {}
    found: dict[int, SpecCounters] = {0: SpecCounters(0, 0, 0)}
    for match in DECODE_LINE.finditer(log):
        rank, drafts = int(match["rank"] or 0), int(match["running"])
        emitted = round(drafts * float(match["length"]))
        step = SpecCounters(drafts, drafts * (tokens - 1), emitted - drafts)
        found[rank] = found.get(rank, SpecCounters(0, 0, 0)) + step
    return found


def _argument(name: str, log: str) -> int | None:
    match = re.search(ARGUMENT.format(name=name), log)
    return int(match["value"]) if match else None


def admitted(page: Sequence[Sample]) -> tuple[int, int] | None:
    """Requests (running, waiting), over data-parallel ranks; other ranks that report count the same ones."""
    first = [s for s in page if s.labels.get("tp_rank", "0") == "0" and s.labels.get("pp_rank", "0") == "0"]
    running, waiting = ([s.value for s in first if s.name == name] for name in (RUNNING, WAITING))
    return (round(sum(running)), round(sum(waiting))) if running and waiting else None

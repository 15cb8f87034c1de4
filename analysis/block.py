"""One Block judged: what spoils it whole, what is one arm's own failure, and what it says otherwise.

`judge` names what a rerun may cure (the machine, the client, the baseline); `arm_failure` what
belongs to one arm and will come again with it.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.acceptance import SlotCounts, failed_slots, tokens_per_draft
from analysis.goodput import GOODPUT, at_least_half
from analysis.gpu import different_limits, gpu_fault, own_pids
from analysis.parity import cache_gap, is_thinking, length_gap, length_report
from analysis.settings import changed, describe
from analysis.summary import MIN_CONCURRENCY_SHARE, requested_concurrency
from analysis.wrong_output import wrong_in_one_cell, wrong_output
from results.reasons import Reason
from results.records import (
    BASELINE,
    EQUAL_WEIGHTS,
    AcceptanceState,
    ArmRun,
    Failure,
    Measurement,
    Point,
    Request,
    Telemetry,
    Weights,
)

# How the client libraries and operating systems say that nobody listens any more.
REFUSED = ("connection refused", "connect call failed", "econnrefused", "actively refused", "errno 111")


BUSY_CLIENT_CORES = 0.5  # from here on the client delays what it observes
FULL_SHARE = 0.9  # of the cores busy: others now cost the server time


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of a usable arm-run."""

    min_window_s: float = 0.0
    max_foreign_cores: float = 0.10  # see foreign_limit
    max_stolen_cores: float = 0.05
    max_memory_pressure: float = 0.05
    max_client_share: float = 0.02  # see client_share
    max_length_gap: float = 0.02  # see parity.length_gap
    max_degenerate_share: float = 0.10  # replies that loop although the baseline's do not
    thinking: bool | None = None  # what the sweep declares; False = any reasoning text fails the arm
    speculative_keys: frozenset[str] | None = None  # effective settings that may differ; None = not compared


def judge(
    arms: Sequence[ArmRun],
    requests: Mapping[str, Sequence[Request]],
    rules: Rules,
    compared_with: Point = BASELINE,
) -> Failure | None:
    """What makes the whole Block unusable, so that it is rerun; None = usable.

    `requests` holds the raw records of each arm by Point key. A fault of one candidate alone does not
    spoil the Block for the others: see arm_failure.
    """
    baseline = next((run for run in arms if run.point.key == compared_with.key), None)
    if baseline is None:
        return Failure(Reason.CONFOUNDED, "the Block has no baseline arm")
    own = arm_failure(baseline, requests.get(baseline.point.key, ()), rules)
    short = _first(_too_short(m, rules) for m in baseline.measurements) if baseline.complete else None
    disturbed = (disturbance(run, rules, own_pids(arms)) for run in arms)
    return _first((own, short, *disturbed, different_limits(arms)))


def arm_failure(
    run: ArmRun,
    requests: Sequence[Request],
    rules: Rules,
    *,
    baseline: ArmRun | None = None,
    reference: Sequence[Request] = (),
    slots: Sequence[SlotCounts] = (),
) -> Failure | None:
    """Why this arm has no number; None = usable.

    `requests` and `reference` are the raw records of this arm and of the baseline arm of the same
    Block; `slots` the draft counts per slot where the engine tells them. The most telling reason wins.
    """
    return run.failure or _first(
        (
            _request_errors(run, requests),
            _unparsed(run, requests),
            _speculation(run),
            _broken_slots(run, slots),
            wrong_output(requests, reference, rules.max_degenerate_share),
            wrong_in_one_cell(run, requests, baseline, reference) if baseline else None,
            _unwanted_thinking(requests, rules),
            *(_load(m) for m in run.measurements if not m.capacity_limited),
            _other_settings(run, baseline, rules) if baseline else None,
            _other_lengths(run, requests, baseline, reference, rules) if baseline else None,
            cache_gap(reference, requests),
        )
    )


def _first(failures: Iterable[Failure | None]) -> Failure | None:
    return next((f for f in failures if f is not None), None)


def disturbance(run: ArmRun, rules: Rules, pids: Collection[int] = ()) -> Failure | None:
    """What of the machine or the client spoiled this arm-run; None = nothing seen.

    `pids`: processes on the GPUs that are of other arms of this Block.
    """
    own = own_pids([run]).union(pids)
    windows = [(m.telemetry, f"{run.point.label}, {m.cell.label}") for m in run.measurements]
    on_gpus = (gpu_fault(telemetry, where, own) for telemetry, where in windows)
    return _first((*on_gpus, *(_disturbed(telemetry, where, rules) for telemetry, where in windows)))


def _disturbed(telemetry: Telemetry, where: str, rules: Rules) -> Failure | None:
    readings = (
        (
            Reason.HOST_PRESSURE,
            "cores used by others",
            telemetry.foreign_cores,
            foreign_limit(telemetry, rules),
        ),
        (Reason.HOST_PRESSURE, "cores stolen", telemetry.stolen_cores, rules.max_stolen_cores),
        (Reason.HOST_PRESSURE, "memory pressure", telemetry.memory_pressure, rules.max_memory_pressure),
        (Reason.CLIENT_OVERHEAD, "client's share", client_share(telemetry), rules.max_client_share),
    )
    for reason, name, value, limit in readings:
        if value is not None and value > limit:
            return Failure(reason, f"{where}: {name} {value:.3f}, limit {limit:.3f}")
    return None


def foreign_limit(telemetry: Telemetry, rules: Rules) -> float:
    """CPU cores that others may use in a window.

    On a machine that is full, a tenth of a core already makes the server's threads wait for each
    other (measured on two cores: a third slower). With cores to spare, a quarter of them may be busy.
    """
    busy = (telemetry.server_cores, telemetry.client_cores, telemetry.foreign_cores)
    cores = telemetry.cores
    if cores is None or sum(b or 0.0 for b in busy) > FULL_SHARE * cores:
        return rules.max_foreign_cores
    return max(rules.max_foreign_cores, cores / 4)


def client_share(telemetry: Telemetry) -> float | None:
    """Share of the window that the load client may have taken from the server, at most.

    Its CPU time is taken as lost to a server that could have used every core. Once its thread is busy
    for half of the window, reads wait for each other and time stamps lag: then it is the share of
    that one core.
    """
    busy_cores, cores = telemetry.client_cores, telemetry.cores
    if busy_cores is None or not cores or busy_cores >= BUSY_CLIENT_CORES:
        return busy_cores
    return busy_cores / cores


def _request_errors(run: ArmRun, requests: Sequence[Request]) -> Failure | None:
    summarised = [m.first_error or "" for m in run.measurements if m.failed]
    errors = [r.error for r in requests if r.error] or summarised
    if not errors:
        return None
    refused = next((e for e in errors if any(sign in e.lower() for sign in REFUSED)), None)
    failed = sum(m.failed for m in run.measurements) or len(errors)
    total = sum(m.requests for m in run.measurements) or len(requests)
    reason = Reason.SERVER_DIED if refused else Reason.REQUESTS_FAILED
    return Failure(reason, f"{failed} of {total} requests failed: {refused or errors[0]}")


def _unparsed(run: ArmRun, requests: Sequence[Request]) -> Failure | None:
    without_usage = [m for m in run.measurements if m.output_tokens is None]
    if without_usage:
        return Failure(Reason.STREAM_UNPARSED, f"{without_usage[0].cell.label}: a reply came without usage")
    tokens = sum(r.output_tokens or 0 for r in requests)
    if tokens and not any(_has_text(r) for r in requests):
        evidence = f"{tokens} tokens were counted in {len(requests)} replies and no text was seen"
        return Failure(Reason.STREAM_UNPARSED, evidence)
    return None


def _has_text(request: Request) -> bool:
    return bool(request.text.strip() or request.reasoning_text.strip())


def _speculation(run: ArmRun) -> Failure | None:
    found = [m.acceptance for m in run.measurements]
    if run.point.is_baseline:
        drafting = [a for a in found if a.counters and a.counters.draft_tokens > 0]
        return Failure(Reason.CONFOUNDED, drafting[0].note or "the baseline drafts") if drafting else None
    if found and all(a.state is AcceptanceState.NOT_SPECULATING for a in found):
        return Failure(Reason.NOT_SPECULATING, found[0].note)
    return None


def _broken_slots(run: ArmRun, slots: Sequence[SlotCounts]) -> Failure | None:
    failed = failed_slots(slots, tokens_per_draft([m.acceptance for m in run.measurements]))
    if not failed:
        return None
    counts = ", ".join(f"slot {s.slot}: {s.accepted} of {s.generated}" for s in slots if s.slot in failed)
    others = [s for s in slots if s.slot not in failed]
    rest = f"; on the others {sum(s.accepted for s in others)} of {sum(s.generated for s in others)}"
    return Failure(Reason.BROKEN_DRAFTER, f"accepted draft tokens on {counts}{rest if others else ''}")


def _unwanted_thinking(requests: Sequence[Request], rules: Rules) -> Failure | None:
    count = sum(map(is_thinking, requests))
    if rules.thinking is not False or not count:
        return None
    return Failure(
        Reason.CONFOUNDED, f"thinking is declared off, yet {count} of {len(requests)} replies reason"
    )


def _load(measurement: Measurement) -> Failure | None:
    requested = requested_concurrency(measurement.cell)
    where = measurement.cell.label
    if requested and measurement.concurrency < MIN_CONCURRENCY_SHARE * requested:
        evidence = f"{where}: {measurement.concurrency:.2f} requests in flight on average"
        return Failure(Reason.CONCURRENCY_NOT_REACHED, evidence)
    return None


def _too_short(measurement: Measurement, rules: Rules) -> Failure | None:
    """Of the baseline's window alone: a candidate's is shorter because it is faster."""
    if measurement.wall_s >= rules.min_window_s:
        return None
    where = measurement.cell.label
    evidence = f"{where}: window of {measurement.wall_s:.1f} s, minimum {rules.min_window_s:.1f} s"
    return Failure(Reason.TOO_SHORT, evidence)


def _other_settings(run: ArmRun, baseline: ArmRun, rules: Rules) -> Failure | None:
    """Only between arms of the same shared settings: others may move settings that hang on them.

    The sides of a comparison may differ in anything.
    """
    if rules.speculative_keys is None or run.point.name or run.point.shared != baseline.point.shared:
        return None
    allowed = rules.speculative_keys | run.point.speculative.keys()
    found = changed(baseline.effective, run.effective, ignoring=allowed)
    if not found:
        return None
    return Failure(Reason.CONFOUNDED, f"settings differ from the baseline's: {describe(found)}")


def _other_lengths(
    run: ArmRun,
    requests: Sequence[Request],
    baseline: ArmRun,
    reference: Sequence[Request],
    rules: Rules,
) -> Failure | None:
    left_out = limited_cells(baseline, run)
    for ours in run.measurements:
        theirs = baseline.cell(ours.cell) if ours.cell.label not in left_out else None
        gap = _length_gap(theirs, ours, partial=run.stopped_early) if theirs else 0.0
        if gap > rules.max_length_gap:
            estimates = f" ({length_report(reference, requests)})" if reference else ""
            evidence = f"{ours.cell.label}: output lengths differ by {gap:.1%}{estimates}"
            return Failure(Reason.CONFOUNDED, evidence)
    return None


def _length_gap(baseline: Measurement, candidate: Measurement, *, partial: bool) -> float:
    ours, theirs = candidate.tokens_by_prompt, baseline.tokens_by_prompt
    if partial:  # stopped early: only the prompts it was given
        theirs = {prompt: tokens for prompt, tokens in theirs.items() if prompt in ours}
    return length_gap(theirs, ours)


ENERGY = "tokens_per_joule"
HIGHER_IS_BETTER = ("tokens_per_s", "mean_request_tokens_per_s", ENERGY, GOODPUT)
LATENCIES = tuple(
    f"{name}_{quantile}_s"
    for name in ("ttft", "tpot", "chunk_gap", "end_to_end")
    for quantile in ("p50", "p95", "p99")
)
OBJECTIVES = HIGHER_IS_BETTER + LATENCIES


def figure(measurement: Measurement, objective: str) -> float | None:
    """The value of an objective, e.g. "tokens_per_s" or "ttft_p95_s"; None if it was not measured."""
    if objective in HIGHER_IS_BETTER:
        value: float | None = getattr(measurement, objective)
        return value
    name, quantile, unit = objective.rsplit("_", 2)
    found = getattr(measurement, f"{name}_{unit}")
    return None if found is None else getattr(found, quantile)


def log_speedup(baseline: ArmRun, candidate: ArmRun, objective: str = "tokens_per_s") -> dict[str, float]:
    """log(candidate / baseline) by Cell label, turned so that > 0 is better.

    Only Cells that both arms could admit, with a positive finite value in both; see mean_log_speedup for
    the whole.
    """
    sign = 1.0 if objective in HIGHER_IS_BETTER else -1.0
    found, left_out = {}, limited_cells(baseline, candidate)
    for theirs in baseline.measurements:
        if theirs.cell.label in left_out:
            continue
        ratio = _log_ratio(theirs, candidate.cell(theirs.cell), objective)
        if ratio is not None:
            found[theirs.cell.label] = sign * ratio
    return found


def _log_ratio(theirs: Measurement, ours: Measurement | None, objective: str) -> float | None:
    """log(ours / theirs); None unless both are positive and finite. Goodput may be 0: `at_least_half`."""
    if ours is None:
        return None
    values = [figure(m, objective) for m in (theirs, ours)]
    if objective == GOODPUT:
        if values == [0, 0]:
            return 0.0
        values = [at_least_half(m) for m in (theirs, ours)]
    known = [v for v in values if v is not None and math.isfinite(v) and v > 0]
    return math.log(known[1] / known[0]) if len(known) == 2 else None


def limited_cells(baseline: ArmRun, candidate: ArmRun) -> dict[str, str]:
    """Cells, by label, whose load an arm could not admit, with who and how one saw it.

    There the queue was measured, not the server: such a Cell counts for neither arm.
    """
    found: dict[str, str] = {}
    for run, name in ((baseline, baseline.point.name or "the baseline"), (candidate, candidate.point.label)):
        for m in run.measurements:
            if m.capacity_limited:
                found.setdefault(m.cell.label, f"{name}: {m.capacity_limited}")
    return found


def said_of(limited: Mapping[str, str]) -> str:
    """`limited_cells` in words, no full stop."""
    return "; ".join(f"{cell} ({who_and_how})" for cell, who_and_how in limited.items())


def mean_log_speedup(
    baseline: ArmRun,
    candidate: ArmRun,
    objective: str = "tokens_per_s",
    weights: Weights = EQUAL_WEIGHTS,
    left_out: Collection[str] = (),
) -> float | None:
    """Mean of log_speedup over the baseline's Cells (log of the weighted geometric mean of the ratios).

    Without the Cells in `left_out` (labels) and those that an arm could not admit. None if another one
    is missing on either side, since a mean over other Cells is another quantity, or if none that counts
    is left.
    """
    without = {*left_out, *limited_cells(baseline, candidate)}
    by_cell = log_speedup(baseline, candidate, objective)
    cells = [m.cell for m in baseline.measurements if m.cell.label not in without]
    weighing = [weights.of(cell) for cell in cells]
    if not any(weighing) or any(cell.label not in by_cell for cell in cells):
        return None
    return fmean([by_cell[cell.label] for cell in cells], weighing)

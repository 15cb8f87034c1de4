"""What the confirmation says: BETTER, WORSE, SAME or UNDECIDED against the Baseline, and the answer in all.

A Block holds the baseline and every finalist still open, one launch each, in random order. Evidence
is d = log(candidate / baseline) within a Block, the mean over its Cells. Intervals are looked at only
after planned numbers of Blocks; alpha is split over those looks and over the finalists.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean

from analysis.acceptance import over_windows
from analysis.accuracy import DOUBT, accuracy, in_words, is_worse
from analysis.anchor import place_of
from analysis.block import limited_cells, log_speedup, mean_log_speedup, said_of
from analysis.goodput import GOODPUT, empty_windows
from analysis.gpu import gpu_warnings
from analysis.interaction import depends
from analysis.limits import broken_at, median_ratios, not_kept
from analysis.output import divergence_shares, pooled
from analysis.signs import ClassSign, banner, class_signs
from analysis.statistics import LOOKS, look_alpha, t_interval
from analysis.summary import merged_telemetry
from analysis.words import signed_percent
from results.reasons import Reason
from results.records import (
    EQUAL_WEIGHTS,
    Acceptance,
    AcceptanceState,
    ArmRun,
    Block,
    Cell,
    Effect,
    Measurement,
    OutputCheck,
    Phase,
    Point,
    Verdict,
    VerdictKind,
    Weights,
)

ALPHA = 0.05
PLACES_ALPHA = 0.05  # that a speed-up is said to depend on the place although none does
SAME_MARGIN = math.log(1.02)
MOSTLY = 0.5


def decide(
    log_ratios: Sequence[float],
    *,
    looks: Sequence[int] = LOOKS,
    alpha: float = ALPHA,
    finalists: int = 1,
    same_margin: float = SAME_MARGIN,
) -> tuple[VerdictKind, Effect | None]:
    """Decide at the first planned look where the interval allows it; later Blocks are not consumed.

    `log_ratios` holds one figure per Block in order of time. Before the first look there is no
    Effect; an undecided one is that of the last look reached.
    """
    each = look_alpha(alpha, len(looks), finalists)
    effect = None
    for blocks in sorted(look for look in looks if look <= len(log_ratios)):
        effect = _effect(log_ratios[:blocks], each)
        kind = kind_of(effect, same_margin)
        if kind is not VerdictKind.UNDECIDED:
            return kind, effect
    return VerdictKind.UNDECIDED, effect


def next_look(blocks: int, looks: Sequence[int] = LOOKS) -> int | None:
    """Number of Blocks at the next planned look after `blocks`; None if that was the last."""
    return min((look for look in looks if look > blocks), default=None)


def _effect(log_ratios: Sequence[float], alpha: float) -> Effect:
    return Effect(*t_interval(log_ratios, alpha), blocks=len(log_ratios))


def kind_of(effect: Effect, same_margin: float = SAME_MARGIN) -> VerdictKind:
    """What an interval says against the Baseline; `same_margin` is a log ratio."""
    if effect.low > 0:
        return VerdictKind.BETTER
    if effect.high < 0:
        return VerdictKind.WORSE
    if -same_margin <= effect.low and effect.high <= same_margin:
        return VerdictKind.SAME
    return VerdictKind.UNDECIDED


def conclude(
    blocks: Sequence[Block],
    finalists: Sequence[Point],
    *,
    objective: str = "tokens_per_s",
    looks: Sequence[int] = LOOKS,
    alpha: float = ALPHA,
    same_margin: float = SAME_MARGIN,
    limits: Mapping[str, float] | None = None,
    weights: Weights = EQUAL_WEIGHTS,
    same_model: bool = True,
    greedy: bool = True,
) -> list[Verdict]:
    """One Verdict per finalist, in their order, from the usable confirmation Blocks.

    `finalists` are all that entered the confirmation, also those dropped since: alpha is split over
    them. A finalist that failed in any usable Block, or breaks one of `limits` (see analysis.limits),
    is INVALID, however fast it is; so is one with significantly fewer right answers, where prompts have
    references. Unless both arms serve the `same_model`, nothing is made of outputs that differ; nor
    unless they are `greedy`, of texts. A Cell whose load an arm could not admit in any Block is left out
    of all of them.
    """
    each = look_alpha(alpha, len(looks), len(finalists))
    found = []
    for point in finalists:
        pairs = _pairs(blocks, point)
        limited = _limited(pairs)
        ratios = [mean_log_speedup(p.baseline, p.candidate, objective, weights, limited) for p in pairs]
        if fault := _fault(pairs, ratios, limited):
            found.append(Verdict(VerdictKind.INVALID, point, None, {}, (), None, None, None, fault))
            continue
        known = [d for d in ratios if d is not None]
        kind, effect = decide(
            known, looks=looks, alpha=alpha, finalists=len(finalists), same_margin=same_margin
        )
        used = pairs[: effect.blocks] if effect else pairs
        if effect and (broken := _broken_limit(used, limits or {}, weights)):  # at planned looks only
            found.append(Verdict(VerdictKind.INVALID, point, None, {}, (), None, None, None, broken))
            continue
        verdict = _verdict(kind, point, effect, used, each, objective, weights, limited)
        verdict = _with_places(verdict, list(zip(used, known, strict=False)), same_margin, len(finalists))
        if effect and (
            there := broken_at([(place_of(p.block), p.candidate) for p in used], limits or {}, weights)
        ):
            verdict = replace(verdict, warnings=(*verdict.warnings, f"limits: broken {there}"))
        found.append(_with_outputs(verdict, used, same_model=same_model, greedy=greedy))
    return found


@dataclass(frozen=True, slots=True)
class _Pair:
    block: Block
    baseline: ArmRun
    candidate: ArmRun


def _pairs(blocks: Iterable[Block], point: Point) -> list[_Pair]:
    found = []
    for block in blocks:
        baseline, candidate = block.baseline, block.arm(point)
        usable = block.phase is Phase.CONFIRM and block.invalid is None
        if usable and baseline and candidate and baseline.failure is None:
            found.append(_Pair(block, baseline, candidate))
    return found


def _limited(pairs: Sequence[_Pair]) -> dict[str, str]:
    """Cells that an arm could not admit in some Block, with who and how one saw it."""
    found: dict[str, str] = {}
    for pair in pairs:
        found = {**limited_cells(pair.baseline, pair.candidate), **found}
    return found


def _fault(pairs: Sequence[_Pair], ratios: Sequence[float | None], limited: Mapping[str, str]) -> str:
    for pair, ratio in zip(pairs, ratios, strict=True):
        if failure := pair.candidate.failure:
            return f"failed in Block {pair.block.number}: {failure.reason}, {failure.evidence}"
        if ratio is None and limited and limited.keys() >= {m.cell.label for m in pair.baseline.measurements}:
            return f"no Cell is left that both arms can admit: {said_of(limited)}"
        if ratio is None:
            return f"Block {pair.block.number} does not measure every Cell in both arms"
    return ""


def _broken_limit(pairs: Sequence[_Pair], limits: Mapping[str, float], weights: Weights) -> str:
    """The limits that the median Block breaks."""
    ratios = median_ratios([pair.candidate for pair in pairs], limits, weights)
    return f"{Reason.LIMIT_EXCEEDED}: {told}" if (told := not_kept(ratios, limits)) else ""


def _verdict(
    kind: VerdictKind,
    point: Point,
    effect: Effect | None,
    pairs: Sequence[_Pair],
    alpha: float,
    objective: str,
    weights: Weights,
    limited: Mapping[str, str],
) -> Verdict:
    measured = [m for p in pairs for m in p.candidate.measurements]
    off = Acceptance(AcceptanceState.NOT_SPECULATING)
    acceptance = off if point.is_baseline else over_windows(measured)
    ratios = [log_speedup(p.baseline, p.candidate, objective) for p in pairs]
    return Verdict(
        kind,
        point,
        effect,
        _by_class(pairs, ratios, alpha, replace(weights, classes={}), limited),
        _counted(measured, weights, limited),
        None,
        None,
        acceptance.length,
        _why(kind, effect, pairs),
        (*_left_out(limited), *_warnings(pairs, acceptance, objective)),
        _by_cell(ratios, alpha, limited),
        limited=limited,
    )


def _counted(measured: Iterable[Measurement], weights: Weights, limited: Collection[str]) -> tuple[str, ...]:
    """Labels of the Cells that the speed-up is a mean of."""
    found = {m.cell.label: weights.of(m.cell) for m in measured if m.cell.label not in limited}
    return tuple(label for label, weight in found.items() if weight or not any(found.values()))


def _with_places(
    verdict: Verdict, figures: Sequence[tuple[_Pair, float]], same_margin: float, finalists: int
) -> Verdict:
    """The same Verdict; where the speed-up differs between places, its sentence says so."""
    pairs = [(place_of(pair.block), log) for pair, log in figures]
    told = depends(pairs, same_margin, PLACES_ALPHA / finalists) if verdict.effect is not None else ""
    if not told:
        return verdict
    warning = f"nodes: the speed-up depends on where it is measured, {told}: the figure over all hides it"
    why = f"{verdict.why.removesuffix('.')}; but {told}."
    return replace(verdict, why=why, warnings=(*verdict.warnings, warning))


def _with_outputs(verdict: Verdict, pairs: Sequence[_Pair], *, same_model: bool, greedy: bool) -> Verdict:
    """The same Verdict with what is known of its outputs, INVALID if fewer of them are right."""
    outputs, control = _outputs(pairs, verdict.point)
    found = accuracy((p.baseline, p.candidate) for p in pairs)
    verdict = replace(
        verdict,
        identical_share=outputs.identical_share,
        control_identical_share=control.identical_share,
        outputs=outputs,
        control=control,
        accuracy=found,
    )
    said = in_words(found, reference_name(pairs[0].baseline.point)) if found is not None else ""
    if same_model and is_worse(found) and verdict.effect is not None:  # at planned looks only
        return replace(verdict, kind=VerdictKind.INVALID, effect=None, why=f"{Reason.INVALID_OUTPUT}: {said}")
    doubts = [
        _diverges_beyond(outputs, control, pairs) if same_model and greedy else "",
        f"accuracy: {said}" if found is not None and found.p_value <= DOUBT else "",
    ]
    return replace(verdict, warnings=tuple(dict.fromkeys([*verdict.warnings, *filter(None, doubts)])))


def _outputs(pairs: Sequence[_Pair], point: Point) -> tuple[OutputCheck, OutputCheck]:
    """The candidate's outputs against the baseline's, and as a control the baseline's against its own."""
    checks = [c for p in pairs if (c := p.block.outputs.get(point.key))]
    return pooled(checks), pooled(p.block.control for p in pairs)


def _by_class(
    pairs: Sequence[_Pair],
    ratios: Sequence[Mapping[str, float]],
    alpha: float,
    within: Weights,
    limited: Collection[str],
) -> dict[str, Effect]:
    """From the log speed-ups of every pair by Cell.

    `within` weighs the Cells of a class; where all of them have the weight 0, they count alike.
    """
    if len(pairs) < 2:
        return {}
    classes: dict[str, list[Cell]] = {}
    for cell in (m.cell for m in pairs[0].baseline.measurements if m.cell.label not in limited):
        classes.setdefault(cell.workload_class, []).append(cell)
    effects = {}
    for name, cells in classes.items():
        shares = [within.of(cell) for cell in cells]
        weighing = shares if any(shares) else None
        means = [fmean([found[cell.label] for cell in cells], weighing) for found in ratios]
        effects[name] = _effect(means, alpha)
    return effects


def _by_cell(
    ratios: Sequence[Mapping[str, float]], alpha: float, limited: Collection[str]
) -> dict[str, Effect]:
    if len(ratios) < 2:
        return {}
    counted = [cell for cell in ratios[0] if cell not in limited]
    return {cell: _effect([found[cell] for found in ratios], alpha) for cell in counted}


def _left_out(limited: Mapping[str, str]) -> list[str]:
    """What the verdict does not hold for, and why."""
    return [f"capacity: left out, as the load could not be admitted: {said_of(limited)}"] if limited else []


def reference_name(point: Point) -> str:
    """What a Point that others are compared with is called: "A" in a comparison, else "the baseline"."""
    return point.name or "the baseline"


def _why(kind: VerdictKind, effect: Effect | None, pairs: Sequence[_Pair]) -> str:
    if effect is None:
        return "Too few Blocks for the first planned look."
    reference = reference_name(pairs[0].baseline.point)
    meaning = {
        VerdictKind.BETTER: f"the whole interval is above {reference}",
        VerdictKind.WORSE: f"the whole interval is below {reference}",
        VerdictKind.SAME: "the whole interval lies within the margin called the same",
    }.get(kind, "the interval does not settle it")
    bounds = f"{signed_percent(effect.low)} to {signed_percent(effect.high)}"
    return f"{signed_percent(effect.log_ratio)} ({bounds}) over {effect.blocks} Blocks: {meaning}."


def _warnings(pairs: Sequence[_Pair], acceptance: Acceptance, objective: str) -> tuple[str, ...]:
    """Each once, however many Blocks say it."""
    windows = [m for p in pairs for m in p.candidate.measurements]
    doubts = [m.acceptance for m in windows if m.acceptance.state is AcceptanceState.COUNTERS_DISAGREE]
    notes = [f"acceptance: {a.note}" for a in (*doubts, acceptance) if a.note]
    of_blocks = [warning for p in pairs for warning in p.block.warnings]
    theirs = [m for p in pairs for m in p.baseline.measurements]
    on_gpus = gpu_warnings(*(merged_telemetry([m.telemetry for m in arm]) for arm in (theirs, windows)))
    counted = objective == GOODPUT and bool(pairs)
    empty = empty_windows(theirs, windows, reference_name(pairs[0].baseline.point)) if counted else ""
    return tuple(dict.fromkeys([*notes, *of_blocks, *on_gpus, *filter(None, [empty])]))


def _diverges_beyond(outputs: OutputCheck, control: OutputCheck, pairs: Sequence[_Pair]) -> str:
    """Divergence from the baseline beyond that of two baseline runs (two standard errors)."""
    ours, theirs = outputs.identical_share, control.identical_share
    if ours is None or theirs is None:
        return ""
    spread = math.sqrt(theirs * (1 - theirs) * (1 / outputs.compared + 1 / control.compared))
    if ours >= theirs - 2 * spread:
        return ""
    name = reference_name(pairs[0].baseline.point)
    itself = f"two runs of {name}" if pairs[0].baseline.point.name else "two baseline runs"
    early = _early(outputs)
    unlike = f"; {early:.0%} differ from their beginning on: read some" if early > MOSTLY else ""
    return f"outputs: {ours:.0%} equal {name}'s, {theirs:.0%} between {itself}{unlike}"


def _early(outputs: OutputCheck) -> float:
    """Share of answers that differ within their first tenth, where rounding has had little time."""
    shares = divergence_shares(outputs)
    return shares[0] if shares else 0.0


def breaks_limit(verdict: Verdict) -> bool:
    """Whether a finalist was measured, and is out for a limit of the sweep."""
    return verdict.why.startswith(Reason.LIMIT_EXCEEDED)


def still_open(verdicts: Sequence[Verdict]) -> list[Point]:
    """Finalists worth a launch in the next Block: undecided, and still able to become the winner.

    Which of two winners is the faster is not what the Blocks are planned for: once the finalist with
    the largest estimate is BETTER, the question is answered. And one that is not above the baseline at
    a look is given up while another one is.
    """
    leader = _leader(verdicts)
    above = any(v.effect and v.kind is not VerdictKind.INVALID and v.effect.log_ratio > 0 for v in verdicts)

    def may_win(verdict: Verdict) -> bool:
        ahead_of_leader = leader is None or _rank(verdict) > _rank(leader)
        return verdict.effect is None or (ahead_of_leader and (verdict.effect.log_ratio > 0 or not above))

    return [v.point for v in verdicts if v.kind is VerdictKind.UNDECIDED and may_win(v)]


def _leader(verdicts: Sequence[Verdict]) -> Verdict | None:
    better = [v for v in verdicts if v.kind is VerdictKind.BETTER]
    return max(better, key=_rank, default=None)


def _rank(verdict: Verdict) -> tuple[int, float]:
    """One that admits the load of more Cells comes first: estimates over other Cells do not compare."""
    return -len(verdict.limited), _estimate(verdict)


def _estimate(verdict: Verdict) -> float:
    return verdict.effect.log_ratio if verdict.effect else -math.inf


class AnswerKind(StrEnum):
    WINNER = "winner"
    KEEPS_LIMITS = "the baseline breaks a limit that another configuration keeps"
    NONE_BETTER = "no configuration beats the baseline"
    UNDECIDED = "undecided"
    INVALID = "nothing could be measured"


@dataclass(frozen=True, slots=True)
class Answer:
    """The confirmation in one sentence, and what that sentence hides."""

    kind: AnswerKind
    winner: Verdict | None
    best: Verdict | None  # largest estimate among the others
    sentence: str
    signs_differ: tuple[ClassSign, ...]  # of the winner, else of the best; empty = all have one sign
    banner: str  # says where it gains and where it loses; "" = signs do not differ


def answer(verdicts: Sequence[Verdict], baseline_breaks: str = "") -> Answer:
    """The winner is the BETTER finalist with the largest estimate; without one, say what is known.

    `baseline_breaks` says which limits the baseline itself breaks ("" = none): then it is no choice, and
    without a BETTER finalist the best of those that keep the limits is the winner.
    """
    winner = _leader(verdicts) or (_keeper(verdicts) if baseline_breaks else None)
    others = [v for v in verdicts if v is not winner and v.effect]
    best = max(others, key=_estimate, default=None)
    kind = _answer_kind(verdicts, winner)
    shown = winner or best
    signs = class_signs(shown) if shown else ()
    sentence = _sentence(kind, verdicts, winner, best, baseline_breaks)
    lines = [
        itself_breaks(baseline_breaks) * (baseline_breaks not in sentence),
        banner(shown) if shown else "",
    ]
    return Answer(kind, winner, best, sentence, signs, "\n".join(filter(None, lines)))


def itself_breaks(limits: str, reference: str = "The baseline") -> str:
    """The caution that what everything is compared with breaks a limit itself; "" = it breaks none."""
    return f"{reference} itself breaks a limit: {limits}." if limits else ""


def _keeper(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The best of those that were found to keep the limits, faster than the baseline or not."""
    keeping = [v for v in verdicts if v.effect and v.kind is not VerdictKind.INVALID]
    return max(keeping, key=_estimate, default=None)


def _answer_kind(verdicts: Sequence[Verdict], winner: Verdict | None) -> AnswerKind:
    if winner:
        return AnswerKind.WINNER if winner.kind is VerdictKind.BETTER else AnswerKind.KEEPS_LIMITS
    kinds = {v.kind for v in verdicts} - {VerdictKind.INVALID}
    if not kinds:
        return AnswerKind.NONE_BETTER if _all_break(verdicts) else AnswerKind.INVALID
    return AnswerKind.UNDECIDED if VerdictKind.UNDECIDED in kinds else AnswerKind.NONE_BETTER


def _all_break(verdicts: Sequence[Verdict]) -> bool:
    return bool(verdicts) and all(breaks_limit(v) for v in verdicts)


def _sentence(
    kind: AnswerKind,
    verdicts: Sequence[Verdict],
    winner: Verdict | None,
    best: Verdict | None,
    baseline_breaks: str,
) -> str:
    if winner and kind is AnswerKind.KEEPS_LIMITS:
        keeps = f"{winner.point.label} keeps every limit, at {winner.why}"
        return f"The baseline breaks a limit ({baseline_breaks}); {keeps}"
    if winner:
        return f"{winner.point.label} beats the baseline: {winner.why}"
    if _all_break(verdicts):
        return no_one_keeps(baseline_breaks)
    closest = f" Closest: {best.point.label}, {best.why}" if best else ""
    return {
        AnswerKind.NONE_BETTER: "No configuration beats the baseline.",
        AnswerKind.UNDECIDED: "It is not decided whether any configuration beats the baseline.",
    }.get(kind, "No finalist could be measured.") + closest


def no_one_keeps(baseline_breaks: str) -> str:
    """The sentence where every configuration breaks a limit."""
    if baseline_breaks:
        return f"No configuration keeps the limits, nor does the baseline: {baseline_breaks}."
    return "No configuration keeps the limits, so none beats the baseline within them."

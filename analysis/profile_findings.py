"""What two Profiles say together: one sentence of advice, and what to keep in mind."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.words import one_line, percent, short_time
from results.profile import Profile, Stage, Work

# Beyond these shares of a step a part is worth tuning: docs/profile.md says why.
DRAFT_SHARE = 0.30
VERIFY_RATIO = 1.5  # time of a verification over that of the baseline's one-token step
ALL_REDUCE_SHARE = 0.15
HOST_SHARE = 0.20
OTHER_SHARE = 0.25  # unknown kernels: beyond, they are named
UNEVEN_SHARE = 0.05  # between ranks
SLOWDOWN = 1.10
NAME_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Pair:
    """The latest Profiles of one Cell: of the baseline, and of what is compared with it."""

    baseline: Profile | None
    other: Profile | None

    @property
    def shown(self) -> Sequence[Profile]:
        return [profile for profile in (self.baseline, self.other) if profile is not None]

    @property
    def subject(self) -> Profile:
        """The one that advice is about."""
        return self.shown[-1]


def latest(profiles: Sequence[Profile]) -> Pair | None:
    """Of the Cell that was profiled last; None without Profiles."""
    if not profiles:
        return None
    here = [p for p in profiles if p.cell == profiles[-1].cell]
    baseline = next((p for p in reversed(here) if p.arm == "baseline"), None)
    return Pair(baseline, next((p for p in reversed(here) if p.arm != "baseline"), None))


def headline(pair: Pair) -> str:
    """What a step is spent on, and what is worth tuning next."""
    profile = pair.subject
    parts = {part: profile.trace.share(part) for part in Work}
    largest = sorted(parts, key=lambda part: -parts[part])[:3]
    shares = ", ".join(f"{part.value} {percent(parts[part])}" for part in largest)
    step_s = profile.trace.step_s
    of = f"A step of {profile.arm} takes {1000 * step_s:.3g} ms" if step_s else f"The trace of {profile.arm}"
    return f"{of}: {shares}. {advice(pair)}"


def advice(pair: Pair) -> str:
    """One sentence: the part with the largest share beyond its threshold, or that none is."""
    found = [*filter(None, (_draft(pair), _verify(pair), _all_reduce(pair), _host(pair)))]
    if not found:
        return "Nothing stands out: no part of a step is large enough to be worth tuning by itself."
    return max(found)[1]


Advice = tuple[float, str]  # the share of a step that is at stake, and the sentence


def _draft(pair: Pair) -> Advice | None:
    share = pair.subject.trace.share(Stage.DRAFT)
    if share <= DRAFT_SHARE:
        return None
    return (
        share,
        f"Worth tuning next: drafting takes {percent(share)} of a step, so fewer steps or a smaller tree.",
    )


def _verify(pair: Pair) -> Advice | None:
    """A verification reads the same weights as one token does: what it takes more is its width."""
    ratio = verify_ratio(pair)
    if ratio is None or ratio <= VERIFY_RATIO:
        return None
    at_stake = pair.subject.trace.share(Stage.TARGET) * (1 - 1 / ratio)
    return at_stake, (
        f"Worth tuning next: a verification takes {ratio:.1f} times the baseline's step of one token,"
        " so fewer draft tokens."
    )


def verify_ratio(pair: Pair) -> float | None:
    """None unless both were profiled, with steps and stages marked."""
    if pair.baseline is None or pair.other is None:
        return None
    plain, verify = (stage_s(profile, Stage.TARGET) for profile in (pair.baseline, pair.other))
    return verify / plain if plain and verify else None


def _all_reduce(pair: Pair) -> Advice | None:
    share = pair.subject.trace.share(Work.ALL_REDUCE)
    if share <= ALL_REDUCE_SHARE:
        return None
    return share, (
        f"Worth tuning next: exchange between GPUs takes {percent(share)} of a step, nothing beside it,"
        " so the NCCL variables and the custom all-reduce under `shared`."
    )


def _host(pair: Pair) -> Advice | None:
    trace = pair.subject.trace
    share = trace.share(Work.HOST)
    if share <= HOST_SHARE:
        return None
    if trace.device == "cpu":
        return 0.0, (  # it is last: nothing of it can be tuned
            f"Nothing to tune stands out: {percent(share)} of a step is Python between the operations, the"
            " profiler's own share included."
        )
    return share, (
        f"Worth tuning next: the GPU waits for the host in {percent(share)} of a step, so CUDA graphs,"
        " overlap scheduling or a faster CPU before any speculative setting."
    )


def in_short(profile: Profile) -> str:
    """How much was traced, and where the trace lies."""
    trace, tokens = profile.trace, profile.tokens_per_step
    steps = f"{trace.steps} decode steps of {short_time(trace.step_s)}" if trace.steps else "the whole trace"
    each = f" with {tokens:.2f} tokens each" if tokens else ""
    return "; ".join([f"{profile.point.label}: {steps}{each}", *profile.traces[:1]])


def cautions(pair: Pair) -> list[str]:
    """What to keep in mind of the figures, each as a sentence."""
    return [sentence for profile in pair.shown for sentence in _cautions(profile)]


def _cautions(profile: Profile) -> list[str]:
    trace, name = profile.trace, profile.arm
    found = []
    if not trace.steps:
        found.append(f"{name}: this release marks no steps, so the whole trace is summed, prefills included.")
    if profile.slowdown is not None and profile.slowdown > SLOWDOWN:
        found.append(
            f"{name}: the profiler made the server {profile.slowdown:.2f} times slower, mostly on the host."
        )
    if not profile.point.is_baseline and trace.steps and trace.share(Stage.DRAFT) == 0:
        found.append(
            f"{name}: no drafting is marked in this trace, so it counts as other or as host gaps;"
            " --stacks may name it."
        )
    if trace.share(Work.OTHER) > OTHER_SHARE:
        largest = ", ".join(
            f"{one_line(kernel)[:NAME_CHARACTERS]} {percent(seconds / trace.wall_s)}"
            for kernel, seconds in trace.others_s.items()
        )
        found.append(f"{name}: other is {percent(trace.share(Work.OTHER))}, the largest of it {largest}.")
    if trace.hidden_s:
        hidden = percent(trace.hidden_s / trace.wall_s)
        found.append(f"{name}: exchange that hides behind computing is a further {hidden}.")
    low, high = min(profile.all_reduce_shares, default=0.0), max(profile.all_reduce_shares, default=0.0)
    if high - low > UNEVEN_SHARE:
        found.append(
            f"{name}: exchange takes {percent(low)} to {percent(high)} of a step over the"
            f" {len(profile.all_reduce_shares)} ranks: those with little are waited for by the others."
        )
    return found


def stage_s(profile: Profile, part: Work | Stage) -> float | None:
    """Seconds of a step in one part; None if no steps are marked."""
    step_s = profile.trace.step_s
    return profile.trace.share(part) * step_s if step_s is not None else None

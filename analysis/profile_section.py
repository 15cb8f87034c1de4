"""Where the time of a step goes, as tables and as a section of the page."""

from collections.abc import Iterable, Sequence

from analysis.markup import paragraph, section, table
from analysis.profile_findings import Pair, cautions, headline, latest, stage_s
from analysis.tables import Entry, Table
from analysis.words import UNKNOWN, percent, short_time
from results.profile import Profile, Stage, Work

TITLE = "Where the time of a step goes"
_STAGES = {Stage.TARGET: "target model (verify)"}


def profile_section(profiles: Sequence[Profile]) -> str:
    """The section of the page; "" without Profiles."""
    pair = latest(profiles)
    if pair is None:
        return ""
    return section(
        "profile",
        TITLE,
        paragraph(headline(pair)),
        *(paragraph(sentence, "note") for sentence in cautions(pair)),
        *(table(content) for content in profile_tables(profiles)),
    )


def profile_tables(profiles: Sequence[Profile]) -> Sequence[Table]:
    """By stage, by kind of work, and the steps themselves, for both servers side by side."""
    pair = latest(profiles)
    if pair is None:
        return ()
    return (
        _shares(pair, "profile-stages", "A step in ms, by stage", Stage),
        _shares(pair, "profile-work", "A step in ms, by kind of work", Work),
        _steps(pair),
    )


def _shares(pair: Pair, id: str, title: str, parts: Iterable[Work | Stage]) -> Table:
    """Rows without any time are left out."""
    shown = [part for part in parts if any(p.trace.share(part) > 0 for p in pair.shown)]
    names = [name for p in pair.shown for name in (f"{p.arm} ms", "share", "a token")]
    rows = [
        (Entry(_name(part)), *(entry for p in pair.shown for entry in _entries(p, part))) for part in shown
    ]
    what = "Stage" if "stages" in id else "Work"
    cell = pair.subject.cell.label
    return Table(id, title, (what, *names), tuple(rows), frozenset(names), f"{cell}; decode steps alone.")


def _name(part: Work | Stage) -> str:
    return _STAGES.get(part, part.value) if isinstance(part, Stage) else part.value


def _entries(profile: Profile, part: Work | Stage) -> tuple[Entry, Entry, Entry]:
    share, step_s = profile.trace.share(part), stage_s(profile, part)
    token_s = step_s / profile.tokens_per_step if step_s is not None and profile.tokens_per_step else None
    return _milliseconds(step_s), Entry(percent(share), share, share=share), _milliseconds(token_s)


def _milliseconds(seconds: float | None) -> Entry:
    return Entry(UNKNOWN) if seconds is None else Entry(f"{1000 * seconds:.3g}", seconds)


def _steps(pair: Pair) -> Table:
    rows = [
        (
            Entry(p.arm),
            Entry(p.point.label, code=True),
            Entry(str(p.trace.steps), float(p.trace.steps)),
            Entry(short_time(p.trace.step_s)),
            Entry(_unprofiled(p)),
            Entry(f"{p.tokens_per_step:.2f}" if p.tokens_per_step else UNKNOWN),
            Entry(f"{p.slowdown:.2f}x" if p.slowdown else UNKNOWN),
            Entry(p.traces[0] if p.traces else "", code=True),
        )
        for p in pair.shown
    ]
    columns = ("Server", "Configuration", "Steps", "Step", "Unprofiled", "Tokens a step", "Slowdown", "Trace")
    numeric = frozenset({"Steps", "Step", "Tokens a step", "Slowdown"})
    note = (
        "Unprofiled: median step that the server recorded itself, by requests in flight."
        " Open a trace in ui.perfetto.dev."
    )
    return Table("profile-steps", "The steps that were traced", columns, tuple(rows), numeric, note)


def _unprofiled(profile: Profile) -> str:
    times = sorted(profile.step_times_s.items(), key=lambda item: int(item[0]))
    return ", ".join(f"{size}: {short_time(seconds)}" for size, seconds in times) or UNKNOWN

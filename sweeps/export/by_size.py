"""Draft lengths by batch size, from what was measured at each number of requests in flight."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from analysis.concurrency import Figure, figures, nearest_sizes
from analysis.findings import compared_with, eligible
from analysis.words import signed_percent
from launchers.engines.deploy import BySize, Size
from results.errors import UsageError
from results.records import Point, Trial
from sweeps.export.choice import Choice
from sweeps.export.deployable import Deployable, check_one_node, deployable
from sweeps.export.shell import command

SWEEP_SEVERAL = "sweep several: `load: [{closed: 1}, {closed: 8}]`"


@dataclass(frozen=True)
class Entry:
    """One Point that can stand in a schedule, with its figure at each concurrency."""

    rest: Point
    tokens: int
    trial: Trial
    at: Mapping[int, Figure]


@dataclass(frozen=True)
class Pick:
    """The best draft length at one concurrency; None = none pays there."""

    concurrency: int
    entry: Entry | None

    @property
    def tokens(self) -> int:
        return self.entry.tokens if self.entry else 0

    @property
    def words(self) -> str:
        if self.entry is None:
            return f"closed({self.concurrency}): no drafts, since no measured length is faster than none"
        found = self.entry.at[self.concurrency]
        basis = "confirmed" if found.confirmed else "of the search alone, not confirmed"
        blocks = f"{found.blocks} Block{'s' if found.blocks > 1 else ''}"
        return (
            f"closed({self.concurrency}): {self.tokens} tokens, {signed_percent(found.log_speedup)},"
            f" {basis} ({blocks})"
        )


def by_size(
    choice: Choice, form: BySize, host: str | None, port: int | None, file: str
) -> tuple[str, tuple[str, ...]]:
    """(the file, notes). Raises UsageError: one concurrency only, nothing that can be scheduled, no gain."""
    entries = _family(choice, form)
    picks = best_by_concurrency(entries)
    if len(picks) < 2:
        raise UsageError(f"{form.form} needs more than one number of requests in flight: {SWEEP_SEVERAL}")
    said = tuple(pick.words for pick in picks)
    if not any(pick.entry for pick in picks):
        return _without_speculation(choice, form, host, port, said)
    sizes = sizes_of(picks)
    longest = max((pick.entry for pick in picks if pick.entry), key=lambda entry: entry.tokens)
    what = deployable(replace(choice, point=longest.trial.launched), host, port)
    server = replace(what.server, argv=form.command(what.server.argv, sizes, file))
    lines = (*_about(choice, form, longest), *said, *map(_range_words, sizes), *what.about[-2:])
    scheduled = replace(what, server=server, about=lines)
    config = form.config(sizes)
    if config is None:
        return command(scheduled), said
    check_one_node(form.form, what.nodes)
    start = f"Start it with: {server.one_line}"
    told = {**config, "tuner": {"about": list(lines), "command": server.one_line}}
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n", (*said, start)


def _family(choice: Choice, form: BySize) -> list[Entry]:
    """Entries that differ in nothing but their length; those of the choice, or the best of its method."""
    report = choice.report
    of_method = [
        t
        for t in eligible(report.trials)
        if choice.point.is_baseline or t.point.method == choice.point.method
    ]
    groups: dict[str, list[Entry]] = {}
    for trial in of_method:
        if (found := form.entry_of(trial.point)) is not None:
            at = figures(trial, report.blocks, report.objective, report.weights)
            groups.setdefault(found[0].key, []).append(Entry(*found, trial, at))
    if not groups:
        raise UsageError(form.why_not(choice.point.method))
    own = form.entry_of(choice.point)
    if own is not None and own[0].key in groups:
        return groups[own[0].key]
    return max(groups.values(), key=_worth)


def _worth(entries: Sequence[Entry]) -> float:
    """Mean over the concurrencies of what the best lengths gain."""
    gains = [p.entry.at[p.concurrency].log_speedup if p.entry else 0.0 for p in best_by_concurrency(entries)]
    return fmean(gains) if gains else float("-inf")


def best_by_concurrency(entries: Sequence[Entry]) -> list[Pick]:
    """At every measured concurrency the entry with the largest speed-up, if it is one."""
    measured = sorted({n for entry in entries for n in entry.at})
    picks = []
    for n in measured:
        best = max((e for e in entries if n in e.at), key=lambda e: e.at[n].log_speedup)
        picks.append(Pick(n, best if best.at[n].log_speedup > 0 else None))
    return picks


def sizes_of(picks: Sequence[Pick]) -> list[Size]:
    """Neighbours of one length are one range."""
    found: list[Size] = []
    ranges = nearest_sizes([pick.concurrency for pick in picks])
    for (first, last), pick in zip(ranges, picks, strict=True):
        if found and found[-1].tokens == pick.tokens:
            found[-1] = replace(found[-1], last=last)
        else:
            found.append(Size(first, last, pick.tokens))
    return found


def _range_words(size: Size) -> str:
    sizes = f"{size.first} to {size.last}" if size.last is not None else f"{size.first} and more"
    return f"batches of {sizes}: {size.tokens} tokens (each size as the nearest measured one)"


def _about(choice: Choice, form: BySize, longest: Entry) -> tuple[str, ...]:
    rest = f"{longest.rest.label}, its draft length by batch size, from the run {choice.report.name}"
    if (own := form.entry_of(choice.point)) is not None and own[0].key == longest.rest.key:
        return (rest,)
    return (
        rest,
        f"The {choice.why} of the run, {choice.point.label}, cannot be scheduled: this is its nearest.",
    )


def _without_speculation(
    choice: Choice, form: BySize, host: str | None, port: int | None, said: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """The baseline; a file of its own would have nothing to say."""
    note = "Speculation pays at no measured number of requests in flight: run without it."
    if form.config([]) is not None:
        raise UsageError(f"{note} {shlex.join(['tuner', 'export', '--as', 'command'])} gives that server.")
    without = replace(choice, point=compared_with(choice.report.blocks))
    what: Deployable = deployable(without, host, port)
    return command(replace(what, about=(note, *said, *what.about[-2:]))), (note, *said)

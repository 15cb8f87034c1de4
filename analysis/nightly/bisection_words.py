"""A search for the first bad version in words: the sentence, and a line for each version."""

from collections.abc import Sequence
from statistics import fmean

from analysis import words
from analysis.nightly.bisection import Sought, Stand
from analysis.nightly.contrast_words import bounds
from analysis.nightly.two_versions import State
from analysis.tables import Entry, Table


def sentence(found: Stand, names: Sequence[str], launches: int) -> str:
    """What is known, in one sentence; `names` are those of the versions, in order."""
    counted = words.count(launches, "launch", "launches")
    if found.first is None:
        return f"{_no_loss(found, names)}; {counted}."
    if found.state is not State.LOSS:
        return f"The first bad one is {_among(found, names)}, and which is not decided; {counted}."
    low, high = found.first
    bad = f"{_among(found, names)}{_how_bad(found, high, names)}"
    return f"The first bad one is {bad}; {_before(found, low, names)}{counted}."


def _no_loss(found: Stand, names: Sequence[str]) -> str:
    good, bad = names[0], names[-1]
    if found.state is State.UNMEASURED and found.failure is not None:
        why = f"{found.failure.reason}, {words.one_line(found.failure.evidence)}"
        return f"{bad} cannot be compared with {good}: {why}"
    effect = found.effect
    shown = f" ({bounds(effect)} over {words.count(effect.blocks, 'Block')})" if effect else ""
    if found.state is State.SOUND:
        return f"Nothing to find: {bad} has lost nothing that counts against {good}{shown}"
    return f"It is not decided whether {bad} is worse than {good}{shown}"


def _among(found: Stand, names: Sequence[str]) -> str:
    assert found.first is not None
    low, high = found.first
    return " or ".join(names[low : high + 1])


def _how_bad(found: Stand, version: int, names: Sequence[str]) -> str:
    if found.sought is Sought.FAULT:
        reason = found.failure.reason if found.failure is not None else ""
        return f" ({reason}, which {names[0]} does not show)"
    what = " in what speculation gains" if found.sought is Sought.SPEED_UP else ""
    return f" ({words.signed_percent(fmean(found.figures[version]))} against {names[0]}{what})"


def _before(found: Stand, low: int, names: Sequence[str]) -> str:
    """`B is as A; `: the last one known to be good, unless that is the good one itself."""
    return f"{names[low - 1]} is as {names[0]}; " if low > 1 else ""


def versions_table(found: Stand, names: Sequence[str]) -> Table:
    """A line for each version."""
    rows = [
        (
            Entry(name, code=True),
            Entry(_standing(found, v)),
            Entry(str(len(found.figures.get(v, ()))) if v else ""),
            Entry(_change(found, v)),
            Entry(words.percent(found.chances[v]) if v and v in found.chances else ""),
        )
        for v, name in enumerate(names)
    ]
    columns = ("Version", "Found", "Blocks", f"Against {names[0]}", "First bad")
    return Table("versions", "Versions", columns, tuple(rows), frozenset(columns[2:]))


def _standing(found: Stand, version: int) -> str:
    if version in found.skipped:
        return f"skipped: {words.one_line(found.skipped[version])}"
    if version == 0:
        return "good"
    if found.first is None:
        return "open"
    low, high = found.first
    if low <= version <= high and (found.state is not State.LOSS or low < high):
        return "open"
    inferred = "" if found.figures.get(version) else ", not measured"
    return f"{'bad' if version >= low else 'good'}{inferred}"


def _change(found: Stand, version: int) -> str:
    figures = found.figures.get(version)
    if not figures:
        return ""
    if found.sought is Sought.FAULT:
        return f"failed in {sum(f < 0 for f in figures)} of {len(figures)}"
    return words.signed_percent(fmean(figures))

"""What was different between two nights, apart from their figures."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from analysis.nightly.figures import shown
from analysis.nightly.segments import earlier
from analysis.words import moment
from results.nights import Night, NightVerdict

_ABSENT = "(not set)"


def comparable(history: Sequence[Night], night: Night) -> list[Night]:
    """Of the earlier ones those of the same segment that nothing was wrong with, oldest first."""
    alike = [n for n in earlier(history, night) if n.values and dict(n.segment) == dict(night.segment)]
    return [n for n in alike if n.verdict in (NightVerdict.PASS, NightVerdict.INSUFFICIENT)]


def last_good(history: Sequence[Night], night: Night) -> Night | None:
    """The last that passed, else the last that was measured."""
    measured = [n for n in earlier(history, night) if n.values]
    passed = [n for n in measured if n.verdict is NightVerdict.PASS]
    return (passed or measured)[-1] if measured else None


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Name, old and new value of all that is not the same, in the order of tonight's names."""
    names = [*now, *(name for name in before if name not in now)]
    found = [(name, before.get(name), now.get(name)) for name in names]
    return [(name, *_pair(old, new)) for name, old, new in found if old != new]


def _pair(old: str | None, new: str | None) -> tuple[str, str]:
    """Both as shown; in full where they would look the same."""
    sides = tuple(_ABSENT if side is None else shown(side) for side in (old, new))
    return (sides[0], sides[1]) if sides[0] != sides[1] else (repr(old), repr(new))


def settings(before: Night, now: Night) -> list[str]:
    """`winner n_max 16 -> 3`: what the servers say of themselves; nothing of a night in which none was up."""
    told = differences(before.effective, now.effective) if before.effective and now.effective else []
    return [f"{shown(name)} {old} -> {new}" for name, old, new in told]


def surroundings(before: Night, now: Night) -> list[str]:
    """`engine sglang 0.5.22 -> 0.5.23`: software, hardware and prompts; what stands in both parts once."""
    parts = ((before.versions, now.versions), (before.segment, now.segment))
    found = [f"{shown(name)} {old} -> {new}" for part in parts for name, old, new in differences(*part)]
    return list(dict.fromkeys(found))


def changes(before: Night, now: Night) -> list[str]:
    """All of it."""
    return [*surroundings(before, now), *(f"setting {said}" for said in settings(before, now))]


def segment_began(history: Sequence[Night], night: Night) -> str:
    """Since when nights are compared with this one, and what began it."""
    nights = [n for n in earlier(history, night) if n.segment] + [night]
    for before, after in reversed(list(pairwise(nights))):
        if dict(before.segment) != dict(after.segment):
            what = [f"{name} {old} -> {new}" for name, old, new in differences(before.segment, after.segment)]
            return f"Nights count since {moment(after.began_at)}, when this changed: {'; '.join(what)}."
    if len(nights) == 1:
        return "This is the first night of this pin on this machine."
    return f"The first night of this pin on this machine was {moment(nights[0].began_at)}."

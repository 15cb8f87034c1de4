"""The values of NCCL_ALGO and NCCL_PROTO, read as NCCL reads them. Pure functions.

From `parseList` of src/graph/tuning.cc (2.20.5, and the releases from 2.24 to 2.30) and of src/tuning/
cost_model.cc (2.31.2): since 2.24 a list may be given by collective, `ring;allreduce:tree,nvls`, a name that
NCCL does not know fails, and only the first list may do without a collective.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALGORITHMS = ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
COLLECTIVES = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


class Unreadable(ValueError):
    """NCCL fails when it reads this value; the message says at what."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a value says: elements by collective, for the collectives it covers."""

    enabled: Mapping[str, frozenset[str]]
    forced: frozenset[str]  # collectives for which at least one element was named


def parse(value: str, elements: Sequence[str]) -> Choice:
    """A value since NCCL 2.24; raises Unreadable. Case does not matter, white space does."""
    enabled: dict[str, frozenset[str]] = {}
    forced: set[str] = set()
    for position, entry in _tokens(value, ";"):
        words = [word for _, word in _tokens(entry, ":")]
        if not words or (len(words) == 1 and position > 0):
            raise Unreadable(f"every list but the first needs a collective in front: {value}")
        covered = COLLECTIVES if len(words) == 1 else (_known(words[0], COLLECTIVES, "collective"),)
        chosen, named = _list(words[0] if len(words) == 1 else words[1], elements)
        enabled.update(dict.fromkeys(covered, chosen))
        forced.update(covered if named else ())
    return Choice(enabled, frozenset(forced))


def parse_before_2_24(value: str, elements: Sequence[str]) -> frozenset[str]:
    """The elements that older releases enable, for all collectives: unknown names are passed over."""
    negated = value.startswith("^")
    words = {word.casefold() for _, word in _tokens(value.removeprefix("^"), ",")}
    named = frozenset(element for element in elements if element.casefold() in words)
    return frozenset(elements) - named if negated else named


def _list(text: str, elements: Sequence[str]) -> tuple[frozenset[str], bool]:
    """The enabled elements of one list, and whether it names any."""
    negated = text.startswith("^")
    words = [word for _, word in _tokens(text.removeprefix("^"), ",")]
    named = frozenset(_known(word, elements, "name") for word in words)
    return (frozenset(elements) - named if negated else named), bool(named)


def _known(word: str, names: Sequence[str], what: str) -> str:
    for name in names:
        if name.casefold() == word.casefold():
            return name
    raise Unreadable(f"{word!r} is no {what} that NCCL knows")


def _tokens(text: str, separator: str) -> list[tuple[int, str]]:
    """(position, token) as C's strtok finds them: empty ones are none."""
    found, position = [], 0
    for token in text.split(separator):
        if token:
            found.append((position, token))
        position += len(token) + 1
    return found

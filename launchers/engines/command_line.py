"""What all engines' command lines have in common, for turning a user's own command into a sweep file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from results.errors import UsageError
from results.records import KnobValue

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)  # tokens drafted one after the other
SET_BY_TUNER = "tuner sets it itself"
OF_SEVERAL_NODES = "a server over several machines is `launcher: ray` with `ray: {nodes: N}`"
DOUBLINGS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Searched:
    """One speculative method as the sweep file's space names it."""

    method: str
    knobs: Mapping[str, Sequence[KnobValue]] = field(default_factory=dict)  # none: the engine's own grid
    comment: str = ""
    offered: bool = False  # written as a comment only, for the user to open


@dataclass(frozen=True, slots=True)
class Reading:
    """What a server's arguments say."""

    model: str
    draft: str | None
    args: Mapping[str, KnobValue]  # fixed ones, by long flag name without dashes
    space: Sequence[Searched]
    notes: Sequence[str]  # what the user must know: dropped, renamed, unclear


@dataclass(frozen=True, slots=True)
class Grammar:
    """How one engine's arguments are split into flags and values."""

    model: str  # the flag that names the model
    aliases: Mapping[str, str]  # as written, without dashes -> long name
    switches: str  # pattern of flags that take no value


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments split into flags and positional words."""

    flags: Mapping[str, KnobValue]
    positional: Sequence[str]
    repeated: Sequence[str]  # flags given more than once; the last one counts


def split_arguments(words: Sequence[str], grammar: Grammar) -> Arguments:
    """Flags by their long names without dashes: a value, several values as one text, or True for a bare one.

    Once the model is named, every word up to the next flag belongs to the flag before it.
    """
    greedy = not _is_flag(words[0]) if words else False
    greedy = greedy or any(
        _is_flag(w) and long_name(w.partition("=")[0], grammar) == grammar.model for w in words
    )
    flags: dict[str, KnobValue] = {}
    positional: list[str] = []
    repeated: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _is_flag(word):
            positional.append(word)
            continue
        name, equals, attached = word.partition("=")
        name = long_name(name, grammar)
        following = 0
        while not equals and at + following < len(words) and not _is_flag(words[at + following]):
            following += 1
        taken = _taken(name, words[at : at + following], grammar, greedy=greedy)
        at += len(taken)
        if name in flags:
            repeated.append(name)
        flags[name] = scalar(attached) if equals else _joined(taken)
    return Arguments(flags, positional, repeated)


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not re.fullmatch(r"-\.?\d.*", word)


def long_name(written: str, grammar: Grammar) -> str:
    """`-tp`, `--tp_size` -> `tensor-parallel-size`. What follows a dot is a key of JSON, and stays."""
    head, dot, key = written.lstrip("-").partition(".")
    head = grammar.aliases.get(head) or head.replace("_", "-")
    return f"{grammar.aliases.get(head, head)}{dot}{key}"


def _taken(name: str, following: Sequence[str], grammar: Grammar, *, greedy: bool) -> Sequence[str]:
    """The words after a flag that belong to it."""
    if re.fullmatch(grammar.switches, name):
        return following[:1] if [word.lower() for word in following[:1]] in (["true"], ["false"]) else []
    return following if greedy else following[:1]


def _joined(words: Sequence[str]) -> KnobValue:
    return True if not words else scalar(" ".join(words))


def scalar(text: str) -> KnobValue:
    """A number if it is written the way a number prints, so that nothing is lost; else the text."""
    if re.fullmatch(r"-?[0-9]{1,18}", text) and str(int(text)) == text:
        return int(text)
    if re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{1,18}", text) and str(float(text)) == text:
        return float(text)
    return text


def around(value: float, rungs: Sequence[KnobValue], reach: int = 2) -> tuple[KnobValue, ...]:
    """The user's value between its nearest `rungs`, `reach` of them on either side."""
    numbers = [rung for rung in rungs if not isinstance(rung, bool | str)]
    below = [rung for rung in numbers if rung < value]
    above = [rung for rung in numbers if rung > value]
    return (*below[-reach:], value, *above[:reach])


def whole(flag: str, value: KnobValue) -> int:
    """A value that must be a whole number above 0. Raises UsageError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{flag} must be a whole number of 1 or more")
    return value


def number(flag: str, value: KnobValue) -> int | float:
    """A value that must be a number. Raises UsageError."""
    if isinstance(value, bool | str):
        raise UsageError(f"{flag} must be a number")
    return value


def text_of(flag: str, value: KnobValue) -> str:
    """The value of a flag that needs one. Raises UsageError."""
    if isinstance(value, bool) or value == "":
        raise UsageError(f"{flag} has no value")
    return str(value)


def without_own(
    flags: Mapping[str, KnobValue], own: Mapping[str, str]
) -> tuple[dict[str, KnobValue], list[str]]:
    """The flags that are not tuner's `own` (flag -> why it is left out, empty if it lives on), and notes."""
    kept = {name: value for name, value in flags.items() if name not in own}
    reasons = dict.fromkeys(own[name] for name in flags if own.get(name))
    notes = [
        f"{', '.join(f'--{name}' for name in flags if own.get(name) == reason)}: left out, {reason}"
        for reason in reasons
    ]
    return kept, notes


def set_values(knobs: Mapping[str, KnobValue]) -> str:
    """`num_steps 3, topk 4`: what the user's command had."""
    return ", ".join(f"{name} {value}" for name, value in knobs.items())


def model_of(named: KnobValue | None, positional: Sequence[str], flag: str) -> str:
    """The model by its flag, else by position. Raises UsageError."""
    if named is not None:
        if positional:
            raise UsageError(f"not understood: {len(positional)} words that belong to no flag, beside {flag}")
        return text_of(flag, named)
    if len(positional) != 1:
        wrong = "no model" if not positional else f"{len(positional)} words that belong to no flag"
        raise UsageError(f"the command names {wrong}: expected one model ({flag})")
    return positional[0]

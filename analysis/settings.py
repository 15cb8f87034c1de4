"""Effective settings compared: between the arms of a Block, and between two nights."""

from collections.abc import Collection, Mapping

from results.records import KnobValue

Change = tuple[KnobValue | None, KnobValue | None]


def changed(
    a: Mapping[str, KnobValue | None],
    b: Mapping[str, KnobValue | None],
    *,
    ignoring: Collection[str] = (),
) -> dict[str, Change]:
    """Settings that differ, by name, as (value in a, value in b); None where a side does not have it.

    Numbers compare by value (3 equals 3.0), but True is not 1. `ignoring` names the keys that may
    differ: between arms the speculative ones, between nights none. A night whose settings changed
    is CONFIG_DRIFT, never a regression.
    """
    names = sorted((a.keys() | b.keys()) - set(ignoring))
    return {name: (a.get(name), b.get(name)) for name in names if not _same(a.get(name), b.get(name))}


def _same(a: KnobValue | None, b: KnobValue | None) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def describe(changes: Mapping[str, Change]) -> str:
    """One line for people, e.g. `n_max 16 -> 3, p_min 0.75 -> 0.0`."""
    return ", ".join(f"{name} {before} -> {after}" for name, (before, after) in changes.items())

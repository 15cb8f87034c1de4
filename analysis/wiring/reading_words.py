"""A Reading in words."""

from dataclasses import fields

from results.wiring import Reading, boundary_names


def reading_words(reading: Reading, layers: int, beside: Reading | None = None) -> str:
    """Its boundaries, and in what else it differs from another (from EAGLE-3 as published)."""
    usual = beside or Reading(reading.boundaries)
    names = [f.name for f in fields(Reading) if f.name != "boundaries"]
    differing = [n for n in names if getattr(reading, n) != getattr(usual, n)]
    return ", ".join(
        [boundary_names(reading.boundaries, layers), *(_field_words(reading, n) for n in differing)]
    )


def _field_words(reading: Reading, name: str) -> str:
    value, words = getattr(reading, name), name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    if value is None:
        return f"no {words}"
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"

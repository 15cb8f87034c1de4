"""What is wrong with a sweep file, in plain words: the key, what is expected there, what was given."""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from results.secrets import HIDDEN, hides

Place = tuple[str | int, ...]
Schema = Mapping[str, Any]  # JSON Schema, or a part of it

ANY_VALUE = {"integer", "number", "string", "boolean"}
LONGEST = 60  # characters of a value that are repeated


def nearest(word: str, known: Sequence[str]) -> str:
    """The hint for a word that is not known: ` (did you mean 'x'?)`, or what is known."""
    return _close(word, known) or f" (known: {', '.join(known)})"


def _close(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def mistakes(error: ValidationError, content: object, schema: Schema) -> list[str]:
    """One line for every place of `content` that does not fit `schema`."""
    found: dict[Place, str] = {}
    for problem in error.errors():
        place, given = _place(problem, content)
        # members of a union each report a problem of their own: one line per place is enough
        found.setdefault(place, _line(problem, place, given, schema))
    inner = [place for place in found if not any(_lies_in(other, place) for other in found)]
    return [_placed(_dotted(place), found[place]) for place in inner]


def _placed(place: str, line: str) -> str:
    """A line behind its place, unless the line itself says it."""
    return line if line.startswith(place) else f"{place}: {line}"


def _dotted(place: Place) -> str:
    return ".".join(str(part).lower() if isinstance(part, bool) else str(part) for part in place)


def _lies_in(place: Place, outer: Place) -> bool:
    return len(place) > len(outer) and place[: len(outer)] == outer


def _place(problem: ErrorDetails, content: object) -> tuple[Place, object]:
    """(keys that lead there, what stands there), without the members of a union that pydantic names too."""
    place: list[str | int] = []
    here: Any = content
    for part in problem["loc"]:
        if isinstance(here, dict) and part in here:
            place.append(next(key for key in here if key == part))  # as it is written: 1 equals true
        elif isinstance(here, list) and isinstance(part, int):
            place.append(part)
        else:
            continue
        here = here[part]
    if problem["type"] in ("missing", "invalid_key") and problem["loc"][-1:] != tuple(place[-1:]):
        place.append(problem["loc"][-1])  # it is not in the content, or only its name is
    return tuple(place), here


def _line(problem: ErrorDetails, place: Place, given: object, schema: Schema) -> str:
    kind, expected = problem["type"], wanted(_part(schema, place), schema)
    if kind == "value_error":
        return problem["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(place[-1]), _keys(_part(schema, place[:-1]), schema))}"
    if kind == "invalid_key" or problem["loc"][-1] == "[key]":
        is_text = kind in ("invalid_key", "string_type")
        return f"a key here is {'text: put it in quotes' if is_text else 'a whole number'}"
    if kind == "missing":
        return f"is missing: expected {expected}"
    hint = _close(given, _choices(_part(schema, place), schema)) if isinstance(given, str) else ""
    if expected == "text" and not isinstance(given, dict | list | None):
        hint = ": in quotes it is text"
    return f"expected {expected}, not {shown(place, given)}{hint}"


def shown(place: Place, value: object) -> str:
    """A value as it is repeated to its user: short, and never a secret."""
    match value:
        case None:
            return "nothing (null)"
        case dict():
            return "a section with keys of its own"
        case list():
            return "a list"
        case int() | float() if math.inf > abs(value) >= 1e18:
            return "a number of more than 18 digits"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    name = next((part for part in reversed(place) if isinstance(part, str)), "")
    if hides(name, str(value)):
        return HIDDEN
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


# What the schema says of a place


def _part(schema: Schema, place: Place) -> Schema:
    """The part of the schema that is for a place; {} where it has none."""
    part: Schema = schema
    for key in place:
        children = (_child(option, key) for option in _options(part, schema))
        part = next((child for child in children if child is not None), {})
    return part


def _child(option: Schema, key: str | int) -> Schema | None:
    if isinstance(key, int) and "items" in option:
        return dict(option["items"])
    found = option.get("properties", {}).get(key, _named(option))
    return found if isinstance(found, dict) else None


def _named(option: Schema) -> object:
    """What stands under a name of the user's own, which may have to fit a pattern."""
    return next(iter(option.get("patternProperties", {}).values()), option.get("additionalProperties"))


def _options(part: Schema, schema: Schema) -> Iterator[Schema]:
    """The forms that a value may have."""
    if "$ref" in part:
        yield from _options(schema["$defs"][part["$ref"].rpartition("/")[2]], schema)
    elif "anyOf" in part:
        for option in part["anyOf"]:
            yield from _options(option, schema)
    else:
        yield part


def _keys(part: Schema, schema: Schema) -> list[str]:
    return [key for option in _options(part, schema) for key in option.get("properties", ())]


def _choices(part: Schema, schema: Schema) -> list[str]:
    return [word for option in _options(part, schema) for word in option.get("enum", ())]


def wanted(part: Schema, schema: Schema, *, inner: bool = True) -> str:
    """What a place may hold, e.g. `a whole number of 1 or more, or 'auto'`; with what is inside of it."""
    options = [*_options(part, schema)]
    kinds = {option.get("type") for option in options}
    if is_any := kinds >= ANY_VALUE:
        options = [option for option in options if option.get("type") not in ANY_VALUE]
    said = [_words(option) + (_inside(option, schema) if inner else "") for option in options]
    return ", or ".join(dict.fromkeys(filter(None, ["a value" if is_any else "", *said])))


def _inside(option: Schema, schema: Schema) -> str:
    """What the entries of a list or the values of a section may be."""
    part = option.get("items", _named(option))
    return f", each {wanted(part, schema, inner=False)}" if isinstance(part, dict) else ""


def _words(option: Schema) -> str:
    if "enum" in option or "const" in option:
        return " or ".join(map(repr, option.get("enum", [option.get("const")])))
    match option.get("type"):
        case "integer":
            return f"a whole number{_bounds(option)}"
        case "number":
            return f"a number{_bounds(option)}"
        case "string":
            return f"an amount like {option['examples'][0]!r}" if "examples" in option else "text"
        case "boolean":
            return "true or false"
        case "array":
            return "a list of at least one entry" if option.get("minItems") else "a list"
        case "object" if "properties" in option:
            return f"a section with the keys {', '.join(option['properties'])}"
        case "object":
            return "a section of names with values"
    return ""


def _bounds(option: Schema) -> str:
    """` from 1 to 1,000`, ` of 1 or more`, ` above 0 and below 1`."""
    if "minimum" in option and "maximum" in option:
        return f" from {option['minimum']:,} to {option['maximum']:,}"
    words = {
        "minimum": "of {:,} or more",
        "exclusiveMinimum": "above {:,}",
        "maximum": "up to {:,}",
        "exclusiveMaximum": "below {:,}",
    }
    said = " and ".join(text.format(option[key]) for key, text in words.items() if key in option)
    return f" {said}" if said else ""

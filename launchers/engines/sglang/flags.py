"""SGLang's command line: flags as its own parser declares them, and values written for them."""

import difflib
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from results.errors import UsageError
from results.records import KnobValue

YES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of the parser."""

    names: tuple[str, ...]
    dest: str  # the field of ServerArgs it sets
    kind: str  # "switch", "on_off" (--x and --no-x) or "value"
    several: bool = False  # takes a list of values
    choices: tuple[str, ...] = ()
    replaced_by: str | None = None  # deprecated: what to write instead
    default: object = None

    @property
    def name(self) -> str:
        """The name to write, never an alias."""
        return self.names[0]

    def words(self, value: KnobValue) -> list[str]:
        """This flag with its value as command-line words. Raises UsageError if it cannot take it."""
        if self.kind == "value":
            return [self.name, *self._values(value)]
        on = YES.get(str(value).lower())
        if on is None:
            raise UsageError(f"{self.name} takes no value: write true or false, not {value!r}")
        if self.kind == "on_off":
            return [self.name if on else f"--no-{self.name.removeprefix('--')}"]
        return [self.name] if on else []

    def _values(self, value: KnobValue) -> list[str]:
        if isinstance(value, bool):
            if not self.choices and not self.several:
                raise UsageError(f"{self.name} needs a value, not {str(value).lower()}")
            value = str(value).lower()
        values = shlex.split(str(value)) if self.several else [str(value)]
        for word in values:
            if self.choices and word not in self.choices:
                near = difflib.get_close_matches(word, self.choices, 1)
                hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(self.choices)}"
                raise UsageError(f"{self.name} cannot be {word!r}: {hint}")
        return values


@dataclass(frozen=True)
class Flags:
    """Every option of one version."""

    by_name: Mapping[str, Flag]

    def find(self, name: str) -> Flag:
        """The flag of this name, alias or unique beginning, with or without dashes.

        Raises UsageError with the nearest names if there is none, or all of them if several begin so.
        """
        option = "--" + name.lstrip("-").replace("_", "-")
        if option in self.by_name:
            return self.by_name[option]
        begun = {flag.name: flag for known, flag in self.by_name.items() if known.startswith(option)}
        if len(begun) == 1:
            return next(iter(begun.values()))
        if begun:
            raise UsageError(f"{option} is ambiguous: it could be {' or '.join(sorted(begun))}")
        near = difflib.get_close_matches(option, self.by_name, 3)
        raise UsageError(
            f"SGLang has no flag {option}" + (f": did you mean {' or '.join(near)}?" if near else "")
        )

    def of_field(self, field: str) -> Flag | None:
        """The flag that sets this field of ServerArgs, if the command line can."""
        found = [f for f in self.by_name.values() if f.dest == field and f.replaced_by is None]
        return found[0] if found else None


def flags_from_rows(rows: Iterable[Mapping[str, Any]]) -> Flags:
    """Flags as the probe lists them."""
    flags = [
        Flag(
            _names(row),
            row["dest"],
            row["kind"],
            row["nargs"] in ("*", "+") or (isinstance(row["nargs"], int) and row["nargs"] > 1),
            tuple(row["choices"] or ()),
            row["replaced_by"],
            row["default"],
        )
        for row in rows
    ]
    return Flags({name: flag for flag in flags for name in flag.names})


def _names(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The name that spells the field first; of --x and --no-x only --x."""
    spelled = "--" + row["dest"].replace("_", "-")
    off = "--no-" if row["kind"] == "on_off" else "\0"
    names = [name for name in row["names"] if name.startswith("--") and not name.startswith(off)]
    return tuple(sorted(names, key=lambda name: name != spelled))

"""Shifts of the nightly gate that somebody accepted: a file beside the pin, a line for each."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError
from yaml.reader import ReaderError

from results.errors import UsageError
from results.lines import append_text
from results.nights import Accepted, Night, NightKind, NightVerdict

ALL = "all"

_MESSAGES = {  # of pydantic's kinds of problem, where its own words would tell less
    "model_type": "expected {since: TIME, series: NAME, machine: NAME, reason: TEXT}",
    "string_pattern_mismatch": "says nothing",
    "extra_forbidden": "unknown key (known: since, series, machine, reason)",
    "string_type": "expected text",
}

_Text = Annotated[str, StringConstraints(min_length=1)]


def _in_utc(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)


_Since = Annotated[datetime, AfterValidator(_in_utc)]  # UTC unless it names a zone


class _Line(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(extra="forbid")
    since: _Since
    series: _Text
    machine: _Text = ALL
    reason: Annotated[str, StringConstraints(pattern=r"\S")]


def accepted_file(pin_file: Path) -> Path:
    """Of `pinned.yaml` it is `pinned.accepted.yaml` beside it."""
    return pin_file.with_name(f"{pin_file.stem}.accepted{pin_file.suffix}")


def read_accepted(pin_file: Path) -> list[Accepted]:
    """What was accepted for this pin; none without a file. A line that cannot be used is a UsageError."""
    path = accepted_file(pin_file)
    return _parsed(_text(path), path)


def accept(
    pin_file: Path,
    history: Sequence[Night],
    reason: str,
    series: Sequence[str] = (),
    since: str | None = None,
) -> list[Accepted]:
    """Append one line for each shift that is accepted, and return those that were not there before.

    `history`: nights of this pin, sorted. Without `series`, all that are in alarm in their machine's
    latest night. Without `since` (ISO 8601, UTC unless it names a zone), each from the first night of
    its unbroken run of alarms on that machine. Raises UsageError if that leaves nothing to accept.
    """
    if not reason.strip():
        raise UsageError("an accepted shift needs its reason, for whoever reads it later: --accept REASON")
    path = accepted_file(pin_file)
    text = _text(path)
    there = {(old.since_at, old.series, old.machine) for old in _parsed(text, path)}
    shifts = [
        Accepted(at, name, reason, machine)
        for at, name, machine in _shifts(history, series, None if since is None else _time(since))
        if (at, name, machine) not in there
    ]
    if not shifts:
        raise UsageError(f"{path} has all of this already: nothing to accept")
    _append(path, text, shifts)
    return shifts


def _shifts(
    history: Sequence[Night], asked: Sequence[str], since_at: float | None
) -> list[tuple[float, str, str]]:
    """(since, series, machine) of each; with `since_at` a series need not be in alarm, and is then of all."""
    alarms = [alarm for alarm in _alarms(history) if not asked or alarm[1] in asked]
    quiet = [name for name in asked if name not in {alarmed for _, alarmed, _ in alarms}]
    if since_at is None:
        if quiet or not alarms:
            raise UsageError(
                f"{_listed(quiet)} in alarm in the latest night: say with which night"
                " the shift began, e.g. --since 2026-11-30T02:00:00Z"
            )
        return alarms
    if not asked and not alarms:
        quiet = [ALL]
    return [(since_at, name, machine) for _, name, machine in alarms] + [
        (since_at, name, ALL) for name in quiet
    ]


def _listed(quiet: Sequence[str]) -> str:
    if not quiet:
        return "nothing is"
    return f"{', '.join(quiet)} {'is' if len(quiet) == 1 else 'are'} not"


def _alarms(history: Sequence[Night]) -> list[tuple[float, str, str]]:
    """(beginning, series, machine) of every run of alarms that lasts to the machine's latest night."""
    judged = [night for night in reversed(history) if _was_judged(night)]
    latest = [[n for n in judged if n.machine == name] for name in sorted({n.machine for n in judged})]
    # The file has whole seconds; no night of a machine begins in the same one as another.
    return [
        (float(math.floor(_first_of_run(name, nights).began_at)), name, nights[0].machine)
        for nights in latest
        for name in nights[0].alarms
    ]


def _was_judged(night: Night) -> bool:
    """Others, without figures or of the baseline alone, neither end a run of alarms nor go on with it."""
    return night.kind is NightKind.CHECK and night.verdict is not NightVerdict.INVALID


def _first_of_run(name: str, latest: Sequence[Night]) -> Night:
    """The oldest of the unbroken alarms of a series; `latest` begins with the latest night, which has one."""
    *_, first = takewhile(lambda night: name in night.alarms, latest)
    return first


def _time(text: str) -> float:
    try:
        return TypeAdapter(_Since).validate_python(text).timestamp()
    except ValidationError:
        raise UsageError(
            f"--since {text} is no time: write it as 2026-11-30, or 2026-11-30T02:00:00Z"
        ) from None


def _append(path: Path, text: str, shifts: Sequence[Accepted]) -> None:
    """Nothing is written unless it reads back."""
    lines = "".join(f"{_line(shift)}\n" for shift in shifts)
    if not _reads_back(text, lines, shifts, path):
        raise UsageError(f"{path} is laid out so that no line can be appended: add by hand\n{lines.rstrip()}")
    try:
        append_text(path, lines)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def _reads_back(text: str, lines: str, shifts: Sequence[Accepted], path: Path) -> bool:
    ended = text if text.endswith("\n") or not text else f"{text}\n"
    try:
        return _parsed(ended + lines, path) == [*_parsed(ended, path), *shifts]
    except UsageError:
        return False


def _line(shift: Accepted) -> str:
    since = datetime.fromtimestamp(shift.since_at, UTC).isoformat().replace("+00:00", "Z")
    names = f"series: {_scalar(shift.series)}, machine: {_scalar(shift.machine)}"
    return f"- {{since: {since}, {names}, reason: {_quoted(shift.reason)}}}"


def _scalar(text: str) -> str:
    """Without quotes where it reads back as the same text."""
    plain = re.fullmatch(r"[a-z_][\w-]*", text, re.ASCII | re.IGNORECASE)
    return text if plain and yaml.safe_load(text) == text else _quoted(text)


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).strip()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _parsed(text: str, path: Path) -> list[Accepted]:
    try:
        loader = yaml.SafeLoader(text)
        whole = loader.get_single_node()
        if whole is None:
            return []
        if not isinstance(whole, yaml.SequenceNode):
            raise UsageError(
                f"{path}, line {whole.start_mark.line + 1}: expected a list, one `- {{...}}` a shift"
            )
        return [_accepted(loader, node, path) for node in whole.value]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        raise UsageError(f"{path}, line {line + 1} is not valid YAML: {error.problem}") from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position)
        raise UsageError(f"{path}, line {line + 1} has a character that no text file has") from error


def _accepted(loader: yaml.SafeLoader, node: yaml.Node, path: Path) -> Accepted:
    place = f"{path}, line {node.start_mark.line + 1}"
    try:
        line = _Line.model_validate(loader.construct_document(node))
    except (ValidationError, ValueError) as error:
        raise UsageError(f"{place}: {_problem(error)}") from error
    return Accepted(line.since.timestamp(), line.series, line.reason, line.machine)


def _problem(error: Exception) -> str:
    """What is wrong first of all, with the key it is about."""
    if not isinstance(error, ValidationError):
        return str(error)  # e.g. of a date that the calendar does not have
    first: Any = error.errors()[0]
    message = _MESSAGES.get(first["type"], first["msg"])
    return ": ".join([*map(str, first["loc"]), message])

"""Files of one record a line, and of whole texts: appended durably, read by kind, errors explained.

A kill at any instant, a full disk and several writers at once lose nothing that was written before.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from results.errors import UsageError
from results.nights import Night
from results.profile import Profile
from results.records import SCHEMA, Block, Trial

T = TypeVar("T", Trial, Block, Profile, Night)


class _Versioned(msgspec.Struct):
    """What every record has, whatever its kind."""

    schema: int = 0


def append_line(path: Path, line: bytes, option: str = "--run") -> None:
    """Append one line and make it durable. If the disk is full, nothing of it stays.

    Several writers wait for each other. A writer also cuts off a torn line that a kill left at the end;
    readers only pass it over. `option` is what the user names the folder with.
    """
    with explained(path.parent, option), _appending(path) as file:
        end = _end_of_whole_lines(file)
        file.truncate(end)
        _write(file, end, line + b"\n")


def append_text(path: Path, text: str) -> None:
    """Append lines to a file that people edit as well: all that is there stays. Raises OSError."""
    with _appending(path) as file:
        torn = _end_of_whole_lines(file) != file.seek(0, os.SEEK_END)
        _write(file, file.tell(), b"\n" * torn + text.encode())


@contextmanager
def _appending(path: Path) -> Iterator[BinaryIO]:
    """The lock is on the file itself, so that a folder shared with git holds nothing but records."""
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _write(file: BinaryIO, end: int, content: bytes) -> None:
    try:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), end)
        raise


def _end_of_whole_lines(file: BinaryIO) -> int:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    return file.read().rfind(b"\n") + 1


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """All whole lines; none of a file that is not there.

    A torn last line (a kill while writing) is passed over; it was never promised.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    whole = content[: content.rfind(b"\n") + 1].splitlines()
    return [decoded(line, kind, f"{path}, line {number}") for number, line in enumerate(whole, 1)]


def decoded(line: bytes, kind: type[T], place: str) -> T:
    """One record. A damaged one, and one of a newer schema, is a UsageError that names its place."""
    try:
        record = msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        _refuse_newer(_schema(line), place)
        raise UsageError(
            f"{place} is damaged ({error}): restore it, or remove it to give that record up"
        ) from error
    _refuse_newer(record.schema, place)
    return record


def _refuse_newer(schema: int, place: str) -> None:
    if schema > SCHEMA:
        raise UsageError(f"{place} was written by a newer tuner (schema {schema}): update this one")


def _schema(line: bytes) -> int:
    """Of a record that cannot be read otherwise; 0 = not even that can be."""
    try:
        return msgspec.json.decode(line, type=_Versioned).schema
    except msgspec.DecodeError:
        return 0


def replace(path: Path, content: bytes) -> None:
    """Write a whole file; a kill leaves the old or the new one, never half."""
    draft = path.with_name(path.name + ".part")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def explained(folder: Path, option: str = "--run") -> Iterator[None]:
    """Any `OSError` becomes a UsageError that says what to do. `option`: what names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UsageError(
                f"no space left for {folder}: what was recorded is kept;"
                " make room and run the same command again"
            ) from error
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            raise UsageError(f"no permission to use {folder}: name another folder with {option}") from error
        if isinstance(error, NotADirectoryError | FileExistsError):
            raise UsageError(
                f"{folder}, or a part of that path, is a file: name another folder with {option}"
            ) from error
        raise UsageError(f"cannot use the folder {folder}: {error.strerror or error}") from error

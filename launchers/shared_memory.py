"""Files in shared memory that engines, torch and NCCL make, and who has them open. Nothing is touched."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from results.machine_state import SharedSegment

SHARED = Path("/dev/shm")
PROC = Path("/proc")
FIRST = "1"  # closed to everybody on some machines; it is no engine
PREFIXES = ("psm_", "sem.", "torch_", "nccl-")  # Python's shared memory and semaphores, torch's, NCCL's


def shared_segments(folder: Path = SHARED, proc: Path = PROC) -> tuple[SharedSegment, ...]:
    """Those of the known kinds by path; none where the system has no such folder."""
    found = {path: stat for path in _candidates(folder) if (stat := _stat(path)) is not None}
    if not found:
        return ()
    users, unseen = _users(proc, folder)
    return tuple(
        SharedSegment(
            str(path),
            stat.st_size,
            stat.st_uid == os.geteuid(),
            stat.st_mtime,
            tuple(sorted(users.get(str(path), ()))),
            stat.st_uid not in unseen,
        )
        for path, stat in sorted(found.items())
    )


def _candidates(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (path for path in folder.iterdir() if path.name.startswith(PREFIXES))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _users(proc: Path, folder: Path) -> tuple[Mapping[str, set[int]], set[int]]:
    """Pids by path, and the users of whom a process could not be looked into."""
    users: dict[str, set[int]] = {}
    unseen: set[int] = set()
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        try:
            for path in {*_mapped(process, folder), *_open(process, folder)}:
                users.setdefault(path, set()).add(int(process.name))
        except PermissionError:
            if process.name != FIRST and (stat := _stat(process)) is not None:
                unseen.add(stat.st_uid)
        except OSError:  # it has ended meanwhile
            continue
    return users, unseen


def _mapped(process: Path, folder: Path) -> Iterator[str]:
    """The path is the sixth field of a line of maps; it may hold spaces."""
    for line in (process / "maps").read_text("utf-8", "replace").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith(f"{folder}/"):
            yield fields[5]


def _open(process: Path, folder: Path) -> Iterator[str]:
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            target = str(descriptor.readlink())
            if target.startswith(f"{folder}/"):
                yield target

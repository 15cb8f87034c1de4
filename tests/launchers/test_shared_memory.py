"""Left-over shared memory: what is of an engine's kind, and who has it open."""

import os
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from launchers.shared_memory import SHARED, shared_segments

MAPS = "7f0000000000-7f0000100000 rw-s 00000000 00:1a 42                         {}\n"


def process(proc: Path, pid: int, *, mapped: str = "", opened: Path | None = None) -> Path:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "maps").write_text("7ffc0000-7ffd0000 rw-p 00000000 00:00 0  [stack]\n" + mapped)
    if opened is not None:
        (folder / "fd" / "3").symlink_to(opened)
    return folder


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    for name in ("psm_1a2b", "nccl-XyZ", "torch_77_1", "sem.mp-abc", "pulse-shm-1"):
        (folder / name).write_bytes(b"x" * 100)
    return folder


def test_kinds_sizes_and_users(shared: Path, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    process(proc, 10, mapped=MAPS.format(shared / "psm_1a2b"))
    process(proc, 11, mapped=MAPS.format(shared / "psm_1a2b"), opened=shared / "nccl-XyZ")
    (proc / "uptime").write_text("1")
    found = {Path(s.path).name: s for s in shared_segments(shared, proc)}
    assert {name: s.users for name, s in found.items()} == {
        "psm_1a2b": (10, 11),
        "nccl-XyZ": (11,),
        "torch_77_1": (),
        "sem.mp-abc": (),
    }
    assert all(s.memory_bytes == 100 and s.is_own and s.is_all_seen for s in found.values())


def test_a_process_that_cannot_be_looked_into_leaves_it_open(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions do not bind root, under whom the tests may run: the refusal is scripted."""
    proc = tmp_path / "proc"
    for pid in (1, 10):
        process(proc, pid)
    read_text, closed = Path.read_text, {proc / "1" / "maps"}

    def refuse(path: Path, *args: str) -> str:
        if path in closed:
            raise PermissionError(path)
        return read_text(path, *args)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert all(s.is_all_seen for s in shared_segments(shared, proc)), "the first process is no engine"
    closed.add(proc / "10" / "maps")
    assert not any(s.is_all_seen for s in shared_segments(shared, proc))


def test_a_machine_without_shared_memory(tmp_path: Path) -> None:
    assert shared_segments(tmp_path / "none", tmp_path / "proc") == ()


@pytest.mark.skipif(not SHARED.is_dir(), reason="no /dev/shm on this system")
def test_a_real_segment_and_its_user() -> None:
    memory = SharedMemory(create=True, size=4096)
    try:
        (found,) = [s for s in shared_segments() if s.path == f"/dev/shm/{memory.name}"]
        assert found.memory_bytes == 4096
        assert os.getpid() in found.users
        assert found.is_own
    finally:
        memory.close()
        memory.unlink()

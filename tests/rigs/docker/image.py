"""The image of the container tests, made from Debian's packages: no registry is needed. Root only.

The root file system is built once into the rigs' folder (about a minute); importing it takes seconds.
"""

import os
import shutil
import subprocess
from pathlib import Path

NAME = "tuner-rig:bookworm"
ARCHIVE = "docker-bookworm.tar"  # its root file system
PACKAGES = "python3,libgomp1,ca-certificates"
# What a server is given by its image, for the tests of what it is not to have.
FROM_IMAGE = {"FROM_IMAGE": "set-by-the-image", "IMAGE_API_KEY": "planted-in-the-image-4711"}


def is_built() -> bool:
    """Whether a daemon answers here and has the image."""
    return _docker("image", "inspect", NAME)


def can_be_built() -> bool:
    return os.geteuid() == 0 and shutil.which("debootstrap") is not None and _docker("info")


def build(cache: Path) -> None:
    """Import the image, its root file system taken from `cache` or made there."""
    archive = cache / ARCHIVE
    if not archive.exists():
        _make_root(archive)
    if is_built():
        return
    changes = [word for k, v in FROM_IMAGE.items() for word in ("--change", f"ENV {k}={v}")]
    subprocess.run(["docker", "import", *changes, str(archive), NAME], check=True, stdout=subprocess.DEVNULL)


def _make_root(archive: Path) -> None:
    root, unfinished = archive.with_suffix(".root"), archive.with_suffix(".part")
    shutil.rmtree(root, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["tar", "-C", str(root), "-cf", str(unfinished), "."], check=True)
    unfinished.rename(archive)
    shutil.rmtree(root)


def _docker(*words: str) -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", *words], capture_output=True, check=False).returncode == 0

"""What a node sends back of a Block: the record and the files that belong to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from results.lines import explained, replace
from results.records import Block
from results.store import RunFolder

FOLDERS = ("requests", "telemetry", "logs")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One Block, whole."""

    block: Block
    files: Mapping[str, bytes]  # by path below the run folder


def packed(block: Block, scratch: RunFolder) -> Delivery:
    """Take what a Block left in the scratch folder of a node out of it."""
    files = {}
    for path in (p for name in FOLDERS for p in sorted((scratch.path / name).glob("*"))):
        files[f"{path.parent.name}/{path.name}"] = path.read_bytes()
        path.unlink()
    return Delivery(block, files)


def unpacked(delivery: Delivery, folder: RunFolder) -> Block:
    """Put the files into the run folder; returns the record, which is not recorded yet."""
    for name, content in delivery.files.items():
        with explained(folder.path):
            path = folder.path / Path(name)
            path.parent.mkdir(exist_ok=True)
            replace(path, content)
    return delivery.block

"""How to do it again: exact commands, and with which versions it was done."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from analysis import words
from analysis.report_input import ReportInput
from analysis.tables import Entry, Table, flat

# Of the fingerprint: what must be the same for the same figures.
_VERSIONS = {
    "tuner": "host.tuner",
    "Engine": "host.engine",
    "GPU driver": "host.gpu_driver",
    "CUDA driver": "host.cuda_driver",
    "CPU": "host.cpu",
    "System": "host.system",
    "Kernel": "host.kernel",
    "Prompts, search": "prompts.search",
    "Prompts, confirmation": "prompts.confirm",
    "Load client": "load",
}
NOTE = (
    "Secrets are not written down, so variables that carry them are to be set again. Figures agree within "
    "their intervals on the same machine with the same versions; elsewhere they are new figures, not a "
    "contradiction."
)


@dataclass(frozen=True, slots=True)
class Step:
    what: str
    command: str


def steps(report: ReportInput) -> list[Step]:
    """Commands that measure this again, and that draw this page again."""
    if not report.folder:
        return []
    folder, again = shlex.quote(report.folder), shlex.quote(f"{report.folder.rstrip('/')}-again")
    if report.comparison is not None:
        given = " ".join(shlex.quote(side.given) for side in report.comparison.sides)
        measure = Step("Compare again, into a new folder", f"tuner compare {given} --run {again}")
    else:
        file = shlex.quote(f"{report.folder.rstrip('/')}/sweep.yaml")
        measure = Step("Sweep again, into a new folder", f"tuner sweep {file} --run {again}")
    draw = [Step("Draw this page again from the records", f"tuner report {folder}")]
    return [measure, *draw, Step("Set both runs side by side", f"tuner report {folder} {again}")]


def versions(report: ReportInput) -> Table:
    known = {path: value for path, value in flat(report.environment) if value not in ("", words.UNKNOWN)}
    told = {name: known[path] for name, path in _VERSIONS.items() if path in known}
    served = {f"Served: {p.removeprefix('served.')}": v for p, v in known.items() if p.startswith("served.")}
    gpus = [value for path, value in known.items() if re.fullmatch(r"(host\.)?gpus\.\d+\.name", path)]
    cards = {"GPUs": ", ".join(f"{n} x {name}" for name, n in Counter(gpus).items())} if gpus else {}
    images = {f"Image {name}": str(digest) for name, digest in _images(report).items()}
    rows = [
        (Entry(name), Entry(value, code=True))
        for name, value in {**told, **cards, **served, **images}.items()
    ]
    return Table("versions", "Measured with", ("What", "Value"), tuple(rows))


def _images(report: ReportInput) -> Mapping[str, object]:
    images = report.environment.get("images")
    return images if isinstance(images, Mapping) else {}

"""What the tracers of the engines share: a server that is slow to write, and files of several ranks."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from launchers.engines.http import ask
from results.errors import MeasurementInvalid
from results.reasons import Reason

WRITING_TIMEOUT_S = 600.0  # for traces of hundreds of megabytes, of eight ranks


def told(method: str, url: str, body: object = None) -> None:
    """Tell a profiler to begin or to end. Raises MeasurementInvalid with what the server answers."""
    answer = ask(method, url, json=body, timeout_s=WRITING_TIMEOUT_S)
    if not answer.ok:
        shown = " ".join(answer.text.split())[:200]
        raise MeasurementInvalid(Reason.TRACE_UNUSABLE, f"{url}: HTTP {answer.status_code} {shown!r}")


def by_rank(files: Iterable[Path]) -> Sequence[Path]:
    """In the order of the numbers in their names: TP-10 comes after TP-9."""
    return sorted(files, key=lambda f: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", f.name)])

"""The embedded engine for real: every method starts, is what was asked for, and serves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launchers.embedded.model import find_model
from launchers.engines.engine import Served
from launchers.engines.llamacpp import LlamaCpp
from launchers.launcher import Launch
from launchers.port import free_port
from launchers.process import ProcessEndpoint, ProcessLauncher
from results.records import BASELINE, Point

pytestmark = pytest.mark.rig
pytest.importorskip("xllamacpp")

ENGINE = LlamaCpp()
REPEATING = "Repeat: a b c d e f g h a b c d e f g h a b c d e f g h a b c"
PROMPT = {"messages": [{"role": "user", "content": REPEATING}], "max_tokens": 40, "temperature": 0}


def served(draft: Path | None = None, **args: int) -> Served:
    return Served(find_model("smollm2-135m"), draft, {"ctx-size": 2048, "threads": 2, **args}, {})


@contextmanager
def running(run_dir: Path, point: Point, what: Served) -> Iterator[ProcessEndpoint]:
    port = free_port()
    launch = Launch(
        ENGINE.command(point, what, port), port, run_dir / "server.log", ENGINE.environment(point, what)
    )
    with ProcessLauncher(run_dir).start(launch) as endpoint:
        wait_until_ready(endpoint)
        yield endpoint


def wait_until_ready(endpoint: ProcessEndpoint) -> None:
    deadline = time.monotonic() + 60
    while not ENGINE.is_ready(endpoint):
        assert endpoint.exit_code() is None, endpoint.log_path.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)


SPECULATIVE = [Point(m, ENGINE.canonical(Point(m)).knobs) for m in ("ngram-map-k", "ngram-map-k4v")] + [
    Point("ngram-simple", {"size_n": 4, "size_m": 8}),
    Point("ngram-mod", {"n_match": 4, "n_min": 0, "n_max": 8}),
]


@pytest.mark.parametrize("point", [BASELINE, *SPECULATIVE], ids=lambda p: p.method)
def test_starts_as_asked(tmp_path: Path, point: Point) -> None:
    what = served(parallel=2)
    with running(tmp_path, point, what) as endpoint:
        back = ENGINE.read_back(endpoint, point, what)
        assert back.speculating is not point.is_baseline
        assert dict(point.knobs).items() <= dict(back.effective).items()
        assert ENGINE.context_tokens(endpoint) == 1024

"""Two real servers that this test started itself, compared by their URLs; and one that dies."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from analysis.report import html
from launchers.embedded.model import find_model
from launchers.engines.engine import Served
from launchers.engines.llamacpp.engine import LlamaCpp
from launchers.launcher import Endpoint, Launch
from launchers.port import free_port
from launchers.process import ProcessLauncher
from results.reasons import Reason
from results.records import BASELINE, AcceptanceState, Point
from results.store import RunFolder
from sweeps.compare import run_comparison
from sweeps.outcome import read_run
from sweeps.sides import comparison
from tests.sweeps.test_run import Recorder
from tests.waiting import wait_for

pytestmark = pytest.mark.rig
pytest.importorskip("xllamacpp")

ENGINE = LlamaCpp()
NGRAM = Point("ngram-simple", {"size_n": 2, "size_m": 4})
LIKE = """
workload: {classes: [code_edit], prompts_per_class: 2, max_tokens: 32}
confirm: {looks: [2]}
patience: {min_window_s: 0, foreign_cores: 1000, client_share: 1, reruns: 0}
"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Endpoint, Endpoint, ExitStack]]:
    """One without speculation and one with; closing the stack ends the second."""
    served = Served(find_model("smollm2-135m"), None, {"ctx-size": 1024, "threads": 1}, {})
    launcher = ProcessLauncher(tmp_path / "theirs")
    (tmp_path / "theirs").mkdir()

    def launch(point: Point) -> Launch:
        port = free_port()
        log, env = tmp_path / "theirs" / f"{port}.log", ENGINE.environment(point, served)
        return Launch(ENGINE.command(point, served, port), port, log, env)

    with launcher.start(launch(BASELINE)) as plain, ExitStack() as stack:
        ngram = stack.enter_context(launcher.start(launch(NGRAM)))
        wait_for(lambda: ENGINE.is_ready(plain) and ENGINE.is_ready(ngram))
        yield plain, ngram, stack


def test_two_servers_by_their_urls(servers: tuple[Endpoint, Endpoint, ExitStack], tmp_path: Path) -> None:
    plain, ngram, _ = servers
    (tmp_path / "like.yaml").write_text(LIKE)
    compared = comparison([plain.base_url, f"{ngram.base_url}/v1"], [], tmp_path / "like.yaml")
    assert [side.point.method for side in compared.sides] == ["none", "speculating"]
    folder, recorder = RunFolder(tmp_path / "run"), Recorder()
    run_comparison(compared, folder, recorder, recorder.stopped)
    assert ENGINE.is_ready(plain)
    assert ENGINE.is_ready(ngram)
    assert not (folder.path / "servers.jsonl").exists()
    for block in folder.blocks():
        assert block.invalid is None
        b = block.arm(compared.sides[1].point)
        assert b is not None and b.failure is None
        assert b.effective["context_per_slot"] == 1024
        (measured,) = b.measurements
        assert measured.output_tokens == 2 * 32
        assert measured.acceptance.counters is not None
        assert measured.acceptance.counters.draft_tokens > 0
        assert measured.telemetry.server_memory_bytes  # its processes were found
    report, code = read_run(folder)
    assert code in (0, 4)
    assert AcceptanceState.NOT_SPECULATING in html(report)
    assert "By which method it speculates" in html(report)


def test_a_server_that_is_ended_under_load(
    servers: tuple[Endpoint, Endpoint, ExitStack], tmp_path: Path
) -> None:
    plain, ngram, stack = servers
    (tmp_path / "like.yaml").write_text(LIKE.replace("reruns: 0", "reruns: 0, start_timeout_s: 0.5"))
    compared = comparison([plain.base_url, ngram.base_url], [], tmp_path / "like.yaml")
    folder = RunFolder(tmp_path / "run")

    class EndsItAfterOne(Recorder):
        def look(self, blocks: int, verdicts: object) -> None:
            stack.close()

    recorder = EndsItAfterOne()
    run_comparison(compared, folder, recorder, recorder.stopped)
    report, code = read_run(folder)
    assert code == 5
    failure = folder.blocks()[-1].candidates[0].failure
    assert failure is not None
    assert failure.reason in (Reason.START_TIMEOUT, Reason.SERVER_DIED)
    assert ngram.base_url in failure.evidence or "not ready" in failure.evidence
    assert "Nothing can be said of B" in report.headline

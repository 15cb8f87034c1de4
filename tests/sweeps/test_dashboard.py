"""The real optuna-dashboard opens the journal of a run and shows what became of every Point."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from launchers.port import free_port
from results.records import Point
from results.store import RunFolder
from tests.sweeps.test_run import run_with
from tests.waiting import wait_for

START = "import sys; from optuna_dashboard._cli import main; sys.exit(main())"  # what its command runs


@contextmanager
def dashboard(folder: RunFolder) -> Iterator[str]:
    port = free_port()
    command = [
        sys.executable,
        "-c",
        START,
        str(folder.study_file),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    shown = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: shown.poll() is not None or answers(f"http://127.0.0.1:{port}/api/meta"))
        assert shown.poll() is None, shown.stderr.read() if shown.stderr else ""
        yield f"http://127.0.0.1:{port}"
    finally:
        shown.kill()
        shown.communicate()


def answers(url: str) -> bool:
    try:
        return bool(asked(url))
    except OSError:
        return False


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


def test_it_opens_a_finished_run(tmp_path: Path) -> None:
    def fault(point: Point) -> Fault | None:
        return Fault.GARBAGE if point.knobs.get("m") == 32 else None

    space = {"fake-ngram": {"n": [2, 4], "m": [8, 32]}}
    _, folder = run_with(FakeEngine(fault=fault), tmp_path, space=space, limits={"ttft_p95_s": 60})
    with dashboard(folder) as url:
        (study,) = asked(f"{url}/api/studies")["study_summaries"]
        shown = asked(f"{url}/api/studies/{study['study_id']}")
    assert (study["study_name"], study["directions"]) == ("run", ["maximize"])
    assert "log(speed-up" in json.dumps(shown["user_attrs"])
    told = {}
    for trial in shown["trials"]:
        attributes = {a["key"]: a["value"] for a in trial["user_attrs"]}
        if not attributes["state"].startswith("passed over"):
            told[attributes["point"]] = (trial, attributes)
    assert set(told) == {t.label for t in folder.trials()[1:]}
    for trial in folder.trials()[1:]:
        seen, attributes = told[trial.label]
        assert attributes["state"] == trial.state
        if trial.failure is None:
            assert seen["state"] == "Complete"
            assert float(attributes["speed-up"]) > 1
            assert float(attributes["speed-up, code_edit @ closed(1)"]) > 1
            assert float(attributes["share of limit ttft_p95_s"]) < 1
        else:
            assert seen["state"] == "Pruned"
            assert attributes["reason"] == "INVALID_OUTPUT"
            assert "garbage" in attributes["evidence"]

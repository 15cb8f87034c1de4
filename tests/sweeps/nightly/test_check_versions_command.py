"""`tuner check` with a candidate and with a list to bisect, as a user types it."""

import json
import shlex
from pathlib import Path

import pytest

import tuner
from launchers.fake import FakeEngine, example_speed
from launchers.fake_server import FakeEndpoint
from results.records import Point

FILE = """
name: guarded
baseline: {method: none}
winner: {method: fake-ngram, knobs: {n: 4, m: 8}}
sweep:
  name: guarded
  engine: fake
  space: {fake-ngram: {n: 4, m: 8}}
  workload: {max_tokens: 80, prompts_per_class: 2, classes: [code_edit, chat]}
  confirm: {looks: [3, 4], same_margin: 0.4}
  patience: {client_share: 1, min_window_s: 0, reruns: 0, foreign_cores: 100}
"""


@pytest.fixture(autouse=True)
def slow_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in, whose winner is slow in the builds 3 and later; and a pinned file of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pinned.yaml").write_text(FILE)
    speed_of = FakeEndpoint.__init__

    def slowed(self: FakeEndpoint, launch: object, script: object) -> None:
        speed_of(self, launch, script)  # type: ignore[arg-type]
        build = int(self.environment().get("BUILD", "v0")[1:])
        self.script = FakeEngine(lambda p, c: _speed(p, build)).script

    monkeypatch.setattr(FakeEndpoint, "__init__", slowed)


def _speed(point: Point, build: int) -> float:
    return example_speed(point, "") * (0.4 if build >= 3 and not point.is_baseline else 1.0)


def run(command: str) -> int:
    with pytest.raises(SystemExit) as end:
        tuner.main(shlex.split(command))
    return int(end.value.code or 0)


def test_a_candidate_that_lost_its_gain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check pinned.yaml --candidate env.BUILD=v3") == 3
    told = capsys.readouterr()
    assert "NEW is slower with speculation by " in told.out
    assert "speculation got worse, not the engine" in told.out
    for part in ("NEW against OLD", "with speculation", "WORSE", "chat @ closed(1)", "acceptance length"):
        assert part in told.out
    assert "env.BUILD: OLD not set, NEW v3" in told.err
    assert run("check pinned.yaml --candidate env.BUILD=v3 --json") == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["state"], document["exit_code"]) == ("LOSS", 3)
    assert document["contrasts"]["winner"]["verdict"] == "WORSE"
    assert document["contrasts"]["winner"]["ratio"] < 0.6
    assert run("status runs/candidate-guarded") == 0
    assert run("reap runs") == 0
    assert run("report runs/candidate-guarded --format md") == 0


def test_a_candidate_that_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check pinned.yaml --candidate env.BUILD=v1 --run runs/one") == 0
    assert "no loss that counts" in capsys.readouterr().out


def test_a_list_is_searched(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check pinned.yaml --bisect v1,v2,v3,v4 --bisect-key env.BUILD") == 3
    told = capsys.readouterr().out
    assert "The first bad one is v3 (-" in told
    assert "v2 is as v1" in told
    assert "Against v1" in told
    assert run("check pinned.yaml --bisect v1,v2,v3,v4 --bisect-key env.BUILD --json") == 3
    assert json.loads(capsys.readouterr().out)["first_bad"] == ["v3"]
    assert run("status runs/bisect-guarded") == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--candidate env.A=1 --aa", "are of a night"),
        ("--candidate-image engine:2", "needs `launcher: docker`"),
        ("--candidate workload.classes=[chat]", "it is no part of a version"),
        ("--bisect a,b --candidate env.A=1", "leave --candidate out"),
        ("--bisect a,b", "needs `launcher: docker`"),
    ],
)
def test_what_cannot_be_asked(options: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"check pinned.yaml {options}") == 2
    assert message in capsys.readouterr().err

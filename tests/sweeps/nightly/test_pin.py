"""Pinned files: what is written is read back, and what is wrong is explained."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from results.environment import short_hash
from results.errors import UsageError
from results.nights import BASELINE, SPEED_UP
from results.records import BASELINE as NONE
from results.secrets import HIDDEN
from results.store import RunFolder
from sweeps.nightly.fingerprint import segment_of, versions_of
from sweeps.nightly.pin import pin_of, pin_text, read_pin
from sweeps.sweep import Sweep
from tests.sweeps.nightly.conftest import SWEEP


def test_a_pin_is_read_back_as_it_was_written(finished: RunFolder, pinned_file: Path) -> None:
    pin, read = pin_of(finished, blocks=2), read_pin(pinned_file)
    assert read.winner == pin.winner and read.winner.method == "fake-ngram"
    assert read.baseline == NONE
    assert read.blocks == 2
    assert read.sweep.identity() == pin.sweep.identity()
    assert read.segment == pin.segment and read.versions == pin.versions and read.effective == pin.effective
    assert read.expected.keys() == pin.expected.keys() >= {SPEED_UP, BASELINE}
    assert read.expected[SPEED_UP] == pytest.approx(pin.expected[SPEED_UP], rel=1e-5)
    assert pin.expected[SPEED_UP] > 1.1


def test_the_space_of_a_pin_holds_the_winner_alone(pinned_file: Path) -> None:
    pin = read_pin(pinned_file)
    plan = pin.plan()
    assert [*plan.space.points] == [pin.winner.key]
    assert segment_of(plan.environment(), pin.sweep, pin.baseline, pin.winner) == pin.segment
    assert versions_of(plan.environment()) == pin.versions


def test_only_a_confirmed_winner_is_pinned(finished: RunFolder, tmp_path: Path) -> None:
    loser = next(t for t in finished.trials() if t.point.knobs.get("m") == 2)
    with pytest.raises(UsageError, match="was not confirmed"):
        pin_of(finished, loser.point.label)
    with pytest.raises(UsageError, match="there is no folder"):
        pin_of(RunFolder(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wrong or missing: baseline, name, sweep, winner"),
        ("a: [", "is not valid YAML"),
        ("[1, 2]", "is no pinned file"),
        (
            "name: ../x\nbaseline: {method: none}\nwinner: {method: a}\nsweep: {}\n",
            r"wrong or missing: name\)",
        ),
        ("name: x\nbaseline: {method: none}\nwinner: {knobs: {}}\nsweep: {}\n", "winner.method"),
        ("name: x\nbaseline: {method: none}\nwinner: {method: a}\nsweep: {nosuch: 1}\n", "nosuch"),
    ],
)
def test_what_is_no_pinned_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "pinned.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_pin(file)


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`tuner pin RUN` writes one"):
        read_pin(tmp_path / "none.yaml")


def test_secrets_are_taken_from_the_environment(
    finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = pin_of(finished)
    secret = replace(pin, sweep=pin.sweep.model_copy(update={"env": {"HF_TOKEN": "hf_abcdefghijklmnop"}}))
    file = tmp_path / "pinned.yaml"
    file.write_text(pin_text(secret, "run"))
    assert "hf_abc" not in file.read_text() and HIDDEN in file.read_text()
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(UsageError, match="does not keep the value of HF_TOKEN"):
        read_pin(file)
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert read_pin(file).sweep.env == {"HF_TOKEN": "hf_other"}


def test_a_pin_says_whose_it_is(finished: RunFolder) -> None:
    text = pin_text(pin_of(finished), "runs/guarded", at=0)
    assert text.startswith("# fake-ngram m=8 n=4 of runs/guarded, pinned on 1970-01-01:")
    assert yaml.safe_load(text)["sweep"]["space"] == {"fake-ngram": {"n": 4, "m": 8}}


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"gpu_driver": "580.65"}, "driver"),
        ({"cpu": "another"}, "cpu"),
        ({"gpus": [{"name": "H200", "power_limit_w": 500.0}]}, "power limits"),
        ({"gpus": [{"name": "H200", "power_limit_w": 700.0}, {"name": "H200"}]}, "gpus"),
        ({"gpus": [{"name": "H200", "power_limit_w": 700.0, "max_sm_clock_hz": 1e9}]}, "clock limits"),
    ],
)
def test_hardware_and_driver_begin_a_segment(changed: dict[str, object], name: str) -> None:
    host = {
        "cpu": "a",
        "logical_cores": 2,
        "gpu_driver": "570.1",
        "engine": "SGLang 0.5.22",
        "memory_bytes": 2**35,
    }
    host["gpus"] = [{"name": "H200", "power_limit_w": 700.0}]
    sweep = Sweep.model_validate(SWEEP)
    before, after = ({"host": {**host, **more}, "prompts": {"confirm": "p"}} for more in ({}, changed))
    one, other = (segment_of(environment, sweep, NONE, NONE) for environment in (before, after))
    assert name in {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def test_a_new_engine_or_image_is_judged_not_passed_over() -> None:
    sweep = Sweep.model_validate(SWEEP)
    before = {"host": {"engine": "SGLang 0.5.22", "kernel": "6.1"}, "images": {"img:1": "sha256:a"}}
    after = {"host": {"engine": "SGLang 0.5.23", "kernel": "6.2"}, "images": {"img:1": "sha256:b"}}
    assert segment_of(before, sweep, NONE, NONE) == segment_of(after, sweep, NONE, NONE)
    assert versions_of(before) != versions_of(after)
    assert versions_of(after) == {"engine": "SGLang 0.5.23", "kernel": "6.2", "image img:1": "sha256:b"}


def test_other_prompts_load_or_sampling_begin_a_segment() -> None:
    sweep = Sweep.model_validate(SWEEP)
    hotter = sweep.model_copy(update={"workload": sweep.workload.model_copy(update={"temperature": 0.7})})
    assert segment_of({}, sweep, NONE, NONE) != segment_of({}, hotter, NONE, NONE)
    more = sweep.model_copy(update={"budget": sweep.budget.model_copy(update={"trials": 99})})
    assert segment_of({}, sweep, NONE, NONE) == segment_of({}, more, NONE, NONE)
    prompts = {"prompts": {"confirm": short_hash(["other"])}}
    assert segment_of(prompts, sweep, NONE, NONE) != segment_of({}, sweep, NONE, NONE)

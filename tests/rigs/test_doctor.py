"""`tuner doctor` from a sweep file to its conclusion, over the engines' own servers on a CPU.

Each examination starts a server, which takes half a minute.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

import tuner
from results.records import KnobValue
from results.wiring import Cause, Outcome
from tests.rigs.injections import IDS, INJECTIONS, Injection
from tests.rigs.needed import needed_rig

pytestmark = [pytest.mark.rig, pytest.mark.timeout(1200)]
PAIR = Path(__file__).with_name("pair")
ARGS: Mapping[str, Mapping[str, KnobValue]] = {
    "sglang": {
        "device": "cpu",
        "dtype": "float32",
        "mem-fraction-static": 0.4,
        "max-total-tokens": 8192,
        "sleep-on-idle": True,
    },
    "vllm": {
        "dtype": "float32",
        "max-model-len": 1024,
        "enforce-eager": True,
        "max-num-seqs": 8,
        "max-num-batched-tokens": 1024,
    },
}
ENV = {
    "sglang": {"SGLANG_USE_CPU_ENGINE": "1", "TORCHDYNAMO_DISABLE": "1"},
    "vllm": {"VLLM_CPU_KVCACHE_SPACE": "1"},
}
SPACE = {
    "sglang": {"EAGLE3": {"num_steps": 3, "topk": 1}},
    "vllm": {"eagle3": {"num_speculative_tokens": 3}},
}
AS_SGLANG_READS = Injection("ids of layers", frozenset({Cause.LAYERS}), {"eagle_config": {IDS: [1, 3, 4]}})
OTHERS = Injection("ids of others", frozenset({Cause.LAYERS}), {"eagle_config": {IDS: [2, 4, 6]}})
FOLDERS = ("--step=wiring", "--step=conclusion")


@pytest.fixture(autouse=True)
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def sweep_file(into: Path, engine: str, head: Path, **others: Any) -> Path:
    """What starts the pair's server on this engine, with this head beside the target."""
    sweep = {
        "name": "doctor",
        "engine": engine,
        "server": str(needed_rig(engine)),
        "model": str(PAIR / "target"),
        "draft": str(head),
        "args": dict(ARGS[engine]),
        "env": {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **ENV[engine]},
        "space": SPACE[engine],
        "workload": {
            "files": [str(PAIR / "prompts.jsonl")],
            "endpoint": "completions",
            "classes": ["code"],
            "prompts_per_class": 6,
            "max_tokens": 64,
            "temperature": 0,
        },
    }
    file = into / "sweep.yaml"
    file.write_text(yaml.safe_dump({**sweep, **others}))
    return file


def doctor(file: Path, *options: str) -> tuple[dict[str, Any], int]:
    """The diagnosis, and the exit code."""
    told = CliRunner().invoke(
        tuner.app,
        ["doctor", str(file), "--run", str(file.parent / "run"), "--sequences", "12", "--json", *options],
    )
    assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
    return json.loads(told.stdout), told.exit_code


def by_position(diagnosis: dict[str, Any]) -> tuple[str, str]:
    """Accepted by the server and in the replay, by position of the draft, as the evidence has it."""
    lines = diagnosis["conclusion"]["evidence"]
    server = next(line for line in lines if line.startswith("the server accepted, by position, "))
    replay = next(line for line in lines if line.startswith("a replay as served accepts "))
    return server.split("by position, ")[1], replay.split("accepts ")[1]


def findings(diagnosis: dict[str, Any], step: str, severity: str) -> list[dict[str, Any]]:
    [section] = [s for s in diagnosis["sections"] if s["step"] == step]
    return [f for f in section["findings"] if f["severity"] == severity]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_healthy_server_is_cleared_and_its_counts_are_predicted(engine: str, tmp_path: Path) -> None:
    diagnosis, code = doctor(sweep_file(tmp_path, engine, PAIR / "head"))
    assert (diagnosis["conclusion"]["outcome"], code) == (Outcome.CLEARED, 0)
    assert diagnosis["conclusion"]["accept_length"] > 2
    server, replay = by_position(diagnosis)
    assert server == replay


def test_a_head_that_kills_the_server_is_named(tmp_path: Path) -> None:
    injection = INJECTIONS["absolute-d2t"]
    diagnosis, code = doctor(sweep_file(tmp_path, "sglang", injection.make(tmp_path / "head")))
    assert (diagnosis["conclusion"]["outcome"], code) == (Outcome.NAMED, 0)
    assert set(diagnosis["conclusion"]["causes"]) == injection.causes
    assert diagnosis["conclusion"]["fix"]["tensors"]


def test_the_change_for_layers_one_too_high_restores_acceptance(tmp_path: Path) -> None:
    injection = INJECTIONS["layers-up"]
    patience = {"min_window_s": 0, "foreign_cores": 1000, "client_share": 1, "reruns": 0}
    file = sweep_file(tmp_path, "sglang", injection.make(tmp_path / "head"), patience=patience)
    diagnosis, code = doctor(file, "--verify-fix")
    conclusion = diagnosis["conclusion"]
    assert conclusion["outcome"] == Outcome.NAMED
    assert set(conclusion["causes"]) == injection.causes
    assert conclusion["fix"]["config"] == {f"eagle_config.{IDS}": [1, 3, 4]}
    assert code == 0
    verified = diagnosis["verified"]
    assert verified["restores"]
    assert verified["changed"]["length"] > verified["as_it_is"]["length"] + 0.2 > 1.5


def test_ids_that_mean_another_boundary_on_vllm_are_named(tmp_path: Path) -> None:
    """By folders, flags and device, and by what the server gives its drafter."""
    file = sweep_file(tmp_path, "vllm", AS_SGLANG_READS.make(tmp_path / "head"))
    diagnosis, _ = doctor(file)
    [static] = findings(diagnosis, "wiring", "LIKELY")
    assert static["cause"] == Cause.LAYERS
    assert static["seen"].startswith("b1, b3, b4 are read; likeliest trained on b2, b4, b5")
    conclusion = diagnosis["conclusion"]
    assert (conclusion["outcome"], conclusion["causes"]) == (Outcome.NAMED, [Cause.LAYERS])
    assert conclusion["evidence"][0] == "the server reads b1, b3, b4; the head was trained with b2, b4, b5"
    assert static["fix"]["config"] == conclusion["fix"]["config"] == {IDS: [2, 4, 5]}
    assert not findings(diagnosis, "served", "INFO")  # it reads what the folders say it does
    server, replay = by_position(diagnosis)
    assert server == replay


@pytest.mark.parametrize(("newer", "read"), [("0", "b2, b4, b6"), ("1", "b2, b4, b5")])
def test_what_a_runner_of_vllm_makes_of_ids_is_told_without_a_server(
    newer: str, read: str, tmp_path: Path
) -> None:
    """The newer one does not see them."""
    env = {"VLLM_USE_V2_MODEL_RUNNER": newer}
    file = sweep_file(tmp_path, "vllm", OTHERS.make(tmp_path / "head"), env=env)
    diagnosis, _ = doctor(file, *FOLDERS)
    [static] = findings(diagnosis, "wiring", "LIKELY")
    assert static["cause"] == Cause.LAYERS
    assert static["seen"].startswith(f"{read} are read; likeliest trained on b3, b5, b7")
    assert static["fix"]["config"] == {IDS: [3, 5, 7]}
    ignored = findings(diagnosis, "wiring", "INFO")
    assert ("where it does not look" in ignored[0]["seen"] if ignored else False) is (newer == "1")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_drafter_that_no_method_uses_is_named(engine: str, tmp_path: Path) -> None:
    diagnosis, code = doctor(sweep_file(tmp_path, engine, PAIR / "head", space={"none": {}}))
    assert diagnosis["conclusion"]["causes"] == [Cause.NOT_ATTACHED]
    assert diagnosis["conclusion"]["fix"]["method"] == next(iter(SPACE[engine]))
    assert code == 0

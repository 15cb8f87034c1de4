"""`tuner doctor` from the command line, over a dump of the committed pair as a server would have made it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tuner
from analysis.wiring.chain import predict
from results.errors import UsageError
from results.hidden_states import Dump, DumpHeader, HiddenStates
from results.wiring import Cause, Step
from tests.analysis.wiring import pair
from tests.rigs.pair.replay import HERE

CAPTURED = (2, 3, 4, 5, 6, 9)  # fewer than all, for the tests' time
DRAFTS = 3
PROMPTS = 12
FOLDERS = ["--target", str(HERE / "target"), "--engine-version", "0.5.23"]
BY_DUMP = [f"--step={step}" for step in (Step.WIRING, Step.SERVED, Step.TRAINED, Step.CONCLUSION)]


def head(into: Path, **config: Any) -> Path:
    """The committed head with entries of its config.json changed."""
    shutil.copytree(HERE / "head", into)
    (into / "config.json").write_text(json.dumps(pair.config("head") | config))
    return into


def served(boundaries: tuple[int, ...]) -> Iterator[HiddenStates]:
    """Greedy answers of a server that gives its drafter these, and what it accepted of the drafts."""
    made, reading = pair.pair(), replace(pair.RIGHT, boundaries=boundaries)
    for sequence in pair.answered(PROMPTS, 40):
        accepted = predict(made, reading, sequence, DRAFTS).counts
        aux = torch.cat([sequence.states[b] for b in boundaries], dim=-1)
        kept = {b: sequence.states[b] for b in CAPTURED}
        ids = sequence.token_ids[1:].clone()
        yield replace(sequence, states=kept, served_aux=aux, served_ids=ids, accepted=accepted)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By what is wrong with the server's layers."""
    header = DumpHeader(layers=8, engine="a server", temperature=0.0, drafts_per_round=DRAFTS)
    given = {"right": (2, 4, 5), "up": (3, 5, 6)}
    folders = {name: tmp_path_factory.mktemp(name) for name in given}
    for name, boundaries in given.items():
        Dump.write(folders[name], header, served(boundaries))
    return folders


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(tuner.app, ["doctor", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_a_healthy_server_is_cleared(dumps: dict[str, Path], tmp_path: Path) -> None:
    healthy = head(tmp_path / "head")
    code, said = run(*FOLDERS, "--draft", str(healthy), "--dump", str(dumps["right"]), *BY_DUMP)
    assert code == 0
    assert "CLEARED: The wiring is cleared" in said
    assert "The server gives its drafter b2, b4, b5, as was expected." in said


def test_layers_one_too_high_are_named_and_mended_for_the_engine(
    dumps: dict[str, Path], tmp_path: Path
) -> None:
    nested = head(tmp_path / "head", eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 4, 5]})
    arguments = ["--draft", str(nested), "--dump", str(dumps["up"]), *BY_DUMP, "--json"]
    code, said = run(*FOLDERS, *arguments)
    conclusion = json.loads(said[said.index("{") :])["conclusion"]
    assert code == 0
    assert (conclusion["outcome"], conclusion["causes"]) == ("NAMED", [Cause.LAYERS])
    assert conclusion["fix"]["config"] == {"eagle_config.eagle_aux_hidden_state_layer_ids": [1, 3, 4]}
    assert conclusion["accept_length_after"] > conclusion["accept_length"] > 1


def test_a_draft_that_llama_cpp_would_load_and_never_use(tmp_path: Path) -> None:
    """Its log says that the draft was loaded, its slots stay idle, and no --spec-type was given."""
    for name in ("target.gguf", "draft.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    files = ["--target", str(tmp_path / "target.gguf"), "--draft", str(tmp_path / "draft.gguf")]
    code, said = run(*files, "--engine", "llamacpp")
    assert code == 0
    assert "NAMED: The drafter is not used." in said
    assert "add --spec-type draft-simple" in said
    code, said = run(*files, "--engine", "llamacpp", "--method", "draft-simple")
    assert code == 4
    assert "not used" not in said


def test_the_method_left_out_is_the_engine_s_name_for_eagle_3() -> None:
    folders = ["--target", str(HERE / "target"), "--draft", str(HERE / "head"), "--step=wiring", "--json"]
    for engine in ("sglang", "vllm"):
        [section] = json.loads(run(*folders, "--engine", engine)[1])["sections"]
        assert [f for f in section["findings"] if f["severity"] != "INFO"] == []


def test_one_step_alone_and_what_it_needs(tmp_path: Path) -> None:
    code, said = run(*FOLDERS, "--draft", str(HERE / "head"), "--step", "served")
    assert code == 0
    assert "skipped" in said and "--dump FOLDER" in said
    assert "Wiring by folders" not in said


def test_nothing_to_go_on_is_undecided(tmp_path: Path) -> None:
    code, said = run(*FOLDERS, "--draft", str(HERE / "head"), "--step", "wiring", "--step", "conclusion")
    assert code == 4
    assert "UNDECIDED" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a sweep file"),
        (["--target", str(HERE / "target")], "--draft FOLDER"),
        (["sweep.yaml", "--target", "x"], "--target and --draft are for folders"),
        ([*FOLDERS, "--draft", "nowhere"], "nowhere"),
        ([*FOLDERS, "--draft", "~/nowhere"], "~/nowhere: no such folder"),
        ([*FOLDERS, "--draft", "some/head"], "no model of that name in"),
        ([*FOLDERS, "--draft", __file__], "name its folder"),
        ([*FOLDERS, "--draft", str(HERE)], r"holds no config\.json"),
        (["--target", str(HERE / "head"), "--draft", str(HERE / "target")], "the other way round"),
        (["--target", str(HERE / "head"), "--draft", str(HERE / "head")], "no target"),
        ([*FOLDERS, "--draft", str(HERE / "head"), "--engine", "trt"], "trt"),
        ([*FOLDERS, "--draft", str(HERE / "head"), "--dump", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_told(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(*arguments)


@pytest.mark.parametrize("arguments", [["--step", "guess"], ["--expected", "much"], ["--sequences", "0"]])
def test_mistakes_in_options_are_usage(arguments: list[str]) -> None:
    assert run(*FOLDERS, "--draft", str(HERE / "head"), *arguments)[0] == 2


def test_each_engine_has_its_own_name_for_the_method() -> None:
    """In any case: `VLLM` is vLLM, and its EAGLE-3 is no fault of the method."""
    for engine in ("sglang", "vllm", "VLLM"):
        code, said = run(*FOLDERS, "--draft", str(HERE / "head"), "--engine", engine, "--step", "wiring")
        assert code == 0 and "the algorithm is not" not in said


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch and safetensors are not installed."""
    for name in ("torch", "safetensors"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}')")
    return os.environ | {"PYTHONPATH": str(tmp_path)}


def doctor(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(tuner.__file__)), "doctor", *FOLDERS, "--draft", str(HERE / "head")]
    return subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_folders_are_looked_at_without_torch(without_torch: dict[str, str], tmp_path: Path) -> None:
    done = doctor(without_torch, "--json", f"--run={tmp_path / 'run'}")
    said = json.loads(done.stdout)
    assert (done.returncode, said["conclusion"]["outcome"]) == (4, "UNDECIDED")
    assert {s["step"] for s in said["sections"] if not s["skipped"]} == {Step.STATE, Step.WIRING}


def test_what_needs_torch_says_so(without_torch: dict[str, str], dumps: dict[str, Path]) -> None:
    dump = ["--dump", str(dumps["right"])]
    alone = doctor(without_torch, *dump, "--step", "trained")
    assert alone.returncode == 2 and "pip install -e '.[wiring]'" in alone.stderr
    beside = doctor(without_torch, *dump, "--step", "wiring", "--step", "trained", "--json")
    wiring, trained = json.loads(beside.stdout)["sections"]
    assert beside.returncode == 0 and not wiring["skipped"] and "'.[wiring]'" in trained["skipped"]


HEADER = DumpHeader(layers=8, temperature=0.0)


@pytest.mark.parametrize(
    ("header", "change", "said"),
    [
        (replace(HEADER, layers=32), {}, "of a target of 32 layers"),
        (HEADER, {"token_ids": torch.arange(5000, 5020)}, "tokens are 5000 to 5019"),
        (HEADER, {"states": {}}, "no states"),
        (HEADER, {"states": {2: torch.ones(19, 100)}}, r"shape \(19, 100\)"),
        (HEADER, {"states": {40: torch.ones(19, 128)}}, "b40 is none"),
        (HEADER, {"states": {2: torch.ones(30, 128)}}, "30 rows for 20 tokens"),
        (HEADER, None, "holds no sequences"),
        (replace(HEADER, layers=-1), {}, "layers is -1"),
    ],
)
def test_a_dump_of_another_target_is_refused(
    header: DumpHeader, change: dict[str, Any] | None, said: str, tmp_path: Path
) -> None:
    whole = HiddenStates(torch.arange(20), 5, {2: torch.ones(19, 128)})
    sequences = [] if change is None else [replace(whole, **change)]
    Dump.write(tmp_path, header, iter(sequences))
    with pytest.raises(UsageError, match=said):
        run(*FOLDERS, "--draft", str(HERE / "head"), "--dump", str(tmp_path), "--step", "trained")


@pytest.mark.parametrize(
    ("rows", "value", "said"), [(19, float("nan"), "not finite"), (1, 1.0, "long enough")]
)
def test_a_dump_that_cannot_be_replayed_is_no_crash(
    rows: int, value: float, said: str, tmp_path: Path
) -> None:
    states = {b: torch.full((rows, 128), value) for b in CAPTURED}
    Dump.write(tmp_path, HEADER, iter([HiddenStates(torch.arange(rows + 1), 1, states)]))
    code, printed = run(*FOLDERS, "--draft", str(HERE / "head"), "--dump", str(tmp_path), "--step", "trained")
    assert code == 0 and said in " ".join(printed.split())


def test_a_remark_on_a_healthy_head_claims_no_cause(tmp_path: Path) -> None:
    own = head(tmp_path / "head", rope_theta=5e5, rope_scaling={"rope_type": "linear", "factor": 2.0})
    _, said = run(*FOLDERS, "--draft", str(own), "--step", "wiring")
    assert "INFO     the drafter's rotations" in said
    assert Cause.ROPE.value not in said

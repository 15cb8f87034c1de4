"""`tuner doctor` from the command line, over a dump of the committed pair as a server would have made it."""

import json
import shutil
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
    if isinstance(done.exception, UsageError):
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

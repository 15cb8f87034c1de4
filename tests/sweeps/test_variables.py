"""Environment variables as dimensions: values, where they are dead, and what is said of them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launchers.engines.nccl import nccl_version
from launchers.place import MACHINE
from results.errors import UsageError
from results.records import Point, is_shared, is_variable
from sweeps.container import Container
from sweeps.prepare import check_room
from sweeps.space import Space, build_space
from sweeps.sweep import KnobSpec
from sweeps.variables import check_fixed
from tests.knobs_engine import SERVED, knobs_engine

ONE_POINT: dict[str, dict[str, KnobSpec] | None] = {"tree": {"steps": 1, "topk": 1}}


def space(shared: dict[str, KnobSpec], tp: int = 8, **env: str) -> Space:
    return build_space(knobs_engine(), replace(SERVED, args={"tp": tp}, env=env), ONE_POINT, shared)


def labels(found: Space) -> set[str]:
    return {p.label.replace("tree ", "", 1).replace(" steps=1 topk=1", "") for p in found.points.values()}


@pytest.mark.parametrize(
    ("knob", "variable", "shared"),
    [
        ("NCCL_PROTO", True, True),
        ("OMP_NUM_THREADS", True, True),
        ("--batch", False, True),
        ("image", False, True),
        ("num_steps", False, False),
        ("n", False, False),
    ],
)
def test_a_variable_is_known_by_its_capitals(knob: str, variable: bool, shared: bool) -> None:
    assert (is_variable(knob), is_shared(knob)) == (variable, shared)


def test_unset_is_a_value_and_is_what_a_sweep_without_the_variable_starts_from() -> None:
    assert labels(space({"NCCL_PROTO": ["unset", "LL", "Simple"]})) == {
        "NCCL_PROTO=LL",
        "NCCL_PROTO=Simple",
        "steps=1 topk=1",
    }


def test_unset_takes_away_what_both_arms_would_have() -> None:
    found = space({"NCCL_PROTO": ["unset", "LL", "Simple"]}, NCCL_PROTO="LL")
    assert labels(found) == {"NCCL_PROTO=unset", "NCCL_PROTO=Simple", "steps=1 topk=1"}
    gone = next(p for p in found.points.values() if p.knobs.get("NCCL_PROTO") == "unset")
    assert gone.variables == {"NCCL_PROTO": None}


def test_numbers_become_text_and_booleans_are_refused() -> None:
    points = space({"NCCL_MIN_NCHANNELS": [8, 16]}).points.values()
    assert {p.variables.get("NCCL_MIN_NCHANNELS") for p in points} == {None, "8", "16"}
    with pytest.raises(UsageError, match="write 1 or 0"):
        space({"NCCL_P2P_DISABLE": [True]})


def test_a_secret_is_no_dimension() -> None:
    with pytest.raises(UsageError, match="HF_TOKEN holds a secret"):
        space({"HF_TOKEN": ["a", "b"]})


def test_a_variable_of_the_tools_own_environment_is_no_dimension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_PROTO", "LL128")
    with pytest.raises(UsageError, match="NCCL_PROTO is set in the environment of the tool"):
        space({"NCCL_PROTO": ["LL"]})
    assert labels(space({"NCCL_PROTO": ["LL", "Simple"]}, NCCL_PROTO="LL"))  # a stated start is one


def test_one_rank_has_no_use_of_nccl_and_the_space_says_so() -> None:
    found = space({"NCCL_PROTO": ["unset", "LL"], "OMP_NUM_THREADS": [1, 2]}, tp=1)
    assert labels(found) == {"steps=1 topk=1", "OMP_NUM_THREADS=1", "OMP_NUM_THREADS=2"}
    assert [note for note in found.notes if "NCCL_PROTO: left out" in note and "one rank" in note]


def test_where_some_points_have_one_rank_only_theirs_collapse() -> None:
    found = space({"--tp": [1, 2], "NCCL_PROTO": ["unset", "LL"]})
    assert labels(found) == {
        "steps=1 topk=1",
        "NCCL_PROTO=LL",
        "--tp=1",
        "--tp=2",
        "--tp=2 NCCL_PROTO=LL",
    }
    assert not any("left out" in note for note in found.notes)


def test_the_engines_own_all_reduce_is_the_parent_of_ncclss_variables() -> None:
    """Case 44: 28.9 against 27.8 tok/s below it, 73.3 with it off."""
    found = space({"--nccl-alone": [False, True], "NCCL_PROTO": ["unset", "LL"], "OMP_NUM_THREADS": [2]})
    nccl = [p for p in found.points.values() if "NCCL_PROTO" in p.knobs]
    assert nccl
    assert all(p.knobs.get("--nccl-alone") is True for p in nccl)
    assert any("OMP_NUM_THREADS" in p.knobs and "--nccl-alone" not in p.knobs for p in found.points.values())


def test_without_the_parent_in_the_space_a_note_names_it() -> None:
    assert any("`--nccl-alone: [false, true]`" in note for note in space({"NCCL_PROTO": ["LL"]}).notes)
    decided = replace(SERVED, args={"tp": 8, "nccl-alone": True})
    assert not build_space(knobs_engine(), decided, ONE_POINT, {"NCCL_PROTO": ["LL"]}).notes


def test_what_leaves_nccl_nothing_is_no_point() -> None:
    found = space({"NCCL_ALGO": ["unset", "NVLS", "Ring"], "NCCL_PROTO": ["unset", "LL", "Simple"]})
    assert not any(p.variables == {"NCCL_ALGO": "NVLS", "NCCL_PROTO": "LL"} for p in found.points.values())
    assert any(p.variables == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"} for p in found.points.values())


def test_a_variable_that_another_turns_off_is_dead() -> None:
    found = space({"NCCL_P2P_DISABLE": ["unset", 1], "NCCL_P2P_LEVEL": ["unset", "SYS"]})
    assert labels(found) == {"NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=SYS", "steps=1 topk=1"}


def test_a_value_that_nccl_does_not_know_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="LL128"):
        space({"NCCL_PROTO": ["LL182"]})


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"NCCL_PROTO": "unset"}, "env: NCCL_PROTO: leave it out"),
        ({"NCCL_PROTO": "LL256"}, "LL128"),
        ({"NCCL_ALGO": "NVLS", "NCCL_PROTO": "LL"}, "env: .*NCCL_ALGO"),
    ],
)
def test_fixed_variables_are_checked_as_such(env: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_fixed(env)
    check_fixed({"NCCL_PROTO": "LL", "OMP_NUM_THREADS": "1"})


def test_more_ranks_than_gpus_are_refused() -> None:
    with pytest.raises(UsageError, match=r"container\.gpus: 2 GPUs for 8 ranks"):
        check_room(Container(image="engine", gpus=2), 8)
    check_room(Container(image="engine", gpus="all"), 8)
    check_room(Container(image="engine", gpus=["GPU-a", "GPU-b"]), 2)


def test_images_are_a_dimension() -> None:
    points = space({"image": ["engine:1", "engine:2"]}).points.values()
    assert {p.image for p in points} == {None, "engine:1", "engine:2"}


def test_variables_of_a_point() -> None:
    point = Point("tree", {"steps": 1, "NCCL_PROTO": "unset", "OMP_NUM_THREADS": 2, "--batch": 8})
    assert point.variables == {"NCCL_PROTO": None, "OMP_NUM_THREADS": "2"}
    assert point.flags == {"--batch": 8}
    assert point.speculative == {"steps": 1}


def test_combinations_are_judged_by_the_release_of_nccl() -> None:
    """Case 41: 2.30 takes what 2.31 refuses."""
    env = {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}
    check_fixed(env, lambda: (2, 30, 0))
    for newer in (lambda: (2, 31, 2), lambda: None):
        with pytest.raises(UsageError, match="NCCL_ALGO"):
            check_fixed(env, newer)


def test_the_release_is_asked_of_the_servers_own_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    nccl = tmp_path / "torch" / "cuda" / "nccl.py"
    nccl.parent.mkdir(parents=True)
    for package in (tmp_path / "torch", nccl.parent):
        (package / "__init__.py").write_text("")
    nccl.write_text("def version():\n    return (2, 28, 9)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert nccl_version((MACHINE, sys.executable)) == (2, 28, 9)
    monkeypatch.setenv("PYTHONPATH", "")
    assert nccl_version(None) is None

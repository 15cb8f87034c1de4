"""Which GPUs are a server's: CUDA's own rules of naming them, and its processes against them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.gpu_choice import (
    Choice,
    Shown,
    Visible,
    choose,
    mismatch,
    pinned,
    server_environment,
    visible_gpus,
)

A = Shown(0, "GPU-aaaa1111", "H100")
B = Shown(1, "GPU-bbbb2222", "H100")
C = Shown(2, "GPU-bbcc3333", "H100", mig=("MIG-5d5ba0d6", "MIG-7f00"))
ALIKE = (A, B, C)
MIXED = (Shown(0, "GPU-aaaa1111", "P40"), B, C)
ALL = (A.uuid, B.uuid, C.uuid)


@pytest.mark.parametrize(
    ("value", "uuids"),
    [
        (None, ALL),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", (A.uuid,)),
        (" 2 , 0 ", (A.uuid, C.uuid)),
        ("0,1,-1,2", (A.uuid, B.uuid)),
        ("0,7,1", (A.uuid,)),
        ("1,two,0", (B.uuid,)),
        ("+1,-0", (A.uuid, B.uuid)),
        ("1gpu2,2ampere", (B.uuid, C.uuid)),
        ("0,1,0", ()),  # a GPU named twice leaves none
        ("0,GPU-bbbb2222", (A.uuid,)),
        ("GPU-bbbb2222", (B.uuid,)),
        ("GPU-bbcc,GPU-aaaa", (A.uuid, C.uuid)),
        ("GPU-bb", ()),  # two begin like this
        ("GPU-aaaa,GPU-ffff,GPU-bbbb", (A.uuid,)),
        ("GPU-aaaa,GPU-aaaa1111", ()),
        ("GPU-aaaa,1", (A.uuid,)),
        ("MIG-5d5ba0d6", (C.uuid,)),
        ("MIG-5d5ba0d6,MIG-7f00", (C.uuid,)),
        ("MIG-GPU-bbcc3333/1/0", (C.uuid,)),
        ("MIG-9999", ()),
    ],
)
def test_cuda_visible_devices_as_cuda_reads_it(value: str | None, uuids: tuple[str, ...]) -> None:
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert visible_gpus(ALIKE, environment) == Visible(uuids, value is not None)


def test_a_number_says_nothing_where_cuda_puts_the_fastest_first() -> None:
    number = {"CUDA_VISIBLE_DEVICES": "0"}
    assert visible_gpus(MIXED, number).uuids == ALL
    assert visible_gpus(MIXED, {**number, "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}).uuids == ALL
    assert visible_gpus(MIXED, {**number, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).uuids == (A.uuid,)
    assert visible_gpus(MIXED, {"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}).uuids == (B.uuid,)
    assert visible_gpus(MIXED, {"CUDA_VISIBLE_DEVICES": ""}).uuids == ()


@pytest.mark.parametrize(
    ("given_to_it", "environment", "uuids"),
    [
        (None, {"NVIDIA_VISIBLE_DEVICES": "all"}, ALL),
        (None, {"NVIDIA_VISIBLE_DEVICES": "void"}, ()),
        (None, {"NVIDIA_VISIBLE_DEVICES": "1,2"}, (B.uuid, C.uuid)),
        (None, {"NVIDIA_VISIBLE_DEVICES": "1,2", "CUDA_VISIBLE_DEVICES": "1"}, (C.uuid,)),
        (None, {"NVIDIA_VISIBLE_DEVICES": "GPU-bbbb2222", "CUDA_VISIBLE_DEVICES": "0"}, (B.uuid,)),
        (("all",), {"CUDA_VISIBLE_DEVICES": "0"}, (A.uuid,)),
        (("GPU-bbcc",), {}, (C.uuid,)),
        (("2:0",), {}, (C.uuid,)),
        ((), {}, ()),
    ],
)
def test_a_container_counts_its_own_gpus(
    given_to_it: tuple[str, ...] | None, environment: Mapping[str, str], uuids: tuple[str, ...]
) -> None:
    assert visible_gpus(ALIKE, environment, given_to_it).uuids == uuids


@given(st.text(alphabet="GPUMIG-0123456789abc,:/ +x", max_size=40))
def test_whatever_it_says_only_gpus_that_are_there(value: str) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": value, "NVIDIA_VISIBLE_DEVICES": value}
    assert set(visible_gpus(ALIKE, environment).uuids) <= set(ALL)


def with_pids(*pids: set[int]) -> list[Shown]:
    return [Shown(g.index, g.uuid, g.name, frozenset(p), g.mig) for g, p in zip(ALIKE, pids, strict=True)]


def test_processes_are_the_truth() -> None:
    shown = with_pids(set(), {41, 9}, {42})
    assert choose(shown, (41, 42), Visible(ALL, False)) == Choice((B.uuid, C.uuid), True)
    found = choose(shown, (41, 42), Visible((A.uuid, B.uuid), True))
    assert found.uuids == (B.uuid, C.uuid)
    assert found.mismatch.startswith("GPU_MISMATCH: the environment leaves GPU-aaaa1111, GPU-bbbb2222")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-bbbb2222,GPU-bbcc3333" in found.mismatch


def test_without_processes_the_environment_is_believed() -> None:
    shown, named = with_pids(set(), {7}, set()), Visible((A.uuid,), True)
    assert choose(shown, (41,), named) == Choice((A.uuid,), False)
    assert choose(shown, (), Visible(ALL, False), pids_are_ours=True) == Choice(ALL, False)


def test_a_server_that_would_be_seen_and_is_not_uses_no_gpu() -> None:
    shown = with_pids(set(), {7}, set())
    assert choose(shown, (41,), Visible(ALL, False), pids_are_ours=True) == Choice((), False)
    assert choose(shown, (41,), Visible((A.uuid,), True), pids_are_ours=True).uuids == (A.uuid,)


def test_an_idle_gpu_under_load_is_a_mismatch() -> None:
    shown = with_pids({41}, set(), set())
    assert mismatch((A.uuid,), shown, (41,), {A.uuid: 0.5}, 60) == ""
    assert mismatch((A.uuid,), shown, (41,), {A.uuid: 0.0}, 60) == (
        "GPU_MISMATCH: GPU-aaaa1111 did nothing while the server was under load"
    )
    assert mismatch((A.uuid,), shown, (41,), {A.uuid: 0.0}, 1) == ""  # the driver needs a second to notice
    assert mismatch((A.uuid,), shown, (41,), {A.uuid: None}, 60) == ""  # it does not tell (MIG)
    unseen = mismatch((B.uuid,), with_pids(set(), set(), set()), (41,), {B.uuid: 0.0}, 60)
    assert unseen.endswith("under load, and none of the server's processes is seen there")
    assert mismatch((), shown, (), {}, 60) == ""


def test_pinned_by_uuid() -> None:
    uuids = visible_gpus(ALIKE, {"CUDA_VISIBLE_DEVICES": "2,0"}).uuids
    assert pinned(uuids) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-aaaa1111,GPU-bbcc3333",
    }
    assert visible_gpus(MIXED, pinned(uuids)).uuids == uuids


def test_the_environment_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "3")  # of the tool's own container
    found = server_environment({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": None})
    assert found["CUDA_VISIBLE_DEVICES"] == "0"
    assert not {"CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"} & found.keys()
    assert server_environment({"NVIDIA_VISIBLE_DEVICES": "2"})["NVIDIA_VISIBLE_DEVICES"] == "2"

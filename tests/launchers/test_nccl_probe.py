"""The start-up probe, with a stand-in for torch: what is seen of NCCL, and that nothing is left running."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from launchers.nccl.probe import NcclSeen, ask, seen
from launchers.place import MACHINE, Machine, Ran, Variables
from results.reasons import Reason

STUB = Path(__file__).with_name("nccl_stub")
ASKED = {"NCCL_ALGO": "Ring", "NCCL_P2P_DISABLE": "0"}


def probe(
    fault: str = "", env: Mapping[str, str | None] = {}, requested: Mapping[str, str] = ASKED, ranks: int = 2
) -> NcclSeen:
    ours = {"PYTHONPATH": str(STUB), "NCCL_STUB": fault, "NCCL_STUB_GPUS": "2", **env}
    return ask(MACHINE, sys.executable, {**ours, **requested}, requested, ranks, deadline_s=2)


def test_a_start_that_works_confirms_what_nccl_said() -> None:
    found = probe()
    assert found == NcclSeen("2.28.9+cuda13.0", ("NCCL_ALGO",), ("NCCL_P2P_DISABLE",))


def test_variables_of_an_image_are_told_and_ours_are_not() -> None:
    class OfImage(Machine):
        def run(self, argv: Sequence[str], env: Variables, timeout_s: float) -> Ran:
            return MACHINE.run(argv, {**env, "NCCL_PROTO": "LL"}, timeout_s)

    ours = {"PYTHONPATH": str(STUB), "NCCL_NTHREADS": "256"}
    found = ask(OfImage(), sys.executable, ours, {"NCCL_ALGO": "unset"}, 2)
    assert found.applied == ("NCCL_ALGO",)
    assert found.failure is None
    assert found.note == "set beside this sweep, by the image or NCCL's config file: NCCL_PROTO=LL"


def test_unset_takes_a_variable_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_PROTO", "Simple")
    assert probe(requested={"NCCL_PROTO": "unset"}).applied == ("NCCL_PROTO",)
    assert "NCCL_PROTO=Simple" in probe().note


def test_the_probes_own_debug_variables_are_not_judged() -> None:
    """The server has the sweep's NCCL_DEBUG, the probe needs its own."""
    found = probe(requested={"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/tmp/log.%h"})
    assert (found.applied, found.unconfirmed, found.note) == (("NCCL_ALGO",), (), "")


def test_a_collective_that_every_engine_needs_is_a_refusal() -> None:
    found = probe("refuse:all_gather,broadcast", requested={"NCCL_ALGO": "Tree"})
    assert found.applied == ("NCCL_ALGO",)
    assert found.failure is not None
    reason, line = found.failure
    assert reason is Reason.NCCL_REJECTED
    assert "No algorithm/protocol available for function all_gather" in line
    assert "NCCL_ALGO was set to Tree" in line


def test_another_collective_is_only_told() -> None:
    found = probe("refuse:reduce_scatter")
    assert found.failure is None
    assert found.note.startswith("reduce_scatter fails: NCCL error in: ProcessGroupNCCL.cpp:3353")
    assert found.note.count("reduce_scatter") == 2


def test_a_deadlock_is_ended_and_named() -> None:
    found = probe("hang:all_gather")
    assert found.failure == (
        Reason.HANG,
        "NCCL did not finish in 2 s: deadlocked after all_reduce large",
    )
    assert found.applied == ("NCCL_ALGO",)
    assert found.version == "2.28.9+cuda13.0"


def test_shared_memory_is_named_with_its_remedy() -> None:
    failure = probe("shm").failure
    assert failure is not None
    assert failure[0] is Reason.NCCL_REJECTED
    assert "shm_size" in failure[1]


@pytest.mark.parametrize(
    ("fault", "ranks", "told"),
    [
        ("no_torch", 2, "libtorch_cuda.so: cannot open shared object file"),
        ("no_cuda", 2, "no CUDA device"),
        ("", 8, "2 GPUs for 8 ranks"),
    ],
)
def test_where_nccl_cannot_be_tried_it_is_said(fault: str, ranks: int, told: str) -> None:
    found = probe(fault, ranks=ranks)
    assert found.note.startswith(f"NCCL was not tried: {told}")
    assert found.unconfirmed == ("NCCL_ALGO", "NCCL_P2P_DISABLE")
    assert (found.applied, found.failure) == ((), None)


def test_without_torch_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    found = probe(env={"PYTHONPATH": str(tmp_path)})
    assert found.note == "NCCL was not tried: No module named 'torch'"


def test_a_full_gpu_is_no_failure_of_the_point() -> None:
    found = probe("oom")
    assert found.failure is None
    assert "out of memory" in found.note


def test_a_rank_that_dies_does_not_leave_the_others_waiting() -> None:
    found = probe("die")
    assert found.failure is None  # the cause is not known to come again
    assert found.note.startswith("the probe ended with exit code 7 and shows nothing")


def test_a_killed_probe_whose_ranks_were_ready_is_a_hang() -> None:
    output = '@tuner {"rank": 0, "ready": true}\n@tuner {"rank": 1, "rea'
    found = seen(output, None, {}, ranks=2, deadline_s=60)
    assert found.failure == (
        Reason.HANG,
        "NCCL did not finish in 60 s: deadlocked before the first collective",
    )
    importing = seen("loading\n", None, {}, ranks=2)
    assert importing.failure is None
    assert importing.note == "the probe was killed and shows nothing: loading"

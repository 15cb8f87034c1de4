"""Whole sweeps in containers: the embedded engine and SGLang, accidents, secrets, another image."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from launchers.containers.daemon import connect
from launchers.leftovers import reap
from results.errors import UsageError
from results.reasons import Reason
from results.records import BASELINE, KnobValue, Phase, Point, TrialState
from results.store import RunFolder
from sweeps.arm import measure, up
from sweeps.opened import claim
from sweeps.prepare import prepare
from sweeps.sweep import Sweep, load_sweep
from tests.rigs.needed import needed_image, needed_rig
from tests.waiting import wait_for

pytestmark = [pytest.mark.rig, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DONE = {0, 4}  # a verdict, or undecided after the only look
SECRETS = {"HF_TOKEN": "hf-planted-passed-91c4", "MY_API_KEY": "key-planted-in-env-77ad"}
IN_IMAGE = "planted-in-the-image-4711"


def container(image: str, *volumes: Path | str) -> dict[str, object]:
    """This project and its Python, at their own places inside."""
    own = {ROOT, Path(sys.prefix), Path(sys.base_prefix), *map(Path, volumes)}
    return {
        "image": image,
        "shm_size": "64m",
        "ulimits": {},
        "volumes": [f"{path}:{path}" for path in sorted(own)],
    }


def embedded(image: str, **changes: Any) -> dict[str, Any]:
    pytest.importorskip("xllamacpp")
    return {
        "launcher": "docker",
        "container": container(image),
        "env": {"NCCL_PROTO": "LL128"},
        "args": {"threads": 1, "ctx-size": 1024},
        "space": {"ngram-simple": {"size_n": [2, 4], "size_m": [8]}},
        "workload": {"classes": ["chat"], "prompts_per_class": 2, "max_tokens": 16},
        "budget": {"trials": 2},
        "confirm": {"finalists": 1, "looks": [2]},
        "patience": {"hopeless_ratio": 0, "min_window_s": 0, "foreign_cores": 1000, "client_share": 1},
        **changes,
    }


@pytest.fixture(scope="module")
def image() -> str:
    return needed_image()


@contextmanager
def running_tool(content: Mapping[str, Any], run: Path) -> Iterator[subprocess.Popen[str]]:
    file = run.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(dict(content)))
    command = [sys.executable, str(ROOT / "tuner.py"), "sweep", str(file), "--run", str(run)]
    tool = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HF_TOKEN": SECRETS["HF_TOKEN"]},
    )
    try:
        yield tool
    finally:
        tool.kill()
        tool.communicate()


def containers_of(run: Path) -> list[Any]:
    labelled = {"label": f"tuner.run={run.resolve()}"}
    found: list[Any] = connect().containers.list(all=True, filters=labelled, ignore_removed=True)
    return found


def test_a_whole_sweep_leaves_records_no_secret_and_no_container(image: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    content = embedded(image)
    content["env"]["MY_API_KEY"] = SECRETS["MY_API_KEY"]
    content["container"]["pass_env"] = ["HF_TOKEN"]
    seen: dict[str, str] = {}
    with running_tool(content, run) as tool:
        wait_for(lambda: any(c.status == "running" for c in containers_of(run)), 60)
        running = next(c for c in containers_of(run) if c.status == "running")
        seen.update(_environment_of_pid_1(running))
        labels = str(running.labels)
        output, _ = tool.communicate(timeout=300)
    assert tool.returncode in DONE, output
    assert containers_of(run) == []
    assert seen["NCCL_PROTO"] == "LL128"
    assert seen["HF_TOKEN"] == SECRETS["HF_TOKEN"]  # it arrived
    assert "NCCL_PROTO: LL128" in (run / "sweep.yaml").read_text()
    kept = RunFolder(run)
    arms = [arm for block in kept.blocks() for arm in block.arms]
    assert {arm.image for arm in arms} == {connect().images.get(image).id}
    assert all("NCCL_PROTO=LL128" in arm.argv and "HF_TOKEN" in arm.argv for arm in arms)
    assert [t.state for t in kept.trials()] == [TrialState.MEASURED] * 3
    written = "".join(path.read_bytes().decode("latin1") for path in run.rglob("*") if path.is_file())
    for secret in (*SECRETS.values(), IN_IMAGE):
        assert secret not in written + output + labels


def _environment_of_pid_1(container: Any) -> dict[str, str]:
    exit_code, output = container.exec_run(["cat", "/proc/1/environ"])
    assert exit_code == 0
    return dict(word.split("=", 1) for word in output.decode().split("\0") if word)


def test_the_tool_is_killed_and_reap_ends_exactly_its_containers(image: str, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    with running_tool(embedded(image), other) as living, running_tool(embedded(image), run) as tool:
        wait_for(lambda: len(_lines(run / "trials.jsonl")) >= 2 and _is_up(run), 120)
        tool.send_signal(signal.SIGKILL)
        tool.wait()
        before = _lines(run / "trials.jsonl")
        (left,) = containers_of(run)
        listed = _tuner("reap", str(tmp_path))
        assert f"found container {left.name} ({image}, running)" in listed
        assert "(pid " in listed
        assert "of " + str(run) in listed
        assert "of " + str(other) not in listed  # its tool lives
        assert f"ended container {left.name}" in _tuner("reap", str(run), "--end")
        assert containers_of(run) == []
        output, _ = living.communicate(timeout=300)
        assert living.returncode in DONE, output
    with running_tool(embedded(image), run) as tool:
        output, _ = tool.communicate(timeout=300)
    assert tool.returncode in DONE, output
    assert _lines(run / "trials.jsonl")[: len(before)] == before
    assert len([b for b in RunFolder(run).blocks() if b.phase is Phase.CONFIRM]) == 2


def _is_up(run: Path) -> bool:
    return any(c.status == "running" for c in containers_of(run))


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _tuner(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tuner.py"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_resumed_run_ends_what_its_dead_start_left(image: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running_tool(embedded(image), run) as tool:
        wait_for(lambda: _is_up(run), 120)
        tool.send_signal(signal.SIGKILL)
    with running_tool(embedded(image), run) as tool:
        output, _ = tool.communicate(timeout=300)
    assert "ended a server left behind by an earlier start: container tuner-run-" in output
    assert tool.returncode in DONE, output
    assert reap(run, end=False) == []


def test_a_paused_server_hangs(image: str, tmp_path: Path) -> None:
    """Its port still takes connections: only the missing tokens tell."""
    patience = {"stall_timeout_s": 10, "min_window_s": 0}  # a loaded machine stalls for less
    sweep = Sweep.model_validate(embedded(image, patience=patience, workload={"max_tokens": 900}))
    folder = RunFolder(tmp_path / "run")
    folder.create()
    setup = prepare(sweep).setup(folder)
    window = setup.windows[Phase.SEARCH][0]
    with up(setup, BASELINE, "server") as arm:
        assert arm.failure is None
        timer = threading.Timer(1.0, containers_of(folder.path)[0].pause)
        timer.start()
        measure(setup, arm, window, None)
        timer.join()
        assert arm.failure is not None
        assert arm.failure.reason is Reason.HANG
    assert containers_of(folder.path) == []


def test_too_little_memory_is_named(image: str, tmp_path: Path) -> None:
    content = embedded(image)
    content["container"]["memory"] = "60m"
    folder = RunFolder(tmp_path / "run")
    folder.create()
    setup = prepare(Sweep.model_validate(content)).setup(folder)
    with up(setup, BASELINE, "server") as arm:
        assert arm.failure is not None
        assert arm.failure.reason is Reason.START_OOM
        assert "for lack of memory (its limit is 60m)" in arm.failure.evidence


def test_another_image_is_another_sweep(image: str, tmp_path: Path) -> None:
    client, name = connect(), "tuner-rig-changing:test"
    client.images.get(image).tag(name)
    folder = RunFolder(tmp_path / "run")
    folder.create()
    try:
        sweep = Sweep.model_validate(embedded(name))
        claim(folder, prepare(sweep))
        (folder.path / "trials.jsonl").write_text(_A_TRIAL)
        claim(folder, prepare(sweep))
        made = client.containers.create(image, ["true"])
        made.commit("tuner-rig-changing", "test", changes="ENV MORE=1")
        made.remove()
        with pytest.raises(UsageError, match="what changed: container images"):
            claim(folder, prepare(sweep))
    finally:
        client.images.remove(name)


_A_TRIAL = (
    json.dumps(
        {
            "number": 0,
            "point": {"method": "ngram-simple", "knobs": {"size_n": 4, "size_m": 8}},
            "source": "start",
            "state": "measured",
            "log_speedup": 0.0,
            "by_cell": {},
            "blocks": [],
        }
    )
    + "\n"
)


def test_sglang_serves_in_a_container(image: str, tmp_path: Path) -> None:
    """Two ranks on a bridge: asked in the image, started, under load, settings and variables read back."""
    python = needed_rig("sglang")
    rig = python.parents[1]
    base = Path(os.path.realpath(python)).parents[1]
    example = load_sweep(EXAMPLES / "sglang-cpu.yaml").model_dump()
    example["workload"] |= {"prompts_per_class": 2, "max_tokens": 32}
    knobs: dict[str, KnobValue] = {"num_steps": 2, "topk": 2, "draft_tokens": 6}
    point = Point("EAGLE3", {**knobs, "--disable-custom-all-reduce": True, "NCCL_ALGO": "Ring"})
    content = {
        **example,
        "server": str(python),
        "launcher": "docker",
        "container": {**container(image, rig, base), "network": "bridge", "shm_size": "1g"},
        "space": {"EAGLE3": {"num_steps": [2], "topk": [2], "draft_tokens": [6]}},
        "shared": {
            "--disable-custom-all-reduce": [False, True],
            "NCCL_ALGO": ["unset", "Ring"],
            "NCCL_PROTO": ["LL", "unset"],
        },
        "patience": {"foreign_cores": 100, "client_share": 1, "hopeless_ratio": 0, "min_window_s": 0},
    }
    # Two ranks: with one, NCCL's variables are no dimensions.
    content["args"] = {**content["args"], "tp-size": 2, "sleep-on-idle": True}
    content["env"] = {**content["env"], "NCCL_PROTO": "Simple", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    folder = RunFolder(tmp_path / "run")
    folder.create()
    plan = prepare(Sweep.model_validate(content))
    setup = plan.setup(folder)
    assert "could not resolve" not in " ".join(plan.engine.notes(plan.served))
    assert point.key in plan.space.points
    window = setup.windows[Phase.SEARCH][0]
    with up(setup, point, "server") as arm:
        assert arm.failure is None, arm.failure
        assert arm.endpoint is not None
        seen = arm.endpoint.environment() or {}
        assert (seen["NCCL_ALGO"], seen["NCCL_PROTO"]) == ("Ring", "Simple")
        requests = measure(setup, arm, window, None)
    assert all(request.error is None for request in requests)
    record = arm.record()
    assert record.effective["num_steps"] == 2
    assert record.measurements[0].acceptance.counters is not None
    assert record.measurements[0].acceptance.counters.accepted_tokens > 0
    assert record.variables is not None
    assert record.variables.seen is not None
    assert record.variables.seen["NCCL_ALGO"] == "Ring"
    assert record.variables.by_engine["NCCL_NVLS_ENABLE"] == "0"  # SGLang's own, for its workers
    assert record.variables.unconfirmed == ("NCCL_ALGO", "NCCL_PROTO")  # this torch has no NCCL
    assert "NCCL was not tried" in record.variables.note
    assert "-e" in record.argv
    assert "NCCL_ALGO=Ring" in record.argv

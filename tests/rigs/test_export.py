"""Exports that real engines are started with, by bash, as whoever deploys them would."""

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from launchers.embedded.model import find_model
from launchers.engines.engine import Engine, Served
from launchers.engines.http import get_json
from launchers.engines.llamacpp.engine import LlamaCpp
from launchers.engines.sglang.engine import Sglang
from launchers.engines.vllm.engine import Vllm
from launchers.launcher import Endpoint, Launch
from launchers.port import free_port
from launchers.process import ProcessLauncher
from results.records import ArmRun, Cell, KnobValue, Point
from results.store import RunFolder
from sweeps.export.export import export
from tests.exported import Measured, Speeds, run_folder
from tests.records import arm
from tests.rigs.needed import needed_rig
from tests.waiting import wait_for

pytestmark = [pytest.mark.rig, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PAIR = Path(__file__).with_name("pair")
ONE, EIGHT, MANY = (Cell("code_edit", f"closed({n})") for n in (1, 8, 32))


def folder_of(
    path: Path, engine: Engine, served: Served, measured: Measured, env: Mapping[str, str]
) -> RunFolder:
    """The folder of a sweep that started this engine's own command lines."""

    def arm_of(point: Point, speeds: Speeds) -> ArmRun:
        return replace(arm(point, speeds), argv=engine.command(point, served, 41234))

    sweep = {"name": "first", "engine": engine.name, "env": dict(env)}
    return run_folder(path / "run", sweep, measured, arm_of, measured[:1])


@contextmanager
def by_bash(command: str, port: int, engine: Engine, tmp_path: Path, **env: str) -> Iterator[Endpoint]:
    """What bash starts from this text, once it is ready."""
    script = tmp_path / "serve.sh"
    script.write_text(command, encoding="utf-8")
    launch = Launch(("bash", str(script)), port, tmp_path / "server.log", env)
    with ProcessLauncher(tmp_path).start(launch) as endpoint:
        wait_for(lambda: engine.is_ready(endpoint) or endpoint.exit_code() is not None, cap_s=300)
        assert endpoint.exit_code() is None, endpoint.log_path.read_text()[-2000:]
        yield endpoint


def answer(endpoint: Endpoint, model: str = "any") -> str:
    body = {"model": model, "prompt": "def add(a, b):", "max_tokens": 24, "temperature": 0}
    told = requests.post(f"{endpoint.base_url}/v1/completions", json=body, timeout=120)
    assert told.ok, told.text
    return str(told.json()["choices"][0]["text"])


def test_the_exported_command_serves_the_winner(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    engine = LlamaCpp()
    served = Served(find_model("smollm2-135m"), None, {"ctx-size": 2048, "threads": 1, "parallel": 2}, {})
    point = Point("ngram-simple", {"size_n": 3, "size_m": 5})
    folder = folder_of(tmp_path, engine, served, [(point, {ONE: 130.0})], {})
    port = free_port()
    text = export(folder, "command", port=port).text
    with by_bash(text, port, engine, tmp_path, PYTHONPATH=str(ROOT)) as endpoint:
        props = get_json(f"{endpoint.base_url}/props")
        assert Path(props["model_path"]) == served.model
        assert props["total_slots"] == 2
        back = engine.read_back(endpoint, point, served)
        assert {**point.knobs, "method": point.method}.items() <= dict(back.effective).items()
        assert answer(endpoint)


SGLANG_ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
}
SGLANG_ARGS: dict[str, KnobValue] = {
    "device": "cpu",
    "dtype": "float32",
    "mem-fraction-static": 0.4,
    "max-total-tokens": 8192,
    "sleep-on-idle": True,
    "cuda-graph-backend-decode": "disabled",  # the states of adaptive speculation would want one on a CPU too
}


def test_sglang_starts_with_the_exported_adaptive_configuration(tmp_path: Path) -> None:
    engine = Sglang(str(needed_rig("sglang")))
    pair = engine.resolve(str(PAIR / "target"), str(PAIR / "head"), SGLANG_ARGS, SGLANG_ENV)
    long, short = (Point("EAGLE3", {"num_steps": n, "topk": 1}) for n in (3, 1))
    measured = [
        (long, {ONE: 150.0, EIGHT: 110.0, MANY: 80.0}),
        (short, {ONE: 110.0, EIGHT: 120.0, MANY: 75.0}),
    ]
    folder = folder_of(tmp_path, engine, pair, measured, SGLANG_ENV)
    port, file = free_port(), tmp_path / "adaptive.json"
    file.write_text(export(folder, "sglang-adaptive", port=port, file=file).text, encoding="utf-8")
    config = json.loads(file.read_text("utf-8"))
    assert {k: v for k, v in config.items() if k.isdigit()} == {
        "1": {"candidate_steps": [3]},
        "3": {"candidate_steps": [1]},
        "17": {"candidate_steps": [0]},
    }
    with by_bash(config["tuner"]["command"], port, engine, tmp_path) as endpoint:
        info: Mapping[str, Any] = get_json(f"{endpoint.base_url}/server_info")
        assert info["speculative_adaptive"] is True
        assert info["speculative_adaptive_config"] == str(file)
        assert (info["speculative_num_steps"], info["speculative_eagle_topk"]) == (3, 1)
        adaptive = Point(long.method, {**long.knobs, "adaptive": True, "adaptive_config": str(file)})
        assert engine.read_back(endpoint, adaptive, pair).rewrites == ()
        assert answer(endpoint)
        assert (
            "AdaptiveSpeculativeParams initialized: steps=3, candidate_steps=[3]"
            in endpoint.log_path.read_text()
        )


VLLM_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
VLLM_ARGS: dict[str, KnobValue] = {
    "dtype": "float32",
    "max-model-len": 1024,
    "enforce-eager": True,
    "max-num-seqs": 8,
    "max-num-batched-tokens": 1024,
}


def test_vllm_starts_with_the_exported_schedule(tmp_path: Path) -> None:
    engine = Vllm(str(needed_rig("vllm")))
    served = Served(PAIR / "target", PAIR / "head", VLLM_ARGS, VLLM_ENV)
    long, short = (engine.canonical(Point("eagle3", {"num_speculative_tokens": n})) for n in (3, 1))
    measured = [(long, {ONE: 140.0, EIGHT: 90.0}), (short, {ONE: 110.0, EIGHT: 95.0})]
    folder = folder_of(tmp_path, engine, served, measured, VLLM_ENV)
    port = free_port()
    text = export(folder, "vllm-schedule", port=port).text
    with by_bash(text, port, engine, tmp_path, VLLM_SERVER_DEV_MODE="1") as endpoint:
        asked = Point("eagle3", {**long.knobs, "tokens_per_batch_size": "1-2:3,3-:0"})
        back = engine.read_back(endpoint, asked, served)
        assert back.rewrites == ()
        assert back.effective["tokens_per_batch_size"] == "1-2:3,3-:0"
        assert back.effective["num_speculative_tokens"] == 3
        assert answer(endpoint, str(served.model))
        assert shlex.split(text.split("exec ")[1])[0] == str(needed_rig("vllm"))

"""The sweep file's `launcher` and `container`, and a plan on a machine that has neither image nor model."""

from pathlib import Path

import pytest

from results.errors import UsageError
from sweeps.forecast import Forecast, forecast
from sweeps.prepare import prepare
from sweeps.sweep import parse_sweep

IN_DOCKER = "launcher: docker\ncontainer: {image: x:1, %s}"
SGLANG = """
engine: sglang
model: /models/large
draft: /models/head
launcher: docker
container: {image: "some/sglang:v1", gpus: all, pass_env: [HF_TOKEN], volumes: ["/no/such:/data"]}
env: {NCCL_PROTO: LL128}
args: {tp-size: 8}
space: {EAGLE3: {num_steps: [3], topk: [4], draft_tokens: [8]}, NEXTN: {num_steps: [3], topk: [1]}}
"""
VLLM = """
engine: vllm
model: /models/large
draft: /models/head
launcher: docker
container: {image: "some/vllm:v1", gpus: [0, 1], network: bridge}
args: {tensor-parallel-size: 2}
space: {eagle3: {num_speculative_tokens: [3]}}
"""
LLAMA = """
engine: llamacpp
server: /app/llama-server
model: /models/m.gguf
draft: /models/d.gguf
launcher: docker
container: {image: "some/llama:v1"}
space: {draft-simple: {n_max: [4], n_min: [0], p_min: [0.5]}}
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("launcher: docker", "container.image: `launcher: docker` needs it: container: {image: NAME:TAG}"),
        ("launcher: docker\ncontainer: {gpus: all}", "container.image: `launcher: docker` needs it"),
        ("container: {image: x}", "container: is for `launcher: docker`: add that, or remove the section"),
        ("engine: fake\n" + IN_DOCKER % "", "launcher: the engine fake runs in no container"),
        (IN_DOCKER % "gpu: all", "container.gpu: unknown key (did you mean 'gpus'?)"),
        (IN_DOCKER % "gpus: some", "container.gpus: 'some' is neither all, nor a count, nor a list"),
        (IN_DOCKER % "gpus: true", "container.gpus: True is neither all, nor a count, nor a list"),
        (IN_DOCKER % "gpus: 0", "container.gpus: 0 is neither all, nor a count, nor a list"),
        (IN_DOCKER % "gpus: []", "container.gpus: [] is neither all, nor a count, nor a list"),
        (IN_DOCKER % "shm_size: 32", "container.shm_size: 32 has no unit: write it like 16g"),
        (IN_DOCKER % "memory: 64", "container.memory: 64 has no unit: write it like 16g"),
        (IN_DOCKER % "ulimits: {memlok: -1}", "ulimits.memlok: no such limit (did you mean memlock?)"),
        (
            IN_DOCKER % "options: {pids_limit: many}",
            "options.pids_limit: expected a whole number, not 'many'",
        ),
        ("shared: {NCCL_PROTO: [null, LL]}", "shared: NCCL_PROTO: null is no value; write `unset`"),
        (IN_DOCKER % "options: {userns_mode: keep}", "options.userns_mode: expected host, the one value"),
        ("shared: {NCCL_PROTO: }", "shared: NCCL_PROTO: null is no value; write `unset`"),
        (IN_DOCKER % "shm_size: big", "container.shm_size: 'big' is no size"),
        (IN_DOCKER % "options: {cap-ad: [X]}", "did you mean cap_add?"),
    ],
)
def test_a_mistake_says_what_to_do(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_sweep(text)
    assert told in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_sweep_reads_back_from_its_own_file() -> None:
    sweep = parse_sweep(SGLANG)
    again = parse_sweep(sweep.to_yaml())
    assert again == sweep
    assert again.identity() == sweep.identity()
    assert parse_sweep(SGLANG, ["container.image=other:2"]).identity() != sweep.identity()


def test_a_sweep_without_a_container_is_what_it_was() -> None:
    """Run folders of before know no launcher."""
    assert parse_sweep("launcher: process").identity() == parse_sweep("").identity()


@pytest.fixture(autouse=True)
def no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


def plan(text: str) -> Forecast:
    return forecast(prepare(parse_sweep(text), planning=True))


def test_sglang_is_planned_without_image_and_models() -> None:
    told = plan(SGLANG)
    head = "docker run --rm --init --gpus all --ipc private --shm-size 17179869184"
    assert told.baseline.startswith(head)
    assert (
        "-v /no/such:/data:ro -v /models/head:/models/head:ro -v /models/large:/models/large:ro"
        in told.baseline
    )
    assert "-e NCCL_PROTO=LL128 -e HF_TOKEN --log-driver" in told.baseline
    assert (
        "--entrypoint python3 some/sglang:v1 -m sglang.launch_server --model-path /models/large"
        " --host 127.0.0.1 --port 8080" in told.baseline
    )
    assert "--tp-size 8 --max-running-requests 48" in told.baseline  # the cap of speculation, in both arms
    assert "--speculative-algorithm" not in told.baseline
    assert any("--speculative-algorithm EAGLE3" in trial for trial in told.first_trials)
    notes = "\n".join(told.notes)
    for path in ("/models/large", "/models/head", "/no/such"):
        assert f"{path} is not on this machine: not looked at" in notes
    assert "the image some/sglang:v1 was not asked: no container daemon" in notes
    assert "flags were checked against those of SGLang 0.5.23" in notes


def test_vllm_is_planned_without_image_and_models() -> None:
    told = plan(VLLM)
    (trial,) = told.first_trials
    assert "--gpus '\"device=0,1\"'" in trial
    assert "-p 127.0.0.1:8080:8080" in trial
    assert "--host 0.0.0.0 --port 8080" in trial  # inside; outside it is published on loopback only
    assert '"model": "/models/head"' in trial
    assert any("those of vLLM 0.32.0 on a GPU" in note for note in told.notes)


def test_llama_cpp_is_planned_without_image_and_models() -> None:
    told = plan(LLAMA)
    assert "--entrypoint /app/llama-server some/llama:v1 --model /models/m.gguf" in told.baseline
    assert "--model-draft /models/d.gguf" in told.first_trials[0]


@pytest.mark.parametrize("text", [SGLANG, VLLM, LLAMA])
def test_a_plan_still_knows_a_wrong_flag_and_a_run_refuses(text: str) -> None:
    if "llama" not in text:
        with pytest.raises(UsageError, match="no flag --no-such-flag"):
            plan(text.replace("args: {", "args: {no-such-flag: 1, "))
    with pytest.raises(UsageError, match=r"no container daemon|no such f"):
        prepare(parse_sweep(text))


def test_a_run_refuses_a_volume_that_is_not_there(tmp_path: Path) -> None:
    """Docker would make an empty folder of it."""
    text = IN_DOCKER % f'volumes: ["{tmp_path}/none:/x"]'
    with pytest.raises(UsageError, match=rf"container\.volumes: there is no {tmp_path}/none on this machine"):
        prepare(parse_sweep(text))

"""`tuner init --from`: launch commands of the kinds that engines' documentation and users' scripts have."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from results.errors import UsageError
from results.records import KnobValue
from results.secrets import is_secret, looks_secret
from sweeps.draft_file import sweep_file
from sweeps.from_command import draft_sweep
from sweeps.sweep import Sweep, parse_sweep

VARIABLES = {"HOME": "/home/me"}
TOKEN = "hf_" + "aB3dE5gH7jK9" * 3


def file_of(command: str) -> str:
    return sweep_file(draft_sweep(command, VARIABLES), "sweep.yaml")


def sweep_of(command: str) -> Sweep:
    return parse_sweep(file_of(command))


def notes_of(command: str) -> str:
    return "\n".join(draft_sweep(command, VARIABLES).notes)


@dataclass(frozen=True)
class Case:
    name: str
    command: str
    engine: str
    model: str
    server: str = "python3"
    draft: str | None = None
    args: Mapping[str, KnobValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    space: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] | None = None


NGRAM: dict[str, Any] = {"NGRAM": None}
FREE: dict[str, Any] = {"ngram-simple": None, "ngram-mod": None}
CASES = [
    Case(
        "sglang module, EAGLE3",
        "python3 -m sglang.launch_server --model meta-llama/Llama-3.1-8B-Instruct"
        " --speculative-algorithm EAGLE3 --speculative-draft-model-path org/EAGLE3-Llama"
        " --speculative-num-steps 3 --speculative-eagle-topk 4"
        " --speculative-num-draft-tokens 8 --mem-fraction-static 0.75 --cuda-graph-max-bs 2 --dtype float16"
        " --port 30000 --log-level warning",
        "sglang",
        "meta-llama/Llama-3.1-8B-Instruct",
        draft="org/EAGLE3-Llama",
        args={
            "mem-fraction-static": 0.75,
            "cuda-graph-max-bs": 2,
            "dtype": "float16",
            "log-level": "warning",
        },
        space={
            "EAGLE3": {"num_steps": [1, 2, 3, 4, 5], "topk": [1, 2, 4, 8], "draft_tokens": [4, 8, 16]},
            **NGRAM,
        },
    ),
    Case(
        "sglang serve of a venv, MTP, fixed speculative arguments stay",
        "/opt/sgl/bin/sglang serve --model-path deepseek-ai/DeepSeek-R1 --tp 8 --trust-remote-code"
        " --speculative-algo NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1"
        " --speculative-num-draft-tokens 2 --speculative-attention-mode decode --chunked-prefill-size -1"
        " --speculative-token-map map.pt",
        "sglang",
        "deepseek-ai/DeepSeek-R1",
        server="/opt/sgl/bin/python",
        args={
            "tensor-parallel-size": 8,
            "trust-remote-code": True,
            "speculative-attention-mode": "decode",
            "chunked-prefill-size": -1,
            "speculative-token-map": "map.pt",
        },
        space={"NEXTN": {"num_steps": [1, 2, 3], "topk": [1, 2, 4], "draft_tokens": [2, 4]}, **NGRAM},
    ),
    Case(
        "sglang NGRAM with its own knobs",
        "python -m sglang.launch_server --model-path q --speculative-algorithm NGRAM"
        " --speculative-num-draft-tokens 16 --speculative-ngram-max-bfs-breadth 8"
        " --speculative-ngram-min-match-window-size=1 --speculative-ngram-match-type BFS",
        "sglang",
        "q",
        server="python",
        args={"speculative-ngram-match-type": "BFS"},
        space={
            "NGRAM": {"draft_tokens": [8, 16, 32], "breadth": [4, 8, 16], "min_match_window_size": [1, 2]}
        },
    ),
    Case(
        "sglang standalone, underscores, several values, variables before the command",
        "SGLANG_ENABLE_X=1 NCCL_PROTO=LL CUDA_VISIBLE_DEVICES=0,1 python3 -u -m sglang.launch_server"
        " --model_path=Qwen/Qwen3-8B --speculative_algorithm standalone"
        " --speculative-draft-model-path Qwen/Qwen3-0.6B"
        " --cuda-graph-bs 1 2 4 8 --disable-radix-cache --enable-metrics",
        "sglang",
        "Qwen/Qwen3-8B",
        draft="Qwen/Qwen3-0.6B",
        args={"cuda-graph-bs": "1 2 4 8", "disable-radix-cache": True},
        env={"SGLANG_ENABLE_X": "1", "NCCL_PROTO": "LL", "CUDA_VISIBLE_DEVICES": "0,1"},
        space={"STANDALONE": None, **NGRAM},
    ),
    Case(
        "sglang without speculation",
        "python3 -m sglang.launch_server --model-path m --dp-size 2",
        "sglang",
        "m",
        args={"data-parallel-size": 2},
        space=NGRAM,
    ),
    Case(
        "sglang in docker",
        "docker run -d --gpus '\"device=0,1\"' --shm-size 32g -p 30000:30000 -v ~/models:/models:ro \\\n"
        f'  --env "HF_TOKEN={TOKEN}" -e NCCL_ALGO=Ring -e WANDB_API_KEY --ipc=host --rm \\\n'
        "  lmsysorg/sglang:latest \\\n"
        "  python3 -m sglang.launch_server --model-path /models/llama --host 0.0.0.0 --port 30000\n",
        "sglang",
        "/home/me/models/llama",
        env={"NCCL_ALGO": "Ring"},
        space=NGRAM,
        container={
            "image": "lmsysorg/sglang:latest",
            "gpus": [0, 1],
            "ipc": "host",
            "shm_size": "32g",
            "volumes": ["/home/me/models:/models:ro"],
            "pass_env": ["WANDB_API_KEY", "HF_TOKEN"],
        },
    ),
    Case(
        "sglang in docker, in a shell",
        "docker run --gpus all IMG:1"
        ' bash -c "pip install x && python3 -m sglang.launch_server --model-path m --tp 2"',
        "sglang",
        "m",
        args={"tensor-parallel-size": 2},
        space=NGRAM,
        container={"image": "IMG:1", "gpus": "all"},
    ),
    Case(
        "vllm serve, ngram",
        "vllm serve meta-llama/Llama-3.1-8B -tp 4 --max_model_len 4096 --gpu-memory-utilization 0.9"
        " --served-model-name a b"
        " --speculative-config"
        """ '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'""",
        "vllm",
        "meta-llama/Llama-3.1-8B",
        args={"tensor-parallel-size": 4, "max-model-len": 4096, "gpu-memory-utilization": 0.9},
        space={"ngram": {"num_speculative_tokens": [3, 4, 5, 6, 7], "prompt_lookup_max": [2, 4, 8]}},
    ),
    Case(
        "vllm serve, EAGLE-3, the rest of the JSON stays",
        'vllm serve m --speculative_config="{\\"method\\": \\"eagle3\\", \\"model\\": \\"org/head\\",'
        ' \\"num_speculative_tokens\\": 3, \\"draft_tensor_parallel_size\\": 1, \\"max_model_len\\": 2048,'
        ' \\"num_speculative_tokens_per_batch_size\\": [[1, 8, 3], [9, 64, 0]]}" --seed 42 --enforce-eager',
        "vllm",
        "m",
        draft="org/head",
        args={
            "seed": 42,
            "enforce-eager": True,
            "speculative-config.draft_tensor_parallel_size": 1,
            "speculative-config.max_model_len": 2048,
            "speculative-config.num_speculative_tokens_per_batch_size": "[[1, 8, 3], [9, 64, 0]]",
        },
        space={"eagle3": {"num_speculative_tokens": [1, 2, 3, 4, 5]}, "ngram": None},
    ),
    Case(
        "vllm module, model guessed from the draft's name",
        "python -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --model m --trust-remote-code"
        """ --speculative-config '{"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 10}'""",
        "vllm",
        "m",
        server="python",
        draft="Qwen/Qwen3-0.6B",
        args={"trust-remote-code": True},
        space={"draft_model": {"num_speculative_tokens": [7, 8, 10, 12, 16]}, "ngram": None},
    ),
    Case(
        "vllm serve, keys of the JSON one by one, model last",
        "vllm serve --speculative-config.method deepseek_mtp --speculative-config.num_speculative_tokens 1"
        " --enable-expert-parallel -O3 zai-org/GLM-4.7-FP8",
        "vllm",
        "zai-org/GLM-4.7-FP8",
        args={"enable-expert-parallel": True, "optimization-level": 3},
        space={"mtp": {"num_speculative_tokens": [1, 2, 3]}, "ngram": None},
    ),
    Case(
        "vllm serve, short flags",
        "vllm serve m --spec-method suffix --spec-tokens 32 -sc.suffix_decoding_max_tree_depth 24 -cc.mode=3",
        "vllm",
        "m",
        args={"compilation-config.mode": 3},
        space={
            "suffix": {
                "num_speculative_tokens": [16, 24, 32],
                "suffix_decoding_max_tree_depth": [16, 24, 32],
            },
            "ngram": None,
        },
    ),
    Case(
        "vllm, flags that were removed",
        "python3 -m vllm.entrypoints.openai.api_server --model facebook/opt-6.7b --speculative-model [ngram]"
        " --num-speculative-tokens 5 --ngram-prompt-lookup-max 4 --ngram-prompt-lookup-min 1",
        "vllm",
        "facebook/opt-6.7b",
        space={
            "ngram": {
                "num_speculative_tokens": [3, 4, 5, 6, 7],
                "prompt_lookup_min": [1, 2],
                "prompt_lookup_max": [2, 4, 8],
            }
        },
    ),
    Case(
        "vllm in docker, the entrypoint is the server",
        "docker run --runtime nvidia --gpus all -v ~/.cache/huggingface:/root/.cache/huggingface"
        f' --env "HUGGING_FACE_HUB_TOKEN={TOKEN}" -p 8000:8000 --ipc=host vllm/vllm-openai:latest'
        " --model mistralai/Mistral-7B-v0.1 --tensor-parallel-size 2",
        "vllm",
        "mistralai/Mistral-7B-v0.1",
        args={"tensor-parallel-size": 2},
        space={"ngram": None},
        container={
            "image": "vllm/vllm-openai:latest",
            "gpus": "all",
            "ipc": "host",
            "volumes": ["/home/me/.cache/huggingface:/root/.cache/huggingface:rw"],
            "pass_env": ["HUGGING_FACE_HUB_TOKEN"],
            "options": {"runtime": "nvidia"},
        },
    ),
    Case(
        "vllm in podman, entrypoint of its own, bind mount, attached short options",
        "podman run -it -p8000:8000 -eVLLM_USE_V1=1 --mount type=bind,source=/data,target=/w"
        " --entrypoint python3"
        " docker.io/vllm/vllm-openai:v0.32.0 -m vllm.entrypoints.openai.api_server"
        " --model /w/m --lora-path /w/l",
        "vllm",
        "/data/m",
        args={"lora-path": "/w/l"},
        env={"VLLM_USE_V1": "1"},
        space={"ngram": None},
        container={"image": "docker.io/vllm/vllm-openai:v0.32.0", "volumes": ["/data:/w:rw"]},
    ),
    Case(
        "vllm in podman, every option that a key says",
        "podman run --device nvidia.com/gpu=0 --device nvidia.com/gpu=GPU-1 --net mine -u 1000:1000 -m 64g"
        " --cpus 7.5 --cpuset-cpus 0-7 --privileged --ulimit memlock=-1 --ulimit nofile=512:1024"
        " --mount type=bind,src=/d,dst=/d,readonly -v cache:/root/.cache --cap-add A --cap-add B"
        " --sysctl a.b=1 --init=false --device /dev/infiniband vllm/vllm-openai serve m",
        "vllm",
        "m",
        space={"ngram": None},
        container={
            "image": "vllm/vllm-openai",
            "gpus": [0, "GPU-1"],
            "ulimits": {"memlock": -1, "nofile": "512:1024"},
            "network": "mine",
            "volumes": ["/d:/d:ro", "cache:/root/.cache:rw"],
            "user": "1000:1000",
            "memory": "64g",
            "cpus": 7.5,
            "cpuset": "0-7",
            "privileged": True,
            "options": {
                "cap_add": ["A", "B"],
                "sysctls": {"a.b": "1"},
                "init": False,
                "devices": ["/dev/infiniband"],
            },
        },
    ),
    Case(
        "a script: shebang, variables, defaults, comments, a venv, a log",
        "#!/bin/bash\nset -euo pipefail\n# serve it\nMODEL=${MODEL:-Qwen/Qwen3-32B}\nTP=4\n"
        "export VLLM_ATTENTION_BACKEND=FLASHINFER PATH=/usr/local/bin:$PATH\nsource ~/venv/bin/activate\n"
        'nohup numactl --cpunodebind=0 python -m vllm.entrypoints.openai.api_server --model "$MODEL" \\\n'
        "  --tensor-parallel-size $TP \\\n  --port ${PORT} \\\n  --dtype auto\n"
        "  #--quantization fp8 \\\n  --max-num-seqs 64 > server.log 2>&1 &\necho started $!\n",
        "vllm",
        "Qwen/Qwen3-32B",
        server="/home/me/venv/bin/python",
        args={"tensor-parallel-size": 4, "dtype": "auto", "max-num-seqs": 64},
        env={"VLLM_ATTENTION_BACKEND": "FLASHINFER"},
        space={"ngram": None},
    ),
    Case(
        "a script with arrays and branches",
        "CMD=(python3 -m sglang.launch_server)\nARGS=(\n  --model-path 'a b'  # the model\n  --tp 2\n)\n"
        'if [[ "${SPEC:-1}" == 1 ]]; then\n  ARGS+=(--speculative-algorithm NGRAM)\nfi\n'
        'EXTRA="--dtype auto"\nEXTRA+=" --log-requests"\n"${CMD[@]}" "${ARGS[@]}" $EXTRA ${NONE:-}\n',
        "sglang",
        "a b",
        args={"tensor-parallel-size": 2, "dtype": "auto", "log-requests": True},
        space=NGRAM,
    ),
    Case(
        "as /proc/PID/cmdline has it",
        'python3\0-m\0sglang.launch_server\0--model-path\0/m/$x\0--x\0{"a": "it\'s"}\0',
        "sglang",
        "/m/$x",
        args={"x": '{"a": "it\'s"}'},
        space=NGRAM,
    ),
    Case(
        "as ps prints it, quotes lost",
        "/v/bin/python /v/bin/vllm serve m"
        ' --speculative-config {"method": "ngram", "num_speculative_tokens": 2}'
        ' --x={"a b": [1, {"c": "d"}]}',
        "vllm",
        "m",
        server="/v/bin/python",
        args={"x": '{"a b": [1, {"c": "d"}]}'},
        space={"ngram": {"num_speculative_tokens": [1, 2, 3, 4]}},
    ),
    Case(
        "in a job on a cluster",
        "srun --gpus=8 bash -lc 'source /opt/v/bin/activate; export NCCL_DEBUG=INFO; vllm serve m -tp 8'",
        "vllm",
        "m",
        server="/opt/v/bin/python",
        args={"tensor-parallel-size": 8},
        env={"NCCL_DEBUG": "INFO"},
        space={"ngram": None},
    ),
    Case(
        "copied from a page: prompt, fence, a lost backslash",
        '```bash\n$ env A=b vllm serve unsloth/Qwen3\n    --speculative-config \'{"method": "mtp",'
        ' "num_speculative_tokens": 2}\'\n```',
        "vllm",
        "unsloth/Qwen3",
        env={"A": "b"},
        space={"mtp": {"num_speculative_tokens": [1, 2, 3, 4]}, "ngram": None},
    ),
    Case(
        "llama-server with a draft model",
        "./build/bin/llama-server -m x.gguf -md d.gguf --spec-type draft-simple --spec-draft-n-max 8"
        " -c 8192 -ngl 99"
        " -fa on -np 2 --jinja --port 8080 -ot exps=CPU",
        "llamacpp",
        "x.gguf",
        server="./build/bin/llama-server",
        draft="d.gguf",
        args={
            "ctx-size": 8192,
            "gpu-layers": 99,
            "flash-attn": "on",
            "parallel": 2,
            "jinja": True,
            "override-tensor": "exps=CPU",
        },
        space={"draft-simple": {"n_max": [4, 6, 8, 12, 16]}, **FREE},
    ),
    Case(
        "llama-server with removed draft flags",
        "llama-server -m x.gguf -md d.gguf -ngld 99 --draft-max 16 --draft-min 2 --draft-p-min 0.75",
        "llamacpp",
        "x.gguf",
        server="llama-server",
        draft="d.gguf",
        space={"draft-simple": {"n_max": [8, 12, 16], "n_min": [0, 1, 2], "p_min": [0.3, 0.5, 0.75]}, **FREE},
    ),
    Case(
        "llama-server with an n-gram method, in docker",
        "docker run -v /srv/models:/models -p 8080:8080 ghcr.io/ggml-org/llama.cpp:server-cuda"
        " -m /models/m.gguf"
        " --spec-type ngram-simple --spec-ngram-simple-size-n 4 -t 8",
        "llamacpp",
        "/srv/models/m.gguf",
        server="/app/llama-server",
        args={"threads": 8},
        space={"ngram-simple": {"size_n": [2, 3, 4, 6, 8]}, "ngram-mod": None},
        container={
            "image": "ghcr.io/ggml-org/llama.cpp:server-cuda",
            "volumes": ["/srv/models:/models:rw"],
        },
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_sweep_of_a_command(case: Case) -> None:
    sweep = sweep_of(case.command)
    assert (sweep.engine, sweep.server) == (case.engine, case.server)
    assert (sweep.model, sweep.draft) == (case.model, case.draft)
    assert sweep.args == case.args
    assert sweep.env == case.env
    assert sweep.space == case.space
    section = sweep.container and sweep.container.model_dump(exclude_unset=True)
    assert section == case.container
    assert sweep.launcher == ("docker" if case.container else "process")


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("-p 8000:8000", "# left out: -p 8000:8000: the port is published by the tool, on loopback only"),
        ("--restart always", "# left out: --restart always: a server that comes back by itself"),
        ("--env-file .env", "# left out: --env-file .env: write its variables under env"),
        ("--shm-size $S", "# left out: --shm-size $S: its value is not in this text"),
        ("--gpus some", "# left out: --gpus some: no key of this file says it"),
        ("--ipc container:x", "# left out: --ipc container:x: no key"),
        ("--network none", "# left out: --network none: no key"),
        ("--mount type=tmpfs,dst=/x", "# left out: --mount type=tmpfs,dst=/x: no key"),
        (f"--label t={TOKEN}", "# left out: --label (a secret)"),
    ],
)
def test_what_no_key_says_is_left_as_a_comment(option: str, line: str) -> None:
    text = file_of(f"docker run {option} vllm/vllm-openai m")
    assert line in text
    assert parse_sweep(text).container is not None


def test_variables_without_a_value_come_from_where_tuner_runs() -> None:
    sweep = sweep_of("docker run -e A=$B -e HF_TOKEN=$HF_TOKEN -e C vllm/vllm-openai m")
    assert sweep.container is not None
    assert sweep.container.pass_env == ["C", "A", "HF_TOKEN"]
    assert sweep.env == {}


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("sglang serve --model m --api-key EMPTY", "--api-key holds a secret, left out"),
        (f"HF_TOKEN={TOKEN} sglang serve --model m", "HF_TOKEN is a secret, left out"),
        ("docker run -e HF_TOKEN lmsysorg/sglang sglang serve --model m", "HF_TOKEN comes from the caller's"),
        ("docker run lmsysorg/sglang sglang serve --model m", "container gets the host's network"),
        ("docker run -v /m:/m lmsysorg/sglang sglang serve --model m", "volumes are writable, as in your"),
        (
            "docker run -v /a:/m lmsysorg/sglang sglang serve --model /m/x",
            "/m/x in the container is /a/x here",
        ),
        ("docker run lmsysorg/sglang sglang serve --model /m/x", "/m/x is a path inside the container"),
        ("numactl -N 0 sglang serve --model m", "`numactl -N 0`: put that before `tuner sweep`"),
        ("uv run vllm serve m", "`uv run which python` prints it"),
        ("sglang serve --model m --speculative-algo DFLASH --tp 2", "DFLASH is not searched yet"),
        ("sglang serve --model m --speculative-algo EAGLE3", "EAGLE3 needs a draft model"),
        ("sglang serve --model m", "has no speculation: NGRAM is tried"),
        ("sglang serve --model m --speculative-num-steps 3", "--speculative-num-steps: without effect"),
        (
            "sglang serve --model m --speculative-algo EAGLE --speculative-accept-threshold-acc 0.9",
            "(lossy)",
        ),
        ("sglang serve --model m --tp 2 --tp 4", "--tensor-parallel-size is given more than once"),
        ("sglang serve --model m --tp 4 --nnodes 2 --node-rank 1", "a server over several machines is"),
        ("vllm serve m -tp 4 --nnodes 2 --headless", "--nnodes, --headless: left out, a server over several"),
        ("if true; then sglang serve --model m; fi", "the script has branches"),
        ("vllm serve m --host 0.0.0.0 --port $P", "--host, --port: left out, tuner sets it itself"),
        ("vllm serve m --config c.yaml", "--config names a file"),
        ("vllm serve m --disable-log-stats", "--disable-log-stats: left out, it switches off the counters"),
        ("vllm serve m -sc.method dflash", "method dflash is not searched yet"),
        ("vllm serve m -sc.num_speculative_tokens 2", "names no method: taken as mtp"),
        ("vllm serve m -sc.method ngram -sc.suffix_decoding_max_tree_depth 8", "without effect with ngram"),
        ("llama-server -m x.gguf -md d.gguf", "draft-simple is searched"),
        ("llama-server -m x.gguf --spec-type draft-eagle3,ngram-mod", "draft-eagle3 is not searched yet"),
    ],
)
def test_what_the_user_is_told(command: str, note: str) -> None:
    assert note in notes_of(command)
    assert note.split()[0] in file_of(command)


def test_other_commands_around_the_server_do_not_matter() -> None:
    before, after = "cd /w && bash -c 'nvidia-smi -L'; pip install -U vllm", "curl localhost:8000/health"
    text = f"{before}\nvllm serve m | tee log\n{after}"
    assert sweep_of(text).model == "m"


def test_the_interpreter_of_a_program_is_no_wrapper() -> None:
    assert "runs under" not in notes_of("/v/bin/python3.11 /v/bin/vllm serve m")


def test_what_cannot_be_searched_is_offered_as_a_comment() -> None:
    text = file_of("sglang serve --model m --enable-dp-attention")
    assert "\n  # EAGLE3:" in text
    assert "\n  # NGRAM:" in text
    assert parse_sweep(text).space == {}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "the command is empty"),
        ("# only a comment", "the command is empty"),
        ("text-generation-launcher --model-id m", "the command runs 'text-generation-launcher'"),
        (
            "docker run --gpus all ghcr.io/huggingface/text-generation-inference --model-id m",
            "starts no known",
        ),
        ("docker run --gpus all", "names no image"),
        ("docker run $IMAGE vllm serve m", "the image $IMAGE has no value in this text"),
        ("echo vllm serve m", "no start of a known engine"),
        ("pip install vllm", "no start of a known engine"),
        ("vllm bench serve --model m", "no start of a known engine"),
        ("vllm serve 'm", "a quote is never closed"),
        ("vllm serve", "names no model"),
        ("vllm serve a b", "2 words that belong to no flag"),
        ("sglang serve --model-path", "--model-path has no value"),
        ("sglang serve --model-path <model>", "replace the placeholder <model>"),
        ('sglang serve --model-path "$MODEL"', "--model-path: $MODEL has no value in this text"),
        ("vllm serve m ${ARGS[@]}", "${ARGS[@]} has no value in this text"),
        ("sglang serve --model m --speculative-algo EAGLE --speculative-num-steps x", "whole number"),
        ("vllm serve m --speculative-config '{method: ngram}'", "is not valid JSON"),
        ("vllm serve m --speculative-config '[1]'", "must be a JSON object"),
        (
            """vllm serve m -sc '{"method": "ngram", "num_speculative_tokens": "x"}'""",
            "num_speculative_tokens must be",
        ),
        ("llama-server -hf org/model", "give the path of the GGUF file"),
        ("llama-server -m C:\\x.gguf", "write C:/models/x"),
        ("docker compose up -d", "a compose file or manifest is not read"),
        ("llama-server -m x.gguf -zz 3", "-zz: no long name is known"),
        ("vllm serve a; vllm serve b", "2 servers are started (vllm, vllm)"),
        (f"vllm serve /models/{TOKEN}", "the model holds a secret"),
    ],
)
def test_what_is_not_understood_is_said(command: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        draft_sweep(command, VARIABLES)
    assert message in str(error.value)
    assert TOKEN not in str(error.value)


@pytest.mark.parametrize(
    "command",
    [
        "sglang serve --model m --api-key PLANTED1",
        "sglang serve --model m --api-key=PLANTED1 --chat-template PLANTED1",
        "MY_TOKEN=PLANTED1\nsglang serve --model m --x $MY_TOKEN",
        "OPENAI_API_KEY=PLANTED1 sglang serve --model m",
        "export AWS_SECRET_ACCESS_KEY=PLANTED1; sglang serve --model m",
        "docker run -e HF_TOKEN=PLANTED1 --label token=PLANTED1 lmsysorg/sglang sglang serve --model m",
        "docker run -eHF_TOKEN=PLANTED1 lmsysorg/sglang bash -c 'sglang serve --model m --x PLANTED1'",
        """vllm serve m --model-loader-extra-config '{"s3": [{"access_key": "PLANTED1"}]}'""",
        "HTTPS_PROXY=http://me:PLANTED1@proxy:3128 vllm serve m",
        "vllm serve m --hf-token PLANTED1",
        """bash -c 'A_TOKEN=PLANTED1; vllm serve m --x "$A_TOKEN"'""",
        "env HF_TOKEN=PLANTED1 numactl --x=PLANTED1 vllm serve m",
        "vllm serve m --speculative-config.method PLANTED1 --api-key PLANTED1",
        "llama-server -m x.gguf --api-key PLANTED1 -a PLANTED1",
    ],
)
def test_no_secret_reaches_the_file(command: str) -> None:
    assert "PLANTED1" not in file_of(command) + notes_of(command)


NAMES = st.from_regex(r"[a-z][a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,2}", fullmatch=True).map("zz-{}".format)
VALUES = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(0, 10, allow_nan=False).map(lambda x: f"{x:.3f}"),
    st.text(min_size=1, max_size=12).filter(lambda s: s[0] not in "-<" and "\0" not in s and s.strip()),
    st.sampled_from(["on", "true", "null", "1e5", "0x1f", "# x", "a: b", "'", "~", "012", '{"a": 1}']),
)


@settings(max_examples=150, deadline=None)
@example({"zz-a0": "0\xa0"}, "sglang serve --model-path m")
@given(
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.sampled_from(["sglang serve --model-path m", "vllm serve m", "llama-server -m m"]),
)
def test_every_fixed_argument_is_kept_with_its_value(flags: dict[str, str], server: str) -> None:
    flags = {name: value for name, value in flags.items() if not is_secret(name) and not looks_secret(value)}
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    sweep = sweep_of(f"{server} {shlex.join(words)}")
    assert {name: str(value) for name, value in sweep.args.items()} == flags


@settings(max_examples=150, deadline=None)
@example(["\x00"], "--api-key {}", "sglang serve --model-path m", "SECRET000000000000")
@given(
    st.lists(st.text(max_size=10) | VALUES | NAMES.map("--{}".format), max_size=6),
    st.sampled_from(["--api-key {}", "--hf-token={}", "--x {0} --admin-api-key {0}", "-e API_TOKEN={}"]),
    st.sampled_from(
        ["sglang serve --model-path m", "vllm serve m", "docker run -e A_TOKEN={} vllm/vllm-openai m"]
    ),
    st.from_regex(r"[A-Z0-9]{12,16}", fullmatch=True).map("SECRET{}".format),
)
def test_a_secret_stays_out_whatever_else_is_said(
    words: list[str], place: str, server: str, secret: str
) -> None:
    command = f"{server} {place} {shlex.join(words)}".replace("{0}", secret).replace("{}", secret)
    try:
        text = file_of(command)
    except UsageError as error:
        text = str(error)
    else:
        parse_sweep(text)
    assert secret not in text


PIECES = (
    *(
        "vllm serve m",
        "docker run",
        "-v a:/b",
        "$X",
        "${X:-y}",
        "'",
        '"',
        "\\\n",
        "#",
        "&&",
        "export A=1",
        "{}",
    ),
    *("python -m sglang.launch_server", "--model-path", "m", "--speculative-algo", "EAGLE", "-sc", "\n", ";"),
    *(
        "llama-server",
        "-m",
        "bash -c",
        "{",
        '{"a": 1}',
        "\0",
        "A=(",
        ")",
        "A+=1",
        "${A[@]}",
        "if",
        "--speculative-num-steps",
        "3",
        "source x/bin/activate",
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=10).map(" ".join))
def test_any_text_gives_a_valid_file_or_a_usage_error(text: str) -> None:
    try:
        content = file_of(text)
    except UsageError as error:
        assert str(error)
    else:
        assert yaml.safe_load(content)
        parse_sweep(content)

"""How long the doctor's static step takes, and how much memory, on the folder of a 1T-parameter model.

    python -m bench.doctor_static [--shards 120] [--experts 384]

The folder is made of headers alone: the files are sparse, and no weight is in them.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LAYERS, HIDDEN, EXPERT = 61, 7168, 2048
VOCABULARY, DRAFT_VOCABULARY = 163_840, 32_000
Shapes = list[tuple[str, list[int]]]


def target_tensors(experts: int) -> Iterator[tuple[str, list[int]]]:
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}.{norm}.weight", [HIDDEN]
        for expert in range(experts):
            for part in ("gate_proj", "up_proj", "down_proj"):
                for kind in ("weight_packed", "weight_scale"):
                    yield f"{at}.mlp.experts.{expert}.{part}.{kind}", [EXPERT, HIDDEN // 8]


def head_tensors() -> Shapes:
    layer = "midlayer"
    return [
        ("fc.weight", [HIDDEN, 3 * HIDDEN]),
        *((f"{layer}.self_attn.{p}_proj.weight", [HIDDEN, 2 * HIDDEN]) for p in "qkv"),
        (f"{layer}.self_attn.o_proj.weight", [HIDDEN, HIDDEN]),
        *((f"{layer}.mlp.{p}_proj.weight", [18432, HIDDEN]) for p in ("gate", "up")),
        (f"{layer}.mlp.down_proj.weight", [HIDDEN, 18432]),
        *(
            (f"{layer}.{n}.weight", [HIDDEN])
            for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        ),
        ("norm.weight", [HIDDEN]),
        ("lm_head.weight", [DRAFT_VOCABULARY, HIDDEN]),
    ]


def write_shard(path: Path, tensors: Shapes) -> None:
    header: dict[str, object] = {}
    end = 0
    for name, shape in tensors:
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def write_target(folder: Path, shards: int, experts: int) -> int:
    folder.mkdir()
    config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "vocab_size": VOCABULARY},
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = list(target_tensors(experts))
    each = -(-len(tensors) // shards)
    names: dict[str, str] = {}
    for i in range(shards):
        part, file = tensors[i * each : (i + 1) * each], f"model-{i + 1:05}-of-{shards:05}.safetensors"
        write_shard(folder / file, part)
        names |= {name: file for name, _ in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return len(tensors)


def write_head(folder: Path) -> None:
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": HIDDEN,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": DRAFT_VOCABULARY,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_shard(folder / "model.safetensors", head_tensors())


def examine(folder: Path) -> None:
    from launchers.engines.checkpoint import read_checkpoint
    from launchers.engines.wiring import Drafting
    from sweeps.doctor.static import examine

    target, head = (read_checkpoint(folder / name) for name in ("target", "head"))
    found = examine(Drafting(target, head, "sglang", "0.5.13", "EAGLE3"))
    for finding in found.section.findings:
        print(finding.severity.value, finding.seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=120)
    parser.add_argument("--experts", type=int, default=384)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        count = write_target(folder / "target", asked.shards, asked.experts)
        write_head(folder / "head")
        measure(folder, count, asked.shards)


def measure(folder: Path, count: int, shards: int) -> None:
    """In a process of its own: the writer's memory does not count."""
    import multiprocessing

    child = multiprocessing.get_context("spawn").Process(target=examine, args=(folder,))
    started = time.perf_counter()
    child.start()
    child.join()
    took_s = time.perf_counter() - started
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{count} tensors in {shards} shards: {took_s:.2f} s, {peak_bytes / 2**20:.0f} MiB at most")
    sys.exit(child.exitcode)


if __name__ == "__main__":
    main()

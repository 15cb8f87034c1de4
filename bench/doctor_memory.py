"""Memory that the doctor's replay takes beside its memory-mapped weights: the bound of docs/doctor.md.
 python -m bench.doctor_memory [--rows 2000 --boundaries 12 --hidden 7168 --draft-vocabulary 32000
--intermediate 2048]

A random pair and one sequence of the size of a model of a trillion parameters are written to a folder, the
states once for all boundaries; then candidates are ranked on its beginning and a few readings compared on
all of it. What is random has no right wiring: only memory is measured. The head's perceptron is smaller
than a real one, to save time and disk; it is computed part by part like everything else, so that its size
does not matter.
"""

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from analysis.wiring.race import race
from analysis.wiring.replay import Text, losses
from results.checkpoint import Checkpoint
from results.hidden_states import Dump, DumpHeader, HiddenStates
from results.wiring import Reading
from sweeps.doctor.replay import open_pair, ranked_part

MEGABYTE = 1 << 20
HEAD_DIM = 128


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--boundaries", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--intermediate", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=40_000)
    parser.add_argument("--draft-vocabulary", type=int, default=32_000)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ranked", type=int, default=12, help="readings ranked together")
    parser.add_argument("--into", type=Path, help="where there is room for about 3 GB; a temporary folder")
    asked = parser.parse_args()
    with TemporaryDirectory(dir=asked.into) as folder:
        write(Path(folder), asked)
        measure(Path(folder), asked)


def write(folder: Path, asked: argparse.Namespace) -> None:
    for part, tensors in (("head", head_tensors(asked)), ("target", target_tensors(asked))):
        (folder / part).mkdir()
        save_file(tensors, folder / part / "model.safetensors")
    state = random(asked.rows, asked.hidden)
    states = {b: state.clone() for b in range(asked.boundaries - 1)} | {asked.boundaries: state}
    ids = torch.randint(asked.vocabulary, (asked.rows + 1,))
    Dump.write(folder / "dump", DumpHeader(asked.boundaries - 1), iter([HiddenStates(ids, 1, states)]))


def measure(folder: Path, asked: argparse.Namespace) -> None:
    config = {"num_attention_heads": asked.heads, "head_dim": HEAD_DIM, "rms_norm_eps": 1e-5}
    target = Checkpoint(folder / "target", {"num_hidden_layers": asked.boundaries - 1}, {})
    dump, readings = Dump(folder / "dump"), [Reading((n, n + 1, n + 2)) for n in range(asked.ranked // 4)]
    readings += [replace(r, boundaries=r.boundaries[::-1]) for r in readings] * 2
    with watched() as seen:
        pair = open_pair(target, Checkpoint(folder / "head", config, {}))
        (text,) = ranked_part(dump, pair)
        losses(text, [*readings, *readings], 1)
        del text
        report("ranking", seen)
        race(readings[:2], [], (Text(pair, sequence) for sequence in dump), asked.steps)
        report(f"{asked.rows} rows, {asked.steps} steps", seen)


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Highest memory so far that is no mapped file, and the seconds since the beginning."""
    seen, done, began = {"megabytes": 0.0, "seconds": 0.0}, threading.Event(), time.monotonic()

    def watch() -> None:
        while not done.wait(0.01):
            lines = Path("/proc/self/status").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            seen["megabytes"] = max(seen["megabytes"], kilobytes / 1024)
            seen["seconds"] = time.monotonic() - began

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def report(what: str, seen: dict[str, float]) -> None:
    print(
        f"{what}: at most {seen['megabytes']:.0f} MB that are no mapped file, after {seen['seconds']:.0f} s",
        flush=True,
    )


def head_tensors(asked: argparse.Namespace) -> dict[str, torch.Tensor]:
    width, hidden, layer = asked.heads * HEAD_DIM, asked.hidden, "midlayer"
    projections = {
        "self_attn.q_proj": (width, 2 * hidden),
        "self_attn.k_proj": (width, 2 * hidden),
        "self_attn.v_proj": (width, 2 * hidden),
        "self_attn.o_proj": (hidden, width),
        "mlp.gate_proj": (asked.intermediate, hidden),
        "mlp.up_proj": (asked.intermediate, hidden),
        "mlp.down_proj": (hidden, asked.intermediate),
    }
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    return {
        "fc.weight": random(hidden, 3 * hidden),
        "lm_head.weight": random(asked.draft_vocabulary, hidden),
        "norm.weight": torch.ones(hidden),
        "d2t": torch.zeros(asked.draft_vocabulary, dtype=torch.long),
        **{f"{layer}.{name}.weight": torch.ones(hidden) for name in norms},
        **{f"{layer}.{name}.weight": random(*shape) for name, shape in projections.items()},
    }


def target_tensors(asked: argparse.Namespace) -> dict[str, torch.Tensor]:
    names = ("model.embed_tokens.weight", "lm_head.weight")
    return {name: random(asked.vocabulary, asked.hidden) for name in names}


def random(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.bfloat16) * columns**-0.5


if __name__ == "__main__":
    main()

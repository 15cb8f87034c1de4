"""Makes the whole pair anew: python -m tests.rigs.pair.train [--into FOLDER] [--seed 1]

About 17 minutes on one core. The seed is fixed; another processor, torch build or interpreter gives
other weights of the same quality.
"""

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from tests.rigs.pair import corpus
from tests.rigs.pair.checkpoint import HEAD_CONFIG, TARGET_FILES
from tests.rigs.pair.model import Weights
from tests.rigs.pair.train_head import SAMPLES, answers, train_head
from tests.rigs.pair.train_target import top_1, train_target


def make(into: Path, seed: int) -> None:
    """Writes target/, head/, prompts.jsonl and SHA256SUMS."""
    training, held_out = corpus.sources()
    tokenizer = corpus.train_tokenizer(training)
    _tell(f"{len(training)} files to train on, {len(held_out)} held out")
    _write_target_files(into / "target", tokenizer)
    _write_prompts(into / "prompts.jsonl", corpus.prompts(tokenizer, held_out, seed))
    stream = torch.tensor(corpus.token_stream(tokenizer, training))
    target = train_target(stream, seed)
    _save(target, into / "target")
    other = torch.tensor(corpus.token_stream(tokenizer, held_out))
    _tell(f"target: top-1 {top_1(target, other, seed):.1%} on held-out files")
    head = train_head(target, answers(target, stream, SAMPLES, seed), seed)
    _write_json(into / "head" / "config.json", HEAD_CONFIG)
    _save(head, into / "head")
    _write_sums(into)


def _write_target_files(folder: Path, tokenizer: Tokenizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in TARGET_FILES.items():
        _write_json(folder / name, content)


def _write_prompts(path: Path, prompts: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def _save(weights: Weights, folder: Path) -> None:
    contiguous = {name: weight.detach().contiguous() for name, weight in weights.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})


def _write_sums(into: Path) -> None:
    """In the format of sha256sum, so that `sha256sum --check SHA256SUMS` works."""
    made = sorted([*into.glob("target/*"), *into.glob("head/*"), into / "prompts.jsonl"])
    sums = (f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(into).as_posix()}\n" for p in made)
    (into / "SHA256SUMS").write_text("".join(sums))


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains the tiny EAGLE-3 pair.")
    parser.add_argument("--into", type=Path, default=Path(__file__).parent)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # two threads waiting for each other on a busy machine are slower than one
    began = time.monotonic()
    make(asked.into, asked.seed)
    _tell(f"done in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

"""The text: the sources of the running interpreter's standard library, split by file."""

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.rigs.pair.model import VOCABULARY

BOS, EOS = 0, 1
PROMPT_TOKENS = (48, 96)
PROMPTS = {"code": 60, "docstrings": 36}
_PROMPTS_PER_FILE = 4
_LEFT_OUT = {
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "encodings",  # tables of characters
    "pydoc_data",  # one string of 700 kB
    "lib2to3",
    "__phello__",
}


def sources() -> tuple[list[Path], list[Path]]:
    """(training files, held-out files), about 15 to 1, by a hash of the path inside the library."""
    root = Path(sysconfig.get_path("stdlib"))
    training: list[Path] = []
    held_out: list[Path] = []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        # _sysconfigdata and config-* describe the machine that built the interpreter
        if _LEFT_OUT & set(inside.parts) or inside.parts[0].startswith(("_sysconfigdata", "config-")):
            continue
        is_held_out = hashlib.sha256(inside.as_posix().encode()).digest()[0] < 16
        (held_out if is_held_out else training).append(path)
    return training, held_out


def read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="ignore")


def train_tokenizer(files: list[Path]) -> Tokenizer:
    """Byte-level BPE: any text encodes, and decodes to itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((read(path) for path in files), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return tokenizer


def token_stream(tokenizer: Tokenizer, files: list[Path]) -> list[int]:
    """The files' tokens one after the other, each file closed by `</s>`."""
    stream: list[int] = []
    for path in files:
        stream += [*tokenizer.encode(read(path), add_special_tokens=False).ids, EOS]
    return stream


def prompts(tokenizer: Tokenizer, files: list[Path], seed: int) -> list[dict[str, str]]:
    """Slices of 48 to 96 tokens (with `<s>`), at most four a file and class: first code, then docstrings."""
    random = Random(seed)
    chosen: list[dict[str, str]] = []
    for name, slices in (("code", _functions), ("docstrings", _docstrings)):
        found = [text for path in files for text in _a_few(random, list(slices(read(path))), tokenizer)]
        random.shuffle(found)
        chosen += [
            {"id": f"{name}-{number:02}", "class": name, "prompt": text}
            for number, text in enumerate(found[: PROMPTS[name]], 1)
        ]
    return chosen


def _a_few(random: Random, texts: list[str], tokenizer: Tokenizer) -> list[str]:
    random.shuffle(texts)
    cuts = (_cut(random, text, tokenizer) for text in texts if text.isascii())
    return [cut for cut in cuts if cut][:_PROMPTS_PER_FILE]


def _cut(random: Random, text: str, tokenizer: Tokenizer) -> str:
    """The first tokens of the text; empty if the text ends before the answer to it would."""
    ids = tokenizer.encode(text).ids
    count = random.randint(*PROMPT_TOKENS)
    if len(ids) < count + 32:
        return ""
    cut: str = tokenizer.decode(ids[:count])
    return cut.rstrip(" ")


def _functions(source: str) -> Iterator[str]:
    """Functions without a docstring, with their indentation."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is None:
            yield "".join(lines[node.lineno - 1 : node.end_lineno])


def _docstrings(source: str) -> Iterator[str]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and (text := ast.get_docstring(node, clean=False)):
            yield text.lstrip()

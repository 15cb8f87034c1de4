"""Ask an engine's own Python what it can do: a script run in it answers questions, and answers are kept.

Script and question are all that crosses: one JSON object per line on stdin, one per line on stdout. The
script imports nothing of this project; importing an engine is slow, so one process answers everything.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from launchers.embedded.model import default_cache_dir
from launchers.place import Conversation, Place, Variables
from results.errors import UsageError

TIMEOUT_S = 300  # importing an engine takes from seconds to a minute
WHERE_PACKAGES_LIE = (
    "import os, sysconfig; folder = sysconfig.get_paths()['purelib'];"
    " print(folder, os.stat(folder).st_mtime_ns if os.path.isdir(folder) else 0)"
)
# Variables that an answer may depend on.
RELEVANT = (
    "SGLANG_",
    "VLLM_",
    "CUDA_",
    "HIP_",
    "ROCR_",
    "HF_",
    "FLASHINFER_",
    "PYTHONPATH",
    "VIRTUAL_ENV",
)

Question = Mapping[str, object]
Answer = Mapping[str, Any]


class Probe:
    """Asks questions of one process, started when the first of them has no remembered answer."""

    def __init__(self, place: Place, python: str, script: Path, env: Variables | None = None) -> None:
        self._place = place
        self._python = python
        self._script = script.read_text("utf-8")
        self._env = {"PYTHONSAFEPATH": "1", **(env or {})}
        self._talk: Conversation | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._talk is not None:
            self._talk.end()

    @property
    def is_running(self) -> bool:
        """Whether a question had no remembered answer."""
        return self._talk is not None

    def ask(self, question: Question) -> Answer:
        """The script's answer; `{"error": line}` with the last line of its errors if it gives none."""
        memo = default_cache_dir() / "engines" / f"{self._key(question)}.json"
        if memo.exists():
            remembered: Answer = json.loads(memo.read_text("utf-8"))
            return remembered
        answer = self._answer(question)
        if answer is None:
            return {"error": self._last_error()}
        memo.parent.mkdir(parents=True, exist_ok=True)
        unfinished = memo.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(answer), "utf-8")
        unfinished.replace(memo)
        return answer

    def _answer(self, question: Question) -> Answer | None:
        """None if the process ends without an answer, or is too slow."""
        if self._talk is None:
            # As source text: the script's own folder must not come first on the import path.
            self._talk = self._place.converse([self._python, "-c", self._script], self._env)
        line = self._talk.ask(json.dumps(question), TIMEOUT_S)
        answer: Answer | None = json.loads(line) if line else None
        return answer

    def _last_error(self) -> str:
        assert self._talk is not None
        return self._talk.errors().strip().split("\n")[-1].strip()

    def _key(self, question: Question) -> str:
        """All that the answer depends on: packages, script, question, files it names, variables, machine."""
        inherited = {} if self._place.identity else os.environ
        env = {k: v for k, v in {**inherited, **self._env}.items() if k.startswith(RELEVANT)}
        words = question.get("argv", ())
        assert isinstance(words, list | tuple)
        parts = [
            self._script,
            self._place.identity,
            self._python,
            self._packages,
            json.dumps([question, env], sort_keys=True),
            *(_content(Path(word)) for word in words),
            *_accelerators(),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    @cached_property
    def _packages(self) -> str:
        """Where the interpreter has its packages, and when one was last installed there or removed."""
        try:
            done = self._place.run([self._python, "-c", WHERE_PACKAGES_LIE], {}, timeout_s=60)
        except OSError as error:
            raise UsageError(f"cannot run {self._python}: {error}") from None
        return done.output.strip()


def _content(path: Path) -> str:
    """What is read of a model folder or a file of settings; "" for any other word."""
    try:
        file = path / "config.json" if path.is_dir() else path
        return file.read_text("utf-8") if file.suffix in (".json", ".yaml", ".yml") else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _accelerators() -> Sequence[str]:
    """This machine and the GPUs its driver names."""
    found = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [platform.node(), *(path.read_text("utf-8", "replace") for path in found)]

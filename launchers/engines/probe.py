"""Ask an engine's own Python what it can do: a script run in it answers questions, and answers are kept.

Script and question are all that crosses: one JSON object per line on stdin, one per line on stdout. The
script imports nothing of this project; importing an engine is slow, so one process answers everything.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

from launchers.embedded.model import default_cache_dir
from results.errors import UsageError

TIMEOUT_S = 300  # importing an engine takes from seconds to a minute
WHERE_PACKAGES_LIE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
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


def find_python(server: str) -> str:
    """The interpreter named by a sweep file, as a path; raises UsageError if there is none.

    Links are kept: a venv's interpreter is a link, and knows its packages by its own place.
    """
    found = shutil.which(Path(server).expanduser())
    if found is None:
        raise UsageError(
            f"cannot run {server}: there is no such program; set `server` to the Python that has the engine"
        )
    return str(Path(found).absolute())


class Probe:
    """Asks questions of one process, started when the first of them has no remembered answer."""

    def __init__(self, python: str, script: Path, env: Mapping[str, str] | None = None) -> None:
        self._python = python
        self._script = script.read_text("utf-8")
        self._env = {**os.environ, "PYTHONSAFEPATH": "1", **(env or {})}
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._errors.close()
        if self._process is not None:
            self._process.kill()  # it holds nothing but memory
            self._process.communicate()

    @property
    def is_running(self) -> bool:
        """Whether a question had no remembered answer."""
        return self._process is not None

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
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(TIMEOUT_S, process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        answer: Answer | None = json.loads(line) if line else None
        return answer

    def _start(self) -> subprocess.Popen[str]:
        """As source text: the script's own folder must not come first on the import path."""
        return subprocess.Popen(
            [self._python, "-c", self._script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self._env,
        )

    def _last_error(self) -> str:
        assert self._process is not None
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        told = [line.strip() for line in lines if line.strip()]
        return told[-1] if told else f"no answer (exit code {self._process.returncode})"

    def _key(self, question: Question) -> str:
        """All that the answer depends on: packages, script, question, files it names, variables, machine."""
        env = {k: v for k, v in self._env.items() if k.startswith(RELEVANT)}
        words = question.get("argv", ())
        assert isinstance(words, list | tuple)
        parts = [
            self._script,
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
            done = subprocess.run(
                [self._python, "-c", WHERE_PACKAGES_LIE],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"cannot run {self._python}: {error}") from None
        folder = Path(done.stdout.strip() or "nowhere")
        return f"{folder} {folder.stat().st_mtime_ns if folder.is_dir() else 0}"


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

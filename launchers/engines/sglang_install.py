"""An installed SGLang, asked through its own Python: version, flags, and what it makes of arguments."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from launchers.embedded.model import default_cache_dir
from launchers.engines.sglang_flags import Flags, flags_from_rows
from results.errors import UsageError

PROBE = Path(__file__).with_name("sglang_probe.py")
TIMEOUT_S = 300  # importing SGLang takes from seconds to a minute
VERSION_CODE = "from importlib.metadata import version; print(version('sglang'))"
# What it resolves to depends on these variables beside those of the launch.
RELEVANT = ("SGLANG_", "CUDA_", "HIP_", "ROCR_", "HF_", "FLASHINFER_", "PYTHONPATH", "VIRTUAL_ENV")

Question = Mapping[str, object]
Answer = Mapping[str, Any]


class Installation:
    """SGLang as the interpreter `python` has it. Answers are remembered on disk."""

    def __init__(self, python: str) -> None:
        self.python = str(Path(python or "python3").expanduser())

    @cached_property
    def version(self) -> str:
        """Of the package, without importing it. Raises UsageError: no interpreter, no SGLang in it."""
        where = f"set `server` to the Python of the environment that has SGLang (now {self.python})"
        if shutil.which(self.python) is None:
            raise UsageError(f"cannot run {self.python}: there is no such program: {where}")
        command = [self.python, "-c", VERSION_CODE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise UsageError(f"{self.python} has no SGLang: {where}")
        return done.stdout.strip()

    @cached_property
    def flags(self) -> Flags:
        """The flags of the server's own parser. Raises UsageError if it cannot be asked."""
        with self.probe({}) as probe:
            answer = probe.ask({"flags": True})
        if "error" in answer:
            raise UsageError(
                f"SGLang {self.version} of {self.python} does not say its flags: {answer['error']}"
            )
        return flags_from_rows(answer["flags"])

    @contextmanager
    def probe(self, env: Mapping[str, str]) -> Iterator["Probe"]:
        """Ask questions of one process, started when the first of them has no remembered answer."""
        probe = Probe(self, env)
        try:
            yield probe
        finally:
            probe.close()


class Probe:
    """A process of the engine's Python that answers what `sglang_probe.py` can be asked."""

    def __init__(self, installation: Installation, env: Mapping[str, str]) -> None:
        self._installation = installation
        self._env = {**os.environ, **env}
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()

    @property
    def is_running(self) -> bool:
        """Whether a question had no remembered answer."""
        return self._process is not None

    def resolve(self, argv: Sequence[str]) -> Answer:
        """`{"resolved": {field: value}}` or `{"error": line}` for the arguments of a server."""
        return self.ask({"argv": list(argv)})

    def ask(self, question: Question) -> Answer:
        memo = default_cache_dir() / "engines" / f"sglang-{self._key(question)}.json"
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

    def close(self) -> None:
        self._errors.close()
        if self._process is not None:
            self._process.kill()  # it holds nothing but memory
            self._process.communicate()

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
            [self._installation.python, "-c", PROBE.read_text("utf-8")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self._env,
        )

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        told = [line.strip() for line in lines if line.strip()]
        return told[-1] if told else f"no answer within {TIMEOUT_S} s"

    def _key(self, question: Question) -> str:
        """Everything the answer depends on: engine, question, files it names, variables, machine."""
        env = {k: v for k, v in self._env.items() if k.startswith(RELEVANT)}
        words = question.get("argv", ())
        assert isinstance(words, list | tuple)
        parts = [
            PROBE.read_text("utf-8"),
            str(shutil.which(self._installation.python)),
            self._installation.version,
            json.dumps([question, env], sort_keys=True),
            *(_content(Path(word)) for word in words),
            *_accelerators(),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _content(path: Path) -> str:
    """What resolving reads of a model folder or a file of settings; "" for any other word."""
    try:
        file = path / "config.json" if path.is_dir() else path
        return file.read_text("utf-8") if file.suffix in (".json", ".yaml", ".yml") else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _accelerators() -> list[str]:
    """This machine and the GPUs its driver names."""
    found = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [platform.node(), *(path.read_text("utf-8", "replace") for path in found)]

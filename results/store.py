"""The run folder: append-only, fsynced records that survive a kill at any instant.

`trials.jsonl` and `blocks.jsonl` are the truth; everything else can be made again from them.
"""

import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from results.errors import UsageError
from results.lines import append_line, explained, read_lines, replace
from results.profile import Profile
from results.records import Block, GpuSample, Request, Trial
from results.sharing import Sharing, StudyPlace, alone

TRIALS, BLOCKS, PROFILES = LINES = ("trials.jsonl", "blocks.jsonl", "profiles.jsonl")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk. Any `OSError` becomes a UsageError that says what to do."""

    path: Path

    @property
    def sweep_file(self) -> Path:
        return self.path / "sweep.yaml"

    @property
    def study_file(self) -> Path:
        return self.path / "study.log"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def report_file(self) -> Path:
        return self.path / "report.html"

    @property
    def label(self) -> str:
        """What a file about it is called after it."""
        return self.path.resolve().name

    @property
    def shown(self) -> str:
        """How its user names it, without any secret."""
        return str(self.path)

    @property
    def is_shared(self) -> bool:
        """Whether several drivers, also of several machines, may work on it at once."""
        return False

    @property
    def study_place(self) -> StudyPlace | None:
        """Where the study is if not in `study_file`."""
        return None

    @property
    def driver(self) -> str:
        """What this start is called among those at work on the run; "" where there can be no other."""
        return ""

    def living(self) -> frozenset[str]:
        """The drivers that are at work on the run now, as far as others may be."""
        return frozenset()

    def create(self) -> None:
        """Make the folders; keeps what is there."""
        with explained(self.path):
            for folder in (self.path, self.logs, self.path / "requests"):
                folder.mkdir(parents=True, exist_ok=True)

    def on_wait(self, note: Callable[[str], None]) -> None:
        """From now on `note` is called when whoever works on the run has to wait for its store."""

    def pull(self) -> None:
        """Bring up to date what is a copy of a run that is kept elsewhere."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one tool drives a run at a time; the lock ends with the process."""
        with explained(self.path):
            lock = (self.path / "lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"another tuner is at work on {self.path}: wait for it, or name another folder with --run"
                ) from None
            yield

    @contextmanager
    def joined(self) -> Iterator[Sharing]:
        """Drive the run beside others, where its store allows that; else as `locked`."""
        with self.locked():
            yield alone(self.blocks())

    def trials(self) -> list[Trial]:
        return read_lines(self.path / TRIALS, Trial)

    def blocks(self) -> list[Block]:
        return read_lines(self.path / BLOCKS, Block)

    def profiles(self) -> list[Profile]:
        return read_lines(self.path / PROFILES, Profile)

    def add_profile(self, profile: Profile) -> None:
        self._append(PROFILES, msgspec.json.encode(profile))

    def add_trial(self, trial: Trial) -> None:
        self._append(TRIALS, msgspec.json.encode(trial))

    def add_block(self, block: Block) -> None:
        self._append(BLOCKS, msgspec.json.encode(block))

    def write_text(self, name: str, text: str) -> None:
        """Write a whole file; a kill leaves the old or the new one, never half."""
        self._replace(name, text.encode())

    def remove(self, name: str) -> None:
        """A file of this folder, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def write_json(self, name: str, value: object) -> None:
        self.write_text(name, msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")

    def read_json(self, name: str) -> Mapping[str, Any]:
        """A file of this folder written with `write_json`; empty if it is not there or damaged."""
        try:
            value = msgspec.json.decode((self.path / name).read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return value if isinstance(value, dict) else {}

    def update_json(self, name: str, change: Callable[[Mapping[str, Any]], object]) -> None:
        """Put into place of a file what is made of it; no other driver writes it meanwhile."""
        self.write_json(name, change(self.read_json(name)))

    def add_note(self, text: str) -> None:
        """One more of what its user should know of this run."""

        def with_note(known: Mapping[str, Any]) -> object:
            notes = known.get("notes", [])
            return {"notes": notes if text in notes else [*notes, text]}

        self.update_json("notes.json", with_note)

    def write_requests(self, name: str, requests: Sequence[Request]) -> None:
        """Raw requests of one arm-run as `requests/NAME.parquet`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = msgspec.to_builtins(list(requests))
        for row in rows:  # a struct column would take the union of all keys
            row["engine_stats"] = msgspec.json.encode(row["engine_stats"]).decode()
        with explained(self.path):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows, schema=_request_schema()), sink)
            replace(self.path / "requests" / f"{name}.parquet", sink.getvalue().to_pybytes())

    def read_requests(self, name: str) -> list[Request]:
        """What `write_requests` wrote; empty if that file is not there."""
        import pyarrow.parquet as pq

        path = self.path / "requests" / f"{name}.parquet"
        if not path.exists():
            return []
        rows = pq.read_table(path, use_threads=False).to_pylist()
        for row in rows:
            row["engine_stats"] = msgspec.json.decode(row["engine_stats"])
        return msgspec.convert(rows, list[Request])

    def write_telemetry(self, name: str, samples: Sequence[GpuSample]) -> None:
        """GPU samples of one arm-run as `telemetry/NAME.parquet`; no file without samples."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not samples:
            return
        with explained(self.path):
            (self.path / "telemetry").mkdir(exist_ok=True)
            sink = pa.BufferOutputStream()
            rows = msgspec.to_builtins(list(samples))
            pq.write_table(pa.Table.from_pylist(rows, schema=_telemetry_schema()), sink)
            replace(self.path / "telemetry" / f"{name}.parquet", sink.getvalue().to_pybytes())

    def read_telemetry(self, name: str) -> list[GpuSample]:
        """What `write_telemetry` wrote; empty if that file is not there."""
        import pyarrow.parquet as pq

        path = self.path / "telemetry" / f"{name}.parquet"
        if not path.exists():
            return []
        return msgspec.convert(pq.read_table(path, use_threads=False).to_pylist(), list[GpuSample])

    def _append(self, name: str, line: bytes) -> None:
        append_line(self.path / name, line)

    def _replace(self, name: str, content: bytes) -> None:
        with explained(self.path):
            replace(self.path / name, content)


def _telemetry_schema() -> Any:
    import pyarrow as pa

    number, word = pa.float64(), pa.string()
    return pa.schema(
        [
            ("cell", word),
            ("sampled_at", number),
            ("uuid", word),
            ("utilisation", number),
            ("memory_bytes", pa.int64()),
            ("power_w", number),
            ("sm_clock_hz", number),
            ("memory_clock_hz", number),
            ("temperature_c", number),
            ("throttled", pa.list_(word)),
        ]
    )


def _request_schema() -> Any:
    import pyarrow as pa

    number, whole, word = pa.float64(), pa.int64(), pa.string()
    return pa.schema(
        [
            ("prompt_id", word),
            ("workload_class", word),
            ("scheduled_s", number),
            ("sent_s", number),
            ("first_byte_s", number),
            ("chunk_s", pa.list_(number)),
            ("ended_s", number),
            ("prompt_tokens", whole),
            ("output_tokens", whole),
            ("finish_reason", word),
            ("error", word),
            ("text", word),
            ("reasoning_text", word),
            ("text_channels", pa.list_(word)),
            ("engine_stats", word),
        ]
    )

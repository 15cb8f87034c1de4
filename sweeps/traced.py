"""One server traced for a moment under the load of one Cell: never while anything is measured."""

import gzip
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from analysis.trace import summarise
from analysis.trace_events import TraceDamaged, events
from launchers.engines.engine import Tracer
from launchers.launcher import Endpoint
from results.errors import MeasurementInvalid
from results.profile import Profile, TraceSummary, Work
from results.reasons import Reason
from results.records import Point
from sweeps.arm import Arm, up
from sweeps.load import LoadResult, drive
from sweeps.setup import Setup
from sweeps.windows import Window
from sweeps.workload import Prompt

TOKENS = 64  # of each answer: bounds the steps, and with them the trace
IN_AN_OPEN_LOOP = 4  # requests
SECONDS = 10.0
WRITTEN_WITHIN_S = 60.0  # of the answer that says so
LARGEST_BYTES = 512 << 20  # of a packed trace: ten times that, and more, when unpacked
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Look:
    """How long and how closely to look."""

    seconds: float = SECONDS  # at most; the requests may have ended before
    stacks: bool = False  # with the functions of Python


@dataclass(frozen=True, slots=True)
class _Loads:
    """The same load without and with the profiler."""

    plain: LoadResult | None  # None: too few prompts
    traced: LoadResult


def profile_arm(setup: Setup, name: str, point: Point, window: Window, look: Look) -> Profile:
    """Start a server of a Point, trace it, end it. Its trace is kept in the run folder.

    Raises MeasurementInvalid, also for a server that does not start; UsageError if it cannot be traced.
    """
    began_at = time.time()
    with folder_to_write(setup) as folder:
        tracer = setup.engine.tracer(point, folder, stacks=look.stacks)
        with up(setup, point, f"profile-{name}", window.prompts, tracer) as arm:
            loads, steps_s = _loaded(setup, arm, window, tracer, look)
            files = _written(tracer, setup.engine.ranks(point, setup.served))
        ranks = [_summary(file) for file in files]
        return Profile(
            arm=name,
            point=point,
            cell=window.cell,
            started_at=began_at,
            ended_at=time.time(),
            trace=ranks[0],
            tokens_per_step=tokens_per_step(loads.traced, ranks[0]),
            traces=tuple(_kept(setup, files, f"{name}-{_slug(window.cell.label)}")),
            all_reduce_shares=tuple(r.share(Work.ALL_REDUCE) for r in ranks) if len(ranks) > 1 else (),
            slowdown=slowdown(loads.plain, loads.traced),
            step_times_s=steps_s,
        )


def tokens_per_step(load: LoadResult, trace: TraceSummary) -> float | None:
    """Tokens of one decode step, all requests together; a request's first token is of its prefill.

    None if the load was cut, since what was in flight then is not known.
    """
    if load.stopped_early or not trace.decodes:
        return None
    decoded = sum((r.output_tokens or 0) - 1 for r in load.requests)
    return decoded / trace.decodes if decoded > 0 else None


def slowdown(plain: LoadResult | None, traced: LoadResult) -> float | None:
    """What the profiler costs: time of a token with it over that without."""
    rates = [_tokens_per_s(load) for load in (plain, traced) if load is not None]
    return rates[0] / rates[1] if len(rates) == 2 and all(rates) else None


def _tokens_per_s(load: LoadResult) -> float:
    return sum(r.output_tokens or 0 for r in load.requests) / load.wall_s


# The load


def _loaded(
    setup: Setup, arm: Arm, window: Window, tracer: Tracer, look: Look
) -> tuple[_Loads, dict[str, float]]:
    """Half of the window's prompts unprofiled, the other half traced; and the server's own step times."""
    if arm.failure is not None:
        raise MeasurementInvalid(arm.failure.reason, arm.failure.evidence)
    assert arm.endpoint is not None
    endpoint, own = arm.endpoint, list(window.prompts)
    most = max(2, window.pace.concurrency or IN_AN_OPEN_LOOP)
    half = len(own) // 2
    plain = _driven(setup, endpoint, window, own[:half][:most], look) if half else None
    steps_s = {str(n): median(times) for n, times in tracer.step_times_s(endpoint).items() if times}
    setup.engine.reset_cache(endpoint)
    tracer.start(endpoint)
    traced = _driven(setup, endpoint, window, own[half:][:most], look)
    tracer.stop(endpoint)
    return _Loads(plain, traced), steps_s


def _driven(
    setup: Setup, endpoint: Endpoint, window: Window, prompts: Sequence[Prompt], look: Look
) -> LoadResult:
    """Raises MeasurementInvalid if a request failed."""
    tokens = min(setup.sweep.workload.max_tokens, TOKENS)
    result = drive(
        setup.target(endpoint),
        [setup.job(prompt, tokens) for prompt in prompts],
        window.pace,
        stall_timeout_s=setup.sweep.patience.stall_timeout_s,
        deadline_s=look.seconds,
    )
    failed = next((r.error for r in result.requests if r.error is not None), None)
    if failed is not None:
        raise MeasurementInvalid(Reason.HANG if result.stalled else Reason.REQUESTS_FAILED, failed)
    return result


# The files


@contextmanager
def folder_to_write(setup: Setup) -> Iterator[Path]:
    """A folder of the run for the server alone, which in a container may be another user; gone after."""
    setup.folder.traces.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="writing-", dir=setup.folder.traces)).absolute()
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(tracer: Tracer, ranks: int) -> Sequence[Path]:
    """The files once they are there and grow no more. Raises MeasurementInvalid if none comes."""
    until, before = time.monotonic() + WRITTEN_WITHIN_S, None
    while time.monotonic() < until:
        files = tracer.files()
        now = [(file, file.stat().st_size) for file in files]
        if len(files) >= ranks and now == before:
            return files
        before = now
        time.sleep(0.2)
    if not (files := tracer.files()):
        raise MeasurementInvalid(
            Reason.TRACE_UNUSABLE, f"the server wrote no trace within {WRITTEN_WITHIN_S:g} s of its end"
        )
    return files


def _summary(file: Path) -> TraceSummary:
    size = file.stat().st_size
    if size > LARGEST_BYTES:
        raise MeasurementInvalid(
            Reason.TRACE_UNUSABLE,
            f"the trace has {size >> 20} MiB, more than {LARGEST_BYTES >> 20}: look for fewer --seconds, at a"
            " Cell with fewer requests in flight, or without --stacks",
        )
    try:
        return summarise(events(_chunks(file)))
    except (TraceDamaged, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise MeasurementInvalid(Reason.TRACE_UNUSABLE, f"the trace {file.name}: {error}") from error


def _chunks(file: Path) -> Iterator[bytes]:
    with gzip.open(file) as unpacked:
        while chunk := unpacked.read(CHUNK_BYTES):
            yield chunk


def _kept(setup: Setup, files: Sequence[Path], name: str) -> Iterator[str]:
    """Move the traces to their place in the run folder, whole or not at all; their names there."""
    for rank, file in enumerate(files):
        own = f"{name}{f'-rank{rank}' if rank else ''}.trace.json.gz"
        file.replace(setup.folder.traces / own)
        yield f"{setup.folder.traces.name}/{own}"


def _slug(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-")

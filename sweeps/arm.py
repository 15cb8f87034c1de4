"""One launch of one arm: start, verify, warm up, measure, end; or the reason why not."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle, islice

from analysis.acceptance import from_counters, reconcile
from analysis.gpu import spin
from analysis.summary import (
    capacity_limited,
    in_one_window,
    merged_telemetry,
    summarise,
    total_output_tokens,
)
from analysis.warmth import still_changing
from launchers.engines import instrumented, launch_of, shown_command
from launchers.engines.engine import Instrument, ReadBack, Recount, SlotDrafts
from launchers.gpu import GpuWindow
from launchers.gpu_choice import server_environment
from launchers.hardware_sets import HardwareSet, on_hardware
from launchers.launcher import Endpoint
from launchers.port import free_port
from launchers.telemetry import HostWindow
from results.errors import LaunchFailed, MeasurementInvalid
from results.reasons import Reason
from results.records import (
    Acceptance,
    ArmRun,
    Cell,
    DraftShape,
    Failure,
    GpuSample,
    Measurement,
    Point,
    Request,
    SpecCounters,
    Telemetry,
    Variables,
)
from results.secrets import HIDDEN, is_secret, masked
from sweeps.admission import AdmissionWatch
from sweeps.arrival import Given, arrived, in_effect, rewrites_of, variables_of
from sweeps.gate import Gate
from sweeps.load import LoadResult, drive
from sweeps.pace import Closed, Pace
from sweeps.setup import Setup
from sweeps.windows import Window
from sweeps.workload import Prompt, check_context

WARM_UP_TOKENS = 8
READY_POLL_S = 0.02
# What the counter of a server may be late, or count otherwise than `usage` does.
FEW_TOKENS = 16
FEW_TOKENS_SHARE = 0.02


@dataclass(frozen=True)
class Turn:
    """What one window of load gave."""

    requests: tuple[Request, ...]
    wall_s: float
    counted: SpecCounters | None
    host: Telemetry
    capacity_limited: str = ""  # how one saw that the server could not admit the load


@dataclass
class Arm:
    """One arm while it runs: what was measured so far, and why it ended if it did."""

    point: Point
    name: str
    max_tokens: int
    counted_in_reply: Callable[[Mapping[str, float]], SpecCounters | None]
    bounds: Mapping[str, float] = field(default_factory=dict)  # of a request that counts for the goodput
    argv: tuple[str, ...] = ()  # what an operator can start the same server with
    image: str = ""
    endpoint: Endpoint | None = None
    start_s: float = 0.0
    warm_up_s: float = 0.0
    measured_s: float = 0.0
    back: ReadBack = field(default_factory=lambda: ReadBack(None, None, {}))
    lossy: str = ""
    shape: DraftShape | None = None
    restless: str = ""  # what of the GPUs was not flat when it was measured
    variables: Variables | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # of the running server, as far as known
    turns: dict[Cell, list[Turn]] = field(default_factory=dict)
    gpu_samples: list[GpuSample] = field(default_factory=list)
    slots: Sequence[SlotDrafts] = ()  # this and the next: after the last window
    recount: Recount | None = None
    failure: Failure | None = None
    stopped_at_ratio: float | None = None  # hopeless
    complete: bool = True
    on_set: int | None = None  # of the two of a duet
    beside: Callable[[], Sequence[int]] = tuple  # processes of the other server of a duet

    @property
    def is_over(self) -> bool:
        return self.failure is not None or self.stopped_at_ratio is not None

    @property
    def requests(self) -> list[Request]:
        """Every request, in the order of the Cells."""
        return [r for cell in self.turns for r in self._requests(cell)]

    @property
    def texts(self) -> dict[str, str]:
        """Text of every successful request by Cell and prompt."""
        return {
            f"{cell.label}/{r.prompt_id}": r.reasoning_text + r.text
            for cell in self.turns
            for r in self._requests(cell)
            if r.error is None
        }

    def record(self) -> ArmRun:
        """The arm as it is written to the run folder."""
        return ArmRun(
            point=self.point,
            argv=masked(self.argv),
            image=self.image,
            start_s=self.start_s,
            warm_up_s=self.warm_up_s,
            measured_s=self.measured_s,
            effective={k: HIDDEN if v and is_secret(k) else v for k, v in self.back.effective.items()},
            measurements=tuple(self._measurement(cell) for cell in self.turns),
            failure=self.failure,
            stopped_at_ratio=self.stopped_at_ratio,
            log=f"{self.name}.log",
            requests=self.name,
            complete=self.complete,
            rewrites=self.back.rewrites,
            in_effect=self.back.point,
            lossy=self.lossy,
            shape=self.shape,
            variables=self.variables,
            on_set=self.on_set,
        )

    @contextmanager
    def failing(self) -> Iterator[None]:
        """What goes wrong with this arm is data: it becomes its failure."""
        try:
            yield
        except (LaunchFailed, MeasurementInvalid) as error:
            self.failure = Failure(error.reason, error.evidence)

    def _requests(self, cell: Cell) -> tuple[Request, ...]:
        return in_one_window([(turn.requests, turn.wall_s) for turn in self.turns[cell]])

    def _measurement(self, cell: Cell) -> Measurement:
        turns, requests = self.turns[cell], self._requests(cell)
        wall_s = sum(turn.wall_s for turn in turns)
        host = merged_telemetry([turn.host for turn in turns])
        return summarise(
            cell,
            requests,
            wall_s,
            self._acceptance(turns, requests),
            host,
            max_tokens=self.max_tokens,
            bounds=self.bounds,
            capacity_limited=self.capacity_limited(cell),
        )

    def capacity_limited(self, cell: Cell) -> str:
        """How one saw that the server could not admit the load of a Cell; "" = it did."""
        return next((t.capacity_limited for t in self.turns.get(cell, ()) if t.capacity_limited), "")

    def _acceptance(self, turns: Sequence[Turn], requests: Sequence[Request]) -> Acceptance:
        """From the server's counters, else from the replies, compared with whatever else counts the same."""
        counts = [turn.counted for turn in turns if turn.counted is not None]
        counted = sum(counts[1:], counts[0]) if len(counts) == len(turns) else None
        in_replies = self._counted_in_replies(requests)
        source = "the counters"
        if counted is None and in_replies is not None and in_replies.drafts > 0:
            counted, source = in_replies, "the replies"
        tokens, off = total_output_tokens(requests), self.point.is_baseline
        found = from_counters(counted, tokens, method_is_none=off, source=source)
        if self.stopped_at_ratio is not None:  # requests that were cut are in the counters alone
            return found
        found = reconcile(found, in_replies, "the replies")
        if self.recount is not None:
            found = reconcile(found, self.recount.drafter, "the drafter's own", ours=self.recount.server)
        return found

    def _counted_in_replies(self, requests: Sequence[Request]) -> SpecCounters | None:
        """Sum over all replies that say something of their drafts; None if none does."""
        told = [c for r in requests if (c := self.counted_in_reply(r.engine_stats)) is not None]
        return sum(told[1:], told[0]) if told else None


@contextmanager
def up(
    setup: Setup,
    point: Point,
    name: str,
    check: Sequence[Prompt] = (),
    instrument: Instrument | None = None,
    hardware: HardwareSet | None = None,
) -> Iterator[Arm]:
    """An arm with its server up and warm; or one that has failed. The server ends with the context.

    The prompts to `check` are compared with the server's context first (UsageError). With an
    `instrument` the server is one to be looked into, and never to be measured. With `hardware` it gets
    that and no more of this machine.
    """
    began = time.monotonic()
    sweep = setup.sweep
    arm = Arm(point, name, sweep.workload.max_tokens, setup.engine.counted_in_reply, sweep.goodput)
    arm.lossy, port = setup.engine.lossy(point, setup.served), free_port()
    log_path = setup.folder.logs / f"{name}.log"
    launch = launch_of(setup.engine, setup.served, point, port, log_path, setup.group)
    launch = launch if instrument is None else instrumented(launch, instrument)
    arm.argv, arm.image = shown_command(launch, setup.places), setup.places(point.image).identity
    launch = launch if hardware is None else on_hardware(launch, hardware)  # elsewhere it has other names
    with ExitStack() as server:
        with arm.failing():
            arm.variables = variables_of(launch.env, setup.nccl(point, launch.env))
            endpoint = server.enter_context(setup.launcher.start(launch))
            _come_up(setup, endpoint, arm, launch.env, began)
            arm.endpoint = endpoint
            arm.shape = setup.engine.draft_shape(arm.back.point or point)
            arm.start_s = time.monotonic() - began
            _check_context(setup, endpoint, check)
            _warm_up(setup, endpoint, arm)
        arm.start_s = arm.start_s or time.monotonic() - began
        yield arm
        with arm.failing():
            if arm.complete and not arm.is_over:
                _refuse_if_all_limited(arm)
            if arm.endpoint is not None and arm.failure is None:
                arm.slots = setup.engine.drafts_by_slot(arm.endpoint)
                arm.recount = setup.engine.recount(arm.endpoint)


def measure(setup: Setup, arm: Arm, window: Window, gate: Gate | None) -> tuple[Request, ...]:
    """Send one window to an arm and add what it gave; a failure ends the arm.

    Returns the requests; none of a Cell that the server could not admit, as they waited in its queue.
    """
    began = time.monotonic()
    with arm.failing():
        assert arm.endpoint is not None
        _load(setup, arm, arm.endpoint, window, gate)
    arm.measured_s += time.monotonic() - began
    if arm.capacity_limited(window.cell):
        if gate is not None:
            gate.forget(window.cell)
        return ()
    if arm.failure is None and gate is not None and gate.is_shut:
        arm.stopped_at_ratio = gate.speed_ratio
    return arm.turns[window.cell][-1].requests if window.cell in arm.turns else ()


def _load(setup: Setup, arm: Arm, endpoint: Endpoint, window: Window, gate: Gate | None) -> None:
    workload, engine = setup.sweep.workload, setup.engine
    jobs = [setup.job(p, p.max_tokens or workload.max_tokens) for p in window.prompts]
    before, generated = engine.counters(endpoint), engine.generated_tokens(endpoint)
    gpus = _gpus(setup, arm, endpoint, window.cell.label)
    host = HostWindow(endpoint.pids, beside=arm.beside)
    with host, gpus, _admission(setup, endpoint, window.pace) as admission:
        result = drive(
            setup.target(endpoint),
            jobs,
            window.pace,
            stall_timeout_s=setup.sweep.patience.stall_timeout_s,
            on_request=gate.watch(window.cell) if gate else None,
        )
    telemetry = replace(
        host.telemetry,
        client_cores=result.client_cpu_s / result.wall_s,
        gpus=gpus.gpus,
        gpu_mismatch=gpus.mismatch,
    )
    arm.gpu_samples += gpus.samples
    turns = arm.turns.setdefault(window.cell, [])
    turns.append(Turn(result.requests, result.wall_s, None, telemetry))  # also of a window that failed
    _raise_if_dead(setup, endpoint, result, gpus)
    queued = capacity_limited(admission.running, admission.waiting, window.pace.concurrency)
    if queued is not None:
        turns[-1] = replace(turns[-1], capacity_limited=queued.evidence)
    _refuse_other_load(generated, engine.generated_tokens(endpoint), result.requests)
    after = engine.counters(endpoint)
    if before is not None and after is not None:
        turns[-1] = replace(turns[-1], counted=after.since(before))
    engine.reset_cache(endpoint)


def _refuse_if_all_limited(arm: Arm) -> None:
    """A Cell that the server cannot admit is left out; with every Cell so, there is no number at all."""
    limited = {cell: why for cell in arm.turns if (why := arm.capacity_limited(cell))}
    if limited and len(limited) == len(arm.turns):
        cell, why = next(iter(limited.items()))
        raise MeasurementInvalid(Reason.CAPACITY_LIMITED, f"{cell.label}: {why}")


def _refuse_other_load(before: int | None, after: int | None, ours: Sequence[Request]) -> None:
    """Tokens that the server counted and none of our replies has were somebody else's."""
    if before is None or after is None:
        return
    tokens = sum(r.output_tokens or 0 for r in ours)
    others = after - before - tokens
    if others > max(FEW_TOKENS, FEW_TOKENS_SHARE * tokens):
        shown = f"{others} tokens were generated for others beside our {tokens}"
        raise MeasurementInvalid(Reason.OTHER_LOAD, shown)


def _come_up(setup: Setup, endpoint: Endpoint, arm: Arm, given: Given, began: float) -> None:
    """Wait until the server is ready, and prove that it is ours and does what was asked."""
    timeout_s = setup.sweep.patience.start_timeout_s
    while not setup.engine.is_ready(endpoint):
        if endpoint.exit_code() is not None:
            raise LaunchFailed(*_cause(setup, endpoint, ready=False))
        if time.monotonic() - began > timeout_s:
            raise LaunchFailed(Reason.START_TIMEOUT, f"not ready after {timeout_s:g} s")
        time.sleep(READY_POLL_S)
    if not endpoint.owns_port():
        raise MeasurementInvalid(
            Reason.WRONG_SERVER, f"{endpoint.base_url} is answered by a process that this run did not start"
        )
    arm.back = setup.engine.read_back(endpoint, arm.point, setup.served)
    _check_variables(endpoint, arm, given)


def _check_variables(endpoint: Endpoint, arm: Arm, given: Given) -> None:
    """The server's environment is the one it was given; what the engine gave its workers is filed as such."""
    assert arm.variables is not None
    arm.variables = arrived(arm.variables, given, endpoint)
    arm.environment = endpoint.environment() or server_environment(given)
    if changed := rewrites_of(arm.point, arm.variables):
        point = in_effect(arm.back.point or arm.point, changed)
        arm.back = replace(arm.back, rewrites=(*arm.back.rewrites, *changed), point=point)


def _check_context(setup: Setup, endpoint: Endpoint, prompts: Sequence[Prompt]) -> None:
    limit = setup.engine.context_tokens(endpoint) if prompts else None
    if limit is not None:
        answer_tokens = setup.sweep.workload.max_tokens
        check_context(
            prompts, answer_tokens, limit, lambda p: setup.engine.count_tokens(endpoint, _question(p))
        )


def _question(prompt: Prompt) -> Mapping[str, object]:
    return {"messages": prompt.messages} if prompt.messages else {"prompt": prompt.text}


def _warm_up(setup: Setup, endpoint: Endpoint, arm: Arm) -> None:
    """Passes over the shapes of prompts and batches, discarded; then the prefix cache is forgotten."""
    began = time.monotonic()
    seen = _pass(setup, endpoint, arm, 1)
    most = max((w.pace.concurrency or 1 for of_phase in setup.windows.values() for w in of_phase), default=1)
    if most > 1:
        seen += _pass(setup, endpoint, arm, most)
    arm.restless = _until_flat(setup, endpoint, arm, most, seen, began)
    if ignored := setup.engine.refused_sampling(_log(endpoint), setup.sampling):
        raise MeasurementInvalid(Reason.SAMPLING_UNSUPPORTED, ignored)
    setup.engine.reset_cache(endpoint)
    arm.warm_up_s = time.monotonic() - began


def _pass(setup: Setup, endpoint: Endpoint, arm: Arm, concurrency: int) -> list[GpuSample]:
    """One warm-up prompt for each stream, and each at least once. What the server's GPUs did meanwhile."""
    tokens = min(WARM_UP_TOKENS, setup.sweep.workload.max_tokens)
    count = max(concurrency, len(setup.warm_up))
    jobs = [setup.job(prompt, tokens) for prompt in islice(cycle(setup.warm_up), count)]
    stall_timeout_s = setup.sweep.patience.stall_timeout_s
    with _gpus(setup, arm, endpoint, "warm-up") as gpus:
        result = drive(setup.target(endpoint), jobs, Closed(concurrency), stall_timeout_s=stall_timeout_s)
    _raise_if_dead(setup, endpoint, result, gpus)
    return gpus.samples


def _until_flat(
    setup: Setup, endpoint: Endpoint, arm: Arm, concurrency: int, seen: list[GpuSample], began: float
) -> str:
    """On a GPU more passes, until its clock and temperature are flat; "" or what still changed at the end."""
    limit_s = setup.sweep.patience.warm_up_s
    while limit_s and seen and (changing := still_changing(seen)):
        if time.monotonic() - began > limit_s:
            return f"the GPUs were not flat after {limit_s:g} s of warm-up: {changing}"
        seen += _pass(setup, endpoint, arm, concurrency)
    return ""


def _gpus(setup: Setup, arm: Arm, endpoint: Endpoint, cell: str) -> GpuWindow:
    container = setup.sweep.container.gpu_ids if setup.sweep.container is not None else None
    return GpuWindow(endpoint.pids, arm.environment, cell, container=container)


def _admission(setup: Setup, endpoint: Endpoint, pace: Pace) -> AdmissionWatch:
    """One request at a time never waits: the server is not bothered then."""
    one_at_a_time = pace.concurrency == 1
    return AdmissionWatch(lambda: None if one_at_a_time else setup.engine.admission(endpoint))


def _raise_if_dead(setup: Setup, endpoint: Endpoint, result: LoadResult, gpus: GpuWindow) -> None:
    """A server that ended or fell silent under load is named by its own log, not by the client's errors."""
    failed = next((r.error for r in result.requests if r.error is not None), None)
    may_be_gone = failed is not None and not result.stalled
    # A group may be silent, or not have noticed yet, while one of its ranks is gone.
    if _is_gone(setup, endpoint) if may_be_gone else endpoint.exit_code() is not None:
        raise MeasurementInvalid(*_cause(setup, endpoint, ready=True))
    if result.stalled:
        silence = failed or "no token on any stream"
        spinning = spin(gpus.last(setup.sweep.patience.stall_timeout_s))
        raise MeasurementInvalid(Reason.HANG, "; ".join(filter(None, (silence, spinning))))
    if failed is not None:
        refused = setup.engine.refused_sampling(failed, setup.sampling)
        reason = Reason.SAMPLING_UNSUPPORTED if refused else Reason.REQUESTS_FAILED
        raise MeasurementInvalid(reason, refused or failed)


def _is_gone(setup: Setup, endpoint: Endpoint) -> bool:
    """Whether the server ended, or the part of it that answers outlived the engine; it gets a moment."""
    for _ in range(20):
        if endpoint.exit_code() is not None:
            return True
        time.sleep(0.05)
    return not setup.engine.is_ready(endpoint)


def _cause(setup: Setup, endpoint: Endpoint, *, ready: bool) -> tuple[Reason, str]:
    """What the system says of a server's end comes before what its log seems to say."""
    exit_code, log = endpoint.exit_code(), _log(endpoint)
    last_line = (log.strip().splitlines() or ["the log is empty"])[-1]
    if told := endpoint.killed_for_memory():
        return (Reason.CRASH_UNDER_LOAD if ready else Reason.START_OOM), f"{told}: {last_line}"
    if told := endpoint.ended_from_outside():
        return (Reason.SERVER_DIED if ready else Reason.START_FAILED), told
    reason, evidence = setup.engine.cause(log, exit_code, ready=ready)
    if part := endpoint.part_ended():  # the server was there, and one process of it crashed
        reason = Reason.CRASH_UNDER_LOAD if reason is Reason.SERVER_DIED else reason
        return reason, f"{part}: {evidence}"
    return reason, evidence


def _log(endpoint: Endpoint) -> str:
    return endpoint.log_path.read_text(errors="replace") if endpoint.log_path.exists() else ""

"""One launch of one arm: start, verify, warm up, measure every Cell, end; or the reason why not."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analysis.acceptance import from_counters
from analysis.summary import capacity_limited, summarise, total_output_tokens
from launchers.engines.engine import Engine, Served
from launchers.launcher import Endpoint, Launch, Launcher
from launchers.port import free_port
from launchers.telemetry import HostWindow
from results.errors import LaunchFailed, MeasurementInvalid
from results.reasons import Reason
from results.records import (
    ArmRun,
    Cell,
    Failure,
    KnobValue,
    Measurement,
    Phase,
    Point,
    Request,
    SpecCounters,
    Telemetry,
)
from results.store import RunFolder
from sweeps.admission import AdmissionWatch
from sweeps.calibrate import Calibration
from sweeps.load import Job, LoadResult, Target, drive, job
from sweeps.pace import Closed, Pace
from sweeps.sweep import Sweep
from sweeps.workload import Prompt, check_context, prompt_set_hash

WARM_UP_TOKENS = 16
READY_POLL_S = 0.02
GATE_MINIMUM = 3  # prompts before a Point can be called hopeless


@dataclass(frozen=True)
class Setup:
    """All that both arms of every Block share."""

    sweep: Sweep
    engine: Engine
    launcher: Launcher
    served: Served
    folder: RunFolder
    paces: Sequence[Pace]
    prompts: Mapping[Phase, Mapping[str, Sequence[Prompt]]]  # by class
    warm_up: Sequence[Prompt]  # one of each class, none of them measured
    calibration: Calibration

    def windows(self, phase: Phase) -> Iterator[tuple[Cell, Pace, Sequence[Prompt]]]:
        """The Cells of one arm-run, in order, each with its prompts."""
        for pace in self.paces:
            for workload_class, prompts in self.prompts[phase].items():
                yield Cell(workload_class, str(pace)), pace, prompts

    def prompt_set(self, phase: Phase) -> str:
        """Hash of the prompts of a phase."""
        return prompt_set_hash([p for prompts in self.prompts[phase].values() for p in prompts])

    def job(self, prompt: Prompt, max_tokens: int) -> Job:
        """The request body of a prompt, the same for both arms."""
        workload = self.sweep.workload
        return job(
            prompt,
            model=str(self.served.model),
            max_tokens=max_tokens,
            sampling={"temperature": workload.temperature, "seed": self.sweep.seed, **workload.sampling},
            extra=self.engine.request_fields(fixed_length=workload.lengths == "fixed"),
            chat=workload.endpoint == "chat",
        )


class Gate:
    """Ends an arm that is hopelessly slower than the baseline on the same prompts."""

    def __init__(self, reference: Sequence[Request], ratio: float) -> None:
        self._reference = {(r.workload_class, r.prompt_id): r for r in reference}
        self._ratio = ratio
        self._pairs: list[tuple[float, float]] = []  # seconds of the baseline, of this arm

    @property
    def speed_ratio(self) -> float | None:
        """This arm's speed over the baseline's, on the prompts seen so far."""
        ours = sum(pair[1] for pair in self._pairs)
        return sum(pair[0] for pair in self._pairs) / ours if ours > 0 else None

    def __call__(self, request: Request) -> bool:
        """Whether to go on."""
        known = self._reference.get((request.workload_class, request.prompt_id))
        if known is None or not known.output_tokens or not request.output_tokens:
            return True
        theirs_s = (known.ended_s - known.sent_s) / known.output_tokens
        self._pairs.append((theirs_s, (request.ended_s - request.sent_s) / request.output_tokens))
        ratio = self.speed_ratio
        return len(self._pairs) < GATE_MINIMUM or ratio is None or ratio >= self._ratio


@dataclass
class Arm:
    """One arm while it runs: its record in the making, and the raw requests."""

    point: Point
    name: str
    argv: tuple[str, ...] = ()
    start_s: float = 0.0
    warm_up_s: float = 0.0
    measured_s: float = 0.0
    effective: Mapping[str, KnobValue | None] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    requests: dict[Cell, tuple[Request, ...]] = field(default_factory=dict)
    failure: Failure | None = None
    stopped_at_ratio: float | None = None  # hopeless

    @property
    def all_requests(self) -> list[Request]:
        return [r for requests in self.requests.values() for r in requests]

    @property
    def texts(self) -> dict[str, str]:
        """Text of every successful request by Cell and prompt."""
        return {
            f"{cell.label}/{r.prompt_id}": r.reasoning_text + r.text
            for cell, requests in self.requests.items()
            for r in requests
            if r.error is None
        }

    def record(self) -> ArmRun:
        """The arm as it is written to the run folder."""
        return ArmRun(
            point=self.point,
            argv=self.argv,
            start_s=self.start_s,
            warm_up_s=self.warm_up_s,
            measured_s=self.measured_s,
            effective=self.effective,
            measurements=tuple(self.measurements),
            failure=self.failure,
            stopped_at_ratio=self.stopped_at_ratio,
            log=f"{self.name}.log",
            requests=self.name,
        )


def run_arm(
    setup: Setup, point: Point, phase: Phase, name: str, gate: Gate | None = None, *, check: bool = False
) -> Arm:
    """Run one arm in a fresh server. What goes wrong with it is data: see `Arm.failure`.

    With `check`, the prompts are first compared with the server's context (UsageError).
    """
    arm = Arm(point, name)
    began = time.monotonic()
    port = free_port()
    arm.argv = setup.engine.command(point, setup.served, port)
    environment = setup.engine.environment(point, setup.served)
    launch = Launch(arm.argv, port, setup.folder.logs / f"{name}.log", environment)
    try:
        with setup.launcher.start(launch) as endpoint:
            _come_up(setup, endpoint, arm, began)
            arm.start_s = time.monotonic() - began
            if check:
                _check_context(setup, endpoint, phase)
            _warm_up(setup, endpoint, arm)
            _measure(setup, endpoint, arm, phase, gate)
    except (LaunchFailed, MeasurementInvalid) as error:
        arm.failure = Failure(error.reason, error.evidence)
        arm.start_s = arm.start_s or time.monotonic() - began
    return arm


def _come_up(setup: Setup, endpoint: Endpoint, arm: Arm, began: float) -> None:
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
    arm.effective = setup.engine.read_back(endpoint, arm.point, setup.served).effective


def _check_context(setup: Setup, endpoint: Endpoint, phase: Phase) -> None:
    limit = setup.engine.context_tokens(endpoint)
    prompts = [p for _, _, prompts in setup.windows(phase) for p in prompts]
    if limit is not None:
        answer_tokens = setup.sweep.workload.max_tokens
        check_context(
            prompts, answer_tokens, limit, lambda p: setup.engine.count_tokens(endpoint, _question(p))
        )


def _question(prompt: Prompt) -> Mapping[str, object]:
    return {"messages": prompt.messages} if prompt.messages else {"prompt": prompt.text}


def _warm_up(setup: Setup, endpoint: Endpoint, arm: Arm) -> None:
    """One pass over the shapes of the prompts, discarded; then the prefix cache is forgotten."""
    began = time.monotonic()
    tokens = min(WARM_UP_TOKENS, setup.sweep.workload.max_tokens)
    jobs = [setup.job(prompt, tokens) for prompt in setup.warm_up]
    result = drive(
        _target(setup, endpoint), jobs, Closed(1), stall_timeout_s=setup.sweep.patience.stall_timeout_s
    )
    _raise_if_dead(setup, endpoint, result)
    setup.engine.reset_cache(endpoint)
    arm.warm_up_s = time.monotonic() - began


def _measure(setup: Setup, endpoint: Endpoint, arm: Arm, phase: Phase, gate: Gate | None) -> None:
    for cell, pace, prompts in setup.windows(phase):
        jobs = [setup.job(p, p.max_tokens or setup.sweep.workload.max_tokens) for p in prompts]
        before = setup.engine.counters(endpoint)
        began = time.monotonic()
        with HostWindow(endpoint.pids) as host, _admission(setup, endpoint, pace) as admission:
            result = drive(
                _target(setup, endpoint),
                jobs,
                pace,
                stall_timeout_s=setup.sweep.patience.stall_timeout_s,
                on_request=gate,
            )
        arm.measured_s += time.monotonic() - began
        arm.requests[cell] = result.requests
        _raise_if_dead(setup, endpoint, result)
        queued = capacity_limited(admission.running, admission.waiting, pace.concurrency)
        if queued is not None:
            raise MeasurementInvalid(queued.reason, f"{cell.label}: {queued.evidence}")
        counted = _counted(before, setup.engine.counters(endpoint))
        telemetry = replace(host.telemetry, client_cores=result.client_cpu_s / result.wall_s)
        arm.measurements.append(_summary(setup, arm, cell, result, counted, telemetry))
        setup.engine.reset_cache(endpoint)
        if result.stopped_early and gate is not None:
            arm.stopped_at_ratio = gate.speed_ratio
            return


def _admission(setup: Setup, endpoint: Endpoint, pace: Pace) -> AdmissionWatch:
    """One request at a time never waits: the server is not bothered then."""
    one_at_a_time = pace.concurrency == 1
    return AdmissionWatch(lambda: None if one_at_a_time else setup.engine.admission(endpoint))


def _counted(before: SpecCounters | None, after: SpecCounters | None) -> SpecCounters | None:
    return None if before is None or after is None else after.since(before)


def _summary(
    setup: Setup, arm: Arm, cell: Cell, result: LoadResult, counted: SpecCounters | None, host: Telemetry
) -> Measurement:
    emitted = total_output_tokens(result.requests)
    acceptance = from_counters(counted, emitted, method_is_none=arm.point.is_baseline)
    return summarise(
        cell,
        result.requests,
        result.wall_s,
        acceptance,
        host,
        max_tokens=setup.sweep.workload.max_tokens,
    )


def _raise_if_dead(setup: Setup, endpoint: Endpoint, result: LoadResult) -> None:
    """A server that ended or fell silent under load is named by its own log, not by the client's errors."""
    failed = next((r.error for r in result.requests if r.error is not None), None)
    if failed is not None and _exited(endpoint):
        raise MeasurementInvalid(*_cause(setup, endpoint, ready=True))
    if result.stalled:
        raise MeasurementInvalid(Reason.HANG, failed or "no token on any stream")
    if failed is not None:
        raise MeasurementInvalid(Reason.REQUESTS_FAILED, failed)


def _exited(endpoint: Endpoint) -> bool:
    """Whether the server ended; a dying one gets a moment to do so."""
    for _ in range(20):
        if endpoint.exit_code() is not None:
            return True
        time.sleep(0.05)
    return False


def _cause(setup: Setup, endpoint: Endpoint, *, ready: bool) -> tuple[Reason, str]:
    log = endpoint.log_path.read_text(errors="replace") if endpoint.log_path.exists() else ""
    return setup.engine.cause(log, endpoint.exit_code(), ready=ready)


def _target(setup: Setup, endpoint: Endpoint) -> Target:
    chat = setup.sweep.workload.endpoint == "chat"
    return Target(endpoint.base_url, "/v1/chat/completions" if chat else "/v1/completions", {})

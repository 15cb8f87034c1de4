"""A stand-in for engine and launcher: the whole pipeline runs against scripted speeds and faults.

The server is a thread of this process that speaks real HTTP/1.1 and SSE on loopback, so that every
other part of the tool is the real one. Tokens are words; a prompt always gets the same text.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from launchers.engines.deploy import Argv, Deployment
from launchers.engines.engine import Capture, Knob, Rank, ReadBack, Recount, Served, SlotDrafts, Tracer
from launchers.engines.http import ask, get_json, is_ok
from launchers.engines.prometheus import fetch_samples, total
from launchers.fake_server import FakeEndpoint, Fault, Script, class_before_colon
from launchers.launcher import Endpoint, Launch, Launcher
from launchers.port import refuse_if_taken
from results.errors import LaunchFailed, MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE_METHOD, DraftShape, KnobValue, Point, SpecCounters

METHODS: Mapping[str, tuple[Knob, ...]] = {
    BASELINE_METHOD: (),
    "fake-ngram": (
        Knob("n", 4, 1, 8, grid=(1, 2, 4, 8), meaning="tokens looked up"),
        Knob("m", 8, 1, 32, grid=(1, 4, 8, 16, 32), meaning="tokens drafted"),
    ),
}
CONTEXT_TOKENS = 4096
MOST_NODES = 8
RANK = Path(__file__).with_name("fake_rank.py")


def _on_port(argv: Argv, host: str, port: int) -> Argv:
    return (*argv[:2], str(port), *argv[3:])


DEPLOYMENT = Deployment(8080, lambda argv: [], address=_on_port, in_image=lambda argv: argv)


class FakeEngine:
    """Engine `fake`.

    `speed(point, workload_class)` is in tokens per second of one stream; `fault(point)` is what goes
    wrong; `class_of(prompt)` tells the workload class from the text of the last message; `answer(point,
    prompt)` is what the server says to it (None: words of its own); `pinned(cores)` is what its cores do to
    its speed, though it is a thread of this process and runs on any.
    """

    name = "fake"
    usual_start_s = 0.1
    no_custom_all_reduce = ""
    speculative_settings = frozenset({"n", "m"})
    memory_settings: Mapping[str, bool] = {"m": False}

    def __init__(
        self,
        speed: Callable[[Point, str], float] | None = None,
        fault: Callable[[Point], Fault | None] = lambda point: None,
        class_of: Callable[[str], str] = class_before_colon,
        answer: Callable[[Point, str], str | None] = lambda point, prompt: None,
        pinned: Callable[[tuple[int, ...]], float] = lambda cores: 1.0,
    ) -> None:
        self.script = Script(speed or example_speed, fault, class_of, answer, pinned)

    def version(self) -> str:
        return "fake 1"

    def resolve(
        self,
        model: str,
        draft: str | None,
        args: Mapping[str, KnobValue],
        env: Mapping[str, str],
    ) -> Served:
        served = Served("fake-model", draft, args, env)
        self.check_served(served)
        return served

    def notes(self, served: Served) -> Sequence[str]:
        return ()

    def identity(self, served: Served) -> Mapping[str, str]:
        return {"model": str(served.model)}

    def methods(self, served: Served) -> Mapping[str, tuple[Knob, ...]]:
        return METHODS

    def check(self, point: Point, served: Served) -> None:
        knobs = {knob.name: knob for knob in _knobs(point)}
        for name, value in point.speculative.items():
            if name not in knobs:
                raise UsageError(f"{point.method} has no knob {name!r} (its knobs: {', '.join(knobs)})")
            low, high = knobs[name].low, knobs[name].high
            if not isinstance(value, int) or not (low or 0) <= value <= (high or 0):
                raise UsageError(f"{point.label}: {name}={value} is outside {low} to {high}")

    def lossy(self, point: Point, served: Served) -> str:
        return ""

    def canonical(self, point: Point) -> Point:
        knobs = {k.name: point.knobs.get(k.name, k.default) for k in _knobs(point)}
        return Point(point.method, {**knobs, **point.shared})

    def draft_shape(self, point: Point) -> DraftShape | None:
        tokens = int(point.knobs.get("m", 0))
        return DraftShape(tokens, tokens, passes=0) if tokens else None

    def starting_points(self, served: Served) -> Sequence[Point]:
        return [Point("fake-ngram", {"n": 4, "m": 8}), Point("fake-ngram", {"n": 8, "m": 32})]

    def check_served(self, served: Served) -> None:
        if served.args:
            raise UsageError(f"the fake engine has no flag --{next(iter(served.args))}")

    def command(self, point: Point, served: Served, port: int) -> tuple[str, ...]:
        return ("fake-server", self.canonical(point).key, str(port))

    def environment(self, point: Point, served: Served) -> Mapping[str, str | None]:
        return {**served.env, **point.variables}

    def ranks(self, point: Point, served: Served) -> int:
        return 2

    def check_nodes(self, point: Point, served: Served, nodes: int) -> None:
        if nodes > MOST_NODES:
            raise UsageError(f"ray.nodes: the fake engine serves over {MOST_NODES} nodes at most")

    def on_node(self, argv: Argv, rank: Rank) -> Argv:
        words = (f"{rank.number}", f"{rank.nodes}", f"{rank.host}:{rank.port}")
        return (*argv, *words) if rank.number == 0 else (sys.executable, "-S", "-E", str(RANK), *words)

    def torch_of(self, point: Point) -> None:
        return None

    def device(self, point: Point) -> str:
        return ""

    def is_ready(self, endpoint: Endpoint) -> bool:
        return is_ok(f"{endpoint.base_url}/health")

    def read_back(self, endpoint: Endpoint, point: Point, served: Served) -> ReadBack:
        if not endpoint.owns_port():
            raise MeasurementInvalid(Reason.WRONG_SERVER, "another server has the port")
        state = get_json(f"{endpoint.base_url}/state")
        for name, asked in self.canonical(point).speculative.items():
            if state["knobs"].get(name) != asked:
                evidence = f"{name}={asked} was asked for, {state['knobs'].get(name)} is in effect"
                raise MeasurementInvalid(Reason.IGNORED_SETTING, evidence)
        if not point.is_baseline and not state["speculating"]:
            raise MeasurementInvalid(Reason.NOT_SPECULATING, "speculation is off")
        return ReadBack("fake-model", state["speculating"], state["knobs"])

    def request_fields(self, *, fixed_length: bool) -> Mapping[str, object]:
        return {"ignore_eos": fixed_length}

    def counters(self, endpoint: Endpoint) -> SpecCounters | None:
        page = fetch_samples(f"{endpoint.base_url}/metrics") or []
        drafts, draft_tokens, accepted = (
            total(page, f"fake:{name}_total") or 0 for name in ("drafts", "draft_tokens", "accepted")
        )
        return SpecCounters(drafts, draft_tokens, accepted)

    def counted_in_reply(self, stats: Mapping[str, float]) -> SpecCounters | None:
        return None

    def refused_sampling(self, text: str, fields: Collection[str]) -> str | None:
        return None

    def drafts_by_slot(self, endpoint: Endpoint) -> Sequence[SlotDrafts]:
        return ()

    def recount(self, endpoint: Endpoint) -> Recount | None:
        return None

    def admission(self, endpoint: Endpoint) -> tuple[int, int] | None:
        return None

    def generated_tokens(self, endpoint: Endpoint) -> int | None:
        return None  # its port is known to this run alone

    def reset_cache(self, endpoint: Endpoint) -> bool:
        return ask("POST", f"{endpoint.base_url}/reset").ok

    def context_tokens(self, endpoint: Endpoint) -> int | None:
        return CONTEXT_TOKENS

    def count_tokens(self, endpoint: Endpoint, body: Mapping[str, object]) -> int:
        return len(str(body.get("messages") or body.get("prompt")).split())

    def tracer(self, point: Point, folder: Path, *, stacks: bool = False) -> Tracer:
        raise UsageError("the fake engine has no profiler")

    def capture(
        self, point: Point, served: Served, folder: Path, boundaries: Collection[int] | None = None
    ) -> Capture:
        raise UsageError("the fake engine has no states to be seen")

    def cause(self, log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
        line = (log.strip().splitlines() or ["the log is empty"])[-1]
        reason = Reason.SERVER_DIED if ready else Reason.CONFIG_REJECTED
        return reason, f"exit code {exit_code}: {line}"


def example_speed(point: Point, workload_class: str) -> float:
    """Tokens per second of a made-up server: best at n = 4, m = 8, and worse for long drafts."""
    if point.is_baseline:
        return 400.0
    n, m = int(point.knobs["n"]), int(point.knobs["m"])
    return 400.0 * (1.4 - 0.05 * abs(n - 4) - 0.02 * abs(m - 8))


def _knobs(point: Point) -> tuple[Knob, ...]:
    if point.method not in METHODS:
        raise UsageError(f"no method {point.method!r}: choose from {', '.join(METHODS)}")
    return METHODS[point.method]


class FakeLauncher:
    """Launcher of the stand-in; the engine carries the script. Ranks above 0 are real processes."""

    def __init__(self, engine: FakeEngine, processes: Launcher | None = None) -> None:
        """`processes`: what starts those ranks, where there are any."""
        self._engine, self._processes = engine, processes

    @contextmanager
    def start(self, launch: Launch) -> Iterator[Endpoint]:
        if str(RANK) in launch.argv and self._processes is not None:
            with self._processes.start(launch) as rank:
                yield rank
            return
        if launch.argv[0] != "fake-server":
            raise LaunchFailed(Reason.START_FAILED, f"cannot run {launch.argv[0]}: not a fake server")
        refuse_if_taken(launch.port)
        launch.log_path.parent.mkdir(parents=True, exist_ok=True)
        launch.log_path.write_text(f"fake server: {launch.argv[1]}\n")
        endpoint = FakeEndpoint(launch, self._engine.script)
        try:
            yield endpoint
        finally:
            endpoint.end()

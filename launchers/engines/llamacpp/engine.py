"""llama.cpp: the embedded server, or a llama-server binary, which share flags and HTTP interface."""

import difflib
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from launchers.embedded.flags import BY_NAME, SPECULATIVE, flag_name
from launchers.embedded.gguf import check_gguf
from launchers.embedded.model import file_identity, find_model
from launchers.engines.engine import Capture, Knob, Rank, ReadBack, Recount, Served, SlotDrafts, Tracer
from launchers.engines.http import ask, get_json, is_ok, post_json
from launchers.engines.llamacpp import knobs as rules
from launchers.engines.llamacpp.log import (
    cause_from_log,
    effective_from_log,
    line_with,
    recount_from_log,
    slot_drafts_from_log,
)
from launchers.engines.prometheus import by_position, fetch_samples, total
from launchers.launcher import Endpoint
from launchers.place import Place, Places, on_this_machine
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import DraftShape, KnobValue, Point, SpecCounters

EMBEDDED = "embedded"
DRAFTS = "llamacpp:spec_decode_num_drafts_total"
DRAFT_TOKENS = "llamacpp:spec_decode_num_draft_tokens_total"
ACCEPTED = "llamacpp:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
RUNNING = "llamacpp:requests_processing"
WAITING = "llamacpp:requests_deferred"
# Set by the tool itself, or by the Point: never by the user's fixed arguments.
OURS = {"--model", "--port", "--host", "--metrics", "--slots", "--props", "--verbosity"}
SPECULATIVE_FLAGS = {flag.long_name for flag in SPECULATIVE}

MEMORY_SETTINGS: Mapping[str, bool] = dict.fromkeys(
    ("--ctx-size", "--parallel", "--batch-size", "--ubatch-size", "--n-gpu-layers", "n_max"), False
)


class LlamaCpp:
    """Engine `llamacpp`. `server` is "embedded" or the path of a llama-server binary."""

    name = "llamacpp"
    usual_start_s = 2.0
    no_custom_all_reduce = ""
    speculative_settings = frozenset({"method", "key_only", *rules.KNOB_NAMES})

    def __init__(
        self, server: str = EMBEDDED, places: Places = on_this_machine, *, planning: bool = False
    ) -> None:
        self._planning = planning
        self._server = server
        self._places = places

    @property
    def _is_embedded(self) -> bool:
        return self._server == EMBEDDED

    @property
    def memory_settings(self) -> Mapping[str, bool]:
        return MEMORY_SETTINGS

    def version(self) -> str:
        if self._is_embedded:
            from importlib.metadata import PackageNotFoundError, version

            try:
                return f"xllamacpp {version('xllamacpp')}"
            except PackageNotFoundError:
                raise UsageError(
                    "the embedded server needs xllamacpp: pip install -e '.[embedded]' in the folder of tuner"
                ) from None
        return _binary_version(self._places(None), self._server)

    def resolve(
        self,
        model: str,
        draft: str | None,
        args: Mapping[str, KnobValue],
        env: Mapping[str, str],
    ) -> Served:
        served = Served(find_model(model), find_model(draft) if draft else None, args, env)
        self.check_served(served)
        return served

    def notes(self, served: Served) -> Sequence[str]:
        return ()

    def identity(self, served: Served) -> Mapping[str, str]:
        files = {"model": served.model, "draft": served.draft}
        return {
            f"{role}_sha256": file_identity(Path(path)) for role, path in files.items() if path is not None
        }

    def methods(self, served: Served) -> Mapping[str, tuple[Knob, ...]]:
        return {
            name: method.knobs
            for name, method in rules.METHODS.items()
            if served.draft is not None or not method.needs_draft
        }

    def check(self, point: Point, served: Served) -> None:
        rules.check(point)
        if rules.METHODS[point.method].needs_draft and served.draft is None:
            raise UsageError(f"{point.method} needs a draft model: name one, or choose another method")

        for name in point.flags:
            self._check_argument(flag_name(name))

    def lossy(self, point: Point, served: Served) -> str:
        return ""  # every method verifies each token against the target's own choice

    def canonical(self, point: Point) -> Point:
        return rules.canonical(point)

    def draft_shape(self, point: Point) -> DraftShape | None:
        return rules.draft_shape(point)

    def starting_points(self, served: Served) -> Sequence[Point]:
        return rules.starting_points(self.methods(served))

    def check_served(self, served: Served) -> None:
        for file in [served.model, *([] if served.draft is None else [served.draft])]:
            if Path(file).exists() or not self._planning:
                check_gguf(Path(file))
        for name in served.args:
            self._check_argument(flag_name(name))
        if self._is_embedded:
            self.version()
        else:
            self._places(None).program(self._server)

    def _check_argument(self, flag: str) -> None:
        if flag in SPECULATIVE_FLAGS or flag.startswith("--spec-"):
            raise UsageError(
                f"{flag} is speculative: it belongs to the space, not to the fixed arguments "
                "(a draft model is named beside the model, and never drafts without --spec-type)"
            )
        if flag in OURS:
            raise UsageError(f"{flag} is set by the tuner itself: leave it out of the fixed arguments")
        if self._is_embedded and flag not in BY_NAME:
            near = difflib.get_close_matches(flag, BY_NAME, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise UsageError(f"the embedded server has no flag {flag}{hint}")

    def command(self, point: Point, served: Served, port: int) -> tuple[str, ...]:
        place = self._places(point.image)
        embedded = [sys.executable, "-P", "-m", "launchers.embedded"]
        program = embedded if self._is_embedded else [self._server]
        address: dict[str, KnobValue] = {
            "--model": str(Path(served.model).resolve()),
            "--host": place.host,
            "--port": port,
        }
        return tuple(
            program + _arguments({**address, **_fixed(served, point), **_speculative(point, served)})
        )

    def environment(self, point: Point, served: Served) -> Mapping[str, str | None]:
        # On an assertion ggml would start a debugger on itself before it dies.
        variables = {"GGML_NO_BACKTRACE": "1"}
        if self._is_embedded:  # our packages, from wherever the tool itself has them
            paths = [str(Path(__file__).parents[3]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return {**variables, **served.env, **point.variables}

    def ranks(self, point: Point, served: Served) -> int:
        return 1  # one process; builds with NCCL are not known to it

    def check_nodes(self, point: Point, served: Served, nodes: int) -> None:
        raise UsageError("ray.nodes: llama.cpp serves on one node (its RPC backend is not started by tuner)")

    def on_node(self, argv: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        raise UsageError("llama.cpp serves on one node")

    def torch_of(self, point: Point) -> None:
        return None

    def device(self, point: Point) -> str:
        return ""

    def is_ready(self, endpoint: Endpoint) -> bool:
        return is_ok(f"{endpoint.base_url}/health")

    def read_back(self, endpoint: Endpoint, point: Point, served: Served) -> ReadBack:
        if not endpoint.owns_port():
            raise MeasurementInvalid(Reason.WRONG_SERVER, f"{endpoint.base_url} is not served by this launch")
        props, slots = get_json(f"{endpoint.base_url}/props"), get_json(f"{endpoint.base_url}/slots")
        log = endpoint.log_path.read_text("utf-8", "replace")
        _check_model(props, served)
        _check_speculation(point, slots, log)
        effective = _effective(props, slots, log)
        _check_effective(_requested(point, served), effective)
        return ReadBack(props["model_path"], not point.is_baseline, effective)

    def request_fields(self, *, fixed_length: bool) -> Mapping[str, object]:
        return {"cache_prompt": False, "timings_per_token": False, "ignore_eos": fixed_length}

    def counters(self, endpoint: Endpoint) -> SpecCounters | None:
        page = fetch_samples(f"{endpoint.base_url}/metrics") or []
        counts = [total(page, name) for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED)]
        drafts, draft_tokens, accepted = counts
        if drafts is None or draft_tokens is None or accepted is None:
            return None
        return SpecCounters(drafts, draft_tokens, accepted, by_position(page, ACCEPTED_PER_POSITION))

    def counted_in_reply(self, stats: Mapping[str, float]) -> SpecCounters | None:
        if "draft_n" not in stats:
            return None
        return SpecCounters(0, int(stats["draft_n"]), int(stats.get("draft_n_accepted", 0)))

    def refused_sampling(self, text: str, fields: Collection[str]) -> str | None:
        return None

    def drafts_by_slot(self, endpoint: Endpoint) -> Sequence[SlotDrafts]:
        log = endpoint.log_path.read_text("utf-8", "replace")
        method = rules.METHODS.get(str(effective_from_log(log).get("method")))
        return slot_drafts_from_log(log) if method is not None and method.needs_draft else ()

    def recount(self, endpoint: Endpoint) -> Recount | None:
        return recount_from_log(endpoint.log_path.read_text("utf-8", "replace"))

    def admission(self, endpoint: Endpoint) -> tuple[int, int] | None:
        page = fetch_samples(f"{endpoint.base_url}/metrics") or []
        running, waiting = total(page, RUNNING), total(page, WAITING)
        return None if running is None or waiting is None else (running, waiting)

    def generated_tokens(self, endpoint: Endpoint) -> int | None:
        return None  # its port is known to this run alone

    def reset_cache(self, endpoint: Endpoint) -> bool:
        """Erases every slot; the server allows it only with --slot-save-path.

        Without it nothing is lost: `request_fields` forbids the use of cached prefixes.
        """
        erased = [
            ask("POST", f"{endpoint.base_url}/slots/{slot['id']}?action=erase").ok
            for slot in get_json(f"{endpoint.base_url}/slots")
        ]
        return all(erased)

    def context_tokens(self, endpoint: Endpoint) -> int | None:
        return min((int(slot["n_ctx"]) for slot in get_json(f"{endpoint.base_url}/slots")), default=None)

    def count_tokens(self, endpoint: Endpoint, body: Mapping[str, object]) -> int:
        text = body.get("prompt")
        if "messages" in body:
            filled = post_json(f"{endpoint.base_url}/apply-template", {"messages": body["messages"]})
            text = filled["prompt"]
        found = post_json(f"{endpoint.base_url}/tokenize", {"content": text, "add_special": True})
        return len(found["tokens"])

    def tracer(self, point: Point, folder: Path, *, stacks: bool = False) -> Tracer:
        raise UsageError(
            "llama.cpp has no profiler endpoint: what a reply tells of its time (timings) is in the requests"
            " of the run; perf or Nsight Systems can be put around llama-server by hand"
        )

    def capture(
        self, point: Point, served: Served, folder: Path, boundaries: Collection[int] | None = None
    ) -> Capture:
        raise UsageError("servers of llama.cpp show nothing of the states that a drafter is given")

    def cause(self, log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
        return cause_from_log(log, exit_code, ready=ready)


def _binary_version(place: Place, server: str) -> str:
    done = place.run([place.program(server), "--version"], {}, timeout_s=30)
    lines = (done.output + done.errors).splitlines()
    return next((line for line in lines if line.startswith("version")), f"{server} (version unknown)")


def _threads() -> int:
    """Physical cores, or what of them this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(psutil.cpu_count(logical=False) or usable, usable)


def _fixed(served: Served, point: Point) -> dict[str, KnobValue]:
    """The Point's own settings win over the user's arguments, those over the defaults."""
    defaults: dict[str, KnobValue] = {
        "--threads": _threads(),
        "--ctx-size": 4096,
        "--parallel": 1,
        "--cache-ram": 0,  # else every request first stores the prompt of the one before it
        "--metrics": True,
        "--slots": True,
        "--props": True,
        "--verbosity": 4,  # prints the speculative settings in effect
    }
    chosen = {**served.args, **point.flags}
    return {**defaults, **{flag_name(name): value for name, value in chosen.items()}}


def _speculative(point: Point, served: Served) -> dict[str, KnobValue]:
    """Every speculative flag of the Point's method, none left to a build's default."""
    method = rules.method_of(point)
    draft: dict[str, KnobValue] = {}
    if method.needs_draft and served.draft is not None:
        draft["--model-draft"] = str(Path(served.draft).resolve())
    return {"--spec-type": point.method, **draft, **method.flag_values(rules.canonical(point).speculative)}


def _arguments(flags: Mapping[str, KnobValue]) -> list[str]:
    """True is a bare flag, False leaves it out; for a flag that takes a value they are its on and off."""
    argv: list[str] = []
    for flag, value in flags.items():
        if not isinstance(value, bool):
            argv += [flag, str(value)]
        elif flag in BY_NAME and BY_NAME[flag].takes_value:  # YAML reads `on` as True
            argv += [flag, "on" if value else "off"]
        elif value:
            argv.append(flag)
    return argv


def _check_model(props: Mapping[str, Any], served: Served) -> None:
    model = props.get("model_path")
    if model is None or Path(model).resolve() != Path(served.model).resolve():
        raise MeasurementInvalid(Reason.WRONG_SERVER, f"serves {model}, not {served.model}")


def _check_speculation(point: Point, slots: Sequence[Mapping[str, Any]], log: str) -> None:
    """A drafter that cannot be used leaves a healthy server with speculation off."""
    on = [slot["id"] for slot in slots if slot.get("speculative")]
    if point.is_baseline and on:
        raise MeasurementInvalid(Reason.IGNORED_SETTING, f"--spec-type none, but slots {on} speculate")
    if not point.is_baseline and len(on) < len(slots):
        off = [slot["id"] for slot in slots if not slot.get("speculative")]
        evidence = line_with("failed to initialize speculative decoding", log) or "no reason in the log"
        raise MeasurementInvalid(Reason.NOT_SPECULATING, f"slots {off} do not speculate: {evidence}")


def _effective(
    props: Mapping[str, Any], slots: Sequence[Mapping[str, Any]], log: str
) -> dict[str, KnobValue | None]:
    """What the log says of a drafter's own context (layers, cache types) concerns no baseline."""
    printed = effective_from_log(log)
    return {
        "build": props.get("build_info"),
        "parallel": len(slots),
        "context_per_slot": min(int(slot["n_ctx"]) for slot in slots),
        **{name: printed[name] for name in printed if name in LlamaCpp.speculative_settings},
    }


def _requested(point: Point, served: Served) -> dict[str, KnobValue]:
    asked: dict[str, KnobValue] = {"parallel": _fixed(served, point)["--parallel"]}
    if point.is_baseline:
        return asked
    return {**asked, "method": point.method, **rules.canonical(point).speculative}


def _check_effective(requested: Mapping[str, KnobValue], effective: Mapping[str, KnobValue | None]) -> None:
    """A setting that the server does not print is unknown, not ignored."""
    for name, asked in requested.items():
        got = effective.get(name)
        if got is not None and not _same(asked, got):
            raise MeasurementInvalid(
                Reason.IGNORED_SETTING, f"{name}={asked} was asked for, {got} is in effect"
            )


def _same(asked: KnobValue, got: KnobValue) -> bool:
    if isinstance(asked, int | float) and isinstance(got, int | float):
        return math.isclose(asked, got, abs_tol=1e-4)
    return asked == got

"""vLLM: an OpenAI-compatible server started by the Python that has it installed."""

import functools
import json
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from launchers.engines.engine import Knob, Rank, ReadBack, Recount, Served, SlotDrafts
from launchers.engines.http import ask, get_json, is_ok, post_json
from launchers.engines.model_folder import find_model_folder, folder_identity
from launchers.engines.probe import Probe
from launchers.engines.vllm import capture, group, knobs, rules
from launchers.engines.vllm.capture import VllmCapture
from launchers.engines.vllm.config import FLAG, SPACE_KEYS, config_of, offered, split
from launchers.engines.vllm.counters import (
    FAMILY,
    RUNNING,
    WAITING,
    admission_of,
    counted_in_reply,
    counters_of,
    drafts_by_engine,
    fetch,
)
from launchers.engines.vllm.effective import speculative_settings
from launchers.engines.vllm.flags import (
    Capabilities,
    argv_of,
    capabilities_from,
    check_value,
    named,
    pinned,
)
from launchers.engines.vllm.log import cause_from_log, refused_sampling, speculation_from_log
from launchers.engines.vllm.models import Models, layers_of, models_of
from launchers.engines.vllm.readback import read_back
from launchers.engines.vllm.tracer import PROFILER_CONFIG, VllmTracer
from launchers.launcher import Endpoint
from launchers.place import Place, Places, on_this_machine
from results.errors import UsageError
from results.hidden_states import DumpHeader
from results.reasons import Reason
from results.records import BASELINE, DraftShape, KnobValue, Point, SpecCounters

DEFAULT_PYTHON = "python3"
INSIDE = Path(__file__).with_name("inside.py")
# What one release can do, for a plan on a machine that does not have the image: `inside.py` told it.
SNAPSHOT = Path(__file__).with_name("capabilities_0_32.json")
PER_REQUEST = "--per-request-spec-decode-metrics"
# Set by the tool itself: never by the user's fixed arguments.
OURS = {"--model", "--host", "--port", "--uds", "--config", PER_REQUEST, "--disable-log-stats", *group.FLAGS}
MEMORY_SETTINGS: Mapping[str, bool] = {
    "--gpu-memory-utilization": True,
    **dict.fromkeys(("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens"), False),
    "num_speculative_tokens": False,
}
SPACE = {FLAG, "--spec-method", "--spec-model", "--spec-tokens"}


class Vllm:
    """Engine `vllm`. `server` is the Python interpreter that has vLLM.

    `places` says where a Point's servers run; each image has a vLLM of its own. While `planning`, a
    model that is not on this machine is taken as it is named.
    """

    name = "vllm"
    usual_start_s = 40.0
    no_custom_all_reduce = "--disable-custom-all-reduce"

    def __init__(
        self,
        server: str = DEFAULT_PYTHON,
        known: Capabilities | None = None,
        places: Places = on_this_machine,
        *,
        planning: bool = False,
    ) -> None:
        self._planning = planning
        self._server = server or DEFAULT_PYTHON
        self._places = places
        self._known = functools.cache(lambda image: known or self._ask(places(image)))

    def _ask(self, place: Place) -> Capabilities:
        """What the installation in a Place can do. Raises UsageError if vLLM is not there."""
        if place.absent:
            return capabilities_from(json.loads(SNAPSHOT.read_text("utf-8")))
        python = place.program(self._server)
        with Probe(place, python, INSIDE) as probe:
            answer = probe.ask({"capabilities": True})
        if "error" in answer:
            raise UsageError(
                f"{python} cannot use vLLM ({answer['error']}): set `server` to the Python that has it"
            )
        return capabilities_from(answer)

    @property
    def known(self) -> Capabilities:
        """What the installation of the sweep itself can do; an image that a Point names may do otherwise."""
        return self._known(None)

    @property
    def speculative_settings(self) -> frozenset[str]:
        return speculative_settings(self.known.speculative_keys)

    @property
    def memory_settings(self) -> Mapping[str, bool]:
        return MEMORY_SETTINGS

    def version(self) -> str:
        return f"vLLM {self.known.version}"

    def resolve(
        self,
        model: str,
        draft: str | None,
        args: Mapping[str, KnobValue],
        env: Mapping[str, str],
    ) -> Served:
        found = find_model_folder(model, planning=self._planning)
        draft_folder = find_model_folder(draft, planning=self._planning) if draft else None
        served = Served(found, draft_folder, args, env)
        for name, value in args.items():
            self._check_argument(name, value, self.known)
        _models(served)
        return served

    def notes(self, served: Served) -> Sequence[str]:
        absent = self._places(None).absent
        unasked = f"{absent}; flags were checked against those of vLLM {self.known.version} on a GPU"
        return (*([unasked] if absent else []), *rules.notes(self.known.version))

    def identity(self, served: Served) -> Mapping[str, str]:
        folders = {"model": served.model, "draft": served.draft}
        return {
            f"{role}_sha256": folder_identity(Path(path))
            for role, path in folders.items()
            if path is not None
        }

    def methods(self, served: Served) -> Mapping[str, tuple[Knob, ...]]:
        open_here = rules.open_methods(_models(served), self.known)
        return {name: offered(name, _models(served), self.known) for name in open_here}

    def check(self, point: Point, served: Served) -> None:
        known = self._known(point.image)
        for name, value in point.flags.items():
            self._check_argument(name, value, known)
            if named(name, value, known)[0].startswith(FLAG):
                raise UsageError(f"{name} is for one arm alone: it belongs to the fixed arguments")
        knobs.check(point)
        rules.check(knobs.canonical(point), self._settings(point, served), _models(served), known)

    def _check_argument(self, name: str, value: KnobValue, known: Capabilities) -> None:
        flag, value = named(name, value, known)
        base, _, key = flag.partition(".")
        if base in SPACE and (not key or key.replace("-", "_") in SPACE_KEYS):
            raise UsageError(
                f"{name} is speculative: it belongs to the space, not to the fixed arguments "
                "(a draft model is named beside the model; other keys are written speculative-config.KEY)"
            )
        if base == FLAG and key.replace("-", "_") not in known.speculative_keys:
            raise UsageError(f"vLLM {known.version} has no {key} in its speculative config")
        if base in OURS:
            raise UsageError(f"{name} is set by the tuner itself: leave it out of the fixed arguments")
        check_value(flag, value, known)

    def lossy(self, point: Point, served: Served) -> str:
        if point.is_baseline:
            return ""
        config = self._config(point, served)
        if config.get("acceptance_method") == "typical_acceptance_sampler":  # releases before 0.9
            return "typical acceptance keeps draft tokens that the model would have rejected"
        return knobs.LOSSY.get(str(config.get("rejection_sample_method")), "")

    def canonical(self, point: Point) -> Point:
        return knobs.canonical(point)

    def draft_shape(self, point: Point) -> DraftShape | None:
        return knobs.draft_shape(point)

    def starting_points(self, served: Served) -> Sequence[Point]:
        found = [knobs.canonical(p) for p in knobs.starting_points(list(self.methods(served)))]
        legal = {p.key: p for p in found if self._is_legal(p, served)}
        return list(legal.values())

    def _is_legal(self, point: Point, served: Served) -> bool:
        try:
            self.check(point, served)
        except UsageError:
            return False
        return True

    def _settings(self, point: Point, served: Served) -> dict[str, KnobValue]:
        """Flag -> value for both arms: the Point's shared settings over the user's over our defaults."""
        fixed, _ = split(self._chosen(point, served))
        return pinned(self._known(point.image), fixed, prefix_caching=not _models(served).is_hybrid)

    def _chosen(self, point: Point, served: Served) -> dict[str, KnobValue]:
        given, known = {**served.args, **point.flags}, self._known(point.image)
        return dict(named(name, value, known) for name, value in given.items())

    def _config(self, point: Point, served: Served) -> dict[str, Any]:
        """--speculative-config of a Point."""
        _, own_keys = split(self._chosen(point, served))
        settings, models = self._settings(point, served), _models(served)
        known = self._known(point.image)
        return config_of(knobs.canonical(point), settings, own_keys, served.draft, models, known)

    def command(self, point: Point, served: Served, port: int) -> tuple[str, ...]:
        model = str(Path(served.model).absolute())
        known, place = self._known(point.image), self._places(point.image)
        entry = (
            ["vllm.entrypoints.cli.main", "serve", model]
            if known.is_named_vllm
            else ["vllm.entrypoints.openai.api_server", "--model", model]
        )
        settings = self._settings(point, served)
        names = f"{settings.pop('--served-model-name', '')} {shlex.quote(str(served.model))}"
        ours: dict[str, KnobValue] = {"--served-model-name": names, "--host": place.host, "--port": port}
        words = argv_of({**ours, **settings}, known)
        if not point.is_baseline:
            words += self._speculation(point, served)
        return (place.program(self._server), "-m", *entry, *words)

    def _speculation(self, point: Point, served: Served) -> list[str]:
        """The per-request counts are an error on a server without speculation."""
        told = [PER_REQUEST, "summary"] if self._known(point.image).flag(PER_REQUEST) else []
        return [*told, FLAG, json.dumps(self._config(point, served))]

    def environment(self, point: Point, served: Served) -> Mapping[str, str | None]:
        return {
            "VLLM_SERVER_DEV_MODE": "1",  # /server_info and /reset_prefix_cache, on loopback only
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "INFO",  # the start lines that tell what is in effect
            "PYTHONSAFEPATH": "1",  # no imports from the folder the tool happens to run in
            **served.env,
            **point.variables,
        }

    def ranks(self, point: Point, served: Served) -> int:
        settings = self._settings(point, served)
        sizes = (settings.get(f"--{name}-parallel-size", 1) for name in ("tensor", "pipeline", "data"))
        return math.prod(size for size in sizes if isinstance(size, int))

    def check_nodes(self, point: Point, served: Served, nodes: int) -> None:
        group.check(self._settings(point, served), nodes, self._known(point.image))

    def on_node(self, argv: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        return group.on_node(argv, rank)

    def torch_of(self, point: Point) -> tuple[Place, str]:
        place = self._places(point.image)
        return place, place.program(self._server)

    def device(self, point: Point) -> str:
        return self._known(point.image).device

    def is_ready(self, endpoint: Endpoint) -> bool:
        return is_ok(f"{endpoint.base_url}/health")

    def read_back(self, endpoint: Endpoint, point: Point, served: Served) -> ReadBack:
        chosen, known = self._chosen(BASELINE, served), self._known(point.image)
        return read_back(endpoint, knobs.canonical(point), str(served.model), chosen, known)

    def request_fields(self, *, fixed_length: bool) -> Mapping[str, object]:
        return {"ignore_eos": fixed_length}

    def counters(self, endpoint: Endpoint) -> SpecCounters | None:
        return counters_of(fetch(endpoint.base_url, FAMILY))

    def counted_in_reply(self, stats: Mapping[str, float]) -> SpecCounters | None:
        return counted_in_reply(stats)

    def refused_sampling(self, text: str, fields: Collection[str]) -> str | None:
        return refused_sampling(text, fields)

    def drafts_by_slot(self, endpoint: Endpoint) -> Sequence[SlotDrafts]:
        """Per engine (data-parallel rank), where a network drafts."""
        told = speculation_from_log(endpoint.log_path.read_text("utf-8", "replace"))
        method = knobs.METHODS.get(str(told[0])) if told else None
        if method is None or not method.has_drafter:
            return ()
        return drafts_by_engine(fetch(endpoint.base_url, FAMILY))

    def recount(self, endpoint: Endpoint) -> Recount | None:
        return None

    def admission(self, endpoint: Endpoint) -> tuple[int, int] | None:
        return admission_of(fetch(endpoint.base_url, RUNNING, WAITING))

    def generated_tokens(self, endpoint: Endpoint) -> int | None:
        return None  # its port is known to this run alone

    def reset_cache(self, endpoint: Endpoint) -> bool:
        """Only a server in development mode offers it; it fails while requests hold blocks."""
        answer = ask("POST", f"{endpoint.base_url}/reset_prefix_cache")
        return answer.ok and '"success":false' not in answer.text.replace(" ", "")

    def context_tokens(self, endpoint: Endpoint) -> int | None:
        limit = get_json(f"{endpoint.base_url}/v1/models")["data"][0].get("max_model_len")
        return int(limit) if limit is not None else None

    def count_tokens(self, endpoint: Endpoint, body: Mapping[str, object]) -> int:
        asked = {key: body[key] for key in ("messages", "prompt") if key in body}
        return int(post_json(f"{endpoint.base_url}/tokenize", asked)["count"])

    def tracer(self, point: Point, folder: Path, *, stacks: bool = False) -> VllmTracer:
        has_flag = self._known(point.image).flag(PROFILER_CONFIG) is not None
        return VllmTracer(folder, stacks, has_flag)

    def capture(
        self, point: Point, served: Served, folder: Path, boundaries: Collection[int] | None = None
    ) -> VllmCapture:
        """`boundaries`: those that are kept; None = all, which is much for a large model."""
        known, settings = self._known(point.image), self._settings(point, served)
        capture.check(point.method, settings)
        header = DumpHeader(
            layers=layers_of(Path(served.model)),
            engine=f"vLLM {known.version}",
            model=str(served.model),
            draft=str(served.draft or served.model),
            tensor_parallel=int(settings.get("--tensor-parallel-size", 1)),
            drafts_per_round=int(self._config(point, served)["num_speculative_tokens"]),
        )
        place, given = self._places(point.image), self.environment(point, served)
        before = capture.variables_there(place, place.program(self._server), given)
        variables = capture.lay_plugin(folder, boundaries, before)
        return VllmCapture(folder, point, capture.words(settings, known), variables, header)

    def cause(self, log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
        return cause_from_log(log, exit_code, ready=ready)


@functools.lru_cache(maxsize=64)
def _models_at(model: Path, draft: Path | None) -> Models:
    return models_of(model, draft)


def _models(served: Served) -> Models:
    """Read once: a search asks for every Point."""
    return _models_at(Path(served.model), Path(served.draft) if served.draft is not None else None)

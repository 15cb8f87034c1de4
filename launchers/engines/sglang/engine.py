"""SGLang: any server that `python -m sglang.launch_server` of some environment starts."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from math import prod
from pathlib import Path

from launchers.engines.engine import Knob, Rank, ReadBack, Recount, Served, SlotDrafts
from launchers.engines.http import ask, is_ok, post_json
from launchers.engines.model_folder import find_model_folder, folder_identity
from launchers.engines.prometheus import fetch_samples
from launchers.engines.sglang import capture, group, knobs, rules
from launchers.engines.sglang.capture import SglangCapture
from launchers.engines.sglang.counts import admitted, counted_by_rank, counted_in_log, counted_in_reply
from launchers.engines.sglang.flags import Flag
from launchers.engines.sglang.install import Installation
from launchers.engines.sglang.log import cause_from_log
from launchers.engines.sglang.parity import Arms, Parity, find_parity, is_speculative
from launchers.engines.sglang.readback import SPECULATIVE_NAMES, Asked, field_of, read_back_from
from launchers.engines.sglang.server_info import server_info
from launchers.engines.sglang.tracer import SglangTracer
from launchers.launcher import Endpoint
from launchers.place import Place, Places, on_this_machine
from results.errors import MeasurementInvalid, UsageError
from results.hidden_states import DumpHeader
from results.reasons import Reason
from results.records import BASELINE_METHOD, IMAGE, DraftShape, KnobValue, Point, SpecCounters

ALGORITHM = "--speculative-algorithm"
DRAFT = "--speculative-draft-model-path"
# Set by the tool itself: never by the user's fixed arguments.
OURS = frozenset({"--model-path", "--host", "--port", "--config", *group.FLAGS})
# What the tool reads and how it starts; the user's arguments win.
DEFAULTS: Mapping[str, KnobValue] = {
    "--enable-metrics": True,
    "--decode-log-interval": 1,  # one line per step: from these the drafts are counted
    "--skip-server-warmup": True,
    "--random-seed": 1,
}
MEMORY_SETTINGS: Mapping[str, bool] = {
    "--mem-fraction-static": True,
    **dict.fromkeys(
        ("--context-length", "--max-total-tokens", "--max-running-requests", "--chunked-prefill-size"), False
    ),
    **dict.fromkeys(("--max-prefill-tokens", "--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"), False),
    **dict.fromkeys(("num_steps", "topk", "draft_tokens"), False),
}
SIMULATED = "SGLANG_SIMULATE_ACC_LEN"  # acceptance by decree


class Sglang:
    """Engine `sglang`. `server` is the Python interpreter of the environment that has SGLang.

    `places` says where a Point's servers run; each image has an SGLang of its own. While `planning`, a
    model that is not on this machine is taken as it is named.
    """

    name = "sglang"
    usual_start_s = 30.0
    no_custom_all_reduce = "--disable-custom-all-reduce"

    def __init__(self, server: str = "", places: Places = on_this_machine, *, planning: bool = False) -> None:
        self._planning = planning
        self._installed = cache(lambda image: Installation(server, places(image)))
        self._parities: dict[str, Parity] = {}
        self._deprecated: list[str] = []

    @property
    def speculative_settings(self) -> frozenset[str]:
        return SPECULATIVE_NAMES

    def notes(self, served: Served) -> Sequence[str]:
        rule = knobs.rules_note(self._at({}).version)
        unasked = self._at({}).unasked
        parity = [note for parity in self._parities.values() for note in parity.notes]
        return tuple(dict.fromkeys(filter(None, [unasked, rule, *self._deprecated, *parity])))

    @property
    def memory_settings(self) -> Mapping[str, bool]:
        return MEMORY_SETTINGS

    def version(self) -> str:
        return f"SGLang {self._at({}).version}"

    def resolve(
        self,
        model: str,
        draft: str | None,
        args: Mapping[str, KnobValue],
        env: Mapping[str, str],
    ) -> Served:
        self.version()
        draft_folder = find_model_folder(draft, planning=self._planning) if draft else None
        served = Served(find_model_folder(model, planning=self._planning), draft_folder, args, env)
        self._given(served, {})
        self._parity(served, {})
        return served

    def identity(self, served: Served) -> Mapping[str, str]:
        roles = {"model": served.model, "draft": served.draft}
        return {
            f"{role}_sha256": folder_identity(Path(path)) for role, path in roles.items() if path is not None
        }

    def methods(self, served: Served) -> Mapping[str, tuple[Knob, ...]]:
        return {name: knobs.METHODS[name].knobs for name in rules.open_methods(served)}

    def check(self, point: Point, served: Served) -> None:
        knobs.method_of(point)
        if point.method not in rules.open_methods(served):
            raise UsageError(rules.why_closed(point.method, served))
        for name in point.flags:
            self._check_shared(name, point.shared)
        rules.check(point, self._settings(served, point.shared))

    def lossy(self, point: Point, served: Served) -> str:
        if point.is_baseline:
            return ""
        if served.env.get(SIMULATED):
            return f"{SIMULATED} decides how many drafts are accepted"
        below = {k: v for k, v in point.speculative.items() if k in knobs.LOSSY_KNOBS and v != 1.0}
        return ", ".join(
            f"{name}={value} keeps drafts the model would reject" for name, value in below.items()
        )

    def canonical(self, point: Point) -> Point:
        return knobs.canonical(point)

    def draft_shape(self, point: Point) -> DraftShape | None:
        return knobs.draft_shape(point)

    def starting_points(self, served: Served) -> Sequence[Point]:
        return knobs.starting_points([name for name in rules.open_methods(served) if name != BASELINE_METHOD])

    def command(self, point: Point, served: Served, port: int) -> tuple[str, ...]:
        installation = self._at(point.shared)
        program = [installation.python, "-m", "sglang.launch_server"]
        host = installation.place.host
        address = ["--model-path", str(served.model), "--host", host, "--port", str(port)]
        pins = self._parity(served, point.shared).words
        words = [*program, *address, *self._plain(served, point.shared), *pins]
        return tuple(words + self._speculative(point, served))

    def environment(self, point: Point, served: Served) -> Mapping[str, str | None]:
        return {"PYTHONUNBUFFERED": "1", **served.env, **point.variables}

    def ranks(self, point: Point, served: Served) -> int:
        settings = self._settings(served, point.shared)
        sizes = (settings.get(name) for name in ("tp_size", "pp_size", "dp_size"))
        return prod(size for size in sizes if isinstance(size, int))

    def check_nodes(self, point: Point, served: Served, nodes: int) -> None:
        group.check(self._settings(served, point.shared), nodes)

    def on_node(self, argv: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        return (*argv, *group.words(rank))

    def torch_of(self, point: Point) -> tuple[Place, str]:
        installation = self._at(point.shared)
        return installation.place, installation.python

    def device(self, point: Point) -> str:
        return ""

    def is_ready(self, endpoint: Endpoint) -> bool:
        return is_ok(f"{endpoint.base_url}/health")

    def read_back(self, endpoint: Endpoint, point: Point, served: Served) -> ReadBack:
        if not endpoint.owns_port():
            raise MeasurementInvalid(Reason.WRONG_SERVER, f"{endpoint.base_url} is not served by this launch")
        log = endpoint.log_path.read_text("utf-8", "replace")
        asked = Asked(
            self._asked_speculative(point, served), self._by_field(self._given(served, point.shared))
        )
        flags = self._at(point.shared).flags
        return read_back_from(server_info(endpoint), log, point, served, asked, flags)

    def request_fields(self, *, fixed_length: bool) -> Mapping[str, object]:
        return {"ignore_eos": fixed_length, "return_spec_tokens_details": True}

    def counters(self, endpoint: Endpoint) -> SpecCounters | None:
        return counted_in_log(_settled_log(endpoint))

    def counted_in_reply(self, stats: Mapping[str, float]) -> SpecCounters | None:
        return counted_in_reply(stats)

    def refused_sampling(self, text: str, fields: Collection[str]) -> str | None:
        return None

    def drafts_by_slot(self, endpoint: Endpoint) -> Sequence[SlotDrafts]:
        """One slot per data-parallel rank; of a tree's tokens most are wasted, so drafts stand for them."""
        log = _settled_log(endpoint)
        if "speculative_algorithm': 'NGRAM'" in log:
            return ()
        return [SlotDrafts(rank, c.accepted_tokens, c.drafts) for rank, c in counted_by_rank(log).items()]

    def recount(self, endpoint: Endpoint) -> Recount | None:
        return None

    def admission(self, endpoint: Endpoint) -> tuple[int, int] | None:
        return admitted(fetch_samples(f"{endpoint.base_url}/metrics") or [])

    def generated_tokens(self, endpoint: Endpoint) -> int | None:
        return None  # its port is known to this run alone

    def reset_cache(self, endpoint: Endpoint) -> bool:
        """Only an idle server does it."""
        return ask("POST", f"{endpoint.base_url}/flush_cache").ok

    def context_tokens(self, endpoint: Endpoint) -> int | None:
        tokens = server_info(endpoint).get("max_req_input_len")
        return int(tokens) if isinstance(tokens, int) else None

    def count_tokens(self, endpoint: Endpoint, body: Mapping[str, object]) -> int:
        question = {name: body[name] for name in ("prompt", "messages") if name in body}
        told = ask("POST", f"{endpoint.base_url}/tokenize", json=question)
        if told.ok:
            return int(told.json()["count"])
        path = "chat/completions" if "messages" in body else "completions"
        shortest = {"model": "any", **question, "max_tokens": 1, "stream": False}
        reply = post_json(f"{endpoint.base_url}/v1/{path}", shortest)
        return int(reply["usage"]["prompt_tokens"])

    def tracer(self, point: Point, folder: Path, *, stacks: bool = False) -> SglangTracer:
        return SglangTracer(folder, stacks)

    def capture(
        self, point: Point, served: Served, folder: Path, boundaries: Collection[int] | None = None
    ) -> SglangCapture:
        settings, installation = self._settings(served, point.shared), self._at(point.shared)
        capture.check(point, settings)
        chain, layers = capture.chain_of(point), capture.layers_of(Path(served.model))
        before = capture.before(installation, self.environment(chain, served))
        tensor_parallel = settings.get("tp_size")
        header = DumpHeader(
            layers=layers,
            engine=self.version(),
            model=str(served.model),
            draft=str(served.draft or served.model),
            tensor_parallel=tensor_parallel if isinstance(tensor_parallel, int) else 1,
            drafts_per_round=int(chain.knobs["num_steps"]),
            notes=capture.notes(point, chain),
        )
        variables = capture.lay_plugin(folder, layers, boundaries, before)
        return SglangCapture(folder, chain, capture.words(installation.flags), variables, header)

    def cause(self, log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
        return cause_from_log(log, exit_code, ready=ready)

    # Arguments

    def _given(self, served: Served, shared: Mapping[str, KnobValue]) -> dict[Flag, KnobValue]:
        """The user's arguments with the Point's own settings over them. Raises UsageError."""
        given: dict[Flag, KnobValue] = {}
        of_point = {k: v for k, v in shared.items() if k.startswith("--")}
        for name, value in {**served.args, **of_point}.items():
            flag = self._checked(name, shared)
            flag.words(value)
            given[flag] = value
        return given

    def _at(self, shared: Mapping[str, KnobValue]) -> Installation:
        """The SGLang that these shared settings are for."""
        return self._installed(shared.get(IMAGE))

    def _checked(self, name: str, shared: Mapping[str, KnobValue]) -> Flag:
        flag = self._at(shared).flags.find(name)
        if flag.replaced_by is not None:
            self._deprecated.append(f"{flag.name} is deprecated: write {flag.replaced_by}")
        if flag.name in OURS:
            raise UsageError(f"{flag.name} is set by the tuner itself: leave it out of the fixed arguments")
        if flag.name in (ALGORITHM, DRAFT, *knobs.FLAGS.values()):
            raise UsageError(
                f"{flag.name} is speculative: it belongs to the space, not to the fixed arguments"
            )
        return flag

    def _check_shared(self, name: str, shared: Mapping[str, KnobValue]) -> None:
        flag = self._checked(name, shared)
        if is_speculative(flag.dest):
            raise UsageError(f"{flag.name} is of speculation alone: it cannot be shared by both arms")
        if flag.name != name:
            raise UsageError(f"{name}: write {flag.name}, the name SGLang gives it")

    def _plain(self, served: Served, shared: Mapping[str, KnobValue]) -> list[str]:
        """Arguments of both arms, without the pins: the user's over the tool's own."""
        flags = self._at(shared).flags
        defaults = {flags.find(name): value for name, value in DEFAULTS.items()}
        given = {f: v for f, v in self._given(served, shared).items() if not is_speculative(f.dest)}
        return [word for flag, value in {**defaults, **given}.items() for word in flag.words(value)]

    def _speculative(self, point: Point, served: Served) -> list[str]:
        """Every speculative flag of the Point's method, and what the user fixed for drafting alone."""
        if point.is_baseline:
            return []
        flags = self._at(point.shared).flags
        words = [ALGORITHM, point.method]
        if served.draft is not None and knobs.METHODS[point.method].needs_draft:
            words += [DRAFT, str(served.draft)]
        for name, value in knobs.flag_values(point).items():
            words += flags.find(name).words(value)
        extra = {f: v for f, v in self._given(served, point.shared).items() if is_speculative(f.dest)}
        return words + [word for flag, value in extra.items() for word in flag.words(value)]

    def _asked_speculative(self, point: Point, served: Served) -> dict[str, KnobValue]:
        if point.is_baseline:
            return {}
        return {field_of(flag): value for flag, value in knobs.flag_values(point).items()}

    def _by_field(self, given: Mapping[Flag, KnobValue]) -> dict[str, KnobValue]:
        return {flag.dest: value for flag, value in given.items() if not is_speculative(flag.dest)}

    def _settings(self, served: Served, shared: Mapping[str, KnobValue]) -> rules.Settings:
        """What is known of the server both arms run, by field."""
        return {**self._by_field(self._given(served, shared)), **self._parity(served, shared).settings}

    def _parity(self, served: Served, shared: Mapping[str, KnobValue]) -> Parity:
        """The pins for both arms under these shared settings, found by asking SGLang once."""
        deciding = {k: v for k, v in shared.items() if not k.startswith("NCCL_")}
        key = repr([str(served.model), str(served.draft), served.args, served.env, sorted(deciding.items())])
        if key not in self._parities:
            arms, installation = self._arms(served, deciding), self._at(deciding)
            with installation.probe({**served.env, **Point("", deciding).variables}) as probe:
                self._parities[key] = find_parity(probe, installation.flags, arms)
        return self._parities[key]

    def _arms(self, served: Served, shared: Mapping[str, KnobValue]) -> Arms:
        plain = ["--model-path", str(served.model), *self._plain(served, shared)]
        speculative = {
            point.label: tuple(self._speculative(Point(point.method, {**point.knobs, **shared}), served))
            for method in rules.open_methods(served)
            for point in knobs.shapes(method)
        }
        given = self._by_field({f: v for f, v in self._given(served, shared).items() if f.words(v)})
        fixed = frozenset(given)  # a switch that is left out is not fixed
        return Arms(tuple(plain), speculative, fixed)


def _settled_log(endpoint: Endpoint) -> str:
    """The log with the line of the last step: written after its reply, before the next answer."""
    server_info(endpoint)
    return endpoint.log_path.read_text("utf-8", "replace")

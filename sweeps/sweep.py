"""The sweep file: what the user asks for, validated. Unknown keys are refused with the nearest known one."""

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from analysis.goodput import BOUNDS, GOODPUT
from analysis.limits import LIMITS, bytes_of
from results.errors import UsageError
from results.records import IMAGE, KnobValue, Weights
from results.secrets import HIDDEN, is_secret, looks_secret
from sweeps.cluster.sections import Ray, Slurm
from sweeps.container import Container
from sweeps.equal_sets import Duet
from sweeps.mistakes import mistakes, nearest, shown
from sweeps.strict_yaml import read_yaml
from sweeps.values import (
    MOST,
    NO_SWITCH,
    Bound,
    Count,
    CountOrNone,
    Name,
    Number,
    Positive,
    Seconds,
    SecondsOrNone,
    Section,
    Share,
    Weight,
    Whole,
)

CLUSTERS = ("ray", "slurm")
QUEUEING = ("account", "qos", "time", "servers", "folder")  # of Slurm's jobs, and not of what is measured


class Range(Section):
    """Values from `low` to `high`, every `step` apart or each `factor` times the last."""

    low: Number
    high: Number
    step: Positive | None = None
    factor: Annotated[float, Field(gt=1), NO_SWITCH] | None = None

    @model_validator(mode="after")
    def _sensible(self) -> "Range":
        if self.high < self.low:
            raise ValueError(f"low ({self.low:g}) is above high ({self.high:g})")
        if self.step is not None and self.factor is not None:
            raise ValueError(f"step ({self.step:g}) and factor ({self.factor:g}) are both given: keep one")
        if self.factor is not None and self.low <= 0:
            raise ValueError(f"low ({self.low:g}) is not above 0, as a range with a factor needs")
        return self

    def values(self) -> tuple[KnobValue, ...]:
        """The values, whole numbers as int."""
        values: list[KnobValue] = []
        value = self.low
        last = min(self.high + abs(self.high) * 1e-9, sys.float_info.max)
        while value <= last and len(values) <= 10_000:
            values.append(int(value) if float(value).is_integer() else round(value, 9))
            value = value * self.factor if self.factor else value + (self.step or 1)
        return tuple(values)


KnobSpec = Range | list[KnobValue] | KnobValue


class Workload(Section):
    """Prompts by class, their lengths and sampling: the same for both arms."""

    classes: list[str] = Field(
        default=["code_edit", "chat"], description="shipped classes, or classes of `files`"
    )
    files: list[Path] = Field(
        default=[], description="JSONL, ShareGPT, MT-bench or Spec-Bench files; replace the shipped prompts"
    )
    prompts_per_class: Count = Field(
        default=4,
        description="prompts of each class in every window, at least; closed(n) takes 2n or more",
    )
    context: list[CountOrNone] = Field(
        default=[0],
        min_length=1,
        description="prompt lengths to measure at, in tokens: each prompt is put behind other text until"
        " it is about so long; 0 = the prompts as they are",
    )
    max_tokens: Annotated[int, Field(ge=2, le=MOST), NO_SWITCH] = Field(
        default=64, description="output tokens per request"
    )
    lengths: Literal["fixed", "natural"] = Field(
        default="fixed",
        description="fixed: every answer runs to max_tokens in both arms (end of text ignored)",
    )
    endpoint: Literal["chat", "completions"] = "chat"
    temperature: Annotated[float, Field(ge=0), NO_SWITCH] = 0.0
    sampling: dict[str, KnobValue] = Field(default={}, description="further sampling fields of the request")
    thinking: Literal["off", "on", "any"] = Field(
        default="any", description="off: any reasoning text makes the measurement invalid"
    )
    random_tokens: bool = Field(
        default=False,
        description="random words in place of prompts; every verdict is marked, since they mislead",
    )

    @field_validator("context")
    @classmethod
    def _each_once(cls, context: list[int]) -> list[int]:
        if len(set(context)) < len(context):
            raise ValueError(f"a length is named twice in {context}: its Cells could not be told apart")
        return context

    @property
    def is_greedy(self) -> bool:
        """Whether the same prompt should get the same text again."""
        sampling = {"temperature": self.temperature, **self.sampling}
        return sampling["temperature"] == 0 or sampling.get("top_k") == 1

    @field_validator("thinking", mode="before")
    @classmethod
    def _yaml_boolean(cls, value: object) -> object:
        """YAML reads a bare `off` as false."""
        return {False: "off", True: "on"}.get(value, value) if isinstance(value, bool) else value


class CellWeights(Section):
    """How much each Cell counts in the speed-up over all; its weight is the product of these, else 1."""

    classes: dict[str, Weight] = Field(default={}, description="by workload class, e.g. chat: 3")
    paces: dict[str, Weight] = Field(default={}, description="by pace, e.g. closed(4): 2")
    contexts: dict[Whole, Weight] = Field(default={}, description="by context length, e.g. 8192: 0.5")

    def to_record(self) -> Weights:
        return Weights(self.classes, self.paces, self.contexts)


class Budget(Section):
    """When the search ends. The confirmation of the finalists comes on top of `trials`."""

    trials: Count = Field(default=14, description="Points to measure")
    baseline_trials: CountOrNone | None = Field(
        default=None,
        description="settings of `shared` to try without speculation first, on top of `trials`;"
        " by default a quarter of them, so that no straw man is beaten",
    )
    baseline_every: Count | Literal["auto"] = Field(
        default="auto",
        description="trials of the search for each launch of the baseline: 1 = it is in every Block; n = a"
        " trial is compared with the baseline interpolated between two launches; auto = 4 where a start of"
        " the baseline takes longer than its measurement, else 1",
    )
    hours: Seconds | None = Field(
        default=None, description="wall time for search and confirmation, kept within one Block"
    )

    @property
    def for_baseline(self) -> int:
        """Trials of the baseline's own settings."""
        return math.ceil(self.trials / 4) if self.baseline_trials is None else self.baseline_trials


class Confirm(Section):
    """How finalists are confirmed: fresh servers, held-out prompts, planned looks."""

    finalists: Count = 3
    looks: list[Annotated[int, Field(ge=2, le=MOST), NO_SWITCH]] = Field(
        default=[4, 8, 12, 20], description="Blocks after which the interval is looked at"
    )
    alpha: Share = Field(default=0.05, description="false-positive level over all looks and finalists")
    same_margin: Share = Field(default=0.02, description="within this of the baseline counts as SAME")

    @model_validator(mode="after")
    def _rising(self) -> "Confirm":
        if not self.looks or sorted(set(self.looks)) != self.looks:
            raise ValueError(f"looks must rise, e.g. [4, 8, 12, 20], and {self.looks} do not")
        return self


class Patience(Section):
    """How long to wait, in seconds, and when to give up on a Point or a Block."""

    start_timeout_s: Seconds = 600.0
    warm_up_s: SecondsOrNone = Field(
        default=60.0,
        description="on a GPU a server is warmed up until clock and temperature are flat, for this long at"
        " most; 0 = one pass over the shapes of the load, as without a GPU",
    )
    stall_timeout_s: Seconds = Field(default=60.0, description="no token on any stream for this long = HANG")
    hopeless_ratio: Annotated[float, Field(ge=0, lt=1), NO_SWITCH] = Field(
        default=0.6,
        description="a Point below this share of the baseline's speed is stopped early; 0 = never",
    )
    reruns: CountOrNone = Field(default=2, description="times an invalid Block is run again")
    min_window_s: SecondsOrNone = Field(default=0.5, description="shortest window of one Cell that counts")
    foreign_cores: Positive = Field(
        default=0.1,
        description="CPU cores that others may use on a full machine; beyond, a Block is invalid and rerun",
    )
    client_share: Positive = Field(
        default=0.02, description="share of the machine that the load client may take; beyond, as above"
    )


class Sweep(Section):
    """The whole sweep file."""

    name: Name = Field(default="sweep", description="names the run folder runs/NAME")
    engine: Literal["llamacpp", "sglang", "vllm", "fake"] = Field(
        default="llamacpp", description="the inference engine"
    )
    server: str = Field(
        default="",
        description="llamacpp: embedded (default), or the path of a llama-server; sglang, vllm: the Python"
        " that has it installed, e.g. ~/venvs/sglang/bin/python (default: python3)",
    )
    launcher: Literal["process", "docker", "attach", "ray", "slurm"] = Field(
        default="process",
        description="process: of this machine; docker: in a container, see `container`; attach: somebody else"
        " runs the server, at `url` (for `tuner compare` alone); ray, slurm: on the nodes of a cluster,"
        " see the section of that name",
    )
    ray: Ray | None = Field(default=None, description="with launcher: ray")
    slurm: Slurm | None = Field(default=None, description="with launcher: slurm")
    container: Container | None = Field(default=None, description="with launcher: docker")
    url: str = Field(default="", description="attach: the server, http://HOST:PORT or https://HOST")
    api_key_env: str = Field(
        default="OPENAI_API_KEY",
        description="attach: environment variable of tuner's that holds the API key of the server, if it asks"
        " for one; the key is written nowhere",
    )
    model: str = Field(
        default="smollm2-135m",
        description="llamacpp: name of a shipped model or path of a GGUF file; sglang, vllm: folder or name",
    )
    draft: str | None = Field(default=None, description="draft model or head, for the methods that need one")
    args: dict[str, KnobValue] = Field(default={}, description="fixed engine arguments, both arms")
    env: dict[str, str] = Field(default={}, description="fixed environment variables, both arms")
    space: dict[str, dict[str, KnobSpec] | None] = Field(
        default={},
        description="speculative methods and the knob values to try; empty = the engine's own grid",
    )
    shared: dict[str, KnobSpec] = Field(
        default={},
        description="settings that a server without speculation has too, --flag: values to try; the baseline"
        " is tuned over them first",
    )
    allow_lossy: bool = Field(
        default=False,
        description="also try settings whose output is not the target model's: labelled, never the winner",
    )
    ignore_rules: bool = Field(
        default=False,
        description="launch also what the engine's rule table calls illegal, to see for yourself",
    )
    workload: Workload = Workload()
    load: list[dict[str, KnobValue]] = Field(
        default=[{"closed": 1}], min_length=1, description="paces: closed: N, poisson: RATE, replay: FILE"
    )
    pairing: Literal["adjacent", "together", "duet"] = Field(
        default="adjacent",
        description="adjacent: the servers of a Block run one after the other; together: all are up and take"
        " turns, prompt by prompt, so that drift of the machine cancels (needs memory for all of them); duet:"
        " two at once, each on a set of GPUs of its own, if the baseline is equally fast on both",
    )
    duet: Duet | None = Field(
        default=None, description="with pairing: duet; by default the two halves of the GPUs there are"
    )
    objective: Literal[
        "tokens_per_s", "goodput_per_s", "tokens_per_joule", "ttft_p50_s", "tpot_p50_s", "end_to_end_p50_s"
    ] = Field(
        default="tokens_per_s",
        description="tokens_per_joule: of the server's GPUs; goodput_per_s: requests within `goodput`",
    )
    weights: CellWeights = Field(
        default=CellWeights(),
        description="how much each class, pace and context counts; 0 = measured, but not counted",
    )
    limits: dict[str, Bound] = Field(
        default={},
        description="upper limits of the candidate, e.g. ttft_p95_s: 0.5, server_memory_bytes: 24 GiB",
    )
    goodput: dict[str, Seconds] = Field(
        default={},
        description="limits of each single request, in seconds: ttft_s, tpot_s, end_to_end_s; requests that"
        " keep them are counted as goodput_per_s",
    )
    budget: Budget = Budget()
    confirm: Confirm = Confirm()
    patience: Patience = Patience()
    seed: Annotated[int, Field(ge=0, lt=2**32), NO_SWITCH] = 1

    @field_validator("shared", mode="before")
    @classmethod
    def _no_null(cls, shared: object) -> object:
        """YAML's null reads like "not set", which has a word of its own."""
        for name, spec in shared.items() if isinstance(shared, dict) else ():
            if None in (spec if isinstance(spec, list) else [spec]):
                raise ValueError(f"{name}: null is no value; write `unset` for a variable that is absent")
        return shared

    @field_validator("limits", mode="before")
    @classmethod
    def _readable_bytes(cls, limits: object) -> object:
        if not isinstance(limits, dict):
            return limits
        return {name: _bound(str(name), bound) for name, bound in limits.items()}

    @model_validator(mode="after")
    def _known_limits(self) -> "Sweep":
        for key, named, known in (("limits", self.limits, LIMITS), ("goodput", self.goodput, BOUNDS)):
            for name in named:
                if name not in known:
                    raise ValueError(f"{key}: unknown limit {name!r}{nearest(name, known)}")
        if self.objective == GOODPUT and not self.goodput:
            raise ValueError(
                f"objective: {GOODPUT} counts requests within limits of their own: name them,"
                " e.g. goodput: {ttft_s: 0.5, tpot_s: 0.05}"
            )
        return self

    @model_validator(mode="after")
    def _together_in_every_block(self) -> "Sweep":
        if self.pairing != "adjacent" and self.budget.baseline_every not in ("auto", 1):
            raise ValueError(
                f"budget.baseline_every: with `pairing: {self.pairing}` the baseline is in every Block"
            )
        return self

    @model_validator(mode="after")
    def _duet_with_its_pairing(self) -> "Sweep":
        if self.duet is not None and self.pairing != "duet":
            raise ValueError("duet: is for `pairing: duet`: add that, or remove the section")
        if self.pairing == "duet" and self.launcher == "attach":
            raise ValueError("pairing: duet starts the servers itself, which launcher: attach does not")
        if self.duet is not None and self.duet.cores is not None and self.starts == "docker":
            raise ValueError("duet.cores: containers have container.cpuset, which is one for both: name gpus")
        return self

    @model_validator(mode="after")
    def _container_with_its_launcher(self) -> "Sweep":
        if IMAGE in self.shared and self.starts != "docker":
            raise ValueError("shared: image is for `launcher: docker`: each value is a container image")
        if self.container is not None and self.starts != "docker":
            raise ValueError("container: is for `launcher: docker`: add that, or remove the section")
        if self.starts == "docker":
            if self.container is None or not self.container.image:
                raise ValueError("container.image: `launcher: docker` needs it: container: {image: NAME:TAG}")
            if self.engine == "fake":
                raise ValueError("launcher: the engine fake runs in no container: use `launcher: process`")
        return self

    @model_validator(mode="before")
    @classmethod
    def _cluster_with_its_launcher(cls, content: object) -> object:
        """The section of a cluster has a default for all it holds, so that it may be left out."""
        if not isinstance(content, dict):
            return content
        launcher = content.get("launcher")
        for name in CLUSTERS:
            if launcher == name:
                content = {**content, name: content.get(name) or {}}
            elif content.get(name) is not None:
                raise ValueError(f"{name}: is for `launcher: {name}`: add that, or remove the section")
        return content

    @property
    def is_for_cluster(self) -> bool:
        """Whether servers start on other machines than this one."""
        return self.launcher in CLUSTERS

    @property
    def starts(self) -> Literal["process", "docker", "attach"]:
        """How a server comes to be on whatever machine it runs on."""
        if self.launcher == "ray":
            assert self.ray is not None
            return self.ray.launcher
        if self.launcher == "slurm":
            assert self.slurm is not None
            return self.slurm.launcher
        return self.launcher

    @model_validator(mode="after")
    def _where(self) -> "Sweep":
        if bool(self.url) is not (self.launcher == "attach"):
            missing = "launcher: attach needs the `url` of a server"
            raise ValueError("url: it is for launcher: attach" if self.url else missing)
        return self

    def identity(self) -> str:
        """Hash of what decides a measurement: a run folder belongs to one identity.

        Name, budget and patience are left out, so that a finished sweep can be given more time, and how
        jobs wait their turn.
        """
        deciding = self.public()
        for name in ("name", "budget", "patience"):
            del deciding[name]
        if deciding["slurm"] is not None:
            deciding["slurm"] = {k: v for k, v in deciding["slurm"].items() if k not in QUEUEING}
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]

    def to_yaml(self) -> str:
        """The resolved sweep, defaults filled in, secret values of `env` removed."""
        content = self.public()
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        # PyYAML reads some characters back as line breaks unless they are escaped.
        return text if yaml.safe_load(text) == content else yaml.safe_dump(content, sort_keys=False)

    def public(self) -> dict[str, Any]:
        content = self.model_dump(mode="json")
        for place in ("env", "args"):
            content[place] = {k: HIDDEN if _hides(k, v) else v for k, v in content[place].items()}
        return content


def _bound(limit: str, bound: object) -> object:
    """In bytes, where that is its unit and it is given as text."""
    if not (isinstance(bound, str) and limit.endswith("_bytes")):
        return bound
    try:
        return bytes_of(bound)
    except ValueError as error:
        raise ValueError(f"limits.{limit}: {error}") from None


def _hides(name: str, value: object) -> bool:
    return is_secret(name) or (isinstance(value, str) and looks_secret(value))


def load_sweep(
    path: Path, overrides: Sequence[str] = (), remedy: str = "`tuner init` writes a sweep file"
) -> Sweep:
    """Read a sweep file and apply `key=value` overrides. Raises UsageError with the place and the remedy."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no sweep file: it is not UTF-8 text; {remedy}") from error
    except (OSError, ValueError) as error:  # the latter of a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the sweep file {path}: {why}; {remedy}") from error
    if read_yaml(text, str(path)) is None:
        raise UsageError(f"{path} is empty: {remedy}")
    return parse_sweep(text, overrides, where=str(path))


def parse_sweep(text: str, overrides: Sequence[str] = (), where: str = "sweep file") -> Sweep:
    """Validate the text of a sweep file; without any, all defaults. Raises UsageError."""
    content = read_yaml(text, where)
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise UsageError(f"{where}: expected lines like `key: value`, found {shown((), content)}")
    for override in overrides:
        _override(content, override)
    try:
        return Sweep.model_validate(content)
    except ValidationError as error:
        lines = mistakes(error, content, json_schema())
        raise UsageError("\n".join(f"{where}: {line}" for line in lines)) from error


def _override(content: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {override}: expected key=value, e.g. --set budget.trials=20")
    *path, last = key.strip().split(".")
    place = content
    for part in path:
        place[part] = place.get(part) or {}
        place = place[part]
        if not isinstance(place, dict):
            raise UsageError(f"--set {override}: {part!r} holds a value, it has no keys")
    place[last] = read_yaml(value, f"--set {override}: the value")


def json_schema() -> Mapping[str, Any]:
    """JSON Schema of the sweep file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Sweep.model_json_schema()}

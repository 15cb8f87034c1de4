"""Engines of servers that somebody else runs: what such a server tells, and what of it cannot be checked."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

from launchers.attach import is_on_this_machine
from launchers.engines.engine import (
    Capture,
    Engine,
    Knob,
    Rank,
    ReadBack,
    Recount,
    Served,
    SlotDrafts,
    Tracer,
)
from launchers.engines.http import ask, get_json, is_ok, post_json, use_key
from launchers.launcher import Endpoint
from results.environment import short_hash
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import BASELINE_METHOD, DraftShape, KnobValue, Point, SpecCounters

# Methods of a Point, for servers that do not tell theirs.
SPECULATING = "speculating"  # by a method that is not told
UNKNOWN = "unknown"  # nor whether it speculates

IDLE_WAIT_S = 35.0  # gauges of older servers are up to 30 s late
IDLE_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Found:
    """What a server says of itself."""

    version: str
    model: str  # as requests name it
    point: Point  # in effect; see SPECULATING and UNKNOWN
    effective: Mapping[str, KnobValue | None]
    untold: str = ""  # a sentence: what it does not say of its settings


class Attached:
    """Engine of any server that speaks OpenAI's API; engines that tell more are its subclasses.

    Nothing of the server can be chosen: it has one Point, the one that is in effect.
    """

    name = "openai"
    title = "OpenAI API, version"
    usual_start_s = 0.0
    no_custom_all_reduce = ""
    speculative_settings: frozenset[str] = frozenset()
    memory_settings: Mapping[str, bool] = {}

    def __init__(self, url: str, found: Found) -> None:
        self.url = url
        self.found = found
        self._resets = True  # until it refuses

    @classmethod
    def at(cls, url: str, entry: Mapping[str, Any]) -> Self | None:
        """The server at a URL, if it is of this kind; `entry` is its model in /v1/models."""
        untold = "Whether it speculates, and with what settings it runs, it does not tell."
        return cls(url, Found("unknown", str(entry["id"]), Point(UNKNOWN), {}, untold))

    # What is served

    def version(self) -> str:
        return f"{self.title} {self.found.version}"

    def resolve(
        self, model: str, draft: str | None, args: Mapping[str, KnobValue], env: Mapping[str, str]
    ) -> Served:
        return Served(self.found.model, None, {}, {})

    def notes(self, served: Served) -> Sequence[str]:
        """What cannot be checked of a server that was not started here."""
        return tuple(
            filter(
                None,
                [
                    "Its log cannot be read: why it fails is known only from its answers.",
                    self.found.untold or "Its settings are known only as far as it tells them.",
                    "Its model is known by name, not by content.",
                    "It is not restarted: what it remembers of the prompts goes from Block to Block.",
                    "" if self._resets else "Its prefix cache could not be reset between windows.",
                    self._others,
                    self._where(),
                ],
            )
        )

    @cached_property
    def _others(self) -> str:
        """Asked once: it is also told of a server that has ended since."""
        if self._load() is None and self._generated() is None:
            return "Requests of other clients cannot be seen: it has neither gauges nor a count of tokens."
        return (
            "Requests of other clients show only in its gauges, between windows, and in its count of tokens."
        )

    def _where(self) -> str:
        if is_on_this_machine(self.url):
            return "GPUs and what else they compute are not attributed to it."
        return "It is on another machine, of which nothing is seen: processes, GPUs, clocks."

    def identity(self, served: Served) -> Mapping[str, str]:
        told = [self.found.version, self.found.point.key, dict(self.found.effective)]
        return {"url": self.url, "model": self.found.model, "settings_sha256": short_hash(told)}

    # Its one Point

    def methods(self, served: Served) -> Mapping[str, tuple[Knob, ...]]:
        return {self.found.point.method: ()}

    def check(self, point: Point, served: Served) -> None:
        return None

    def lossy(self, point: Point, served: Served) -> str:
        return ""

    def canonical(self, point: Point) -> Point:
        return point

    def draft_shape(self, point: Point) -> DraftShape | None:
        return None  # its settings are another's, and may change

    def starting_points(self, served: Served) -> Sequence[Point]:
        return [self.found.point]

    def command(self, point: Point, served: Served, port: int) -> tuple[str, ...]:
        """For the AttachLauncher: where it is."""
        return (self.url,)

    def environment(self, point: Point, served: Served) -> Mapping[str, str | None]:
        return {}

    def ranks(self, point: Point, served: Served) -> int:
        return 1

    def check_nodes(self, point: Point, served: Served, nodes: int) -> None:
        raise UsageError("ray.nodes: nothing is started on any node")

    def on_node(self, argv: tuple[str, ...], rank: Rank) -> tuple[str, ...]:
        raise UsageError("nothing is started on any node")

    def torch_of(self, point: Point) -> None:
        return None

    def device(self, point: Point) -> str:
        return ""

    # While it is measured

    def is_ready(self, endpoint: Endpoint) -> bool:
        return is_ok(f"{self.url}/v1/models")

    def read_back(self, endpoint: Endpoint, point: Point, served: Served) -> ReadBack:
        """Raises WRONG_SERVER if it is not the server it was: somebody may restart it at any time."""
        entry = listed_model(self.url, self.found.model)
        now = type(self).at(self.url, entry)
        if now is None or now.found != self.found:
            told = "another engine" if now is None else _what_changed(self.found, now.found)
            raise MeasurementInvalid(Reason.WRONG_SERVER, f"{self.url} is not what it was: {told}")
        on = None if point.method == UNKNOWN else point.method != BASELINE_METHOD
        return ReadBack(self.found.model, on, self.found.effective)

    def request_fields(self, *, fixed_length: bool) -> Mapping[str, object]:
        return {}

    def counters(self, endpoint: Endpoint) -> SpecCounters | None:
        """Raises OTHER_LOAD: nothing of ours is in flight now, so what is, is somebody else's."""
        self._refuse_other_load()
        return self._counters(endpoint) if self.found.point.method != UNKNOWN else None

    def counted_in_reply(self, stats: Mapping[str, float]) -> SpecCounters | None:
        return None

    def refused_sampling(self, text: str, fields: Collection[str]) -> str | None:
        return None

    def drafts_by_slot(self, endpoint: Endpoint) -> Sequence[SlotDrafts]:
        return ()

    def recount(self, endpoint: Endpoint) -> Recount | None:
        return None

    def admission(self, endpoint: Endpoint) -> tuple[int, int] | None:
        return self._load()

    def generated_tokens(self, endpoint: Endpoint) -> int | None:
        return self._generated()

    def reset_cache(self, endpoint: Endpoint) -> bool:
        self._resets = self._reset(endpoint) and self._resets
        return self._resets

    def context_tokens(self, endpoint: Endpoint) -> int | None:
        limit = listed_model(self.url, self.found.model).get("max_model_len")
        return int(limit) if isinstance(limit, int) else None

    def count_tokens(self, endpoint: Endpoint, body: Mapping[str, object]) -> int:
        """By the usage of a reply of one token."""
        path = "chat/completions" if "messages" in body else "completions"
        shortest = {"model": self.found.model, **body, "max_tokens": 1, "stream": False}
        return int(post_json(f"{self.url}/v1/{path}", shortest)["usage"]["prompt_tokens"])

    def tracer(self, point: Point, folder: Path, *, stacks: bool = False) -> Tracer:
        raise UsageError(
            f"{self.url}: a server that somebody else runs writes its trace on its own machine: profile with"
            " a sweep file that starts the server"
        )

    def capture(
        self, point: Point, served: Served, folder: Path, boundaries: Collection[int] | None = None
    ) -> Capture:
        raise UsageError(
            f"{self.url}: what a drafter is given is seen only in a server that is started for it: name a"
            " sweep file that starts the server"
        )

    def cause(self, log: str, exit_code: int | None, *, ready: bool) -> tuple[Reason, str]:
        reason = Reason.SERVER_DIED if ready else Reason.START_TIMEOUT
        return reason, f"{self.url} does not answer any more" if ready else f"{self.url} does not answer"

    # What subclasses know better

    def _counters(self, endpoint: Endpoint) -> SpecCounters | None:
        return None

    def _load(self) -> tuple[int, int] | None:
        """Requests (running, waiting) of all clients."""
        return None

    def _generated(self) -> int | None:
        return None

    def _reset(self, endpoint: Endpoint) -> bool:
        return False

    def _refuse_other_load(self) -> None:
        deadline_s = time.monotonic() + IDLE_WAIT_S
        while (load := self._load()) is not None and any(load):
            if time.monotonic() > deadline_s:
                running, waiting = load
                shown = f"{self.url}: {running} running and {waiting} waiting while none of ours is in flight"
                raise MeasurementInvalid(Reason.OTHER_LOAD, shown)
            time.sleep(IDLE_POLL_S)


class AttachedKnown(Attached):
    """Engine of a running server whose kind this tool also starts: what `_own` asks it, it is asked here."""

    _own: Engine

    def is_ready(self, endpoint: Endpoint) -> bool:
        return self._own.is_ready(endpoint)

    def request_fields(self, *, fixed_length: bool) -> Mapping[str, object]:
        return self._own.request_fields(fixed_length=fixed_length)

    def counted_in_reply(self, stats: Mapping[str, float]) -> SpecCounters | None:
        return self._own.counted_in_reply(stats)

    def refused_sampling(self, text: str, fields: Collection[str]) -> str | None:
        return self._own.refused_sampling(text, fields)

    def count_tokens(self, endpoint: Endpoint, body: Mapping[str, object]) -> int:
        return self._own.count_tokens(endpoint, body)


def _what_changed(before: Found, now: Found) -> str:
    names = [f.name for f in fields(Found) if getattr(before, f.name) != getattr(now, f.name)]
    settings = {**before.effective, **now.effective}
    changed = sorted(k for k in settings if before.effective.get(k) != now.effective.get(k))
    shown = [f"{k} {before.effective.get(k)} -> {now.effective.get(k)}" for k in changed]
    return ", ".join(shown or names)


def attach(url: str, model: str = "", key: str = "") -> Attached:
    """The Engine of the server at a URL; `model` chooses among several that it lists.

    Raises UsageError if nothing answers there, or nothing that speaks OpenAI's API.
    """
    from launchers.engines.llamacpp.attached import AttachedLlamaCpp
    from launchers.engines.sglang.attached import AttachedSglang
    from launchers.engines.vllm.attached import AttachedVllm

    use_key(url, key)
    try:
        entry = listed_model(url, model)
        kinds: Sequence[type[Attached]] = (AttachedSglang, AttachedVllm, AttachedLlamaCpp, Attached)
        found = (kind.at(url, entry) for kind in kinds)
        return next(server for server in found if server is not None)
    except MeasurementInvalid as error:
        raise UsageError(f"cannot measure {url}: {_why_not(error)}") from None


def _why_not(error: MeasurementInvalid) -> str:
    told = error.evidence
    if "CERTIFICATE_VERIFY_FAILED" in told:
        return f"its certificate is not trusted; name the file of its authority in SSL_CERT_FILE ({told})"
    if error.reason is Reason.SERVER_DIED:
        return f"nothing answers there ({told}); start the server, or correct the address"
    if "HTTP 401" in told or "HTTP 403" in told:
        return f"it asks for an API key; name the variable that holds it with api_key_env ({told})"
    if error.reason is Reason.WRONG_SERVER:
        return f"it is no server that speaks OpenAI's API ({told})"
    return told


def listed_model(url: str, model: str) -> Mapping[str, Any]:
    """The entry of /v1/models whose id or root is `model`, else the first. Raises MeasurementInvalid."""
    told = get_json(f"{url}/v1/models")
    entries = told.get("data") if isinstance(told, dict) else None
    usable = [e for e in entries or () if isinstance(e, dict) and "id" in e]
    if not usable:
        raise MeasurementInvalid(Reason.WRONG_SERVER, f"{url}/v1/models names no model: {str(told)[:200]}")
    named = [e for e in usable if model in (e["id"], e.get("root"))]
    return cast(Mapping[str, Any], (named or usable)[0])


def told_at(url: str, timeout_s: float = 10) -> Mapping[str, Any] | None:
    """The JSON object that the server answers; None if it has no such page. Raises MeasurementInvalid."""
    answer = ask("GET", url, timeout_s=timeout_s)
    if not answer.ok or "json" not in answer.headers.get("Content-Type", "json"):
        return None
    try:
        told = answer.json()
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def known_point(method: str, knobs: Mapping[str, KnobValue], canonical: Any, known: Collection[str]) -> Point:
    """The canonical Point where the method is known to this tool, else as the server tells it."""
    point = Point(method, knobs)
    return cast(Point, canonical(point)) if method in known else point

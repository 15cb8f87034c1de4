"""Whether a server has the environment it was given, and whether NCCL uses what is for NCCL."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import psutil

from launchers.engines.engine import Engine, Served
from launchers.launcher import Endpoint
from launchers.nccl.log import version_in
from launchers.nccl.probe import NcclSeen, ask
from results.errors import LaunchFailed, MeasurementInvalid
from results.reasons import Reason
from results.records import UNSET, Point, Rewrite, Variables
from results.secrets import HIDDEN, hides
from sweeps.variables import NCCL

Given = Mapping[str, str | None]


@dataclass
class NcclCheck:
    """Asks NCCL itself about the variables of a Point, before its server is started, each set once.

    A deadlock or a refusal costs seconds here and minutes where a large model is loaded first.
    """

    engine: Engine
    served: Served
    _seen: dict[str, NcclSeen] = field(default_factory=dict)

    def __call__(self, point: Point, given: Given) -> NcclSeen | None:
        """None if this server has no use of NCCL, or no variable is given to it.

        Raises LaunchFailed: NCCL_REJECTED, HANG.
        """
        asked = {k: v for k, v in given.items() if k.startswith(NCCL) and v is not None}
        where = self.engine.torch_of(point)
        ranks = self.engine.ranks(point, self.served)
        if where is None or not asked or ranks == 1:
            return None
        place, python = where
        key = repr([sorted(asked.items()), place.identity, ranks])
        if key not in self._seen:
            self._seen[key] = ask(place, python, given, asked, ranks)
        seen = self._seen[key]
        if seen.failure is not None:
            raise LaunchFailed(*seen.failure)
        return seen


def variables_of(given: Given, seen: NcclSeen | None) -> Variables:
    """What is known of a server's environment before it is started."""
    shown = {k: HIDDEN if v is not None and hides(k, v) else v for k, v in given.items()}
    if seen is None:
        return Variables(shown)
    return Variables(
        shown,
        nccl_version=seen.version,
        applied=seen.applied,
        unconfirmed=seen.unconfirmed,
        overridden=seen.overridden,
        note=seen.note,
    )


def arrived(before: Variables, given: Given, endpoint: Endpoint) -> Variables:
    """The same, with what the running server's processes have.

    Raises MeasurementInvalid (IGNORED_SETTING) if a variable is not what was given.
    """
    log = endpoint.log_path.read_text("utf-8", "replace") if endpoint.log_path.exists() else ""
    version = before.nccl_version or version_in(log)
    environment = endpoint.environment()
    if environment is None:
        return replace(before, nccl_version=version)
    for name, value in given.items():
        if environment.get(name) != value and not (value and hides(name, value)):
            raise MeasurementInvalid(Reason.IGNORED_SETTING, _otherwise(name, value, environment.get(name)))
    names = [n for n in environment if (n in given or n.startswith(NCCL)) and not hides(n, environment[n])]
    return replace(
        before,
        nccl_version=version,
        seen={name: environment[name] for name in sorted(names)},
        by_engine=_given_to_workers(endpoint.pids(), environment),
    )


def _otherwise(name: str, value: str | None, got: str | None) -> str:
    """A variable that is not as given, in words; what it is may be a secret."""
    shown = HIDDEN if got is not None and hides(name, got) else got
    given = f"{name} was taken away from" if value is None else f"{name}={value} was given to"
    return f"{given} the server, and is {'not there' if got is None else shown} in its process"


def _given_to_workers(pids: Iterable[int], first: Mapping[str, str]) -> dict[str, str]:
    """NCCL's variables of other processes of the server that its first one has not, or otherwise.

    What is missing there says nothing: a process that gives itself a title overwrites its environment.
    """
    found: dict[str, str] = {}
    for pid in pids:
        with suppress(psutil.Error, OSError):
            own = psutil.Process(pid).environ()
            found |= {k: v for k, v in own.items() if k.startswith(NCCL) and first.get(k) != v}
    return dict(sorted(found.items()))


def rewrites_of(point: Point, variables: Variables) -> tuple[Rewrite, ...]:
    """Variables of a Point that the engine, for its workers, or NCCL itself replaced by something else."""
    got = {**variables.overridden, **variables.by_engine}
    return tuple(
        Rewrite(name, UNSET if asked is None else asked, got[name])
        for name, asked in point.variables.items()
        if name in got
    )


def in_effect(point: Point, rewrites: Iterable[Rewrite]) -> Point:
    """The Point that such a server really runs."""
    return Point(point.method, {**point.knobs, **{r.name: r.got for r in rewrites if r.got is not None}})

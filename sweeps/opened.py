"""A run folder while a start is at work on it: whose it is, and what must not change in it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from launchers.leftovers import reap
from results.errors import UsageError
from results.records import BASELINE
from results.sharing import Sharing, alone
from results.store import RunFolder
from sweeps.observer import Observer
from sweeps.session import session
from sweeps.sweep import Sweep
from sweeps.which_run import own_sweep


class Claimant(Protocol):
    """What a run folder belongs to: the Plan of a sweep, or a comparison."""

    @property
    def sweep(self) -> Sweep: ...

    def environment(self) -> Mapping[str, object]: ...


@contextmanager
def opened(
    folder: RunFolder, claimant: Claimant, observer: Observer, *, together: bool = False
) -> Iterator[Sharing]:
    """The run folder while this start is at work on it: its own, locked, nothing left behind running.

    `together`: other drivers may be at work on it too, where its store allows that.
    """
    folder.on_wait(observer.note)
    folder.create()
    with folder.joined() if together else _alone(folder) as sharing:
        with sharing.exclusive():
            folder.pull()
            claim(folder, claimant, together=together)
        for leftover in reap(folder.path, end=True):
            observer.note(f"ended a server left behind by an earlier start: {leftover.what}")
        with session(folder):
            yield sharing


@contextmanager
def _alone(folder: RunFolder) -> Iterator[Sharing]:
    with folder.locked():
        yield alone(folder.blocks())


def claim(folder: RunFolder, claimant: Claimant, *, together: bool = False) -> None:
    """Make the folder the claimant's own. Of drivers that work `together` each may be another machine.

    Raises UsageError if it holds records of another sweep, or measured under something else: figures
    of different models, prompts, engines or machines are never put together.
    """
    environment = claimant.environment()
    known = folder.read_json("environment.json")
    has_claimed = bool(known) and bool(folder.living() - {folder.driver})  # another driver, at work now
    if has_claimed or folder.blocks() or any(t.point != BASELINE for t in folder.trials()):
        earlier = own_sweep(folder)
        changed = differences(_on_this_machine(known, environment, together=together), environment)
        if earlier.identity() != claimant.sweep.identity():
            changed = ["the sweep file (only name, budget and patience may)"]
        if changed:
            raise UsageError(
                f"{folder.shown} holds the records of another sweep; what changed: {', '.join(changed)}."
                " Name another folder with --run, or remove this one"
            )
    else:
        folder.study_file.unlink(missing_ok=True)  # of a start that failed before it measured anything
        known = {}
    folder.write_text("sweep.yaml", claimant.sweep.to_yaml())
    is_one_of_many = folder.is_shared and together
    kept = _with_host(known, environment) if is_one_of_many else {**known, **environment}
    folder.write_json("environment.json", kept)


def _with_host(known: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, object]:
    """What drivers of several machines share, and each of these machines by the hash of its name."""
    return {**now, **known, "hosts": {**known.get("hosts", {}), now["host"]["host"]: now["host"]}}


def _on_this_machine(
    known: Mapping[str, Any], now: Mapping[str, Any], *, together: bool
) -> Mapping[str, Any]:
    """What an earlier start saw here; of other machines what must be the same on all that work together."""
    hosts = known.get("hosts", {})
    if now["host"]["host"] in hosts:
        return {**known, "host": hosts[now["host"]["host"]]}
    if not together or not hosts:
        return known
    return {**known, "host": {"engine": known["host"]["engine"]}}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What decides a measurement and is no longer the same, by name; unknown counts as the same."""
    decided = [
        ("sides", "the configurations compared"),
        ("served", "model files"),
        ("prompts", "prompts"),
        ("references", "the references of the prompts"),
        ("load", "arrival times"),
        ("images", "container images"),
    ]
    found = [name for key, name in decided if key in before and before[key] != now.get(key)]
    then, host = before.get("host", {}), now["host"]
    if _cards(then) and _cards(then) != _cards(host):
        found.append("GPUs or their power limits")
    return found + [
        key for key in ("engine", "host", "cpu", "gpu_driver") if then.get(key, host[key]) != host[key]
    ]


def _cards(host: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """The GPUs of a fingerprint by UUID, with their limits; those of earlier versions had no UUID."""
    return [(gpu["uuid"], gpu["power_limit_w"]) for gpu in host.get("gpus", ()) if "uuid" in gpu]

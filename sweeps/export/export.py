"""`tuner export`: one form of what a run found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from launchers.engines import deployment_of
from results.errors import UsageError
from results.store import RunFolder
from sweeps.cluster.nodes import nodes_of
from sweeps.export.address import check_host
from sweeps.export.by_size import by_size
from sweeps.export.choice import Choice, choose
from sweeps.export.compose import compose
from sweeps.export.deployable import OVER_NODES, Deployable, check_one_node, deployable
from sweeps.export.kubernetes import kubernetes
from sweeps.export.result import result
from sweeps.export.shell import command, env
from sweeps.mistakes import nearest
from sweeps.sweep import Sweep

Noted = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Exported:
    """A file, and what to tell whoever asked for it."""

    text: str
    notes: tuple[str, ...]


def _alone(form: Callable[[Deployable], str]) -> Callable[[Deployable], Noted]:
    return lambda what: (form(what), tuple(f"To set: {name}" for name in what.server.secrets))


FORMS: Mapping[str, Callable[[Deployable], Noted]] = {
    "command": _alone(command),
    "env": _alone(env),
    "compose": compose,
    "kubernetes": kubernetes,
    "json": _alone(result),
}


def export(
    folder: RunFolder,
    form: str,
    *,
    point: str | None = None,
    trial: int | None = None,
    host: str | None = None,
    port: int | None = None,
    file: Path | None = None,
) -> Exported:
    """What the run found, in one form; `file` is where the text will lie, if it names itself.

    Raises UsageError: nothing decided yet, a form that this engine has not, what the form cannot hold,
    a host that is no address.
    """
    if host is not None:
        check_host(host)
    choice = choose(folder, point, trial)
    scheduled = {s.form: s for s in deployment_of(choice.sweep.engine).by_size}
    if form not in FORMS and form not in scheduled:
        raise UsageError(_no_form(form, choice, [*FORMS, *scheduled]))
    if form == "kubernetes" and host is not None:
        raise UsageError("--host: a Service of Kubernetes has an address of its own")
    if form in scheduled:
        text, notes = by_size(
            choice, scheduled[form], host, port, str(file.absolute() if file else f"{form}.json")
        )
    else:
        if form not in OVER_NODES:
            check_one_node(form, nodes_of(choice.sweep))
        text, notes = FORMS[form](deployable(choice, host, port))
    return Exported(text, tuple(filter(None, [choice.note, *notes])))


def _no_form(form: str, choice: Choice, known: list[str]) -> str:
    engines = get_args(Sweep.model_fields["engine"].annotation)
    if form in (s.form for engine in engines for s in deployment_of(engine).by_size):
        return f"--as {form}: {choice.sweep.engine} has no such form (it has {', '.join(known)})"
    return f"--as {form}: no such form{nearest(form, known)}"

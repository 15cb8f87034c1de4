"""The states of a server of vLLM, captured by a plugin that is laid into the folder for it.

The folder is one that the server sees by the same path, in a container as well: so the plugin lies there
too, as a module and the metadata by which vLLM finds it. See `inside_capture.py` for where it looks.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from launchers.engines import captures
from launchers.engines.vllm.flags import Capabilities, argv_of
from launchers.place import Place, Variables
from results.errors import UsageError
from results.hidden_states import DumpHeader, HiddenStates
from results.records import KnobValue, Point

INSIDE = Path(__file__).with_name("inside_capture.py")
ASKED = "TUNER_CAPTURE"  # as in the file above, which no process without torch can import
PLUGIN = "tuner_vllm_capture"
BEFORE = ("PYTHONPATH", "VLLM_PLUGINS")
METHODS = ("eagle3", "eagle", "mtp")  # whose drafter is given states of the target in each pass
# Every module must be called anew in each pass, every position of a prompt be computed, and no round be run
# ahead of an answer's end, to be thrown away.
NEEDED: Mapping[str, KnobValue] = {
    "--enforce-eager": True,
    "--enable-prefix-caching": False,
    "--async-scheduling": False,
}
SPLIT = ("--pipeline-parallel-size", "--prefill-context-parallel-size")


@dataclass(frozen=True, slots=True)
class VllmCapture:
    """The Capture of vLLM's servers, with either model runner; states are those of tensor-parallel rank 0."""

    folder: Path
    point: Point  # what the instrumented server runs: the one that was asked for
    words: tuple[str, ...]
    variables: Mapping[str, str]
    known: DumpHeader  # before any server ran

    @property
    def header(self) -> DumpHeader:
        return replace(self.known, notes=captures.notes(self.folder))

    def sequences(self) -> Iterator[HiddenStates]:
        return captures.sequences(self.folder)


def check(method: str, settings: Mapping[str, KnobValue]) -> None:
    """Raises UsageError where states cannot be captured."""
    if method not in METHODS:
        raise UsageError(
            f"{method}: no drafter that is given states of the target ({', '.join(METHODS)} are)"
        )
    for flag in SPLIT:
        if settings.get(flag, 1) != 1:
            raise UsageError(
                f"{flag} {settings[flag]}: a pass is split over processes, and none of them sees the states "
                f"of all layers and tokens; capture with {flag} 1"
            )


def words(settings: Mapping[str, KnobValue], known: Capabilities) -> tuple[str, ...]:
    """What the command needs beside what it says already; of two that contradict, vLLM takes the last."""
    lacking = {flag: value for flag, value in NEEDED.items() if settings.get(flag) != value}
    return tuple(argv_of({flag: v for flag, v in lacking.items() if known.flag(flag)}, known))


def variables_there(place: Place, python: str, given: Variables) -> Variables:
    """What of a server's environment decides about its plugins, with what is given to it.

    Raises UsageError if its Python does not run.
    """
    code = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {BEFORE}}}))"
    ran = place.run((python, "-c", code), given, 60.0)
    if ran.exit_code != 0:
        raise UsageError(f"{python} does not run in {place.name}: {ran.errors.strip()}")
    found: dict[str, str | None] = json.loads(ran.output.splitlines()[-1])
    return found


def lay_plugin(folder: Path, boundaries: Collection[int] | None, before: Variables) -> dict[str, str]:
    """Put the plugin into the folder; the variables by which a server with these before finds it."""
    place = captures.lay_plugin(folder, PLUGIN, "vllm.general_plugins", "install", INSIDE)
    chosen = None if boundaries is None else sorted(set(boundaries))
    asked = {"folder": str(folder.absolute()), "boundaries": chosen}
    return {
        ASKED: json.dumps(asked),
        "PYTHONPATH": captures.joined(":", str(place), before.get("PYTHONPATH")),
        **_allowed(before.get("VLLM_PLUGINS")),
    }


def _allowed(plugins: str | None) -> dict[str, str]:
    """Unset, all plugins are loaded; otherwise those that are named."""
    return {} if plugins is None else {"VLLM_PLUGINS": captures.joined(",", PLUGIN, plugins)}

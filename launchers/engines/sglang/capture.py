"""The states of an SGLang server, captured by a plugin that is laid into the folder for it.

The folder is one that the server sees by the same path, in a container as well: so the plugin lies there too.
CUDA graphs would hide the passes from it, a prefix cache would leave some out, and a scheduler that runs
ahead adds rounds that are thrown away: all three are off. Of a tree the chain is captured: the drafter is
given the same states, and the rows of its target stand in the order of the tokens.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from launchers.engines import captures
from launchers.engines.model_folder import read_config
from launchers.engines.sglang import knobs
from launchers.engines.sglang.flags import Flags
from launchers.engines.sglang.install import Installation
from launchers.place import Variables
from results.errors import UsageError
from results.hidden_states import DumpHeader, HiddenStates
from results.records import Point

INSIDE = Path(__file__).with_name("inside_capture.py")
ASKED = "TUNER_CAPTURE"  # as in the file above, which no process without torch can import
PLUGIN = "tuner_sglang_capture"
# What of the server's own Python decides about its plugins.
BEFORE_CODE = """
import json, os
from importlib.util import find_spec
from pathlib import Path
folder = Path(find_spec("sglang").submodule_search_locations[0])
told = {name: os.environ.get(name, "") for name in ("PYTHONPATH", "SGLANG_PLUGINS")}
print(json.dumps({**told, "has_plugins": (folder / "srt" / "plugins").is_dir()}))
"""
GRAPHS = ("--cuda-graph-backend-decode", "--cuda-graph-backend-prefill")
SWITCHES = ("--disable-radix-cache", "--disable-overlap-schedule")
# A pass is split over these ranks, or is one of several that run at once.
SPLIT = ("pp_size", "dp_size", "attn_dp_size", "attn_cp_size")


@dataclass(frozen=True, slots=True)
class SglangCapture:
    """The Capture of SGLang's servers; states are those of the first tensor-parallel rank."""

    folder: Path
    point: Point
    words: tuple[str, ...]
    variables: Mapping[str, str]
    known: DumpHeader  # before any server ran

    @property
    def header(self) -> DumpHeader:
        return replace(self.known, notes=(*self.known.notes, *captures.notes(self.folder)))

    def sequences(self) -> Iterator[HiddenStates]:
        return captures.sequences(self.folder)


def check(point: Point, settings: Mapping[str, object]) -> None:
    """Raises UsageError where there are no states to be seen, or no one process sees them."""
    method = knobs.METHODS.get(point.method)
    if method is None or not method.is_eagle:
        names = ", ".join(name for name, method in knobs.METHODS.items() if method.is_eagle)
        raise UsageError(f"{point.method}: no drafter that is given states of the target ({names} are)")
    for name in SPLIT:
        size = settings.get(name)
        if isinstance(size, int) and size > 1:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{flag} {size}: no one process sees all states of a pass; capture with {flag} 1"
            )


def chain_of(point: Point) -> Point:
    """The chain as deep as this Point drafts at first, with its shared settings."""
    steps = knobs.canonical(point).knobs["num_steps"]
    kept = {
        k: v for k, v in point.speculative.items() if k not in ("draft_tokens", "adaptive", "adaptive_config")
    }
    return knobs.canonical(Point(point.method, {**kept, "num_steps": steps, "topk": 1, **point.shared}))


def notes(point: Point, chain: Point) -> tuple[str, ...]:
    """What of the instrumented server is not as in the one that was asked for."""
    off = "CUDA graphs, prefix cache and overlapped scheduling were off"
    return (off,) if chain.key == knobs.canonical(point).key else (off, f"captured with {chain.label}")


def words(flags: Flags) -> tuple[str, ...]:
    """At the end of the command they win over what the user gave."""
    if all(name in flags.by_name for name in GRAPHS):
        graphs = [word for name in GRAPHS for word in (name, "disabled")]
    else:
        graphs = ["--disable-cuda-graph"]
    return (*graphs, *SWITCHES)


def layers_of(model: Path) -> int:
    """Layers of a model. Raises UsageError if its folder is not here, or does not tell."""
    config = read_config(model)
    layers = (config.get("text_config") or config).get("num_hidden_layers")
    if not isinstance(layers, int):
        raise UsageError(f"{model}: its config.json does not tell num_hidden_layers")
    return layers


def lay_plugin(
    folder: Path, layers: int, boundaries: Collection[int] | None, before: Mapping[str, str]
) -> dict[str, str]:
    """Put the plugin into the folder; the variables by which a server with these before finds it."""
    chosen = None if boundaries is None else sorted(set(boundaries))
    if chosen and not 0 <= chosen[0] <= chosen[-1] <= layers + 1:
        raise UsageError(f"boundaries {chosen}: a target of {layers} layers has 0 to {layers + 1}")
    place = captures.lay_plugin(folder, PLUGIN, "sglang.srt.plugins", "register", INSIDE)
    asked = {"folder": str(folder.absolute()), "layers": layers, "boundaries": chosen}
    return {
        ASKED: json.dumps(asked),
        "PYTHONPATH": captures.joined(":", str(place), before["PYTHONPATH"]),
        **({"SGLANG_PLUGINS": f"{PLUGIN},{allowed}"} if (allowed := before["SGLANG_PLUGINS"]) else {}),
    }


def before(installation: Installation, environment: Variables) -> Mapping[str, str]:
    """The variables that the server would find. Raises UsageError if this SGLang has no plugins."""
    done = installation.place.run([installation.python, "-c", BEFORE_CODE], environment, timeout_s=60)
    try:
        told: dict[str, str] = json.loads(done.output)
    except ValueError:
        raise UsageError(
            f"{installation.python} does not say what it has: {done.errors.strip()[-200:]}"
        ) from None
    if not told["has_plugins"]:
        raise UsageError(
            f"SGLang {installation.version} has no plugins, by which states are captured: capture with"
            " 0.5.16 or later, or start it by hand with --debug-tensor-dump-output-folder FOLDER"
            " --disable-cuda-graph --disable-radix-cache and the variable"
            " TENSOR_DUMP_TOP_LEVEL_MODULE_NAME=logits_processor, send prompts one at a time, and have"
            " that folder read"
        )
    return told

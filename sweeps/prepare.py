"""From a sweep file to what a run needs: engine, Space, prompts, paces. Every user's mistake ends here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from launchers.containers.image import Told, silent
from launchers.containers.images import Images
from launchers.containers.options import check_passed, missing_sources, shm_bytes
from launchers.engines import engine_named, image_digests, launcher_for
from launchers.engines.engine import Engine, Served
from launchers.engines.model_folder import where_it_lies
from launchers.engines.nccl import nccl_version
from launchers.nccl.shm import too_small
from launchers.nvml import installed_gpus
from launchers.place import Places, on_this_machine
from results.environment import fingerprint, short_hash
from results.errors import UsageError
from results.records import BASELINE, Phase
from results.secrets import is_secret
from results.store import RunFolder
from sweeps import workload as prompts_of
from sweeps.cluster.nodes import check_nodes, nodes_of
from sweeps.container import Container
from sweeps.equal_sets import sets_of
from sweeps.limits import check_measurable, goodput_notes
from sweeps.mistakes import nearest
from sweeps.pace import Pace, parse_pace
from sweeps.setup import Setup
from sweeps.space import Rules, Space, build_space
from sweeps.sweep import Sweep, Workload
from sweeps.variables import check_fixed
from sweeps.windows import Grid, PromptsByClass, Window
from sweeps.workload import Prompt

RANDOM_WORDS = 120
MOST_RANDOM = 10_000  # prompts of an arm
DEFAULT_CLASSES = ("code_edit", "chat")  # one that copies its prompt and one that does not

SpaceOf = Callable[[Engine, Served, Sweep], Space]


@dataclass(frozen=True)
class Plan:
    """A sweep, resolved and checked; nothing has been started yet."""

    sweep: Sweep
    engine: Engine
    served: Served
    space: Space
    paces: Sequence[Pace]
    grids: Mapping[Phase, Grid]
    windows: Mapping[Phase, Sequence[Window]]
    warm_up: Sequence[Prompt]
    places: Places = on_this_machine
    unseen: Sequence[str] = ()  # what could not be looked at, in a plan

    @property
    def notes(self) -> Sequence[str]:
        """What to know before it starts: old rules, what was left out of the Space ..."""
        own = goodput_notes(self.sweep, self.windows)
        return (*self.unseen, *self.engine.notes(self.served), *self.space.notes, *own)

    def environment(self) -> Mapping[str, object]:
        """Fingerprint of what is measured and where."""
        from importlib.metadata import version

        return {
            "host": asdict(fingerprint(version("tuner"), self.engine.version(), gpus=installed_gpus())),
            "served": self.engine.identity(self.served),
            "images": image_digests(self.places, {point.image for point in self.space.points.values()}),
            "load": short_hash([repr(pace) for pace in self.paces]),
            "prompts": {phase: _hash(windows) for phase, windows in self.windows.items()},
            "references": _references_hash(self.windows),
        }

    def setup(self, folder: RunFolder) -> Setup:
        """What the arms of this plan share on this machine. Raises UsageError if it is for a cluster."""
        if self.sweep.launcher == "ray":
            raise UsageError(
                "launcher: ray is for `tuner sweep`; this command starts servers on its own machine: run it"
                " on a node, with --set launcher=process --set ray=null"
            )
        return Setup(
            sweep=self.sweep,
            engine=self.engine,
            launcher=launcher_for(self.engine, folder.path, self.places),
            places=self.places,
            served=self.served,
            folder=folder,
            windows=self.windows,
            warm_up=self.warm_up,
        )


def _hash(windows: Sequence[Window]) -> str:
    return prompts_of.prompt_set_hash([p for window in windows for p in window.prompts])


def _references_hash(windows: Mapping[Phase, Sequence[Window]]) -> str:
    """Of what is scored and how; "" if nothing is."""
    every = [p for of_phase in windows.values() for window in of_phase for p in window.prompts]
    told = [[p.workload_class, p.id, p.reference.match, *p.reference.accepted] for p in every if p.reference]
    return short_hash(told) if told else ""


def _check_references(sweep: Sweep, grids: Mapping[Phase, Grid]) -> None:
    """Raises UsageError for what an answer of fixed length cannot match: it runs on after its end."""
    prompts = [p for grid in grids.values() for of_class in grid.prompts.values() for p in of_class]
    whole = next((p.id for p in prompts if p.reference and p.reference.match != "contains"), None)
    if whole is not None and sweep.workload.lengths == "fixed":
        raise UsageError(
            f"prompt {whole} has a reference, and with workload.lengths: fixed an answer runs on after its"
            " end: set workload.lengths: natural, with max_tokens so that answers fit, or use match: contains"
        )


def prepare(sweep: Sweep, *, planning: bool = False, told: Told = silent) -> Plan:
    """Resolve a sweep. Raises UsageError for whatever cannot work, before anything is started."""
    if sweep.launcher == "attach":
        raise UsageError(
            "launcher: attach: a search starts a server for every Point, which nobody can do with one that"
            " runs already; `tuner compare` measures such a server"
        )
    return plan_to_start(sweep, whole_space, planning=planning, told=told)


def whole_space(engine: Engine, served: Served, sweep: Sweep) -> Space:
    """Every Point that the sweep file opens."""
    rules = Rules(ignored=sweep.ignore_rules, allow_lossy=sweep.allow_lossy)
    return build_space(engine, served, sweep.space, sweep.shared, rules)


def plan_to_start(sweep: Sweep, space_of: SpaceOf, *, planning: bool = False, told: Told = silent) -> Plan:
    """The Plan of a sweep whose servers the tool starts. Raises UsageError.

    While `planning` containers, what is not on this machine (an image, a model, a volume) becomes a note
    of the Plan; otherwise images are pulled, and `told` gets lines about it.
    """
    planning = planning and sweep.starts == "docker"  # a process needs all of it on this machine
    places = places_of(sweep, planning=planning, told=told)
    engine = engine_named(sweep.engine, sweep.server, places, planning=planning)
    return plan_of(sweep, engine, space_of, places, planning=planning)


def plan_of(
    sweep: Sweep,
    engine: Engine,
    space_of: SpaceOf,
    places: Places = on_this_machine,
    *,
    planning: bool = False,
) -> Plan:
    """The Plan of a sweep on this engine, over what `space_of` gives. Raises UsageError."""
    paces = [_pace(at, spec) for at, spec in enumerate(sweep.load)]
    check_measurable(sweep)
    if sweep.pairing == "duet" and sweep.launcher != "ray":  # there each node has sets of its own
        sets_of(sweep.duet, sweep.container)
    check_fixed(sweep.env, lambda: nccl_version(engine.torch_of(BASELINE)))
    refuse_secret_args([*sweep.args, *sweep.shared])
    served = engine.resolve(sweep.model, sweep.draft, sweep.args, sweep.env)
    if sweep.container is not None:
        check_room(sweep.container, engine.ranks(BASELINE, served) // nodes_of(sweep))
    space = space_of(engine, served, sweep)
    check_nodes(sweep, engine, served, space.points.values())
    _check_paces(sweep, paces)
    grids = _grids(sweep, paces)
    _check_references(sweep, grids)
    _check_weights(sweep, [*grids[Phase.SEARCH].prompts], paces)
    return Plan(
        sweep=sweep,
        engine=engine,
        served=served,
        space=space,
        paces=paces,
        grids=grids,
        windows={phase: grid.windows(paces) for phase, grid in grids.items()},
        warm_up=grids[Phase.SEARCH].warm_up(paces),
        places=places,
        unseen=_absent(sweep, served, planning),
    )


def places_of(sweep: Sweep, *, planning: bool = False, told: Told = silent) -> Places:
    """Where the servers of a sweep run."""
    if sweep.container is None:
        return on_this_machine
    named = [sweep.model, sweep.draft, *(v for v in sweep.args.values() if isinstance(v, str))]
    reads = [path for name in named if name and (path := where_it_lies(name)).exists()]
    return Images(sweep.container.to_options(), reads, told, planning=planning)


def refuse_secret_args(names: Sequence[str]) -> None:
    """Raises UsageError for an argument that is a secret: engines write those into their logs."""
    for name in names:
        if is_secret(name):
            raise UsageError(
                f"args: {name} is a secret, which engines print into their logs: leave it out (servers that"
                " are started here listen on loopback and need no key), or give it by a variable under `env`"
            )


def check_room(container: Container, ranks: int) -> None:
    """Raises UsageError if a container has too few GPUs or too little shared memory for its ranks."""
    if container.gpus is not None and container.gpus != "all" and len(container.gpu_ids) < ranks:
        raise UsageError(f"container.gpus: {len(container.gpu_ids)} GPUs for {ranks} ranks: give one to each")
    if (why := too_small(shm_bytes(container.to_options()), ranks)) is not None:
        raise UsageError(f"container.shm_size: {why}")


def _absent(sweep: Sweep, served: Served, planning: bool) -> list[str]:
    """What a plan names and this machine does not have. Raises UsageError if it is no plan."""
    options = sweep.container.to_options() if sweep.container else None
    volumes = missing_sources(options) if options else []
    if volumes and not planning:
        raise UsageError(f"container.volumes: there is no {volumes[0]} on this machine")
    if options and not planning:
        check_passed(options)
    models = [path for path in (served.model, served.draft) if path is not None and not Path(path).exists()]
    return [f"{path} is not on this machine: not looked at" for path in [*models, *volumes] if planning]


def _pace(at: int, spec: Mapping[str, object]) -> Pace:
    try:
        return parse_pace(spec)
    except UsageError as error:
        raise UsageError(f"load.{at}: {error}") from None


def _grids(sweep: Sweep, paces: Sequence[Pace]) -> Mapping[Phase, Grid]:
    """The search is on one half of the prompts, the confirmation on the other."""
    workload = sweep.workload
    many = Grid({}, workload.context, workload.prompts_per_class, {}).needed(paces)
    tuning, validation = _prompts(workload, sweep.seed, many)

    def grid(half: PromptsByClass, split: prompts_of.Split) -> Grid:
        material = _material(workload, half, split)
        return Grid(half, workload.context, workload.prompts_per_class, material)

    return {Phase.SEARCH: grid(tuning, "tuning"), Phase.CONFIRM: grid(validation, "validation")}


def _material(workload: Workload, half: PromptsByClass, split: prompts_of.Split) -> PromptsByClass:
    """What prompts of one half are lengthened with: its own, and of the shipped ones every class."""
    if workload.files or workload.random_tokens:
        return half
    return {**half, **{c: prompts_of.shipped(c, split, None) for c in prompts_of.CLASSES}}


def _prompts(workload: Workload, seed: int, count: int) -> tuple[PromptsByClass, PromptsByClass]:
    """Tuning and held-out prompts by class; `count` of each are needed."""
    if workload.random_tokens:
        return _random_prompts(seed, count + 1)
    if workload.files:
        return _user_prompts(workload.files, workload.classes, seed)
    classes = workload.classes or DEFAULT_CLASSES
    _check_classes(classes, prompts_of.CLASSES)
    return (
        {c: prompts_of.shipped(c, "tuning", None) for c in classes},
        {c: prompts_of.shipped(c, "validation", None) for c in classes},
    )


def _random_prompts(seed: int, count: int) -> tuple[PromptsByClass, PromptsByClass]:
    if count > MOST_RANDOM:
        raise UsageError(f"workload.random_tokens: {count:,} prompts are asked for: make {MOST_RANDOM:,} do")
    both = prompts_of.random_token_prompts(2 * count, RANDOM_WORDS, seed)
    return {"random": both[:count]}, {"random": both[count:]}


def _user_prompts(
    files: Sequence[Path], classes: Sequence[str], seed: int
) -> tuple[PromptsByClass, PromptsByClass]:
    prompts = [p for file in files for p in prompts_of.from_file(file)]
    found = tuple(dict.fromkeys(p.workload_class for p in prompts))
    wanted = classes or found
    _check_classes(wanted, found)
    tuning, validation = prompts_of.split_prompts([p for p in prompts if p.workload_class in wanted], seed)
    return _by_class(tuning, wanted), _by_class(validation, wanted)


def _by_class(prompts: Sequence[Prompt], classes: Sequence[str]) -> PromptsByClass:
    return {c: [p for p in prompts if p.workload_class == c] for c in classes}


def _check_classes(wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            raise UsageError(f"workload.classes: no class {name!r}{nearest(name, known)}")
    if len(set(wanted)) < len(wanted):
        raise UsageError("workload.classes: a class is named twice")


def _check_weights(sweep: Sweep, classes: Sequence[str], paces: Sequence[Pace]) -> None:
    """Only what is measured has a weight, and something has one above 0."""
    weights = sweep.weights
    for key, given, measured in (
        ("classes", weights.classes, classes),
        ("paces", weights.paces, [str(pace) for pace in paces]),
        ("contexts", {str(c): w for c, w in weights.contexts.items()}, [*map(str, sweep.workload.context)]),
    ):
        for name in given:
            if name not in measured:
                raise UsageError(f"weights.{key}: {name!r} is not measured{nearest(name, measured)}")
        if all(given.get(name) == 0 for name in measured):
            raise UsageError(f"weights.{key}: all are 0, so that nothing would count")


def _check_paces(sweep: Sweep, paces: Sequence[Pace]) -> None:
    names = [str(pace) for pace in paces]
    if len(set(names)) < len(names):
        raise UsageError(
            f"load: a pace is named twice ({', '.join(names)}): its Cells could not be told apart"
        )
    if sweep.objective == "tokens_per_s" and any(p.concurrency is None for p in paces):
        raise UsageError(
            "objective: in an open loop (poisson, replay) the pace decides tokens_per_s:"
            " choose goodput_per_s, ttft_p50_s, tpot_p50_s or end_to_end_p50_s"
        )

"""From a sweep file to what a run needs: engine, Space, prompts, paces. Every user's mistake ends here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from analysis.block import ENERGY
from launchers.containers.image import Told, silent
from launchers.containers.images import Images
from launchers.containers.options import check_passed, missing_sources, shm_bytes
from launchers.engines import engine_named, image_digests, launcher_for
from launchers.engines.engine import Engine, Served
from launchers.engines.model_folder import where_it_lies
from launchers.engines.nccl import nccl_version
from launchers.nccl.shm import too_small
from launchers.nvml import driver, installed_gpus, tells_energy
from launchers.place import Places, on_this_machine
from results.environment import fingerprint, short_hash
from results.errors import UsageError
from results.records import BASELINE, Phase
from results.secrets import is_secret
from results.store import RunFolder
from sweeps import workload as prompts_of
from sweeps.container import Container
from sweeps.pace import Pace, parse_pace
from sweeps.setup import Setup
from sweeps.space import Rules, Space, build_space
from sweeps.sweep import Sweep, Workload, nearest
from sweeps.variables import check_fixed
from sweeps.workload import Prompt

RANDOM_WORDS = 120
DEFAULT_CLASSES = ("code_edit", "chat")  # one that copies its prompt and one that does not

PromptsByClass = Mapping[str, Sequence[Prompt]]
SpaceOf = Callable[[Engine, Served, Sweep], Space]


@dataclass(frozen=True)
class Plan:
    """A sweep, resolved and checked; nothing has been started yet."""

    sweep: Sweep
    engine: Engine
    served: Served
    space: Space
    paces: Sequence[Pace]
    prompts: Mapping[Phase, PromptsByClass]
    warm_up: Sequence[Prompt]
    places: Places = on_this_machine
    unseen: Sequence[str] = ()  # what could not be looked at, in a plan

    @property
    def notes(self) -> Sequence[str]:
        """What to know before it starts: old rules, what was left out of the Space ..."""
        return (*self.unseen, *self.engine.notes(self.served), *self.space.notes)

    def environment(self) -> Mapping[str, object]:
        """Fingerprint of what is measured and where."""
        from importlib.metadata import version

        return {
            "host": asdict(fingerprint(version("tuner"), self.engine.version(), gpus=installed_gpus())),
            "served": self.engine.identity(self.served),
            "images": image_digests(self.places, {point.image for point in self.space.points.values()}),
            "load": short_hash([repr(pace) for pace in self.paces]),
            "prompts": {phase: _hash(by_class) for phase, by_class in self.prompts.items()},
            "references": _references_hash(self.prompts),
        }

    def setup(self, folder: RunFolder) -> Setup:
        """What the arms of this plan share."""
        return Setup(
            sweep=self.sweep,
            engine=self.engine,
            launcher=launcher_for(self.engine, folder.path, self.places),
            places=self.places,
            served=self.served,
            folder=folder,
            paces=self.paces,
            prompts=self.prompts,
            warm_up=self.warm_up,
        )


def _warm_up_prompt(prompts: Sequence[Prompt], measured: int) -> Prompt:
    """The shortest that is not measured, since its answer is thrown away; if all are, the shortest."""
    return min(prompts[measured:] or prompts, key=prompts_of.estimate_tokens)


def _hash(prompts: PromptsByClass) -> str:
    return prompts_of.prompt_set_hash([p for of_class in prompts.values() for p in of_class])


def _references_hash(prompts: Mapping[Phase, PromptsByClass]) -> str:
    """Of what is scored and how; "" if nothing is."""
    every = [p for by_class in prompts.values() for of_class in by_class.values() for p in of_class]
    told = [[p.workload_class, p.id, p.reference.match, *p.reference.accepted] for p in every if p.reference]
    return short_hash(told) if told else ""


def _check_references(sweep: Sweep, prompts: PromptsByClass) -> None:
    """Raises UsageError for what an answer of fixed length cannot match: it runs on after its end."""
    scored = [p for of_class in prompts.values() for p in of_class if p.reference is not None]
    whole = next((p.id for p in scored if p.reference and p.reference.match != "contains"), None)
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
    planning = planning and sweep.launcher == "docker"  # a process needs all of it on this machine
    places = _places(sweep, planning, told)
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
    paces = [parse_pace(spec) for spec in sweep.load]
    _check_energy(sweep)
    check_fixed(sweep.env, lambda: nccl_version(engine.torch_of(BASELINE)))
    refuse_secret_args([*sweep.args, *sweep.shared])
    served = engine.resolve(sweep.model, sweep.draft, sweep.args, sweep.env)
    if sweep.container is not None:
        check_room(sweep.container, engine.ranks(BASELINE, served))
    space = space_of(engine, served, sweep)
    tuning, validation = _prompts(sweep.workload, sweep.seed, len(paces))
    _check_paces(sweep, paces)
    _check_references(sweep, {c: [*p, *validation[c]] for c, p in tuning.items()})
    count = sweep.workload.prompts_per_class * len(paces)
    _check_enough(tuning, validation, count, len(paces))
    return Plan(
        sweep=sweep,
        engine=engine,
        served=served,
        space=space,
        paces=paces,
        prompts={
            Phase.SEARCH: {c: p[:count] for c, p in tuning.items()},
            Phase.CONFIRM: {c: p[:count] for c, p in validation.items()},
        },
        warm_up=[_warm_up_prompt(prompts, count) for prompts in tuning.values()],
        places=places,
        unseen=_absent(sweep, served, planning),
    )


def _places(sweep: Sweep, planning: bool, told: Told) -> Places:
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


def _prompts(workload: Workload, seed: int, paces: int) -> tuple[PromptsByClass, PromptsByClass]:
    """Tuning and held-out prompts by class."""
    if workload.random_tokens:
        return _random_prompts(workload, seed, paces)
    if workload.files:
        return _user_prompts(workload.files, workload.classes, seed)
    classes = workload.classes or DEFAULT_CLASSES
    _check_classes(classes, prompts_of.CLASSES)
    return (
        {c: prompts_of.shipped(c, "tuning", None) for c in classes},
        {c: prompts_of.shipped(c, "validation", None) for c in classes},
    )


def _random_prompts(workload: Workload, seed: int, paces: int) -> tuple[PromptsByClass, PromptsByClass]:
    count = workload.prompts_per_class * paces + 1
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


def _check_enough(tuning: PromptsByClass, validation: PromptsByClass, count: int, paces: int) -> None:
    for prompts in (tuning, validation):
        for workload_class, available in prompts.items():
            if len(available) < count:
                times = f" for each of {paces} paces" if paces > 1 else ""
                raise UsageError(
                    f"workload: class {workload_class} has {len(available)} prompts in each half, fewer than"
                    f" prompts_per_class{times} ({count}): add prompts or lower prompts_per_class"
                )


def _check_energy(sweep: Sweep) -> None:
    if sweep.objective != ENERGY or tells_energy():
        return
    found = driver()
    seen = f"the driver does not tell it of {found.devices[0].name}" if found.devices else "there is no GPU"
    why = f" ({found.absent})" if found.absent else ""
    raise UsageError(
        f"objective: {ENERGY} needs GPUs that tell their energy or power, and {seen}{why}:"
        " choose tokens_per_s, ttft_p50_s, tpot_p50_s or end_to_end_p50_s"
    )


def _check_paces(sweep: Sweep, paces: Sequence[Pace]) -> None:
    names = [str(pace) for pace in paces]
    if len(set(names)) < len(names):
        raise UsageError(
            f"load: a pace is named twice ({', '.join(names)}): its Cells could not be told apart"
        )
    most, count = max((p.concurrency or 1 for p in paces), default=1), sweep.workload.prompts_per_class
    if most > 1 and count < 2 * most:
        raise UsageError(
            f"load: closed({most}) is never steady with {count} prompts of a class:"
            f" set workload.prompts_per_class to {2 * most} or more"
        )
    if sweep.objective == "tokens_per_s" and any(p.concurrency is None for p in paces):
        raise UsageError(
            "objective: in an open loop (poisson, replay) the pace decides tokens_per_s:"
            " choose ttft_p50_s, tpot_p50_s or end_to_end_p50_s"
        )

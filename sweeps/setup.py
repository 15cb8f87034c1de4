"""What all arms of a run share: engine, model, prompts, paces, and where records go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from analysis.accuracy import Reference, prompt_key
from launchers.engines.engine import Engine, Served
from launchers.engines.http import headers_for
from launchers.group import Group, GroupLauncher
from launchers.launcher import Endpoint, Launcher
from launchers.place import Places, on_this_machine
from results.records import KnobValue, Phase
from results.store import RunFolder
from sweeps.arrival import NcclCheck
from sweeps.load import Job, Target, job
from sweeps.sweep import Sweep
from sweeps.windows import Window
from sweeps.workload import Prompt, prompt_set_hash


@dataclass(frozen=True)
class Setup:
    """All that both arms of every Block share."""

    sweep: Sweep
    engine: Engine
    launcher: Launcher
    served: Served
    folder: RunFolder
    windows: Mapping[Phase, Sequence[Window]]  # the Cells of one arm-run, in order
    warm_up: Sequence[Prompt]  # one of each class and context, none of them measured if there are enough
    places: Places = on_this_machine  # where the servers run
    group: Group | None = None  # the nodes that each of them runs over; None = one

    def over(self, group: Group) -> "Setup":
        """The same for servers that run over these nodes."""
        return replace(self, group=group, launcher=GroupLauncher(self.launcher, group.members))

    @cached_property
    def nccl(self) -> NcclCheck:
        """Asks NCCL about each set of variables once in a run."""
        return NcclCheck(self.engine, self.served)

    def references(self, phase: Phase) -> dict[str, Reference]:
        """Of the prompts that have one, by class and id."""
        return {
            prompt_key(p.workload_class, p.id): p.reference
            for window in self.windows[phase]
            for p in window.prompts
            if p.reference is not None
        }

    def prompt_set(self, phase: Phase) -> str:
        """Hash of the prompts of a phase."""
        return prompt_set_hash([p for window in self.windows[phase] for p in window.prompts])

    @property
    def sampling(self) -> Mapping[str, KnobValue]:
        """The sampling fields of every request: never changed for one arm alone."""
        workload = self.sweep.workload
        return {"temperature": workload.temperature, "seed": self.sweep.seed, **workload.sampling}

    def job(self, prompt: Prompt, max_tokens: int) -> Job:
        """The request body of a prompt, the same for both arms."""
        workload = self.sweep.workload
        return job(
            prompt,
            model=str(self.served.model),
            max_tokens=max_tokens,
            sampling=self.sampling,
            extra=self.engine.request_fields(fixed_length=workload.lengths == "fixed"),
            chat=workload.endpoint == "chat",
        )

    def target(self, endpoint: Endpoint) -> Target:
        """Where the load goes, with the key that the server asks for."""
        path = "/v1/chat/completions" if self.sweep.workload.endpoint == "chat" else "/v1/completions"
        return Target(endpoint.base_url, path, headers_for(endpoint.base_url))

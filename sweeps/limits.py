"""Limits and the goodput of a sweep file: how they are written, and what of them this machine can tell."""

from collections.abc import Mapping, Sequence

from analysis.block import ENERGY
from analysis.goodput import GOODPUT
from analysis.limits import GPU_MEMORY, JOULES, OF_THE_HARDWARE, POWER, SERVER_MEMORY
from launchers.attach import is_on_this_machine
from launchers.nvml import driver, tells_energy, tells_memory
from results.errors import UsageError
from results.records import Phase
from sweeps.sweep import Sweep
from sweeps.windows import Window

FEW_REQUESTS = 20  # of a Cell: with fewer, one of them moves its goodput by more than 5 %


def check_measurable(sweep: Sweep) -> None:
    """Raises UsageError for an objective or a limit whose figure this machine does not tell."""
    if sweep.objective == ENERGY and not tells_energy():
        _refuse(
            f"objective: {ENERGY}",
            "GPUs that tell their energy or power",
            "choose tokens_per_s, goodput_per_s, ttft_p50_s, tpot_p50_s or end_to_end_p50_s",
        )
    for name in sweep.limits:
        if name in OF_THE_HARDWARE and sweep.url and not is_on_this_machine(sweep.url):
            raise UsageError(
                f"limits.{name}: {sweep.url} is on another machine, whose hardware is not seen from here:"
                " leave this limit out"
            )
        if name in (JOULES, POWER) and not tells_energy():
            _refuse(f"limits.{name}", "GPUs that tell their energy or power", "leave this limit out")
        if name == GPU_MEMORY and not tells_memory():
            other = f"leave this limit out, or limit {SERVER_MEMORY}, which is the host's"
            _refuse(f"limits.{name}", "GPUs that tell their memory", other)


def _refuse(what: str, needed: str, remedy: str) -> None:
    found = driver()
    seen = f"the driver does not tell it of {found.devices[0].name}" if found.devices else "there is no GPU"
    why = f" ({found.absent})" if found.absent else ""
    raise UsageError(f"{what} needs {needed}, and {seen}{why}: {remedy}")


def goodput_notes(sweep: Sweep, windows: Mapping[Phase, Sequence[Window]]) -> list[str]:
    """What to know of a goodput that is the objective: it is a count."""
    fewest = min(len(window.prompts) for of_phase in windows.values() for window in of_phase)
    if sweep.objective != GOODPUT or fewest >= FEW_REQUESTS:
        return []
    return [
        f"goodput_per_s is a count, and a Cell has {fewest} requests: one more or less within its limits is"
        f" {1 / fewest:.0%}; raise workload.prompts_per_class for a finer answer"
    ]

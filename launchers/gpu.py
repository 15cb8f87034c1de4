"""The GPUs of a server during one window: sampled beside the load, with counters read at both ends."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from launchers.gpu_choice import Shown, choose, mismatch, visible_gpus
from launchers.gpu_processes import GpuProcesses, are_of_this_namespace
from launchers.gpu_watch import GpuWatch
from launchers.nvml import Device, Refusal, driver
from results.records import GpuSample, GpuTelemetry

RATE_HZ = 10.0
LOOK_PERIOD_S = 5.0  # processes, errors, shared memory: dearer than a figure


class GpuWindow:
    """Watches the GPUs of one server from `__enter__` to `__exit__`; without a driver or a GPU, nothing.

    `pids` names the server's processes (`Endpoint.pids`), `environment` is what it was started with, `cell`
    what the samples are marked with. Which GPUs are the server's is found out when the window is made, so
    that entering it takes little of what it measures.
    """

    def __init__(
        self,
        pids: Callable[[], Sequence[int]],
        environment: Mapping[str, str],
        cell: str = "",
        rate_hz: float = RATE_HZ,
        container: Sequence[str] | None = None,
    ) -> None:
        self._devices = driver().devices
        self._processes = GpuProcesses(pids if self._devices else tuple)
        shown = self._shown()
        self._visible = visible_gpus(shown, environment, container)
        pids_are_ours = are_of_this_namespace(frozenset(pid for gpu in shown for pid in gpu.pids))
        server = self._processes.server
        self._choice = choose(shown, server, self._visible, pids_are_ours=pids_are_ours)
        self._watches = [GpuWatch(d, cell) for d in self._devices if d.uuid in self._choice.uuids]
        self._period_s = 1 / rate_hz
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._gpus: tuple[GpuTelemetry, ...] = ()
        self._mismatch = ""

    def __enter__(self) -> Self:
        if self._watches:
            self._look()
            for watch in self._watches:
                watch.begin()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._watches:
            return
        self._stop.set()
        for watch in self._watches:  # before all else: the load has just ended
            watch.end()
        self._thread.join()
        for watch in self._watches:
            watch.sample()
        self._look()
        self._conclude()
        for watch in self._watches:
            watch.close()

    @property
    def gpus(self) -> tuple[GpuTelemetry, ...]:
        """What was seen; after the window has been left."""
        return self._gpus

    @property
    def mismatch(self) -> str:
        """Why these may be the wrong GPUs; "" = nothing says so."""
        return self._mismatch

    @property
    def samples(self) -> list[GpuSample]:
        """Every sample of `gpus`, in the order of time."""
        every = [s for watch in self._watches for s in watch.samples] if self._gpus else []
        return sorted(every, key=lambda sample: sample.sampled_at)

    def last(self, seconds: float) -> tuple[GpuTelemetry, ...]:
        """The GPUs over the end of the window alone, by its samples."""
        return tuple(watch.last(seconds) for watch in self._watches) if self._gpus else ()

    def _watch(self) -> None:
        self._look_at_pcie()
        look_due_s = time.monotonic() + LOOK_PERIOD_S
        while not self._stop.wait(self._period_s):
            for watch in self._watches:
                watch.sample()
            if time.monotonic() >= look_due_s:
                look_due_s = time.monotonic() + LOOK_PERIOD_S
                self._look()
                self._look_at_pcie()

    def _look(self) -> None:
        for watch in self._watches:
            watch.look()
            refusal = self._processes.look(watch.device)
            if refusal is not None:
                watch.refuse("processes", refusal)

    def _look_at_pcie(self) -> None:
        """Never at the ends of a window, since it waits."""
        for watch in self._watches:
            if not self._stop.is_set():
                watch.look_at_pcie()

    def _conclude(self) -> None:
        gpus = tuple(w.telemetry(self._processes.on(w.device)) for w in self._watches)
        used = {gpu.uuid: gpu.utilisation for gpu in gpus}
        idle = all(share == 0 for share in used.values())
        if idle and not self._choice.seen and not self._visible.named:
            return  # nothing says that this server uses a GPU
        wall_s = max(watch.wall_s for watch in self._watches)
        server, shown = self._processes.server, self._shown()
        self._mismatch = self._choice.mismatch or mismatch(list(used), shown, server, used, wall_s)
        self._gpus = gpus

    def _shown(self) -> list[Shown]:
        return [_shown(device) for device in self._devices]


def shown_gpus() -> list[Shown]:
    """The GPUs of this machine; [] without a driver."""
    return [_shown(device) for device in driver().devices]


def _shown(device: Device) -> Shown:
    processes = device.processes()
    pids = frozenset() if isinstance(processes, Refusal) else frozenset(processes)
    return Shown(device.index, device.uuid, device.name, pids, device.mig_uuids())

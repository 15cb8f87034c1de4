"""The host during one window: whose CPU time it was, pressure, and the server's memory."""

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from results.environment import usable_cores
from results.records import Telemetry

PERIOD_S = 0.2
PIDS_PERIOD_S = 5.0  # finding children reads all of /proc: seldom enough to cost nothing
PRESSURE = Path("/proc/pressure")


class HostWindow:
    """Watches the host from `__enter__` to `__exit__` with a thread that samples five times a second.

    `pids` names the server's processes (`Endpoint.pids`); with none, the server's share and with it
    the foreign share are unknown. `beside` names those of another server of this run that is measured at
    the same time: they are neither the server's nor foreign. What the system does not tell (PSI, steal)
    is None.
    """

    def __init__(
        self,
        pids: Callable[[], Sequence[int]],
        period_s: float = PERIOD_S,
        beside: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self._pids, self._beside = pids, beside
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._processes: dict[int, _ServerProcess] = {}
        self._others: dict[int, _ServerProcess] = {}
        self._peak_bytes = 0
        self._pids_due_s = 0.0
        self._telemetry: Telemetry | None = None

    def __enter__(self) -> Self:
        self._begin = _Host()
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._pids_due_s = 0.0
        self._sample()
        self._telemetry = self._summary(_Host())

    @property
    def telemetry(self) -> Telemetry:
        """What was seen; only after the window has been left."""
        assert self._telemetry is not None, "the window is still open"
        return self._telemetry

    def _watch(self) -> None:
        while not self._stop.wait(self._period_s):
            self._sample()

    def _sample(self) -> None:
        if time.monotonic() >= self._pids_due_s:
            self._pids_due_s = time.monotonic() + PIDS_PERIOD_S
            self._find_processes()
        memory = [process.sample() for process in self._processes.values()]
        self._peak_bytes = max(self._peak_bytes, sum(memory))
        for process in self._others.values():
            process.sample()

    def _find_processes(self) -> None:
        for known, pids in ((self._processes, self._pids()), (self._others, self._beside())):
            for pid in pids:
                if pid not in known:
                    with suppress(psutil.Error):
                        known[pid] = _ServerProcess(pid)

    def _summary(self, end: "_Host") -> Telemetry:
        begin, wall_s = self._begin, end.at_s - self._begin.at_s
        client_s = end.client_s - begin.client_s
        server_s = sum(p.used_s for p in self._processes.values()) if self._processes else None
        others_s = sum(p.used_s for p in self._others.values())
        ours_s = client_s + others_s + (server_s or 0.0)
        foreign_s = None if server_s is None else max(0.0, end.busy_s - begin.busy_s - ours_s)
        return Telemetry(
            wall_s=wall_s,
            server_cores=_rate(server_s, 0.0, wall_s),
            client_cores=client_s / wall_s,
            foreign_cores=_rate(foreign_s, 0.0, wall_s),
            stolen_cores=_rate(end.stolen_s, begin.stolen_s, wall_s),
            cpu_pressure=_rate(end.cpu_pressure_s, begin.cpu_pressure_s, wall_s),
            memory_pressure=_rate(end.memory_pressure_s, begin.memory_pressure_s, wall_s),
            server_memory_bytes=self._peak_bytes or None,
            frequency_hz=_frequency_hz(),
            cores=usable_cores() or os.cpu_count() or 1,
        )


class _Host:
    """Cumulative seconds of the host and of this process at one moment."""

    def __init__(self) -> None:
        self.at_s = time.monotonic()
        self.client_s = time.process_time()
        cpu = psutil.cpu_times()
        parts = ("user", "nice", "system", "irq", "softirq")
        self.busy_s = sum(float(getattr(cpu, part, 0.0)) for part in parts)
        self.stolen_s: float | None = getattr(cpu, "steal", None)
        self.cpu_pressure_s = pressure_s("cpu")
        self.memory_pressure_s = pressure_s("memory")


class _ServerProcess:
    """CPU time of one process of the server since it was first seen; stays after its end."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._first_s = self._cpu_s()
        self.used_s = 0.0

    def sample(self) -> int:
        """Resident bytes now; 0 if the process is gone."""
        try:
            self.used_s = self._cpu_s() - self._first_s
            return int(self._process.memory_info().rss)
        except psutil.Error:
            return 0

    def _cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def pressure_s(resource: str, folder: Path = PRESSURE) -> float | None:
    """Seconds since boot in which some task waited for `cpu` or `memory`; None without PSI."""
    try:
        text = (folder / resource).read_text("ascii")
    except OSError:
        return None
    match = re.search(r"^some .*total=(\d+)", text, re.MULTILINE)
    return int(match[1]) / 1e6 if match else None


def _rate(end: float | None, begin: float | None, wall_s: float) -> float | None:
    return None if end is None or begin is None else (end - begin) / wall_s


def _frequency_hz() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        return None
    return frequency.current * 1e6 if frequency and frequency.current else None

"""The load client: sends Jobs at a Pace, reads their streams, gives one Request for each.

Errors are data: whatever the server does ends up in `Request.error`.
"""

import asyncio
import gc
import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvloop

from results.errors import UsageError
from results.records import Request
from sweeps.connections import Pool, Target, clock
from sweeps.exchange import Exchange, Job
from sweeps.pace import Pace
from sweeps.workload import Prompt

__all__ = ["Job", "LoadResult", "Target", "drive", "job"]

_SPARE_FILES = 64  # descriptors the rest of the process may need
_LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one window of load gave."""

    # In the order they were sent. No repr: asyncio builds one of whatever a task returns.
    requests: tuple[Request, ...] = field(repr=False)
    wall_s: float
    client_cpu_s: float  # of the thread that drove the load, system time included
    stopped_early: bool  # on_request or the deadline ended it; what was in flight is left out
    stalled: bool  # no token on any stream for the stall timeout


def job(
    prompt: Prompt,
    *,
    model: str,
    max_tokens: int,
    sampling: Mapping[str, object],
    extra: Mapping[str, object],
    chat: bool,
) -> Job:
    """The Job that asks for one Prompt, streamed and with usage. `extra` are fields beside OpenAI's."""
    if prompt.messages and not chat:
        raise UsageError(f"prompt {prompt.id} has chat messages: it cannot go to the completions endpoint")
    messages = prompt.messages or ({"role": "user", "content": prompt.text},)
    body = {
        **extra,
        **sampling,
        "model": model,
        **({"messages": messages} if chat else {"prompt": prompt.text}),
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return Job(prompt.id, prompt.workload_class, msgspec.json.encode(body))


def drive(
    target: Target,
    jobs: Sequence[Job],
    pace: Pace,
    *,
    stall_timeout_s: float = 60.0,
    deadline_s: float | None = None,
    on_request: Callable[[Request], bool] | None = None,
) -> LoadResult:
    """Send every Job at the Pace and wait for the answers.

    `on_request` gets each Request as it ends; False stops the load. So does the end of `deadline_s`
    seconds. What is in flight then is dropped and is not in the result. If no stream brings a token
    for `stall_timeout_s`, every open request is ended with an error and the load is over.
    """
    # Twice: in a duet another thread drives a load like this one.
    _allow_open_files(2 * (pace.concurrency or len(jobs)) + _SPARE_FILES)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, _quick_collections():
        return runner.run(_drive(target, jobs, pace, stall_timeout_s, deadline_s, on_request))


async def _drive(
    target: Target,
    jobs: Sequence[Job],
    pace: Pace,
    stall_timeout_s: float,
    deadline_s: float | None,
    on_request: Callable[[Request], bool] | None,
) -> LoadResult:
    load = _Load(target, jobs, pace, stall_timeout_s, deadline_s, on_request)
    cpu_s = time.thread_time()
    try:
        await load.run()
    finally:
        load.close()
    return load.result(time.thread_time() - cpu_s)


class _Load:
    """One window of load. Everything runs in the loop's thread; sockets wake `run` when a request ends."""

    def __init__(
        self,
        target: Target,
        jobs: Sequence[Job],
        pace: Pace,
        stall_timeout_s: float,
        deadline_s: float | None,
        on_request: Callable[[Request], bool] | None,
    ) -> None:
        self._target, self._jobs, self._pace = target, jobs, pace
        self._stall_timeout_s = stall_timeout_s
        self._on_request = on_request
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._note_defect)
        self._woken = self._loop.create_future()
        self._defect: BaseException | None = None
        self._pool = Pool(target, self._wake)
        self._requests: list[Request] = []
        self._sent = 0
        self._stopped_early = self._stalled = False
        self._origin_s = self._progress_s = clock()
        self._stall_s = self._origin_s + stall_timeout_s  # not before this time
        self._deadline_s = math.inf if deadline_s is None else self._origin_s + deadline_s

    async def run(self) -> None:
        while self._deliver():
            next_send_s = self._send_next()
            if next_send_s == math.inf and not self._pool.open:
                return
            if clock() >= self._deadline_s:
                self._stopped_early = True
                return
            if not await self._end_if_stalled():
                await self._wait_until(min(next_send_s, self._deadline_s, self._stall_s))

    def close(self) -> None:
        self._pool.close()

    def result(self, client_cpu_s: float) -> LoadResult:
        return LoadResult(
            requests=tuple(sorted(self._requests, key=lambda r: r.sent_s)),
            wall_s=clock() - self._origin_s,
            client_cpu_s=client_cpu_s,
            stopped_early=self._stopped_early,
            stalled=self._stalled,
        )

    def _deliver(self) -> bool:
        """Hand out the requests that have ended; whether to go on."""
        while self._pool.ended and not self._stopped_early:
            exchange = self._pool.ended.popleft()
            self._progress_s = max(self._progress_s, exchange.last_text_s)
            request = exchange.request(self._origin_s, self._target.without_secrets)
            self._requests.append(request)
            self._stopped_early = self._on_request is not None and not self._on_request(request)
        return not (self._stopped_early or self._stalled)

    def _send_next(self) -> float:
        """Send one request if one is due; when to look again (inf = after an end).

        One at a time, so that reads come in between.
        """
        if self._sent == len(self._jobs):
            return math.inf
        next_s = self._pace.next_s(self._sent, len(self._pool.open))
        if next_s is None:
            return math.inf
        now_s, due_s = clock(), self._origin_s + next_s
        if due_s > now_s:
            return due_s
        if not self._pool.open:
            self._progress_s = now_s  # a stall is counted from here
        scheduled_s = due_s if self._pace.concurrency is None else now_s
        self._pool.send(Exchange(self._jobs[self._sent], scheduled_s, now_s))
        self._sent += 1
        return now_s

    async def _end_if_stalled(self) -> bool:
        """End every open request if none had a token for the stall timeout."""
        if clock() < self._stall_s:
            return False
        await asyncio.sleep(0)  # if it was this process that slept, what came meanwhile is read first
        self._pool.drain()
        last_s = max((exchange.last_text_s for exchange in self._pool.open), default=clock())
        self._stall_s = max(self._progress_s, last_s) + self._stall_timeout_s
        self._stalled = clock() >= self._stall_s
        if self._stalled:
            self._pool.fail_open(f"stalled: no token for {self._stall_timeout_s:g} s")
        return self._stalled

    async def _wait_until(self, at_s: float) -> None:
        """Wait for this time or for the end of a request, whichever comes first."""
        wait_s = at_s - clock()
        if wait_s <= 0:
            await asyncio.sleep(0)
            return
        timer = self._loop.call_later(min(wait_s, _LONGEST_WAIT_S), self._wake)
        await self._woken
        timer.cancel()
        self._woken = self._loop.create_future()
        if self._defect is not None:
            raise self._defect

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    def _note_defect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception in a callback of the loop is a defect of ours: `run` raises it."""
        self._defect = context.get("exception") or RuntimeError(context["message"])
        self._wake()


@contextmanager
def _quick_collections() -> Iterator[None]:
    """Keep the garbage collector from walking what existed before: that would take tens of milliseconds."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _allow_open_files(count: int) -> None:
    """Raise the soft limit on open files to `count` if the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

"""Speed of the load client: a bare asyncio protocol, a naive aiohttp client and ours, in turn, on one server.

python -m bench.client [--streams 256 --rate 50 --seconds 5 --rounds 3]
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import aiohttp
import uvloop

from sweeps.calibrate import lateness_s
from sweeps.canned import canned_server
from sweeps.load import Job, Target, drive
from sweeps.pace import Closed

PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Round:
    """What one client saw of one window of load."""

    chunks: int
    cpu_s: float
    late_s: Sequence[float]  # sorted; empty if the client keeps no times


class Bare(asyncio.Protocol):
    """The least a client can do: count the reads, keep nothing."""

    def __init__(self, request: bytes, ended: Callable[[int], None]) -> None:
        self._request, self._ended, self._reads = request, ended, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._reads += 1
        if data.endswith(b"0\r\n\r\n"):
            self._ended(self._reads)


async def _bare(url: str, body: bytes, streams: int) -> None:
    loop, address = asyncio.get_running_loop(), urlsplit(url)
    over, left = loop.create_future(), streams

    def ended(reads: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set_result(None)

    request = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
        PATH.encode(),
        len(body),
        body,
    )
    for _ in range(streams):
        await loop.create_connection(lambda: Bare(request, ended), str(address.hostname), address.port or 80)
    await over


def bare(url: str, body: bytes, streams: int, chunks: int) -> Round:
    cpu_s = time.thread_time()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_bare(url, body, streams))
        return Round(streams * chunks, time.thread_time() - cpu_s, [])


async def _naive(url: str, body: bytes, streams: int) -> list[tuple[float, str]]:
    seen: list[tuple[float, str]] = []

    async def stream(session: aiohttp.ClientSession) -> None:
        async with session.post(url + PATH, data=body) as response:
            async for line in response.content:
                at_s = time.monotonic()
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:])["choices"]
                    texts = (choice["delta"].get("content") for choice in choices)
                    seen.extend((at_s, text) for text in texts if text)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(stream(session) for _ in range(streams)))
    return seen


def naive_aiohttp(url: str, body: bytes, streams: int, chunks: int) -> Round:
    cpu_s = time.thread_time()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(_naive(url, body, streams))
        cpu_s = time.thread_time() - cpu_s
    return Round(len(seen), cpu_s, sorted(at_s - float(text) for at_s, text in seen))


def ours(url: str, body: bytes, streams: int, chunks: int) -> Round:
    jobs = [Job(str(number), "bench", body) for number in range(streams)]
    result = drive(Target(url, PATH), jobs, Closed(streams))
    failed = [request.error for request in result.requests if request.error]
    if failed:
        raise SystemExit(f"{len(failed)} requests failed, the first: {failed[0]}")
    seen = sum(len(request.chunk_s) for request in result.requests)
    return Round(seen, result.client_cpu_s, lateness_s(result.requests))


CLIENTS = {"bare protocol": bare, "naive aiohttp": naive_aiohttp, "tuner": ours}


def row(name: str, rounds: Sequence[Round], bare_rate: float, sent: int) -> str:
    rate = statistics.median(r.chunks / r.cpu_s for r in rounds)
    late = [
        statistics.median(r.late_s[int(share * (len(r.late_s) - 1))] - r.late_s[0] for r in rounds) * 1000
        for share in (0.5, 0.99, 1.0)
        if rounds[0].late_s
    ]
    times = "".join(f"{ms:>10.2f}" for ms in late)
    seen = min(r.chunks for r in rounds) / sent
    return f"{name:<16}{rate:>16,.0f}{rate / bare_rate:>10.2f}{seen:>10.2%}{times}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rate", type=float, default=50.0, help="chunks per second of one stream")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    chunks = int(options.rate * options.seconds)
    body = json.dumps({"max_tokens": chunks, "chunks_per_s": options.rate}).encode()
    rounds: dict[str, list[Round]] = {name: [] for name in CLIENTS}
    with canned_server() as url:
        for _ in range(options.rounds):
            for name, client in CLIENTS.items():
                rounds[name].append(client(url, body, options.streams, chunks))
    bare_rate = statistics.median(r.chunks / r.cpu_s for r in rounds["bare protocol"])
    print(
        f"{options.streams} streams, {options.rate:g} chunks/s each, {options.seconds:g} s, median of rounds"
    )
    print(f"{'client':<16}{'chunks/CPU s':>16}{'of bare':>10}{'seen':>10}  late ms: p50       p99       max")
    for name, taken in rounds.items():
        print(row(name, taken, bare_rate, options.streams * chunks))


if __name__ == "__main__":
    main()

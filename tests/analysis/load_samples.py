"""Raw records of a load for the pages of tests: requests in flight, GPU samples, and the end of a log."""

import math
import random
from collections.abc import Sequence

from analysis.timeline import Recorded, Timeline, timeline
from results.records import ArmRun, GpuSample, Measurement, Request

LOG = "".join(f"llama_model_load: loading tensor blk.{i}.attn_q.weight\n" for i in range(60)) + (
    "load_model: loading draft model '/models/draft.gguf' with --api-key sk-not-a-real-key-0000000000\n"
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 3221.00 MiB on device 0\n"
    "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory\n"
    "llama_init_from_model: failed to initialize the context\n"
    "srv    load_model: failed to load draft model, '/models/draft.gguf'\n"
)


def over_time(block: int, arms: Sequence[tuple[str, ArmRun]], *, gpus: int = 2) -> Timeline | None:
    recorded = [_recorded(name, run, seed, gpus) for seed, (name, run) in enumerate(arms)]
    return timeline(block, recorded)


def _recorded(name: str, run: ArmRun, seed: int, gpus: int) -> Recorded:
    chance, requests, samples, begin_at = random.Random(seed), list[Request](), list[GpuSample](), 1.8e9
    for measurement in run.measurements:
        sent = _requests(measurement, chance)
        requests += sent
        wall_s = max(r.ended_s for r in sent)
        samples += [
            _sample(measurement.cell.label, begin_at + 0.2 * i, gpu, chance, dip=seed == 0 and i % 60 > 52)
            for i in range(int(wall_s / 0.2))
            for gpu in range(gpus)
        ]
        begin_at += wall_s + 4
    return Recorded(name, run, requests, samples)


def _requests(measurement: Measurement, chance: random.Random) -> list[Request]:
    """As many as were counted, four at a time, at about the speed that was measured."""
    speed = (measurement.tokens_per_s or 1.0) / 4
    tokens, lanes, found = 256, [0.0] * 4, list[Request]()
    for i in range(measurement.requests):
        lane = min(range(4), key=lanes.__getitem__)
        begin_s = lanes[lane]
        took_s = tokens / speed * chance.uniform(0.85, 1.15)
        chunks = [begin_s + 0.2 + took_s * (k + 1) / 40 for k in range(40)]
        lanes[lane] = chunks[-1] + 0.02
        found.append(
            Request(
                f"p{i}",
                measurement.cell.workload_class,
                begin_s,
                begin_s,
                chunks[0],
                chunks,
                chunks[-1],
                100,
                tokens,
                "length",
                None,
            )
        )
    return found


def _sample(cell: str, at: float, gpu: int, chance: random.Random, *, dip: bool) -> GpuSample:
    power = (190 if dip else 320) + 15 * math.sin(at / 7) + chance.gauss(0, 6)
    clock = 1.71e9 if dip else 2.52e9
    held = ("sw_power_cap",) if dip else ()
    return GpuSample(cell, at, f"GPU-{gpu}", 0.72 if dip else 0.97, 2**34, power, clock, 1e10, 66.0, held)

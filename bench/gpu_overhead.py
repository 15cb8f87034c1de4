"""What watching GPUs costs: CPU time of a GpuWindow beside a process that does nothing else.

python -m bench.gpu_overhead [--gpus 8 --rate 10 --seconds 10]

The driver is the scripted C library of the tests under the real pynvml, so this is the cost of our code and
of pynvml; what NVIDIA's own driver takes for an answer comes on top (`python -m bench.gpu` on a real card).
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from launchers.gpu import GpuWindow
from tests.nvml import SERVER, gpu, scripted

LIMIT = 0.01  # of one core


def _cores(seconds: float) -> float:
    """CPU seconds of this process for each second of sleep."""
    began_s, cpu_s = time.monotonic(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - cpu_s) / (time.monotonic() - began_s)


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU time of watching GPUs, as a share of one core.")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    cards = [gpu(uuid=f"GPU-{i:04d}") for i in range(asked.gpus)]
    with tempfile.TemporaryDirectory() as folder, scripted(Path(folder), *cards):
        idle = _cores(asked.seconds)
        made_s = time.process_time()
        window = GpuWindow(lambda: (SERVER,), {}, rate_hz=asked.rate)
        with window:
            entered_s = time.process_time()
            watched = _cores(asked.seconds)
            left_s = time.process_time()
        ended_s = time.process_time()
    share = max(0.0, watched - idle)
    samples = len(window.samples)
    opening_s, closing_s = entered_s - made_s, ended_s - left_s
    print(f"{asked.gpus} scripted GPUs at {asked.rate:g} Hz for {asked.seconds:g} s: {samples} samples")
    print(f"watching: {share:.2%} of one core (this process idle: {idle:.2%})")
    print(f"once a window: {1000 * opening_s:.1f} ms to open, {1000 * closing_s:.1f} ms to close")
    return 0 if share < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())

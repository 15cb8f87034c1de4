"""GPU telemetry on a real card: beside matrix products of torch, then beside nothing.

python -m bench.gpu [--seconds 10 --python PYTHON]

`--python` is the Python that has torch with CUDA (default: this one). Without a card it says so and ends
with 0; without torch it watches the card idle.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from launchers.gpu import GpuWindow
from launchers.gpu_choice import pinned
from launchers.gpu_summary import mean_power_w
from launchers.nvml import driver, installed_gpus
from results.records import GpuSample, GpuTelemetry

WORK = """
import sys, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print(torch.cuda.get_device_name(0), "torch", torch.__version__, flush=True)
while True:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
"""


@contextmanager
def _products(python: str) -> Iterator[subprocess.Popen[str] | None]:
    """A process that multiplies matrices on the first GPU; None if its Python cannot."""
    command = [python, "-c", WORK]
    work = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert work.stdout is not None and work.stderr is not None
    try:
        ready = work.stdout.readline().strip()
        if ready:
            print(f"\nbeside matrix products of 8192 x 8192 in bfloat16 on {ready}")
            yield work
        else:
            print(f"\nno matrix products: {(work.stderr.read().strip().splitlines() or ['?'])[-1]}")
            yield None
    finally:
        work.kill()
        work.wait()


def _watch(seconds: float, pids: Sequence[int], environment: Mapping[str, str]) -> None:
    window = GpuWindow(lambda: pids, environment)
    with window:
        cpu_s = time.process_time()
        time.sleep(seconds)
        share = (time.process_time() - cpu_s) / seconds
    for gpu in window.gpus:
        _show(gpu, [sample for sample in window.samples if sample.uuid == gpu.uuid], seconds)
    if not window.gpus:
        print("  no GPU was at work")
    print(f"  watching took {share:.2%} of one core; mismatch: {window.mismatch or 'none'}")


def _show(gpu: GpuTelemetry, samples: Sequence[GpuSample], seconds: float) -> None:
    print(f"  {gpu.name} {gpu.uuid}: {gpu.samples} samples in {seconds:g} s")
    for field in GpuTelemetry.__dataclass_fields__:
        if field not in ("uuid", "name", "samples"):
            print(f"    {field:24} {getattr(gpu, field)}")
    power_w = mean_power_w(samples)
    if power_w is not None:
        print(f"    {'power integrated':24} {power_w * seconds:.1f} J, to compare with energy_j")


def main() -> int:
    parser = argparse.ArgumentParser(description="GPU telemetry beside torch on a real card.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and CUDA")
    asked = parser.parse_args()
    if not driver().devices:
        print(f"no GPU here ({driver().absent or 'the driver shows none'}): nothing to measure")
        return 0
    found = installed_gpus()
    print(f"driver {found.driver}, CUDA {found.cuda}")
    for gpu in found.devices:
        print(f"  {gpu}")
    with _products(asked.python) as work:
        if work is not None:
            _watch(asked.seconds, [work.pid], {})
    print("\nbeside nothing: idle on purpose, so the mismatch is right")
    _watch(asked.seconds, [], pinned([gpu.uuid for gpu in found.devices]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

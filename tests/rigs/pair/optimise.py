"""Muon for the matrices inside the layers, AdamW for the rest; a short warm-up, then down to nothing."""

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from tests.rigs.pair.model import Weights

WARM_UP_STEPS = 20
_REPORT_EVERY = 50


def minimise(weights: Weights, loss_of_step: Callable[[int], Tensor], steps: int) -> None:
    """Trains the floating-point weights in place; loss_of_step(step) is a scalar on that step's batch."""
    trained = {name: w.requires_grad_() for name, w in weights.items() if w.is_floating_point()}
    matrices = [w for name, w in trained.items() if _proj(name)]
    rest = [w for name, w in trained.items() if not _proj(name)]
    optimisers = [
        torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.05),
        torch.optim.AdamW(rest, lr=4e-3, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: _share(step, steps)) for o in optimisers]
    began = time.monotonic()
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of_step(step)
        loss.backward()
        for each in (*optimisers, *schedules):
            each.step()
        for optimiser in optimisers:
            optimiser.zero_grad()
        if step % _REPORT_EVERY == 0 or step == steps - 1:
            sys.stderr.write(f"  step {step}: loss {loss.item():.3f}, {time.monotonic() - began:.0f} s\n")
    for weight in trained.values():
        weight.requires_grad_(False)


def _proj(name: str) -> bool:
    return "proj" in name or name == "fc.weight"


def _share(step: int, steps: int) -> float:
    return min((step + 1) / WARM_UP_STEPS, (steps - step) / steps)

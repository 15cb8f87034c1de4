"""What SGLang needs to serve on any x86-64 CPU: loaded by the .pth file and the entry point beside it."""

import sys
from importlib.abc import MetaPathFinder
from types import ModuleType

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

_kept: list[object] = []  # definitions vanish with the library object that made them


def repair_torchvision() -> None:
    """torchvision's operators do not load beside a CPU build of torch, yet its import needs their schemas.

    They are defined when torchvision is first imported, not at once: importing torch takes seconds.
    """
    if not any(isinstance(finder, _BeforeTorchvision) for finder in sys.meta_path):  # a venv reads .pth twice
        sys.meta_path.insert(0, _BeforeTorchvision())


class _BeforeTorchvision(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            _define_schemas()


def _define_schemas() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    _kept.append(library)
    for schema in SCHEMAS:
        library.define(schema)


def keep_intel_amx_backend() -> None:
    """A plugin of SGLang. Its only CPU attention backend that verifies drafts is `intel_amx`, which it drops
    on a CPU without AMX; `sgl_kernel` beside this file does that backend's work on any CPU."""
    from sglang.srt.runtime_context import override_platform

    override_platform(has_amx=True).install()

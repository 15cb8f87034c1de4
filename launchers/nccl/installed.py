"""Run in the Python of a server: tells the release of NCCL that its torch uses, without a GPU.

One line of JSON for each line on stdin, see `launchers.engines.probe`.
"""

import json
import sys

for _ in sys.stdin:
    try:
        from torch.cuda import nccl

        release = ".".join(map(str, nccl.version()))
    except (ImportError, AttributeError, RuntimeError, OSError):  # no torch, or built without NCCL
        release = ""
    sys.stdout.write(json.dumps({"release": release}) + "\n")
    sys.stdout.flush()

"""A rank above 0 of the stand-in over several nodes: `python -S -E fake_rank.py RANK NODES HOST:PORT`.

It computes nothing, and dies if its variable FAKE_RANK_<RANK>_DIES_AFTER_S says so. Standard library only.
"""

import os
import signal
import sys
import time


def main() -> None:
    rank, nodes, meeting = sys.argv[1:]
    tell(f"fake rank {rank} of {nodes}, rank 0 is at {meeting}")
    after_s = os.environ.get(f"FAKE_RANK_{rank}_DIES_AFTER_S")
    if after_s is None:
        signal.pause()
    time.sleep(float(after_s or 0))
    tell(f"fatal: rank {rank} dies as it was told")
    os.kill(os.getpid(), signal.SIGKILL)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

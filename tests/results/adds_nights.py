"""A process that adds nights of one machine: `python -m tests.results.adds_nights HISTORY NAME COUNT`.

It writes the id of each to its output once it is recorded.
"""

import sys
from dataclasses import replace

from results.history import open_history
from tests.recorded_nights import typical

if __name__ == "__main__":
    where, name, count = sys.argv[1:]
    history = open_history(where)
    for number in range(int(count)):
        history.add(replace(typical(number), id=f"{name} {number}"))
        print(f"{name} {number}", flush=True)

"""vLLM, deployed; and its draft lengths by batch size.

Read from vLLM 0.32.0, `v1/spec_decode/dynamic/utils.py` and `v1/core/sched/scheduler.py`: the batch is all
requests of a step, prefills too; a length is cut to num_speculative_tokens; the last one holds for every
larger batch; with data parallelism the whole schedule is dropped with a warning.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from launchers.engines.deploy import Argv, Deployment, Size, value_of, with_flag
from launchers.engines.vllm.config import FLAG
from launchers.engines.vllm.group import of_rank
from launchers.engines.vllm.rules import KEY_OF
from launchers.engines.vllm.schedule import Step, as_json
from results.errors import UsageError
from results.records import Point

LENGTH, SCHEDULE = "num_speculative_tokens", "tokens_per_batch_size"


def models_of(argv: Argv) -> list[str]:
    """Model and drafter."""
    after_serve = argv[argv.index("serve") + 1] if "serve" in argv[:4] else None
    draft = _config(argv).get("model")
    return [str(name) for name in (after_serve, value_of(argv, "--model"), draft) if name is not None]


def _config(argv: Argv) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(value_of(argv, FLAG) or "{}")
    return config


class Schedule:
    """`num_speculative_tokens_per_batch_size`, inside of --speculative-config."""

    form = "vllm-schedule"

    def entry_of(self, point: Point) -> tuple[Point, int] | None:
        if point.is_baseline or SCHEDULE in point.knobs or LENGTH not in point.knobs:
            return None
        rest = {knob: value for knob, value in point.knobs.items() if knob != LENGTH}
        return Point(point.method, rest), int(point.knobs[LENGTH])

    def why_not(self, method: str) -> str:
        return f"{method} was measured with {SCHEDULE} only: measure it with single draft lengths"

    def config(self, sizes: Sequence[Size]) -> Mapping[str, object] | None:
        return None

    def command(self, argv: Argv, sizes: Sequence[Size], file: str) -> Argv:
        if int(value_of(argv, "--data-parallel-size") or 1) > 1:
            raise UsageError("vLLM ignores a schedule with data parallelism: export it --as command")
        most = int(value_of(argv, "--max-num-seqs") or 1)
        steps = [Step(size.first, size.last, size.tokens) for size in sizes]
        config = {
            **_config(argv),
            LENGTH: max(size.tokens for size in sizes),
            KEY_OF[SCHEDULE]: as_json(steps, most),
        }
        return with_flag(argv, FLAG, json.dumps(config))


DEPLOYMENT = Deployment(
    8000,
    models_of,
    of_rank=of_rank,
    for_measuring=frozenset({"VLLM_SERVER_DEV_MODE"}),
    by_size=(Schedule(),),
)

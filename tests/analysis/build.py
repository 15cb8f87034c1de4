"""Short ways to write records in tests."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from results.records import (
    BASELINE,
    Acceptance,
    AcceptanceState,
    ArmRun,
    Block,
    Cell,
    Measurement,
    Phase,
    Point,
    Request,
    Telemetry,
)

CHAT = Cell("chat", "closed(1)")
CODE = Cell("code", "closed(1)")
FAST = Point("eagle3", {"num_steps": 3})
SLOW = Point("ngram", {"size_n": 4})
UNKNOWN = Acceptance(AcceptanceState.UNKNOWN)


def request(
    prompt_id: str = "p",
    start: float = 0.0,
    end: float = 1.0,
    *,
    tokens: int | None = 10,
    chunks: Sequence[float] | None = None,
    text: str = "some text",
    **other: Any,
) -> Request:
    """A request sent when scheduled; without `chunks`, two arrive: halfway and at the end."""
    times = ((start + end) / 2, end) if chunks is None else tuple(chunks)
    fields: dict[str, Any] = {
        "workload_class": "chat",
        "scheduled_s": start,
        "sent_s": start,
        "first_byte_s": start,
        "prompt_tokens": 5,
        "finish_reason": "stop",
        "error": None,
    }
    return Request(
        prompt_id=prompt_id,
        chunk_s=times,
        ended_s=end,
        output_tokens=tokens,
        text=text,
        **{**fields, **other},
    )


def measurement(cell: Cell = CHAT, tokens_per_s: float | None = 100.0, **other: Any) -> Measurement:
    fields: dict[str, Any] = {
        "requests": 2,
        "failed": 0,
        "first_error": None,
        "output_tokens": 200,
        "wall_s": 2.0,
        "mean_request_tokens_per_s": tokens_per_s,
        "ttft_s": None,
        "tpot_s": None,
        "chunk_gap_s": None,
        "end_to_end_s": None,
        "concurrency": 1.0,
        "empty_share": 0.0,
        "truncated_share": 0.0,
        "degenerate_share": 0.0,
        "tokens_by_prompt": {"a": 100, "b": 100},
        "acceptance": UNKNOWN,
        "telemetry": Telemetry(2.0),
    }
    return Measurement(cell=cell, tokens_per_s=tokens_per_s, **{**fields, **other})


def arm(point: Point, *measurements: Measurement, **other: Any) -> ArmRun:
    fields: dict[str, Any] = {
        "argv": (),
        "start_s": 1.0,
        "warm_up_s": 1.0,
        "measured_s": 2.0,
        "effective": {},
    }
    return ArmRun(point=point, measurements=measurements, **{**fields, **other})


def block(number: int, *candidates: tuple[Point, Mapping[Cell, float]], **other: Any) -> Block:
    """A confirmation Block in which each Point shows the log ratios given, by Cell."""
    cells = list(dict.fromkeys(c for _, by_cell in candidates for c in by_cell))
    arms = [arm(BASELINE, *(measurement(c) for c in cells))]
    for point, by_cell in candidates:
        arms.append(arm(point, *(measurement(c, 100 * math.exp(d)) for c, d in by_cell.items())))
    fields: dict[str, Any] = {"phase": Phase.CONFIRM, "arms": tuple(arms)}
    return Block(number, started_at=0.0, ended_at=1.0, prompt_set="x", **{**fields, **other})

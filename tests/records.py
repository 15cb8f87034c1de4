"""Records for tests: complete, with only what a test names changed."""

from collections.abc import Mapping, Sequence

from results.records import (
    BASELINE,
    Acceptance,
    AcceptanceState,
    ArmRun,
    Block,
    Cell,
    Failure,
    Measurement,
    Phase,
    Point,
    Quantiles,
    Request,
    Telemetry,
    Trial,
    TrialState,
)

CELL = Cell("code_edit", "closed(1)")
LATENCY = Quantiles(0.01, 0.02, 0.03)


def request(prompt_id: str = "p1", **changes: object) -> Request:
    figures: dict[str, object] = {
        "prompt_id": prompt_id,
        "workload_class": "code_edit",
        "scheduled_s": 0.0,
        "sent_s": 0.0,
        "first_byte_s": 0.1,
        "chunk_s": [0.1, 0.2, 0.3],
        "ended_s": 0.3,
        "prompt_tokens": 5,
        "output_tokens": 3,
        "finish_reason": "length",
        "error": None,
        "text": "one two three",
        "text_channels": ("content",),
    }
    return Request(**{**figures, **changes})  # type: ignore[arg-type]


def measurement(tokens_per_s: float | None = 100.0, cell: Cell = CELL) -> Measurement:
    return Measurement(
        cell=cell,
        requests=4,
        failed=0,
        first_error=None,
        output_tokens=256,
        wall_s=2.56,
        tokens_per_s=tokens_per_s,
        mean_request_tokens_per_s=tokens_per_s,
        ttft_s=LATENCY,
        tpot_s=LATENCY,
        chunk_gap_s=LATENCY,
        end_to_end_s=LATENCY,
        concurrency=1.0,
        empty_share=0.0,
        truncated_share=1.0,
        degenerate_share=0.0,
        tokens_by_prompt={"p1": 64},
        acceptance=Acceptance(AcceptanceState.UNKNOWN),
        telemetry=Telemetry(2.56),
    )


def arm(point: Point, speeds: Mapping[Cell, float], failure: Failure | None = None) -> ArmRun:
    return ArmRun(
        point=point,
        argv=("server", "--method", point.method, "--port", "8080"),
        start_s=0.5,
        warm_up_s=0.1,
        measured_s=2.56,
        effective={},
        measurements=tuple(measurement(speed, cell) for cell, speed in speeds.items()),
        failure=failure,
    )


def block(
    number: int,
    phase: Phase,
    arms: Sequence[ArmRun],
    invalid: Failure | None = None,
) -> Block:
    return Block(
        number=number,
        phase=phase,
        started_at=1000.0 + number,
        ended_at=1001.0 + number,
        prompt_set="hash",
        arms=tuple(arms),
        invalid=invalid,
    )


def baseline_arm(speed: float = 100.0) -> ArmRun:
    return arm(BASELINE, {CELL: speed})


def trial(number: int, point: Point, log_speedup: float | None, **changes: object) -> Trial:
    state = TrialState.FAILED if log_speedup is None else TrialState.MEASURED
    figures: dict[str, object] = {
        "number": number,
        "point": point,
        "source": "sampler",
        "state": state,
        "log_speedup": log_speedup,
        "by_cell": {},
        "blocks": (number,),
    }
    return Trial(**{**figures, **changes})  # type: ignore[arg-type]

"""Made histories of the gate: `python -m tests.analysis.nightly.trends FOLDER` writes their pages."""

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from analysis.nightly import trend
from analysis.nightly.course import Trend
from results.nights import BASELINE, LENGTH, POSITION, SPEED_UP, Accepted, Night, NightKind, NightVerdict
from results.reasons import Reason
from results.records import Failure

DAY_S = 86400
LAST = datetime(2026, 11, 30, 2, 10, tzinfo=UTC).timestamp()
CELLS = tuple(
    f"{name} @ closed({n})"
    for name in ("chat", "code_edit", "code_writing", "extraction", "summary")
    for n in (1, 8)
)
LEVELS = {SPEED_UP: 1.6, BASELINE: 94.0, LENGTH: 3.41, "winner_tokens_per_s": 150.0, "identical_share": 0.97}
SEGMENT = {"gpu": "NVIDIA H100 80GB", "driver": "570.86", "prompts": "sha256:77ab01"}
VERSIONS = {"engine": "0.5.10", "image": "sha256:5f2c9ad01b7e"}


def nights(
    count: int,
    series: Mapping[str, float] = LEVELS,
    *,
    noise: float = 0.01,
    machine: str = "gpu-box-1",
    seed: int = 1,
    kind: NightKind = NightKind.CHECK,
) -> list[Night]:
    """Quiet ones, one a day, the last on 2026-11-30."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        at = LAST - (count - 1 - i) * DAY_S + rng.uniform(-900, 900)
        values = {name: level * (1 + rng.gauss(0, noise)) for name, level in series.items()}
        values = {name: min(v, 1.0) if "at_" in name or "share" in name else v for name, v in values.items()}
        verdict = NightVerdict.PASS if i >= 14 else NightVerdict.INSUFFICIENT
        said = ("All series are within their bounds.",) if i >= 14 else (f"{i} of 14 nights are known.",)
        made.append(
            Night(
                f"{machine}-{kind}-{i:03}",
                "qwen3-eagle3",
                kind,
                machine,
                at,
                at + 1500,
                SEGMENT,
                VERSIONS,
                {"winner num_steps": "3"},
                5,
                values,
                verdict=verdict,
                said=said,
            )
        )
    return made


def every_series() -> dict[str, float]:
    """40 of them: 3 overall, 3 for each of 10 Cells, 4 positions, 3 that are told."""
    found = {SPEED_UP: 1.6, BASELINE: 94.0, LENGTH: 3.41}
    for kind, level in ((SPEED_UP, 1.6), (BASELINE, 94.0), (LENGTH, 3.41)):
        found |= {f"{kind}/{cell}": level * (0.8 + 0.05 * i) for i, cell in enumerate(CELLS)}
    found |= {f"{POSITION}{i}": 0.9 * 0.85**i for i in range(1, 5)}
    return found | {"identical_share": 0.97, "winner_start_s": 62.0, "winner_memory_bytes": 41e9}


def out(night: Night, loss: float, *series: str, again: bool) -> Night:
    """A night with a breach of some series; `again`: the rerun is out too."""
    values = dict(night.values) | {name: night.values[name] * (1 - loss) for name in series}
    rerun = {
        name: values[name] * 1.004 if name in series and again else v for name, v in night.values.items()
    }
    said = (
        ("Speed-up 12 % below its bound, twice. The engine changed from 0.5.10 to 0.5.12.",)
        if again
        else ("Speed-up was below its bound; measured again at once it was not.",)
    )
    return replace(
        night,
        values=values,
        again=rerun,
        breached=series,
        alarms=series if again else (),
        verdict=NightVerdict.REGRESSION if again else NightVerdict.PASS,
        said=said,
    )


def lost(night: Night) -> Night:
    return replace(
        night,
        values={},
        blocks=0,
        verdict=NightVerdict.INVALID,
        failure=Failure(Reason.SERVER_DIED, "CUDA error: an illegal memory access was encountered"),
        said=("The server of the winner died in every Block.",),
    )


def one_regression() -> tuple[list[Night], list[Accepted]]:
    made = nights(20)
    made[17] = out(made[17], 0.06, SPEED_UP, again=False)
    made[19] = out(made[19], 0.12, SPEED_UP, again=True)
    newer = {**VERSIONS, "engine": "0.5.12"}
    made[18:] = [replace(night, versions=newer) for night in made[18:]]
    return made, []


def two_segments() -> tuple[list[Night], list[Accepted]]:
    made = nights(100, noise=0.012)
    newer = {**SEGMENT, "driver": "580.65"}
    made[40:] = [replace(night, segment=newer) for night in made[40:]]
    for i, version in ((22, "0.5.11"), (61, "0.5.12"), (75, "0.5.13")):
        made[i:] = [replace(n, versions={**n.versions, "engine": version}) for n in made[i:]]
    made[70:] = [_at_level(night, 0.93) for night in made[70:]]
    for i in (18, 33, 66, 90):
        made[i] = out(made[i], 0.07, SPEED_UP, again=False)
    made[50] = out(made[50], 0.6, SPEED_UP, again=False)
    for i in (12, 45, 46, 83):
        made[i] = lost(made[i])
    made[60] = replace(made[60], verdict=NightVerdict.CONFIG_DRIFT, said=("n_max was 16, is 3.",))
    made[95] = out(made[95], 0.08, SPEED_UP, again=True)
    reason = "the new engine checks grammar masks; slower, and we want it"
    return made, [Accepted(made[70].began_at, SPEED_UP, reason)]


def _at_level(night: Night, factor: float) -> Night:
    return replace(night, values={**night.values, SPEED_UP: night.values[SPEED_UP] * factor})


def four_hundred() -> tuple[list[Night], list[Accepted]]:
    made = nights(400, every_series(), noise=0.012)
    for i in range(0, 400, 9):
        version = f"0.5.{10 + i // 9}"
        made[i:] = [replace(n, versions={**n.versions, "engine": version}) for n in made[i:]]
    for i, driver in ((130, "580.65"), (220, "580.82"), (310, "590.11")):
        made[i:] = [replace(n, segment={**n.segment, "driver": driver}) for n in made[i:]]
    for i in range(25, 399, 23):
        made[i] = out(made[i], 0.06, SPEED_UP, f"{SPEED_UP}/{CELLS[i % 10]}", again=False)
    for i in range(31, 399, 37):
        made[i] = lost(made[i])
    moved = (f"{SPEED_UP}/{CELLS[2]}", f"{LENGTH}/{CELLS[2]}", f"{POSITION}3")
    made[398:] = [out(night, 0.15, *moved, again=True) for night in made[398:]]
    return made, []


def few() -> tuple[list[Night], list[Accepted]]:
    return nights(3), []


def two_machines() -> tuple[list[Night], list[Accepted]]:
    first, _ = one_regression()
    aa = [
        replace(n, values={SPEED_UP: n.values[SPEED_UP] / 1.6}, said=())
        for n in nights(16, kind=NightKind.AA, seed=4)[::3]
    ]
    return [*first, *nights(34, machine="gpu-box-2", seed=3), *aa], []


SAMPLES: Mapping[str, Callable[[], tuple[list[Night], list[Accepted]]]] = {
    "regression": one_regression,
    "segments": two_segments,
    "many": four_hundred,
    "few": few,
    "machines": two_machines,
}


def sample(name: str) -> Trend:
    made, accepted = SAMPLES[name]()
    return Trend(made, accepted)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or SAMPLES:
        shown = sample(name)
        (folder / f"{name}.html").write_text(trend.html(shown), encoding="utf-8")
        (folder / f"{name}.md").write_text(trend.markdown(shown), encoding="utf-8")

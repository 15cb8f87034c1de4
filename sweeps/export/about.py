"""What an exported file says of itself: the answer, what it holds for, and with what it was measured."""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from analysis.signs import banner
from analysis.words import signed_percent
from results.records import ArmRun
from sweeps.export.choice import Choice, Why

TITLES = {Why.WINNER: "The winner", Why.BASELINE: "The baseline", Why.NAMED: "A configuration"}


def about(choice: Choice) -> tuple[str, ...]:
    """Lines for the head of a file, each without a line break and without a secret."""
    return tuple(" ".join(line.split()).rstrip("\\") for line in _lines(choice) if line)


def _lines(choice: Choice) -> Iterator[str]:
    report = choice.report
    yield f"{TITLES[choice.why]} of the run {report.name}: {choice.point.label}"
    yield choice.note if choice.note else report.headline
    yield from _cautions(choice)
    if choice.verdict is not None:
        by_class = [
            f"{name} {signed_percent(e.log_ratio)} ({signed_percent(e.low)} to {signed_percent(e.high)})"
            for name, e in sorted(choice.verdict.by_class.items())
        ]
        yield f"By class: {', '.join(by_class)}" if by_class else ""
        verb = "Holds for" if choice.is_confirmed else "Measured in"
        yield f"{verb} {', '.join(choice.verdict.cells)}. Nothing is claimed beyond."
    yield f"Measured with {', '.join(f'{k} {v}' for k, v in measured_with(choice).items())}."
    yield f"Exported by tuner {version('tuner')}."


def _cautions(choice: Choice) -> Iterator[str]:
    """What to beware of in this run and this configuration; not where another one gains or loses."""
    verdicts, own = choice.report.verdicts, choice.verdict
    signs = {line for verdict in verdicts for line in banner(verdict).splitlines()}
    yield from (line for line in (choice.report.banner or "").splitlines() if line not in signs)
    yield from banner(own).splitlines() if own is not None and own.point.key == choice.point.key else ()


def measured_with(choice: Choice) -> Mapping[str, str]:
    """Engine, and what was served by content."""
    served = served_of(choice)
    return {
        "engine": engine_version(choice),
        **{name.removesuffix("_sha256"): str(value)[:16] for name, value in served.items()},
    }


def engine_version(choice: Choice) -> str:
    """Of a comparison, that of the side."""
    host: Any = choice.report.environment.get("host", {})
    told = str(host.get("engine") or choice.sweep.engine)
    name = choice.point.name
    of_side = (part.removeprefix(f"{name}: ") for part in told.split("; ") if part.startswith(f"{name}: "))
    return next(of_side, told) if name else told


def served_of(choice: Choice) -> Mapping[str, str]:
    """Hashes of model and drafter."""
    served: Any = choice.report.environment.get("served", {})
    found: Mapping[str, str] = served.get(choice.point.name, {}) if choice.point.name else served
    return found


def last_run(choice: Choice) -> ArmRun | None:
    """The last launch of it that was measured."""
    runs = (b.arm(choice.point) for b in reversed(choice.report.blocks))
    return next((run for run in runs if run is not None and run.measurements), None)


def gpus_used(run: ArmRun | None) -> int:
    """GPUs that the server was on."""
    measured = run.measurements if run else ()
    return max((len(m.telemetry.gpus) for m in measured), default=0)

"""From what the command line says to whom the doctor examines, and how far."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from analysis.wiring.expectation import expectation
from launchers.containers.image import Told, silent
from results.errors import UsageError
from results.wiring import Diagnosis, Outcome, Step
from sweeps.doctor.examination import COMPUTING, Asked
from sweeps.doctor.fitting import check_dump
from sweeps.doctor.loaders import open_dump
from sweeps.doctor.patient import Patient, from_folders, from_sweep
from sweeps.doctor.verify import Verified
from sweeps.sweep import load_sweep

UNDECIDED = 4


def patient_of(
    file: Path | None,
    overrides: Sequence[str],
    point: str,
    folders: tuple[str | None, str | None],
    engine: tuple[str, str, str | None],
    told: Told = silent,
) -> Patient:
    """From a sweep file, or from (target, draft) folders and (engine, version, method). Raises UsageError."""
    if file is not None:
        if any(folders):
            raise UsageError("--target and --draft are for folders without a sweep file: it names its own")
        return from_sweep(load_sweep(file, overrides), point, told)
    target, draft = folders
    if target is None or draft is None:
        raise UsageError(
            "name a sweep file that starts the server, or two folders: --target FOLDER --draft FOLDER"
        )
    return from_folders(target, draft, *engine)


def asked_of(
    patient: Patient, steps: Sequence[Step], dump: Path | None, expected: float | None, sequences: int
) -> Asked:
    """Raises UsageError for a dump that cannot be read, or steps that have nothing to look at."""
    layers = patient.drafting.target.whole("num_hidden_layers") if patient.drafting is not None else None
    wanted = frozenset(steps or Step)
    has_states = dump is not None or patient.plan is not None
    lacking = missing_packages() if wanted & COMPUTING and has_states else ""
    if lacking and wanted <= COMPUTING | {Step.CONCLUSION}:
        raise UsageError(lacking)
    opened = open_dump(dump.expanduser(), layers=layers) if dump is not None and not lacking else None
    if opened is not None and wanted & COMPUTING and patient.drafting is not None:
        check_dump(opened, patient.drafting.target)
    return Asked(
        steps=wanted,
        dump=opened,
        expected=expectation(expected) if expected is not None else None,
        sequences=sequences,
        lacking=lacking,
    )


def missing_packages() -> str:
    """What the steps that compute with states lack; "" if nothing. All others do without."""
    for name in ("torch", "safetensors"):
        try:
            import_module(name)
        except ImportError as error:
            remedy = "pip install -e '.[wiring]' in the folder of tuner"
            return f"states cannot be looked at without {name} ({error}): {remedy}"
    return ""


def json_of(diagnosis: Diagnosis, verified: Verified | None) -> str:
    """For other programs: sections and conclusion, and what became of the change if it was verified."""
    import msgspec

    told = {**asdict(diagnosis), "verified": None}
    if verified is not None:
        told["verified"] = {
            "as_it_is": asdict(verified.as_it_is),
            "changed": asdict(verified.changed),
            "restores": verified.restores,
            "not_compared": verified.not_compared,
        }
    return msgspec.json.format(msgspec.json.encode(told)).decode()


def exit_code(diagnosis: Diagnosis) -> int:
    """0, or 4 if a conclusion was asked for and nothing is decided."""
    conclusion = diagnosis.conclusion
    return UNDECIDED if conclusion is not None and conclusion.outcome is Outcome.UNDECIDED else 0

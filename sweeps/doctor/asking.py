"""From what the command line says to whom the doctor examines, and how far."""

from collections.abc import Sequence
from pathlib import Path

from analysis.wiring.expectation import expectation
from launchers.containers.image import Told, silent
from results.errors import UsageError
from results.wiring import Diagnosis, Outcome, Step
from sweeps.doctor.examination import Asked
from sweeps.doctor.loaders import open_dump
from sweeps.doctor.patient import Patient, from_folders, from_sweep
from sweeps.sweep import load_sweep

UNDECIDED = 4
USUAL_METHOD = {"sglang": "EAGLE3", "vllm": "eagle3"}  # llama.cpp's own default is none


def patient_of(
    file: Path | None,
    overrides: Sequence[str],
    point: str,
    folders: tuple[Path | None, Path | None],
    engine: tuple[str, str, str],
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
    name, version, method = engine
    return from_folders(target, draft, name, version, method or USUAL_METHOD.get(name, ""))


def asked_of(
    patient: Patient, steps: Sequence[Step], dump: Path | None, expected: float | None, sequences: int
) -> Asked:
    """Raises UsageError for a dump that cannot be read, or steps that have nothing to look at."""
    layers = patient.drafting.target.whole("num_hidden_layers") if patient.drafting is not None else None
    return Asked(
        steps=frozenset(steps or Step),
        dump=open_dump(dump, layers=layers) if dump is not None else None,
        expected=expectation(expected) if expected is not None else None,
        sequences=sequences,
    )


def exit_code(diagnosis: Diagnosis) -> int:
    """0, or 4 if a conclusion was asked for and nothing is decided."""
    conclusion = diagnosis.conclusion
    return UNDECIDED if conclusion is not None and conclusion.outcome is Outcome.UNDECIDED else 0

"""Step 3 of the doctor: the wiring as folders, engine, version and flags give it. Nothing is started."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.wiring.rules_config import rope_findings, verifier_findings, vocabulary_findings
from analysis.wiring.rules_layers import layer_findings
from analysis.wiring.rules_maps import map_findings
from analysis.wiring.rules_weights import embedding_findings, lm_head_findings
from analysis.wiring.trainers import hypotheses
from launchers.engines.wiring import Drafting, EngineWiring, version_of, wiring_of
from results.head_config import Head, HeadKind
from results.wiring import (
    Finding,
    Hypothesis,
    Reading,
    Section,
    Severity,
    Step,
    boundary_names,
)
from sweeps.doctor.samples import sample

CHECKED = (
    "the method against the kind of drafter",
    "layers read against those of the training, and the fusion layer's width",
    "d2t and t2d, lm_head, embedding",
    "norms, rotations, positions, quantisation",
    "names of tensors, vocabularies, the model it was trained for",
    "flags known to break what the drafter is given",
)


@dataclass(frozen=True, slots=True)
class StaticWiring:
    section: Section
    served: Reading | None  # how the engine runs the head, by its sources; None if that cannot be told
    trained: tuple[Hypothesis, ...]  # how it may have been trained, likeliest first


def examine(drafting: Drafting) -> StaticWiring:
    """All that folders and flags tell. Raises UsageError for an engine that is not known."""
    wiring = wiring_of(drafting.engine)
    served = wiring.reading(drafting) if drafting.attached else None
    trained = hypotheses(drafting.head, drafting.target)
    findings = sorted(_findings(drafting, wiring, served, trained), key=_gravest_first)
    section = Section(
        Step.WIRING,
        CHECKED,
        tuple(_seen(drafting, served, trained)),
        tuple(_follows(findings, drafting, served)),
        tuple(findings),
    )
    return StaticWiring(section, served, trained)


def _gravest_first(finding: Finding) -> int:
    return list(Severity).index(finding.severity)


def _findings(
    drafting: Drafting, wiring: EngineWiring, served: Reading | None, trained: Sequence[Hypothesis]
) -> Iterator[Finding]:
    head, target = drafting.head, drafting.target
    yield from wiring.findings(drafting)
    samples = sample(head, target)
    if head.folder != target.folder:
        yield from vocabulary_findings(head, target, samples)
        yield from verifier_findings(head, target)
    if served is None:
        return
    layers = target.whole("num_hidden_layers") or 0
    yield from layer_findings(served, trained, layers, lambda wanted: wiring.fix_for(drafting, wanted))
    yield from map_findings(head, target, served, samples)
    yield from lm_head_findings(head, samples)
    yield from embedding_findings(head, served, samples)
    yield from rope_findings(head, target)


def _seen(drafting: Drafting, served: Reading | None, trained: Sequence[Hypothesis]) -> Iterator[str]:
    layers = drafting.target.whole("num_hidden_layers")
    kind = Head(drafting.head).kind
    yield f"{drafting.head.folder.name}: {kind.value}, {len(drafting.head.tensors)} tensors"
    architecture = drafting.target.architecture or "no architecture named"
    yield f"target: {layers or 'an unknown number of'} layers, {architecture}"
    for checkpoint in (drafting.head, drafting.target):
        if checkpoint.unread:
            some, name = ", ".join(checkpoint.unread[:3]), checkpoint.folder.name
            whose = "" if some == name else f" of {name}"
            yield f"not looked into, so what hangs on it is skipped: {some}{whose}"
    if served is not None and layers:
        release = f"{drafting.engine} {drafting.version}".strip()
        if not version_of(drafting.version):
            release += " (no version is told: as the newest that is known)"
        yield f"{release} reads {boundary_names(served.boundaries, layers)}"
        for one in trained:
            names = boundary_names(one.reading.boundaries, layers)
            yield f"perhaps trained on {names} by {one.trainer}: {one.because}"
    elif kind is HeadKind.EAGLE3 and not layers:
        yield "the target's config names no num_hidden_layers: layers cannot be compared"


def _follows(findings: Sequence[Finding], drafting: Drafting, served: Reading | None) -> Iterator[str]:
    grave = [f for f in findings if f.severity is not Severity.INFO]
    for finding in grave:
        what = "cannot work" if finding.severity is Severity.FATAL else "is likely wrong"
        cure = f": {finding.fix.words}" if finding.fix else ""
        yield f"{finding.cause.value}: {what}{cure}"
    if not grave:
        all_read = served is not None and not drafting.head.unread and not drafting.target.unread
        yield f"nothing is wrong {'by' if all_read else 'in what could be read of'} folders and flags"

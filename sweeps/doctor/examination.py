"""The doctor's steps, in their order of evidence: what is cheap and certain first, conclusions last."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from analysis.wiring.chain import Prediction
from analysis.wiring.conclusion import Evidence, conclude, fits
from analysis.wiring.expectation import Expectation
from analysis.wiring.match import ServedWiring
from analysis.wiring.observed import Observed
from analysis.wiring.replies import Reply
from analysis.wiring.sanity import Readout
from analysis.wiring.trained import Trained
from analysis.wiring.variants import changed, variants
from analysis.wiring.vocabulary import Pair
from launchers.engines.wiring import wiring_of
from results.errors import MeasurementInvalid, UsageError
from results.head_config import Head
from results.hidden_states import AnyDump
from results.records import SpecCounters
from results.store import RunFolder
from results.wiring import Diagnosis, Finding, Reading, Section, Step, boundary_names
from sweeps.doctor import definitions, state
from sweeps.doctor import served as seen
from sweeps.doctor import static as folders
from sweeps.doctor import trained as replayed
from sweeps.doctor.capture import SEQUENCES, Captured, capture, usual_prompts
from sweeps.doctor.patient import Patient
from sweeps.doctor.replay import beside_counted, open_pair

if TYPE_CHECKING:
    from torch import Tensor

NEEDS_SERVER = "it needs a sweep file that starts the server, or --dump FOLDER with what was captured before"
ALL_KEPT = 18  # boundaries: 62 of a hidden size of 7168 are 0.9 MB a token
COMPUTING = frozenset({Step.CAPTURE, Step.SERVED, Step.TRAINED})  # with states: these need torch
NEEDS_DRAFTER = "no drafter with a folder of its own is named"


@dataclass(frozen=True, slots=True)
class Asked:
    """What of the examination is wanted."""

    steps: Collection[Step] = frozenset(Step)
    dump: AnyDump | None = None  # in place of a capture
    expected: Expectation | None = None
    sequences: int = SEQUENCES
    lacking: str = ""  # packages that the computing steps need


@dataclass
class _Chart:
    """What has been found out so far."""

    sections: dict[Step, Section] = field(default_factory=dict)
    static: folders.StaticWiring | None = None
    captured: Captured | None = None
    dump: AnyDump | None = None
    ended: str = ""
    served: ServedWiring | None = None
    trained: Trained | None = None

    @property
    def counted(self) -> SpecCounters | None:
        return self.captured.counted if self.captured is not None else None


def examine(patient: Patient, folder: RunFolder, asked: Asked, told: Callable[[str], None]) -> Diagnosis:
    """All that is asked for; what an input is missing for is skipped and says so. Raises UsageError."""
    chart = _Chart(dump=asked.dump)
    steps: dict[Step, Callable[[], Section]] = {
        Step.STATE: lambda: state.section([folder.path]),
        Step.WIRING: lambda: _wiring(patient, chart),
        Step.CAPTURE: lambda: _capture(patient, folder, asked, chart, told),
        Step.DEFINITIONS: lambda: definitions.section(_observed(patient, asked, chart)),
        Step.SERVED: lambda: _served(patient, chart),
        Step.TRAINED: lambda: _trained(patient, chart, told),
    }
    for step, examined in steps.items():
        if step in asked.steps:
            skipped = asked.lacking if step in COMPUTING else ""
            chart.sections[step] = Section(step, skipped=skipped) if skipped else examined()
    conclusion = None
    if Step.CONCLUSION in asked.steps and patient.drafting is not None:
        conclusion = conclude(_evidence(patient, chart))
    return Diagnosis(tuple(chart.sections[s] for s in Step if s in chart.sections), conclusion)


def _wiring(patient: Patient, chart: _Chart) -> Section:
    if patient.drafting is None:
        return Section(Step.WIRING, skipped=NEEDS_DRAFTER)
    chart.static = folders.examine(patient.drafting)
    return chart.static.section


def _capture(
    patient: Patient, folder: RunFolder, asked: Asked, chart: _Chart, told: Callable[[str], None]
) -> Section:
    if asked.dump is not None:
        return Section(Step.CAPTURE, seen=tuple(_dump_lines(asked.dump)))
    if patient.plan is None:
        return Section(Step.CAPTURE, skipped=NEEDS_SERVER)
    setup = patient.plan.setup(folder)
    prompts = usual_prompts(setup, asked.sequences)
    told(f"starting {patient.plan.engine.version()} with a probe inside, for {len(prompts)} prompts")
    try:
        into = folder.path / "doctor" / "dump"
        boundaries = _kept(patient, chart)
        chart.captured = capture(setup, patient.point, prompts, into, boundaries=boundaries)
    except UsageError as error:
        return Section(Step.CAPTURE, skipped=str(error))
    except MeasurementInvalid as error:
        chart.ended = str(error)
        return Section(Step.CAPTURE, checked=(patient.point.label,), seen=(f"the server failed: {error}",))
    chart.dump = chart.captured.dump
    return Section(
        Step.CAPTURE,
        checked=(f"{patient.plan.engine.version()}, {patient.point.label}, greedy, one request at a time",),
        seen=(*_dump_lines(chart.dump), *chart.captured.notes),
        follows=("the server has been ended; a server of yours goes on as it was",),
    )


def _kept(patient: Patient, chart: _Chart) -> Collection[int] | None:
    """Boundaries to capture; None = all. Of a deep target those that may be meant, and their neighbours."""
    layers = patient.drafting.target.whole("num_hidden_layers") if patient.drafting is not None else None
    if layers is None or layers + 2 <= ALL_KEPT or chart.static is None:
        return None
    readings = [h.reading for h in chart.static.trained]
    readings += [chart.static.served] if chart.static.served is not None else []
    meant = {b + near for reading in readings for b in reading.boundaries for near in (-1, 0, 1)}
    return sorted({b for b in meant if 0 <= b <= layers} | {0, layers, layers + 1}) if meant else None


def _dump_lines(dump: AnyDump) -> Iterator[str]:
    first = next(iter(dump), None)
    if first is None:
        yield f"{dump.folder} holds no sequences"
        return
    rows = sum(len(sequence.token_ids) for sequence in dump)
    yield f"{len(dump)} sequences, {rows} tokens, in {dump.folder}"
    given = "nothing of what the drafter was given"
    if first.served_aux is not None:
        given = f"what the drafter was given, {first.served_aux.shape[-1]} numbers a token"
    elif first.served_fc is not None:
        given = "the output of the drafter's fusion layer"
    yield f"states {boundary_names(sorted(first.states), dump.header.layers)}; {given}"
    yield from dump.header.notes


def _observed(patient: Patient, asked: Asked, chart: _Chart) -> Observed:
    plan, captured = patient.plan, chart.captured
    return Observed(
        replies=_replies(captured.texts if captured is not None else (), chart.dump),
        counters=chart.counted,
        shape=plan.engine.draft_shape(plan.engine.canonical(patient.point)) if plan is not None else None,
        temperature=chart.dump.header.temperature if chart.dump is not None else None,
        expected=asked.expected,
    )


def _replies(texts: Sequence[str], dump: AnyDump | None) -> Sequence[Reply]:
    """Each with what was accepted of its own drafts, where the dump tells."""
    drafts = dump.header.drafts_per_round if dump is not None else 0
    found = []
    for text, sequence in zip_longest(texts, dump if dump is not None else ()):
        rounds = Prediction(drafts, tuple(sequence.accepted)) if sequence is not None and drafts else None
        counts = _counters(rounds) if rounds is not None and rounds.counts else None
        prompt_tokens = sequence.prompt_tokens if sequence is not None else None
        found.append(Reply(text or "", counts, prompt_tokens, rounds.counts if rounds is not None else ()))
    return found


def _counters(rounds: Prediction) -> SpecCounters:
    count = len(rounds.counts)
    return SpecCounters(count, count * rounds.drafts, sum(rounds.counts), rounds.by_position)


def _served(patient: Patient, chart: _Chart) -> Section:
    if chart.dump is None:
        return Section(Step.SERVED, skipped=_no_dump(chart))
    expected = chart.static.served if chart.static is not None else None
    pair = _pair(patient)
    if pair is None:
        section, chart.served = seen.section(chart.dump, None, expected)
        return section
    section, chart.served = seen.section(
        chart.dump,
        pair.head.slots(pair.target.hidden) if pair.head.has("fc.weight") else None,
        expected,
        fc_weight=_plain_fc(pair, expected),
        readout=Readout(pair.target.lm_head, pair.target.norm, pair.target.eps),
    )
    return section


def _pair(patient: Patient) -> Pair | None:
    """None without weights that can be computed with: less can be told then."""
    if patient.drafting is None:
        return None
    try:
        return open_pair(patient.drafting.target, patient.drafting.head)
    except UsageError:
        return None


def _plain_fc(pair: Pair, expected: Reading | None) -> "Tensor | None":
    """The fusion layer's weights, unless a norm stands before it."""
    normed = expected is not None and (expected.norm_before_fc or expected.fc_norm)
    return None if normed or not pair.head.has("fc.weight") else pair.head.tensor("fc.weight")


def _trained(patient: Patient, chart: _Chart, told: Callable[[str], None]) -> Section:
    if chart.dump is None:
        return Section(Step.TRAINED, skipped=_no_dump(chart))
    if patient.drafting is None:
        return Section(Step.TRAINED, skipped=NEEDS_DRAFTER)
    told("replaying the head in every way it may have been trained")
    hypotheses = chart.static.trained if chart.static is not None else ()
    reading = _evidence_without_replay(patient, chart).reading
    drafting = patient.drafting
    section, chart.trained = replayed.section(chart.dump, drafting.target, drafting.head, reading, hypotheses)
    return section


def _no_dump(chart: _Chart) -> str:
    section = chart.sections.get(Step.CAPTURE)
    return f"nothing was captured: {chart.ended or (section.skipped if section else '') or NEEDS_SERVER}"


def _evidence_without_replay(patient: Patient, chart: _Chart) -> Evidence:
    drafting = patient.drafting
    assert drafting is not None
    return Evidence(
        layers=drafting.target.whole("num_hidden_layers") or 0,
        head=Head(drafting.head),
        findings=tuple(_findings(chart)),
        expected=chart.static.served if chart.static is not None else None,
        ended=chart.ended,
        served=chart.served,
        trained=chart.trained,
        counters=chart.counted,
        fix_for=lambda wanted: wiring_of(drafting.engine).fix_for(drafting, wanted),
    )


def _findings(chart: _Chart) -> Sequence[Finding]:
    return [f for step in Step if step in chart.sections for f in chart.sections[step].findings]


def _evidence(patient: Patient, chart: _Chart) -> Evidence:
    """With what a replay predicts, where there is one and the answers were greedy."""
    evidence = _evidence_without_replay(patient, chart)
    dump, reading = chart.dump, evidence.reading
    if chart.trained is None or dump is None or reading is None:
        return evidence
    pair = _pair(patient)
    if pair is None:
        return evidence
    drafts = dump.header.drafts_per_round
    if not drafts or dump.header.temperature != 0:
        return evidence
    found = _beside(dump, pair, reading, drafts)
    after = _after(evidence, reading, chart.trained)
    best = found if after == reading else _beside(dump, pair, after, drafts)
    evidence = replace(
        evidence,
        counted=(found or best or (None, None))[1],
        as_served=found[0] if found else None,
        as_trained=best[0] if best else None,
    )
    if evidence.replay_fits is not False:
        return evidence
    others = {repr(o): (o, _beside(dump, pair, o, drafts)) for o in variants(reading, pair)}
    return replace(evidence, explaining=tuple(o for o, both in others.values() if both and fits(*both)))


def _after(evidence: Evidence, reading: Reading, trained: Trained) -> Reading:
    """How the server would read after the change that the conclusion is about to propose."""
    faults = evidence.served.faults if evidence.served is not None else ()
    named = {*trained.differences(reading), *(fault.cause for fault in faults)}
    return changed(reading, trained.nearest(reading), named)


def _beside(dump: AnyDump, pair: Pair, reading: Reading, drafts: int) -> tuple[Prediction, Prediction] | None:
    """What is predicted for this reading, and what was counted; None if the weights cannot be read so."""
    try:
        return beside_counted(dump, pair, reading, drafts)
    except UsageError:
        return None

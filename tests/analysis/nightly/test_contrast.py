"""Two versions in the same Blocks: contrasts, verdicts and the sentence, from records alone."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from analysis.nightly.contrast import JUDGED, WINNER, Pair, Reading
from analysis.nightly.two_versions import Judged, State, judge
from results.nights import BASELINE, LENGTH, SPEED_UP
from results.reasons import Reason
from results.records import (
    BASELINE_METHOD,
    EQUAL_WEIGHTS,
    Acceptance,
    AcceptanceState,
    ArmRun,
    Block,
    Failure,
    Measurement,
    Phase,
    Point,
    SpecCounters,
    VerdictKind,
)
from tests.analysis.build import CHAT, CODE, arm, measurement

LOOKS = (4, 8, 12, 20)
READING = Reading("tokens_per_s", LOOKS, alpha=0.05, margin=0.03, weights=EQUAL_WEIGHTS)


def pair(name: str) -> Pair:
    return Pair(Point(BASELINE_METHOD, name=name), Point("eagle3", {"k": 3}, name))


OLD, NEW = pair("OLD"), pair("NEW")


def counted(length: float) -> Acceptance:
    drafts = 1000
    accepted = round(drafts * (length - 1))
    counters = SpecCounters(drafts, 3 * drafts, accepted)
    return Acceptance(AcceptanceState.MEASURED, counters=counters, length=length)


def run(point: Point, speed: float, length: float | None = None) -> ArmRun:
    acceptance = counted(length) if length else Acceptance(AcceptanceState.UNKNOWN)
    tokens = {"a": round(1000 * (length or 1))}
    cells = {CHAT: speed, CODE: 2 * speed}
    return arm(
        point,
        *(measurement(cell, s, acceptance=acceptance, tokens_by_prompt=tokens) for cell, s in cells.items()),
    )


def blocks(
    number: int,
    *,
    engine: float = 1.0,
    speculation: float = 1.0,
    lengths: tuple[float, float] | None = (2.5, 2.5),
    noise: float = 0.002,
    drift: float = 0.05,
) -> list[Block]:
    """New / old as factors: of the engine, and of what speculation gains on it. The machine slows down."""
    chance, made = random.Random(1), []
    for n in range(number):
        machine = math.exp(-drift * n)
        old_length, new_length = lengths or (None, None)
        arms = [
            run(OLD.baseline, 100 * machine * math.exp(chance.gauss(0, noise))),
            run(OLD.winner, 150 * machine * math.exp(chance.gauss(0, noise)), old_length),
            run(NEW.baseline, 100 * engine * machine * math.exp(chance.gauss(0, noise))),
            run(
                NEW.winner,
                150 * engine * speculation * machine * math.exp(chance.gauss(0, noise)),
                new_length,
            ),
        ]
        made.append(Block(n, Phase.CONFIRM, n, n + 1, "x", tuple(arms), compared_with=OLD.baseline))
    return made


def judged(made: Sequence[Block], reading: Reading = READING) -> Judged:
    return judge(made, OLD, NEW, reading)


@pytest.mark.parametrize(
    ("engine", "speculation", "kinds", "state", "said"),
    [
        (1.0, 0.9, ("WORSE", "SAME", "WORSE"), State.LOSS, "speculation got worse, not the engine"),
        (0.9, 1.0, ("WORSE", "WORSE", "SAME"), State.LOSS, "the engine got worse, not speculation"),
        (0.9, 0.9, ("WORSE", "WORSE", "WORSE"), State.LOSS, "and speculation on top of it"),
        (1.0, 1.0, ("SAME", "SAME", "SAME"), State.SOUND, "no loss that counts"),
        (1.1, 1.1, ("BETTER", "BETTER", "BETTER"), State.SOUND, "no loss that counts"),
        (1.25, 0.9, ("BETTER", "BETTER", "WORSE"), State.LOSS, "speculation gains less than it did, by"),
        (1.0, 0.98, ("WORSE", "SAME", "WORSE"), State.SOUND, "no loss that counts"),
    ],
)
def test_where_a_change_comes_from(
    engine: float, speculation: float, kinds: tuple[str, ...], state: State, said: str
) -> None:
    found = judged(blocks(8, engine=engine, speculation=speculation))
    assert [c.name for c in found.contrasts] == [WINNER, BASELINE, SPEED_UP, LENGTH]
    got = {c.name: c.kind for c in found.contrasts}
    assert (got[WINNER], got[BASELINE], got[SPEED_UP]) == kinds
    assert (found.state, found.is_settled) == (state, True)
    assert said in found.sentence


def test_the_sentence_in_full() -> None:
    found = judged(blocks(4, speculation=0.92, noise=0.001))
    assert found.sentence == (
        "NEW is slower with speculation by 8.1 % (7.7 to 8.5 %) over 4 Blocks; without speculation it is the"
        " same (-0.4 % to +0.3 %): speculation got worse, not the engine. The acceptance length did not fall"
        " (+0.0 %): a step costs more than it did."
    )


def test_the_engine_is_not_cleared_while_it_is_undecided() -> None:
    """The noise is in the old baseline alone, by which the speed-up is divided as well."""
    made = [
        replace(b, arms=(run(OLD.baseline, 100 * math.exp(0.1 * (-1) ** b.number)), *b.arms[1:]))
        for b in blocks(20, speculation=0.7, drift=0.0)
    ]
    found = judged(made)
    assert {c.name: c.kind for c in found.contrasts}[BASELINE] is VerdictKind.UNDECIDED
    assert "without speculation it is not decided (" in found.sentence
    assert found.sentence.partition("): ")[2].startswith("speculation got worse. ")


def test_a_drafter_that_is_accepted_less_is_named() -> None:
    found = judged(blocks(4, speculation=0.9, lengths=(2.5, 2.0)))
    contrast = next(c for c in found.contrasts if c.name == LENGTH)
    assert contrast.kind is VerdictKind.WORSE
    assert contrast.effect is not None and contrast.effect.log_ratio == pytest.approx(math.log(2.0 / 2.5))
    assert "The acceptance length fell (-20.0 %): look at the drafter" in found.sentence


def test_an_unknown_acceptance_spoils_nothing_else() -> None:
    found = judged(blocks(4, lengths=None))
    contrast = next(c for c in found.contrasts if c.name == LENGTH)
    assert (contrast.kind, contrast.note) == (VerdictKind.UNDECIDED, "not known in 4 of 4 Blocks")
    assert (found.state, found.is_settled) == (State.SOUND, True)


def test_every_cell_has_its_contrast() -> None:
    made = [
        replace(b, arms=(*b.arms[:3], replace(b.arms[3], measurements=_slower_chat(b.arms[3]))))
        for b in blocks(4)
    ]
    winner = judged(made).contrasts[0]
    assert winner.by_cell[CHAT.label].log_ratio == pytest.approx(math.log(0.8), abs=0.01)
    assert winner.by_cell[CODE.label].log_ratio == pytest.approx(0, abs=0.01)


def _slower_chat(found: ArmRun) -> tuple[Measurement, ...]:
    return tuple(
        replace(m, tokens_per_s=0.8 * (m.tokens_per_s or 0)) if m.cell == CHAT else m
        for m in found.measurements
    )


def test_the_speed_up_is_the_difference_of_the_two() -> None:
    found = {c.name: c.effect for c in judged(blocks(4, engine=0.95, speculation=0.9)).contrasts}
    winner, baseline, speed_up = (found[name] for name in (WINNER, BASELINE, SPEED_UP))
    assert winner and baseline and speed_up
    assert speed_up.log_ratio == pytest.approx(winner.log_ratio - baseline.log_ratio)


def test_nothing_is_said_before_the_first_look_nor_between_looks() -> None:
    assert judged([]).sentence.startswith("Nothing can be said yet")
    assert judged(blocks(3, speculation=0.5)).state is State.UNDECIDED
    noisy = judged(blocks(7, speculation=0.95, noise=0.03))
    assert noisy.contrasts[0].effect is not None
    assert noisy.contrasts[0].effect.blocks == 4
    assert noisy.state is State.UNDECIDED and not noisy.is_settled
    assert "is not decided" in noisy.sentence


def failing(made: Sequence[Block], point: Point, reason: Reason, *numbers: int) -> list[Block]:
    def one(b: Block) -> Block:
        arms = [replace(a, failure=Failure(reason, "so it said")) if a.point == point else a for a in b.arms]
        return replace(b, arms=tuple(arms)) if b.number in numbers else b

    return [one(b) for b in made]


@pytest.mark.parametrize(
    ("point", "reason", "state"),
    [
        (NEW.winner, Reason.NOT_SPECULATING, State.FAULT),
        (NEW.winner, Reason.HANG, State.FAULT),
        (NEW.baseline, Reason.SERVER_DIED, State.FAULT),
        (NEW.winner, Reason.UNSUPPORTED_FLAG, State.UNMEASURED),
        (NEW.winner, Reason.CONCURRENCY_NOT_REACHED, State.UNMEASURED),
        (OLD.winner, Reason.HANG, State.UNMEASURED),
    ],
)
def test_an_arm_that_fails_twice_is_to_blame(point: Point, reason: Reason, state: State) -> None:
    found = judged(failing(blocks(3), point, reason, 0, 2))
    assert (found.state, found.failed, found.is_settled) == (state, point, True)
    assert found.sentence == (
        f"{point.label} cannot be used: {reason}, so it said (in 2 of 3 Blocks); 1 Block could be used."
    )


def test_a_single_failure_is_an_accident_that_is_told() -> None:
    found = judged(failing(blocks(5), NEW.winner, Reason.HANG, 1))
    assert (found.state, found.blocks, found.failure) == (State.SOUND, 4, None)
    assert found.notes == ("Block 1: NEW: eagle3 k=3: HANG, so it said",)


def test_an_objective_that_is_not_known_settles_it() -> None:
    found = judged(blocks(1), replace(READING, objective="tokens_per_joule"))
    assert (found.state, found.is_settled) == (State.UNMEASURED, True)
    assert "the objective is not known in 1 of 1 Block" in found.sentence


def test_a_limit_that_only_the_new_version_breaks_is_its_fault() -> None:
    reading = replace(READING, limits={"server_memory_bytes": 1e9})
    made = blocks(4)
    assert judged(with_memory(made, 2e9, 5e8), reading).state is State.FAULT
    assert judged(with_memory(made, 2e9, 2e9), reading).state is State.SOUND


def with_memory(made: Sequence[Block], new: float, old: float) -> list[Block]:
    by_key = {NEW.winner.key: new, OLD.winner.key: old}

    def one(found: ArmRun) -> ArmRun:
        amount = int(by_key.get(found.point.key, 1e8))
        measured = [
            replace(m, telemetry=replace(m.telemetry, server_memory_bytes=amount)) for m in found.measurements
        ]
        return replace(found, measurements=tuple(measured))

    return [replace(b, arms=tuple(map(one, b.arms))) for b in made]


def test_settings_that_the_new_version_changed_are_told() -> None:
    """The defaults of an engine change between builds without a word."""
    of = {
        OLD.winner.key: {"n_max": 16, "p_min": 0.75, "k": 3},
        NEW.winner.key: {"n_max": 3, "p_min": 0.0, "k": 3},
    }
    made = [
        replace(b, arms=tuple(replace(a, effective=of.get(a.point.key, {})) for a in b.arms))
        for b in blocks(4)
    ]
    assert judged(made).notes == ("settings in effect with speculation: n_max 16 -> 3, p_min 0.75 -> 0.0",)


def test_a_wide_margin_of_the_same_hides_no_loss() -> None:
    wide = replace(READING, margin=0.5)
    assert judged(blocks(4, speculation=0.8), wide).state is State.LOSS
    assert judged(blocks(4, speculation=0.98), wide).state is State.SOUND


def test_alpha_is_split_over_what_is_judged() -> None:
    assert READING.look_alpha == pytest.approx(0.05 / (len(LOOKS) * len(JUDGED)))

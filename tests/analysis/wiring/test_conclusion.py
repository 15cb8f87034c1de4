"""What the steps together are taken to say: a table of evidence and conclusions."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.wiring.chain import Prediction
from analysis.wiring.conclusion import Evidence, conclude, fits
from analysis.wiring.fixes import fix_of
from analysis.wiring.match import Fault, ServedWiring
from analysis.wiring.paired import Comparison
from analysis.wiring.trained import Candidate, Trained
from results.checkpoint import Checkpoint
from results.head_config import Head
from results.records import SpecCounters
from results.wiring import Cause, D2t, Finding, Fix, Outcome, Reading, Severity, Source

LAYERS = 8
RIGHT = Reading((2, 4, 5))
UP = replace(RIGHT, boundaries=(3, 5, 6))
WORSE = Comparison(0.2, 6.0, 0.1, 24, False)
BEST = Comparison(0.0, math.nan, 0.0, 24, True)
SOME = Prediction(3, (3, 0, 1, 2))
OTHER = Prediction(3, (0, 0, 0, 1))


def head(config: Mapping[str, Any] = {}) -> Head:
    return Head(Checkpoint(Path("head"), config, {}))


def trained(best: Reading, *worse: Reading, ties: tuple[Reading, ...] = (), more: int = 0) -> Trained:
    candidates = [Candidate(best, 0.4, 0.7, BEST)] + [Candidate(r, 0.6, 0.5, WORSE) for r in worse]
    return Trained(best, tuple(candidates), 24, 4000, ties=ties, z=6.0, more_sequences=more)


def served(boundaries: tuple[int, ...], *faults: Fault) -> ServedWiring:
    return ServedWiring(True, boundaries, faults)


def finding(cause: Cause, severity: Severity, fix: Fix | None = None) -> Finding:
    return Finding(cause, severity, f"seen of {cause.name}", "rule", fix)


def evidence(**given: Any) -> Evidence:
    return Evidence(**{"layers": LAYERS, "head": head(), "expected": RIGHT, **given})


def test_a_server_that_gives_what_was_trained_and_counts_as_replayed_is_cleared() -> None:
    said = conclude(
        evidence(
            served=served(RIGHT.boundaries),
            trained=trained(RIGHT, UP),
            counters=SpecCounters(4, 12, 6),
            counted=SOME,
            as_served=SOME,
        )
    )
    assert said.outcome is Outcome.CLEARED
    assert (said.causes, said.fix, said.accept_length) == ((), None, 2.5)
    assert "2.50 tokens a round" in said.sentence


def test_other_layers_are_named_in_boundaries_with_the_engines_fix() -> None:
    wanted: list[object] = []
    fix = Fix("set the ids")

    def fix_for(boundaries: object) -> Fix:
        wanted.append(boundaries)
        return fix

    said = conclude(
        evidence(
            served=served(UP.boundaries),
            trained=trained(RIGHT, UP),
            counted=OTHER,
            as_served=OTHER,
            as_trained=SOME,
            fix_for=fix_for,
        )
    )
    assert (said.outcome, said.causes, said.fix) == (Outcome.NAMED, (Cause.LAYERS,), fix)
    assert wanted == [RIGHT.boundaries]
    assert said.accept_length_after == 2.5
    assert said.evidence[0] == "the server reads b3, b5, b6; the head was trained with b2, b4, b5"


def test_what_no_training_has_comes_before_any_replay() -> None:
    fault = Fault(Cause.TENSOR_PARALLEL, "slot 1 holds the columns of rank 0 and zeros")
    said = conclude(evidence(served=served((2, 4, 5), fault), trained=trained(RIGHT)))
    assert (said.outcome, said.causes, said.evidence) == (
        Outcome.NAMED,
        (Cause.TENSOR_PARALLEL,),
        (fault.seen,),
    )


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"d2t": D2t.ABSENT}, Cause.D2T_MISSING),
        ({"lm_head": Source.RANDOM}, Cause.LM_HEAD),
        ({"norm_output": True}, Cause.FEEDBACK_NORM),
        ({"rope_theta": 1e6}, Cause.ROPE),
        ({"boundaries": (5, 4, 2)}, Cause.ORDER),
    ],
)
def test_how_the_engine_reads_against_how_it_was_trained(wrong: dict[str, Any], cause: Cause) -> None:
    own = replace(RIGHT, **wrong)
    seen = evidence(expected=own, served=served(own.boundaries), trained=trained(RIGHT, own))
    said = conclude(seen)
    assert (said.outcome, said.causes) == (Outcome.NAMED, (cause,))
    served_as, trained_as = said.evidence[0].split("; ")
    assert served_as.removeprefix("the server reads ") != trained_as.removeprefix(
        "the head was trained with "
    )


def test_a_server_that_reads_otherwise_than_its_sources_say_is_known_by_its_counts() -> None:
    without = replace(RIGHT, adds_residual=False)
    seen = evidence(
        served=served(RIGHT.boundaries),
        trained=trained(RIGHT, without),
        counted=OTHER,
        as_served=SOME,
        explaining=[without],
    )
    assert conclude(seen).causes == (Cause.RESIDUAL,)
    unclear = replace(seen, explaining=[without, replace(RIGHT, norm_output=True)])
    said = conclude(unclear)
    assert (said.outcome, set(said.causes)) == (
        Outcome.UNDECIDED,
        {Cause.RESIDUAL, Cause.FEEDBACK_NORM},
    )
    nothing = conclude(replace(seen, explaining=[]))
    assert (nothing.outcome, nothing.causes) == (Outcome.UNDECIDED, ())


def test_weights_that_predict_nothing_in_any_reading_are_named_by_the_folders_alone() -> None:
    hopeless = replace(trained(RIGHT), predicts=False)
    seen = evidence(served=served(RIGHT.boundaries), trained=hopeless)
    assert conclude(seen).outcome is Outcome.UNDECIDED
    told = conclude(replace(seen, findings=[finding(Cause.VERIFIER, Severity.LIKELY)]))
    assert (told.outcome, told.causes) == (Outcome.NAMED, (Cause.VERIFIER,))


def test_a_tie_is_undecided_and_says_how_much_more_would_decide() -> None:
    tie = replace(RIGHT, boundaries=(2, 3, 5))
    said = conclude(evidence(served=served((2, 3, 5)), trained=trained(RIGHT, ties=(tie,), more=30)))
    assert (said.outcome, said.more_sequences, said.causes) == (Outcome.UNDECIDED, 30, (Cause.LAYERS,))
    assert "about 30 more sequences" in said.sentence


def test_short_prompts_do_not_clear_a_context_that_is_too_short() -> None:
    said = conclude(
        evidence(
            findings=[finding(Cause.CONTEXT, Severity.FATAL)],
            served=served(RIGHT.boundaries),
            trained=trained(RIGHT),
        )
    )
    assert said.causes == (Cause.CONTEXT,)


def test_a_replay_that_clears_the_wiring_clears_what_the_folders_suspected() -> None:
    suspected = [finding(Cause.VOCABULARY, Severity.FATAL), finding(Cause.ROPE, Severity.LIKELY)]
    seen = evidence(findings=suspected, served=served(RIGHT.boundaries), trained=trained(RIGHT))
    assert conclude(seen).outcome is Outcome.CLEARED


def test_folders_alone_name_what_cannot_work_and_ask_about_the_rest() -> None:
    fix = Fix("make d2t of t2d")
    fatal = finding(Cause.D2T_MISSING, Severity.FATAL, fix)
    named = conclude(evidence(findings=[fatal, finding(Cause.ROPE, Severity.LIKELY)], ended="IndexError"))
    assert (named.outcome, named.causes, named.fix) == (Outcome.NAMED, (Cause.D2T_MISSING,), fix)
    assert named.evidence[-1] == "the server ended: IndexError"
    asked = conclude(evidence(findings=[finding(Cause.ROPE, Severity.LIKELY)]))
    assert (asked.outcome, asked.causes) == (Outcome.UNDECIDED, (Cause.ROPE,))
    nothing = conclude(evidence(findings=[finding(Cause.NAMES, Severity.INFO)]))
    assert (nothing.outcome, nothing.causes) == (Outcome.UNDECIDED, ())


def test_a_drafter_that_is_not_used_needs_no_replay() -> None:
    said = conclude(evidence(expected=None, findings=[finding(Cause.NOT_ATTACHED, Severity.FATAL)]))
    assert (said.outcome, said.causes) == (Outcome.NAMED, (Cause.NOT_ATTACHED,))


def test_rounds_fit_exactly_or_as_near_as_rounding_leaves_them() -> None:
    counted = Prediction(3, (3, 0, 1, 2) * 100)
    assert fits(counted, counted)
    assert fits(Prediction(3, (*((3, 0, 1, 2) * 100)[:-1], 3)), counted)
    assert not fits(Prediction(3, (2, 0, 1, 2) * 100), counted)


@pytest.mark.parametrize(
    ("cause", "wrong", "right", "config", "change"),
    [
        (Cause.FEEDBACK_NORM, {"norm_output": True}, {}, {}, {"norm_output": False}),
        (
            Cause.NORM_BEFORE_FC,
            {"norm_before_fc": True},
            {},
            {"eagle_config": {"norm_before_fc": True}},
            {"eagle_config.norm_before_fc": False},
        ),
        (Cause.ROPE, {"rope_theta": 1e6}, {"rope_theta": 1e4}, {}, {"rope_theta": 1e4}),
        (
            Cause.ROPE,
            {"rope_theta": 1e6},
            {"rope_theta": 1e4},
            {"rope_parameters": {"rope_theta": 1e6}},
            {"rope_parameters.rope_theta": 1e4},
        ),
    ],
)
def test_a_fix_of_the_config_stands_where_the_key_is_read(
    cause: Cause, wrong: dict[str, Any], right: dict[str, Any], config: dict[str, Any], change: dict[str, Any]
) -> None:
    fix = fix_of(cause, replace(RIGHT, **wrong), replace(RIGHT, **right), head(config))
    assert fix is not None
    assert fix.config == change


def test_an_order_is_mended_in_the_weights_since_engines_sort_the_layers() -> None:
    fix = fix_of(Cause.ORDER, RIGHT, replace(RIGHT, boundaries=(5, 2, 4)), head())
    assert fix is not None
    assert fix.tensors == ("fc: blocks 1,2,0",)  # b2 was second in training, b4 third, b5 first

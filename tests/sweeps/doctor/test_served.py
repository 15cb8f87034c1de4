from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from analysis.wiring.match import ServedWiring, reading_seen, served_wiring
from analysis.wiring.sanity import Readout
from results.hidden_states import Dump, DumpHeader, HiddenStates
from results.wiring import Cause, Reading, Section, Severity, Step
from sweeps.doctor.served import section
from tests.analysis.wiring.dumps import (
    Give,
    beside,
    dump,
    fused,
    pair_fc,
    pair_readout,
    the_pair,
)

HEADER = DumpHeader(8, engine="SGLang 0.5.23", temperature=0.0)
EXPECTED = Reading((2, 4, 5))


def written(
    folder: Path, sequences: Iterator[HiddenStates], header: DumpHeader = HEADER, expected: Reading = EXPECTED
) -> tuple[Section, ServedWiring | None]:
    lm_head, norm = pair_readout()
    return section(
        Dump.write(folder, header, sequences), 3, expected, pair_fc(), Readout(lm_head, norm, 1e-5)
    )


def wired(folder: Path, boundaries: Sequence[int], **how: object) -> tuple[Section, ServedWiring | None]:
    return written(folder, dump(the_pair(), beside(boundaries), **how))  # type: ignore[arg-type]


def test_what_was_checked_and_seen_of_a_healthy_server(tmp_path: Path) -> None:
    found, wiring = wired(tmp_path, (2, 4, 5), dtype=torch.bfloat16, noise=0.004)
    assert wiring is not None
    assert found.step is Step.SERVED
    assert found.follows == ("The server gives its drafter b2, b4, b5, as was expected.",)
    assert (found.findings, found.skipped) == ((), "")
    assert any("b0 to b8, N" in line for line in found.checked)
    assert any("predict" in line for line in found.checked)
    assert [line[:11] for line in found.seen] == ["slot 1 = b2", "slot 2 = b4", "slot 3 = b5", "100% of the"]
    assert ", next b3 0.35" in found.seen[0]
    assert "error 0.00" in found.seen[0]


@pytest.mark.parametrize(("boundaries", "cause"), [((3, 5, 6), Cause.LAYERS), ((5, 4, 2), Cause.ORDER)])
def test_what_differs_from_what_we_think_of_the_engine_is_a_finding(
    tmp_path: Path, boundaries: tuple[int, ...], cause: Cause
) -> None:
    found, wiring = wired(tmp_path, boundaries)
    assert wiring is not None
    assert wiring.boundaries == boundaries
    names = ", ".join(f"b{b}" for b in boundaries)
    assert found.follows == (f"The server gives its drafter {names}.",)
    (finding,) = found.findings
    assert (finding.cause, finding.severity) == (cause, Severity.INFO)
    assert finding.seen == f"the drafter is given {names}; of SGLang 0.5.23 b2, b4, b5 was expected"


def test_one_state_is_the_wrong_algorithm_and_nothing_else(tmp_path: Path) -> None:
    found, wiring = wired(tmp_path, (9,))
    (finding,) = found.findings
    assert (finding.cause, finding.severity) == (Cause.ALGORITHM, Severity.FATAL)
    assert "given is N" in finding.seen
    assert wiring is not None
    assert reading_seen(wiring, EXPECTED) == replace(EXPECTED, boundaries=(9,), uses_fc=False)


def test_parts_of_ranks_are_a_finding_that_no_reading_tells(tmp_path: Path) -> None:
    def by_rank(states: object) -> torch.Tensor:
        return beside((2, 4, 5))(states).unflatten(-1, (3, 2, 64)).transpose(1, 2).flatten(1)  # type: ignore[arg-type]

    found, wiring = written(tmp_path, dump(the_pair(), by_rank), replace(HEADER, tensor_parallel=2))
    (finding,) = found.findings
    assert (finding.cause, finding.severity) == (Cause.TENSOR_PARALLEL, Severity.LIKELY)
    assert found.follows == (
        "The server gives its drafter b2, b4, b5, but not as a head is trained to read them.",
    )
    assert wiring is not None
    assert reading_seen(wiring, EXPECTED) is None


def test_shifts_are_in_the_reading(tmp_path: Path) -> None:
    late: Give = lambda states: beside((2, 4, 5))(states).roll(1, 0)  # noqa: E731
    found, wiring = written(tmp_path, dump(the_pair(), late, token_shift=2))
    assert {finding.cause for finding in found.findings} == {Cause.TOKEN_SHIFT}
    assert wiring is not None
    assert reading_seen(wiring, EXPECTED) == replace(EXPECTED, hidden_lag=1, token_shift=2)


def test_the_fusion_layers_output_is_compared_with_the_folders_weights(tmp_path: Path) -> None:
    given = list(dump(the_pair(), beside((2, 4, 5))))
    for name, weight, words in (
        ("own", pair_fc(), "are those of the head's folder"),
        ("other", pair_fc().roll(1, 0), "are not those of the head's folder"),
    ):
        outputs = fused(iter(given), weight)
        both = (replace(f, served_aux=g.served_aux) for f, g in zip(outputs, given, strict=True))
        found, _ = written(tmp_path / name, both)
        assert words in found.seen[-1]


def test_undecided_says_what_is_nearest(tmp_path: Path) -> None:
    found, wiring = wired(tmp_path, (2, 4, 5), captured=(0, 2, 5, 8))
    assert wiring is not None
    assert not wiring.decided
    assert found.findings == ()
    assert found.follows[0].startswith(
        "Which wiring the server uses is undecided: slot 2 is none of the captured"
    )
    assert found.seen[1].startswith("slot 2 is nearest b5: error 0.3")
    assert reading_seen(wiring, EXPECTED) is None


def test_a_dump_that_is_not_sound_is_not_believed(tmp_path: Path) -> None:
    shifted = (
        replace(s, states={b: x.roll(1, 0) for b, x in s.states.items()})
        for s in dump(the_pair(), lambda states: beside((2, 4, 5))(states).roll(1, 0))
    )
    found, _ = written(tmp_path, shifted)
    assert "predict the tokens 1 earlier" in found.seen[0]
    assert "not sound" in found.follows[0]


def test_answers_that_are_not_greedy_are_not_looked_at(tmp_path: Path) -> None:
    flipped = (replace(s, token_ids=s.token_ids.flip(0)) for s in dump(the_pair(), beside((2, 4, 5))))
    found, _ = written(tmp_path, flipped, replace(HEADER, temperature=0.8))
    assert not any("predict" in line for line in found.checked)
    assert not any("predict" in line for line in found.seen)


def test_without_what_the_drafter_was_given_the_step_is_skipped(tmp_path: Path) -> None:
    bare = (replace(s, served_aux=None) for s in dump(the_pair(), beside((2, 4, 5))))
    found, wiring = written(tmp_path, bare)
    assert (found.skipped, wiring) == ("the dump holds nothing of what the drafter was given", None)


def test_a_dump_of_training_states_is_decided_without_an_expectation(tmp_path: Path) -> None:
    on_disk = Dump.write(tmp_path, HEADER, dump(the_pair(), beside((1, 3))))
    found, wiring = section(on_disk)
    assert wiring == served_wiring(on_disk, 8, tensor_parallel=1)
    assert found.follows == ("The server gives its drafter b1, b3.",)

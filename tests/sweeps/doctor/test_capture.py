"""A capture run on the stand-in engine: what is asked, which sequences are its own, what ends it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from launchers.engines.engine import Capture, Served
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from results.errors import MeasurementInvalid, UsageError
from results.hidden_states import DumpHeader, HiddenStates
from results.records import Point
from results.store import RunFolder
from sweeps.doctor.capture import Captured, capture, cut, usual_prompts
from sweeps.setup import Setup
from tests.sweeps.test_run import plan

ASKED, RUN = Point("fake-ngram", {"n": 4, "m": 8}), Point("fake-ngram", {"n": 2, "m": 8})
ANSWER_TOKENS = 5


def sequence(prompt_tokens: int, tokens: int, accepted: tuple[int, ...] = ()) -> HiddenStates:
    ids = torch.arange(tokens)
    rows = torch.arange(tokens - 1, dtype=torch.float32)[:, None]
    return HiddenStates(ids, prompt_tokens, {0: rows}, rows + 1, rows + 2, ids[1:] + 0, accepted)


@dataclass
class ScriptedCapture:
    """One sequence before the prompts are sent, and one for each of them."""

    folder: Path
    boundaries: Collection[int] | None
    prompt_tokens: list[int]
    point: Point = RUN
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    header: DumpHeader = field(default_factory=lambda: DumpHeader(layers=8, engine="scripted"))
    looks: int = 0

    def sequences(self) -> Iterator[HiddenStates]:
        self.looks += 1
        if self.looks == 1:
            return iter([sequence(3, 9)])
        return iter(
            [sequence(3, 9), *(sequence(n, n + ANSWER_TOKENS + 2, (1, 0)) for n in self.prompt_tokens)]
        )


class SeenEngine(FakeEngine):
    """The stand-in with a Capture."""

    def __init__(self, prompt_tokens: list[int], fault: Fault | None = None) -> None:
        super().__init__(fault=lambda point: fault)
        self.prompt_tokens = prompt_tokens
        self.captures: list[ScriptedCapture] = []

    def capture(
        self, point: Point, served: Served, folder: Path, boundaries: Collection[int] | None = None
    ) -> Capture:
        assert point == ASKED
        self.captures.append(ScriptedCapture(folder, boundaries, self.prompt_tokens))
        return self.captures[-1]


def setup_with(folder: Path, engine: FakeEngine) -> Setup:
    run = RunFolder(folder / "run")
    run.create()
    return replace(plan(workload={"max_tokens": 60, "prompts_per_class": 3}), engine=engine).setup(run)


def captured(folder: Path, engine: FakeEngine, seconds: float = 60) -> Captured:
    setup = setup_with(folder, engine)
    prompts = usual_prompts(setup, 2)
    return capture(
        setup, ASKED, prompts, folder / "dump", boundaries=[0], answer_tokens=ANSWER_TOKENS, seconds=seconds
    )


def test_of_what_was_captured_only_the_prompts_are_kept(tmp_path: Path) -> None:
    engine = SeenEngine([])
    setup = setup_with(tmp_path, engine)
    words = [sum(len(text.split()) for text in prompt.content) for prompt in usual_prompts(setup, 2)]
    engine.prompt_tokens = words
    found = captured(tmp_path, engine)
    assert [s.prompt_tokens for s in found.dump] == words
    assert all(len(s.token_ids) == s.prompt_tokens + ANSWER_TOKENS for s in found.dump)
    assert all(len(s.states[0]) == len(s.token_ids) - 1 for s in found.dump)
    assert found.dump.header.temperature == 0.0
    assert len(found.texts) == 2 and all(found.texts)
    assert engine.captures[0].boundaries == [0]
    assert not engine.captures[0].folder.exists()
    assert found.counted is not None
    (note,) = found.notes
    assert note.startswith("the passes had 4 rounds with 2 accepted drafts")


def test_what_was_captured_must_be_what_was_asked(tmp_path: Path) -> None:
    with pytest.raises(MeasurementInvalid, match="a prompt of 1 tokens was captured"):
        captured(tmp_path / "other", SeenEngine([1, 1]))
    with pytest.raises(MeasurementInvalid, match="nothing was captured"):
        captured(tmp_path / "none", SeenEngine([]))
    assert not (tmp_path / "other" / "dump" / "dump.json").exists()


@pytest.mark.parametrize(
    ("fault", "said"),
    [(Fault.REFUSES_TO_START, "CONFIG_REJECTED"), (Fault.DIES_UNDER_LOAD, "SERVER_DIED|CRASH_UNDER_LOAD")],
)
def test_a_server_that_ends_is_named_with_its_cause(tmp_path: Path, fault: Fault, said: str) -> None:
    with pytest.raises(MeasurementInvalid, match=said):
        captured(tmp_path, SeenEngine([1, 1], fault))
    assert not list((tmp_path / "run").glob("traces/*"))


def test_after_its_time_no_prompt_is_asked(tmp_path: Path) -> None:
    with pytest.raises(MeasurementInvalid, match="no prompt was answered within 0 s"):
        captured(tmp_path, SeenEngine([1, 1]), seconds=0)


def test_an_engine_that_shows_nothing_says_so_before_a_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no states to be seen"):
        captured(tmp_path, FakeEngine())


def test_the_usual_prompts_are_of_all_classes_in_turn_and_each_once(tmp_path: Path) -> None:
    workload = {"prompts_per_class": 3, "classes": ["code_edit", "chat"]}
    setup = plan(workload=workload).setup(RunFolder(tmp_path))
    found = usual_prompts(setup, 24)
    assert [p.workload_class for p in found] == ["code_edit", "chat"] * 6  # of search and confirmation
    assert len({p.content for p in found}) == 12
    assert len(usual_prompts(setup, 5)) == 5


def _rows(sequence: HiddenStates) -> int:
    assert sequence.served_ids is not None
    return len(sequence.served_ids)


def test_a_sequence_is_cut_with_its_rows() -> None:
    whole = sequence(3, 9, (2, 2))
    short = cut(whole, 6)
    assert (len(short.token_ids), len(short.states[0]), _rows(short)) == (6, 5, 5)
    assert short.accepted == (2, 2)
    assert len(cut(whole, 99).token_ids) == 9

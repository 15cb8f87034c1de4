"""The search for the first bad version: simulated with drift and noise, and whole on the stand-in engine."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import pytest
from rich.console import Console

from analysis.nightly.bisection import Sought, Stand
from analysis.nightly.bisection_words import sentence, versions_table
from analysis.nightly.contrast import Pair, Reading
from analysis.nightly.two_versions import State
from analysis.renderables import plain
from launchers.fake import FakeEngine
from launchers.fake_server import Fault
from results.errors import MeasurementInvalid, UsageError
from results.reasons import Reason
from results.records import (
    BASELINE,
    BASELINE_METHOD,
    EQUAL_WEIGHTS,
    ArmRun,
    Block,
    Failure,
    Phase,
    Point,
    VerdictKind,
)
from results.store import RunFolder
from sweeps.nightly.bisect import Bisection, bisection, listed, run_bisection, search
from sweeps.nightly.version import Version
from sweeps.outcome import CHECK_FILE, read_run
from sweeps.status import status_of
from tests.records import CELL, arm, block
from tests.sweeps.nightly.versions import TEXT, engine, on, pin
from tests.sweeps.test_run import Recorder

NAMES = "ABCDEFGH"
PAIRS = [Pair(Point(BASELINE_METHOD, name=n), Point("eagle3", {"k": 3}, n)) for n in NAMES]
READING = Reading("tokens_per_s", (4, 8, 12, 20), alpha=0.05, margin=0.03, weights=EQUAL_WEIGHTS)


@dataclass
class ScriptedBlocks:
    """A BlockRunner without servers, on a machine that drifts. Everything is by the letter of a version."""

    noise: float  # of the log ratio of a Block
    winner: dict[str, float] = field(default_factory=dict)  # log speed
    baseline: dict[str, float] = field(default_factory=dict)
    failing: dict[str, Reason] = field(default_factory=dict)  # the winner's
    accidents: set[int] = field(default_factory=set)  # Blocks in which every probe fails
    seed: int = 0
    blocks: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random, self._level = random.Random(self.seed), 0.0

    @property
    def launches(self) -> int:
        return sum(len(b.arms) for b in self.blocks)

    def __call__(
        self, points: Sequence[Point], phase: Phase, baseline: Point = BASELINE, *, alone: bool = False
    ) -> Block:
        order = [baseline, *points]
        self._random.shuffle(order)
        number = len(self.blocks)
        made = block(number, phase, [self._arm(p, baseline, number) for p in order])
        self.blocks.append(replace(made, compared_with=baseline))
        return self.blocks[-1]

    def _arm(self, point: Point, reference: Point, number: int) -> ArmRun:
        self._level -= self.noise / 5
        own = (self.baseline if point.is_baseline else self.winner).get(point.name, 0.0)
        log = self._level + own + self._random.gauss(0, self.noise / math.sqrt(2))
        reason = self.failing.get(point.name) if not point.is_baseline else None
        if number in self.accidents and point != reference:
            reason = Reason.HANG
        failure = Failure(reason, "so it said") if reason is not None else None
        return arm(point, {CELL: 100 * math.exp(log)}, failure)


def losing(first: int, loss: float = 0.06) -> dict[str, float]:
    return {name: math.log(1 - loss) for name in NAMES[first:]}


def bisected(servers: ScriptedBlocks, pairs: Sequence[Pair] = PAIRS, skip: str = "") -> Stand:
    def prepare(version: int) -> str:
        return "no such image" if pairs[version].winner.name in skip else ""

    return search(pairs, READING, servers, servers.blocks, prepare=prepare)


def said(found: Stand, servers: ScriptedBlocks, pairs: Sequence[Pair] = PAIRS) -> str:
    return sentence(found, [p.winner.name for p in pairs], servers.launches)


# What a user is promised: eight versions, a loss of 6 %, noise of 1 % and of 3 % a Block


@pytest.mark.parametrize(("noise", "most_launches"), [(0.01, 19), (0.03, 38)])
def test_the_right_one_is_found_in_few_launches(noise: float, most_launches: int) -> None:
    right, launches, plain_launches, runs = 0, [], [], 60
    for seed in range(runs):
        first = 1 + seed % (len(NAMES) - 1)
        servers = ScriptedBlocks(noise, losing(first), seed=seed)
        found = bisected(servers)
        right += found.first == (first, first) and found.state is State.LOSS
        launches.append(servers.launches)
        plain_launches.append(confirming_every_probe(ScriptedBlocks(noise, losing(first), seed=seed)))
    assert right >= 0.95 * runs
    assert fmean(launches) <= most_launches
    assert fmean(launches) < 0.5 * fmean(plain_launches)


def confirming_every_probe(servers: ScriptedBlocks) -> int:
    """Launches of a plain binary search whose every probe is a full confirmation against the good one."""
    good, bad, probe = 0, len(NAMES) - 1, len(NAMES) - 1
    while True:
        own: list[float] = []
        kind, effect = READING.decide(own)
        while kind is VerdictKind.UNDECIDED and len(own) < READING.looks[-1]:
            made = servers([PAIRS[probe].winner], Phase.CONFIRM, PAIRS[0].winner)
            speeds = [made.arm(PAIRS[v].winner) for v in (0, probe)]
            a, b = (run.measurements[0].tokens_per_s for run in speeds if run is not None)
            own.append(math.log((b or 1) / (a or 1)))
            kind, effect = READING.decide(own)
        if kind is VerdictKind.WORSE:
            bad = probe
        else:
            good = probe
        if bad - good <= 1 or effect is None:
            return servers.launches
        probe = (good + bad) // 2


def test_a_list_without_a_loss_is_seldom_searched() -> None:
    states = [bisected(ScriptedBlocks(0.02, seed=seed)).state for seed in range(60)]
    assert states.count(State.LOSS) <= 3


# One search at a time, with little noise


def test_the_sentence_of_a_search() -> None:
    servers = ScriptedBlocks(0.0001, losing(2, 0.08))
    found = bisected(servers, PAIRS[:4])
    assert said(found, servers) == "The first bad one is C (-8.0 % against A); B is as A; 16 launches."
    assert found.sought is Sought.WINNER
    assert all(len(b.arms) == 2 and b.arm(PAIRS[0].winner) is not None for b in servers.blocks)


@pytest.mark.parametrize("first", range(1, 8))
def test_every_place_is_found(first: int) -> None:
    servers = ScriptedBlocks(0.005, losing(first), seed=first)
    found = bisected(servers)
    assert (found.state, found.first) == (State.LOSS, (first, first))
    assert servers.launches <= 20


def test_two_versions_are_one_question() -> None:
    servers = ScriptedBlocks(0.0001, {"H": -0.1})
    found = bisected(servers, [PAIRS[0], PAIRS[-1]])
    assert said(found, servers, [PAIRS[0], PAIRS[-1]]) == (
        "The first bad one is H (-9.5 % against A); 8 launches."
    )


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_without_a_loss_that_counts_there_is_nothing_to_find(loss: float) -> None:
    servers = ScriptedBlocks(0.002, losing(3, loss))
    found = bisected(servers)
    assert (found.state, found.first, found.step) == (State.SOUND, None, None)
    assert said(found, servers).startswith("Nothing to find: H has lost nothing that counts against A (")


def test_wide_noise_ends_undecided() -> None:
    servers = ScriptedBlocks(0.3, losing(3), seed=1)
    found = bisected(servers)
    assert (found.state, found.step) == (State.UNDECIDED, None)
    assert said(found, servers).startswith("It is not decided whether H is worse than A (")
    assert len(servers.blocks) == READING.looks[-1]


def test_a_loss_in_the_ratio_alone_takes_the_baselines_too() -> None:
    """The engine became faster, and what speculates did not."""
    faster = dict.fromkeys(NAMES[4:], 0.15)
    servers = ScriptedBlocks(0.0001, baseline=faster)
    found = bisected(servers)
    assert (found.sought, found.first) == (Sought.SPEED_UP, (4, 4))
    assert said(found, servers).startswith(
        "The first bad one is E (-13.9 % against A in what speculation gains); D is as A; "
    )
    assert {len(b.arms) for b in servers.blocks} == {2, 4}


# What cannot be probed


def test_a_neighbour_is_taken_for_one_that_cannot_be_started() -> None:
    servers = ScriptedBlocks(0.003, losing(2), failing={"D": Reason.START_FAILED})
    found = bisected(servers, skip="E")
    assert found.first == (2, 2)
    assert [*found.skipped] == [3, 4]
    assert found.skipped[4] == "no such image"


def test_only_skipped_ones_are_left() -> None:
    servers = ScriptedBlocks(0.003, losing(4), failing={"D": Reason.START_OOM})
    found = bisected(servers, skip="E")
    assert found.first == (3, 5)
    assert said(found, servers).startswith("The first bad one is D or E or F (-")
    assert "C is as A" in said(found, servers)
    assert found.skipped[3].startswith("START_OOM, so it said (in 2 of 2 Blocks)")


def test_an_accident_is_no_reason_to_skip() -> None:
    servers = ScriptedBlocks(0.003, losing(4), accidents={4})
    found = bisected(servers)
    assert (found.first, found.skipped) == ((4, 4), {})


def test_a_version_that_fails_is_the_bad_one_if_the_last_one_fails_too() -> None:
    failing = dict.fromkeys(NAMES[3:], Reason.NOT_SPECULATING)
    servers = ScriptedBlocks(0.01, failing=failing)
    found = bisected(servers)
    assert (found.sought, found.first) == (Sought.FAULT, (3, 3))
    assert said(found, servers) == (
        "The first bad one is D (NOT_SPECULATING, which A does not show); C is as A; 14 launches."
    )


def test_a_bad_one_that_does_not_start_is_no_answer() -> None:
    servers = ScriptedBlocks(0.01, failing={"H": Reason.CONFIG_REJECTED})
    found = bisected(servers)
    assert (found.state, found.first) == (State.UNMEASURED, None)
    assert said(found, servers) == (
        "H cannot be compared with A: CONFIG_REJECTED, so it said (in 2 of 2 Blocks); 4 launches."
    )


def test_the_table_says_what_became_of_each() -> None:
    servers = ScriptedBlocks(0.0001, losing(5), failing={"C": Reason.START_OOM, "F": Reason.START_OOM})
    found = bisected(servers)
    told = {row[0].text: [entry.text for entry in row[1:]] for row in versions_table(found, NAMES).rows}
    assert told["A"][0] == "good"
    assert told["E"][0] == "good"
    assert told["F"][0].startswith("skipped: START_OOM")
    assert told["H"][:3] == ["bad", "4", "-6.0 %"]
    console = Console(width=120, record=True, file=None)
    with console.capture() as shown:
        console.print(plain(versions_table(found, NAMES)))
    assert "Against A" in shown.get()


def test_it_goes_on_from_the_blocks_of_an_earlier_start() -> None:
    whole = ScriptedBlocks(0.003, losing(4))
    bisected(whole)
    part = ScriptedBlocks(0.003, losing(4), blocks=whole.blocks[:5])
    found = bisected(part)
    assert found.first == (4, 4)
    assert len(part.blocks) <= len(whole.blocks) + 1


# Whole, on the stand-in engine


ENV = [f"{{BUILD: v{n}}}" for n in range(4)]


def asked(engines: Sequence[FakeEngine], monkeypatch: pytest.MonkeyPatch) -> Bisection:
    """Every version on an engine of its own."""
    found = bisection(pin(), ENV, "env")
    by_name = dict(zip(ENV, engines, strict=True))
    of = Bisection.version

    def version(self: Bisection, number: int, *told: object) -> Version:
        return on(of(self, number), by_name[self.values[number]])

    monkeypatch.setattr(Bisection, "version", version)
    return replace(found, good=on(found.good, engines[0]), bad=on(found.bad, engines[-1]))


def run(found: Bisection, tmp_path: Path, stop_after: int = 1000) -> tuple[Recorder, RunFolder, Stand]:
    recorder, folder = Recorder(stop_after), RunFolder(tmp_path / "run")
    return recorder, folder, run_bisection(found, folder, recorder, recorder.stopped)


def test_a_whole_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked([engine(), engine(), engine(winner=0.4), engine(winner=0.4)], monkeypatch)
    recorder, folder, now = run(found, tmp_path)
    assert (now.state, now.first) == (State.LOSS, (2, 2))
    report, code = read_run(folder)
    assert (code, report.finished) == (3, True)
    assert report.headline.startswith(f"The first bad one is {ENV[2]} (-")
    assert f"{ENV[1]} is as {ENV[0]}; {recorder.looks * 2} launches." in report.headline
    assert folder.read_json(CHECK_FILE)["first_bad"] == [ENV[2]]
    assert status_of(folder).answer == report.headline


def test_a_search_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked([engine(), engine(), engine(winner=0.4), engine(winner=0.4)], monkeypatch)
    _, folder, now = run(found, tmp_path, stop_after=4)
    assert now.step is not None
    before = folder.blocks()
    _, _, now = run(found, tmp_path)
    assert now.first == (2, 2)
    assert folder.blocks()[: len(before)] == before


def test_a_version_whose_settings_are_refused_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked([engine(), engine(), engine(winner=0.4), engine(winner=0.4)], monkeypatch)
    of = Bisection.version

    def version(self: Bisection, number: int, *told: object) -> Version:
        if number == 2:
            raise UsageError("v2: no such image")
        return of(self, number)

    monkeypatch.setattr(Bisection, "version", version)
    recorder, _, now = run(found, tmp_path)
    assert (now.first, now.skipped) == ((2, 3), {2: "v2: no such image"})
    assert "skipped: v2: no such image" in recorder.notes


def test_an_image_that_changed_since_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked([engine(), engine(), engine(winner=0.4), engine(winner=0.4)], monkeypatch)
    _, folder, _ = run(found, tmp_path, stop_after=5)
    file = folder.path / "blocks.jsonl"
    file.write_text(file.read_text().replace('"image":""', '"image":"sha256:1"'))
    with pytest.raises(UsageError, match="is another image now"):
        run(found, tmp_path)


def test_a_good_one_that_fails_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = engine(fault=lambda point: Fault.REFUSES_TO_START)
    found = asked([dead, engine(), engine(), engine()], monkeypatch)
    with pytest.raises(MeasurementInvalid, match="cannot be measured"):
        run(found, tmp_path)


@pytest.mark.parametrize(
    ("values", "key", "message"),
    [
        (["a"], "server", "the known good one, those between and the known bad one"),
        (["a", "b", "a"], "server", "named twice"),
        (["a", "b"], "", "needs `launcher: docker`"),
        (["a", "b"], "load", "it is no part of a version"),
        (["1", "2"], "args.threads", "^1: the fake engine has no flag --threads"),
    ],
)
def test_a_list_that_cannot_be_searched(values: list[str], key: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bisection(pin(TEXT), values, key)


def test_the_list_is_in_the_command_or_in_a_file(tmp_path: Path) -> None:
    assert listed("a, b,c") == ["a", "b", "c"]
    (tmp_path / "versions").write_text("# builds\na:1  # the good one\n\nb:2\n")
    assert listed(f"@{tmp_path}/versions") == ["a:1", "b:2"]
    with pytest.raises(UsageError, match="No such file"):
        listed("@nowhere")

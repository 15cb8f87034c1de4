"""The first bad version of a list, with as few launches as the noise allows.

Every Block measures one version beside the good one, never beside an old measurement of it: the machine
drifts. What a probe needs is the winner on both, two launches; the baselines are launched too only where
the loss is in what speculation gains and not in the speed that it comes to. Two probes beside one good
launch would gain nothing: a Block of one probe costs two launches and answers one question, one of three
costs four and answers two. The bad end is not launched again with each probe: how bad it is was measured
at the start, and counts with what it is worth (see analysis.nightly.first_bad).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.nightly.bisection import Stand, Step, stand
from analysis.nightly.bisection_words import sentence
from analysis.nightly.contrast import Pair, Reading
from launchers.containers.image import Told, silent
from results.errors import UsageError
from results.records import Block, Phase, Point
from results.sharing import alone
from results.store import RunFolder
from sweeps.blocks import BlockRunner, blocks_here
from sweeps.nightly.candidate import EXIT_CODES, check_folder
from sweeps.nightly.pin import Pin
from sweeps.nightly.version import (
    IMAGE_KEY,
    Version,
    changed_pin,
    environment_of,
    image_change,
    named,
    reading_of,
    version,
)
from sweeps.observer import Observer
from sweeps.opened import opened
from sweeps.outcome import CHECK_FILE
from sweeps.run import Clock, end
from sweeps.session import sessions_of, spent_s
from sweeps.setup import Setup
from sweeps.sweep import Sweep

BISECT = "bisect"


@dataclass(frozen=True)
class Bisection:
    """A list of versions, from the good one to the bad one; those two are resolved."""

    name: str
    pin: Pin
    values: tuple[str, ...]
    changes: Mapping[str, str]  # by value
    pairs: tuple[Pair, ...]
    good: Version
    bad: Version

    @property
    def sweep(self) -> Sweep:
        return self.good.plan.sweep

    def environment(self) -> Mapping[str, object]:
        """Fingerprint of what is measured and where."""
        return environment_of((self.good, self.bad), f"{BISECT} {[*self.changes.values()]}")

    def version(self, number: int, told: Told = silent) -> Version:
        """One between, resolved. Raises UsageError."""
        value = self.values[number]
        return version(self.pin, value, [self.changes[value]], told)


def bisection(pin: Pin, given: Sequence[str], key: str = "", told: Told = silent) -> Bisection:
    """Resolve both ends of a list of values of `key`; "" = container images.

    Raises UsageError before anything is started. What lies between is prepared when it is probed: an image
    that is never probed is never pulled.
    """
    values = tuple(given)
    if len(values) < 2:
        raise UsageError("--bisect takes the known good one, those between and the known bad one: A,B,C")
    if len(set(values)) < len(values):
        raise UsageError("--bisect: a version is named twice")
    changes = {v: image_change(pin, v) if key in ("", IMAGE_KEY) else f"{key}={v}" for v in values}
    pairs = tuple(named(changed_pin(pin, [changes[v]]), v) for v in values)
    good, bad = (version(pin, v, [changes[v]], told) for v in (values[0], values[-1]))
    return Bisection(f"{BISECT}-{pin.name}", pin, values, changes, pairs, good, bad)


def listed(text: str) -> list[str]:
    """`A,B,C`, or `@FILE` with one a line; what stands behind a # is a comment. Raises UsageError."""
    if not text.startswith("@"):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--bisect {text}: {getattr(error, 'strerror', None) or error}") from error
    return [part for line in lines if (part := line.partition("#")[0].strip())]


def run_bisection(
    asked: Bisection, folder: RunFolder, observer: Observer, stopped: Callable[[], bool], told: Told = silent
) -> Stand:
    """Measure until the first bad version is known, or that there is none.

    Everything it finds out is in the folder, and a later start goes on there. Raises as
    `sweeps.run.run_sweep` does.
    """
    check_folder(folder, BISECT)
    with opened(folder, asked, observer):
        past = folder.blocks()  # which grows
        clock = Clock(asked.sweep, past, spent_s(sessions_of(folder), time.time()))
        servers = _Servers(asked, folder, past, observer, told)

        def go_on() -> bool:
            return not stopped() and clock.may_confirm()

        def tell(now: Stand) -> None:
            said = write(folder, asked, now, past)
            if past:
                observer.look(len(past), ())
                observer.note(said)

        reading = reading_of(asked.sweep)
        most = most_blocks(len(asked.values), reading)
        observer.begin(Phase.CONFIRM, len(past), most)
        blocks = blocks_here(servers.good, past, alone(past), observer.arm, servers.setups, again=go_on)
        found = search(
            asked.pairs, reading, blocks, past, prepare=servers.prepare, go_on=go_on, on_block=tell
        )
        if not stopped():
            end(folder, 0, clock)
        return found


class _Servers:
    """What starts each version; one between the ends is prepared when it is probed."""

    def __init__(
        self, asked: Bisection, folder: RunFolder, past: Sequence[Block], observer: Observer, told: Told
    ) -> None:
        self._asked, self._folder, self._past = asked, folder, past
        self._observer, self._told = observer, told
        self.setups: dict[str, Setup] = {}  # by the key of a Point
        self.good = self._add(asked.good)
        self._add(asked.bad)

    def prepare(self, number: int) -> str:
        """Why a version cannot be probed; "" = it can.

        Raises UsageError if it is another one by now than an earlier start measured.
        """
        if self._asked.pairs[number].winner.key in self.setups:
            return ""
        try:
            probe = self._asked.version(number, self._told)
        except UsageError as error:
            self._observer.note(f"skipped: {error}")
            return str(error)
        self._refuse_another_image(probe)
        self._add(probe)
        return ""

    def _refuse_another_image(self, probe: Version) -> None:
        winner = probe.pair.winner
        before = {run.image for block in self._past if (run := block.arm(winner)) is not None}
        if before - {probe.plan.places(winner.image).identity}:
            raise UsageError(
                f"{probe.name} is another image now than {self._folder.path} holds records of:"
                " name another folder with --run"
            )

    def _add(self, added: Version) -> Setup:
        setup = added.plan.setup(self._folder)
        self.setups.update({added.pair.baseline.key: setup, added.pair.winner.key: setup})
        return setup


def search(
    pairs: Sequence[Pair],
    reading: Reading,
    run_block: BlockRunner,
    blocks: Sequence[Block],
    *,
    prepare: Callable[[int], str] = lambda version: "",
    go_on: Callable[[], bool] = lambda: True,
    on_block: Callable[[Stand], None] = lambda now: None,
) -> Stand:
    """Run Blocks until nothing is left to ask; `run_block` adds each to `blocks`.

    `prepare` says why a version cannot be started, "" if it can: then another one is taken.
    """
    skipped: dict[int, str] = {}
    now = stand(blocks, pairs, skipped, reading)
    on_block(now)
    while now.step is not None and go_on():
        if why := prepare(now.step.version):
            skipped[now.step.version] = why
        else:
            run_block(_arms(pairs, now.step), Phase.CONFIRM, pairs[0].winner)
        now = stand(blocks, pairs, skipped, reading)
        on_block(now)
    return now


def _arms(pairs: Sequence[Pair], step: Step) -> list[Point]:
    """What a Block launches beside the good winner."""
    probe = pairs[step.version]
    return [probe.winner, pairs[0].baseline, probe.baseline] if step.with_baselines else [probe.winner]


def most_blocks(versions: int, reading: Reading) -> int:
    """Blocks, if every question takes as many as it may."""
    probes = max(0, versions - 2).bit_length()
    return (1 + probes) * reading.looks[-1]


def write(folder: RunFolder, asked: Bisection, now: Stand, blocks: Sequence[Block]) -> str:
    """Keep what is known so far; returns it in one sentence."""
    launches = sum(len(block.arms) for block in blocks)
    said = sentence(now, asked.values, launches)
    told = document(now, asked.values)
    content = {"kind": BISECT, "name": asked.name, "sentence": said, "launches": launches, **told}
    folder.write_json(CHECK_FILE, content)
    return said


def document(now: Stand, values: Sequence[str]) -> dict[str, object]:
    """The result for other programs: log ratios against the good version, by version."""
    first = None if now.first is None else values[now.first[0] : now.first[1] + 1]
    return {
        "schema": 1,
        "state": now.state.name,
        "exit_code": EXIT_CODES[now.state],
        "finished": now.step is None,
        "first_bad": first,
        "sought": now.sought,
        "versions": [
            {
                "name": value,
                "log_ratios": list(now.figures.get(v, ())),
                "chance": now.chances.get(v),
                "skipped": now.skipped.get(v),
            }
            for v, value in enumerate(values)
        ],
    }

"""Our rules against SGLang's own: what it makes of the flags, and what its tree builder does with them."""

import json
import os
import random
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from launchers.engines.probe import Probe
from launchers.engines.sglang.install import Installation, resolved
from launchers.engines.sglang.knobs import METHODS, canonical, flag_values
from launchers.engines.sglang.rules import check
from results.errors import UsageError
from results.records import KnobValue, Point
from tests.rigs.needed import needed_rig

pytestmark = pytest.mark.rig

PAIR = Path(__file__).with_name("pair")
TREE = Path(__file__).with_name("sglang_tree.py")
ENV = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
SETTINGS = {"device": "cpu", "attention_backend": "intel_amx", "page_size": 1}
SEED, POINTS = 7, 120


@pytest.fixture(scope="module")
def installation() -> Installation:
    return Installation(str(needed_rig("sglang")))


@pytest.fixture(scope="module")
def probe(installation: Installation) -> Iterator[Probe]:
    with installation.probe(ENV) as probe:
        yield probe


def generated() -> list[Point]:
    """Legal and illegal Points of every method, each knob given or not."""
    draw = random.Random(SEED)
    points = []
    for number in range(POINTS):
        method = ("EAGLE3", "EAGLE", "NEXTN", "STANDALONE", "NGRAM")[number % 5]
        points.append(Point(method, dict(drawn(draw, method))))
    return points


def drawn(draw: random.Random, method: str) -> Iterator[tuple[str, KnobValue]]:
    for knob in METHODS[method].knobs:
        if knob.name in ("adaptive_config", "draft_attention_backend"):
            continue
        if not knob.optional or draw.random() < 0.15:
            yield knob.name, drawn_value(draw, knob.name, knob.choices)


def drawn_value(draw: random.Random, name: str, choices: tuple[KnobValue, ...]) -> KnobValue:
    if choices:
        return draw.choice(choices)
    if name.startswith("accept_threshold"):
        return draw.choice((0.5, 1.0))
    usual = {
        "topk": (0, 1, 1, 2, 4),
        "draft_tokens": (2, 3, 4, 6, 7, 8, 12, 40),
        "num_steps": (0, 1, 2, 3, 5),
    }
    return draw.choice(usual.get(name, (1, 2, 4, 8, 18)))


def words(installation: Installation, point: Point) -> list[str]:
    """A command line with exactly these values, legal or not."""
    argv = ["--model-path", str(PAIR / "target"), "--device", "cpu", "--speculative-algorithm", point.method]
    if METHODS[point.method].needs_draft:
        argv += ["--speculative-draft-model-path", str(PAIR / "head")]
    for name, value in flag_values(point).items():
        argv += installation.flags.find(name).words(value)
    return argv


def asked(point: Point) -> dict[str, KnobValue]:
    return {flag.removeprefix("--").replace("-", "_"): value for flag, value in flag_values(point).items()}


def is_legal(point: Point) -> bool:
    try:
        check(point, SETTINGS)
    except UsageError:
        return False
    return True


def test_a_legal_point_becomes_what_its_canonical_form_says(installation: Installation, probe: Probe) -> None:
    legal = [point for point in generated() if is_legal(point)]
    assert len(legal) >= 40
    assert {point.method for point in legal} == set(METHODS) - {"none"}
    for point in legal:
        answer = resolved(probe, words(installation, point))
        assert "resolved" in answer, f"{point.label}: {answer}"
        expected = asked(canonical(point))
        got = {name: answer["resolved"][name] for name in expected}
        assert got == expected, point.label


def test_an_illegal_point_is_refused_rewritten_useless_or_fatal(
    installation: Installation, probe: Probe
) -> None:
    illegal = [point for point in generated() if not is_legal(point)]
    assert len(illegal) >= 20
    ends = {point.label: end(installation, probe, point) for point in illegal}
    assert [label for label, how in ends.items() if how == "accepted"] == []
    assert {"refused", "rewritten", "useless", "fatal"} <= set(ends.values()), "every kind is met"


def end(installation: Installation, probe: Probe, point: Point) -> str:
    """What becomes of it: the first that applies."""
    answer = resolved(probe, words(installation, point))
    if "error" in answer:
        return "refused"
    if any(answer["resolved"][name] != value for name, value in asked(point).items()):
        return "rewritten"
    real, *shallower = drafted(installation.python, point)
    if "error" in real:
        return "fatal"
    return "useless" if shallower == [real] else "accepted"


def shapes(point: Point) -> list[list[KnobValue]]:
    """What SGLang's drafter is given, and for a tree also its steps cut to what its tokens can reach."""
    values = asked(point)
    if point.method == "NGRAM":
        names = ("min_bfs_breadth", "max_bfs_breadth", "max_trie_depth")
        store = [values[f"speculative_ngram_{name}"] for name in names]
        return [["ngram", *store, values["speculative_num_draft_tokens"]]]
    steps, topk, draft = (values[f"speculative_{n}"] for n in ("num_steps", "eagle_topk", "num_draft_tokens"))
    reachable = [[int(draft) - 1, topk, draft]] if int(draft) - 1 < int(steps) else []
    return [[steps, topk, draft], *reachable]


@cache
def all_drafted(python: str) -> Mapping[str, object]:
    """By shape, for every illegal Point, in one process: starting one takes long."""
    wanted = [json.dumps(shape) for point in generated() if not is_legal(point) for shape in shapes(point)]
    done = subprocess.run(
        [python, str(TREE)],
        input="\n".join(wanted),
        env={**os.environ, **ENV},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    answers = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("TREE ")]
    return dict(zip(wanted, answers, strict=True))


def drafted(python: str, point: Point) -> list[Mapping[str, object]]:
    found = [all_drafted(python)[json.dumps(shape)] for shape in shapes(point)]
    return [answer for answer in found if isinstance(answer, dict)]

"""The Space holds canonical, legal Points only, each once."""

from dataclasses import replace

import pytest

from results.errors import UsageError
from results.records import Point
from sweeps.space import Rules, Space, baseline_space, build_space, iter_start_points
from sweeps.sweep import KnobSpec, Range
from tests.knobs_engine import SERVED, knobs_engine


def space(wanted: dict[str, object] | None = None) -> Space:
    return build_space(knobs_engine(), SERVED, wanted or {})  # type: ignore[arg-type]


def test_dead_knobs_fall_away_and_illegal_points_are_not_there() -> None:
    points = space({"tree": None}).points.values()
    # topk 1: four values of steps, draft dead; topk 4: draft 4 with steps 1, 2, 3 and draft 8 with all
    assert len(points) == 4 + 3 + 4
    assert all("draft" not in p.knobs for p in points if p.knobs["topk"] == 1)


def test_an_empty_space_means_every_method() -> None:
    assert {p.method for p in space().points.values()} == {"tree", "lookup"}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"tre": {}}, "'tre' is no method (did you mean 'tree'?)"),
        ({"none": {}}, "the baseline, it is always measured"),
        ({"tree": {"n": [4]}}, "'n' is no knob of tree: it belongs to lookup"),
        ({"tree": {"step": [4]}}, "'step' is no knob of tree (did you mean 'steps'?)"),
        ({"tree": {"NCCL_PROTO": [4]}}, "'NCCL_PROTO' is no knob of tree: variables and flags"),
        ({"tree": {"steps": [0]}}, "tree.steps: 0 is outside the engine's range 1 to 16"),
        ({"tree": {"steps": [17]}}, "tree.steps: 17 is outside the engine's range 1 to 16"),
        ({"tree": {"steps": ["three"]}}, "tree.steps: 'three' is not a number"),
        ({"tree": {"steps": [True]}}, "tree.steps: True is not a number"),
        ({"tree": {"steps": [2.5]}}, "tree.steps: 2.5 is not a whole number"),
        ({"tree": {"steps": []}}, "tree.steps: no value given"),
        ({"lookup": {"kind": ["other"]}}, "lookup.kind: 'other' is not one of plain, fuzzy"),
        ({"tree": {"steps": [5], "topk": [4], "draft": [4]}}, "steps=5 is in no legal Point: draft (4) must"),
        ({"tree": {"steps": [3, 5], "topk": [4], "draft": [4]}}, "steps=5 is in no legal Point: draft (4)"),
        ({"lookup": {"loose": [False, True]}}, "loose=True is in no legal Point: lookup kind=plain"),
        ({"lookup": {"schedule": [3]}}, "lookup.schedule: 3 is not text"),
        ({"lookup": {"loose": True}}, "loose takes near misses; set `allow_lossy: true`"),
        ({"tree": {k: Range(low=1, high=5000) for k in ("steps", "topk")}}, "outside the engine's range"),
    ],
)
def test_mistakes_are_explained(wanted: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        space(wanted)
    assert message in str(error.value)


def test_single_values_and_ranges_are_values() -> None:
    found = space({"tree": {"steps": Range(low=1, high=3), "topk": 1}})
    assert [p.knobs["steps"] for p in found.points.values()] == [1, 2, 3]


def test_neighbours_differ_by_one_step_of_one_knob() -> None:
    found = space({"tree": {"steps": [1, 2, 3], "topk": [4], "draft": [4, 8]}})
    around = {p.label for p in found.neighbours(Point("tree", {"steps": 2, "topk": 4, "draft": 4}))}
    assert around == {
        "tree draft=4 steps=1 topk=4",
        "tree draft=4 steps=3 topk=4",
        "tree draft=8 steps=2 topk=4",
    }


def test_neighbours_of_a_dead_knob_still_exist() -> None:
    found = space({"tree": {"steps": [1, 2], "topk": [1, 4], "draft": [4, 8]}})
    around = {p.label for p in found.neighbours(Point("tree", {"steps": 1, "topk": 1}))}
    assert "tree steps=2 topk=1" in around


def test_starting_points_are_moved_into_the_space() -> None:
    found = space({"tree": {"steps": [2, 5]}, "lookup": {"n": [4, 8]}})
    assert [p.label for p in iter_start_points(found)] == ["tree steps=2 topk=1", "lookup kind=plain n=4"]


def test_an_optional_knob_is_no_part_of_a_point_at_its_default() -> None:
    found = build_space(
        knobs_engine(), SERVED, {"lookup": {"loose": [False, True]}}, rules=Rules(allow_lossy=True)
    )
    points = [*found.points.values()]
    assert {p.knobs.get("loose") for p in points} == {None, True}
    plain = Point("lookup", {"n": 4, "kind": "plain"})
    assert "lookup kind=plain loose=True n=4" in {p.label for p in found.neighbours(plain)}
    assert found.parameters(plain)["lookup.loose"] is False


def test_a_knob_may_be_text() -> None:
    found = space({"lookup": {"n": 4, "kind": "plain", "schedule": ["", "1-4:3,5-:0"]}})
    assert [p.knobs.get("schedule") for p in found.points.values()] == [None, "1-4:3,5-:0"]


def test_ignored_rules_let_illegal_points_through() -> None:
    wanted: dict[str, dict[str, KnobSpec]] = {"tree": {"steps": [5], "topk": [4], "draft": [4]}}
    found = build_space(knobs_engine(), SERVED, wanted, rules=Rules(ignored=True))
    assert [p.label for p in found.points.values()] == ["tree draft=4 steps=5 topk=4"]


def test_shared_settings_are_knobs_of_every_method_and_of_the_baseline() -> None:
    served = replace(SERVED, args={"batch": 8})
    wanted: dict[str, dict[str, KnobSpec]] = {
        "tree": {"steps": [1, 2], "topk": 1},
        "lookup": {"n": 4, "kind": "plain"},
    }
    found = build_space(knobs_engine(), served, wanted, {"batch": [8, 16, 32]})
    assert {p.label for p in found.points.values()} == {
        f"{method} {batch}{knobs}"
        for method, knobs in (
            ("tree", "steps=1 topk=1"),
            ("tree", "steps=2 topk=1"),
            ("lookup", "kind=plain n=4"),
        )
        for batch in ("", "--batch=16 ", "--batch=32 ")
    }
    without = baseline_space(found)
    assert without is not None
    assert {p.label for p in without.points.values()} == {"none", "none --batch=16", "none --batch=32"}
    assert all(p.is_baseline for p in without.points.values())


def test_shared_settings_are_checked_as_arguments_are() -> None:
    with pytest.raises(UsageError, match="--nonsense=1 is in no legal Point: no flag --nonsense"):
        build_space(knobs_engine(), SERVED, {}, {"--nonsense": [1]})
    assert baseline_space(build_space(knobs_engine(), SERVED, {})) is None

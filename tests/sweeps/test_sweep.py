"""The sweep file: what is accepted, and how mistakes are explained."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from results.errors import UsageError
from sweeps.prepare import prepare
from sweeps.sweep import Range, Sweep, load_sweep, parse_sweep


def test_an_empty_file_is_a_whole_sweep() -> None:
    assert parse_sweep("") == Sweep()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budgt: {}", "budgt: unknown key (did you mean 'budget'?)"),
        ("workload: {clases: [chat]}", "workload.clases: unknown key (did you mean 'classes'?)"),
        ("space: {m: {k: {low: 1, hgh: 2}}}", "space.m.k.hgh: unknown key (did you mean 'high'?)"),
        ("space: {m: {k: {low: 3, high: 2}}}", "low (3) is above high (2)"),
        ("budget: {trials: 0}", "budget.trials: Input should be greater than or equal to 1"),
        ("limits: {ttft_p96_s: 1}", "unknown limit 'ttft_p96_s' (did you mean 'ttft_p"),
        ("confirm: {looks: [8, 4]}", "looks must rise"),
        ("load: []", "load: List should have at least 1 item"),
        ("name: ../x", "name: String should match pattern"),
        ("a: [", "is not valid YAML"),
        ("just words", "expected `key: value` lines, found str"),
        ("workload: {lengths: some}", "Input should be 'fixed' or 'natural'"),
    ],
)
def test_mistakes_are_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_sweep(text)
    assert message in str(error.value)


def test_overrides_reach_nested_keys() -> None:
    sweep = parse_sweep("budget: {trials: 3}", ["budget.trials=7", "space.ngram-mod.n_match=[4, 8]"])
    assert sweep.budget.trials == 7
    assert sweep.space == {"ngram-mod": {"n_match": [4, 8]}}


@pytest.mark.parametrize("override", ["budget", "=3", "name.x=1", "seed=["])
def test_bad_overrides_are_explained(override: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        parse_sweep("name: x", [override])


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tuner init"):
        load_sweep(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ({"low": 1, "high": 4}, (1, 2, 3, 4)),
        ({"low": 2, "high": 9, "step": 3}, (2, 5, 8)),
        ({"low": 1, "high": 16, "factor": 2}, (1, 2, 4, 8, 16)),
        ({"low": 0, "high": 0.3, "step": 0.1}, (0, 0.1, 0.2, 0.3)),
    ],
)
def test_ranges(spec: dict[str, float], values: tuple[float, ...]) -> None:
    assert Range(**spec).values() == values


def test_secrets_are_removed_from_the_resolved_file() -> None:
    sweep = Sweep(env={"HF_TOKEN": "planted", "NCCL_PROTO": "LL"}, args={"api-key": "planted"})
    assert "planted" not in sweep.to_yaml()
    assert "LL" in sweep.to_yaml()


def test_identity_ignores_budget_and_name_only() -> None:
    assert Sweep(name="a", budget={"trials": 3}).identity() == Sweep(name="b").identity()  # type: ignore[arg-type]
    assert Sweep(seed=2).identity() != Sweep().identity()
    again = parse_sweep(Sweep(env={"HF_TOKEN": "x"}).to_yaml())
    assert again.identity() == Sweep(env={"HF_TOKEN": "x"}).identity()


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
        max_leaves=8,
    )
)
def test_any_yaml_is_a_sweep_or_a_usage_error(content: object) -> None:
    try:
        parse_sweep(yaml.safe_dump(content))
    except UsageError as error:
        assert str(error)


def test_images_are_values_of_a_sweep_in_containers_alone() -> None:
    with pytest.raises(UsageError, match="image is for `launcher: docker`"):
        parse_sweep("shared: {image: [a, b]}")
    parse_sweep("launcher: docker\ncontainer: {image: a}\nshared: {image: [a, b]}")


def test_a_secret_argument_is_refused_since_engines_print_it() -> None:
    with pytest.raises(UsageError, match="args: api-key is a secret"):
        prepare(Sweep(engine="fake", args={"api-key": "planted"}))


@pytest.mark.parametrize("value", ["\x85", "a\u2028b", "é", "line\nbreak", "\x1b"])
def test_any_text_survives_being_written_down(value: str) -> None:
    asked = Sweep.model_validate({"env": {"GREETING": value}})
    assert parse_sweep(asked.to_yaml()).env == {"GREETING": value}

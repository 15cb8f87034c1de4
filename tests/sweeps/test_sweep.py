"""The sweep file: what is accepted, and how mistakes are explained."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from results.errors import UsageError
from sweeps.prepare import prepare
from sweeps.sweep import Range, Sweep, json_schema, load_sweep, parse_sweep


def test_without_a_text_all_is_by_default() -> None:
    assert parse_sweep("") == Sweep()


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n# comments\n", "---\n", "null\n"])
def test_an_empty_file_says_how_to_get_a_sweep(text: str, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"sweep.yaml is empty: `tuner init` writes a sweep file"):
        load_sweep(file, ["seed=2"])
    file.write_text("{}")
    assert load_sweep(file) == Sweep()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budgt: {}", "budgt: unknown key (did you mean 'budget'?)"),
        ("workload: {clases: [chat]}", "workload.clases: unknown key (did you mean 'classes'?)"),
        ("space: {m: {k: {low: 1, hgh: 2}}}", "space.m.k.hgh: unknown key (did you mean 'high'?)"),
        ("space: {m: {k: {low: 3, high: 2}}}", "low (3) is above high (2)"),
        ("budget: {trials: 0}", "budget.trials: expected a whole number from 1 to 1,000,000,000, not 0"),
        ("limits: {ttft_p96_s: 1}", "unknown limit 'ttft_p96_s' (did you mean 'ttft_p"),
        ("confirm: {looks: [8, 4]}", "looks must rise"),
        ("load: []", "load: expected a list of at least one entry"),
        ("name: ../x", "name: '../x' cannot name a folder: write letters"),
        ("a: [", "is not valid YAML"),
        ("just words", "expected lines like `key: value`, found 'just words'"),
        ("workload: {lengths: some}", "workload.lengths: expected 'fixed' or 'natural', not 'some'"),
        ("engine: llamacp", "not 'llamacp' (did you mean 'llamacpp'?)"),
        ("budget: 3", "budget: expected a section with the keys trials, baseline_trials"),
        (
            "budget: {trials: null}",
            "budget.trials: expected a whole number from 1 to 1,000,000,000, not no",
        ),
        ("budget: {trials: yes}", "budget.trials: expected a whole number from 1 to 1,000,000,000, not true"),
        ("budget: {baseline_every: some}", "expected a whole number from 1 to 1,000,000,000, or 'auto'"),
        ("workload: {context: [0, -1]}", "workload.context.1: expected a whole number from 0 to"),
        (
            "workload: {files: prompts.jsonl}",
            "workload.files: expected a list, each text, not 'prompts.jsonl'",
        ),
        ("env: {NCCL_P2P_DISABLE: 1}", "env.NCCL_P2P_DISABLE: expected text, not 1: in quotes it is text"),
        ("name: 42", "name: expected text, not 42: in quotes it is text"),
        (
            "launcher: docker\ncontainer: {image: a, options: {hi: 1}}",
            ": container.options.hi: no such option",
        ),
        ("on: {}", "true: a key here is text: put it in quotes"),
        ("weights: {contexts: {8k: 2}}", "weights.contexts.8k: a key here is a whole number"),
        (
            "weights: {classes: {chat: 1.0e+308}}",
            "weights.classes.chat: expected a number from 0 to 1,000,000,000",
        ),
        ("launcher: ray\nray: {cpus: 0, gpus: 0}", "a server must take something of a node"),
        ("launcher: ray\nray: {cpus: -1}", "ray.cpus: expected a number"),
        ("launcher: ray\nray: {resources: {slot: -1}}", "ray.resources.slot: expected a number above 0"),
        ("space: {m: {k: {low: 1}}}", "space.m.k.high: is missing: expected a number"),
        ("space: {m: {k: [1, .nan]}}", "space.m.k.1: expected a value, not nan"),
        (
            "patience: {start_timeout_s: 1.0e+300}",
            "expected a number above 0 and up to 1,000,000,000, not a number",
        ),
        ("limits: {ttft_p95_s: soon}", "expected a number above 0, or an amount like '24 GiB', not 'soon'"),
        ("env: {HF_TOKEN: 271828}", "env.HF_TOKEN: expected text, not <secret>"),
        ("seed: 1\nbudget: {trials: 3}\nseed: 2", "line 3, column 1: the key 'seed' stands there twice"),
        ("budget:\n\ttrials: 3", "line 2, column 1: a tab cannot indent: use spaces"),
        ("seed: " + "9" * 5000, "a value in it cannot be read"),
        ("seed: 0x" + "F" * 5000, "not a number of more than 18 digits"),
        ("a: " + "[" * 2000, "it is nested too deeply"),
        ("seed: !!timestamp 2026-13-45", "a value in it cannot be read"),
        ('model: "a\\0b"', "line 1, column 8: a text with a null character"),
        ("name: 2026-11-30\nseed: x", "seed: expected a whole number"),
        ("launcher: docker\ncontainer: {image: a, gpus: 100000000}", "container.gpus: 100000000 is neither"),
        ("seed: &a [*a]", "seed: expected a whole number of 0 or more"),
    ],
)
def test_mistakes_are_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_sweep(text)
    assert message in str(error.value)


FOREIGN = (
    "Input should",
    "type=",
    "pydantic",
    "For further information",
    "Section",
    "planted-",
    "validation error",
)
ODD_VALUES: list[object] = [
    *(None, True, -1, 0, 3, 10**30, 0.5, -0.5, math.nan, math.inf, -math.inf, 1e300, "", "some words"),
    *([], [None], [[]], {}, {"nope": 1}, {"nope": {}}, {1: 2}, {"low": math.nan, "high": 1}),
]


def _places(schema: dict[str, Any], part: dict[str, Any]) -> Iterator[list[Any]]:
    """Every key that the schema knows, with one of each kind of name that a user chooses."""
    options = part.get("anyOf", [part])
    for option in options:
        option = schema["$defs"][option["$ref"].rpartition("/")[2]] if "$ref" in option else option
        inner = dict(option.get("properties", {}))
        if isinstance(option.get("additionalProperties"), dict):
            inner["any_name"] = option["additionalProperties"]
        for value in option.get("patternProperties", {}).values():
            inner["any_name"] = value
        for key, value in inner.items():
            yield [key]
            yield from ([key, *deeper] for deeper in _places(schema, value))


PLACES = [*_places(dict(json_schema()), dict(json_schema()))]


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_every_key_takes_an_odd_value_or_says_what_it_expects(place: list[str]) -> None:
    for value in ODD_VALUES:
        content: object = value
        for key in reversed(place):
            content = {key: content}
        try:
            parse_sweep(yaml.safe_dump(content))
        except UsageError as error:
            said = str(error)
            assert all(line.startswith(f"sweep file: {place[0]}") for line in said.splitlines()), said
            assert not [word for word in FOREIGN if word in said], said
            assert max(map(len, said.splitlines())) < 700, said
        else:
            assert not _is_not_finite(value), value


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def test_no_place_is_left_out() -> None:
    assert len(PLACES) > 80
    assert ["space", "any_name", "any_name", "factor"] in PLACES
    assert ["container", "options"] in PLACES


def test_what_looks_like_a_date_is_text() -> None:
    asked = parse_sweep("name: 2026-11-30\nenv: {BUILD: 2026-11-30}")
    assert (asked.name, asked.env) == ("2026-11-30", {"BUILD": "2026-11-30"})
    assert parse_sweep(asked.to_yaml()) == asked


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

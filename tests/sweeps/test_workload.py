"""Prompts: what ships, what users bring, and what is refused."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.accuracy import Reference
from results.errors import UsageError
from sweeps.workload import (
    CLASSES,
    Prompt,
    check_context,
    estimate_tokens,
    from_file,
    prompt_set_hash,
    random_token_prompts,
    shipped,
    split_prompts,
)

LONGEST_PROMPT_TOKENS = 900  # by the upper bound; leaves half of a 2k context to the answer


def chat(content: str, prompt_id: str = "p", **fields: object) -> Prompt:
    return Prompt(prompt_id, "chat", ({"role": "user", "content": content},), **fields)  # type: ignore[arg-type]


def written(folder: Path, *entries: object, name: str = "mine.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps(e) for e in entries), encoding="utf-8")
    return path


def both_splits(workload_class: str) -> list[Prompt]:
    return shipped(workload_class, "tuning", None) + shipped(workload_class, "validation", None)


def trigrams(prompt: Prompt) -> set[tuple[str, ...]]:
    words = "".join(prompt.content).lower().split()
    return set(zip(words, words[1:], words[2:], strict=False))


@pytest.mark.parametrize("workload_class", CLASSES)
class TestShipped:
    def test_each_split_has_enough(self, workload_class: str) -> None:
        for split in ("tuning", "validation"):
            assert len(shipped(workload_class, split, None)) >= 24

    def test_ids_and_contents_are_unique_over_both_splits(self, workload_class: str) -> None:
        prompts = both_splits(workload_class)
        assert len({p.id for p in prompts}) == len(prompts)
        assert len({p.content for p in prompts}) == len(prompts)
        assert all(p.id.startswith(f"{workload_class}-{(p.split or '?')[0]}") for p in prompts)

    def test_no_two_are_near_duplicates(self, workload_class: str) -> None:
        """Under a fifth of their three-word runs in common: not one template with the names changed."""
        for (a, left), (b, right) in combinations(
            [(p.id, trigrams(p)) for p in both_splits(workload_class)], 2
        ):
            assert len(left & right) < 0.2 * min(len(left), len(right)), (a, b)

    def test_fits_a_small_context(self, workload_class: str) -> None:
        sizes = {p.id: estimate_tokens(p) for p in both_splits(workload_class)}
        assert {i: n for i, n in sizes.items() if n > LONGEST_PROMPT_TOKENS} == {}

    def test_is_one_user_message_of_that_class(self, workload_class: str) -> None:
        for prompt in both_splits(workload_class):
            assert [m["role"] for m in prompt.messages] == ["user"]
            assert prompt.workload_class == workload_class

    def test_count_takes_the_first_ones(self, workload_class: str) -> None:
        assert shipped(workload_class, "tuning", 3) == shipped(workload_class, "tuning", None)[:3]


def test_unknown_class_names_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"'poetry'.*code_edit"):
        shipped("poetry", "tuning", None)


@pytest.mark.parametrize("count", [0, -1, 10_000])
def test_impossible_count_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=r"asked for; there are \d\d"):
        shipped("code_edit", "validation", count)


class TestFormats:
    def test_plain_prompts(self, tmp_path: Path) -> None:
        path = written(
            tmp_path, {"prompt": "Hello"}, {"prompt": "Bye", "class": "b", "max_tokens": 7, "id": "x"}
        )
        assert from_file(path, "a") == [
            Prompt("mine-1", "a", text="Hello"),
            Prompt("x", "b", text="Bye", max_tokens=7),
        ]

    def test_chat_messages(self, tmp_path: Path) -> None:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        path = written(tmp_path, {"messages": messages, "split": "validation", "id": 12})
        assert from_file(path) == [Prompt("12", "mine", tuple(messages), split="validation")]

    @pytest.mark.parametrize("speaker", ["human", "user"])
    def test_sharegpt_asks_the_first_human_turn(self, tmp_path: Path, speaker: str) -> None:
        turns = [("system", "S"), (speaker, "Why?"), ("gpt", "Because."), (speaker, "Really?")]
        entries = [
            {"id": "only_gpt", "conversations": [{"from": "gpt", "value": "Hm."}]},
            {"id": "none", "conversations": []},
            {"id": "blank", "conversations": [{"from": speaker, "value": " "}]},
            {"id": "abc_0", "conversations": [{"from": f, "value": v} for f, v in turns]},
        ]
        path = written(tmp_path, entries, name="sharegpt.json")
        assert from_file(path) == [Prompt("abc_0", "sharegpt", ({"role": "user", "content": "Why?"},))]

    def test_question_files_keep_their_categories(self, tmp_path: Path) -> None:
        path = written(
            tmp_path,
            {"question_id": 81, "category": "writing", "turns": ["First", "Second"], "reference": ["r"]},
            {"question_id": 241, "category": "rag", "turns": ["Only"]},
        )
        assert [(p.id, p.workload_class, p.content) for p in from_file(path)] == [
            ("81", "writing", ("First", "")),
            ("241", "rag", ("Only", "")),
        ]

    def test_indented_array_of_prompts(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.json"
        path.write_text(json.dumps([{"prompt": "a"}, {"prompt": "b"}], indent=2))
        assert [p.id for p in from_file(path)] == ["mine-1", "mine-2"]

    def test_byte_order_mark_blank_lines_and_windows_line_ends(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.jsonl"
        path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n  \r\n{"prompt": "b"}\r\n')
        assert [(p.id, p.text) for p in from_file(path)] == [("mine-1", "a"), ("mine-4", "b")]

    def test_unicode_line_separators_do_not_end_a_line(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.jsonl"
        path.write_text('{"prompt": "a\u2028b\x85c"}\n', encoding="utf-8")
        assert [p.text for p in from_file(path)] == ["a\u2028b\x85c"]


GOOD = '{"prompt": "fine"}'
NEEDED = "exactly one of `prompt`, `messages`, `turns`, `conversations` is needed"


class TestRefused:
    @pytest.mark.parametrize(
        ("bad", "why"),
        [
            ('{"prompt": "x"', "broken JSON: .* at column 15"),
            ("hello", "broken JSON: .* at column 1"),
            ("[" * 100_000, "JSON out of bounds"),
            ('{"id": ' + "1" * 5000 + "}", "JSON out of bounds"),
            ("3", "Expected `object`, got `int`"),
            ('["x"]', "Expected `object`, got `array`"),
            ('{"question": "x"}', NEEDED),
            ('{"prompt": "x", "turns": ["y"]}', NEEDED),
            ('{"prompt": ["x"]}', r"got `array` - at `\$.prompt`"),
            ('{"prompt": ""}', r"\$.prompt"),
            ('{"prompt": " \\n"}', r"\$.prompt"),
            ('{"prompt": "x", "max_tokens": 0}', r">= 1 - at `\$.max_tokens`"),
            ('{"prompt": "x", "max_tokens": true}', r"\$.max_tokens"),
            ('{"prompt": "x", "class": ""}', r"\$.class"),
            ('{"prompt": "x", "id": 1.5}', r"\$.id"),
            ('{"prompt": "x", "split": "test"}', r"Invalid enum value 'test' - at `\$.split`"),
            ('{"prompt": "x\\ud800"}', "surrogates not allowed"),
            ('{"messages": []}', "must end with a message of the user"),
            ('{"messages": [{"role": "assistant", "content": "x"}]}', "must end with a message of the user"),
            ('{"messages": [{"role": "user"}]}', "missing required field `content`"),
            ('{"messages": [{"role": "usr", "content": "x"}]}', "Invalid enum value 'usr'"),
            ('{"messages": [{"role": "user", "content": [{"type": "text"}]}]}', r"\$.messages\[0\].content"),
            ('{"messages": [{"role": "user", "content": "x", "name": "y"}]}', "unknown field `name`"),
            ('{"turns": []}', "`turns` is empty"),
            ('{"turns": "x"}', r"\$.turns"),
            ('{"conversations": [{"from": "human"}]}', "missing required field `value`"),
        ],
    )
    def test_bad_line_is_named(self, tmp_path: Path, bad: str, why: str) -> None:
        path = tmp_path / "mine.jsonl"
        path.write_text(f"{GOOD}\n\n{bad}\n{GOOD}\n")
        with pytest.raises(UsageError, match=rf"mine\.jsonl:3: .*{why}"):
            from_file(path)

    def test_broken_array_names_the_line(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.json"
        path.write_text('[\n {"prompt": "a"},\n {"prompt": }\n]')
        with pytest.raises(UsageError, match=r"mine\.json:3: broken JSON"):
            from_file(path)

    def test_bad_entry_of_an_array_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"mine\.jsonl: entry 2: .*got `int` - at `\$\.prompt`"):
            from_file(written(tmp_path, [{"prompt": "a"}, {"prompt": 1}]))

    @pytest.mark.parametrize("content", ["", " \n\n", "\ufeff"])
    def test_empty_file(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "mine.jsonl"
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UsageError, match=r"mine\.jsonl: the file is empty"):
            from_file(path)

    def test_nothing_to_ask(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"mine\.jsonl: no usable prompt"):
            from_file(written(tmp_path, [{"conversations": [{"from": "gpt", "value": "x"}]}]))

    def test_missing_file_and_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"gone\.jsonl: cannot be read: No such file"):
            from_file(tmp_path / "gone.jsonl")
        with pytest.raises(UsageError, match="cannot be read: Is a directory"):
            from_file(tmp_path)

    def test_not_utf8_names_the_line(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.jsonl"
        path.write_bytes(GOOD.encode() + b'\n{"prompt": "caf\xe9"}\n')
        with pytest.raises(UsageError, match=r"mine\.jsonl:2: not UTF-8"):
            from_file(path)

    def test_duplicate_ids_name_both_lines(self, tmp_path: Path) -> None:
        path = written(tmp_path, {"prompt": "a", "id": "7"}, {"prompt": "b", "id": 7})
        with pytest.raises(
            UsageError, match=r"mine\.jsonl:2: the id '7' was used before, at .*mine\.jsonl:1"
        ):
            from_file(path)


KEYS = st.sampled_from(
    ["prompt", "messages", "turns", "conversations", "id", "class", "max_tokens", "split", "role", "content"]
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["user", "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=4),
    max_leaves=12,
).map(json.dumps)


@given(lines=st.lists(ANY_JSON.map(str.encode) | st.binary(max_size=30) | st.just(GOOD.encode()), max_size=4))
def test_any_file_gives_prompts_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"\n".join(lines))
    try:
        prompts = from_file(path)
    except UsageError as error:
        assert str(error).encode().startswith(str(path).encode())
    else:
        assert prompts
        assert len({p.id for p in prompts}) == len(prompts)
        assert all("".join(p.content).strip() for p in prompts)


class TestSplit:
    def test_halves_each_class_whatever_the_order(self) -> None:
        prompts = [Prompt(f"{c}{i}", c, text=f"{c} question {i}") for c in ("a", "b") for i in range(11)]
        tuning, validation = split_prompts(prompts, seed=1)
        assert [[p.workload_class for p in half].count("a") for half in (tuning, validation)] == [6, 5]
        assert {p.id for p in tuning} | {p.id for p in validation} == {p.id for p in prompts}
        reversed_tuning, _ = split_prompts(prompts[::-1], seed=1)
        assert {p.id for p in reversed_tuning} == {p.id for p in tuning}
        assert {p.id for p in split_prompts(prompts, seed=2)[0]} != {p.id for p in tuning}

    def test_keeps_what_the_file_says(self) -> None:
        prompts = [chat(str(i), str(i), split="validation" if i < 2 else "tuning") for i in range(6)]
        assert split_prompts(prompts, seed=1) == (prompts[2:], prompts[:2])

    def test_repeats_are_left_out(self) -> None:
        tuning, validation = split_prompts([chat("a", "1"), chat("b", "2"), chat("a", "3")], seed=1)
        assert {p.id for p in tuning + validation} == {"1", "2"}

    def test_too_few_different_prompts(self) -> None:
        with pytest.raises(UsageError, match="class chat: 1 different prompts to tune on and 0 held out"):
            split_prompts([chat("a", "1"), chat("a", "2")], seed=1)

    def test_named_splits_need_both(self) -> None:
        with pytest.raises(UsageError, match="0 held out"):
            split_prompts([chat("a", split="tuning"), chat("b", split="tuning")], seed=1)

    def test_half_named_splits_are_refused(self) -> None:
        with pytest.raises(UsageError, match="either every prompt names its split, or none"):
            split_prompts([chat("a", split="tuning"), chat("b"), chat("c")], seed=1)

    def test_the_same_prompt_in_both_splits_is_refused(self) -> None:
        with pytest.raises(UsageError, match="prompts 1 and 2 are the same"):
            split_prompts([chat("a", "1", split="tuning"), chat("a", "2", split="validation")], seed=1)


def test_random_prompts_repeat_with_their_seed_only() -> None:
    prompts = random_token_prompts(3, words=20, seed=5)
    assert prompts == random_token_prompts(3, words=20, seed=5)
    assert prompts != random_token_prompts(3, words=20, seed=6)
    assert [len("".join(p.content).split()) for p in prompts] == [20, 20, 20]
    assert len({p.content for p in prompts}) == len({p.id for p in prompts}) == 3


class TestPromptSetHash:
    def test_is_pinned(self) -> None:
        """It is stored with every Block: if it changes, old histories no longer match."""
        assert (
            prompt_set_hash([chat("Hello"), Prompt("q", "a", text="Grüße", max_tokens=5)])
            == "b50a4d95e3f39e49"
        )

    def test_depends_on_what_is_sent_and_its_order(self) -> None:
        a, b = chat("a"), chat("b")
        different = [
            [a, b],
            [b, a],
            [a],
            [],
            [chat("ab")],
            [chat("a", max_tokens=1), b],
            [Prompt("p", "chat", text="a")],
        ]
        assert len({prompt_set_hash(s) for s in different}) == len(different)

    def test_does_not_depend_on_names_or_key_order(self) -> None:
        renamed = Prompt("other", "b", ({"content": "a", "role": "user"},), split="tuning")
        assert prompt_set_hash([renamed]) == prompt_set_hash([chat("a")])


def test_estimate_counts_digits_and_signs_one_by_one_and_letters_by_bytes() -> None:
    assert estimate_tokens(Prompt("p", "c", text="2026-11-30")) == 10
    assert estimate_tokens(Prompt("p", "c", text="abcdef")) == 3
    assert estimate_tokens(Prompt("p", "c", text="漢字")) == 3
    assert estimate_tokens(chat("abcde")) == 2 + 4


class TestContext:
    def test_prompt_and_answer_may_fill_it(self) -> None:
        check_context([chat("a")], max_tokens=30, context_tokens=100, count_tokens=lambda _: 70)

    def test_one_token_too_many_names_prompt_and_figures(self) -> None:
        with pytest.raises(UsageError, match=r"prompt long: 71 tokens .* up to 30 .* context of 100"):
            check_context(
                [chat("a", "ok"), chat("b", "long")], 30, 100, lambda p: 71 if p.id == "long" else 1
            )

    def test_the_prompts_own_answer_length_counts(self) -> None:
        with pytest.raises(UsageError, match="up to 31"):
            check_context([chat("a", max_tokens=31)], 10, 100, lambda _: 70)


# --- references


def one(tmp_path: Path, **entry: object) -> Prompt:
    (tmp_path / "refs.jsonl").write_text(json.dumps({"id": "a", **entry}))
    return from_file(tmp_path / "refs.jsonl")[0]


@pytest.mark.parametrize(
    ("entry", "reference"),
    [
        ({"prompt": "x"}, None),
        ({"prompt": "x", "reference": "42"}, Reference(("42",), "exact")),
        ({"prompt": "x", "reference": ["a", "b"], "match": "contains"}, Reference(("a", "b"), "contains")),
        (
            {"messages": [{"role": "user", "content": "x"}], "reference": "7", "match": "number"},
            Reference(("7",), "number"),
        ),
        ({"turns": ["x"], "reference": ["a long answer", ""]}, None),
        ({"turns": ["x"], "reference": {"any": "shape"}}, None),
        ({"turns": ["x"], "reference": ["42"], "match": "number"}, Reference(("42",), "number")),
    ],
)
def test_references(entry: dict[str, object], reference: Reference | None, tmp_path: Path) -> None:
    assert one(tmp_path, **entry).reference == reference


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"reference": []}, "`reference` must be a text"),
        ({"reference": 42}, "`reference` must be a text"),
        ({"reference": ["a", " "]}, "`reference` must be a text"),
        ({"match": "exact"}, "`reference` must be a text"),
        ({"reference": "many", "match": "number"}, "'many' has none"),
        ({"reference": "a", "match": "fuzzy"}, "fuzzy"),
    ],
)
def test_mistakes_in_references(entry: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        one(tmp_path, prompt="x", **entry)
    assert "refs.jsonl:1" in str(raised.value)


def test_references_are_not_sent_and_move_no_prompt_to_the_other_half(tmp_path: Path) -> None:
    plain, scored = one(tmp_path, prompt="x"), one(tmp_path, prompt="x", reference="y")
    assert prompt_set_hash([plain]) == prompt_set_hash([scored])

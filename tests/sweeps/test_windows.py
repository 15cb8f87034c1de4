import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.errors import UsageError
from results.records import Cell
from sweeps import workload
from sweeps.pace import Closed, Poisson
from sweeps.windows import Grid, lengthened
from sweeps.workload import Prompt, estimate_tokens

CHAT = workload.shipped("chat", "tuning", None)
CODE = workload.shipped("code_edit", "tuning", None)
MATERIAL = {"chat": CHAT, "code_edit": CODE}


def test_the_grid_has_every_class_pace_and_context_once() -> None:
    paces = [Closed(1), Closed(4)]
    grid = Grid(MATERIAL, [0, 1024], 3, MATERIAL)
    found = grid.windows(paces)
    assert [w.cell for w in found] == [
        Cell(c, pace, context)
        for pace in ("closed(1)", "closed(4)")
        for context in (None, 1024)
        for c in ("chat", "code_edit")
    ]
    assert [len(w.prompts) for w in found] == [3, 3, 3, 3, 8, 8, 8, 8]  # closed(4): two rounds of each stream
    ids = [(w.cell.workload_class, p.id) for w in found for p in w.prompts]
    assert len(set(ids)) == len(ids) == 2 * grid.needed(paces)


def test_labels_say_the_context_only_where_one_is_asked_for() -> None:
    assert Cell("chat", "closed(1)").label == "chat @ closed(1)"
    assert Cell("chat", "closed(1)", 1024).label == "chat @ closed(1) @ 1024 tokens"


def test_an_open_loop_takes_what_it_is_given() -> None:
    assert Grid(MATERIAL, [0], 3, MATERIAL).needed([Poisson(2.0)]) == 3


@pytest.mark.parametrize("tokens", [512, 1024, 4096])
def test_a_prompt_is_lengthened_to_about_the_context(tokens: int) -> None:
    prompt = CHAT[0]
    longer = lengthened(prompt, tokens, MATERIAL)
    assert longer.id == prompt.id
    assert longer.messages[-1]["content"].endswith(prompt.messages[-1]["content"])
    assert 0.9 * tokens < 0.6 * estimate_tokens(longer) < 1.1 * tokens + 20


def test_no_two_prompts_share_a_prefix() -> None:
    starts = [lengthened(p, 512, MATERIAL).content[-2][:120] for p in (*CHAT, *CODE)]
    assert len(set(starts)) == len(starts)


def test_context_0_leaves_a_prompt_alone() -> None:
    assert lengthened(CHAT[0], 0, MATERIAL) is CHAT[0]


def test_a_plain_prompt_is_lengthened_too() -> None:
    plain = Prompt("p", "chat", text="And then?")
    assert lengthened(plain, 512, MATERIAL).text.endswith("And then?")


def test_a_system_message_stays_first() -> None:
    prompt = Prompt(
        "p", "chat", ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"})
    )
    longer = lengthened(prompt, 512, MATERIAL)
    assert [m["role"] for m in longer.messages] == ["system", "user"]
    assert longer.messages[0]["content"] == "Be brief."


def test_a_context_shorter_than_the_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="use 0 for prompts as they are"):
        lengthened(CODE[0], 16, MATERIAL)


def test_a_context_that_the_text_does_not_fill_is_refused() -> None:
    with pytest.raises(UsageError, match="there is text for about"):
        lengthened(CHAT[0], 100_000_000, MATERIAL)


@given(st.lists(st.text(min_size=1, max_size=300), min_size=1, max_size=8), st.integers(1, 400))
def test_whatever_the_texts_are_it_is_long_enough_or_refused(texts: list[str], tokens: int) -> None:
    material = {"x": [Prompt(str(i), "x", text=t) for i, t in enumerate(texts)]}
    try:
        longer = lengthened(material["x"][0], tokens, material)
    except UsageError:
        return
    assert longer.text.endswith(texts[0])
    assert estimate_tokens(longer) >= tokens

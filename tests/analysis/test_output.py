import json

import pytest

from analysis.output import compare_outputs, degeneration, is_degenerate

PROSE = (
    "The lighthouse had stood on the rocks for more than a century, and nobody in the village could "
    "remember a night without its beam. When the keeper died, his daughter took over the lamp, and for "
    "a while nothing changed. Ships still came and went, fishermen still swore at the fog, and the post "
    "arrived on Thursdays. Then the company sent a letter about automation."
)
CHINESE = (
    "投机解码通过一个较小的草稿模型一次提出多个候选词元，再由目标模型并行验证，从而在不改变输出分布的前提下提高"
    "生成速度。它的收益取决于接受率、批量大小以及硬件的算力和带宽之比。当并发较高时，验证的代价会超过收益。"
)
CODE = '''def parse(line: str) -> dict[str, int]:
    """Split a line of key=value pairs."""
    result = {}
    for part in line.split(","):
        key, _, value = part.partition("=")
        if not key:
            raise ValueError(f"no key in {part!r}")
        result[key.strip()] = int(value)
    return result


class Counter:
    def __init__(self) -> None:
        self.a = 0
        self.b = 0
        self.c = 0

    def reset(self) -> None:
        self.a = 0
        self.b = 0
        self.c = 0
'''
REPETITIVE_BUT_RIGHT = {
    "prose": PROSE,
    "chinese": CHINESE,
    "code": CODE,
    "code with rules": "# " + "-" * 70 + "\n" + CODE + "# " + "-" * 70,
    "markdown table": "| Name | Qty | Price |\n|------|-----|-------|\n"
    + "\n".join(f"| Item {i} | {i * 3} | ${i * 7}.00 |" for i in range(1, 25)),
    "multiplication table": "\n".join(
        "| " + " | ".join(str(a * b) for b in range(1, 13)) + " |" for a in range(1, 13)
    ),
    "json": json.dumps(
        [{"id": i, "name": f"user{i}", "active": True, "mail": f"u{i}@example.com"} for i in range(20)],
        indent=2,
    ),
    "sql": "\n".join(f"INSERT INTO users (id, name) VALUES ({i}, 'user{i}');" for i in range(1, 30)),
    "numbered list": "\n".join(f"{i}. Item number {i}" for i in range(1, 40)),
    "csv": "date,open,close\n" + "\n".join(f"2024-01-{i:02d},{100 + i}.5,{101 + i}.25" for i in range(1, 29)),
    "counting song": "\n".join(
        f"{n} bottles of beer on the wall, {n} bottles of beer. Take one down and pass it around, "
        f"{n - 1} bottles of beer on the wall."
        for n in range(99, 85, -1)
    ),
    "chorus": "Row, row, row your boat,\nGently down the stream.\nMerrily, merrily, merrily, merrily,\n"
    "Life is but a dream.\n\n" * 3,
    "short": "Yes, yes, yes, yes!",
    "number": "42",
}
FAULTS = {
    "one token": " the" + "!" * 28,
    "one token for long": "!" * 4000,
    "sentence": "The capital of France is Paris. " + "It is a beautiful city. " * 12,
    "paragraph": (PROSE[:260] + " ") * 5,
    "chinese sentence": "投机解码可以提高速度。" * 12,
    "late loop, cut mid-way": PROSE + " and so on and so on, in the end" * 12 + " and so",
    "loop of lines": "Let me think again.\nWait, that is not right.\n" * 15,
    "replacement characters": "The \ufffd\ufffd\ufffd answer \ufffd\ufffd is given below here.",
    "control characters": "answer" + "\x00\x01" * 20,
}


@pytest.mark.parametrize("name", REPETITIVE_BUT_RIGHT)
def test_repetition_that_means_something_passes(name: str) -> None:
    assert degeneration(REPETITIVE_BUT_RIGHT[name]).signs == ()


@pytest.mark.parametrize("name", FAULTS)
def test_loops_and_garbage_are_found(name: str) -> None:
    assert is_degenerate(FAULTS[name], None)
    assert is_degenerate(FAULTS[name], PROSE)


def test_what_the_baseline_also_writes_is_no_fault() -> None:
    zeros = "\n".join("0 " * 12 for _ in range(12))
    assert is_degenerate(zeros, None)
    assert not is_degenerate(zeros, zeros)


def test_an_empty_text_is_a_fault_only_where_the_baseline_has_one() -> None:
    assert is_degenerate(" \n", PROSE)
    assert not is_degenerate("", "")
    assert not is_degenerate("", None)


def test_the_measures_of_a_loop() -> None:
    found = degeneration("Hello there. " + "abcdef" * 20)
    assert found.loop_share == pytest.approx(120 / 133)
    assert found.distinct_words is None  # two words say nothing
    assert found.distinct_characters is not None and found.distinct_characters < 0.2
    assert found.replacement_share == 0.0


def test_outputs_are_compared_prompt_by_prompt() -> None:
    found = compare_outputs(
        {"a": "same", "b": "left", "c": "x", "d": "ab"}, {"a": "same", "b": "lend", "d": "abc"}
    )
    assert (found.compared, found.identical) == (3, 1)
    assert found.first_divergence_chars == (2, 2)
    assert found.identical_share == pytest.approx(1 / 3)
    assert compare_outputs({}, {"a": "x"}).identical_share is None

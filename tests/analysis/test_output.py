import json

import pytest

from analysis.output import (
    around_difference,
    compare_outputs,
    degeneration,
    divergence_chars,
    divergence_shares,
    is_degenerate,
    pooled,
)
from analysis.wrong_output import wrong_in_one_cell, wrong_output
from results.reasons import Reason
from results.records import BASELINE, Cell, OutputCheck
from tests.analysis.build import FAST, arm, measurement, request

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
    "one letter": "B",
    "deep indentation": "\n".join("    " * i + f"if a{i}:" for i in range(12)),
    "rulers of a comment": "#" * 80 + "\n# Title\n" + "#" * 80 + "\nx = 1\n" + "#" * 80,
    "aligned table": f"| {'a':20} | {'b':20} |\n|{'-' * 22}|{'-' * 22}|\n"
    + "".join(f"| {w:20} | {len(w):20} |\n" for w in PROSE.split()[:14]),
    "grid": "+----------+----------+\n"
    + "+----------+----------+\n".join(f"| {w:8} | {i:8} |\n" for i, w in enumerate(PROSE.split()[:9])),
    "css": "\n".join(f".m-{i} {{ margin: {i}px; }}\n.p-{i} {{ padding: {i}px; }}" for i in range(1, 25)),
    "error handling": "\n".join(
        f"x{i}, err := step{i}(ctx)\nif err != nil {{\n\treturn nil, err\n}}" for i in range(12)
    ),
    "japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗い所で"
    "ニャーニャー泣いていた事だけは記憶している。",
    "thai": "ประเทศไทยเป็นประเทศที่ตั้งอยู่ในภูมิภาคเอเชียตะวันออกเฉียงใต้ มีพรมแดนติดกับประเทศลาวและกัมพูชา",
    "arabic": "اللغة العربية هي أكثر اللغات تحدثا ونطقا ضمن مجموعة اللغات السامية وإحدى أكثر اللغات",
    "two scripts": "使用GPU加速LLM推理时，KV缓存和CUDA图可以显著降低延迟，但HBM带宽仍然是瓶颈。",
    "greek letters": "Let α be the rate and β the cost; then αβ > 1 implies Δx → 0, and µ = 3 µm for all ε.",
    "number": "42",
}
FAULTS = {
    "blank": " \n" * 60,
    "text, then blank lines": PROSE + "\n" * 400,
    "zero width": "\u200b" * 120,
    "padding tokens": "<pad>" * 40,
    "numbered sentence": "\n".join(f"{i}. The answer is correct." for i in range(1, 40)),
    "sentence with a counter": " ".join(f"Step {i}: I need to check the answer again." for i in range(1, 30)),
    "two sentences in turns": "I think so. But wait, maybe not. " * 12,
    "loop in the middle": PROSE[:150] + " and again" * 60 + PROSE[150:],
    "korean loop": "안녕하세요 반갑습니다 " * 20,
    "thai loop": "สวัสดีครับผมชื่อ" * 14,
    "few exclamation marks": "!!!!!!!!",
    "short loop of two": "ab" * 10,
    "noise of all scripts": "".join(
        chr((0x416, 0x4E2D, 0x61, 0x627, 0xAC00, 0x3B1)[i * 7 % 6] + i % 9) for i in range(200)
    ),
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
    if FAULTS[name].strip():  # without a reference an empty text is not judged
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


def test_a_short_answer_may_be_what_it_looks_like() -> None:
    assert not is_degenerate("11111111", "00000000")  # both are one unit
    assert not is_degenerate("yes yes yes", PROSE)


def test_where_answers_part_by_place_and_in_characters() -> None:
    same = "x" * 100
    ends = {"a": 0, "b": 9, "c": 10, "d": 49, "e": 99}
    others = {p: same[:at] + "y" + same[at + 1 :] for p, at in ends.items()}
    found = compare_outputs(dict.fromkeys([*ends, "f"], same), {**others, "f": same})
    assert found.answer_chars == (100,) * 5
    assert divergence_shares(found) == pytest.approx((2 / 6, 1 / 6, 1 / 6, 0, 1 / 6))
    assert divergence_chars(found) == {"p10": 0, "p50": 10, "p90": 99}


def test_an_answer_that_only_ends_earlier_parts_at_its_end() -> None:
    found = compare_outputs({"a": "abcd", "b": ""}, {"a": "abcdefgh", "b": "abc"})
    assert found.first_divergence_chars == (4, 0)
    assert divergence_shares(found) == (0.5, 0, 0, 0.5, 0)
    longer = compare_outputs({"a": "abc"}, {"a": "abc"})
    assert divergence_shares(longer) == (0, 0, 0, 0, 0)
    assert divergence_chars(longer) == {}


def test_pooling_keeps_every_divergence() -> None:
    a, b = OutputCheck(3, 1, (5, 7), (10, 10)), OutputCheck(2, 1, (1,), (4,))
    assert pooled([a, None, b]) == OutputCheck(5, 2, (5, 7, 1), (10, 10, 4))
    assert pooled([]).identical_share is None
    assert divergence_shares(pooled([])) is None
    assert divergence_shares(OutputCheck(2, 1, (3,))) is None  # a record without lengths


def test_two_answers_are_shown_around_the_place_where_they_part() -> None:
    at, left, right = around_difference("s" * 500 + "left" + "l" * 500, "s" * 500 + "right")
    assert at == 500
    assert left == "…" + "s" * 100 + "left" + "l" * 196 + "…"
    assert right == "…" + "s" * 100 + "right"
    assert around_difference("ab", "ac") == (1, "ab", "ac")


CELLS = [Cell(f"class{i}", "closed(1)") for i in range(12)]


def replies(bad: Cell | None) -> list[object]:
    return [
        request(f"p{n}", text="!" * 60 if cell == bad else PROSE + str(n), workload_class=cell.workload_class)
        for cell in CELLS
        for n in range(2)
    ]


def test_garbage_in_one_cell_of_many_is_found_though_it_is_few_among_all() -> None:
    run, baseline = (arm(p, *(measurement(c) for c in CELLS)) for p in (FAST, BASELINE))
    spoiled, sound = replies(CELLS[7]), replies(None)
    assert wrong_output(spoiled, sound, 0.10) is None  # type: ignore[arg-type]
    failure = wrong_in_one_cell(run, spoiled, baseline, sound)  # type: ignore[arg-type]
    assert failure is not None and failure.reason is Reason.INVALID_OUTPUT
    assert failure.evidence.startswith("class7 @ closed(1): 2 of 2 replies loop")
    assert wrong_in_one_cell(run, sound, baseline, sound) is None  # type: ignore[arg-type]
    assert wrong_in_one_cell(run, spoiled, baseline, spoiled) is None  # type: ignore[arg-type]
    assert wrong_in_one_cell(run, spoiled[1:], baseline, sound) is None  # type: ignore[arg-type]

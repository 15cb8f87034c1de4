import pytest

from analysis.labels import grouped, short_labels
from results.records import Cell, Point
from tests.analysis.maps import COPY, GUESS, LONG, cells


def test_a_short_label_has_what_tells_points_of_a_method_apart() -> None:
    found = short_labels([COPY, LONG, GUESS, COPY])
    assert found == {
        COPY.key: "ngram-simple size_m=8",
        LONG.key: "ngram-simple size_m=32",
        GUESS.key: "draft-simple",
    }
    more = Point(LONG.method, {**LONG.knobs, "min_hits": 2})
    assert short_labels([LONG, more])[more.key] == "ngram-simple min_hits=2"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (cells(contexts=[None]), "code_edit, chat @ closed(1), closed(4)"),
        (cells(contexts=[1024]), "code_edit, chat @ closed(1), closed(4), 1024 tokens"),
        (cells(), "code_edit, chat @ closed(1), closed(4), prompts as they are or 1024 tokens"),
        (
            cells()[:-1],
            "code_edit, chat @ closed(1), closed(4), prompts as they are;"
            " code_edit, chat @ closed(1), 1024 tokens; code_edit @ closed(4), 1024 tokens",
        ),
        ([Cell("a", "closed(1)"), Cell("b", "closed(4)")], "a @ closed(1); b @ closed(4)"),
        ([Cell("a @ b", "replay(x @ y.csv)")], "a @ b @ replay(x @ y.csv)"),
    ],
)
def test_cells_are_said_in_few_words(found: list[Cell], said: str) -> None:
    assert grouped([c.label for c in found]) == said


def test_what_is_no_label_of_a_cell_is_left_alone() -> None:
    assert grouped(["odd"]) == "odd"
    assert grouped([]) == ""

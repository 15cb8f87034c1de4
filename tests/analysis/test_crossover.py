"""Where speculation stops paying, in sentences."""

from collections.abc import Sequence

import pytest

from analysis.crossover import all_sentences, sentences
from analysis.loadmap import load_map
from analysis.report_input import ReportInput
from results.records import Cell
from tests.analysis.maps import COPY, confirmed, searched

PACES = ("closed(1)", "closed(4)", "closed(8)", "closed(16)")
GAIN, LOSS, SAME = 0.3, -0.3, 0.0


def along_load(*logs: float, wide: Sequence[int] = (), limited: Sequence[int] = ()) -> ReportInput:
    grid = [Cell("chat", pace) for pace in PACES[: len(logs)]]
    return confirmed(
        [(COPY, dict(zip(grid, logs, strict=True)))],
        wide=[grid[i] for i in wide],
        limited=[(COPY, grid[i]) for i in limited],
    )


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (
            along_load(GAIN, GAIN, LOSS),
            "Speculation stops paying between closed(4) and closed(8) for chat.",
        ),
        (
            along_load(GAIN, SAME, LOSS),
            "Speculation stops paying between closed(1) and closed(4) for chat.",
        ),
        (along_load(LOSS, GAIN), "Speculation starts paying between closed(1) and closed(4) for chat."),
        (
            along_load(GAIN, LOSS, GAIN, GAIN),
            "Speculation pays at closed(1), does not pay at closed(4), pays at closed(8) and closed(16)"
            " for chat.",
        ),
        (
            along_load(GAIN, 0.05, LOSS, wide=[1]),
            "Speculation pays at closed(1), is not decided at closed(4), does not pay at closed(8) for chat.",
        ),
        (
            along_load(GAIN, LOSS, LOSS, limited=[2]),
            "Speculation pays at closed(1), does not pay at closed(4), is capacity-limited at closed(8)"
            " for chat.",
        ),
    ],
)
def test_a_crossover_lies_between_two_measured_loads(report: ReportInput, said: str) -> None:
    assert sentences(load_map(report)) == [said]


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (along_load(GAIN, GAIN), "chat: pays at every load measured."),
        (along_load(LOSS, SAME), "chat: does not pay at any load measured."),
        (along_load(GAIN, 0.05, wide=[1]), "chat: pays at closed(1), is not decided at closed(4)."),
        (along_load(GAIN, GAIN, limited=[1]), "chat: pays at closed(1), is capacity-limited at closed(4)."),
    ],
)
def test_where_there_is_none_nothing_is_said_on_top(report: ReportInput, said: str) -> None:
    found = load_map(report)
    assert found is not None
    assert (sentences(found), all_sentences(found)) == ([], [said])


def test_search_estimates_make_no_crossover() -> None:
    cells = [Cell("chat", pace) for pace in PACES[:2]]
    found = load_map(searched([(COPY, dict(zip(cells, (GAIN, LOSS), strict=True)))]))
    assert found is not None
    assert (sentences(found), all_sentences(found), sentences(None)) == ([], [], [])


def grid(**at: float) -> ReportInput:
    """Gains by class and length; each loses at closed(4)."""
    logs = {}
    for key, gain in at.items():
        name, _, length = key.partition("_")
        for pace, log in (("closed(1)", gain), ("closed(4)", LOSS)):
            logs[Cell(name, pace, int(length) or None)] = log
    return confirmed([(COPY, logs)])


def test_what_holds_at_every_length_is_said_once() -> None:
    report = grid(chat_0=GAIN, chat_512=GAIN, code_0=GAIN, code_512=GAIN)
    assert sentences(load_map(report)) == [
        "Speculation stops paying between closed(1) and closed(4) for chat and code."
    ]


def test_what_holds_at_one_length_names_it_and_both_coordinates_are_followed() -> None:
    report = grid(chat_0=GAIN, chat_512=LOSS, code_0=GAIN, code_512=GAIN)
    assert sentences(load_map(report)) == [
        "Speculation stops paying between closed(1) and closed(4)"
        " for code and chat with prompts as they are.",
        "Speculation stops paying between prompts as they are and 512 tokens for chat at closed(1).",
    ]


def test_loads_of_two_kinds_are_no_line() -> None:
    logs = {Cell("chat", pace): GAIN for pace in ("closed(1)", "poisson(2/s)", "replay(a.csv)")}
    found = load_map(confirmed([(COPY, logs)]))
    assert found is not None
    assert all_sentences(found) == []


def test_rates_are_in_order_of_number_not_of_letters() -> None:
    logs = {Cell("chat", f"poisson({rate}/s)"): log for rate, log in ((16, LOSS), (2, GAIN), (0.5, GAIN))}
    (said,) = sentences(load_map(confirmed([(COPY, logs)])))
    assert "stops paying between poisson(2/s) and poisson(16/s)" in said

"""The lines of a log that belong to a failure, and nothing in them that must not be shown."""

import pytest

from analysis.excerpt import LINES_AFTER, LINES_BEFORE, MOST_CHARACTERS, excerpt

LOG = "\n".join(f"line {i} of the log" for i in range(100))


def test_the_lines_around_what_the_evidence_quotes() -> None:
    found = excerpt(LOG, "the server ended: line 50 of the log")
    assert found is not None and found.shows == LINES_BEFORE
    assert found.lines[found.shows] == "line 50 of the log"
    assert len(found.lines) == LINES_BEFORE + 1 + LINES_AFTER


def test_evidence_that_is_part_of_a_line_finds_it() -> None:
    found = excerpt("12:00 E cudaMalloc failed: out of memory at 3\nbye", "cudaMalloc failed: out of memory")
    assert found is not None and found.shows == 0


def test_the_last_of_several_lines_is_the_one() -> None:
    found = excerpt("cannot allocate memory\nretrying\ncannot allocate memory\nbye", "cannot allocate memory")
    assert found is not None and found.shows == 2


@pytest.mark.parametrize("evidence", ["no token for 60 s", "", "line"])
def test_the_end_of_the_log_where_nothing_is_quoted(evidence: str) -> None:
    log = LOG if evidence != "line" else "one\ntwo\nthree"
    found = excerpt(log, evidence)
    assert found is not None and found.shows is None
    assert found.lines[-1] == log.splitlines()[-1]
    assert len(found.lines) <= LINES_BEFORE + 1 + LINES_AFTER


@pytest.mark.parametrize("log", ["", "\n\n  \n"])
def test_an_empty_log_has_no_excerpt(log: str) -> None:
    assert excerpt(log, "whatever happened") is None


def test_a_progress_bar_is_lines_and_a_long_line_is_cut() -> None:
    found = excerpt("10 %\r20 %\r\x1b[31m" + "x" * 5000, "")
    assert found is not None
    assert found.lines == ("10 %", "20 %", "x" * MOST_CHARACTERS + "…")


def test_secrets_are_masked() -> None:
    found = excerpt("args: api_key='abc123' --hf-token hf_abcdefghijklmnopqrstuvwx\nfailed to start now", "")
    assert found is not None
    assert "abc123" not in str(found) and "hf_abc" not in str(found)

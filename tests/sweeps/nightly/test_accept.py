"""Accepted shifts: found, written as one line each, read back; a broken line is named."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from results.errors import UsageError
from results.nights import BASELINE, SPEED_UP, Accepted, Night, NightKind, NightVerdict
from sweeps.nightly.accept import accept, accepted_file, read_accepted
from tests.recorded_nights import FIRST_AT, NIGHT_S, night

CHAT = f"{SPEED_UP}/chat @ closed(4)"
REASON = "engine 0.5.7 is slower here: upstream knows"


@pytest.fixture
def pin(tmp_path: Path) -> Path:
    return tmp_path / "pinned.yaml"


def nights(*alarms: str | None, machine: str = "gpu-01") -> list[Night]:
    """One night each with its alarms, separated by spaces of two; None = nothing could be measured."""
    return [
        night(at, machine=machine, verdict=NightVerdict.INVALID, values={})
        if names is None
        else night(at, machine=machine, alarms=tuple(filter(None, names.split("  "))))
        for at, names in enumerate(alarms)
    ]


def began(number: int) -> float:
    """As the file has it: whole seconds, and not after the night."""
    assert FIRST_AT % 1 == 0.25
    return FIRST_AT - 0.25 + number * NIGHT_S


def test_nothing_was_accepted_without_a_file(pin: Path) -> None:
    assert read_accepted(pin) == []


def test_a_shift_begins_with_the_first_of_the_unbroken_alarms(pin: Path) -> None:
    added = accept(pin, nights(SPEED_UP, "", SPEED_UP, SPEED_UP, f"{SPEED_UP}  {CHAT}"), REASON)
    assert added == [
        Accepted(began(2), SPEED_UP, REASON, "gpu-01"),
        Accepted(began(4), CHAT, REASON, "gpu-01"),
    ]
    assert read_accepted(pin) == added
    assert all(shift.since_at <= night(number).began_at for shift, number in zip(added, (2, 4), strict=True))


def test_the_line_is_as_people_read_it(pin: Path) -> None:
    accept(pin, nights("", f"{SPEED_UP}  {CHAT}"), REASON)
    since = datetime.fromtimestamp(began(1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert accepted_file(pin) == pin.parent / "pinned.accepted.yaml"
    assert accepted_file(pin).read_text().splitlines() == [
        f'- {{since: {since}, series: speed_up, machine: gpu-01, reason: "{REASON}"}}',
        f'- {{since: {since}, series: "{CHAT}", machine: gpu-01, reason: "{REASON}"}}',
    ]


def test_machines_are_accepted_each_by_itself(pin: Path) -> None:
    history = [
        *nights("", SPEED_UP, SPEED_UP, machine="a"),
        *nights("", "", SPEED_UP, machine="b"),
        *nights(SPEED_UP, SPEED_UP, "", machine="c"),
    ]
    added = accept(pin, sorted(history, key=lambda n: n.began_at), REASON)
    assert [(shift.since_at, shift.machine) for shift in added] == [(began(1), "a"), (began(2), "b")]


def test_a_night_that_was_not_measured_neither_ends_a_run_nor_hides_it(pin: Path) -> None:
    history = nights("", SPEED_UP, None, SPEED_UP, None)
    history.append(night(5, kind=NightKind.AA))
    assert accept(pin, history, REASON) == [Accepted(began(1), SPEED_UP, REASON, "gpu-01")]


def test_only_the_series_that_are_named(pin: Path) -> None:
    history = nights("", f"{SPEED_UP}  {CHAT}  {BASELINE}")
    assert [shift.series for shift in accept(pin, history, REASON, [CHAT, BASELINE])] == [CHAT, BASELINE]


@pytest.mark.parametrize(
    ("since", "at"),
    [
        ("2026-11-30T02:10:00Z", datetime(2026, 11, 30, 2, 10, tzinfo=UTC)),
        ("2026-11-30T02:10:00+02:00", datetime(2026, 11, 30, 0, 10, tzinfo=UTC)),
        ("2026-11-30 02:10", datetime(2026, 11, 30, 2, 10, tzinfo=UTC)),
        ("2026-11-30", datetime(2026, 11, 30, tzinfo=UTC)),
        ("2026-11-30T02:10:00.125Z", datetime(2026, 11, 30, 2, 10, 0, 125_000, tzinfo=UTC)),
    ],
)
def test_a_beginning_that_is_named(pin: Path, since: str, at: datetime) -> None:
    added = accept(pin, nights("", SPEED_UP), REASON, since=since)
    assert added == [Accepted(at.timestamp(), SPEED_UP, REASON, "gpu-01")] == read_accepted(pin)


def test_with_a_beginning_nothing_need_be_in_alarm(pin: Path) -> None:
    history, since = nights("", ""), "2026-11-30"
    at = datetime(2026, 11, 30, tzinfo=UTC).timestamp()
    assert accept(pin, history, REASON, since=since) == [Accepted(at, "all", REASON, "all")]
    assert accept(pin, history, REASON, [CHAT], since) == [Accepted(at, CHAT, REASON, "all")]
    assert accept(pin, [], REASON, [BASELINE], since) == [Accepted(at, BASELINE, REASON, "all")]
    assert len(read_accepted(pin)) == 3


def test_what_was_accepted_is_not_written_again(pin: Path) -> None:
    history = nights("", SPEED_UP)
    first = accept(pin, history, REASON)
    with pytest.raises(UsageError, match="has all of this already"):
        accept(pin, history, "another reason")
    more = accept(pin, nights("", f"{SPEED_UP}  {CHAT}"), "another reason")
    assert [shift.series for shift in more] == [CHAT]
    assert read_accepted(pin) == [*first, *more]


@pytest.mark.parametrize(
    ("history", "arguments", "message"),
    [
        (nights(SPEED_UP, ""), {}, "nothing is in alarm in the latest night: .* --since"),
        ([], {}, "nothing is in alarm"),
        (nights(SPEED_UP), {"series": [SPEED_UP, CHAT]}, r"^speed_up/chat @ closed\(4\) is not in alarm"),
        (nights(SPEED_UP), {"since": "yesterday"}, "--since yesterday is no time: write it as 2026-11-30"),
        (nights(SPEED_UP), {"since": "2026-13-30"}, "--since 2026-13-30 is no time"),
        (nights(SPEED_UP), {"reason": ""}, "needs its reason"),
        (nights(SPEED_UP), {"reason": " \n\t"}, "needs its reason"),
    ],
)
def test_what_cannot_be_accepted(
    pin: Path, history: list[Night], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        accept(pin, history, **{"reason": REASON, **arguments})  # type: ignore[arg-type]
    assert not accepted_file(pin).exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(min_size=1).filter(str.strip),
    st.lists(st.text(min_size=1), min_size=1, max_size=3, unique=True),
    st.text(min_size=1),
)
@example('said "no": it\'s {a}, [b] # c\n- d\\', ["yes", "1"], "2026-11-30")
@example("\x00\x85\u2028\ufeff\U0001f600 ü", ["null"], "~")
def test_whatever_a_reason_says_comes_back(pin: Path, reason: str, series: list[str], machine: str) -> None:
    accepted_file(pin).unlink(missing_ok=True)
    shown = [night(0, machine=machine, alarms=tuple(series))]
    added = accept(pin, shown, reason)
    assert added == [Accepted(began(0), name, reason, machine) for name in series]
    assert read_accepted(pin) == added
    assert accepted_file(pin).read_bytes().count(b"\n") == len(series)


@pytest.mark.parametrize(
    "written",
    [
        "# why this file\n\n",
        "# no line's end",
        "- since: 2026-11-01 # by hand\n  series: all\n  reason: |\n    of several\n    lines",
        "- {since: 2026-11-01, series: all, reason: x}\r\n# from Windows\r\n",
        "---\n- {series: all, since: 2026-11-01T00:00:00Z, reason: 'x'}",
    ],
)
def test_what_people_wrote_stays(pin: Path, written: str) -> None:
    accepted_file(pin).write_bytes(written.encode())
    before = read_accepted(pin)
    added = accept(pin, nights(SPEED_UP), REASON)
    content = accepted_file(pin).read_bytes()
    assert content.startswith(written.encode())
    after = read_accepted(pin)
    assert after[len(before) :] == added
    assert [shift.reason.rstrip() for shift in before] == [s.reason.rstrip() for s in after[: len(before)]]


@pytest.mark.parametrize(
    "written", ["[]\n", "  - {since: 2026-11-01, series: all, reason: x}\n", "[]\n...\n"]
)
def test_a_file_that_no_line_can_be_appended_to_is_left_alone(pin: Path, written: str) -> None:
    accepted_file(pin).write_text(written)
    with pytest.raises(UsageError, match=r"add by hand\n- \{since: .*, series: speed_up") as refused:
        accept(pin, nights(SPEED_UP), REASON)
    assert accepted_file(pin).read_text() == written
    assert yaml.safe_load(str(refused.value).splitlines()[-1])[0]["reason"] == REASON


GOOD = "# the first\n- {since: 2026-11-01, series: all, reason: x}\n"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("- {since: 2026-11-30, series: all}", "line 3: reason: Field required"),
        ("- {since: 2026-11-30, series: all, reason: ' '}", "line 3: reason: says nothing"),
        ("- {since: 2026-11-30, series: all, reason: yes}", "line 3: reason: expected text"),
        ("- {since: 2026-11-30, series: '', reason: x}", "line 3: series: "),
        ("- {since: today, series: all, reason: x}", "line 3: since: "),
        ("- {since: 2026-13-45, series: all, reason: x}", "line 3: month must be in 1..12"),
        ("- {since: 2026-11-30, serie: all, reason: x}", "line 3: "),
        ("- {since: 2026-11-30, series: all, reason: x, by: me}", "line 3: by: unknown key"),
        ("-\n  since: 2026-11-30\n  series: [a]\n  reason: x", "line 4: series: "),
        ("- all", r"line 3: expected \{since: TIME"),
        ("- {since: 2026-11-30, series: all, reason: torn", "line 3 is not valid YAML"),
        ("- {since: 2026-11-30, series: all, reason: it: is}", "line 3 is not valid YAML"),
        ("<<<<<<< HEAD", "line 3 is not valid YAML"),
        ("- !!python/name:os.system x", "line 3 is not valid YAML"),
        ("# \x00", "line 3 has a character that no text file has"),
    ],
)
def test_a_broken_line_is_named(pin: Path, written: str, message: str) -> None:
    accepted_file(pin).write_text(GOOD + written)
    with pytest.raises(UsageError, match=rf"pinned\.accepted\.yaml, {message}"):
        read_accepted(pin)
    with pytest.raises(UsageError, match=message):
        accept(pin, nights(SPEED_UP), REASON)
    assert accepted_file(pin).read_text() == GOOD + written


def test_a_file_that_is_no_text_or_not_to_be_used(pin: Path) -> None:
    accepted_file(pin).write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"cannot read .*pinned\.accepted\.yaml"):
        read_accepted(pin)
    with pytest.raises(UsageError, match=r"cannot write .*pinned\.accepted\.yaml: No such file"):
        accept(pin.parent / "nowhere" / "pinned.yaml", nights(SPEED_UP), REASON)

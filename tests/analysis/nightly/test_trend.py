"""The trend page and its other forms: they say the same, hold what is there, and stay small."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from analysis.nightly import trend
from analysis.nightly.course import Trend
from analysis.nightly.trend_series import family, short_title, title
from results.nights import LENGTH, POSITION, SPEED_UP, Accepted, Night
from tests.analysis.nightly.trends import SAMPLES, four_hundred, nights, one_regression, sample
from tests.analysis.test_report import Page

HOSTILE = '<script>alert("1")</script>\x1b[31m & `|` $x$'


def page(name: str) -> str:
    return trend.html(sample(name))


def headings(document: str) -> list[str]:
    return [re.sub(r"<[^>]+>", "", h) for h in re.findall(r"<h[12][^>]*>(.*?)</h[12]>", document)]


def test_the_top_says_the_verdict_and_since_when() -> None:
    document = page("regression")
    assert headings(document)[0] == "Regression"
    head = document.partition("<header")[2].partition("</header>")[0]
    assert "2026-11-30 02:12 UTC, 1 night" in head
    assert "Speed-up 12 % below its bound, twice." in head
    assert "<dt>Last good</dt><dd><p>2026-11-29" in head


def test_many_machines_have_a_table_of_verdicts_and_a_section_each() -> None:
    document = page("machines")
    assert headings(document)[:3] == [
        "1 of 2: regression",
        "qwen3-eagle3 on gpu-box-1",
        "qwen3-eagle3 on gpu-box-2",
    ]
    assert "<table" in document.partition("<header")[2].partition("</header>")[0]


def test_nights_of_the_baseline_against_itself_have_their_own_section() -> None:
    assert '<section id="aa">' not in page("regression")
    section = page("machines").partition('<section id="aa">')[2].partition("</section>")[0]
    assert "0 of 6 A/A nights would have been measured again" in section
    assert section.count("<svg") == 1


def test_series_in_alarm_come_first_and_are_open_told_ones_last() -> None:
    document = page("many")
    folds = re.findall(r"<details( open)?><summary>([^<]+: \d+ series[^<]*)</summary>", document)
    assert [said for _, said in folds] == [
        "Speed-up by Cell: 10 series, 1 in alarm",
        "Acceptance length by Cell: 10 series, 1 in alarm",
        "Acceptance per position: 4 series, 1 in alarm",
        "Baseline throughput by Cell: 10 series",
        "Told, never judged: 3 series",
    ]
    assert [bool(opened) for opened, _ in folds] == [True, True, True, False, False]
    first = document.partition("Speed-up by Cell")[2].partition("<strong>")[2]
    assert first.startswith("code_edit @ closed(1)</strong>")


def test_a_page_of_a_year_of_forty_series_stays_small() -> None:
    made, _ = four_hundred()
    assert len(made) == 400 and len(made[0].values) == 40
    assert len(page("many").encode()) < 2_000_000


def test_what_began_is_told_newest_first() -> None:
    document = page("segments")
    table = document.partition("What began when: 5 events")[2].partition("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)[1:]]
    assert [row[1] for row in rows] == ["version", "accepted shift", "version", "segment", "version"]
    assert rows[1][2:] == ["Speed-up", "the new engine checks grammar masks; slower, and we want it"]
    assert rows[3][3] == "driver 570.86 -&gt; 580.65"


def test_ids_are_unique_and_every_link_leads_somewhere() -> None:
    for name in ("machines", "segments"):
        read = Page(page(name))
        assert len(read.ids) == len(set(read.ids))
        assert {reference.removeprefix("#") for reference in read.references} <= set(read.ids)


def test_nothing_of_a_record_is_markup_and_nothing_is_loaded() -> None:
    made = [_hostile(night) for night in nights(16)]
    made[8:] = [
        replace(n, segment={"gpu": HOSTILE + "2"}, versions={"engine": HOSTILE + "2"}) for n in made[8:]
    ]
    shown = Trend(made, [Accepted(made[12].began_at, "all", HOSTILE)])
    document = trend.html(shown)
    assert "<script>alert" not in document and "\x1b" not in document
    read = Page(document)
    assert {"script", "style"} & set(read.tags) and read.tags.count("script") == 1
    assert all(reference.startswith("#") for reference in read.references)
    assert "<script>" not in trend.markdown(shown) and "\x1b" not in trend.markdown(shown)


def _hostile(night: Night) -> Night:
    return replace(
        night,
        pin=HOSTILE,
        machine=HOSTILE,
        said=(HOSTILE,),
        segment={HOSTILE: HOSTILE},
        versions={"engine": HOSTILE},
        values={**night.values, f"{SPEED_UP}/{HOSTILE}": 1.3},
    )


@pytest.mark.parametrize("name", [n for n in SAMPLES if n != "many"])
def test_json_tells_the_last_night_of_every_series(name: str) -> None:
    shown = sample(name)
    document = json.loads(trend.as_json(shown))
    series = {s for night in shown.nights for s in night.values}
    assert {s["series"] for course in document["courses"] for s in course["series"]} == series
    assert sum(course["nights"] + course["aa"]["nights"] for course in document["courses"]) <= len(
        shown.nights
    )


def test_json_of_a_regression() -> None:
    (course,) = json.loads(trend.as_json(sample("regression")))["courses"]
    assert course["last"]["verdict"] == "REGRESSION"
    assert (course["since"][:10], course["last_good"][:10]) == ("2026-11-30", "2026-11-29")
    assert [v["what"] for v in course["versions"]] == ["engine 0.5.10 -> 0.5.12"]
    (speed_up,) = [s for s in course["series"] if s["series"] == SPEED_UP]
    assert [at[:10] for at in speed_up["breaches"]] == ["2026-11-28", "2026-11-30"]
    assert [at[:10] for at in speed_up["alarms"]] == ["2026-11-30"]
    assert speed_up["last"]["value"] < speed_up["last"]["lowest"] < speed_up["last"]["expected"]


def test_csv_has_a_row_for_each_night_and_series() -> None:
    made, _ = one_regression()
    rows = list(csv.DictReader(io.StringIO(trend.csv(sample("regression")))))
    assert len(rows) == sum(len(night.values) for night in made)
    last = [row for row in rows if row["series"] == SPEED_UP][-1]
    assert (last["night"], last["breach"], last["alarm"]) == (made[-1].id, "1", "1")
    assert float(last["value"]) == made[-1].values[SPEED_UP]
    assert float(last["rerun"]) == made[-1].again[SPEED_UP]
    assert rows[0]["expected"] == ""


def test_markdown_says_the_verdict_and_every_series() -> None:
    text = trend.markdown(sample("regression"))
    assert text.startswith("# Nightly gate: Regression\n")
    for series in (SPEED_UP, LENGTH, "winner_tokens_per_s"):
        assert f"| {title(series)} |" in text


def test_names_of_series() -> None:
    assert (
        title("baseline_tokens_per_s/chat @ closed(4)") == "Baseline throughput, chat @ closed(4), tokens/s"
    )
    assert short_title(f"{SPEED_UP}/chat @ closed(4)") == "chat @ closed(4)"
    assert short_title(f"{POSITION}2/chat @ closed(4)") == "Position 2, chat @ closed(4)"
    assert family(f"{POSITION}2") == family(f"{POSITION}5/chat @ closed(4)") == "Acceptance per position"
    assert family("winner_start_s") == family("identical_share/chat") == "Told, never judged"

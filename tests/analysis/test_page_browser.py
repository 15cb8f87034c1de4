"""The page in a real browser: it loads nothing, says nothing on the console, sorts, fits, prints, darkens."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis import report, two_runs_page
from analysis.two_runs import TwoRuns
from tests.analysis import samples
from tests.analysis.test_report import hostile
from tests.browser import Browser, needed_browser

PAGES = (*samples.SAMPLES, "hostile", "two")
DESKTOP, PHONE = 1300, 390
WIDTHS = (320, PHONE, 768, 1240, DESKTOP)
# The box of the table of trials, of which every sample with a winner has one.
TRIALS = "#every-trial table"
COLUMN = f"[...document.querySelectorAll('{TRIALS} tbody tr')].map(row => row.cells[%d].innerText.trim())"
SORTED = f"[...document.querySelectorAll('{TRIALS} thead th')].map(th => th.getAttribute('aria-sort'))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(needed_browser()) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    drawn = {name: report.html(sample()) for name, sample in samples.SAMPLES.items()}
    drawn["hostile"] = report.html(hostile())
    drawn["two"] = two_runs_page.html(TwoRuns(samples.better(), samples.nothing_beats()))
    for name, document in drawn.items():
        (folder / f"{name}.html").write_text(document, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in drawn}


def show(browser: Browser, page: Path, width: int = DESKTOP, *, dark: bool = False) -> None:
    browser.looks(width, dark=dark)
    browser.open(page)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_complains_of_nothing(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    show(browser, pages[name])
    assert browser.run("document.querySelector('h1').innerText.length") > 5
    assert browser.requests == [pages[name].as_uri()]
    assert browser.complaints == []


@pytest.mark.parametrize("name", PAGES)
def test_only_the_box_of_a_table_scrolls_sideways(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    show(browser, pages[name])
    beyond = (
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, caption, svg')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    for width in WIDTHS:
        browser.looks(width)
        # A phone zooms out of a page that is too wide: innerWidth would grow.
        assert browser.run("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
        assert browser.run(beyond) == []


def test_a_click_sorts_by_number_and_again_the_other_way(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["mixed"])
    head = f"{TRIALS} th:first-child button"
    browser.click(head)
    assert [int(n) for n in browser.run(COLUMN % 0)] == [*reversed(range(60))]
    assert browser.run(SORTED)[0] == "descending"
    browser.click(head)
    assert [int(n) for n in browser.run(COLUMN % 0)] == [*range(60)]
    first, *others = browser.run(SORTED)
    assert first == "ascending"
    assert set(others) == {None}


@pytest.mark.parametrize("key", ["Enter", " "])
def test_the_keyboard_sorts_too(browser: Browser, pages: dict[str, Path], key: str) -> None:
    show(browser, pages["better"])
    browser.run(f"document.querySelector('{TRIALS} th:nth-child(5) button').focus()")
    browser.press("Tab")
    assert browser.run("document.activeElement.innerText") == "State"
    browser.press(key)
    assert browser.run(SORTED)[5] == "ascending"
    states = browser.run(COLUMN % 5)
    assert states == sorted(states, key=str.lower)


def test_trials_without_a_number_come_last_in_either_direction(
    browser: Browser, pages: dict[str, Path]
) -> None:
    show(browser, pages["better"])
    for _ in range(2):
        browser.click(f"{TRIALS} th:nth-child(3) button")
        speedups = browser.run(COLUMN % 2)
        assert speedups[-3:] == ["no number"] * 3 and "no number" not in speedups[:-3]


def test_a_table_is_a_stop_of_the_keyboard_only_if_it_scrolls(
    browser: Browser, pages: dict[str, Path]
) -> None:
    show(browser, pages["better"], PHONE)
    stops = "[b.tabIndex === 0, b.scrollWidth > b.clientWidth]"
    found = browser.run(f"[...document.querySelectorAll('.scroll')].map(b => {stops})")
    assert all(is_stop == scrolls for is_stop, scrolls in found)
    assert {scrolls for _, scrolls in found} == {True, False}


def test_without_script_the_tables_are_plain(browser: Browser, pages: dict[str, Path]) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(browser, pages["better"])
        count = "document.querySelectorAll('%s').length"
        assert browser.run(count % "table button") == 0
        assert browser.run(count % f"{TRIALS} tbody tr") == 14
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)


def test_the_first_tab_leads_to_the_answer(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["better"])
    browser.press("Tab")
    assert browser.run("document.activeElement.innerText") == "Skip to the answer"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    assert browser.run("document.activeElement.id") == "main"


def test_dark_is_dark_and_light_is_light(browser: Browser, pages: dict[str, Path]) -> None:
    grounds = []
    for dark in (False, True):
        show(browser, pages["better"], dark=dark)
        colour = browser.run("getComputedStyle(document.body).backgroundColor")
        grounds.append(sum(map(int, re.findall(r"\d+", colour))))
    assert grounds[0] == 3 * 255 and grounds[1] < 100


def test_motion_is_only_for_those_who_did_not_refuse_it(browser: Browser, pages: dict[str, Path]) -> None:
    behaviours = []
    for still in (False, True):
        browser.looks(DESKTOP, still=still)
        browser.open(pages["partial0"])
        behaviours.append(browser.run("getComputedStyle(document.documentElement).scrollBehavior"))
    assert behaviours == ["smooth", "auto"]


def test_print_shows_everything_on_white(browser: Browser, pages: dict[str, Path]) -> None:
    browser.looks(DESKTOP, dark=True, media="print")
    browser.open(pages["better"])
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    closed = browser.run("document.querySelectorAll('details:not([open])').length")
    assert closed >= 4
    log = "document.querySelector('.log')"
    assert browser.run(f"{log}.checkVisibility({{contentVisibilityAuto: true}})") or not browser.run(
        "CSS.supports('selector(::details-content)')"
    )
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == closed
    assert browser.pdf().startswith(b"%PDF-")


def test_links_of_the_navigation_lead_to_their_part(browser: Browser, pages: dict[str, Path]) -> None:
    browser.looks(PHONE, still=True)
    browser.open(pages["better"])
    browser.run("document.querySelector('nav a[href=\"#failed\"]').click()")
    top = browser.run("document.querySelector('#failed').getBoundingClientRect().top")
    bottom = browser.run("document.querySelector('nav').getBoundingClientRect().bottom")
    assert bottom <= top < 200
    current = "document.querySelector('nav a[aria-current]')"
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.run(f"{current}.hash") == "#failed"
    assert 0 <= browser.run(f"{current}.getBoundingClientRect().left") < PHONE

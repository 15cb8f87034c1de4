"""The trend page in a real browser: quiet, fitting, read by mouse, keyboard and screen reader."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.nightly import trend
from tests.analysis.nightly.trends import sample
from tests.browser import Browser, needed_browser

PAGES = ("regression", "segments", "few", "machines")
DESKTOP, PHONE = 1300, 390
CHART = "document.querySelector('.chart')"
READOUT = f"{CHART}.querySelector('.readout').textContent"
FOCUSED = "document.activeElement.textContent"
STOPS = f"[...{CHART}.querySelectorAll('.marks path')].filter(mark => mark.tabIndex === 0).length"
NIGHTS = "#course-0 > .scroll:last-child table"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(needed_browser()) as opened:
        opened.command("Emulation.setFocusEmulationEnabled", enabled=True)
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trends")
    for name in PAGES:
        (folder / f"{name}.html").write_text(trend.html(sample(name)), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PAGES}


def show(browser: Browser, page: Path, width: int = DESKTOP, *, dark: bool = False) -> None:
    browser.looks(width, dark=dark)
    browser.open(page)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_complains_of_nothing(
    browser: Browser, pages: dict[str, Path], name: str, dark: bool
) -> None:
    show(browser, pages[name], dark=dark)
    assert browser.run("document.querySelector('h1').innerText.length") > 5
    assert browser.requests == [pages[name].as_uri()]
    assert browser.complaints == []
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 100) == dark


@pytest.mark.parametrize("width", [320, PHONE, 768, 1240, DESKTOP])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_but_its_own_box_scrolls_sideways(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    show(browser, pages[name], width)
    browser.run("document.querySelectorAll('details').forEach(part => (part.open = true))")
    assert browser.run("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    beyond = (
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, caption')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert browser.run(beyond) == []


def test_on_a_phone_a_wide_chart_shows_its_last_nights(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["segments"], PHONE)
    box = f"{CHART}.querySelector('.plot')"
    assert browser.run(f"{box}.scrollWidth > {box}.clientWidth")
    assert browser.run(f"{box}.scrollLeft + {box}.clientWidth >= {box}.scrollWidth - 1")
    assert browser.run(f"{box}.tabIndex") == 0


def test_a_chart_is_one_stop_and_the_arrows_lead_through_its_nights(
    browser: Browser, pages: dict[str, Path]
) -> None:
    show(browser, pages["regression"])
    assert browser.run(STOPS) == 1
    browser.run(f"{CHART}.querySelector('.marks path[tabindex=\"0\"]').focus()")
    last = browser.run(FOCUSED)
    assert last.startswith("2026-11-30") and "rerun" in last
    assert browser.run(READOUT) == last
    for _ in range(3):
        press(browser, "ArrowLeft")
    assert browser.run(FOCUSED).startswith("2026-11-29")
    assert browser.run(READOUT) == browser.run(FOCUSED)
    assert browser.run(STOPS) == 1  # the one that was left is where Tab comes back to
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(browser, "Home")
    press(browser, "ArrowLeft")
    assert browser.run(FOCUSED).startswith("2026-11-11")


def press(browser: Browser, key: str) -> None:
    for kind in ("rawKeyDown", "keyUp"):
        browser.command("Input.dispatchKeyEvent", type=kind, key=key)


def test_the_mouse_reads_the_nearest_mark(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["regression"])
    mark = f"{CHART}.querySelector('.marks .again')"
    browser.run(f"{mark}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = browser.run(f"{mark}.getBoundingClientRect().toJSON()")
    at = {"x": box["x"] + box["width"] / 2 + 2, "y": box["y"] + box["height"] / 2}
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", **at)
    assert re.fullmatch(r"2026-11-28 .*: the rerun, 1\.\d+x", browser.run(READOUT))


def test_a_screen_reader_hears_each_mark_by_its_text(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["few"])
    nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
    heard = [node["name"]["value"] for node in nodes if node.get("role", {}).get("value") in ("image", "img")]
    assert len([name for name in heard if re.match(r"2026-11-\d\d .* UTC: 1\.\d+x", name)]) == 3
    groups = [
        n["name"]["value"] for n in nodes if n.get("role", {}).get("value") == "group" and n.get("name")
    ]
    assert {"Speed-up", "Acceptance length"} <= {name.partition(" Last night")[0] for name in groups}


def test_the_table_of_nights_sorts(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["regression"])
    column = f"[...document.querySelectorAll('{NIGHTS} tbody tr')].map(row => row.cells[%d].innerText)"
    nights = browser.run(column % 0)
    assert len(nights) == 20 and nights == sorted(nights, reverse=True)
    for _ in range(2):
        browser.click(f"{NIGHTS} th:first-child button")
    assert browser.run(column % 0) == sorted(nights)
    browser.click(f"{NIGHTS} th:nth-child(3) button")
    speed_ups = [float(text.rstrip("x")) for text in browser.run(column % 2)]
    assert speed_ups == sorted(speed_ups, reverse=True)


def test_print_shows_what_is_folded(browser: Browser, pages: dict[str, Path]) -> None:
    browser.looks(DESKTOP, media="print")
    browser.open(pages["segments"])
    assert browser.run(f"getComputedStyle({CHART}.querySelector('.readout')).display") == "none"
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
    assert browser.pdf().startswith(b"%PDF-")

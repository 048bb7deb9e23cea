"""The report's page in a browser: tables fit a laptop, and a phone shows the first number."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from browser import NO_BROWSER, Browser, program
from effort import some
from factories import finished_sweep
from probe_report_cases import probed

from orchestrator.report.analysis import analyse
from orchestrator.report.html_pages import write_page
from orchestrator.report.render import save_report
from orchestrator.report.sections.page import sweep_page

pytestmark = [pytest.mark.skipif(program() is None, reason=NO_BROWSER)]

# Title, width of the box, width of its table, and each cell of the first line: text, right edge.
TABLES = """[...document.querySelectorAll(".scroll")].map(box => [
    box.getAttribute("aria-label"), box.clientWidth, box.scrollWidth,
    [...(box.querySelectorAll("tr")[1]?.children ?? [])].map(cell => [
        cell.innerText.trim(),
        cell.getBoundingClientRect().right - box.getBoundingClientRect().left])])"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    policies = ("hard", "easy", "middle", "random")
    analysis = analyse(*finished_sweep(folder, policies=policies))
    write_page(sweep_page(analysis), folder / "page.html")
    return folder / "page.html"


@pytest.fixture(scope="module")
def probe_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probe")
    plan, store = probed(folder)
    save_report(plan, store, folder / "probe.html")
    return folder / "probe.html"


# The place of a table's hint on the page, left of the shadow at its right edge.
HINT = """(box => {{
    box.scrollLeft = {scrolled} * box.scrollWidth;
    const at = box.getBoundingClientRect();
    return {{x: at.right + scrollX - 60, y: at.bottom + scrollY - 22, width: 36, height: 20}};
}})(document.querySelectorAll(".scroll")[{number}])"""


def shows_text(browser: Browser, number: int, *, scrolled: bool) -> bool:
    """Whether anything is drawn where a table's hint would be."""
    clip = browser.evaluate(HINT.format(number=number, scrolled=int(scrolled))) | {"scale": 1}
    browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    shot = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(shot["data"])))[..., :3]
    return bool(np.ptp(pixels.mean(axis=2)) > 0.2)


def tables_at(page: Path, width: int, profile: Path, last: str = "#reproduce") -> list[Any]:
    chromium = program()
    assert chromium
    with Browser(chromium, profile) as browser:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", **size)
        browser.open(page.as_uri())
        browser.wait_for(f"document.querySelector('{last}') !== null")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        tables: list[Any] = browser.evaluate(TABLES)
        return tables


def test_all_columns_are_visible_on_a_laptop(page: Path, tmp_path: Path) -> None:
    tables = tables_at(page, 1400, tmp_path)
    assert "Ledger" in {title for title, *_ in tables}
    assert [title for title, box, table, _ in tables if table > box] == []


def test_a_phone_shows_the_first_number_of_every_table(page: Path, tmp_path: Path) -> None:
    for title, box, _, cells in tables_at(page, 400, tmp_path):
        numbers = [right for text, right in cells if re.match(r"[+−]?\d+[.,]?\d", text)]
        assert title == "Cells" or not numbers or numbers[0] <= box, title


@pytest.mark.parametrize("width", some([420, 900], 1))
def test_a_table_that_is_cut_says_that_it_scrolls(page: Path, tmp_path: Path, width: int) -> None:
    chromium = program()
    assert chromium
    with Browser(chromium, tmp_path) as browser:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        browser.call("Emulation.setDeviceMetricsOverride", **size)
        browser.open(page.as_uri())
        browser.wait_for("document.querySelector('#reproduce') !== null")
        browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        cut = {n: wide - box for n, (_, box, wide, _) in enumerate(browser.evaluate(TABLES))}
        assert max(cut.values()) > 100 and 0 in cut.values()
        for number, pixels in cut.items():
            if pixels == 0 or pixels > 100:
                assert shows_text(browser, number, scrolled=False) == (pixels > 0), number
                assert not shows_text(browser, number, scrolled=True), "the last column is in view"


@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_of_a_probe_fits(probe_page: Path, tmp_path: Path, width: int) -> None:
    tables = tables_at(probe_page, width, tmp_path, last="#completions-0")
    assert [title for title, *_ in tables] == ["Pass rates by tier", "Subsets by policy"]
    for title, box, table, cells in tables:
        assert width < 1000 or table <= box, title
        assert cells[1][1] <= box, title  # the first number

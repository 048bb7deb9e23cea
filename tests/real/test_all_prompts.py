"""The table of all prompts in a probe's page, in a browser: filtered, sorted, drawn in view."""

from pathlib import Path

import pytest
from browser import NO_BROWSER, Browser, program
from probe_report_cases import probed

from orchestrator.report.content import Page, Section
from orchestrator.report.html_pages import write_page
from orchestrator.report.render import save_report
from orchestrator.report.sample_blocks import AllPrompts

pytestmark = [pytest.mark.skipif(program() is None, reason=NO_BROWSER)]

CELLS = """[...document.querySelectorAll(".all-prompts tbody tr")]
    .map(row => [...row.children].map(cell => cell.textContent)).filter(row => row.length)"""
COUNT = "document.querySelector('.all-prompts output').textContent"
TYPE = """(box => {{ box.value = {value!r}; box.dispatchEvent(new Event({event!r})); }})(
    document.querySelector(".all-prompts {field}"))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    with Browser(program() or "", tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def sort_by(browser: Browser, column: int) -> None:
    browser.evaluate(f"document.querySelectorAll('.all-prompts th button')[{column}].click()")


def test_ten_thousand_rows_are_sorted_and_filtered(browser: Browser, tmp_path: Path) -> None:
    rows = [
        [f"<b>question</b> {n}", None if n == 7 else (7 * n % 10_000) / 10_000, f"p{n % 2}"]
        for n in range(10_000)
    ]
    table = AllPrompts(("question", "pass rate", "chosen by"), rows, ("p0", "p1"), "t.parquet", "")
    page = Page("x", "", "", (Section("prompts", "All prompts", (table,)),))
    write_page(page, tmp_path / "page.html")
    browser.open(f"file://{tmp_path}/page.html")
    browser.wait_for(f"{COUNT} === '10,000 of 10,000 prompts'")
    drawn = browser.evaluate(CELLS)
    assert drawn[0] == ["<b>question</b> 0", "0", "p0"] and len(drawn) < 100
    sort_by(browser, 1)
    rates = [float(row[1]) for row in browser.evaluate(CELLS)]
    assert rates == sorted(rates) and rates[0] == 0
    sort_by(browser, 1)
    assert float(browser.evaluate(CELLS)[0][1]) == 0.9999
    browser.evaluate("document.querySelector('.all-prompts .rows').scrollTop = 1e9")
    browser.wait_for(f"{CELLS}.at(-1)[1] === '–'")  # an unknown rate comes last
    browser.evaluate(TYPE.format(field="select", value="p1", event="change"))
    assert browser.evaluate(COUNT) == "5,000 of 10,000 prompts"
    browser.evaluate(TYPE.format(field="input", value="question</b> 123", event="input"))
    shown = browser.evaluate(CELLS)
    assert len(shown) == 1 + 5  # 123, and 1231, 1233, …, 1239
    assert {row[2] for row in shown} == {"p1"}


def test_a_probe_has_every_prompt_with_what_is_known_of_it(
    browser: Browser, tmp_path: Path
) -> None:
    plan, store = probed(tmp_path)
    save_report(plan, store, tmp_path / "probe.html")
    browser.open(f"file://{tmp_path}/probe.html")
    table = plan.pools[next(iter(plan.pools))].train
    browser.wait_for(f"{COUNT} === '{len(table):,} of {len(table):,} prompts'")
    head = browser.evaluate(
        "[...document.querySelectorAll('.all-prompts th')].map(th => th.textContent)"
    )
    assert head[:2] == ["question", "pass rate"] and head[-1] == "chosen by"
    assert all(len(row) == len(head) for row in browser.evaluate(CELLS))

"""MLflow's pages of a small stored sweep in a real browser."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import NO_BROWSER, Browser, program
from factories import finished_cell, small_plan
from mlflow import MlflowClient
from mlflow_server import serving

from orchestrator.planning.plan import Plan
from orchestrator.report.analysis import analyse
from orchestrator.report.rows import Row, read_rows
from orchestrator.storage.store import Store
from orchestrator.tracking import Tracker, default_tracking_uri
from orchestrator.tracking.views import run_name

POLICIES = ("hard", "easy", "random")
# The chart whose card is headed by a metric's name, as Plotly keeps it.
CHART = """(name => [...document.querySelectorAll('.js-plotly-plot')].find(plot => {
    for (let e = plot.parentElement; e; e = e.parentElement) {
        const title = e.querySelector('h4, [title]');
        if (title) return title.innerText === name || title.title === name;
    }}))"""


@dataclass
class Site:
    """A served sweep."""

    address: str
    experiment: str
    page: str
    parent: str
    runs: dict[str, str]  # name -> id, of the cells
    rows: list[Row]

    def url(self, place: str) -> str:
        return f"{self.address}/#/experiments/{self.experiment}/{place}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Site]:
    if program() is None:
        pytest.skip(NO_BROWSER)
    folder = tmp_path_factory.mktemp("site")
    plan = small_plan(folder, policies=POLICIES, seeds=(0, 1), updates=6)
    store = Store(str(folder / "runs"))
    shutil.copyfile(empty_database, store.local_path() / "mlflow.db")
    page = _fill(store, plan)
    client = MlflowClient(default_tracking_uri(store))
    experiment = client.get_experiment_by_name(f"decile/{plan.name}")
    assert experiment is not None
    runs = {r.info.run_name: r.info.run_id for r in client.search_runs([experiment.experiment_id])}
    parent = runs.pop(plan.name)
    with serving(store) as (address, _):
        rows = read_rows(store, plan.cells)
        yield Site(address, experiment.experiment_id, page, parent, runs, rows)


def _fill(store: Store, plan: Plan) -> str:
    """Finish every cell, and log the sweep; returns its page."""
    tracker = Tracker(default_tracking_uri(store), store, plan)
    for number, cell in enumerate(plan.cells):
        finished_cell(store, plan, cell, seed=number)
        tracker.sync(cell)
    tracker.show(analyse(plan, store))
    tracker.close(ok=True)
    return tracker.page


@pytest.fixture(scope="module")
def browser(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(program() or "", tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _picture(request: pytest.FixtureRequest, browser: Browser) -> Iterator[None]:
    """With DECILE_SCREENSHOTS set, save the last page of each test in that folder."""
    yield
    if folder := os.environ.get("DECILE_SCREENSHOTS"):
        browser.screenshot(Path(folder, f"{request.node.name}.png"))


# The names of the runs' table, from top to bottom: its left part holds them.
NAMES = """[...document.querySelectorAll('.ag-pinned-left-cols-container [role=row]')]
    .sort((a, b) => a.getAttribute('row-index') - b.getAttribute('row-index'))
    .map(row => row.querySelector('a')?.innerText).filter(Boolean)"""


def test_runs_are_listed_by_policy(browser: Browser, site: Site) -> None:
    browser.open(site.url("runs?viewStateShareKey=by-policy"))
    names = browser.wait_for(f"({NAMES}).length >= {len(site.runs)} && {NAMES}")
    assert sorted(names) == sorted(site.runs)  # the cells alone, without the parent run
    assert [name.split("/")[0] for name in names] == ["easy"] * 2 + ["hard"] * 2 + ["random"] * 2
    text = browser.wait_for(
        "document.body.innerText.includes('final/learnable_pct') && document.body.innerText"
    )
    assert {"policy", "final/accuracy", "final/gain", "final/learnable_pct"} <= set(
        text.split("\n")
    )


def test_the_compare_view_draws_every_curve_of_the_store(browser: Browser, site: Site) -> None:
    browser.open(f"{site.address}/{site.page}")
    chart = f"{CHART}('eval/accuracy')"
    loaded = f"{chart}.data.filter(trace => trace.x.length === 4).length >= {len(site.runs)}"
    browser.wait_for(f"{loaded} && {chart}.querySelectorAll('.scatterlayer .trace path').length")
    drawn = browser.evaluate(f"{chart}.data.map(t => [t.name, [...t.x], [...t.y]])")
    curves = {name: dict(zip(x, y, strict=True)) for name, x, y in drawn if x}
    assert curves == {run_name(row.cell): pytest.approx(row.curve) for row in site.rows}
    text = browser.evaluate("document.body.innerText")
    for name in site.runs:
        assert f"{name} (eval/accuracy)" in text  # the legend


def test_the_parent_run_shows_the_verdicts_and_the_report(browser: Browser, site: Site) -> None:
    browser.open(site.url(f"runs/{site.parent}"))
    browser.wait_for("document.body.innerText.includes('vs. hard on small')")
    browser.wait_for("document.body.innerText.includes('best/points_over_random/stub/small')")
    artifacts = site.url(f"runs/{site.parent}/artifacts")
    browser.open(f"{artifacts}/report.html")
    page = browser.wait_for("fetch(document.querySelector('iframe').src).then(r => r.text())")
    assert 'id="verdicts"' in page and page.count("<figure>") >= 4
    figure = "test_accuracy_by_update_stub_on_small.svg"
    browser.open(f"{artifacts}/figures/{figure}")
    browser.wait_for("[...document.images].some(i => i.complete && i.naturalWidth > 300)")
    browser.open(f"{artifacts}/tables/gain_in_accuracy.csv")
    browser.wait_for("document.body.innerText.includes('stub on small')")

"""The parent run of a sweep in MLflow: report, tables, figures, headline numbers, saved views."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from factories import finished_cell, small_plan
from mlflow import MlflowClient
from mlflow.entities import Run

from orchestrator.planning.plan import Plan
from orchestrator.report.analysis import analyse
from orchestrator.report.compare import families
from orchestrator.report.html_pages import page_html
from orchestrator.report.rows import read_rows
from orchestrator.report.sections.axes import COLOURS
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.verdicts import family_verdict
from orchestrator.stats.inference import Effect
from orchestrator.storage.store import Store
from orchestrator.tracking import Tracker, default_tracking_uri
from orchestrator.tracking.views import means

POLICIES = ("hard", "middle", "random")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return small_plan(tmp_path, policies=POLICIES, seeds=(0, 1), claims=["hard > random on small"])


WRITES = (
    "create_run",
    "delete_run",
    "log_artifacts",
    "log_batch",
    "log_text",
    "set_experiment_tag",
    "set_tag",
    "set_terminated",
    "update_run",
)


def run_again(store: Store, plan: Plan) -> Tracker:
    """Sync the sweep, as a driver does when all cells are finished."""
    tracker = Tracker(default_tracking_uri(store), store, plan)
    for cell in plan.cells:
        tracker.sync(cell)
    tracker.show(analyse(plan, store))
    tracker.close(ok=True)
    assert tracker.enabled
    return tracker


def fill(store: Store, plan: Plan) -> None:
    for number, cell in enumerate(plan.cells):
        finished_cell(store, plan, cell, seed=number)


def client_of(store: Store) -> MlflowClient:
    return MlflowClient(default_tracking_uri(store))


def parent_of(store: Store, plan: Plan) -> Run:
    client = client_of(store)
    experiment = client.get_experiment_by_name(f"decile/{plan.name}")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.decile.sweep != ''")
    assert len(runs) == 1
    return runs[0]


def artifacts_of(store: Store, run: Run) -> Path:
    return Path(client_of(store).download_artifacts(run.info.run_id, ""))


def files_of(folder: Path) -> set[str]:
    return {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}


def test_the_parent_run_holds_the_report_with_its_tables_and_figures(
    store: Store, plan: Plan
) -> None:
    fill(store, plan)
    run_again(store, plan)
    run = parent_of(store, plan)
    folder = artifacts_of(store, run)
    analysis = analyse(plan, store)
    page = sweep_page(analysis)
    html = page_html(page)
    assert (folder / "report.html").read_text() == html
    assert {f.stem for f in (folder / "figures").iterdir()} == set(page.figures)
    assert {f.stem for f in (folder / "tables").iterdir()} == set(page.tables)
    assert len(page.figures) == html.count("<figure>") >= 4
    assert len(page.tables) == html.count("<table>") >= 8
    assert files_of(folder) >= {
        "verdicts.txt",
        "results.json",
        "results.csv",
        "figures/test_accuracy_by_update_stub_on_small.svg",
        "tables/gain_in_accuracy.csv",
        "tables/learnable_pct.csv",
    }
    verdicts = (folder / "verdicts.txt").read_text()
    for text in family_verdict(analysis.families[0]).lines:
        assert text in verdicts
        assert text.replace("[", "\\[").replace("]", "\\]") in run.data.tags["mlflow.note.content"]
    results = json.loads((folder / "results.json").read_text())
    assert [r["cell_id"] for r in results] == [cell.cell_id for cell in plan.cells]


def test_headline_numbers_agree_with_the_store(store: Store, plan: Plan) -> None:
    fill(store, plan)
    run_again(store, plan)
    run = parent_of(store, plan)
    rows = read_rows(store, plan.cells)
    for policy in POLICIES:
        results = [row.result for row in rows if row.cell.policy == policy]
        for name, key in (("accuracy", "accuracy_final"), ("learnable_pct", "learnable_pct")):
            value = run.data.metrics[f"final/{name}/stub/small/{policy}"]
            assert value == pytest.approx(np.mean([getattr(result, key) for result in results]))
    accuracies = {p: run.data.metrics[f"final/accuracy/stub/small/{p}"] for p in POLICIES}
    best = max((p for p in POLICIES if p != "random"), key=accuracies.__getitem__)
    points = 100 * (accuracies[best] - accuracies["random"])
    assert run.data.metrics["best/points_over_random/stub/small"] == pytest.approx(points)
    low, high = (
        run.data.metrics[f"best/points_over_random_{side}/stub/small"] for side in ("low", "high")
    )
    assert low < points < high
    assert run.data.tags["decile.best/stub/small"] == f"{best}: inconclusive"


def test_a_second_run_writes_nothing(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, plan)
    run_again(store, plan)
    before = parent_of(store, plan)
    for name in WRITES:
        monkeypatch.setattr(MlflowClient, name, lambda *_, n=name, **__: pytest.fail(n))
    run_again(store, plan)
    monkeypatch.undo()
    after = parent_of(store, plan)
    assert after.to_dictionary() == before.to_dictionary()
    client = client_of(store)
    for name in after.data.metrics:
        assert len(client.get_metric_history(after.info.run_id, name)) == 1


def test_a_sweep_with_new_cells_is_updated(tmp_path: Path, store: Store) -> None:
    few = small_plan(tmp_path, policies=POLICIES)
    fill(store, few)
    run_again(store, few)
    first = parent_of(store, few)
    many = small_plan(tmp_path, policies=POLICIES, seeds=(0, 1))
    for number, cell in enumerate(many.cells):
        finished_cell(store, many, cell, seed=number + 7)  # other numbers for the first ones too
    run_again(store, many)
    second = parent_of(store, many)
    assert second.info.run_id == first.info.run_id
    assert files_of(artifacts_of(store, second)) == files_of(artifacts_of(store, first))
    assert "6 of 6 cells" in (artifacts_of(store, second) / "report.html").read_text()
    (family,) = families(read_rows(store, many.cells))
    numbers = means(family)
    assert {k: second.data.metrics[k] for k in numbers} == pytest.approx(numbers)


def test_an_unfinished_sweep_shows_its_finished_cells(store: Store, plan: Plan) -> None:
    tracker = Tracker(default_tracking_uri(store), store, plan)
    tracker.show(analyse(plan, store))
    tracker.close(ok=False)
    assert client_of(store).list_artifacts(parent_of(store, plan).info.run_id) == []
    finished_cell(store, plan, plan.cells[0])
    tracker = Tracker(default_tracking_uri(store), store, plan)
    tracker.sync(plan.cells[0])
    tracker.show(analyse(plan, store))
    tracker.close(ok=False)
    run = parent_of(store, plan)
    assert run.info.status == "FAILED"
    assert "only hard is finished" in (artifacts_of(store, run) / "verdicts.txt").read_text()
    assert {n for n in run.data.metrics if n.startswith("best/")} == set()
    assert "final/gain/stub/small/hard" in run.data.metrics


def test_the_parent_run_is_running_only_while_a_trial_runs(store: Store, plan: Plan) -> None:
    run_again(store, plan)  # no cell has a result
    ended = parent_of(store, plan).info.end_time
    tracker = Tracker(default_tracking_uri(store), store, plan)
    assert parent_of(store, plan).info.status == "FINISHED"
    tracker.start(plan.cells[0])
    assert parent_of(store, plan).info.status == "RUNNING"
    tracker.close(ok=True)
    run = parent_of(store, plan)
    assert (run.info.status, run.info.end_time >= ended) == ("FINISHED", True)


def test_user_edits_are_kept(store: Store, plan: Plan) -> None:
    fill(store, plan)
    run_again(store, plan)
    client, run = client_of(store), parent_of(store, plan)
    client.set_tag(run.info.run_id, "mlflow.note.content", "mine")
    view = "mlflow.sharedViewState.by-policy"
    client.set_experiment_tag(run.info.experiment_id, view, "mine")
    finished_cell(store, plan, plan.cells[0], seed=99)
    run_again(store, plan)
    again = parent_of(store, plan)
    assert again.data.tags["mlflow.note.content"] == "mine"
    for policy, times in (("hard", 2), ("random", 1)):  # what did not change is not logged again
        name = f"final/accuracy/stub/small/{policy}"
        assert len(client.get_metric_history(run.info.run_id, name)) == times
    assert again.data.tags["decile.synced"] != run.data.tags["decile.synced"]
    assert client.get_experiment(run.info.experiment_id).tags[view] == "mine"


def test_the_run_of_a_cell_that_the_report_calls_collapsed_is_tagged(
    store: Store, plan: Plan
) -> None:
    fill(store, plan)
    analysis = analyse(plan, store)
    assert not analysis.collapsed
    first, *others = analysis.rows
    low = dataclasses.replace(first, gain=Effect(-0.3, -0.4, -0.2, 1e-6))
    collapsed = dataclasses.replace(analysis, families=tuple(families([low, *others])))
    run_again(store, plan)
    for each, tagged in ((collapsed, {first.cell.cell_id}), (analysis, set())):
        tracker = Tracker(default_tracking_uri(store), store, plan)
        tracker.show(each)
        tracker.close(ok=True)
        where = "tags.`decile.collapsed` = 'true'"
        runs = client_of(store).search_runs([parent_of(store, plan).info.experiment_id], where)
        assert {run.data.tags["decile.cell_id"] for run in runs} == tagged == each.collapsed


def test_a_policy_has_the_colour_of_the_report(tmp_path: Path, store: Store) -> None:
    for policies in (("hard", "random"), ("easy", "hard", "random")):
        plan = small_plan(tmp_path, policies=policies, seeds=(0, 1))
        tracker = Tracker(default_tracking_uri(store), store, plan)
        for cell in plan.cells:
            tracker.start(cell)
    experiment = parent_of(store, plan).info.experiment_id
    runs = client_of(store).search_runs([experiment], "params.policy != ''")
    colours = {(r.data.tags["policy"], r.data.tags["mlflow.runColor"]) for r in runs}
    assert colours == {("hard", COLOURS[0]), ("easy", COLOURS[1]), ("random", COLOURS[3])}

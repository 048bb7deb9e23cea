"""The store in a real MLflow: SQLite files, a server on loopback, and unavailable ones."""

import contextlib
import dataclasses
import errno
import json
import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from factories import cell_record, finished_cell, small_plan
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow_server import serving
from paths import ROOT, SUPPORT
from processes import LIMIT, free_port, hang_limit, used_port
from remedies import refused
from tracking_cases import opened, plan, runs_of  # noqa: F401 (fixtures)

from orchestrator.evaluation.groups import training_metrics
from orchestrator.evaluation.metrics import by_update, evaluation_metrics
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store
from orchestrator.tracking import (
    Tracker,
    comparison_links,
    default_tracking_uri,
    serve_ui,
    ui_command,
)
from orchestrator.tracking import client as tracking_client
from orchestrator.tracking import runs as tracking_runs
from orchestrator.tracking.client import connect, failures, is_damaged
from orchestrator.tracking.views import flatten


def points_of(uri: str, run: Run) -> Counter[tuple[str, int, float]]:
    """Every logged point of a run, counted."""
    client = MlflowClient(uri)
    return Counter(
        (name, m.step, m.value)
        for name in client.get_run(run.info.run_id).data.metrics
        for m in client.get_metric_history(run.info.run_id, name)
    )


def reports(plan: Plan, cell: Cell) -> Iterator[tuple[int, dict[str, float]]]:
    """The metrics that a trial of the cell reports, update by update."""
    record = cell_record(plan, cell)
    evaluations = by_update(record.evaluations)
    for update, metrics in training_metrics(record.groups.table()).items():
        if update in evaluations:
            metrics |= evaluation_metrics(evaluations[update])
        yield update, metrics


def test_repeated_syncs_keep_one_parent_and_one_run_per_cell(store: Store, plan: Plan) -> None:
    for cell in plan.cells:
        finished_cell(store, plan, cell)
    for _ in range(2):
        tracker = opened(store, plan)
        for cell in plan.cells * 2:
            tracker.sync(cell)
        tracker.close(ok=True)
    parents, children = runs_of(default_tracking_uri(store), plan)
    assert [p.data.tags["decile.sweep"] for p in parents] == ["small"]
    assert parents[0].info.status == "FINISHED"
    assert parents[0].data.params["grpo.max_steps"] == "4"
    assert set(children) == {cell.cell_id for cell in plan.cells}
    for run in children.values():
        assert run.data.tags["mlflow.parentRunId"] == parents[0].info.run_id
        assert run.info.status == "FINISHED"
        assert set(points_of(default_tracking_uri(store), run).values()) == {1}


def test_axes_and_settings_are_parameters(store: Store, plan: Plan) -> None:
    cell = plan.cells[0]
    opened(store, plan).start(cell)
    run = runs_of(default_tracking_uri(store), plan)[1][cell.cell_id]
    expected = {**cell.axes, "budget": 8, "task": "shuffled_objects", "task.train": 40}
    expected |= {"probe.samples": 4, "evaluate.every": 2, "evaluate.samples": 8}
    expected |= {f"grpo.{name}": value for name, value in cell.grpo.items()}
    expected |= {f"lora.{name}": value for name, value in cell.lora.items()}
    assert flatten(expected).items() <= run.data.params.items()
    assert run.info.run_name == "hard/s0 stub/small"
    assert run.data.tags["policy"] == cell.policy


def test_a_larger_grid_keeps_its_parent_run_and_other_settings_get_a_new_one(
    tmp_path: Path, store: Store
) -> None:
    uri = default_tracking_uri(store)
    first = small_plan(tmp_path)
    opened(store, first).start(first.cells[0])
    grown = small_plan(tmp_path, seeds=(0, 1), resources={"cpus": 2})
    opened(store, grown).start(grown.cells[0])
    parents, children = runs_of(uri, grown)
    assert len(parents) == 1
    assert parents[0].data.tags["decile.grid.seed"] == "0, 1"
    assert len(children) == 1
    assert children[first.cells[0].cell_id].data.tags["decile.cpus"] == "2"
    changed = small_plan(tmp_path, updates=6)
    opened(store, changed).start(changed.cells[0])
    parents, children = runs_of(uri, changed)
    assert sorted(p.data.params["grpo.max_steps"] for p in parents) == ["4", "6"]
    assert len(children) == 2


def test_a_renamed_model_keeps_the_run_of_its_cell(store: Store, plan: Plan) -> None:
    cell = plan.cells[0]
    opened(store, plan).start(cell)
    model = dataclasses.replace(cell.probe.model, name="renamed")
    probe = cell.probe.model_copy(update={"model": model})
    tracker = opened(store, plan)
    tracker.start(cell.model_copy(update={"probe": probe}))
    assert tracker.enabled
    run = runs_of(default_tracking_uri(store), plan)[1][cell.cell_id]
    assert run.data.params["model"] == "stub"  # as in the store, whose cell keeps its first name
    assert run.data.tags["model"] == "renamed"


def test_live_replay_and_sync_log_each_step_once(store: Store, plan: Plan) -> None:
    cell = plan.cells[0]
    uri = default_tracking_uri(store)
    first = opened(store, plan)
    first.start(cell)
    for update, metrics in list(reports(plan, cell))[:3]:
        first.live(cell, update, metrics)
    first.close(ok=False)
    run = runs_of(uri, plan)[1][cell.cell_id]
    assert {s for n, s, _ in points_of(uri, run) if n == "train/live_pct"} == {1, 2, 3}
    resumed = opened(store, plan)  # from the checkpoint of update 1: 2 and 3 come again
    resumed.start(cell)
    for update, metrics in list(reports(plan, cell))[1:]:
        resumed.live(cell, update, metrics)
    finished_cell(store, plan, cell)
    resumed.sync(cell)
    again = runs_of(uri, plan)[1][cell.cell_id]
    assert again.info.run_id == run.info.run_id  # completed, not rewritten
    points = points_of(uri, again)
    assert set(points.values()) == {1}
    steps = Counter(name for name, _, _ in points)
    assert steps["train/learnable_pct"] == steps["trl/loss"] == 4
    assert sorted(s for n, s, _ in points if n == "eval/pass_at_8") == [0, 2, 4]
    assert {n for n in steps if n.startswith("tier/")} == {f"tier/{t}/accuracy" for t in "357"}


def test_a_run_that_contradicts_the_store_is_rewritten(store: Store, plan: Plan) -> None:
    cell = plan.cells[0]
    uri = default_tracking_uri(store)
    tracker = opened(store, plan)
    tracker.live(cell, 1, {"train/live_pct": 12.345})
    finished_cell(store, plan, cell)
    tracker.sync(cell)
    points = points_of(uri, runs_of(uri, plan)[1][cell.cell_id])
    assert set(points.values()) == {1}
    stored = training_metrics(cell_record(plan, cell).groups.table())[1]["train/live_pct"]
    assert points["train/live_pct", 1, stored] == 1
    finished_cell(store, plan, cell, seed=1)  # the cell was deleted and run again
    tracker.sync(cell)
    run = runs_of(uri, plan)[1][cell.cell_id]
    result = store.read_json("cells", cell.cell_id, "result.json")
    assert run.data.metrics["final/accuracy"] == result["accuracy_final"]
    assert set(points_of(uri, run).values()) == {1}


def test_what_two_drivers_have_left_is_repaired(store: Store, plan: Plan) -> None:
    """One cell has two runs; of the other, every point was logged twice."""
    uri, client = default_tracking_uri(store), MlflowClient(default_tracking_uri(store))
    for cell in plan.cells:
        finished_cell(store, plan, cell)
        tracker = opened(store, plan)
        tracker.sync(cell)
    parents, runs = runs_of(uri, plan)
    first, second = (runs[cell.cell_id] for cell in plan.cells[:2])
    tags = {k: v for k, v in first.data.tags.items() if k != "decile.synced"}
    client.create_run(first.info.experiment_id, tags=tags)
    for name, step, value in points_of(uri, second):
        client.log_metric(second.info.run_id, name, value, step=step)
    client.set_tag(second.info.run_id, "decile.synced", "of another version")
    tracker = opened(store, plan)
    for cell in plan.cells:
        tracker.sync(cell)
    repaired = runs_of(uri, plan)[1]
    assert repaired[plan.cells[0].cell_id].info.run_id == first.info.run_id
    for run in repaired.values():
        assert set(points_of(uri, run).values()) == {1}
    assert len(parents) == 1


def test_an_unchanged_run_of_another_version_is_kept(store: Store, plan: Plan) -> None:
    cell, uri = plan.cells[0], default_tracking_uri(store)
    finished_cell(store, plan, cell)
    opened(store, plan).sync(cell)
    before = runs_of(uri, plan)[1][cell.cell_id]
    MlflowClient(uri).set_tag(before.info.run_id, "decile.synced", "of another version")
    opened(store, plan).sync(cell)
    after = runs_of(uri, plan)[1][cell.cell_id]
    assert after.info.run_id == before.info.run_id
    assert points_of(uri, after) == points_of(uri, before)
    assert after.data.tags["decile.synced"] == before.data.tags["decile.synced"]


def test_an_interrupted_sweep_leaves_its_runs_killed(store: Store, plan: Plan) -> None:
    uri = default_tracking_uri(store)
    tracker = opened(store, plan)
    tracker.start(plan.cells[0])
    tracker.interrupt()
    tracker.live(plan.cells[0], 1, {"train/live_pct": 1.0})  # the main thread goes on for a moment
    parents, children = runs_of(uri, plan)
    statuses = {run.info.status for run in (*parents, *children.values())}
    assert (statuses, len(children)) == ({"KILLED"}, 1)
    opened(store, plan).start(plan.cells[0])
    parents, children = runs_of(uri, plan)
    assert {run.info.status for run in (*parents, *children.values())} == {"RUNNING"}


def test_a_database_is_created_whole_or_not_at_all(tmp_path: Path) -> None:
    """MLflow's migrations alone leave some of the tables, and fail on them from then on."""
    file = tmp_path / "mlflow.db"
    code = f"""
import resource
from orchestrator.tracking.client import connect
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
connect("sqlite:///{file}")
"""
    full = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, timeout=LIMIT)
    assert full.returncode == 1, full.stderr
    assert file.stat().st_size == 0
    assert connect(f"sqlite:///{file}").search_experiments()
    assert {f.name for f in tmp_path.iterdir()} == {"mlflow.db", ".mlflow.db.lock"}


def test_a_finished_run_has_its_summary_and_artifacts(store: Store, plan: Plan) -> None:
    cell = plan.cells[0]
    finished_cell(store, plan, cell)
    tracker = opened(store, plan)
    tracker.sync(cell)
    tracker.close(ok=False)
    uri = default_tracking_uri(store)
    parents, children = runs_of(uri, plan)
    run, client = children[cell.cell_id], MlflowClient(uri)
    result = store.read_json("cells", cell.cell_id, "result.json")
    assert run.data.metrics["final/gain"] == pytest.approx(result["gain"])
    assert run.data.metrics["final/learnable_pct"] == result["learnable_pct"]
    assert run.data.metrics["ledger/rollouts"] == result["ledger"]["rollouts"] == 32
    assert run.info.end_time - run.info.start_time == 12_500
    folder = Path(client.download_artifacts(run.info.run_id, ""))
    names = {"result.json", "samples.json", "samples.html", "subset.parquet"}
    assert {path.name for path in folder.iterdir()} == names
    subset = Path(store.path("subsets", f"{cell.subset_key}.parquet")).read_bytes()
    assert (folder / "subset.parquet").read_bytes() == subset
    rows = json.loads((folder / "samples.json").read_text())
    tests = {p.prompt_id: p.question for p in plan.pool(cell.baseline).test}
    assert {r["prompt_id"]: r["question"] for r in rows} == tests
    assert all("after 0" in r["base_completion"] for r in rows)
    assert all("after 4" in r["final_completion"] for r in rows)
    page = (folder / "samples.html").read_text()
    assert "&lt;b&gt;after 0" in page
    assert "<b>" not in page
    assert parents[0].info.status == "FAILED"


def test_a_finished_cell_takes_four_writes(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of MLflow's calls is at least one transaction of its own, of one run."""
    tracker, cell = opened(store, plan), plan.cells[0]
    finished_cell(store, plan, cell)
    monkeypatch.setattr(tracking_client, "METRICS_PER_BATCH", 40)
    calls: list[str] = []
    tags_after: list[int] = []
    names = ("create_run", "log_artifacts", "log_batch", "set_tag", "set_terminated", "get_run")
    for name in names:
        real = getattr(MlflowClient, name)

        def counted(*args: Any, name: str = name, real: Any = real, **other: Any) -> Any:
            calls.append(name)
            tags_after.extend(len(calls) for _ in other.get("tags") or ())
            return real(*args, **other)

        monkeypatch.setattr(MlflowClient, name, counted)
    tracker.sync(cell)
    assert calls[:4] == ["create_run", "log_batch", "set_terminated", "log_batch"]
    assert {*calls[4:]} == {"log_batch"}, "of the metrics, in batches of 40"
    assert tags_after[-1] == len(calls), "the digest is written last"


def test_a_run_that_lacks_its_last_write_is_completed(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, uri = plan.cells[0], default_tracking_uri(store)
    finished_cell(store, plan, cell)
    with monkeypatch.context() as killed:
        killed.setattr(tracking_runs, "log_metrics", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            opened(store, plan).sync(cell)
    run = runs_of(uri, plan)[1][cell.cell_id]
    assert (run.info.status, "decile.synced" in run.data.tags) == ("FINISHED", False)
    opened(store, plan).sync(cell)
    again = runs_of(uri, plan)[1][cell.cell_id]
    assert (again.info.run_id, "decile.synced" in again.data.tags) == (run.info.run_id, True)
    assert "train/live_pct" in again.data.metrics


def test_live_writes_of_many_cells_take_a_share_of_the_time(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(tmp_path, seeds=range(5))
    uri, tracker = default_tracking_uri(store), opened(store, plan)
    monkeypatch.setattr(tracking_runs, "FLUSH_SHARE", 1e-6)
    for update in (1, 2):
        for cell in plan.cells:
            tracker.live(cell, update, {"train/live_pct": 50.0})

    def written() -> int:
        return sum(len(points_of(uri, run)) for run in runs_of(uri, plan)[1].values())

    assert written() == 1
    tracker.close(ok=False)
    assert written() == 20


def test_live_points_are_written_in_batches(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = plan.cells[0]
    tracker = opened(store, plan)
    tracker.start(cell)
    writes: list[int] = []
    real = MlflowClient.log_batch

    def counted(self: MlflowClient, run_id: str, metrics: Any = (), **other: Any) -> Any:
        writes.append(len(metrics))
        return real(self, run_id, metrics, **other)

    monkeypatch.setattr(MlflowClient, "log_batch", counted)
    monkeypatch.setattr(tracking_runs, "FLUSH_SECONDS", 3600.0)
    for update in range(1, 51):
        tracker.live(cell, update, {"train/live_pct": 1.0, "train/loss": float("nan")})
    tracker.sync(cell)  # unfinished: only the queued values
    assert sum(writes) == 50  # nan is skipped
    assert len(writes) <= 2


def test_a_failed_run_can_run_again(store: Store, plan: Plan) -> None:
    cell = plan.cells[0]
    uri = default_tracking_uri(store)
    tracker = opened(store, plan)
    tracker.start(cell)
    tracker.fail(cell, "OutOfMemory at http://user:hunter2@host/x " + "long " * 500)
    run = runs_of(uri, plan)[1][cell.cell_id]
    assert run.info.status == "FAILED"
    assert run.data.tags["decile.error"].startswith("OutOfMemory at http://***@host/x")
    assert len(run.data.tags["decile.error"]) <= 500
    again = opened(store, plan)
    again.start(cell)
    run = runs_of(uri, plan)[1][cell.cell_id]
    assert run.info.status == "RUNNING"
    assert "decile.error" not in run.data.tags


def test_a_deleted_database_is_rebuilt_from_the_store_silently(
    store: Store, plan: Plan, tmp_path: Path
) -> None:
    cell = plan.cells[0]
    uri = default_tracking_uri(store)
    finished_cell(store, plan, cell)
    tracker = opened(store, plan)
    for update, metrics in reports(plan, cell):
        tracker.live(cell, update, metrics)
    tracker.sync(cell)
    before = points_of(uri, runs_of(uri, plan)[1][cell.cell_id])
    database = Path(store.path("mlflow.db"))
    database.unlink()
    code = (
        "from pathlib import Path; from factories import small_plan\n"
        "from orchestrator.storage.store import Store\n"
        "from orchestrator.tracking import Tracker, default_tracking_uri\n"
        f"folder = Path({str(tmp_path)!r}); plan = small_plan(folder)\n"
        "store = Store(str(folder / 'runs'))\n"
        "tracker = Tracker(default_tracking_uri(store), store, plan)\n"
        "[tracker.sync(cell) for cell in plan.cells]; tracker.close(True)\n"
    )
    paths = os.pathsep.join([str(SUPPORT), str(ROOT)])
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
        timeout=LIMIT,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    copy = tmp_path / "copy.db"  # MLflow keeps a connection to the file that was deleted
    shutil.copyfile(database, copy)
    rebuilt = points_of(f"sqlite:///{copy}", runs_of(f"sqlite:///{copy}", plan)[1][cell.cell_id])
    assert rebuilt == before
    assert set(before.values()) == {1}


@pytest.mark.parametrize("kind", ["refused", "not a database", "no file", "no driver"])
def test_an_unavailable_tracker_gives_one_warning(
    kind: str, store: Store, plan: Plan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    uri = {
        "refused": f"http://user:hunter2@127.0.0.1:{free_port()}",
        "not a database": f"sqlite:///{tmp_path / 'text.db'}",
        "no file": f"sqlite:///{tmp_path}",  # MLflow alone tries this for 100 seconds
        "no driver": "mysql+nothing://user:hunter2@127.0.0.1/db",
    }[kind]
    cell = plan.cells[0]
    finished_cell(store, plan, cell)
    with hang_limit(), caplog.at_level(logging.WARNING):
        tracker = Tracker(uri, store, plan)
        tracker.start(cell)
        tracker.live(cell, 1, {"train/live_pct": 1.0})
        tracker.sync(cell)
        tracker.fail(plan.cells[1], "reason")
        tracker.close(ok=True)
    assert not tracker.enabled
    messages = [r.getMessage() for r in caplog.records]
    assert len(messages) == 1
    assert "hunter2" not in messages[0]


def test_no_rerun_can_use_the_database_of_a_newer_mlflow(
    store: Store, plan: Plan, tmp_path: Path
) -> None:
    opened(store, plan).close(ok=True)
    newer = tmp_path / "newer.db"  # MLflow keeps an engine per name
    shutil.copyfile(store.path("mlflow.db"), newer)
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'f4a9b2c7d1e6'")
    with pytest.raises(failures()) as caught:
        connect(f"sqlite:///{newer}")
    assert is_damaged(caught.value)


@pytest.mark.parametrize(
    ("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_space_is_the_remedy_for_a_full_disk_alone(
    number: int,
    full: bool,
    store: Store,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(cell: Cell) -> dict[str, str]:
        raise OSError(number, os.strerror(number))

    tracker = opened(store, plan)
    monkeypatch.setattr(tracking_runs, "cell_params", fail)
    tracker.start(plan.cells[0])
    assert not tracker.enabled and ("free space" in caplog.text) == full


def test_exceptions_other_than_mlflows_are_raised(
    store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = opened(store, plan)
    monkeypatch.setattr(tracking_runs, "cell_params", lambda cell: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tracker.start(plan.cells[0])


def test_a_corrupt_table_is_logged_and_other_cells_are_shown(
    store: Store, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    for cell in plan.cells:
        finished_cell(store, plan, cell)
    torn = plan.cells[0]
    Path(store.path("cells", torn.cell_id, "groups.parquet")).write_bytes(b"PAR1 torn")
    tracker = opened(store, plan)
    for cell in plan.cells:
        tracker.sync(cell)
    assert "groups.parquet" in caplog.text
    assert set(runs_of(default_tracking_uri(store), plan)[1]) == {plan.cells[1].cell_id}


@pytest.fixture
def server(store: Store) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with serving(store) as served:
        yield served


def test_tracking_to_a_server_works_until_the_server_ends(
    server: tuple[str, subprocess.Popen[bytes]],
    store: Store,
    plan: Plan,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    uri, process = server
    finished, running = plan.cells
    finished_cell(store, plan, finished)
    tracker = Tracker(uri, store, plan)
    tracker.start(running)
    tracker.live(running, 1, {"train/live_pct": 50.0})
    tracker.sync(finished)
    assert tracker.enabled, caplog.text
    children = runs_of(uri, plan)[1]
    assert set(points_of(uri, children[finished.cell_id]).values()) == {1}
    assert points_of(uri, children[running.cell_id]) == {("train/live_pct", 1, 50.0): 1}
    folder = Path(MlflowClient(uri).download_artifacts(children[finished.cell_id].info.run_id, ""))
    assert (folder / "samples.html").is_file()
    process.terminate()
    process.wait(30)
    with hang_limit():
        tracker.fail(running, "the server is gone")
        tracker.sync(running)
        tracker.close(ok=False)
    assert not tracker.enabled
    assert capfd.readouterr().out == ""  # stdout may be read by a program
    assert [r.name for r in caplog.records] == ["orchestrator.tracking"]


def test_the_ui_reports_missing_databases_and_used_ports(tmp_path: Path, store: Store) -> None:
    with refused(tmp_path / "nothing"):
        serve_ui(Store(str(tmp_path / "nothing")))
    broken = Store(str(tmp_path / "broken"))
    broken.write_bytes(b"no database " * 100, "mlflow.db")
    with refused("mlflow.db"):
        serve_ui(broken)
    with used_port() as port, refused(f"port {port}"):
        serve_ui(store, port=port)
    command = ui_command(store)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--workers") + 1] == "1"


@pytest.mark.parametrize("used", [False, True])
def test_the_ui_prints_the_view_of_each_sweep_with_its_own_port(
    used: bool,
    store: Store,
    plan: Plan,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = default_tracking_uri(store)
    tracker = Tracker(uri, store, plan)
    page, commands = tracker.page, list[list[str]]()
    tracker.close(ok=True)
    monkeypatch.setattr(os, "execve", lambda path, command, _: commands.append(command))
    with contextlib.ExitStack() as servers:
        if used:  # by this process, or by another one already
            with contextlib.suppress(OSError):
                servers.enter_context(socket.create_server(("127.0.0.1", 5000)))
            serve_ui(store)
        else:
            with socket.create_server(("127.0.0.1", 0)) as server:
                free = server.getsockname()[1]
            serve_ui(store, port=free)
    [command] = commands
    port = int(command[command.index("--port") + 1])
    assert port != 5000 if used else port == free
    assert f"small: http://127.0.0.1:{port}/{page}\n" in capsys.readouterr().err


def test_a_run_prints_links_to_its_curves(store: Store) -> None:
    assert comparison_links(None, store, "#/x") == [f"decile ui --storage {store.uri}"]
    spaced = Store("/my runs")
    assert comparison_links(None, spaced, "") == ["decile ui --storage '/my runs'"]
    assert comparison_links("https://me:pw@host/", store, "#/x") == ["https://***@host/#/x"]
    assert comparison_links("https://host", store, "") == ["https://host"]  # MLflow failed
    assert comparison_links("postgresql://host/db", store, "#/x") == ["postgresql://host/db"]


def test_a_copied_storage_leaves_the_original_alone(
    store: Store, plan: Plan, tmp_path: Path
) -> None:
    cell, other = plan.cells[:2]
    finished_cell(store, plan, cell)
    opened(store, plan).sync(cell)
    copy = Store(str(shutil.copytree(store.root, tmp_path / "moved" / "copy")))
    files = {path: path.stat().st_mtime_ns for path in Path(store.root).rglob("*")}
    for changed in (cell, other):
        finished_cell(copy, plan, changed, seed=1)
    tracker = opened(copy, plan)
    for changed in (cell, other):
        tracker.sync(changed)
    assert {path: path.stat().st_mtime_ns for path in Path(store.root).rglob("*")} == files
    client = MlflowClient(default_tracking_uri(copy))
    parents, children = runs_of(default_tracking_uri(copy), plan)
    for run in [*parents, *children.values()]:
        assert run.info.artifact_uri.startswith(Path(copy.path("mlartifacts")).as_uri())
    result = client.download_artifacts(children[cell.cell_id].info.run_id, "result.json")
    assert json.loads(Path(result).read_text()) == copy.read_json(
        "cells", cell.cell_id, "result.json"
    )

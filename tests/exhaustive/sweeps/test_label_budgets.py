"""Labels: how many gold answers selection and training use, and comparisons at equal labels."""

import json
from pathlib import Path

import yaml
from mlflow import MlflowClient
from sweeps import NAME, decile, experiments, plan_of, run, store_of

from orchestrator.report.analysis import analyse
from orchestrator.report.rows import read_rows
from orchestrator.tracking import default_tracking_uri
from orchestrator.training.cell_folder import CellFolder

# --- a real sweep ---


def test_a_sweep_is_compared_at_equal_labels(tmp_path: Path) -> None:
    """hard has used 64 labels, random 16, few and its control 32, dynamic what it has drawn."""
    policies = ["hard", "random", "few", "control", "dynamic"]
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": policies}
    updates = {"max_steps": 4, "num_generations": 4, "per_device_train_batch_size": 16}
    grpo = {**updates, "max_completion_length": 48, "learning_rate": 1e-3, "save_steps": 2}
    file = experiments(
        tmp_path,
        grid=grid,
        grpo=grpo,
        evaluate={"every": 1, "samples": 2},
        compare_at="labels",
        claims=["few > control on few at 32 labels", "hard > random on few"],
    )
    content = yaml.safe_load(file.read_text())
    content["policies"] = {
        "few": {"policy": "hard", "options": {"labels": 32}},
        "control": {"policy": "random", "options": {"labels": 32}},
    }
    file.write_text(yaml.safe_dump(content))
    planned = json.loads(decile("plan", str(file), "-e", NAME, "--json", folder=tmp_path).stdout)
    before = {cell["policy"]: cell["labels"] for cell in planned["cells"]}
    assert before == {"hard": 64, "random": 16, "few": 32, "control": 32, "dynamic": None}
    text = run(file)
    assert "hard has used 64 labels" in text.replace("\n    ", " ")
    plan, store = plan_of(file), store_of(file)
    rows = {row.cell.policy: row for row in read_rows(store, plan.cells)}
    dynamic = CellFolder(store, rows["dynamic"].cell.cell_id).finished()
    assert dynamic is not None
    tables = (dynamic[1][name] for name in ("groups", "discarded"))
    drawn = {i for table in tables for i in table["prompt_id"].to_pylist()}
    used = {name: labels for name, labels in before.items() if labels} | {"dynamic": len(drawn)}
    client = MlflowClient(default_tracking_uri(store))
    experiment = client.get_experiment_by_name(f"decile/{NAME}")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.decile.cell_id != ''")
    logged = {r.data.tags["decile.cell_id"]: r.data.metrics["ledger/labels"] for r in runs}
    assert {name: logged[row.cell.cell_id] for name, row in rows.items()} == used
    for name, row in rows.items():
        assert store.read_json("cells", row.cell.cell_id, "ledger.json")["labels"] == used[name]
        assert row.labels == used[name]
    report = decile("report", str(file), "-e", NAME, folder=tmp_path)
    assert report.returncode == 0, report.stderr
    pages = [page.read_text() for page in tmp_path.rglob("*.html")]
    assert any("Test accuracy over labels" in page for page in pages)
    at = {claim.text: claim for claim in analyse(plan, store).claims}
    assert at["few > control on few at 32 labels"].value != "–"
    assert "hard has used 64 labels, random 16" in at["hard > random on few"].reason

"""`decile evaluate`: models and trained weights on held-out questions, and their files."""

import json
import re
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import sweeps
from evaluate_cases import save_adapter
from processes import LIMIT
from sweeps import NAME, experiments, plan_of, store_of

import decile as api
from benchmarks.local_cluster import ROOT, environment
from orchestrator.evaluation.metrics import by_update, own_test_set
from orchestrator.pipeline.evaluate import plan_evaluation
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.storage.store import Store
from tasks.shuffled_objects import ShuffledObjects


def test_a_killed_evaluation_draws_what_is_missing(finished: Path, tmp_path: Path) -> None:
    """And the base model's is that of the cells, a cell's adapter gives the cell's evaluation."""
    store, plan = store_of(finished), plan_of(finished)
    cell = plan.cells[0]
    stored = sweeps.evaluations(store, cell.cell_id)
    adapter = store.path("cells", cell.cell_id, "adapter")
    for name, options, said in (
        ("base", (), "every sample is stored"),
        ("new", ("--storage", str(tmp_path / "new")), "32 samples stored"),
        ("after", ("--adapter", adapter), "32 samples stored"),
    ):
        arguments = ("evaluate", str(finished), "-e", NAME, "--out", f"{name}.parquet", *options)
        done = sweeps.decile(*arguments, folder=tmp_path)
        assert said in done.stdout + done.stderr, done.stdout + done.stderr
    columns = ["prompt_id", "sample", "outcome", "completion"]
    for name, update in (("base", 0), ("new", 0), ("after", 12)):
        rows = own_test_set(by_update(stored)[update])
        rows = rows.sort_by([("prompt_id", "ascending"), ("sample", "ascending")])
        assert pq.read_table(tmp_path / f"{name}.parquet", columns=columns).equals(
            rows.select(columns)
        ), name
    folder = store.path("cells", cell.cell_id)
    compared = api.compare({"cell": folder, "after": tmp_path / "after.parquet"}).to_dict()
    assert compared["comparisons"][0]["effect"] == 0
    assert not any("settings" in caveat for caveat in compared["caveats"])

    file, log = experiments(tmp_path), tmp_path / "log"
    file.write_text(file.read_text().replace("test: 16", "test: 600"))
    save_adapter(tmp_path / "adapter")
    options = ("--adapter", "adapter", "--out", "after.parquet", "--force")
    spec = plan_evaluation(plan_of(file), adapter=tmp_path / "adapter").spec
    parts = tmp_path / "runs" / "probes" / spec.key
    driver = sweeps.start(file, log, *options, verb="evaluate")
    sweeps.wait_for(lambda: [*parts.glob("*.parquet")], driver, log)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    pool = plan_of(file).pool(spec)
    drawn = ProbeFolder(Store(str(tmp_path / "runs")), spec, pool.test, pool.task).outcomes().drawn
    assert 0 < drawn < 1200
    resumed = sweeps.decile("evaluate", str(file), "-e", NAME, *options, folder=tmp_path)
    text = resumed.stdout + resumed.stderr
    assert f"{drawn:,} of 1,200 samples stored, {1200 - drawn:,} to draw" in text, text
    rows = pq.read_table(tmp_path / "after.parquet").select(["prompt_id", "sample"]).to_pylist()
    assert len({tuple(row.values()) for row in rows}) == len(rows) == 1200


TRAINERS, MEASURING = (
    (ROOT / "docs" / f"{name}.md").read_text() for name in ("trainers", "measuring")
)


def section(page: str, title: str) -> list[tuple[str, str]]:
    """The code blocks below a heading, with their languages."""
    text = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```(python)?\n(.*?)^```", text, re.M | re.S)


def run_here(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**sweeps.ONE_CPU, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_recipes_of_the_pages_run(tmp_path: Path) -> None:
    """Several seeds of one's own trainer, then the evaluations of a checkpoint."""
    pool = ShuffledObjects(train=60).train()
    rows = ({"question": prompt.question, "answer": prompt.answer} for prompt in pool)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "questions.jsonl").write_text(text)
    [(_, chosen), (_, train), (_, loop), (_, printed)] = section(TRAINERS, "Several seeds")
    assert "max_steps=10" in train and "seed in 0 1 2" in loop
    (tmp_path / "train.py").write_text(train.replace("max_steps=10", "max_steps=2"))
    for line in chosen.splitlines():
        run_here(sweeps.command(*line.split()[1:]), tmp_path)
    files: dict[str, list[str]] = {"hard": [], "random": []}
    for arm, seed in product(files, "01"):
        run_here([sys.executable, "train.py", arm, seed], tmp_path)
        line = next(line for line in loop.splitlines() if "evaluate" in line)
        line = line.replace("$arm", arm).replace("$seed", seed)
        run_here(sweeps.command(*line.split()[1:]), tmp_path)
        files[arm].append(f"{arm}={arm}-seed{seed}.parquet")
    done = run_here(sweeps.command("compare", *files["hard"], *files["random"]), tmp_path)
    assert "hard, random (" in done and "about policies" in printed
    (tmp_path / "out" / "hard-seed0").rename(tmp_path / "adapter")
    (tmp_path / "out").rename(tmp_path / "seeds")
    (tmp_path / "adapter").rename(tmp_path / "out")
    (_, evaluations), *_ = section(MEASURING, "Evaluate a checkpoint")
    for line in evaluations.splitlines():
        if "--checkpoint" not in line:  # with full weights: real/test_trained_weights
            run_here(sweeps.command(*line.split()[1:]), tmp_path)
    done = run_here(sweeps.command("compare", "base.parquet", "after.parquet"), tmp_path)
    assert "base, after (" in done and "about these models" in done

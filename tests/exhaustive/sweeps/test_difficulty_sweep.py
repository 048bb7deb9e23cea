"""A sweep over what policies rank by, with two models that are really sampled; also killed."""

import shutil
import signal
from pathlib import Path

import numpy as np
import sweeps
import yaml
from safetensors.numpy import load_file, save_file

from orchestrator.embedded import embedded_path
from orchestrator.report.analysis import analyse
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.selection.stored import read_subset
from orchestrator.training.cell_folder import CellFolder

SOURCES = ["gold", "agreement", {"model": "other"}]


def with_other_model(folder: Path) -> Path:
    """The file of a small sweep over SOURCES; `other` is tiny with noise on its weights."""
    other = folder / "other"
    shutil.copytree(embedded_path("tiny"), other)
    weights, rng = load_file(other / "model.safetensors"), np.random.default_rng(0)
    noise = {n: rng.normal(scale=0.1 * w.std(), size=w.shape) for n, w in weights.items()}
    noisy = {name: (w + noise[name]).astype(w.dtype) for name, w in weights.items()}
    save_file(noisy, other / "model.safetensors", metadata={"format": "pt"})
    file = sweeps.experiments(
        folder,
        grid={
            "model": ["tiny"],
            "dataset": ["few"],
            "policy": ["hard", "random"],
            "difficulty": SOURCES,
        },
        grpo={
            "max_steps": 2,
            "num_generations": 4,
            "per_device_train_batch_size": 16,
            "max_completion_length": 48,
        },
        evaluate={"every": 0, "samples": 2},
    )
    content = yaml.safe_load(file.read_text())
    content["models"]["other"] = {"path": str(other)}
    file.write_text(yaml.safe_dump(content))
    return file


def test_a_killed_sweep_over_sources_is_resumed_and_then_nothing_is_left(tmp_path: Path) -> None:
    file, log = with_other_model(tmp_path), tmp_path / "log"
    plan, store = sweeps.plan_of(file), sweeps.store_of(file)
    own, other = plan.training_probes
    parts = tmp_path / "runs" / "probes" / other.key
    driver = sweeps.start(file, log)
    sweeps.wait_for(lambda: [*parts.glob("*.parquet")], driver, log)
    driver.send_signal(signal.SIGKILL)
    driver.wait()

    text = sweeps.run(file)
    assert "probe tiny/few train: all 256 samples stored" in text, text
    cells = {cell.ranked_by: cell for cell in plan.cells if cell.policy == "hard"}
    assert [*cells] == ["pass rate of tiny", "agreement of tiny", "pass rate of other"]
    subsets = {name: read_subset(store, cell) for name, cell in cells.items()}
    tables = {spec.model.name: PlanProbe(plan, store, spec).tables for spec in (own, other)}
    rates = {
        "pass rate of tiny": tables["tiny"].with_ranking(own, 4, "gold"),
        "agreement of tiny": tables["tiny"].with_ranking(own, 4, "agreement"),
        "pass rate of other": tables["other"].with_ranking(other, 4, "gold"),
    }
    for name, subset in subsets.items():
        assert subset is not None and CellFolder(store, cells[name].cell_id).result()
        table = rates[name].to_pylist()
        chosen = {*subset["prompt_id"].to_pylist()}
        inside = [row["pass_rate"] for row in table if row["prompt_id"] in chosen]
        outside = [row["pass_rate"] for row in table if row["prompt_id"] not in chosen]
        assert max(inside) <= min(outside), name
        golds = {
            row["prompt_id"]: row["pass_rate"] for row in rates["pass rate of tiny"].to_pylist()
        }
        assert subset["pass_rate"].to_pylist() == [
            golds[i] for i in subset["prompt_id"].to_pylist()
        ]
    assert "Sources of difficulty: few" in text and "Accuracy by source of difficulty" in text
    [matrix] = analyse(plan, store).sources
    assert len(matrix.pairs) == 6 and matrix.known == (64,) * 4

    files = {f: f.stat().st_mtime_ns for f in (tmp_path / "runs").rglob("*.parquet")}
    assert "nothing to do: all 4 cells of small are finished" in sweeps.run(file)
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / "runs").rglob("*.parquet")} == files

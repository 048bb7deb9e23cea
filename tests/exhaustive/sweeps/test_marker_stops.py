"""An unreliable marker stops a sweep before it costs anything, with the reason.

Real sweeps on the embedded model, with tasks of a user's own from a file beside the YAML.
"""

from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from marker_stops_cases import LYING
from sweeps import NAME, decile, experiments

from orchestrator.cli.doctor import checks
from orchestrator.optional.code.sandbox import problem


def test_a_marker_that_ends_its_process_costs_only_its_own_answers(tmp_path: Path) -> None:
    (tmp_path / "lying_task.py").write_text(LYING)
    file = experiments(tmp_path, max_marking_errors=0.9)
    file.write_text(file.read_text().replace("task: shuffled_objects", "task: lying_task:Crashing"))
    process = decile("probe", str(file), "-e", NAME, folder=tmp_path, OF_TEST=str(tmp_path))
    assert process.returncode == 0, process.stdout + process.stderr
    rows = [
        row
        for part in (tmp_path / "runs" / "probes").glob("*/*.parquet")
        for row in pq.read_table(part).to_pylist()
        if row["marker"].startswith("shuffled_objects")
    ]
    assert len(rows) == 64 * 4 + 16 * 2 + 16  # the pool, the test set, and that greedily
    for row in rows:
        crashes = len(row["completion"]) > 20 and len(row["completion"]) % 5 == 0
        assert (row["outcome"] == "error") == crashes
        assert (row["rule"] == row["other_rule"] == "crashed@exit-code-3") == crashes
    assert 0 < sum(row["outcome"] == "error" for row in rows) < len(rows)
    assert not left_behind(tmp_path), "they end with the Ray workers that started them"


def left_behind(folder: Path) -> list[psutil.Process]:
    """The processes that mark for a sweep in this folder."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            marks = "tasks.children" in " ".join(process.cmdline())
            if marks and process.environ().get("OF_TEST") == str(folder):
                processes.append(process)
    return processes


def test_doctor_tries_every_marker_in_a_ray_worker(local_ray: Path, tmp_path: Path) -> None:
    from orchestrator.config.catalog import load_config
    from orchestrator.planning.resolve import datasets_of

    (local_ray / "lying_task.py").write_text(LYING)
    file = experiments(tmp_path)
    file.write_text(file.read_text().replace("task: shuffled_objects", "task: lying_task:Lying"))
    results = {check.name: check for check in checks(None, datasets_of(load_config(file)))}
    failed = [name for name, check in results.items() if not check.ok]
    assert failed == ["dataset few"]
    assert "MarkerFails" in results["dataset few"].detail
    assert "reset with 8 rows, 1 tool (guess)" in results["marker number_guess"].detail
    others = {"marker environment", "marker number_guess", "marker mix"}  # its data sets are
    unchecked = others | ({"marker code"} if problem() else set())  # without a sandbox
    markers = [name for name in results if name.startswith("marker ") and name not in unchecked]
    assert {"marker gsm8k", "marker math", "marker file"} <= set(markers)
    assert all("4 pathological" in results[name].detail for name in markers)

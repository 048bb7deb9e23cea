"""`import decile`: the same stores and numbers as the commands."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from api_cases import pool
from paths import ROOT
from processes import LIMIT
from sweeps import NAME, probed

from benchmarks.local_cluster import environment
from notebooks import run_cells

EXAMPLE = (ROOT / "docs" / "examples" / "notebook.py").read_text()


def test_every_line_of_the_example_runs_in_a_notebook(
    finished: Path, local_ray: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pool()
    content = yaml.safe_load(probed(finished, tmp_path, grpo=_TRAINING).read_text())
    content["experiments"] = {"compare": content["experiments"][NAME]}
    Path("mine.yaml").write_text(yaml.safe_dump(content))
    cells = [ast.unparse(node) for node in ast.parse(EXAMPLE).body]
    assert len(cells) > 25
    outputs = dict(zip(cells, run_cells(cells, tmp_path), strict=True))
    everything = [output for each in outputs.values() for output in each]
    assert [each for each in everything if each["output_type"] == "error"] == []
    assert Path("outcomes.png").exists() and Path("train.parquet.card.md").exists()
    text = "".join(each["text"] for each in everything if each["output_type"] == "stream")
    assert "unknown policy 'hardest'" in text
    for cell, own in outputs.items():  # what progress and trainer print is one output
        displays = [each["data"] for each in own if each["output_type"] == "display_data"]
        ours = [
            line for each in own for line in each.get("text", "").split("\n") if "probe " in line
        ]
        if ".run()" in cell or "= decile.probe(" in cell:
            assert len(displays) == 1 and displays[0]["text/plain"].strip() and not ours


_TRAINING = {
    "max_steps": 2,
    "num_generations": 4,
    "per_device_train_batch_size": 16,
    "max_completion_length": 16,
}


def test_ray_ends_with_a_call_unless_it_has_run_before(tmp_path: Path) -> None:
    pool()
    for name in ("tasks.py", "cluster.py"):  # named as packages of Decile
        Path(name).write_text("raise RuntimeError('a module of the user')")
    Path("my_marks.py").write_text(
        "def mark(completions, answer, **columns):\n"
        "    return [float(a in c[-1]['content']) for c, a in zip(completions, answer)]\n"
    )
    Path("script.py").write_text(
        "import decile, ray\n"
        "for samples in (1, 2):\n"
        "    probe = decile.probe('pool.jsonl', 'tiny', samples, marker='my_marks:mark',\n"
        "                         max_completion_length=16)\n"
        "    print(probe, ray.is_initialized())\n"
        "    ray.init('local', num_cpus=1, include_dashboard=False, log_to_driver=False,\n"
        "             ignore_reinit_error=True)\n"
    )
    process = subprocess.run(
        [sys.executable, "script.py"],
        env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "× 1> False" in process.stdout and "× 2> True" in process.stdout


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

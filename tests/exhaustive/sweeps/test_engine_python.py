"""Engines under another interpreter: what is checked before, and where the actors then run."""

import os
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from engine_python_cases import check, interpreter
from sweeps import evaluations, experiments, plan_of, run, store_of

from orchestrator.plugins.project_modules import PACKAGES, ROOT
from orchestrator.probing.checks import EngineFails

ENGINE = '''
import os
from pathlib import Path
from orchestrator.sampling.transformers import TransformersSampler


class Logged(TransformersSampler):
    """Writes down which environment it is loaded in."""

    @classmethod
    def load(cls, source, device=None, lora_rank=0):
        with open(Path(__file__).parent / "loads", "a") as file:
            print(os.environ.get("ENVIRONMENT"), lora_rank, file=file)
        return super().load(source, device, lora_rank)
'''


def test_probes_and_evaluations_run_under_it(finished: Path, local_ray: Path) -> None:
    (local_ray / "logged.py").write_text(ENGINE)
    python = interpreter(local_ray / "own environment" / "python", "export ENVIRONMENT=own")
    own = {"engine": "logged:Logged", "engine_python": os.path.relpath(python, local_ray)}
    file = experiments(
        local_ray,
        grid={"model": ["tiny"], "dataset": ["few"], "policy": ["hard"]},
        probe={"samples": 4, "max_completion_length": 48, "adaptive": True} | own,
        evaluate={"every": 6, "samples": 2, "greedy": True} | own,
    )
    text = " ".join(run(file, here=True).split())
    assert f"engine of probe: transformers {version('transformers')} ({python})" in text, text
    loads = set((local_ray / "loads").read_text().split("\n")[:-1])
    assert loads == {"own 0", "own 4"}
    hard, reference = plan_of(file).cells[0], plan_of(finished).cells[0]
    own_test = evaluations(store_of(finished), reference.cell_id)
    own_test = own_test.filter([row["dataset"] == "" for row in own_test.to_pylist()])
    assert evaluations(store_of(file), hard.cell_id) == own_test


def test_the_same_decile_must_be_installed_there(local_ray: Path, tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / "lib" / package)
    python = interpreter(tmp_path / "python", f"export PYTHONPATH={tmp_path / 'lib'}")
    assert check(python)
    with (tmp_path / "lib" / "tasks" / "gsm8k.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(EngineFails, match=f"the decile in {tmp_path / 'lib'} differs"):
        check(python)

"""What the tests of project modules share."""

from pathlib import Path

import pytest
import yaml
from sweeps import NAME, experiments

from orchestrator.plugins.project_modules import PACKAGES

BROKEN = "raise SystemExit('a module of the user was imported')\n"
HIDING = (
    *PACKAGES[2:],
    *("statistics", "json", "argparse", "inspect", "types", "random", "pathlib", "six"),
    *("mlflow", "transformers", "ray", "torch", "numpy", "pandas", "pyarrow", "pydantic", "click"),
)
TASK = """
import helper
from tasks.shuffled_objects import ShuffledObjects
class Mine(ShuffledObjects):
    {doc}
"""
POLICY = '''
def best(table, size, rng):
    """The first rows."""
    import helper, numpy
    return numpy.arange(size)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that hides half of the world, with a task and a policy of its own."""
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text(BROKEN)
    for name in ("vllm", "wandb", "flash_attn"):
        (tmp_path / name).mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(BROKEN)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "questions.py").write_text(TASK.format(doc='"""My questions."""'))
    (tmp_path / "rules.py").write_text(POLICY)
    (tmp_path / "helper.py").write_text("")
    return tmp_path


def own(folder: Path, **changes: object) -> Path:
    """An experiment with the project's task and policy."""
    file = experiments(folder, **changes)
    content = yaml.safe_load(file.read_text())
    content["datasets"]["few"]["task"] = "mine.questions:Mine"
    content["experiments"][NAME]["grid"]["policy"] = ["rules:best"]
    file.write_text(yaml.safe_dump(content))
    return file

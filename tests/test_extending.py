"""docs/extending.md: its files run as they are, and its tables are those of the code."""

import json
import re
from pathlib import Path

import pytest
from sweeps import decile

from orchestrator.storage.schema import DIFFICULTY

TEXT = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
FILES = {"my_task.py", "my_policy.py", "my_engine.py", "experiments.yaml"}


def files() -> dict[str, str]:
    """Name -> content of each code block that begins with a file's name."""
    return dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_examples_are_short() -> None:
    assert files().keys() == FILES
    for name, text in files().items():
        lines = [line for line in text.split("\n") if line.strip()]
        assert len(lines) <= 20 and max(map(len, lines)) <= 100, name
    assert len(re.findall("```python", TEXT)) == len(FILES) - 1


def test_the_columns_of_the_difficulty_table() -> None:
    table = TEXT[TEXT.index("### The difficulty table") : TEXT.index("## An engine")]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE)
    assert rows == [(field.name, str(field.type)) for field in DIFFICULTY]


@pytest.mark.slow
def test_the_examples_plan(folder: Path) -> None:
    process = decile("plan", "experiments.yaml", "-e", "mine", "--json", folder=folder)
    assert process.returncode == 0, process.stderr
    view = json.loads(process.stdout)
    assert [cell["policy"] for cell in view["cells"]] == ["near-half", "random"]


@pytest.mark.cluster
def test_the_examples_probe(folder: Path) -> None:
    process = decile("probe", "experiments.yaml", "-e", "mine", folder=folder)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "near-half" in process.stdout and "wrote probe-mine.html" in process.stdout
    (command,) = re.findall(r"decile (select .*)", process.stdout)
    process = decile(*command.split(), folder=folder)
    assert process.returncode == 0 and "8 prompts" in process.stdout, process.stderr

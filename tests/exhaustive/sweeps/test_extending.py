"""docs/extending.md: its files run as they are, and its tables are those of the code."""

import re
from pathlib import Path

from extending_cases import (
    files,
    folder,  # noqa: F401 (fixtures)
)
from sweeps import decile_here


def test_the_examples_probe(local_ray: Path, tmp_path: Path) -> None:
    for name, text in files().items():
        (local_ray if name.endswith(".py") else tmp_path).joinpath(name).write_text(text)
    process = decile_here("probe", "experiments.yaml", "-e", "mine", folder=tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "near-half" in process.stdout and "wrote probe-mine.html" in process.stdout
    (command,) = re.findall(r"decile (select .*)", process.stdout)
    process = decile_here(*command.split(), folder=tmp_path)
    assert process.returncode == 0 and "8 prompts" in process.stdout, process.stderr

"""What the tests of code share."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.optional.code.sandbox import problem

needs_sandbox = pytest.mark.skipif(bool(problem()), reason=problem())


def written(folder: Path, *rows: dict[str, Any]) -> str:
    file = folder / "programs.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)

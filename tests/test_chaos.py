"""A short form of `make chaos`: two kills and two damaged files of a real sweep."""

import random
import time
from pathlib import Path

import pytest
from chaos.cases import sweep
from chaos.damage import damaged_files
from chaos.kills import kills
from sweeps import run

pytestmark = pytest.mark.cluster


def test_kills_and_damaged_files_do_not_change_results(tmp_path: Path) -> None:
    folder, rng = tmp_path / "reference", random.Random(0)
    folder.mkdir()
    reference, began = sweep(folder), time.monotonic()
    run(reference)
    cases = [*kills(tmp_path, reference, time.monotonic() - began, 2, rng)]
    cases += damaged_files(tmp_path, {"finished": folder}, reference, 2, rng)
    assert [problem for case in cases for problem in case.problems] == []

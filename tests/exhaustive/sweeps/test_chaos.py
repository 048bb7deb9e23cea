"""A short form of `make chaos`: Ray's GCS is killed while a sweep trains, and a file is damaged.

test_signals.py kills all others, test_damage_reruns.py damages a file of every kind.
"""

import random
from pathlib import Path
from typing import Any

import pytest
from chaos import damage, kills
from sweeps import experiments, probed


class GcsFirst(random.Random):
    """Chooses the GCS where it runs, after a time in which a sweep begins to train."""

    def uniform(self, a: float, b: float) -> float:
        return 15.0

    def choice(self, seq: Any) -> Any:
        return "GCS" if "GCS" in seq else super().choice(seq)


def test_a_killed_gcs_and_a_damaged_file_do_not_change_results(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "sweep", lambda folder: probed(finished, folder))
    monkeypatch.setattr(kills, "PER_SWEEP", 1)
    monkeypatch.setattr(damage, "sweep", experiments)
    rng, stores = GcsFirst(0), {"finished": finished.parent}
    cases = [*kills.kills(tmp_path, finished, 0, 1, rng)]
    cases += damage.damaged_files(tmp_path, stores, finished, 1, rng)
    assert [case.count for case in cases] == [1, 1]
    assert [problem for case in cases for problem in case.problems] == []

"""An update here and in plain TRL, from the same rollouts: the same gradients to rounding."""

import json
from pathlib import Path
from typing import Any

import pytest
from gradients import difference
from grpo import mark_in_this_process, marks_in_this_process, one_thread  # noqa: F401 (fixtures)
from same_gradients_cases import ACCUMULATED, SIX, rollouts, trained_in_both_ways  # noqa: F401 (fixtures)
from two_workers import two_workers


def worker(rank: int, folder: Path, settings: dict[str, Any]) -> None:
    """One of two workers that train in both ways; writes the difference, and rows left out."""
    own = folder / str(rank)
    own.mkdir()
    seen = []
    for loss_type in ("dr_grpo", "dapo"):
        with pytest.MonkeyPatch.context() as patch:
            mark_in_this_process(patch)
            both = trained_in_both_ways(own, **settings, loss_type=loss_type)
        (trainer, ours), (_, trls) = both
        left_out = [int((~batch["kept"]).sum()) for batch in trainer._buffered_inputs]
        seen.append([difference(ours, trls), left_out])
    (own / "seen.json").write_text(json.dumps(seen))


def test_two_workers_give_the_weights_of_trl(tmp_path: Path) -> None:
    """Of 4 groups each, in 2 micro-batches."""
    settings = {"optim": "sgd", "beta": 0.0, "max_steps": 3, "max_completion_length": 24}
    two_workers(worker, tmp_path, SIX | ACCUMULATED | settings)
    one, other = (json.loads((tmp_path / str(n) / "seen.json").read_text()) for n in (0, 1))
    assert one == other and len(one) == 2
    assert all(moved < 1e-4 and sum(left_out) > 0 for moved, left_out in one)

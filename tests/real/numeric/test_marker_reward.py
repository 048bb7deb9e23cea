"""`decile.MarkerReward` in TRL's own trainer rewards as the task marks."""

import sys
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from grpo import one_thread  # noqa: F401 (fixture)
from trl_selector_cases import rows_of, small_cell, trainer_of

from decile import MarkerReward
from orchestrator.planning.pools import load_pool
from tasks import get_task

OWN = """
from zlib import crc32

from tasks.shuffled_objects import ShuffledObjects


class Failing(ShuffledObjects):
    def mark(self, completion, answer, truncated=False):
        if crc32(completion.encode()) % 2:
            raise ValueError("odd")
        return super().mark(completion, answer, truncated)
"""


@pytest.mark.parametrize("name", ["shuffled_objects", "marked_in_children:Failing"])
def test_rewards_are_the_marks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "marked_in_children.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    cell = small_cell(tmp_path, "predicted", {}, max_steps=1, max_completion_length=96)
    assert load_pool(cell.probe.dataset).task.name == "shuffled_objects"
    task, own = get_task("shuffled_objects"), ":" in name
    expected: list[float] = []

    def recorded(completions: Any, answer: list[str], **_: Any) -> list[float]:
        for completion, gold in zip(completions, answer, strict=True):
            text = completion[0]["content"]
            if (
                not own or crc32(text.encode()) % 2 == 0
            ):  # of the others marking fails, and TRL has no reward
                expected.append(task.mark(text, gold).score or 0.0)
        return [0.0] * len(answer)

    rows = SimpleNamespace(dataset=rows_of(cell).select_columns(["prompt", "answer", "prompt_id"]))
    rewards = [MarkerReward(name), recorded]
    trainer = trainer_of(cell, tmp_path / "out", rows, rewards=rewards)
    trainer.train()
    [logged] = [log for log in trainer.state.log_history if "rewards/correct/mean" in log]
    assert 0 < len(expected) < 16 if own else len(expected) == 16
    assert logged["rewards/correct/mean"] == pytest.approx(mean(expected))
    assert own or 0 < mean(expected) < 1
    sys.modules.pop("marked_in_children", None)

"""What the tests of online share."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from factories import marked_rollout, small_plan
from grpo import GROUP

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.evaluation.groups import GroupRecorder, Marked
from orchestrator.planning.cells import Cell
from orchestrator.training.online import Chooser, Rollout
from orchestrator.training.rollouts import with_rewards
from policies import History
from tasks import Prompt
from tasks.prompt_table import PromptTable

COUNT = 12


def online_cell(folder: Path, policy: str, options: dict[str, Any], **changes: object) -> Cell:
    [cell] = small_plan(folder, policies=["random"]).cells
    rule = PolicyEntry(policy=policy, options=options)
    return cell.model_copy(update={"online": rule, "size": COUNT, **changes})


def pool_of(answers: Sequence[str]) -> PromptTable:
    return PromptTable.of([Prompt(f"p{i:02}", f"q {i}", a, "") for i, a in enumerate(answers)])


def known(cell: Cell, prompts: PromptTable) -> History:
    ids = prompts.column("prompt_id").combine_chunks()
    half = [GROUP // 2] * len(prompts)
    sizes = {"seed": cell.seed, "updates": cell.updates, "group_size": GROUP}
    return History(ids, [GROUP] * len(prompts), half, **sizes)


@pytest.fixture
def dynamic(tmp_path: Path) -> Cell:
    return online_cell(tmp_path, "dynamic", {"max_draws": 3})


def chooser_of(cell: Cell, answers: Sequence[str], recorder: GroupRecorder) -> Chooser:
    """A chooser without a trainer, whose rollouts are marked by their answers."""
    prompts = pool_of(answers)

    def row(prompt: Prompt) -> dict[str, Any]:
        return {"prompt": prompt.question, "prompt_id": prompt.prompt_id, "answer": prompt.answer}

    def mark(_: Any, ids: Any, rows: Sequence[dict[str, Any]]) -> list[Marked]:
        marks = []
        for i, each in enumerate(rows):
            words = each["answer"].split(" or ")
            outcome = words[i % len(words)]
            reward = None if outcome == "error" else float(outcome == "correct")
            marks.append(marked_rollout(outcome, reward, each["prompt_id"]))
        return marks

    assert cell.online is not None
    history, reward = known(cell, prompts), partial(with_rewards, cell)
    return Chooser(cell.online, history, prompts, recorder, row, mark, reward)


def generate(rows: Sequence[dict[str, Any]]) -> list[Rollout]:
    return [Rollout([1], [2, 3], row["prompt_id"]) for row in rows]

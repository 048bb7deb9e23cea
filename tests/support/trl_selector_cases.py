"""What the tests of trl selector share."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sweeps
from accelerate import PartialState
from datasets import Dataset
from grpo import rated_pool
from peft import LoraConfig
from transformers import PrinterCallback, set_seed
from trl import GRPOTrainer

from decile.trl import PromptSelector
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.planning.cells import Cell
from orchestrator.planning.expand import choice_of
from orchestrator.planning.pools import load_pool
from orchestrator.sampling.loading import load_model
from orchestrator.training.trainer import grpo_config, training_row

G, UPDATES = 4, 4


def is_correct(question: str, number: int) -> bool | None:
    """The same history wherever it is asked for: by question and number in the group."""
    digest = hashlib.sha256(question.encode()).digest()
    if digest[1] % 16 == 0 and number == 0:
        return None
    return number < digest[0] % (G + 1)


def reward(prompts: Any, question: Sequence[str], **_: Any) -> list[float | None]:
    first = PartialState().process_index * len(question)
    marks = [is_correct(each, i % G) for i, each in enumerate(question, first)]
    return [None if mark is None else float(mark) for mark in marks]


def small_cell(folder: Path, policy: str, options: dict[str, Any], **grpo: object) -> Cell:
    cell = sweeps.plan_of(sweeps.experiments(folder)).cells[0]
    rule, online = PolicyEntry(policy=policy, options=options).parts
    sizes = {"max_steps": UPDATES, "max_completion_length": 8, "per_device_train_batch_size": 16}
    changes = choice_of(rule, online) | {"size": 24, "seed": 3, "rollouts_by": "trl"}
    changes |= {"grpo": cell.grpo | sizes | grpo, "evaluate_every": 0, "extra_evals": []}
    return cell.model_copy(update=changes)


def rows_of(cell: Cell) -> Dataset:
    """The pool as a user's own data set, in an order of its own."""
    pool = load_pool(cell.probe.dataset)
    return Dataset.from_list([training_row(pool.task, p) for p in reversed([*pool.train])])


def selector_of(cell: Cell, policy: str, **changes: Any) -> PromptSelector:
    given = {"table": rated_pool(cell), "dataset": rows_of(cell)}
    return PromptSelector(policy, **given | {"budget": cell.size, "seed": cell.seed} | changes)


def trainer_of(
    cell: Cell,
    folder: Path,
    selector: PromptSelector,
    rewards: Any = reward,
    kind: type = GRPOTrainer,
    **changes: Any,
) -> Any:
    """TRL's trainer with the settings of a cell."""
    set_seed(cell.seed)
    model, tokenizer = load_model(cell.probe.model)
    args: Any = grpo_config(cell.probe.model, cell.seed, folder, cell.grpo)
    for name, value in changes.items():
        setattr(args, name, value)
    trainer = kind(
        model=model,
        processing_class=tokenizer,
        args=args,
        reward_funcs=rewards,
        train_dataset=selector.dataset,
        peft_config=LoraConfig(task_type="CAUSAL_LM", **cell.lora),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    return small_cell(tmp_path_factory.mktemp("cell"), "predicted", {}, max_steps=2, save_steps=2)


def sizes(cell: Cell, updates: int) -> dict[str, int]:
    return {"seed": cell.seed, "updates": updates, "group_size": G}


def by_update(groups: pa.Table) -> list[tuple[int, str, list[Any]]]:
    return [(row["update"], row["prompt_id"], row["outcomes"]) for row in groups.to_pylist()]

"""`decile.trl.PromptSelector` in TRL's own trainer, against cells with the same history."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sweeps
import torch
from datasets import Dataset
from grpo import Killed, one_thread, rated_pool, trained_cell  # noqa: F401 (fixture)
from trl import GRPOTrainer

from decile.trl import PromptSelector
from orchestrator.config.entries import PolicyEntry
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import load_pool
from orchestrator.sampling.loading import load_model
from orchestrator.storage.schema import GROUPS
from orchestrator.training.trainer import grpo_config, training_row
from tasks.marking.marks import Mark

G, UPDATES = 4, 6
ONLINE: dict[str, dict[str, Any]] = {
    "dynamic": {"max_draws": 2},
    "balanced": {"of": "hard", "low": 0.3},
    "curriculum": {"of": {"band": {"low": 0.2, "high": 0.8}}},
    "pools": {"retire": 1},
    "predicted": {},
}


def is_correct(question: str, number: int) -> bool | None:
    """The same history wherever it is asked for: by question and number in the group."""
    digest = hashlib.sha256(question.encode()).digest()
    if digest[1] % 16 == 0 and number == 0:
        return None
    return number < digest[0] % (G + 1)


def reward(prompts: Any, question: Sequence[str], **_: Any) -> list[float | None]:
    marks = [is_correct(each, i % G) for i, each in enumerate(question)]
    return [None if mark is None else float(mark) for mark in marks]


def small_cell(folder: Path, policy: str, options: dict[str, Any], **grpo: object) -> Cell:
    cell = sweeps.plan_of(sweeps.experiments(folder)).cells[0]
    rule, online = PolicyEntry(policy=policy, options=options).parts
    sizes = {"max_steps": UPDATES, "max_completion_length": 8, "per_device_train_batch_size": 16}
    changes = {"online": online, "rule": rule, "size": 24, "seed": 3, "rollouts_by": "trl"}
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
    from peft import LoraConfig
    from transformers import set_seed

    set_seed(cell.seed)
    model, tokenizer = load_model(cell.probe.model)
    args: Any = grpo_config(cell.probe.model, cell.seed, folder, cell.grpo)
    for name, value in changes.items():
        setattr(args, name, value)
    return kind(
        model=model,
        processing_class=tokenizer,
        args=args,
        reward_funcs=rewards,
        train_dataset=selector.dataset,
        peft_config=LoraConfig(task_type="CAUSAL_LM", **cell.lora),
    )


def by_update(groups: pa.Table) -> list[tuple[int, str, list[Any]]]:
    return [(row["update"], row["prompt_id"], row["outcomes"]) for row in groups.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["hard", "random", "full", *ONLINE])
def test_the_prompts_are_those_of_a_cell_with_the_same_history(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def marks(task: Any, answers: Sequence[Any], *_: Any, **__: Any) -> list[Mark]:
        known = [is_correct(answer.question, i % G) for i, answer in enumerate(answers)]
        names = {None: "error", True: "correct", False: "wrong"}
        return [Mark(names[each], None, "") for each in known]

    monkeypatch.setattr("orchestrator.probing.samples.mark_answers", marks)
    options = ONLINE.get(policy, {})
    cell = small_cell(tmp_path, policy, options)
    store = trained_cell(tmp_path, cell, (), monkeypatch)
    place = ("cells", cell.cell_id)
    selector = selector_of(cell, policy, options=options)
    trainer = trainer_of(cell, tmp_path / "out", selector)
    selector.attach(trainer)
    trainer.train()
    expected = store.read_table(GROUPS, *place, "groups.parquet")
    assert expected is not None
    table = selector.table()
    kept = table.filter(pc.equal(table["discarded"], False))
    assert by_update(kept) == by_update(expected)
    assert kept["rewards"] == expected["rewards"] and kept["tier"] == expected["tier"]
    if lost := store.read_table(GROUPS, *place, "discarded.parquet"):
        assert by_update(table.filter(table["discarded"])) == by_update(lost)
    assert (policy in ("dynamic", "balanced")) == (kept.num_rows < table.num_rows)
    assert {*table["update"].to_pylist()} == {*range(1, UPDATES + 1)}
    outcomes = {outcome for row in table["outcomes"].to_pylist() for outcome in row}
    assert {"correct", "wrong"} <= outcomes


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["random", "dynamic", "predicted"])
def test_a_killed_run_continues_as_an_undisturbed_one(tmp_path: Path, policy: str) -> None:
    """Also in a later epoch of the 24 prompts of `random`, of which an update takes 4."""
    cell = small_cell(tmp_path, policy, {}, save_steps=4, max_steps=10)
    runs = []
    for kill in (0, 7):
        folder = tmp_path / f"kill{kill}"
        for stop in [kill, 0] if kill else [0]:
            selector = selector_of(cell, policy)
            rewards = stopped_at(stop) if stop else reward
            trainer = trainer_of(cell, folder, selector, rewards)
            selector.attach(trainer)
            if stop:
                with pytest.raises(Killed):
                    trainer.train()
                assert max(selector.table()["update"].to_pylist()) >= 6
            else:
                trainer.train(resume_from_checkpoint=bool(kill) or None)
        weights = [p.detach().clone() for p in trainer.model.parameters() if p.requires_grad]
        runs.append((selector.table(), weights))
    assert runs[0][0] == runs[1][0] and len(runs[0][0]) >= 40
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))
    trainer.train()  # again, from the start
    assert selector.table()["prompt_id"][:4] == runs[0][0]["prompt_id"][:4]


def stopped_at(update: int) -> Callable[..., Any]:
    def killing(prompts: Any, trainer_state: Any, **columns: Any) -> list[float | None]:
        if trainer_state.global_step + 1 == update:
            raise Killed
        return reward(prompts, **columns)

    return killing

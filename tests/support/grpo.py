"""Real GRPO trainers of the embedded model for tests, with marks that a test chooses."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sweeps
import torch
from factories import evaluation
from safetensors.numpy import load_file

from orchestrator.config.allocation_entry import AllocationEntry
from orchestrator.difficulty.table import difficulty
from orchestrator.evaluation.evaluator import Evaluator
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import load_pool
from orchestrator.sampling.model import ModelSource
from orchestrator.selection.stored import store_subset
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import CellRecord
from orchestrator.training.trainer import build_trainer
from orchestrator.training.trial import run_cell
from orchestrator.training.trl_internals import LiveGroupsTrainer
from policies import History
from tasks import Prompt
from tasks.marking.marks import Mark

GROUP = 4
LIVE = "correct or wrong"
BY_ROWS = ["grpo", "dr_grpo", "sapo", "luspo"]
BY_TOKENS = ["bnpo", "dapo", "cispo", "vespo"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other take ten times as long on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def mark_in_this_process(patch: pytest.MonkeyPatch) -> None:
    """`Fixed` below is no task that a child process could build."""
    patch.setattr(
        "orchestrator.probing.samples.mark_answers",
        lambda task, answers, *_, **__: task.mark_all(answers),
    )


@pytest.fixture(autouse=True, scope="module")
def marks_in_this_process() -> Iterator[None]:
    """For all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        mark_in_this_process(patch)
        yield


class Fixed:
    """A task whose marks follow the answer, not the text: `a or b` alternates."""

    def __init__(self, task: Any) -> None:
        self.messages_of, self.answer_name, self.other_reading = task.messages_of, "answer", self
        self.environment = None

    def mark_all(self, answers: list[Any]) -> list[Mark]:
        alternatives = [answer.answer.split(" or ") for answer in answers]
        return [Mark(words[i % len(words)], None, "fixed") for i, words in enumerate(alternatives)]


def trainer_of(
    folder: Path,
    answers: list[str],
    masked: bool,
    reward: dict[str, float] | None = None,
    allocation: AllocationEntry | None = None,
    known: Callable[[Sequence[Prompt]], History] | None = None,
    model: ModelSource | None = None,
    **grpo: object,
) -> tuple[LiveGroupsTrainer, CellRecord]:
    """A real trainer of one update of len(answers) groups on the embedded model, or on `model`.

    Its adapter differs from the base model, so that the KL term has a gradient. `known`: what is
    known of its prompts, for an allocation.
    """
    plan = sweeps.plan_of(sweeps.experiments(folder))
    [cell, *_] = plan.cells
    settings = cell.grpo | {
        "per_device_train_batch_size": GROUP * len(answers),
        **{"num_generations": GROUP, "max_completion_length": 12, "max_steps": 1},
        **{"save_steps": 1000, "beta": 0.1, "scale_rewards": "group", "loss_type": "grpo"},
        **grpo,
    }
    changes = {"grpo": settings, "mask_dead_groups": masked, "reward": reward or {}}
    changes["allocation"] = allocation
    if model:
        changes["probe"] = cell.probe.model_copy(update={"model": model})
    cell = cell.model_copy(update=changes)
    pool, record = load_pool(cell.probe.dataset), CellRecord()
    subset = [
        Prompt(p.prompt_id, p.question, answer, p.tier)
        for p, answer in zip(pool.train, answers, strict=False)
    ]
    trainer: Any = build_trainer(
        *(cell, folder / "out", Fixed(pool.task), subset, record),
        history=known(subset) if known else None,
    )
    torch.manual_seed(1)
    for weight in trained(trainer):
        weight.data += 0.05 * torch.randn_like(weight)
    return trainer, record


def trained(trainer: Any) -> list[torch.Tensor]:
    """The weights that are trained."""
    return [p for p in trainer.model.parameters() if p.requires_grad]


def generation(trainer: Any) -> dict[str, Any]:
    """One scored generation, as the loss will see it."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))


def gradient(trainer: Any, batches: list[dict[str, Any]], loss: Any) -> torch.Tensor:
    """The gradient that an update of these micro-batches gives, flat."""
    trainer.model.zero_grad()
    trainer.current_gradient_accumulation_steps = len(batches)
    trainer.args.steps_per_generation = len(batches)
    for batch in batches:
        value = loss(trainer, trainer.model, batch)
        assert torch.isfinite(value)
        value.backward()
    return torch.cat([p.grad.flatten() for p in trained(trainer)])


class Killed(BaseException):
    """Ends a trial as a kill would, as far as the store can tell."""


def rated_pool(cell: Cell) -> pa.Table:
    """Pass rates from 0 to 1 of a cell's pool, from four samples each, by prompt_id."""
    rows = [
        {"prompt_id": p.prompt_id, "sample": k, "outcome": "correct" if k < i % 5 else "wrong"}
        for i, p in enumerate(load_pool(cell.probe.dataset).train)
        for k in range(4)
    ]
    tiers = {p.prompt_id: p.tier for p in load_pool(cell.probe.dataset).train}
    return difficulty(pa.Table.from_pylist(rows), tiers, samples_per_prompt=4)


def trained_cell(
    folder: Path,
    cell: Cell,
    stops: Sequence[int],
    monkeypatch: Any,
    reported: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Store:
    """Run a cell of the embedded model to its end, from a new trial after each of `stops`.

    Its subset is selected from `rated_pool`; each report of a trial is passed on.
    """
    store = Store(str(folder / "runs"))
    pool = load_pool(cell.probe.dataset)
    store_subset(store, cell, rated_pool(cell))
    rng = np.random.default_rng(0)
    base = evaluation(cell, [*pool.test], 0, rng)
    monkeypatch.setattr(Evaluator, "base", lambda *_: base)
    monkeypatch.setattr(
        Evaluator, "evaluate", lambda _, sampler, update, *__: empty_at(base, update)
    )
    for stop in (*stops, 0):

        def report(values: dict[str, Any], stop: int = stop) -> None:
            reported(values)
            if stop and values.get("update") == stop:
                raise Killed

        with pytest.raises(Killed) if stop else nullcontext():
            run_cell(cell, store.uri, report)
    return store


def learned(store: Store, cell: Cell) -> dict[str, Any]:
    """What two runs of a finished cell have in common: records, counts and weights."""
    finished = CellFolder(store, cell.cell_id).finished()
    assert finished is not None
    tables = {name: table for name, table in finished.tables.items() if name != "log"}
    ledger = finished.result.ledger.as_json()
    adapter = load_file(store.path("cells", cell.cell_id, "adapter", "adapter_model.safetensors"))
    return {
        **tables,
        "ledger": {name: value for name, value in ledger.items() if "seconds" not in name},
        "weights": {name: value.tolist() for name, value in adapter.items()},
    }


def moved(weights: dict[str, Any]) -> float:
    """How far training has moved the weights that begin at 0, at least."""
    return min(np.abs(value).max() for name, value in weights.items() if "lora_B" in name)


def empty_at(base: pa.Table, update: int) -> pa.Table:
    """The same evaluation after an update."""
    column = pa.array([update] * base.num_rows, pa.int32())
    return base.set_column(base.schema.get_field_index("update"), "update", column)

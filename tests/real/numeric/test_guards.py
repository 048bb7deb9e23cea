"""Cells whose rollouts, weights or prompts are not those they record: each is stopped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sweeps
import torch
from effort import some
from grpo import mark_in_this_process, trained_cell, trainer_of

from benchmarks.guards import (
    Fault,
    adapter_twice,
    forgotten_adapter,
    in_bfloat16,
    old_weights,
    planted,
)
from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.training import guards
from orchestrator.training import trainer as training
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.guards import LOGP_DIFFERENCE, UnsoundTraining, fingerprint
from orchestrator.training.rollouts import Decoder
from orchestrator.training.trl_internals import ChoosingTrainer
from orchestrator.training.tune_runner import is_deterministic


def cell_of(folder: Path, **changes: object) -> Cell:
    [cell, *_] = sweeps.plan_of(
        sweeps.experiments(folder, evaluate={"samples": 2}, **changes)
    ).cells
    return cell


@pytest.mark.parametrize("fault", [forgotten_adapter, adapter_twice, old_weights, in_bfloat16])
def test_rollouts_of_other_weights_stop_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    cell, updates = cell_of(tmp_path), []
    with planted(fault), pytest.raises(UnsoundTraining, match="unsound-rollouts") as error:
        trained_cell(tmp_path, cell, (), monkeypatch, updates.append)
    last = max(report["update"] for report in updates if "update" in report)
    # At the first checkpoint, after update 2, the adapter of an update before is none.
    assert last == (3 if fault is in_bfloat16 else 2)
    assert is_deterministic(error.value)
    folder = CellFolder(Store(str(tmp_path / "runs")), cell.cell_id)
    assert folder.finished() is None


@pytest.mark.parametrize("lora", some([{"lora_dropout": 0.2}, {}], 0))
def test_a_sound_cell_records_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: dict[str, float]
) -> None:
    cell = cell_of(tmp_path, lora={"r": 4, **lora})
    store = trained_cell(tmp_path, cell, [3], monkeypatch)
    finished = CellFolder(store, cell.cell_id).finished()
    assert finished is not None
    log = finished.tables["log"].to_pylist()
    values = [row["value"] for row in log if row["name"] == LOGP_DIFFERENCE]
    # Without a live group, an update has none; with dropout, only those with a checkpoint have.
    assert len(values) > cell.updates / (4 if lora else 2)
    assert max(values) < 1e-5


def merging(model: Any) -> None:
    """As engines do that load full weights (TRL issue 6688)."""
    model.merge_adapter()
    model.unmerge_adapter()


def casting(model: Any) -> None:
    """As TRL's continuous batching does."""
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)


@pytest.mark.parametrize("fault", [merging, casting])
def test_base_weights_that_move_stop_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], Any]
) -> None:
    cell, draw, updates = cell_of(tmp_path), Decoder.draw, []

    def moving(self: Decoder, update: int, *arguments: Any) -> Any:
        if update == 4:
            fault(self.sampler.model)
        return draw(self, update, *arguments)

    monkeypatch.setattr(Decoder, "draw", moving)
    with pytest.raises(UnsoundTraining, match="unsound-weights"):
        trained_cell(tmp_path, cell, (), monkeypatch, updates.append)
    folder = CellFolder(Store(str(tmp_path / "runs")), cell.cell_id)
    assert folder.checkpoints() == [2]  # the next one, after the fault, is not complete


def test_a_cell_resumes_on_the_base_model_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = training.load_model

    def other(*arguments: Any) -> Any:
        model, tokenizer = load(*arguments)
        next(model.parameters()).data *= 1.001
        return model, tokenizer

    def stopped(values: dict[str, Any]) -> None:
        if values.get("update") == 3:
            monkeypatch.setattr(training, "load_model", other)

    with pytest.raises(UnsoundTraining, match="unsound-weights: checkpoint-2"):
        trained_cell(tmp_path, cell_of(tmp_path), [3], monkeypatch, stopped)


@pytest.mark.parametrize("type_name", ["bfloat16", "float32"])
def test_weights_that_trl_merges_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_name: str
) -> None:
    mark_in_this_process(monkeypatch)
    trainer: Any = trainer_of(tmp_path, ["correct or wrong"], masked=False)[0]
    for parameter in trainer.model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(getattr(torch, type_name))
    before = fingerprint(trainer.model)
    for _ in range(2):
        trainer._sync_weights(lambda: merging(trainer.model))
        assert fingerprint(trainer.model) == before
    merging(trainer.model)
    assert fingerprint(trainer.model) != before


def test_other_tokens_of_a_prompt_stop_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, reads = cell_of(tmp_path), ChoosingTrainer.read
    monkeypatch.setattr(ChoosingTrainer, "read", lambda self, messages: [*reads(self, messages), 1])
    with pytest.raises(UnsoundTraining, match="unsound-prompts"):
        trained_cell(tmp_path, cell, (), monkeypatch)


def test_one_update_above_the_limit_is_no_reason() -> None:
    def log(*values: float) -> list[dict[str, Any]]:
        return [
            {"update": i, "name": name, "value": value}
            for i, value in enumerate(values)
            for name in (LOGP_DIFFERENCE, "loss")
        ]

    for sound in ([], [0.2], [0.2, 0.2], [0.2, 0.2, 0.1], [0.2, 0.09, 0.2, 0.2]):
        guards.check_differences(log(*sound), 0.1)
    for unsound in ([0.11] * 3, [0.0, 0.2, 0.3, 0.4], [float("nan")] * 3):
        with pytest.raises(UnsoundTraining, match="unsound-rollouts"):
            guards.check_differences(log(*unsound), 0.1)


def test_rounding_is_no_other_use_of_an_adapter() -> None:
    rounded = {"once": 0.02, "not at all": 0.001, "twice": 0.03}
    for sound in ({}, rounded, {"once": 0.04, "not at all": 0.03, "twice": 0.021}, {"once": 0.0}):
        guards.check_adapter(sound, 0.02, 4)
    for use in ("not at all", "twice"):
        with pytest.raises(UnsoundTraining, match=f"unsound-rollouts: .* 4 .*applied {use}"):
            guards.check_adapter(
                {"once": 0.021, "not at all": 0.03, "twice": 0.03, use: 0.01}, 0.02, 4
            )


@pytest.mark.parametrize("stored", ["", "bfloat16:0123", "float32:0123"])
def test_checkpoints_without_a_fingerprint_or_of_another_type_are_used(stored: str) -> None:
    guards.check_base_model(stored, "float32:0123", 2)
    with pytest.raises(UnsoundTraining, match="checkpoint-2"):
        guards.check_base_model("float32:0124", "float32:0123", 2)


@pytest.mark.parametrize(
    ("ids", "place"), [([1, 2], 2), ([1, 2, 4], 2), ([0, 2, 3], 0), ([1, 2, 3, 4], 3)]
)
def test_the_first_token_that_differs_is_named(ids: list[int], place: int) -> None:
    guards.check_prompt([1, 2, 3], [1, 2, 3])
    with pytest.raises(UnsoundTraining, match=rf"number {place}\."):
        guards.check_prompt(ids, [1, 2, 3])


def test_the_limit_is_no_part_of_a_cell(tmp_path: Path) -> None:
    plain, other = cell_of(tmp_path), cell_of(tmp_path, max_logp_difference=0.3)
    assert other.max_logp_difference == 0.3
    assert other.cell_id == plain.cell_id

"""Training on episodes: the tokens and gradients of plain TRL, the record, and resuming."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from environments_of_users import Guess
from episode_training_cases import GROUP, outcome, plan_of, scripted, trained, turn  # noqa: F401 (fixtures)
from episodes_cases import SETTINGS
from grpo import generation, gradient, one_thread  # noqa: F401 (fixture)
from scripted_model import Scripted, characters
from trl import GRPOConfig, GRPOTrainer

from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.planning.pools import load_pool
from orchestrator.sampling.base import Request
from orchestrator.storage.errors import UserError
from orchestrator.training.record import CellRecord
from orchestrator.training.trainer import build_trainer


def trainer_of(folder: Path, **grpo: Any) -> tuple[Any, CellRecord, Sequence[Any]]:
    [cell] = plan_of(folder, **grpo).cells
    pool, record = load_pool(cell.probe.dataset), CellRecord()
    subset = [*pool.train[:2]]
    trainer: Any = build_trainer(cell, folder / "out", pool.task, subset, record)
    return trainer, record, subset


def plain_trl(folder: Path, subset: Sequence[Any], limit: int) -> Any:
    """TRL's own trainer and loop, with the class as it is, and the same model's turns."""
    script, settings = Scripted(turn), replace(SETTINGS, max_completion_length=limit)
    args = GRPOConfig(
        str(folder / "trl"),
        num_generations=GROUP,
        per_device_train_batch_size=len(subset) * GROUP,
        max_completion_length=limit,
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    rows = [
        {"prompt": [{"role": "user", "content": p.question}], **json.loads(p.info)} for p in subset
    ]
    trainer: Any = GRPOTrainer(
        model=str(folder / "model"),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=characters(),
        environment_factory=Guess,
    )

    def single_turn(prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        requests = [Request("", [], [i % GROUP], ids=ids) for i, ids in enumerate(prompt_ids)]
        drawn = [script.turn(request, request.samples[0], settings) for request in requests]
        return [[*each.ids] for each in drawn], None

    trainer._generate_single_turn = single_turn
    return trainer


@pytest.mark.parametrize("limit", [400, 130, 75, 60, 20])
def test_an_update_has_the_tokens_the_mask_and_the_rewards_of_trl(
    tmp_path: Path, scripted: Scripted, limit: int
) -> None:
    grpo = {"max_completion_length": limit, "scale_rewards": "group"}
    trainer, _, subset = trainer_of(tmp_path, **grpo)
    ours, theirs = generation(trainer), generation(plain_trl(tmp_path, subset, limit))
    names = ("prompt_ids", "completion_ids", "tool_mask", "completion_mask", "advantages")
    rows = [  # in any order: each shuffles the prompts in its own way
        sorted(zip(*(batch[name].tolist() for name in names), strict=True))
        for batch in (ours, theirs)
    ]
    for mine, other in zip(*rows, strict=True):
        assert mine[:-1] == other[:-1]
        assert mine[-1] == pytest.approx(other[-1], abs=1e-4)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_gradients_are_those_of_trl(tmp_path: Path, scripted: Scripted, beta: float) -> None:
    trainer, _, _ = trainer_of(tmp_path, beta=beta)
    output = generation(trainer)
    assert bool((output["tool_mask"] < output["completion_mask"]).any())
    assert float(output["advantages"].abs().sum()) > 0
    trainer.model.double()
    batch = {k: v.double() if v.is_floating_point() else v for k, v in output.items()}
    [kept] = trainer._with_kept_rows([batch])
    ours = gradient(trainer, [kept], type(trainer)._compute_loss)
    assert trainer.why_padded == "", "rows share their prompts"
    trainer.why_padded = "TRL's own"
    theirs = gradient(trainer, [batch], GRPOTrainer._compute_loss)
    assert theirs.norm() > 1e-6
    assert (ours - theirs).norm() / theirs.norm() < 1e-6


def test_groups_hold_what_happened_in_their_episodes(tmp_path: Path, scripted: Scripted) -> None:
    trainer, record, _ = trainer_of(tmp_path)
    generation(trainer)
    table = record.groups.table()
    for row in table.to_pylist():
        assert [e["turns"] for e in row["episodes"]][1:] == [1, 2, 2]
        assert [e["tool_calls"] for e in row["episodes"]][1:] == [0, 2, 1]
        assert [e["tool_errors"] for e in row["episodes"]] == [0, 0, 1, 0]
        assert row["rewards"] == row["scores"]
    tally = record.groups.tallies[1]
    assert (tally.rollouts, tally.tool_errors) == (8, 2) and tally.environment_seconds > 0
    assert GroupRecorder(table.to_pylist()).tallies == record.groups.tallies
    assert record.groups.metrics(1)["train/turns"] == tally.turns / 8


def test_a_resumed_cell_is_equal_to_an_undisturbed_one(tmp_path: Path, scripted: Scripted) -> None:
    results = []
    for stops in ((), (2, 3)):
        folder = tmp_path / f"stops{len(stops)}"
        folder.mkdir()
        [cell] = plan_of(folder).cells
        results.append(outcome(trained(folder, cell, stops), cell))
    assert results[0] == results[1]
    ledger, groups, evaluations, _ = results[0]
    assert ledger["turns"] == sum(e["turns"] for row in groups for e in row["episodes"])
    assert ledger["tool_calls"] > 0 and ledger["tool_errors"] == 8
    assert {row["update"] for row in evaluations} == {0, 2, 4}
    assert all(row["episode"]["turns"] for row in evaluations)


@pytest.mark.parametrize(
    ("experiment", "grpo", "problem"),
    [
        ({"rollouts": "trl"}, {}, "leave out rollouts: trl"),
        ({}, {"repetition_penalty": 1.1}, "leave out grpo.repetition_penalty"),
        ({"probe": {"samples": 4, "stop": ["x"]}}, {}, "leave probe.stop out"),
    ],
)
def test_settings_under_which_no_episode_is_played(
    tmp_path: Path, experiment: dict[str, Any], grpo: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UserError, match=problem) as refused:
        plan_of(tmp_path, experiment, **grpo)
    assert "datasets.game" in str(refused.value)

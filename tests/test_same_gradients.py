"""An update here and in plain TRL, from the same rollouts: the same gradients to rounding."""

from typing import Any

import pytest
import torch
from grpo import (  # noqa: F401 (fixtures)
    BY_ROWS,
    BY_TOKENS,
    GROUP,
    LIVE,
    generation,
    gradient,
    marks_in_this_process,
    one_thread,
    trained,
    trainer_of,
)
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from orchestrator.training.live_rows import arranged
from orchestrator.training.trl_internals import LiveGroupsTrainer

pytestmark = pytest.mark.slow

ANSWERS = ["correct", LIVE, "wrong", LIVE, "correct or error", LIVE, "wrong", LIVE]
ROUNDING = 5e-6  # of the gradient's norm, in float32


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any]]:
    """A trainer and a generation of 4 live groups among 8, drawn by an older model."""
    trainer, _ = trainer_of(
        tmp_path_factory.mktemp("rollouts"), ANSWERS, masked=False, max_completion_length=40
    )
    trainer.num_iterations = 2  # so that TRL scores what it drew
    output = generation(trainer)
    noise = torch.randn(output["old_per_token_logps"].shape, generator=torch.manual_seed(2))
    output["old_per_token_logps"] += 0.3 * noise  # ratios beyond the clipping range
    assert output["completion_mask"].sum(1).unique().numel() > 4
    return trainer, output


def micro_batches(output: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Micro-batches as TRL cuts them: rows in random order."""
    order = torch.randperm(len(output["row"]), generator=torch.manual_seed(3))
    shuffled = {k: v[order] if v.ndim else v for k, v in output.items()}
    return split_tensor_dict(shuffled, count)


def as_trained(trainer: Any, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The micro-batches as `_prepare_inputs` leaves them."""
    trainer.args.steps_per_generation = trainer.args.gradient_accumulation_steps = len(batches)
    return trainer._with_kept_rows(arranged(batches, trainer._window(), trainer.beta))


def difference(ours: torch.Tensor, trls: torch.Tensor) -> float:
    assert trls.norm() > 1e-4
    return float((ours - trls).norm() / trls.norm())


@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("loss_type", BY_ROWS + BY_TOKENS)
def test_the_gradient_is_that_of_trl(
    rollouts: tuple[Any, dict[str, Any]], loss_type: str, beta: float, count: int
) -> None:
    trainer, output = rollouts
    trainer.loss_type, trainer.beta = loss_type, beta
    batches = micro_batches(output, count)
    ours = as_trained(trainer, batches)
    if beta == 0:
        assert sum(int(batch["kept"].sum()) for batch in ours) <= 4 * GROUP
    trls = gradient(trainer, batches, GRPOTrainer._compute_loss)
    assert difference(gradient(trainer, ours, LiveGroupsTrainer._compute_loss), trls) < ROUNDING


def test_rows_are_arranged_in_one_order_however_trl_shuffles_them(
    rollouts: tuple[Any, dict[str, Any]],
) -> None:
    trainer, output = rollouts
    trainer.loss_type, trainer.beta = "grpo", 0.0
    backwards = {k: v.flip(0) if v.ndim else v for k, v in output.items()}
    one = arranged(micro_batches(output, 4), 4, 0.0)
    other = arranged(split_tensor_dict(backwards, 4), 4, 0.0)
    assert [b["row"].tolist() for b in one] == [b["row"].tolist() for b in other]
    assert sorted(row for b in one for row in b["row"].tolist()) == list(range(8 * GROUP))
    for batch, groups in zip(one[:2], (2, 2), strict=True):
        assert len(batch["group"].unique()) == groups


def test_rows_stay_in_their_update(rollouts: tuple[Any, dict[str, Any]]) -> None:
    """Four updates of two micro-batches each."""
    trainer, output = rollouts
    trainer.loss_type, trainer.beta = "grpo", 0.0
    trainer.args.steps_per_generation, trainer.args.gradient_accumulation_steps = 8, 2
    batches = micro_batches(output, 8)
    moved = arranged(batches, trainer._window(), 0.0)
    for start in range(0, 8, 2):
        before, after = (
            {row for batch in part[start : start + 2] for row in batch["row"].tolist()}
            for part in (batches, moved)
        )
        assert before == after
    trainer.args.gradient_accumulation_steps = 3  # an update begins within a generation
    assert trainer._window() == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_entropy_quantile", 0.5), ("_entropy_bonus_enabled", True), ("aux_loss_enabled", True)],
)
def test_no_row_is_left_out_where_the_others_change_its_part_of_the_loss(
    rollouts: tuple[Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    trainer, output = rollouts
    monkeypatch.setattr(trainer, name, value)
    batches = micro_batches(output, 4)
    ours = as_trained(trainer, batches)
    assert trainer._window() == 1 and not any("kept" in batch for batch in ours)
    if name != "aux_loss_enabled":  # the embedded model has no router
        monkeypatch.setattr(trainer, "entropy_coef", 0.01)
        trls = gradient(trainer, batches, GRPOTrainer._compute_loss)
        assert difference(gradient(trainer, ours, LiveGroupsTrainer._compute_loss), trls) < ROUNDING


def test_numbers_of_a_part_of_the_rows_are_logged_as_such(
    rollouts: tuple[Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, output = rollouts
    for beta, name in ((0.0, "live_rows/entropy"), (0.1, "entropy")):
        trainer.loss_type, trainer.beta = "dapo", beta
        trainer._metrics["train"].clear()
        gradient(trainer, as_trained(trainer, [output]), LiveGroupsTrainer._compute_loss)
        assert len(trainer._metrics["train"][name]) == 1

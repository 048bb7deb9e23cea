"""An update here and in plain TRL, from the same rollouts: the same gradients to rounding."""

from pathlib import Path
from typing import Any

import pytest
import torch
from effort import some
from gradients import as_trained, difference, micro_batches, trl_gradient
from grpo import BY_ROWS, BY_TOKENS, GROUP, generation, gradient, marks_in_this_process, one_thread  # noqa: F401 (fixtures)
from same_gradients_cases import ACCUMULATED, SIX, rollouts, trained_in_both_ways  # noqa: F401 (fixtures)
from trl.trainer.utils import split_tensor_dict

from orchestrator.training.shortcuts import arranged
from orchestrator.training.trl_internals import LiveGroupsTrainer

ROUNDING = 2e-7  # of the gradient's norm, in float64; in float32 two kernels differ by up to 7e-6


HOW = [(0.0, 1), (0.0, 16), (0.1, 4)]  # beta, and micro-batches
LOSSES = BY_ROWS + BY_TOKENS


@pytest.mark.parametrize(
    ("loss_type", "beta", "count"),
    some([(t, *HOW[(i + j) % 3]) for j in range(3) for i, t in enumerate(LOSSES)], len(LOSSES)),
)
def test_the_gradient_is_that_of_trl(
    rollouts: tuple[Any, dict[str, Any]], loss_type: str, beta: float, count: int
) -> None:
    trainer, output = rollouts
    trainer.loss_type, trainer.beta = loss_type, beta
    batches = micro_batches(output, count)
    ours = as_trained(trainer, batches)
    if beta == 0:
        assert sum(int(batch["kept"].sum()) for batch in ours) <= 4 * GROUP
    trls = trl_gradient(trainer, batches)
    assert difference(gradient(trainer, ours, LiveGroupsTrainer._compute_loss), trls) < ROUNDING


@pytest.mark.parametrize("loss_type", some([*LOSSES[::4], *LOSSES[1:4], *LOSSES[5:]], 2))
def test_the_gradient_is_that_of_trl_where_prompts_cannot_be_shared(
    rollouts: tuple[Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, loss_type: str
) -> None:
    trainer, output = rollouts
    trainer.loss_type, trainer.beta = loss_type, 0.0
    batches = micro_batches(output, 4)
    trls = trl_gradient(trainer, batches)
    monkeypatch.setattr(trainer, "why_padded", "a test")
    ours = gradient(trainer, as_trained(trainer, batches), LiveGroupsTrainer._compute_loss)
    assert difference(ours, trls) < ROUNDING


def test_why_prompts_are_not_shared_is_reported_once(
    rollouts: tuple[Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, output = rollouts
    monkeypatch.setattr(trainer, "why_padded", None)
    monkeypatch.setattr(trainer, "notes", [])
    monkeypatch.setattr("orchestrator.training.trl_internals.why_not", lambda _: "it has dropout")
    for _ in range(2):
        gradient(trainer, as_trained(trainer, [output]), LiveGroupsTrainer._compute_loss)
    [note] = trainer.notes
    assert note.endswith(": it has dropout")


def test_noise_in_embeddings_is_not_shared(
    rollouts: tuple[Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows may agree by chance."""
    trainer, _ = rollouts
    monkeypatch.setattr(trainer.args, "neftune_noise_alpha", 1e-6)
    assert "neftune_noise_alpha" in trainer._why_padded(None, None, None, None)


def test_two_rows_that_disagree_keep_the_way_of_trl(
    rollouts: tuple[Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, output = rollouts
    trainer.loss_type, trainer.beta = "dapo", 0.0
    trls = trl_gradient(trainer, [output])
    monkeypatch.setattr(trainer, "why_padded", None)
    original = trainer._packed
    monkeypatch.setattr(trainer, "_packed", lambda *args: [p + 0.01 for p in original(*args)])
    ours = gradient(trainer, as_trained(trainer, [output]), LiveGroupsTrainer._compute_loss)
    assert "by 0.01" in trainer.why_padded
    assert difference(ours, trls) < ROUNDING


def test_layers_computed_again_in_the_backward_pass_attend_as_before(
    rollouts: tuple[Any, dict[str, Any]],
) -> None:
    trainer, output = rollouts
    trainer.loss_type, trainer.beta = "dapo", 0.0
    trls = trl_gradient(trainer, [output])
    trainer.model.gradient_checkpointing_enable()
    trainer.model.enable_input_require_grads()
    try:
        ours = gradient(trainer, as_trained(trainer, [output]), LiveGroupsTrainer._compute_loss)
    finally:
        trainer.model.gradient_checkpointing_disable()
        trainer.model.disable_input_require_grads()
    assert difference(ours, trls) < ROUNDING


def test_in_bfloat16_the_gradient_is_as_near_to_that_of_float32_as_trls(
    rollouts: tuple[Any, dict[str, Any]],
) -> None:
    trainer, output = rollouts
    trainer.loss_type, trainer.beta = "dr_grpo", 0.0
    exact = trl_gradient(trainer, [output])
    with torch.autocast("cpu", torch.bfloat16):
        trls = trl_gradient(trainer, [output])
        ours = gradient(trainer, as_trained(trainer, [output]), LiveGroupsTrainer._compute_loss)
    noise = difference(trls, exact)
    assert 1e-3 < noise < 0.1
    assert difference(ours, exact) < 1.5 * noise and difference(ours, trls) < 2 * noise


TWICE = {"steps_per_generation": 4, "num_iterations": 2}


@pytest.mark.parametrize(
    "settings",
    some(
        [
            {"optim": "sgd", "beta": 0.0} | ACCUMULATED | TWICE,
            {"beta": 0.0, "loss_type": "dr_grpo", "learning_rate": 1e-3},  # Adam
            {"optim": "sgd", "beta": 0.0, "loss_type": "dr_grpo"},
            {"optim": "sgd", "beta": 0.1, "loss_type": "dapo"},
        ],
        1,
    ),
)
def test_six_updates_give_the_weights_of_trl(tmp_path: Path, settings: dict[str, Any]) -> None:
    (_, ours), (_, trls) = trained_in_both_ways(tmp_path, **SIX | settings)
    assert difference(ours, trls) < 1e-4


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
        trls = trl_gradient(trainer, batches)
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

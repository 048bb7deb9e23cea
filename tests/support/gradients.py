"""An update here and in plain TRL, from the same rollouts: the same gradients to rounding."""

from typing import Any

import torch
from grpo import gradient
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from orchestrator.training.shortcuts import arranged


def micro_batches(output: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Micro-batches as TRL cuts them: rows in random order."""
    order = torch.randperm(len(output["row"]), generator=torch.manual_seed(3))
    shuffled = {k: v[order] if v.ndim else v for k, v in output.items()}
    return split_tensor_dict(shuffled, count)


def as_trained(trainer: Any, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The micro-batches as `_prepare_inputs` leaves them."""
    trainer.args.steps_per_generation = trainer.args.gradient_accumulation_steps = len(batches)
    return trainer._with_kept_rows(arranged(batches, trainer._window(), trainer.beta))


def trl_gradient(trainer: Any, batches: list[dict[str, Any]]) -> torch.Tensor:
    """TRL's own gradient, from padded rows."""
    before, trainer.why_padded = trainer.why_padded, "TRL's own"
    try:
        return gradient(trainer, batches, GRPOTrainer._compute_loss)
    finally:
        trainer.why_padded = before


def difference(ours: torch.Tensor, trls: torch.Tensor) -> float:
    assert trls.norm() > 1e-4
    return float((ours - trls).norm() / trls.norm())

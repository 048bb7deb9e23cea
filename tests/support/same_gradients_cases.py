"""What the tests of same gradients share."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from grpo import LIVE, generation, trained, trainer_of
from trl import GRPOTrainer

from orchestrator.training.trl_internals import LiveGroupsTrainer

ANSWERS = ["correct", LIVE, "wrong", LIVE, "correct or error", LIVE, "wrong", LIVE]


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
    trainer.model.double()
    return trainer, {k: v.double() if v.is_floating_point() else v for k, v in output.items()}


class Recording(LiveGroupsTrainer):
    """Keeps the rollouts that it draws."""

    recorded: ClassVar[list[Any]]

    def _generate_single_turn(self, *arguments: Any, **options: Any) -> Any:
        drawn = super()._generate_single_turn(*arguments, **options)
        self.recorded.append(drawn)
        return drawn


class Plain(GRPOTrainer):
    """TRL's trainer, with rollouts that were drawn before."""

    recorded: ClassVar[list[Any]]

    def __init__(self, *, recorder: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def _generate_single_turn(self, *arguments: Any, **options: Any) -> Any:
        return self.recorded.pop(0)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        pass


def trained_in_both_ways(folder: Path, **grpo: object) -> list[tuple[Any, torch.Tensor]]:
    """Trainers after the same updates, here and in plain TRL; how far these moved the weights."""
    Recording.recorded = Plain.recorded = []
    moves = []
    for kind in (Recording, Plain):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("orchestrator.training.trainer.LiveGroupsTrainer", kind)
            trainer, _ = trainer_of(folder, ANSWERS, masked=False, **grpo)
        before = torch.cat([p.detach().flatten() for p in trained(trainer)]).clone()
        trainer.train()
        after = torch.cat([p.detach().flatten() for p in trained(trainer)])
        moves.append((trainer, after - before))
    assert not Plain.recorded
    return moves


SIX = {"max_steps": 6, "learning_rate": 0.02, "max_completion_length": 40}
ACCUMULATED = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}

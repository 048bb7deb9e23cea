"""Updates whose groups differ in size: the gradients of a loop over groups in TRL, and resuming."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
import torch
from grpo import (  # noqa: F401 (fixtures)
    GROUP,
    LIVE,
    gradient,
    marks_in_this_process,
    one_thread,
    trainer_of,
)
from torch.nn.functional import pad
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from orchestrator.config.entries import AllocationEntry
from orchestrator.training.online import Generation
from orchestrator.training.shortcuts import BY_TOKENS, PROMPT, arranged
from orchestrator.training.trl_internals import LiveGroupsTrainer
from policies import History
from tasks import Prompt

pytestmark = pytest.mark.slow

ANSWERS = [LIVE, "wrong", LIVE, "correct or wrong or wrong", LIVE, "correct"]
CORRECT = [2, 0, 4, 1, 8, 7]  # of 8 samples of the probe
ROUNDING = 2e-6  # of the gradient's norm, in float64; the model's norms are in float32


def known(prompts: Sequence[Prompt]) -> History:
    """What a probe knows of the prompts."""
    ids = pa.array([prompt.prompt_id for prompt in prompts])
    sizes = {"seed": 0, "updates": 1, "group_size": GROUP}
    return History(ids, [8] * len(CORRECT), CORRECT, **sizes)


Trainers = tuple[Any, Any, Generation]


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Trainers:
    """An allocated trainer and TRL's own with the same weights, and a generation of the first."""
    folder = tmp_path_factory.mktemp("allocated")
    entry = AllocationEntry(rule="knapsack")
    trainer, _ = trainer_of(folder, ANSWERS, False, allocation=entry, known=known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.training.trainer.LiveGroupsTrainer", Plain)
        plain, _ = trainer_of(folder, ANSWERS, False)
    for each in (trainer, plain):
        each.model.double().train()  # type: ignore[union-attr]
        each.current_gradient_accumulation_steps = 1
    chooser: Any = trainer.chooser
    loaded = next(iter(trainer.get_train_dataloader()))
    batch = chooser.batch(1, len(loaded), trainer.drawn_now, loaded)
    assert sum(batch.sizes) == GROUP * len(ANSWERS) and len({*batch.sizes}) > 2
    return trainer, plain, batch


def scored(trainer: Any, batch: Generation) -> dict[str, Any]:
    """The generation, scored by the trainer under its settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.chooser, "batch", lambda *_: batch)
        return trainer._generate_and_score_completions([{}] * len(batch.rows))


def loop_over_groups(plain: Any, batch: Generation) -> torch.Tensor:
    """The gradient of TRL's own loss, group by group, each weighted by its rows or its tokens."""
    assert batch.rollouts is not None and batch.sizes is not None
    gradients, weights, begin = [], [], 0
    width = max(len(rollout.prompt) for rollout in batch.rollouts)
    for size in batch.sizes:
        own = slice(begin, begin + size)
        begin += size
        plain.recorded, plain.num_generations = batch.rollouts[own], size
        output = plain._generate_and_score_completions([{**row} for row in batch.rows[own]])
        # A position's rotary angle is rounded to float32: each token has that of the whole batch.
        left = (width - output["prompt_ids"].shape[1], 0)
        output |= {name: pad(output[name], left) for name in PROMPT}
        tokens = float(output["completion_mask"].sum())
        weights.append(tokens if plain.loss_type in BY_TOKENS else size)
        gradients.append(gradient(plain, [output], GRPOTrainer._compute_loss))
    return sum(w * g for w, g in zip(weights, gradients, strict=True)) / sum(weights)


class Plain(GRPOTrainer):
    """TRL's trainer, with rollouts that were drawn before."""

    recorded: Sequence[Any]

    def __init__(self, *, recorder: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def _generate(self, prompts: Any) -> Any:
        prompt_ids, ids, completions, _ = (list(part) for part in zip(*self.recorded, strict=True))
        return prompt_ids, ids, None, completions, None, {}, None, []


def micro_batches(trainer: Any, output: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Micro-batches as an update has them."""
    order = torch.randperm(len(output["row"]), generator=torch.manual_seed(3))
    shuffled = {k: v[order] if v.ndim else v for k, v in output.items()}
    trainer.args.steps_per_generation = trainer.args.gradient_accumulation_steps = count
    batches = arranged(split_tensor_dict(shuffled, count), trainer._window(), trainer.beta)
    return trainer._with_kept_rows(batches)


@pytest.mark.parametrize(("beta", "scale"), [(0.0, "group"), (0.1, "none")])
@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
def test_the_gradient_is_that_of_a_loop_over_groups_in_trl(
    trainers: Trainers, loss_type: str, beta: float, scale: str
) -> None:
    ours, plain, batch = trainers
    for each in (ours, plain):
        each.loss_type, each.beta, each.scale_rewards = loss_type, beta, scale
    expected = loop_over_groups(plain, batch)
    assert expected.norm() > 1e-4
    for count in (1, 4):
        batches = micro_batches(ours, scored(ours, batch), count)
        found = gradient(ours, batches, LiveGroupsTrainer._compute_loss)
        assert float((found - expected).norm() / expected.norm()) < ROUNDING

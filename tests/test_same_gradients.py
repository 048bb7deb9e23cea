"""An update here and in plain TRL, from the same rollouts: the same gradients to rounding."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from grpo import (  # noqa: F401 (fixtures)
    BY_ROWS,
    BY_TOKENS,
    GROUP,
    LIVE,
    generation,
    gradient,
    mark_in_this_process,
    marks_in_this_process,
    one_thread,
    trained,
    trainer_of,
)
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict
from two_workers import two_workers

from orchestrator.training.shortcuts import arranged
from orchestrator.training.trl_internals import LiveGroupsTrainer

pytestmark = pytest.mark.slow

ANSWERS = ["correct", LIVE, "wrong", LIVE, "correct or error", LIVE, "wrong", LIVE]
ROUNDING = 2e-7  # of the gradient's norm, in float64; in float32 two kernels differ by up to 7e-6


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


@pytest.mark.parametrize(("beta", "count"), [(0.0, 1), (0.0, 16), (0.1, 4)])
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
    trls = trl_gradient(trainer, batches)
    assert difference(gradient(trainer, ours, LiveGroupsTrainer._compute_loss), trls) < ROUNDING


@pytest.mark.parametrize("loss_type", BY_ROWS + BY_TOKENS)
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
TWICE = {"steps_per_generation": 4, "num_iterations": 2}


@pytest.mark.parametrize(
    "settings",
    [
        {"optim": "sgd", "beta": 0.0, "loss_type": "dr_grpo"},
        {"optim": "sgd", "beta": 0.1, "loss_type": "dapo"},
        {"beta": 0.0, "loss_type": "dr_grpo", "learning_rate": 1e-3},  # Adam
        {"optim": "sgd", "beta": 0.0} | ACCUMULATED | TWICE,
    ],
)
def test_six_updates_give_the_weights_of_trl(tmp_path: Path, settings: dict[str, Any]) -> None:
    (_, ours), (_, trls) = trained_in_both_ways(tmp_path, **SIX | settings)
    assert difference(ours, trls) < 1e-4


def worker(rank: int, folder: Path, settings: dict[str, Any]) -> None:
    """One of two workers that train in both ways; writes the difference, and rows left out."""
    own = folder / str(rank)
    own.mkdir()
    seen = []
    for loss_type in ("dr_grpo", "dapo"):
        with pytest.MonkeyPatch.context() as patch:
            mark_in_this_process(patch)
            both = trained_in_both_ways(own, **settings, loss_type=loss_type)
        (trainer, ours), (_, trls) = both
        left_out = [int((~batch["kept"]).sum()) for batch in trainer._buffered_inputs]
        seen.append([difference(ours, trls), left_out])
    (own / "seen.json").write_text(json.dumps(seen))


def test_two_workers_give_the_weights_of_trl(tmp_path: Path) -> None:
    """Of 4 groups each, in 2 micro-batches."""
    settings = {"optim": "sgd", "beta": 0.0, "max_steps": 3, "max_completion_length": 24}
    two_workers(worker, tmp_path, SIX | ACCUMULATED | settings)
    one, other = (json.loads((tmp_path / str(n) / "seen.json").read_text()) for n in (0, 1))
    assert one == other and len(one) == 2
    assert all(moved < 1e-4 and sum(left_out) > 0 for moved, left_out in one)


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

"""Updates whose groups differ in size: the gradients of a loop over groups in TRL, and resuming."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sweeps
import torch
from effort import some
from grpo import (  # noqa: F401 (fixtures)
    GROUP,
    LIVE,
    generation,
    gradient,
    marks_in_this_process,
    one_thread,
    trained_cell,
    trainer_of,
)
from safetensors.torch import load_file
from torch.nn.functional import pad
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from orchestrator.config.allocation_entry import AllocationEntry
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.evaluation.liveness import is_live
from orchestrator.storage.schema import GROUPS
from orchestrator.training.online import Generation
from orchestrator.training.shortcuts import BY_TOKENS, PROMPT, arranged, group_advantages
from orchestrator.training.trl_internals import LiveGroupsTrainer
from policies import History
from tasks import Prompt

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


def test_advantages_of_groups_of_one_size_are_those_of_trl() -> None:
    """As in its source, with each of its scales."""
    rewards = torch.tensor([0.0, 1, 1, 0.5, 1, 1, 1, 1, 0, 0, 0, 1])
    grouped = rewards.view(-1, 4)
    centred = (grouped - grouped.mean(1, keepdim=True)).flatten()
    scales = {
        "group": grouped.std(1).repeat_interleave(4) + 1e-4,
        "batch": rewards.std() + 1e-4,
        "none": 1.0,
    }
    for scale, spread in scales.items():
        advantages, _ = group_advantages(rewards, [4, 4, 4], scale)
        assert torch.allclose(advantages, centred / spread)
    advantages, spread = group_advantages(rewards, [2, 6, 4], "none")
    assert advantages[:2].tolist() == [-0.5, 0.5] and spread[2] == rewards[2:8].std()


@pytest.mark.parametrize("loss_type", ["dr_grpo", "dapo"])
def test_dead_groups_of_any_size_are_left_out(tmp_path: Path, loss_type: str) -> None:
    """The loss of live groups is divided by their rows, or tokens, alone."""
    entry = AllocationEntry(rule="knapsack")
    settings = {"loss_type": loss_type, "beta": 0.1}
    trainer, record = trainer_of(tmp_path, ANSWERS, True, allocation=entry, known=known, **settings)
    trainer.model.double()
    output: Any = generation(trainer)
    live = [is_live(row["rewards"]) for row in record.groups.rows]
    sizes = torch.tensor(trainer.sizes)
    assert trainer.sizes == [len(row["rewards"]) for row in record.groups.rows]
    rows = torch.tensor(live).repeat_interleave(sizes)
    assert 0 < int(rows.sum()) < len(rows) and len({*trainer.sizes}) > 2
    assert float(output["live_share"]) == pytest.approx(float(rows.float().mean()))
    alone = {n: v[rows] if v.ndim else v for n, v in output.items()}
    alone = {n: v for n, v in alone.items() if n not in ("tool_mask", "live_share")}
    gradients = [
        gradient(trainer, [batch], lambda t, m, b: t._compute_loss(m, b))
        for batch in (output, alone)
    ]
    assert gradients[0].norm() > 1e-4
    assert float((gradients[1] - gradients[0]).norm() / gradients[0].norm()) < ROUNDING


@pytest.mark.parametrize(
    ("rule", "policy"), some([("pods", "predicted"), ("until_correct", "")], 1)
)
def test_a_resumed_cell_learns_what_an_undisturbed_one_learns(
    tmp_path: Path, rule: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates after a checkpoint are lost, and done again; a static subset is passed twice."""
    cell = sweeps.plan_of(sweeps.experiments(tmp_path)).cells[0]
    sizes = {"max_steps": 5, "max_completion_length": 24, "per_device_train_batch_size": 16}
    changes = {"static_policy": PolicyEntry(policy="full"), "size": 64, "evaluate_every": 0}
    changes |= {"grpo": cell.grpo | sizes | {"save_steps": 2}, "extra_evals": []}
    changes |= {"allocation": AllocationEntry.of(rule)}
    changes |= {"online": PolicyEntry(policy=policy)} if policy else {}
    cell = cell.model_copy(update=changes)
    runs = []
    for stops in ((), (3,)):
        store = trained_cell(tmp_path / f"stops{len(stops)}", cell, stops, monkeypatch)
        place = ("cells", cell.cell_id)
        names = ["groups", "discarded"] if cell.discards else ["groups"]
        tables = [store.read_table(GROUPS, *place, f"{n}.parquet") for n in names]
        ledger = store.read_json(*place, "ledger.json")
        weights = load_file(store.path(*place, "adapter", "adapter_model.safetensors"))
        runs.append((tables, {n: v for n, v in ledger.items() if "seconds" not in n}, weights))
    (groups, *_), ledger, weights = runs[0]
    assert runs[0][:2] == runs[1][:2]
    assert all(torch.equal(value, runs[1][2][key]) for key, value in weights.items())
    assert max(float(v.abs().max()) for k, v in weights.items() if "lora_B" in k) > 1e-4
    assert ledger["rollouts"] == cell.max_rollouts
    counts = groups.group_by("update").aggregate([("prompt_id", "count")])
    assert {*counts["prompt_id_count"].to_pylist()} == {cell.prompts_per_update}
    if not policy:
        assert ledger["largest_group"] > ledger["smallest_group"]

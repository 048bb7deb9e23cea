"""The input of the loss: unmarked completions, and masked dead groups."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from factories import marked_rollout, small_plan, trl_columns
from grpo import (  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
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
from hypothesis import given, settings
from hypothesis import strategies as st
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from orchestrator.evaluation.groups import GroupRecorder, Marked
from orchestrator.evaluation.liveness import is_live
from orchestrator.training.rollouts import fill_unmarked, marker, reward_function, with_rewards
from orchestrator.training.trainer import CellCallback
from orchestrator.training.trl_internals import EpochOrder, LiveGroupsTrainer
from tasks import Prompt
from tasks.marking.marks import Mark, no_answer_mark


def rows_of(batch: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    return {k: v[rows] if v.ndim else v for k, v in batch.items()}


def live_gradient(trainer: Any, output: dict[str, Any], live: torch.Tensor) -> torch.Tensor:
    """TRL's own gradient of the live groups alone."""
    return gradient(trainer, [only_live(output, live)], GRPOTrainer._compute_loss)


def only_live(batch: dict[str, Any], live: torch.Tensor) -> dict[str, Any]:
    """The batch as if its dead groups had never been drawn."""
    selected = rows_of({k: v for k, v in batch.items() if k != "tool_mask"}, live)
    del selected["live_share"]
    return selected | {"num_items_in_batch": selected["completion_mask"].sum()}


def test_the_trainer_writes_no_model_card(tmp_path: Path) -> None:
    trainer, _ = trainer_of(tmp_path, ["correct or wrong"], masked=False)
    (tmp_path / "out").mkdir(exist_ok=True)
    trainer.create_model_card(model_name="out")
    assert not (tmp_path / "out" / "README.md").exists()


def test_running_out_of_memory_while_generating_splits_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, original = [], GRPOTrainer._generate_single_turn

    def limited(self: Any, prompt_ids: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(len(prompt_ids))
        if len(prompt_ids) > 5:
            raise torch.OutOfMemoryError("as a GPU would")
        return original(self, prompt_ids, *arguments, **options)

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", limited)
    trainer, record = trainer_of(tmp_path, [LIVE, "wrong", LIVE], masked=False)
    trainer.decoder = None  # `test_rollouts` has its test
    assert generation(trainer)["completion_ids"].shape[0] == 3 * GROUP
    assert sizes == [12, 6, 3, 3, 3, 3]
    assert [len(row["rewards"]) for row in record.groups.rows] == [GROUP] * 3
    generation(trainer)
    assert sizes[6:] == [3, 3, 3, 3]  # it is remembered


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any], torch.Tensor]:
    """A masking trainer, one generation of 2 live groups among 5, and which rows are live."""
    answers = ["correct", LIVE, "wrong", LIVE, "correct or error"]
    trainer, record = trainer_of(tmp_path_factory.mktemp("mixed"), answers, masked=True)
    earlier = [marked_rollout(("wrong", "correct")[i % 2], float(i % 2)) for i in range(GROUP)]
    record.groups.add(1, earlier, GROUP)
    output = generation(trainer)
    live = torch.tensor([is_live(row["rewards"]) for row in record.groups.rows[1:]])
    assert live.sum() == 2
    return trainer, output, live.repeat_interleave(GROUP)


@pytest.mark.parametrize("loss_type", BY_ROWS + BY_TOKENS)
def test_the_loss_agrees_with_that_of_the_live_groups_alone(
    mixed: tuple[Any, dict[str, Any], torch.Tensor], loss_type: str
) -> None:
    trainer, output, live = mixed
    trainer.loss_type, trainer.beta = loss_type, 0.1
    masked = gradient(trainer, [output], LiveGroupsTrainer._compute_loss)
    expected = live_gradient(trainer, output, live)
    assert masked.abs().max() > 1e-6
    torch.testing.assert_close(masked, expected, rtol=1e-4, atol=1e-7)
    assert trainer.beta == 0.1


@pytest.mark.parametrize("loss_type", [t for t in BY_ROWS + BY_TOKENS if t != "bnpo"])
def test_micro_batches_with_unequal_shares_of_live_rows_give_the_same_gradient(
    mixed: tuple[Any, dict[str, Any], torch.Tensor], loss_type: str
) -> None:
    trainer, output, live = mixed
    trainer.loss_type, trainer.beta = loss_type, 0.1
    order = torch.argsort(live.int(), stable=True)  # the first half holds dead rows only
    halves = [rows_of(output, order[:10]), rows_of(output, order[10:])]
    masked = gradient(trainer, halves, LiveGroupsTrainer._compute_loss)
    expected = live_gradient(trainer, output, live)
    torch.testing.assert_close(masked, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("loss_type", BY_ROWS + BY_TOKENS)
def test_unmasked_dead_groups_change_the_gradient(
    mixed: tuple[Any, dict[str, Any], torch.Tensor], loss_type: str
) -> None:
    trainer, output, live = mixed
    trainer.loss_type, trainer.beta = loss_type, 0.1
    plain = {k: v for k, v in output.items() if k not in ("tool_mask", "live_share")}
    plain["num_items_in_batch"] = plain["completion_mask"].sum()
    unmasked = gradient(trainer, [plain], LiveGroupsTrainer._compute_loss)
    assert torch.equal(unmasked, gradient(trainer, [plain], GRPOTrainer._compute_loss))
    expected = live_gradient(trainer, output, live)
    assert (unmasked - expected).norm() > 0.01 * expected.norm()


@pytest.mark.parametrize("loss_type", BY_ROWS + BY_TOKENS)
def test_a_batch_without_live_groups_gives_no_gradient(
    mixed: tuple[Any, dict[str, Any], torch.Tensor], loss_type: str
) -> None:
    trainer, output, _ = mixed
    trainer.loss_type, trainer.beta = loss_type, 0.1
    dead = trainer.without_dead({k: v for k, v in output.items() if k != "tool_mask"}, [False] * 5)
    assert dead["num_items_in_batch"] == 0
    assert gradient(trainer, [dead], LiveGroupsTrainer._compute_loss).abs().max() == 0


def test_an_unmarked_completion_has_no_advantage(
    mixed: tuple[Any, dict[str, Any], torch.Tensor],
) -> None:
    _, output, live = mixed
    assert (output["advantages"][~live] == 0).all()
    assert (output["advantages"][live] != 0).all()


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_updates_of_dead_groups_move_the_weights_by_kl_unless_masked(
    tmp_path: Path, masked: bool, loss_type: str
) -> None:
    answers = ["correct", "wrong", "correct"]
    trainer, record = trainer_of(tmp_path, answers, masked, max_steps=2, loss_type=loss_type)
    updates: list[int] = []
    trainer.add_callback(
        CellCallback(record, lambda update: bool(updates.append(update)), updates.append)
    )
    before = [p.detach().clone() for p in trained(trainer)]
    trainer.train()
    moved = any(not torch.equal(a, b) for a, b in zip(before, trained(trainer), strict=True))
    assert moved is not masked
    losses = [row["value"] for row in record.log if row["name"] == "loss"]
    assert len(losses) == 2 and all(loss == 0 for loss in losses) is masked
    names = {row["name"] for row in record.log if row["update"] == 2}
    assert {"step_time", "num_tokens"} <= names
    assert ("kl" in names) is not masked  # without a live row, nothing is computed
    assert len(record.groups.rows) == 6


@pytest.mark.parametrize("masked", [False, True])
def test_phantom_groups_have_advantages_unless_correctness_decides(
    tmp_path: Path, masked: bool
) -> None:
    name = "reward_functions_of_users:length"
    reward = {"score": 1.0, name: 0.5}
    trainer, record = trainer_of(tmp_path, ["wrong", LIVE], masked, reward, loss_type="dapo")
    output = generation(trainer)
    phantom, live = record.groups.rows
    for row in (phantom, live):
        lengths = dict(row["components"])[name]
        sums = [s + 0.5 * length for s, length in zip(row["scores"], lengths, strict=True)]
        assert row["rewards"] == pytest.approx(sums)
    assert phantom["scores"] == [0.0] * GROUP and is_live(phantom["rewards"])
    counts = record.groups.tallies[1]
    assert (counts.live, counts.rewarded, counts.phantom) == (1, 2, 1)
    assert (output["advantages"][:GROUP] != 0).any()
    moved = output["completion_mask"] * output.get("tool_mask", 1)
    assert bool(moved[:GROUP].any()) != masked and moved[GROUP:].any()


def test_every_worker_masks_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four groups of 2 over two workers that hold 4 rows each."""
    gathered: list[int] = []
    trainer = SimpleNamespace(
        num_generations=2,
        sizes=None,
        accelerator=SimpleNamespace(gather=lambda t: gathered.append(int(t)) or t),
    )
    output = {"completion_mask": torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]])}
    live = [True, False, False, True]
    for rank, mask in enumerate([[1, 1, 0, 0], [0, 0, 1, 1]]):
        process = SimpleNamespace(process_index=rank)
        monkeypatch.setattr(
            "orchestrator.training.rollouts.PartialState", lambda process=process: process
        )
        masked: Any = LiveGroupsTrainer.without_dead(trainer, output, live)  # type: ignore[arg-type]
        kept = output["completion_mask"] * torch.tensor(mask).unsqueeze(1)
        assert torch.equal(masked["tool_mask"] * output["completion_mask"], kept)
        assert masked["live_share"] == 0.5
    assert gathered == [3, 5]


def test_an_existing_mask_is_kept() -> None:
    accelerator = SimpleNamespace(gather=lambda t: t)
    trainer = SimpleNamespace(num_generations=2, sizes=None, accelerator=accelerator)
    ones, tools = torch.ones(4, 3, dtype=torch.long), torch.ones(4, 3, dtype=torch.long)
    tools[1, 2] = 0
    output = {"completion_mask": ones, "tool_mask": tools}
    masked: Any = LiveGroupsTrainer.without_dead(trainer, output, [True, False])  # type: ignore[arg-type]
    assert masked["tool_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert masked["num_items_in_batch"] == 5


REWARD = st.sampled_from([0.0, 1.0, None])


@settings(max_examples=100)
@given(
    st.integers(1, 5).flatmap(
        lambda g: st.tuples(
            st.just(g), st.lists(st.lists(REWARD, min_size=g, max_size=g), min_size=1, max_size=5)
        )
    )
)
def test_filling_unmarked_rewards_keeps_groups_live_or_dead(
    drawn: tuple[int, list[list[float | None]]],
) -> None:
    assert fill_unmarked([None, None], 2) == [0.0, 0.0], "without a mark, no group has a reward"
    size, groups = drawn
    filled = fill_unmarked([r for group in groups for r in group], size)
    assert len(filled) == size * len(groups)
    for i, group in enumerate(groups):
        rewards = filled[i * size : (i + 1) * size]
        assert is_live(rewards) == is_live(group)
        mean = sum(rewards) / size
        for reward, original in zip(rewards, group, strict=True):
            if original is None:
                assert reward == pytest.approx(mean)
            else:
                assert reward == original


def test_an_epoch_has_the_order_of_an_undisturbed_cell() -> None:
    def trls() -> RepeatSampler:
        return RepeatSampler(range(10), mini_repeat_count=2, batch_size=5, seed=3)

    undisturbed = trls()
    expected = [list(undisturbed) for _ in range(4)]
    assert len({*map(tuple, expected)}) == 4
    order = EpochOrder(trls())
    assert len(order) == 20 and list(order) == expected[0]
    for epoch in (0, 1, 2, 3, 2):  # a resumed cell begins in any of them
        order.set_epoch(epoch)
        assert list(order) == expected[epoch]


class Exact:
    """A task whose answers are right where they are the gold."""

    environment = None

    def __init__(self) -> None:
        self.other_reading = self

    def mark_all(self, answers: list[Any]) -> list[Mark]:
        return [
            Mark("correct", None, "") if a.completion == a.answer else no_answer_mark(a.truncated)
            for a in answers
        ]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_has_the_rewards_of_its_rows_and_the_groups_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """Two workers with three rows each, two groups of three."""
    [cell, *_] = small_plan(tmp_path).cells
    probe = cell.probe.model_copy(
        update={"settings": cell.probe.settings.model_copy(update={"stop": ("STOP", "END")})}
    )
    mark = marker(cell.model_copy(update={"probe": probe}), Exact(), [7, 8])  # type: ignore[arg-type]
    texts = ["a", "b", "bSTOP", "c", "c", "aENDcSTOP"]
    ids = [[1, 7], [1, 8, 9], [1, 2, 3], [4, 8], [4], [1, 2]]
    golds = ["a", "a", "b", "c", "c", "a"]
    rows = {
        "completions": [[{"role": "assistant", "content": text}] for text in texts],
        "completion_ids": ids,
        **trl_columns(
            [Prompt(i, "", g, t) for i, g, t in zip("pppqqq", golds, "111222", strict=True)]
        ),
    }
    given = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    every = mark(rows["completions"], ids, given)
    assert [m.outcome for m in every] == ["correct", "truncated"] + ["correct"] * 4
    assert [m.tokens for m in every] == [2, 3, 3, 2, 1, 2]
    assert every[3] == marked_rollout("correct", 1.0, "q", tier="2", tokens=2, reward=None)
    outcomes = [m.outcome for m in every]
    every[0] = every[0]._replace(score=None, outcome="error")  # as if marking had failed
    own_part = slice(3 * rank, 3 * rank + 3)

    def gather(marks: list[Marked]) -> list[Marked]:
        assert [m.outcome for m in marks] == outcomes[own_part]
        return every

    monkeypatch.setattr("orchestrator.training.rollouts.gather_object", gather)
    process = SimpleNamespace(process_index=rank)
    monkeypatch.setattr("orchestrator.training.rollouts.PartialState", lambda: process)
    groups = GroupRecorder()
    own = {name: values[own_part] for name, values in rows.items()}
    of_three = cell.grpo | {"num_generations": 3, "per_device_train_batch_size": 6}
    reward = reward_function(cell.model_copy(update={"grpo": of_three}), mark, groups)
    state = SimpleNamespace(global_step=4)
    assert reward(**own, trainer_state=state) == [[0.5, 0.0, 1.0], [1.0, 1.0, 1.0]][rank]
    assert [(row["update"], row["prompt_id"], row["rewards"]) for row in groups.rows] == [
        (5, "p", [None, 0, 1]),
        (5, "q", [1, 1, 1]),
    ]
    drawn = reward(**own, trainer_state=state, reward=[0.5, 0.25, 0.0])
    assert drawn == [0.5, 0.25, 0.0] and len(groups.rows) == 2, "recorded where they were drawn"


def test_rewards_that_need_no_gold_answer(tmp_path: Path) -> None:
    [cell, *_] = small_plan(tmp_path).cells
    outcomes = {"correct": 1.0, "wrong": 0.0, "unparsed": 0.0, "error": None}
    marks = [marked_rollout(outcome, score) for outcome, score in outcomes.items()]

    def rewards(update: int = 3, rows: list[Marked] = marks, **of: float) -> list[float]:
        marked = with_rewards(cell.model_copy(update={"reward": of}), update, rows, 4)
        return fill_unmarked([each.reward for each in marked], 4)

    assert rewards() == [1.0, 0.0, 0.0, pytest.approx(1 / 3)]
    assert rewards(flipped=1.0)[:3] == [0.0, 1.0, 1.0]
    assert rewards(format=1.0)[:3] == [1.0, 1.0, 0.0]
    assert rewards(score=1.0, format=0.5)[:3] == [1.5, 0.5, 0.0]
    assert rewards(format=1.0)[3] == pytest.approx(2 / 3), "an error has the mean of its group"
    many = [marks[i % 3]._replace(prompt_id=f"p{i // 4}") for i in range(400)]
    drawn = rewards(rows=many, random=1.0)
    assert drawn == rewards(rows=many, random=1.0), "a resumed cell draws the same"
    assert drawn != rewards(update=4, rows=many, random=1.0)
    assert set(drawn) == {0.0, 1.0} and 150 < sum(drawn) < 250
    assert drawn[:200] == rewards(rows=many[:200], random=1.0), "whatever else is drawn"

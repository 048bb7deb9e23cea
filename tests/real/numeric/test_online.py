"""The prompts of an update, chosen by an online policy in TRL's trainer."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from effort import some
from grpo import (  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
    GROUP,
    LIVE,
    Fixed,
    generation,
    gradient,
    learned,
    marks_in_this_process,
    moved,
    one_thread,
    trained_cell,
)
from online_cases import (
    COUNT,
    chooser_of,
    dynamic,  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
    generate,
    known,
    online_cell,
    pool_of,
)

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.evaluation.liveness import is_live
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import load_pool
from orchestrator.selection.candidates import history_of
from orchestrator.selection.stored import read_subset
from orchestrator.training.online import Rollout
from orchestrator.training.record import CellRecord
from orchestrator.training.rollouts import with_rewards
from orchestrator.training.trainer import build_trainer
from orchestrator.training.workers import Workers
from policies import BuiltOnlinePolicy, History, PolicyError


def trainer_of(
    folder: Path, cell: Cell, answers: Sequence[str], **grpo: object
) -> tuple[Any, CellRecord]:
    """A real trainer of two groups per update on the embedded model."""
    import sweeps

    [of_tiny, *_] = sweeps.plan_of(sweeps.experiments(folder)).cells
    settings = of_tiny.grpo | {
        "per_device_train_batch_size": 2 * GROUP,
        **{"num_generations": GROUP, "max_completion_length": 12, "max_steps": 2},
        **grpo,
    }
    cell = of_tiny.model_copy(update={"grpo": settings, "online": cell.online, "size": COUNT})
    record = CellRecord(GroupRecorder(discarded=[]))
    task, prompts = Fixed(load_pool(cell.probe.dataset).task), pool_of(answers)
    built: Any = build_trainer(
        cell, folder / "out", task, prompts, record, None, known(cell, prompts)
    )
    return built, record


def test_trl_trains_on_the_rollouts_that_were_kept(tmp_path: Path, dynamic: Cell) -> None:
    trainer, record = trainer_of(tmp_path, dynamic, ["correct", LIVE, "wrong"] * 4)
    output = generation(trainer)
    assert [row["rewards"] for row in record.groups.rows] == [[1.0, 0.0] * (GROUP // 2)] * 2
    assert output["advantages"].abs().min() > 0
    lost = record.groups.discarded or []
    every = [*record.groups.rows, *lost]
    trained = [sum(row["tokens"]) for row in record.groups.rows]
    assert int(output["completion_mask"].sum()) == sum(trained)
    counted = trainer._metrics["train"]["num_tokens"][-1]
    assert counted > sum(sum(row["tokens"]) for row in every), "with the prompts' tokens"
    assert "tool_mask" not in output, "TRL's own loss where every group is trained on"
    again, other = trainer_of(tmp_path, dynamic, ["correct", LIVE, "wrong"] * 4)
    torch.manual_seed(9)
    assert torch.equal(generation(again)["completion_ids"], output["completion_ids"])
    assert other.groups.rows == record.groups.rows


@pytest.mark.parametrize("loss", ["dr_grpo", "dapo"])
def test_groups_that_fill_a_batch_have_no_gradient(
    tmp_path: Path, dynamic: Cell, loss: str
) -> None:
    """The gradient of one live group and a filling one, with a KL term, is that of the live one."""
    answers = [LIVE] + ["wrong"] * 11
    settings = {"beta": 0.1, "loss_type": loss, "per_device_train_batch_size": 2 * GROUP}
    trainer, record = trainer_of(tmp_path, dynamic, answers, **settings)
    trainer.chooser.policy.rule.max_draws = 6
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    torch.manual_seed(1)
    for weight in trained:
        weight.data += 0.05 * torch.randn_like(weight)
    output = generation(trainer)
    assert len(record.groups.rows) == 1 and len(record.groups.discarded or []) == 11
    alone = {n: v[:GROUP] if v.ndim else v for n, v in output.items()}
    alone = {n: v for n, v in alone.items() if n not in ("tool_mask", "live_share")}
    gradients = [
        gradient(trainer, [batch], lambda t, m, b: t._compute_loss(m, b))
        for batch in (output, alone)
    ]
    assert gradients[0].abs().max() > 0
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-7)


def chosen_again(cell: Cell, subset: pa.Table, groups: pa.Table) -> list[set[str]]:
    """What a cell's policy chooses for each update, from counts of the groups recorded before it.

    Counts are of the outcomes, where the chooser counts rewards.
    """
    assert cell.online is not None
    history, policy = (
        history_of(cell, subset.sort_by("prompt_id")),
        cell.online.build_online(),
    )
    rows, chosen = {i: row for row, i in enumerate(history.prompt_ids.to_pylist())}, []
    for update in range(1, cell.updates + 1):
        ids = policy.next_ids(history, update, cell.prompts_per_update)
        chosen.append({*ids.to_pylist()})
        for group in groups.to_pylist():
            if group["update"] == update:
                outcomes = Counter(group["outcomes"])
                marked = outcomes.total() - outcomes["error"]
                history.add(update, rows[group["prompt_id"]], outcomes["correct"], marked)
    return chosen


@pytest.mark.parametrize("name", some(["dynamic", "predicted"], 0))
def test_a_resumed_cell_learns_what_an_undisturbed_one_learns(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the updates after a checkpoint are lost, and done again."""
    import sweeps

    cell = sweeps.plan_of(sweeps.experiments(tmp_path)).cells[0]
    sizes = {"max_steps": 6, "max_completion_length": 24, "per_device_train_batch_size": 8}
    changes = {
        "online": PolicyEntry(policy=name),
        "static_policy": PolicyEntry(policy="full"),
        "size": 64,
    }
    changes |= {"grpo": cell.grpo | sizes, "evaluate_every": 0, "extra_evals": []}
    cell = cell.model_copy(update=changes)
    calm, stopped = (
        trained_cell(tmp_path / name, cell, stops, monkeypatch)
        for name, stops in (("calm", ()), ("stopped", (3, 5)))
    )
    run = learned(calm, cell)
    assert run == learned(stopped, cell)
    assert moved(run["weights"]) > 1e-4
    groups = run["groups"]
    trained = [
        {*groups.filter(pc.field("update") == u)["prompt_id"].to_pylist()} for u in range(1, 7)
    ]
    if name == "predicted":
        assert trained == chosen_again(cell, read_subset(calm, cell), groups)
        assert {"correct", "wrong"} <= {o for row in groups["outcomes"].to_pylist() for o in row}
    else:
        assert all(is_live(rewards) for rewards in groups["rewards"].to_pylist())
        lost = run["discarded"]
        assert not any(is_live(rewards) for rewards in lost["rewards"].to_pylist())
        drawn = [i for table in (groups, lost) for i in table["prompt_id"].to_pylist()]
        assert len(drawn) == len({*drawn}) > len(lost) > 0, "each once before any comes again"


@pytest.mark.parametrize("count", some([2, 1], 1))
def test_a_cell_trains_on_one_prompt_in_every_group(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All equally often in each update, also after two executions have ended early."""
    import sweeps

    sizes = {"max_steps": 4, "max_completion_length": 24, "save_steps": 2}
    runs = []
    for stops in ((), (3,)):
        folder = tmp_path / f"stops{len(stops)}"
        folder.mkdir()
        cell = sweeps.plan_of(sweeps.experiments(folder, budget=count)).cells[0]
        changes = {"grpo": cell.grpo | sizes, "evaluate_every": 0, "extra_evals": []}
        cell = cell.model_copy(update=changes)
        runs.append(learned(trained_cell(folder, cell, stops, monkeypatch), cell))
    assert runs[0] == runs[1]
    groups, ledger = runs[0]["groups"], runs[0]["ledger"]
    assert (ledger["prompts"], ledger["epochs"]) == (count, 16 / count)
    assert (ledger["rollouts"], ledger["updates"]) == (4 * 16, 4)
    drawn = Counter(zip(groups["update"].to_pylist(), groups["prompt_id"].to_pylist(), strict=True))
    assert len(drawn) == 4 * count and {*drawn.values()} == {4 // count}
    first = [row for row in groups.to_pylist() if row["update"] == 1]
    lengths = {(row["prompt_id"], tuple(row["tokens"])) for row in first}
    assert len(lengths) == len(first) == 4, "each group of a prompt has rollouts of its own"
    assert moved(runs[0]["weights"]) > 0


def ids_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["prompt_id"] for row in rows]


def test_an_update_is_filled_with_live_groups(dynamic: Cell) -> None:
    answers = ["correct", LIVE, "wrong"] * 4
    recorder = GroupRecorder(discarded=[])
    chooser = chooser_of(dynamic, answers, recorder)
    chooser.policy.rule.max_draws = 4  # type: ignore[union-attr]
    batch = chooser.batch(1, 3 * GROUP, generate)
    assert batch.kept == [True] * 3 and batch.rollouts is not None
    assert [row["answer"] for row in batch.rows] == [LIVE] * (3 * GROUP)
    assert ids_of(batch.rows) == [rollout.completion for rollout in batch.rollouts]
    assert [row["reward"] for row in batch.rows[:GROUP]] == [1.0, 0.0] * (GROUP // 2)
    assert len(recorder.rows) == 3 and len(recorder.discarded or []) <= 9
    assert recorder.tallies[1].live == 3
    for at in range(0, 3 * GROUP, GROUP):
        assert len(set(ids_of(batch.rows[at : at + GROUP]))) == 1


def test_a_cap_ends_the_draws_and_the_rest_is_filled_and_not_trained_on(dynamic: Cell) -> None:
    recorder = GroupRecorder(discarded=[])
    chooser = chooser_of(dynamic, ["wrong"] * 11 + [LIVE], recorder)
    batch = chooser.batch(1, 2 * GROUP, generate)
    drawn = len(recorder.rows) + len(recorder.discarded or [])
    assert drawn == 6, "three times two prompts"
    assert batch.kept is not None and sum(batch.kept) == len(recorder.rows)
    assert len(batch.rows) == 2 * GROUP and batch.kept == sorted(batch.kept, reverse=True)


def test_a_small_pool_ends_the_draws_too(dynamic: Cell) -> None:
    recorder = GroupRecorder(discarded=[])
    chooser = chooser_of(dynamic, ["wrong"] * 3, recorder)
    batch = chooser.batch(1, 2 * GROUP, generate)
    assert batch.kept == [False, False] and len(recorder.discarded or []) == 3
    assert recorder.rows == [] and recorder.tallies[1].groups == 0
    assert recorder.metrics(1)["train/discarded_pct"] == 100


@pytest.mark.parametrize("pool", [COUNT, 6])
def test_groups_that_are_judged_together_are_drawn_at_once(tmp_path: Path, pool: int) -> None:
    """Also where the pool has fewer prompts than would be drawn."""
    cell = online_cell(tmp_path, "lilo", {"ratio": 4})
    answers = ["correct", LIVE, "wrong", "correct or wrong or wrong or wrong", "error", LIVE]
    recorder, calls = GroupRecorder(discarded=[]), []

    def counted(rows: Sequence[dict[str, Any]]) -> list[Rollout]:
        calls.append(len(rows))
        return generate(rows)

    chooser = chooser_of(cell, answers * (pool // 6), recorder)
    batch = chooser.batch(1, 2 * GROUP, counted)
    drawn = min(8, pool)
    assert calls == [drawn * GROUP] and batch.kept == [True, True]
    assert len(recorder.rows) == 2 and len(recorder.discarded or []) == drawn - 2
    assert {row["answer"] for row in batch.rows} == {LIVE}


@pytest.mark.parametrize("options", [{}, {"gates": ["policies_of_users:Fading"]}])
def test_a_rebuilt_chooser_continues_as_the_first_would_have(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    dynamic = online_cell(tmp_path, "dynamic", {"max_draws": 3, **options})
    answers = ["correct", LIVE, "wrong", "error", f"error or {LIVE}", LIVE] * 2
    recorder = GroupRecorder(discarded=[])
    first = chooser_of(dynamic, answers, recorder)
    for update in (1, 2, 3):
        first.batch(update, 2 * GROUP, generate)
    again = GroupRecorder([*recorder.rows], [*(recorder.discarded or [])])
    second = chooser_of(dynamic, answers, again)
    for update in (4, 5, 6):
        batches = [each.batch(update, 2 * GROUP, generate) for each in (first, second)]
        assert batches[0] == batches[1] and first.metrics == second.metrics
    assert (recorder.rows, recorder.discarded) == (again.rows, again.discarded)


@pytest.mark.parametrize("discarded", [None, []])
def test_a_policy_is_told_what_was_marked_correct(
    dynamic: Cell, discarded: list[Any] | None
) -> None:
    recorder = GroupRecorder(discarded=discarded)
    answers = ["correct", "wrong", "error", "correct or wrong or wrong or error", "", ""]
    chooser = chooser_of(dynamic, answers, recorder)
    history, rows = chooser.history, chooser._rows(chooser.prompts)
    of_probe = history.pass_rate.tolist()
    for update, numbers in ((1, (0, 1, 2, 3)), (2, (0, 1))):
        for number in numbers:
            own = rows[number * GROUP :][:GROUP]
            if update == 2 and number == 1:
                own = [row | {"answer": LIVE} for row in own]
            group = with_rewards(dynamic, update, chooser.mark(own, own, own), GROUP)
            lost = discarded is not None and (update, number) == (1, 1)
            recorder.add(update, group, GROUP, discarded=lost)
    for _ in range(2):  # each group is counted once
        chooser.choose(3, 1)
        drawn = [values.tolist() for values in history.drawn]
        assert drawn[:2] == [[1, 1, 1, 1, 2, 2], [0, 1, 2, 3, 0, 1]]
        assert drawn[2] == [GROUP, 0, 0, 1, GROUP, GROUP // 2]
        assert drawn[3] == [GROUP, GROUP, 0, 3, GROUP, GROUP]
        assert history.pass_rate.tolist() == pytest.approx([1, 0.5, of_probe[2], 1 / 3, 0.5, 0.5])
        assert history.last_update.tolist() == [2, 2, 1, 1, 0, 0]
        assert history.solved.tolist() == [2, 0, 0, 0, 0, 0]


def test_workers_share_every_group_and_agree(
    dynamic: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each of two workers takes, where the other's rollouts are gathered."""
    answers = ["correct", LIVE, "wrong", LIVE] * 3
    whole = chooser_of(dynamic, answers, GroupRecorder(discarded=[])).batch(1, 2 * GROUP, generate)
    halves = []
    for rank in (0, 1):
        chooser = chooser_of(dynamic, answers, GroupRecorder(discarded=[]))
        chooser.workers = Workers(0, 1)
        draw, own = chooser._draw, chooser._own

        def half(rows: list[Any], own: Any = own, rank: int = rank) -> list[Any]:
            assert len(rows) % 2 == 0
            return rows[rank * len(rows) // 2 :][: len(rows) // 2]

        def of_all(*arguments: Any, chooser: Any = chooser, draw: Any = draw) -> Any:
            monkeypatch.setattr(chooser, "_own", lambda rows: rows)  # as if gathered
            groups = draw(*arguments)
            monkeypatch.setattr(chooser, "_own", half)
            return groups

        monkeypatch.setattr(chooser, "_draw", of_all)
        monkeypatch.setattr(chooser, "_own", half)
        halves.append(chooser.batch(1, 2 * GROUP, generate))
    assert [*halves[0].rows, *halves[1].rows] == whole.rows
    assert halves[0].kept == halves[1].kept == whole.kept


class Misbehaving:
    """A policy of a user's own that returns what a test tells it."""

    def __init__(self, ids: Any) -> None:
        self.ids = ids

    def next(self, update: int, history: History) -> Any:
        if isinstance(self.ids, Exception):
            raise self.ids
        return self.ids


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["p00", "p99"], "'p99', .* 12"),
        (["p00"], "returned 1 prompt_ids"),
        (RuntimeError("no idea"), r"'mine' raised RuntimeError: no idea \(.*test_online.py:\d+\)"),
    ],
)
def test_a_policy_that_misbehaves_is_named(tmp_path: Path, ids: Any, message: str) -> None:
    cell = online_cell(tmp_path, "predicted", {})
    chooser = chooser_of(cell, ["wrong"] * COUNT, GroupRecorder())
    chooser.policy = BuiltOnlinePolicy("mine", Misbehaving(ids))
    with pytest.raises(PolicyError, match=message):
        chooser.batch(1, 2 * GROUP, generate)


def test_a_prompt_cannot_be_drawn_twice_for_an_update(dynamic: Cell) -> None:
    chooser = chooser_of(dynamic, ["wrong"] * COUNT, GroupRecorder(discarded=[]))
    chooser.policy.rule.next = lambda *_: ["p00", "p01"]  # type: ignore[union-attr]
    with pytest.raises(PolicyError, match="returned prompt 'p00' twice for update 1"):
        chooser.batch(1, 2 * GROUP, generate)

"""Prompts that are probed again while a cell trains: which, when, and what they cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import some
from factories import cell_record, marked_rollout, small_plan
from grpo import (  # noqa: F401 (a fixture)  # noqa: F401 (a fixture)
    Fixed,
    learned,
    mark_in_this_process,
    one_thread,
    trained_cell,
)

from orchestrator.config.experiment import Refresh
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.evaluation.groups import GroupRecorder, group_table
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import load_pool
from orchestrator.probing.samples import MarkingError
from orchestrator.sampling.base import Completion
from orchestrator.storage.errors import UserError
from orchestrator.storage.schema import GROUPS
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import CellRecord, finish, ledger, recorded_groups
from orchestrator.training.refresh import Refresher, refreshed_rows
from orchestrator.training.workers import Workers
from policies import BuiltOnlinePolicy
from tasks import Prompt


@pytest.mark.parametrize("policy", some(["predicted", "random"], 1))
def test_a_resumed_cell_refreshes_and_learns_what_an_undisturbed_one_does(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped right after a checkpoint, after which a refresh is due, and between checkpoints."""
    import sweeps

    mark_in_this_process(monkeypatch)
    cell = sweeps.plan_of(sweeps.experiments(tmp_path)).cells[0]
    sizes = {"max_steps": 7, "max_completion_length": 24, "per_device_train_batch_size": 8}
    changes: dict[str, Any] = {"evaluate_every": 0, "extra_evals": [], "size": 64}
    if policy == "predicted":
        changes["online"] = PolicyEntry(policy=policy, options={"drift": "shift"})
    changes["static_policy"] = PolicyEntry(policy="full")
    refresh = Refresh(every=2, samples=2, share=0.25)
    cell = cell.model_copy(update={"grpo": cell.grpo | sizes, "refresh": refresh, **changes})
    calm, stopped = (
        learned(trained_cell(tmp_path / name, cell, stops, monkeypatch), cell)
        for name, stops in (("calm", ()), ("stopped", (3, 5)))
    )
    assert calm == stopped
    groups, refreshed, spent = calm["groups"], calm["refreshed"], calm["ledger"]
    assert refreshed["update"].value_counts().to_pylist() == [
        {"values": update, "counts": 16} for update in (3, 5, 7)
    ]
    assert spent["refreshed_rollouts"] == cell.refresh_rollouts == 96
    assert spent["rollouts"] == cell.max_rollouts == 7 * 8 + 96
    assert spent["prompt_tokens"] > 152 * 20, "prompts of refreshes are counted, too"
    if policy == "random":
        plain = cell.model_copy(update={"refresh": None})
        other = learned(trained_cell(tmp_path / "plain", plain, (), monkeypatch), plain)
        assert other["groups"] == groups, "measured, not changed"


def refreshed_cell(folder: Path, policy: str = "random", **refresh: object) -> Cell:
    settings = {"every": 1, "samples": 3, "share": 0.5} | refresh
    [cell] = small_plan(folder, policies=[policy], refresh=settings).cells
    return cell


class Sampler:
    """Answers with the prompt's own text, and counts what it is asked for."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.chat_template_kwargs: dict[str, Any] = {"left": "over"}

    def rendered(self, requests: Sequence[Any]) -> list[list[int]]:
        return [[0] * 5 for _ in requests]

    def sample(self, requests: Sequence[Any], settings: Any) -> list[list[Completion]]:
        assert settings.max_completion_length == 32, "of the probe"
        self.requests += requests
        return [[Completion("text", 4, "stop") for _ in r.samples] for r in requests]


def refresher(cell: Cell, answers: Sequence[str], rank: int = 0, count: int = 1) -> Refresher:
    prompts = [Prompt(f"p{i}", f"q {i}", answer, "") for i, answer in enumerate(answers)]
    task: Any = Fixed(load_pool(cell.probe.dataset).task)
    sampler: Any = Sampler()
    groups = GroupRecorder(refreshed=[])
    return Refresher(cell, prompts, task, sampler, groups, Workers(rank, count))


def test_each_prompt_is_refreshed_before_any_is_refreshed_again() -> None:
    refresh, count = Refresh(every=3, share=0.25, samples=2), 10
    due = {u: refreshed_rows(refresh, count, 7, u).tolist() for u in range(1, 32)}
    assert [u for u, rows in due.items() if rows] == [4, 7, 10, 13, 16, 19, 22, 25, 28, 31]
    drawn = [row for rows in due.values() for row in rows]
    assert np.bincount(drawn).tolist() == [2] * count
    assert sorted(drawn[:10]) == [*range(10)]
    assert all(rows == sorted(rows) for rows in due.values())
    other = [refreshed_rows(refresh, count, 8, u).tolist() for u in (4, 7)]
    assert other != [due[4], due[7]], "another seed refreshes others"
    assert refresh.rollouts(count, 31) == 2 * len(drawn)
    assert Refresh(every=3, share=0.01).prompts(10) == 1


def test_a_refresh_is_recorded_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark_in_this_process(monkeypatch)
    cell = refreshed_cell(tmp_path, samples=2)
    probe = refresher(cell, ["correct", "wrong", "error", "correct or wrong"])
    assert probe(1) == 0 and probe.groups.refreshed == []
    assert probe(2) == 2 * 2 * (5 + 4)
    assert probe(2) == 0, "it is recorded already"
    assert probe(3) == 2 * 2 * (5 + 4)
    table = group_table(probe.groups.refreshed or [])
    assert table is not None and table.schema == GROUPS
    assert table["update"].to_pylist() == [2, 2, 3, 3]
    outcomes = {row["prompt_id"]: row["outcomes"] for row in table.to_pylist()}
    assert outcomes == {
        "p0": ["correct"] * 2,
        "p1": ["wrong"] * 2,
        "p2": ["error"] * 2,
        "p3": ["correct", "wrong"],
    }
    assert probe.groups.rows == [] and probe.groups.seen.total() == 0
    sampler: Any = probe.sampler
    assert len({r.prompt_id for r in sampler.requests}) == 4
    assert sampler.chat_template_kwargs == {}, "an evaluation may have left others"


def test_the_completions_of_a_refresh_are_no_others(tmp_path: Path) -> None:
    """Their randomness must not be that of a prompt's rollouts, nor of another refresh."""
    probe = refresher(refreshed_cell(tmp_path, share=1.0), ["correct"])
    probe.groups.add = lambda *_, **__: None  # type: ignore[method-assign]
    sampler: Any = probe.sampler
    with pytest.MonkeyPatch.context() as patch:
        mark_in_this_process(patch)
        for update in (2, 3):
            probe(update)
    keys = [request.prompt_id for request in sampler.requests]
    assert len({*keys}) == 2 and not {"p0", "2\x1fp0", "3\x1fp0"} & {*keys}


def test_workers_share_a_refresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark_in_this_process(monkeypatch)
    cell, answers = refreshed_cell(tmp_path, share=1.0), ["correct", "wrong", "correct or wrong"]
    whole = refresher(cell, answers)
    tokens = whole(2)
    parts = [refresher(cell, answers, rank, 2) for rank in (0, 1)]
    gathered: list[list[Any]] = []
    place = "orchestrator.training.refresh.gather_object"
    monkeypatch.setattr(
        place,
        lambda own: gathered.append(own) or [*own],  # type: ignore[func-returns-value]
    )
    for part in parts:
        part(2)
    for first, second in ((0, 2), (2, 0)):  # whatever the order of ranks
        everything = iter([gathered[first] + gathered[second], gathered[1] + gathered[3]])
        monkeypatch.setattr(place, lambda own, all_=everything: next(all_))
        again = refresher(cell, answers, 0, 2)
        assert again(2) == tokens
        rows = again.groups.refreshed or []
        ids = [(row["prompt_id"], row["outcomes"]) for row in rows]
        assert [i for i, _ in ids] == ["p0", "p1", "p2"]
        assert (
            ids[:2] == [(r["prompt_id"], r["outcomes"]) for r in whole.groups.refreshed or []][:2]
        )


def test_a_refresh_whose_marker_fails_stops_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rollouts do, and nothing of it is recorded: the next execution draws it again."""
    mark_in_this_process(monkeypatch)
    probe = refresher(refreshed_cell(tmp_path, share=1.0), ["error"] * 4)
    with pytest.raises(MarkingError, match="12 of 12"):
        probe(2)
    assert probe.groups.refreshed == []


def recorded(cell: Cell, folder: Path) -> CellRecord:
    """A record with a refresh of two prompts before update 3, one of them never marked."""
    plan = small_plan(folder, policies=["random"], refresh={"every": 2, "samples": 3})
    record = cell_record(plan, cell)
    record.groups.refreshed = []
    marks = [
        marked_rollout(outcome, score, p.prompt_id, tier=p.tier, tokens=7)
        for p, outcome, score in zip(
            [p for p in plan.pool(cell.probe).train[:2] for _ in range(3)],
            ["correct", "truncated", "wrong", *["error"] * 3],
            [1.0, 0.0, 0.0, *[None] * 3],
            strict=True,
        )
    ]
    record.groups.add(3, marks, 3, refreshed=True)
    return record


def test_the_ledger_counts_refreshes_in_totals_only(tmp_path: Path) -> None:
    cell = refreshed_cell(tmp_path, every=2)
    record = recorded(cell, tmp_path)
    without = cell_record(small_plan(tmp_path, policies=["random"]), cell).ledger(cell, 8)
    counted = record.ledger(cell, 8)
    assert counted == record.running_ledger(cell, 8)
    changed = {name: value for name, value in counted.items() if without.get(name) != value}
    assert changed == {
        **{"refreshed": 2, "refreshed_rollouts": 6, "refreshed_tokens": 42},
        "rollouts": without["rollouts"] + 6,
        "generated_tokens": without["generated_tokens"] + 42,
        "truncated_tokens": without["truncated_tokens"] + 7,
        "prompt_tokens": without["prompt_tokens"] - 42,  # of the tokens that TRL logged
    }
    assert "refreshed" not in without
    groups = recorded_groups(record.tables())
    assert ledger(cell, 8, groups, record.log, 12.5) == counted


def test_a_record_with_refreshes_survives_a_checkpoint_and_the_end(tmp_path: Path) -> None:
    cell = refreshed_cell(tmp_path, every=2)
    record, store = recorded(cell, tmp_path), Store(str(tmp_path / "runs"))
    record.save(store, cell.cell_id, 4)
    folder = CellFolder(store, cell.cell_id)
    checkpoint = folder.checkpoint(4)
    assert checkpoint is not None
    again = CellRecord.of(checkpoint)
    assert again.groups.refreshed == record.groups.refreshed
    assert again.groups.refreshed_tally == record.groups.refreshed_tally
    finish(store, cell, record, {"trl": "0"})
    finished = folder.finished()
    assert finished is not None
    assert finished.tables["refreshed"] == group_table(record.groups.refreshed or [])
    path = Path(store.path(folder.place, "refreshed.parquet"))
    path.write_bytes(path.read_bytes()[:-8])
    assert folder.finished() is None, "a torn table is found"


def test_a_cell_without_refreshes_keeps_its_id(tmp_path: Path) -> None:
    def id_of(**refresh: object) -> str:
        [cell] = small_plan(tmp_path, policies=["predicted"], refresh=refresh).cells
        return cell.cell_id

    [plain] = small_plan(tmp_path, policies=["predicted"]).cells
    assert "refresh" not in plain.model_dump() and "refresh" not in plain.identity
    assert {id_of(), id_of(every=0), id_of(samples=9, share=0.2)} == {plain.cell_id}
    ids = [id_of(every=1), id_of(every=2), id_of(every=1, share=0.2), id_of(every=1, samples=9)]
    assert len({*ids, plain.cell_id}) == 5


def test_plans_count_refreshes_and_compare_at_equal_rollouts(tmp_path: Path) -> None:
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["random"], "refresh.every": [0, 1]}
    plan = small_plan(tmp_path, grid=grid, refresh={"samples": 5, "share": 0.5})
    plain, again = plan.cells
    assert plain.max_rollouts == plain.rollouts == again.rollouts == 32
    assert again.max_rollouts == 32 + 3 * 4 * 5, "before the updates 2, 3 and 4"
    assert plan.compare_at == "rollouts"
    assert small_plan(tmp_path, policies=["random"]).compare_at == "updates"


GRPO = {"num_generations": 4, "per_device_train_batch_size": 8, "max_steps": 4}


@pytest.mark.parametrize(
    ("refresh", "others", "message"),
    [
        ({"every": -1}, {}, "every is -1"),
        ({"every": True}, {}, "every is True|every is true"),
        ({"share": 1.5}, {}, r"share is 1\.5"),
        ({"samples": 0}, {}, "samples is 0"),
        ({"evry": 2}, {}, "unknown setting 'evry'"),
        ({"every": 4}, {}, "4 updates, .* at most 3, or 0"),
        ({"every": 2}, {"rollouts": "trl"}, "leave out rollouts: trl, or"),
        ({"every": 1}, {"grpo": GRPO | {"num_iterations": 2}}, "2 updates: .*multiple of 2"),
        ({"every": 2}, {"grpo": GRPO | {"min_p": 0.1}}, "leave out grpo.min_p, .*every: 0"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(
    tmp_path: Path, refresh: dict[str, Any], others: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        small_plan(tmp_path, policies=["random"], refresh=refresh, **others)
    assert "\n" not in str(caught.value) and "experiments.yaml" in str(caught.value)


def test_an_axis_is_refused_at_its_value(tmp_path: Path) -> None:
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["random"], "refresh.every": [0, 9]}
    with pytest.raises(UserError, match=r"grid.refresh.every.1: every is 9, and there are 4"):
        small_plan(tmp_path, grid=grid)


class Remembers:
    """An online policy that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Any, Any]] = []

    def next(self, update: int, history: Any) -> Any:
        refreshed = [values.tolist() for values in history.refreshed]
        self.seen.append((update, refreshed, history.pass_rate.tolist()))
        return history.ids(np.arange(history.size))


def test_a_policy_is_told_what_a_refresh_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in one execution and in one that is resumed at each update."""
    from online_cases import GROUP, chooser_of, generate, online_cell

    mark_in_this_process(monkeypatch)
    cell = online_cell(tmp_path, "predicted", {}, refresh=Refresh(every=1, samples=2, share=0.5))
    answers = ["correct", "wrong", "error", "correct or wrong"]
    runs = []
    for resumes in (False, True):
        recorder = GroupRecorder(refreshed=[])
        chooser, remembers = None, Remembers()
        for update in (1, 2, 3):
            if chooser is None or resumes:
                lists = (recorder.rows, None, recorder.refreshed)
                recorder = GroupRecorder(*(None if part is None else [*part] for part in lists))
                chooser = chooser_of(cell, answers, recorder)
                chooser.policy = BuiltOnlinePolicy("remembers", remembers)
                probe = refresher(cell, [])
                probe.groups, probe.prompts = recorder, chooser.prompts
            probe(update)
            rows = chooser.batch(update, 2 * GROUP, generate).rows
            marks = chooser.mark(rows, rows, rows)
            recorder.add(update, [m._replace(reward=m.score) for m in marks], GROUP)
        runs.append(remembers.seen)
        history = chooser.history
        assert history.last_update.tolist() == [2, 2, 0, 0], "a refresh is no group"
        assert history.groups.tolist() == [2, 2, 0, 0]
    assert runs[0] == runs[1]
    (first, none, _), (_, [at, row, right, marked], rates), (_, later, _) = runs[0]
    assert first == 1 and none == [[], [], [], []]
    assert at == [2, 2] and row == sorted(row) and later[0] == [2, 2, 3, 3]
    known = dict(zip(row, zip(right, marked, strict=True), strict=True))
    expected = {0: (2, 2), 1: (0, 2), 2: (0, 0)}
    assert all(known[r] == expected[r] for r in known if r in expected)
    for r, (c, m) in known.items():
        assert rates[r] == pytest.approx(c / m if m else 0.5)

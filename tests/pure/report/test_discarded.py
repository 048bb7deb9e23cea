"""Groups that an online policy drew and discarded: counted in every cost, and in nothing else."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from discarded_cases import cell, group, online_record, plan  # noqa: F401 (fixtures)
from factories import cell_record, marked_rollout
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.evaluation.groups import (
    ALL_DISCARDED,
    GroupRecorder,
    explain_dead_groups,
    group_shares,
    learnable_drawn_pct,
    learnable_pct,
    training_metrics,
)
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.storage.schema import GROUPS
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import CellRecord, finish, ledger

LIVE, DEAD = ["correct", "wrong"], ["wrong", "wrong"]


DRAWN = st.lists(
    st.tuples(
        st.builds(
            group,
            st.integers(1, 5),
            st.sampled_from("abcd"),
            st.sampled_from([LIVE, DEAD, ["correct", "correct"]]),
        ),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda drawn: (drawn[0]["update"], drawn[0]["prompt_id"]),
)


# Only discarded groups in the first updates: the sums of shares depend on their order.
UNEVEN = [
    *((group(update, "a", LIVE), False) for update in (1, 2, 3)),
    *((group(3, prompt, DEAD), kept) for prompt, kept in (("b", False), ("c", True))),
]


def split(drawn: list[tuple[dict, bool]]) -> tuple[list[dict], list[dict]]:
    drawn = sorted(drawn, key=lambda pair: pair[0]["update"])
    return [g for g, kept in drawn if kept], [g for g, kept in drawn if not kept]


@settings(max_examples=60)
@example(UNEVEN)
@given(DRAWN)
def test_metrics_agree_with_a_plain_count(drawn: list[tuple[dict, bool]]) -> None:
    kept, lost = split(drawn)
    tables = (pa.Table.from_pylist(rows, schema=GROUPS) for rows in (kept, lost))
    metrics = training_metrics(*tables)
    recorder = GroupRecorder(kept, lost)
    assert metrics == {update: recorder.metrics(update) for update in sorted(recorder.tallies)}
    assert metrics.keys() == {row["update"] for row in (*kept, *lost)}
    for update, values in metrics.items():
        shares = {
            name: [
                [g["outcomes"] == LIVE for g in rows if g["update"] == u]
                for u in metrics
                if u <= update
            ]
            for name, rows in (("train/learnable_pct", kept), ("drawn", [*kept, *lost]))
        }
        for name, live in shares.items():
            mean = sum(sum(each) / max(1, len(each)) for each in live) / len(live)
            full = "train/learnable_drawn_pct" if name == "drawn" else name
            assert values[full] == pytest.approx(100 * mean)
        own, gone = ([g for g in rows if g["update"] == update] for rows in (kept, lost))
        every = len(own) + len(gone)
        assert values["train/discarded_pct"] == pytest.approx(100 * len(gone) / every)
        all_right = sum(g["outcomes"] == ["correct", "correct"] for g in own)
        assert values["train/all_right_pct"] == pytest.approx(100 * all_right / max(1, len(own)))


def mean_live_pct(rows: list[dict], updates: list[int]) -> float:
    """100 × the mean of the updates' shares of live groups, added up in their order."""
    live = [[g["outcomes"] == LIVE for g in rows if g["update"] == update] for update in updates]
    shares = np.array([sum(each) / max(1, len(each)) for each in live])
    return float(100 * (np.cumsum(shares)[-1] / len(updates)))


@settings(max_examples=60)
@example(UNEVEN, 3)
@given(DRAWN, st.integers(0, 12))
def test_running_means_have_the_bits_of_sums_from_the_start(
    drawn: list[tuple[dict, bool]], resumed_at: int
) -> None:
    """Also after a resume, and where an update gets more groups after its metrics were read."""
    recorder = GroupRecorder(discarded=[])
    for number, (row, kept) in enumerate(drawn):  # not in the order of updates
        if number == resumed_at:
            recorder = GroupRecorder(recorder.rows, recorder.discarded)
        completions = [
            marked_rollout(o, r, row["prompt_id"])
            for o, r in zip(row["outcomes"], row["rewards"], strict=True)
        ]
        recorder.add(row["update"], completions, len(completions), discarded=not kept)
        updates = sorted({each["update"] for each, _ in drawn[: number + 1]})
        for count, update in enumerate(updates, 1):
            metrics = recorder.metrics(update)
            trained_on = [each for each, kept in drawn[: number + 1] if kept]
            every = [each for each, _ in drawn[: number + 1]]
            assert metrics["train/learnable_pct"] == mean_live_pct(trained_on, updates[:count])
            assert metrics["train/learnable_drawn_pct"] == mean_live_pct(every, updates[:count])


@settings(max_examples=60)
@given(DRAWN)
def test_the_ledger_counts_what_was_discarded(cell: Cell, drawn: list[tuple[dict, bool]]) -> None:
    kept, lost = split(drawn)
    log = [{"update": 5, "name": "num_tokens", "value": 1000.0}]
    usage = ledger(cell, cell.size, GroupRecorder(kept, lost), log, 1.0)
    trained = ledger(cell, cell.size, GroupRecorder(kept), log, 1.0)
    assert usage["rollouts"] == trained["rollouts"] + usage["discarded_rollouts"]
    assert usage["generated_tokens"] == 6 * len(drawn)
    assert usage["prompt_tokens"] == 1000 - 6 * len(drawn)
    assert (usage["discarded"], usage["discarded_tokens"]) == (len(lost), 6 * len(lost))
    assert usage["discarded_live"] == sum(g["outcomes"] == LIVE for g in lost)
    for name in ("live", "all_right", "all_wrong", "prompts", "live_tokens", "kl_only_updates"):
        assert usage[name] == trained[name]
    assert usage["epochs"] == len(kept) / cell.size


def test_an_update_without_a_kept_group_is_not_one_of_the_kl_term(cell: Cell) -> None:
    pulled = cell.model_copy(update={"grpo": cell.grpo | {"beta": 0.1}})
    kept, lost = [group(2, "a", DEAD)], [group(1, "a", DEAD), group(3, "a", DEAD)]
    recorder = GroupRecorder(kept, lost)
    assert ledger(pulled, cell.size, recorder, [], 1.0)["kl_only_updates"] == 1
    text = explain_dead_groups(cell, recorder.tallies[1], lambda policy: 0.0, lambda: 0.5)
    assert text == ALL_DISCARDED


def test_a_checkpoint_holds_what_was_discarded(plan: Plan, cell: Cell, tmp_path: Path) -> None:
    store, record = Store(str(tmp_path)), online_record(plan, cell)
    for update in (2, 4):
        record.save(store, cell.cell_id, update, record.running_ledger(cell, cell.size))
    newest = CellFolder(store, cell.cell_id).latest()
    assert newest is not None and newest.update == 4
    saved = CellRecord.of(newest)
    assert saved.tables() == record.tables()
    assert saved.running_ledger(cell, cell.size) == record.ledger(cell, cell.size)
    file = Path(store.path("cells", cell.cell_id, "checkpoint-4", "discarded.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    newest = CellFolder(store, cell.cell_id).latest()
    assert newest is not None and newest.update == 2
    file = Path(store.path("cells", cell.cell_id, "checkpoint-2", "discarded.parquet"))
    file.unlink()
    assert CellFolder(store, cell.cell_id).latest() is None


def test_a_policy_that_discards_nothing_keeps_its_files(plan: Plan, tmp_path: Path) -> None:
    store, cell = Store(str(tmp_path)), plan.cells[0]
    record = cell_record(plan, cell)
    assert set(record.tables()) == {"groups", "evaluations", "log"}
    finish(store, cell, record, {})
    result = store.read_json("cells", cell.cell_id, "result.json")
    assert "learnable_drawn_pct" not in result and "discarded" not in result["ledger"]
    assert "train/discarded_pct" not in record.groups.metrics(1)


def test_learnable_of_drawn_counts_every_group() -> None:
    tables = [
        pa.Table.from_pylist([group(1, *each)], schema=GROUPS)
        for each in (("a", LIVE), ("b", DEAD), ("a", DEAD))
    ]
    assert learnable_drawn_pct(*tables[:2]) == 50
    assert learnable_drawn_pct(tables[0], tables[2]) == 100, "the rest of a group that was trained"
    recorder = GroupRecorder([group(1, "a", LIVE)], [group(1, "a", DEAD)])
    rest = recorder.discarded_tallies[1]
    assert (rest.groups, rest.rollouts, rest.generated_tokens) == (0, 2, 6)


def test_an_update_that_trained_on_no_group_has_no_live_ones() -> None:
    kept = pa.Table.from_pylist([group(2, "a", LIVE), group(2, "b", DEAD)], schema=GROUPS)
    lost = pa.Table.from_pylist([group(1, "a", DEAD), group(2, "c", LIVE)], schema=GROUPS)
    live = {u: each.live for u, each in group_shares(kept, lost).items()}
    assert live == {1: 0.0, 2: 0.5} and group_shares(kept)[2].live == 0.5
    assert (learnable_pct(kept, lost), learnable_pct(kept)) == (25, 50)
    assert [*group_shares(kept, lost)] == [1, 2] and sum(group_shares(kept, lost)[1]) == 0
    unmarked = group(3, "a", ["error", "error"]) | {"rewards": [None, None]}
    half = pa.Table.from_pylist([unmarked, group(3, "b", DEAD)], schema=GROUPS)
    assert group_shares(half)[3].unmarked == group_shares(half)[3].all_wrong == 0.5

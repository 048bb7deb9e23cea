"""The ledger: tokens, rollouts, groups and seconds of a cell."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from factories import cell_record, group_row, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.evaluation.liveness import is_live, kind_of
from orchestrator.planning.cells import Cell
from orchestrator.storage.schema import GROUPS
from orchestrator.training.record import CellRecord, ledger, recorded_groups


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    """A cell of 8 prompts."""
    return small_plan(tmp_path_factory.mktemp("ledger"), policies=["hard"]).cells[0]


def with_grpo(cell: Cell, **changes: object) -> Cell:
    masked = bool(changes.pop("mask_dead_groups", False))
    return cell.model_copy(update={"grpo": cell.grpo | changes, "mask_dead_groups": masked})


def group(update: int, prompt: str, outcomes: list[str], tokens: int = 3) -> dict:
    return group_row(update, outcomes, tokens=tokens, prompt_id=prompt)


def of(cell: Cell, rows: list[dict], last: int = 0, size: int = 8) -> dict[str, float]:
    log = [{"update": u, "name": "loss", "value": 0.0} for u in range(1, last + 1)]
    return ledger(cell, size, GroupRecorder(rows), log, 2.0)


OUTCOME = st.sampled_from(["correct", "wrong", "truncated", "error"])
GROUPS_DRAWN = st.lists(
    st.builds(
        group,
        st.integers(1, 5),
        st.sampled_from("abcdefgh"),
        st.lists(OUTCOME, min_size=2, max_size=4),
        st.integers(0, 9),
    ),
    max_size=10,
)


@settings(max_examples=100)
@given(GROUPS_DRAWN)
def test_the_ledger_agrees_with_a_plain_count(cell: Cell, rows: list[dict]) -> None:
    rows.sort(key=lambda r: r["update"])
    log = [
        {"update": u, "name": name, "value": value}
        for u in range(1, 6)
        for name, value in (("num_tokens", 1000.0 * u), ("loss", -1.0))
    ]
    table = pa.Table.from_pylist(rows, schema=GROUPS)
    usage = ledger(cell, 8, recorded_groups({"groups": table}), log, 12.3456)
    assert usage == ledger(cell, 8, GroupRecorder(rows), log, 12.3456)
    tokens = sum(sum(r["tokens"]) for r in rows)
    assert usage["generated_tokens"] == tokens
    assert usage["prompt_tokens"] == 5000 - tokens
    assert usage["rollouts"] == sum(len(r["tokens"]) for r in rows)
    assert usage["live_tokens"] == sum(sum(r["tokens"]) for r in rows if is_live(r["rewards"]))
    kinds = Counter(map(kind_of, table["rewards"].to_pylist()))
    assert all(
        usage[kind] == kinds[kind] for kind in ("live", "all_right", "all_wrong", "unmarked")
    )
    assert usage["truncated_tokens"] == sum(
        t for r in rows for t, o in zip(r["tokens"], r["outcomes"], strict=True) if o == "truncated"
    )
    assert usage["all_wrong_truncated"] <= usage["all_wrong"]
    assert usage["prompts"] == len({r["prompt_id"] for r in rows})
    assert (usage["updates"], usage["seconds"], usage["gpu_seconds"]) == (5, 12.346, 0)


def test_the_ledger_of_a_finished_cell(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["hard"], resources={"gpus": 0.5, "workers": 2})
    [cell] = plan.cells
    record: CellRecord = cell_record(plan, cell)
    usage = record.ledger(cell, cell.size)
    assert (usage["rollouts"], usage["updates"]) == (cell.rollouts, cell.updates)
    assert usage["gpu_seconds"] == usage["seconds"] == 12.5
    assert usage == record.running_ledger(cell, cell.size)


def test_epochs_are_counted_over_the_prompts_of_the_subset(cell: Cell) -> None:
    """Also where match_sizes made the subset smaller than the cell's budget."""
    right = ["correct", "correct"]
    assert cell.size == 8
    once = [group(1, p, right) for p in "abcd"]
    assert of(cell, once)["epochs"] == 0.5
    assert of(cell, once, size=5)["epochs"] == 0.8
    twice = [*once, *(group(2, p, right) for p in "abcd")]
    assert of(cell, twice, size=4)["epochs"] == 2
    assert of(cell, twice)["epochs"] == 1
    assert of(cell, [*once, group(2, "a", right)], size=4)["epochs"] == 5 / 4
    assert of(cell, [])["epochs"] == 0


def test_updates_driven_only_by_kl_are_counted(cell: Cell) -> None:
    dead, live = ["wrong", "wrong"], ["correct", "wrong"]
    rows = [group(1, "a", dead), group(2, "a", dead), group(2, "b", live), group(3, "c", dead)]
    pulled = with_grpo(cell, beta=0.1)
    assert of(pulled, rows, last=3)["kl_only_updates"] == 2
    assert of(with_grpo(cell, beta=0.0), rows, last=3)["kl_only_updates"] == 0
    masked = with_grpo(cell, beta=0.1, mask_dead_groups=True)
    assert of(masked, rows, last=3)["kl_only_updates"] == 0


def test_updates_that_reuse_a_generation_share_its_groups(cell: Cell) -> None:
    dead, live = ["wrong", "wrong"], ["correct", "wrong"]
    rows = [group(1, "a", dead), group(3, "a", live), group(5, "b", dead)]
    usage = of(with_grpo(cell, beta=0.1, num_iterations=2), rows, last=6)
    assert (usage["updates"], usage["kl_only_updates"]) == (6, 4)
    assert of(with_grpo(cell, beta=0.1), rows, last=4)["updates"] == 5


def test_prompt_tokens_are_unknown_without_the_trainers_count(cell: Cell) -> None:
    assert of(cell, [group(1, "a", ["correct"] * 2)], last=1)["prompt_tokens"] == 0

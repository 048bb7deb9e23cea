"""Policies that choose the same prompts: one cell is trained for all of them."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from factories import finished_cell, small_plan

from orchestrator.difficulty.remedies import FORM, pool_warning
from orchestrator.difficulty.table import difficulty
from orchestrator.report.analysis import analyse
from orchestrator.report.render import terminal_report
from orchestrator.selection.stored import same_training, store_subset
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import copy_result_from


def unsolved(plan):
    """A difficulty table of the pool in which no prompt is ever solved."""
    rows = [
        {"prompt_id": prompt.prompt_id, "sample": sample, "outcome": "wrong"}
        for prompt in plan.pool(plan.cells[0].probe).train
        for sample in range(4)
    ]
    return difficulty(pa.Table.from_pylist(rows))


def test_cells_with_the_same_prompts_and_settings_are_one(tmp_path: Path) -> None:
    policies = ["hard", "middle", "random"]
    grid = {"model": ["stub"], "dataset": ["small"], "policy": policies, "seed": [0, 1]}
    plan = small_plan(tmp_path, grid=grid | {"grpo.learning_rate": [1e-4, 1e-3]})
    store, table = Store(str(tmp_path / "runs")), unsolved(plan)
    assert same_training(store, plan.cells) == {}, "nothing is selected yet"
    for cell in plan.cells:
        store_subset(store, cell, table)
    same = same_training(store, plan.cells)
    pairs = {
        (c.policy, c.seed, c.grpo["learning_rate"]): same[c.cell_id]
        for c in plan.cells
        if c.cell_id in same
    }
    # random, whose luck is another one, chooses other prompts
    assert pairs.keys() == {("middle", s, rate) for s in (0, 1) for rate in (1e-4, 1e-3)}
    for (_, seed, rate), other in pairs.items():
        assert (other.policy, other.seed, other.grpo["learning_rate"]) == ("hard", seed, rate)


def test_a_cell_is_finished_with_the_files_of_another(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    store, [hard, random] = Store(str(tmp_path / "runs")), plan.cells
    assert not copy_result_from(store, random, hard), "the other is not finished"
    finished_cell(store, plan, hard)
    assert copy_result_from(store, random, hard)
    own, other = (CellFolder(store, c.cell_id).finished() for c in (random, hard))
    assert own and other and own.tables == other.tables
    assert own.result.same_as == hard.cell_id and own.result.policy == "random"
    assert not any(each.problem for each in CellFolder(store, random.cell_id).check())
    text = terminal_report(analyse(plan, store))
    assert re.search(r"hard and random .* seed 0: trained once", text)


def test_policies_with_the_same_prompts_count_once_in_holms_correction(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["hard", "middle", "random"], seeds=[0, 1])
    store = Store(str(tmp_path / "runs"))
    by_name = {(cell.policy, cell.seed): cell for cell in plan.cells}
    for policy, seed in by_name:
        if policy != "middle":
            finished_cell(store, plan, by_name[policy, seed])
    assert copy_result_from(store, by_name["middle", 0], by_name["hard", 0])
    finished_cell(store, plan, by_name["middle", 1])
    [family] = analyse(plan, store).families
    assert len(family.accuracy) == 3 and not family.copies, "one seed differs"
    store.delete_folder("cells", by_name["middle", 1].cell_id)
    assert copy_result_from(store, by_name["middle", 1], by_name["hard", 1])
    [family] = analyse(plan, store).families
    assert [(c.a, c.b) for c in family.accuracy] == [("hard", "random")]
    assert family.copies == {"middle": "hard"}


@pytest.mark.parametrize(
    ("successes", "samples", "size", "words"),
    [
        ([0, 0, 0, 4, 1], 4, 2, "only 1 of 5 .* 2: .*stronger"),
        ([4, 4, 4, 0, 1], 4, 2, "only 1 of 5 .*harder"),
        ([0, 0, 2, 1, 1], 4, 3, ""),
        ([0, 0, 2, 1, 1], 4, 4, "only 3 of 5"),
        ([0, 0, 2, 1, 1], 4, 5, ""),  # the whole pool
        ([0, 0, 0, 4, 0], 4, 5, r"only 0 of 5 .*\): .*stronger"),
        ([0, 0, 0, 4, 0], 4, 1, r"only 0 of 5 .*\): .*stronger"),
        ([0, 1, 1, 0, 1], 1, 2, ""),  # one sample does not show which are solved sometimes
        ([0, 0, 0, 0, 0], 1, 2, "only 0 of 5 .*stronger"),
        ([1, 1, 1, 1, 1], 1, 2, "only 0 of 5 .*harder"),
    ],
)
def test_a_pool_that_can_hardly_teach_anything(
    successes: list[int], samples: int, size: int, words: str
) -> None:
    outcomes = {"correct": sum(successes), "wrong": 5 * samples - sum(successes)}
    text = pool_warning(np.array(successes), np.full(5, samples), size, outcomes)
    assert re.match(words, text) if words else text == ""


@pytest.mark.parametrize(
    ("outcomes", "reads", "limits"),
    [
        ({"wrong": 20}, False, False),
        ({"unparsed": 20}, True, False),
        ({"truncated": 20}, False, True),
        ({"correct": 1, "wrong": 1, "unparsed": 7, "truncated": 11}, True, True),
        ({"wrong": 11, "unparsed": 9}, False, False),
        ({"correct": 15, "unparsed": 5}, True, False),
    ],
)
def test_the_outcomes_decide_the_advice(
    outcomes: dict[str, int], reads: bool, limits: bool
) -> None:
    """Whether or not prompts are solved sometimes: a hard subset is of what was not read."""
    for successes in (np.zeros(5, dtype=int), np.full(5, 2)):
        text = pool_warning(successes, np.full(5, 4), 3, outcomes, "limit (9)")
        assert (FORM in text) == reads and ("limit (9)" in text) == limits
        assert not (reads or limits) or "model" not in text

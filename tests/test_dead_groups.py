"""Updates without live groups: the explanation, and advice that applies to the cell."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from factories import small_plan

from orchestrator.config.entries import PolicyEntry
from orchestrator.difficulty.table import difficulty
from orchestrator.evaluation.groups import Tally, explain_dead_groups
from orchestrator.pipeline.probes import OtherSubsets
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import Cell
from orchestrator.selection.stored import store_subset
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    """A cell of policy random, with groups of 4."""
    [cell] = small_plan(tmp_path_factory.mktemp("plan"), policies=["random"]).cells
    return cell


def tally(
    *, live: int = 0, right: int = 0, wrong: int = 0, cut: int = 0, unmarked: int = 0
) -> Tally:
    """So many groups of each kind; `cut` groups are all wrong, too."""
    return Tally(
        groups=live + right + wrong + cut + unmarked,
        live=live,
        all_right=right,
        all_wrong=wrong + cut,
        all_wrong_truncated=cut,
        unmarked=unmarked,
    )


def explained(cell: Cell, **counts: int) -> str | None:
    """The explanation where any other policy would choose easier, or harder, prompts as needed."""
    too_hard = counts.get("wrong", 0) + counts.get("cut", 0) > counts.get("right", 0)
    change = 0.1 if too_hard else -0.1
    return explain_dead_groups(cell, tally(**counts), lambda policy: change, lambda: 0.5)


@pytest.mark.parametrize(
    ("counts", "explanation"),
    [
        (
            {"wrong": 2, "cut": 5, "live": 1},
            "7 of 8 groups all wrong, 5 of them truncated: raise grpo.max_completion_length (256)",
        ),
        (
            {"wrong": 5, "cut": 2, "right": 1},
            "7 of 8 groups all wrong, 2 of them truncated, 1 all correct: "
            "use policy middle or easy, or raise grpo.num_generations (4)",
        ),
        (
            {"right": 4},
            "4 of 4 groups all correct: "
            "use policy middle or hard, or raise grpo.num_generations (4)",
        ),
        (
            {"right": 3, "cut": 2},
            "3 of 5 groups all correct, 2 all wrong, 2 of them truncated: "
            "use policy middle or hard, or raise grpo.num_generations (4)",
        ),
        (
            {"right": 1, "unmarked": 2},
            "2 of 3 groups unmarked, 1 all correct: the marker fails, run decile doctor",
        ),
        ({"live": 1, "wrong": 6}, None),
        (
            {"live": 3, "wrong": 21},
            "21 of 24 groups all wrong: "
            "use policy middle or easy, or raise grpo.num_generations (4)",
        ),
        ({}, None),
    ],
)
def test_updates_without_live_groups_are_explained(
    cell: Cell, counts: dict[str, int], explanation: str | None
) -> None:
    assert explained(cell, **counts) == explanation


@pytest.mark.parametrize(
    ("policy", "too_easy", "too_hard"),
    [
        ("easy", "use policy middle or hard, or ", ""),
        ("middle", "use policy hard, or ", "use policy easy, or "),
        ("learnable", "use policy hard, or ", "use policy easy, or "),
        ("hard", "", "use policy middle or easy, or "),
        ("base_wrong", "", "use policy middle or easy, or "),
        ("full", "use policy middle or hard, or ", "use policy middle or easy, or "),
        ("tiers", "choose harder tiers, or ", "choose easier tiers, or "),
        ("my.own:policy", "use policy middle or hard, or ", "use policy middle or easy, or "),
    ],
)
def test_advice_never_suggests_the_cells_own_policy(
    cell: Cell, policy: str, too_easy: str, too_hard: str
) -> None:
    cell = cell.model_copy(update={"rule": PolicyEntry.model_construct(policy=policy)})
    more = "raise grpo.num_generations (4)"
    assert explained(cell, right=8) == f"8 of 8 groups all correct: {too_easy}{more}"
    assert explained(cell, wrong=8) == f"8 of 8 groups all wrong: {too_hard}{more}"


@pytest.mark.parametrize("policy", ["easy", "middle", "hard", "full", "tiers", "band", "my.own:p"])
def test_other_prompts_are_advised_only_where_they_are_easier_or_harder(
    cell: Cell, policy: str
) -> None:
    cell = cell.model_copy(update={"rule": PolicyEntry.model_construct(policy=policy)})
    for counts, wrong_direction in (({"wrong": 8}, -0.1), ({"right": 8}, 0.1)):
        for change in (0.0, wrong_direction):
            text = explain_dead_groups(
                cell, tally(**counts), lambda _, change=change: change, lambda: 0.5
            )
            assert text is not None and text.endswith(": raise grpo.num_generations (4)")


def test_only_the_policies_that_change_something_are_named(cell: Cell) -> None:
    changes = {"hard": -0.2, "middle": 0.0}
    text = explain_dead_groups(cell, tally(right=8), changes.__getitem__, lambda: 0.5)
    assert text == "8 of 8 groups all correct: use policy hard, or raise grpo.num_generations (4)"


@pytest.mark.parametrize(
    ("counts", "rate", "advice"),
    [
        ({"wrong": 8}, 0.0, "use a stronger model or easier data (the probe solved none"),
        ({"right": 8}, 1.0, "use harder data (the probe solved each"),
        ({"wrong": 8}, 1.0, "raise grpo.num_generations (4)"),
        ({"wrong": 8}, 0.1, "raise grpo.num_generations (4)"),
        ({"wrong": 8}, float("nan"), "raise grpo.num_generations (4)"),
    ],
)
def test_larger_groups_are_advised_only_where_the_probe_solved_some_samples(
    cell: Cell, counts: dict[str, int], rate: float, advice: str
) -> None:
    text = explain_dead_groups(cell, tally(**counts), lambda _: 0.0, lambda: rate)
    assert text is not None and text.partition(": ")[2].startswith(advice)


@pytest.mark.parametrize(
    ("reward", "dead"),
    [
        ({"random": 1.0}, False),
        ({"score": 1.0, "format": 0.1}, False),
        ({"flipped": 1.0}, True),
        ({"score": 2.0}, True),
    ],
)
def test_groups_of_a_reward_that_varies_without_the_score_are_not_dead(
    cell: Cell, reward: dict[str, float], dead: bool
) -> None:
    cell = cell.model_copy(update={"reward": reward})
    assert (explained(cell, wrong=8) is not None) == dead


@pytest.mark.parametrize(
    ("options", "easier", "harder"),
    [
        ({}, "choose from an easier subset", "start with first: hard"),
        ({"first": "easy"}, "choose from an easier subset", "start with first: hard"),
        ({"first": "hard"}, "start with first: easy", "choose from a harder subset"),
    ],
)
def test_a_curriculum_is_not_told_to_start_where_it_starts(
    cell: Cell, options: dict[str, str], easier: str, harder: str
) -> None:
    online = PolicyEntry.model_construct(policy="curriculum", options=options)
    cell = cell.model_copy(update={"online": online})
    assert f": {easier}, or " in str(explained(cell, wrong=4))
    assert f": {harder}, or " in str(explained(cell, right=4))


def explanations(folder: Path, right: Callable[[int], int], **settings: Any) -> list[str]:
    """Why an update whose groups are all wrong taught nothing, for each cell.

    Of each prompt's four samples in the probe, `right` are correct.
    """
    plan, store = small_plan(folder, **settings), Store(str(folder / "runs"))
    spec = plan.cells[0].probe
    rows = [
        dict.fromkeys(SAMPLES.names)
        | {"prompt_id": prompt.prompt_id, "tier": "", "sample": i}
        | {"outcome": "correct" if i < right(number) else "wrong"}
        for number, prompt in enumerate(plan.pool(spec).train)
        for i in range(4)
    ]
    tables: Any = SimpleNamespace(of=lambda _: table)
    table = difficulty(pa.Table.from_pylist(rows, schema=SAMPLES))
    others = OtherSubsets(Run.of(plan, store), [(spec, tables)])
    for cell in plan.cells:
        store_subset(store, cell, table)
    report = {"update": 1, "metrics": {}, "explanation": "", "groups": tally(wrong=2)._asdict()}
    return [others.explained(cell, report)["explanation"] for cell in plan.cells]


def test_a_policy_that_would_choose_the_same_prompts_is_not_advised(tmp_path: Path) -> None:
    more = "raise grpo.num_generations (4)"
    none = "use a stronger model or easier data (the probe solved none of the prompts)"
    never = explanations(tmp_path / "never", lambda _: 0)
    assert never == [f"2 of 2 groups all wrong: {none}"] * 2
    # middle: always solved, also dead
    hard, random = explanations(tmp_path / "always", lambda number: 4 * (number % 4 > 0))
    assert hard == f"2 of 2 groups all wrong: {none}"
    assert random == f"2 of 2 groups all wrong: {more}"
    some = explanations(tmp_path / "some", lambda number: max(1, number % 5))
    assert some == [f"2 of 2 groups all wrong: use policy middle, or {more}"] * 2


def test_a_cell_of_the_whole_pool_is_compared_with_subsets_of_the_budget(tmp_path: Path) -> None:
    [text] = explanations(tmp_path, lambda number: 2 * (number > 10), policies=["full"])
    assert text.startswith("2 of 2 groups all wrong: use policy middle or easy, or ")


def test_other_reports_stay_as_they_are(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    others = OtherSubsets(Run.of(plan, Store(str(tmp_path / "runs"))), [])
    for report in ({"update": 1}, {"groups": tally(wrong=8)._asdict(), "explanation": "resumed"}):
        assert others.explained(plan.cells[0], report) == report

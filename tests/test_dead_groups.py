"""Updates without live groups: the explanation, and advice that applies to the cell."""

import pytest
from factories import small_plan

from orchestrator.config.entries import PolicyEntry
from orchestrator.evaluation.groups import Tally
from orchestrator.planning.cells import Cell
from orchestrator.training.dead_groups import explain_dead_groups


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
            "use policy middle, or raise grpo.num_generations (4)",
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
            "21 of 24 groups all wrong: use policy middle, or raise grpo.num_generations (4)",
        ),
        ({}, None),
    ],
)
def test_updates_without_live_groups_are_explained(
    cell: Cell, counts: dict[str, int], explanation: str | None
) -> None:
    assert explain_dead_groups(cell, tally(**counts)) == explanation


@pytest.mark.parametrize(
    ("policy", "too_easy", "too_hard"),
    [
        ("easy", "use policy middle or hard, or ", ""),
        ("middle", "use policy hard, or ", ""),
        ("learnable", "use policy hard, or ", ""),
        ("hard", "", "use policy middle, or "),
        ("base_wrong", "", "use policy middle, or "),
        ("full", "use policy middle or hard, or ", "use policy middle, or "),
        ("tiers", "choose harder tiers, or ", "choose easier tiers, or "),
        ("my.own:policy", "use policy middle or hard, or ", "use policy middle, or "),
    ],
)
def test_advice_never_suggests_the_cells_own_policy(
    cell: Cell, policy: str, too_easy: str, too_hard: str
) -> None:
    cell = cell.model_copy(update={"rule": PolicyEntry.model_construct(policy=policy)})
    more = "raise grpo.num_generations (4)"
    assert (
        explain_dead_groups(cell, tally(right=8)) == f"8 of 8 groups all correct: {too_easy}{more}"
    )
    assert explain_dead_groups(cell, tally(wrong=8)) == f"8 of 8 groups all wrong: {too_hard}{more}"


@pytest.mark.parametrize(
    ("temperature", "counts", "advice"),
    [
        (0.5, {"right": 1}, "raise grpo.temperature (0.5)"),
        (1.5, {"wrong": 1}, "lower grpo.temperature (1.5)"),
        (1.5, {"right": 1}, None),
        (0.5, {"wrong": 1}, None),
    ],
)
def test_a_temperature_that_makes_groups_alike_is_named(
    cell: Cell, temperature: float, counts: dict[str, int], advice: str | None
) -> None:
    cell = cell.model_copy(update={"grpo": cell.grpo | {"temperature": temperature}})
    explanation = explain_dead_groups(cell, tally(**counts)) or ""
    assert (advice in explanation) if advice else ("temperature" not in explanation)

"""Updates without live groups: the explanation, and advice that applies to the cell."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from factories import small_plan

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.difficulty.remedies import FORM
from orchestrator.difficulty.table import difficulty
from orchestrator.evaluation.groups import Tally, explain_dead_groups, total
from orchestrator.evaluation.groups import tally as group_tally
from orchestrator.evaluation.liveness import correctness
from orchestrator.pipeline.probes import OtherSubsets
from orchestrator.planning.cells import Cell
from orchestrator.selection.stored import store_subset
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from policies import History, OnlinePolicy, ScorePolicy, find_policy, policy_names


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    """A cell of policy random, with groups of 4."""
    [cell] = small_plan(tmp_path_factory.mktemp("plan"), policies=["random"]).cells
    return cell


KINDS = {
    "live": ["correct", "wrong"],
    "right": ["correct"] * 2,
    "wrong": ["wrong"] * 2,
    "cut": ["truncated"] * 2,
    "unread": ["unparsed"] * 2,
    "unmarked": ["error"] * 2,
}


def tally(**counts: int) -> Tally:
    """So many groups of two completions of each of KINDS."""
    return total(
        group_tally(
            {
                "rewards": correctness(KINDS[kind]),
                "outcomes": KINDS[kind],
                "other_outcomes": KINDS[kind],
                "tokens": [1, 1],
            }
        )
        for kind, number in counts.items()
        for _ in range(number)
    )


FAILED = ("wrong", "cut", "unread")


def explained(cell: Cell, **counts: int) -> str | None:
    """The explanation where any other policy would choose easier, or harder, prompts as needed."""
    too_hard = counts.get("right", 0) < sum(counts.get(kind, 0) for kind in FAILED)
    change = 0.1 if too_hard else -0.1
    return explain_dead_groups(cell, tally(**counts), lambda policy: change, lambda: 0.5)


@pytest.mark.parametrize(
    ("counts", "groups", "advice"),
    [
        (
            {"wrong": 2, "cut": 5, "live": 1},
            "7 of 8 groups all wrong (10 truncated of 15 failed completions)",
            r"grpo.max_completion_length \(256\)$",
        ),
        (
            {"wrong": 5, "cut": 2, "right": 1},
            "7 of 8 groups all wrong (4 truncated of 14 failed completions), 1 all correct",
            r"middle or easy, .*\(4\)$",
        ),
        ({"right": 4}, "4 of 4 groups all correct", r"middle or hard, .*\(4\)$"),
        (
            {"right": 3, "cut": 2},
            "3 of 5 groups all correct, 2 all wrong (4 truncated of 4 failed completions)",
            r"middle or hard, .*\(4\)$",
        ),
        ({"right": 1, "unmarked": 2}, "2 of 3 groups unmarked, 1 all correct", "decile doctor"),
        ({"live": 3, "wrong": 21}, "21 of 24 groups all wrong", r"middle or easy, .*\(4\)$"),
    ],
)
def test_updates_without_live_groups_are_explained(
    cell: Cell, counts: dict[str, int], groups: str, advice: str
) -> None:
    tallied, _, text = str(explained(cell, **counts)).partition(": ")
    assert tallied == groups
    assert re.search(advice, text)


def test_updates_with_live_groups_need_no_explanation(cell: Cell) -> None:
    assert explained(cell, live=1, wrong=6) is None and explained(cell) is None


class Sliding(OnlinePolicy):
    """A policy of a user that inherits the advice."""

    def next(self, update: int, history: History) -> pa.Array:
        return history.ids(np.arange(history.size))


class Handpicked(ScorePolicy):
    """A policy of a user that says which of its options to change."""

    easier = "lower the grade"

    def score(self, difficulty: pa.Table) -> np.ndarray:
        return np.zeros(difficulty.num_rows)


def last_rows(difficulty: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
    """A policy of a user that is a function."""
    return np.arange(size)


def with_policy(cell: Cell, policy: str, options: dict[str, Any] | None = None) -> Cell:
    entry = PolicyEntry.model_construct(policy=policy, options=options or {})
    rule, online = entry.parts
    return cell.model_copy(update={"static_policy": rule, "online": online})


OPTIONS: dict[str, dict[str, Any]] = {
    "band": {"low": 0.1, "high": 0.9},
    "agreement_band": {"low": 0.1, "high": 0.9},
    "tiers": {"levels": [1]},
    "mixture": {"shares": {"hard": 0.5, "random": 0.5}},
}
OWN = [f"{__name__}:{name}" for name in ("Sliding", "Handpicked", "last_rows")]
MORE = "grpo.num_generations (4)"


@pytest.mark.parametrize("policy", [*policy_names(), *OWN])
def test_every_policy_is_told_what_moves_it(cell: Cell, policy: str) -> None:
    """An online policy, or one with options that decide, is not told to be replaced."""
    cell = with_policy(cell, policy, OPTIONS.get(policy))
    for counts, end, attribute in (
        ({"wrong": 8}, "easy", "easier"),
        ({"right": 8}, "hard", "harder"),
    ):
        change = getattr(find_policy(policy), attribute, "")
        if policy == "curriculum" and end == "hard":
            change = "first: hard"
        elif cell.online or policy in ("band", "tiers", "agreement_band"):
            assert change
        text = str(explained(cell, **counts)).partition(": ")[2]
        assert f"{change or f'middle or {end}'}, or " in text and text.endswith(MORE)


@pytest.mark.parametrize("policy", ["easy", "middle", "hard", "full", "tiers", "band", *OWN])
def test_other_prompts_are_advised_only_where_they_are_easier_or_harder(
    cell: Cell, policy: str
) -> None:
    cell = with_policy(cell, policy, OPTIONS.get(policy))
    for counts, wrong_direction in (({"wrong": 8}, -0.1), ({"right": 8}, 0.1)):
        for change in (0.0, wrong_direction):
            text = explain_dead_groups(
                cell, tally(**counts), lambda _, change=change: change, lambda: 0.5
            )
            assert text is not None and text.endswith(MORE) and ", or " not in text


@pytest.mark.parametrize(
    ("counts", "read", "limit"),
    [
        ({"unread": 8}, True, False),
        ({"unread": 3, "cut": 5}, True, True),
        ({"cut": 8}, False, True),
        ({"unread": 1, "wrong": 7}, False, False),
    ],
)
def test_answers_that_are_not_read_come_before_prompts_and_models(
    cell: Cell, counts: dict[str, int], read: bool, limit: bool
) -> None:
    """The probe solved nothing: without the outcomes, a stronger model would be advised."""
    text = explain_dead_groups(cell, tally(**counts), lambda _: 0.1, lambda: 0.0)
    assert text is not None
    assert (FORM in text) == read
    assert ("grpo.max_completion_length" in text) == limit
    assert ("model" in text) == (not read and not limit)


@pytest.mark.parametrize(
    ("counts", "rate", "advice"),
    [
        ({"wrong": 8}, 0.0, "easier data"),
        ({"right": 8}, 1.0, "harder data"),
        ({"wrong": 8}, 1.0, MORE),
        ({"wrong": 8}, 0.1, MORE),
        ({"wrong": 8}, float("nan"), MORE),
    ],
)
def test_larger_groups_are_advised_only_where_the_probe_solved_some_samples(
    cell: Cell, counts: dict[str, int], rate: float, advice: str
) -> None:
    text = explain_dead_groups(cell, tally(**counts), lambda _: 0.0, lambda: rate)
    assert text is not None
    assert [each for each in ("easier data", "harder data", MORE) if each in text] == [advice]


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
        ({}, "easier subset", "first: hard"),
        ({"first": "easy"}, "easier subset", "first: hard"),
        ({"first": "hard"}, "first: easy", "harder subset"),
    ],
)
def test_a_curriculum_is_not_told_to_start_where_it_starts(
    cell: Cell, options: dict[str, str], easier: str, harder: str
) -> None:
    cell = with_policy(cell, "curriculum", options)
    assert f"{easier}, or " in str(explained(cell, wrong=4))
    assert f"{harder}, or " in str(explained(cell, right=4))


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
    tables: Any = SimpleNamespace(of=lambda _: table, own_table=lambda _: None)
    table = difficulty(pa.Table.from_pylist(rows, schema=SAMPLES))
    others = OtherSubsets(plan, store, [(spec, tables)])
    for cell in plan.cells:
        store_subset(store, cell, table)
    report = {"update": 1, "metrics": {}, "explanation": "", "groups": tally(wrong=2)._asdict()}
    return [others.with_explanation(cell, report)["explanation"] for cell in plan.cells]


def test_a_policy_that_would_choose_the_same_prompts_is_not_advised(tmp_path: Path) -> None:
    def advised(name: str, correct: Callable[[int], int]) -> list[list[str]]:
        known = ("easier data", "middle", "easy", MORE)
        texts = explanations(tmp_path / name, correct)
        assert all(text.startswith("2 of 2 groups all wrong: ") for text in texts)
        return [[each for each in known if each in text] for text in texts]

    assert advised("never", lambda _: 0) == [["easier data"]] * 2
    # middle: always solved, also dead
    assert advised("always", lambda number: 4 * (number % 4 > 0)) == [["easier data"], [MORE]]
    assert advised("some", lambda number: max(1, number % 5)) == [["middle", MORE]] * 2


def test_a_cell_of_the_whole_pool_is_compared_with_subsets_of_the_budget(tmp_path: Path) -> None:
    [text] = explanations(tmp_path, lambda number: 2 * (number > 10), policies=["full"])
    assert text.startswith("2 of 2 groups all wrong: use policy middle or easy, or ")


def test_other_reports_stay_as_they_are(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    others = OtherSubsets(plan, Store(str(tmp_path / "runs")), [])
    for report in ({"update": 1}, {"groups": tally(wrong=8)._asdict(), "explanation": "resumed"}):
        assert others.with_explanation(plan.cells[0], report) == report

"""Labels: how many gold answers selection and training use, and comparisons at equal labels."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from difficulty_tables import rates_table, selected_rows
from factories import finished_sweep, group_row, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import refused

from orchestrator.cli.plan_summary import plan_summary
from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.report.analysis import SweepAnalysis, analyse, cell_table
from orchestrator.report.compare import families
from orchestrator.report.fairness import cost_curve
from orchestrator.report.render import terminal_report
from orchestrator.report.rows import Row, read_rows
from orchestrator.report.sections.page import over_labels, sweep_page
from orchestrator.report.sections.verdicts import family_verdict
from orchestrator.selection.subsets import SubsetRequest, policy_entry, select
from orchestrator.storage.schema import GROUPS, LOG
from orchestrator.storage.store import Store
from orchestrator.tracking.views import read_view
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import ledger
from policies import Policy, PolicyError, get_policy

GRID: dict[str, list[Any]] = {
    "model": ["stub"],
    "dataset": ["small"],
    "policy": ["hard", "random"],
}
GOLD_FREE = f"{__name__}:shortest"
SEEN: list[pa.Table] = []  # what `spy` was given


def spy(table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
    """A policy of a user's own that remembers its table."""
    SEEN.append(table)
    return np.arange(size)


def shortest(table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
    """A policy of a user's own that needs samples and reads no gold answer."""
    return np.arange(size)


shortest.reads_golds = False  # type: ignore[attr-defined]


def majority(completions: list[Any]) -> list[float]:
    """A reward of a user's own that is given no gold answer."""
    return [float(len(completion) % 2) for completion in completions]


def graded(completions: list[Any], answer: list[str]) -> list[float]:
    """One that is."""
    return [float(text in str(each)) for text, each in zip(answer, completions, strict=True)]


def declared(completions: list[Any], **columns: Any) -> list[float]:
    """One that says that it reads none of what it is given."""
    return [1.0 for _ in completions]


declared.reads_golds = False  # type: ignore[attr-defined]


def any_columns(completions: list[Any], **columns: Any) -> list[float]:
    """One that may be."""
    return [0.0 for _ in completions]


# --- the option ---


def drawn_ids(rates: Sequence[float | None], seed: int, **options: Any) -> list[str]:
    """The prompts whose gold answers a policy of this seed is shown."""
    SEEN.clear()
    selected_rows(rates_table([*rates]), f"{__name__}:spy", 1, seed, **options)
    [table] = SEEN
    return [*table["prompt_id"].to_pylist()]


@settings(max_examples=60)
@given(
    rates=st.lists(st.sampled_from([0.0, 0.25, 1.0, None]), min_size=6, max_size=60),
    share=st.floats(0.2, 1.0),
    seed=st.integers(0, 99),
    policy=st.sampled_from(["hard", "easy", "middle", "random"]),
)
def test_exactly_so_many_prompts_are_drawn_and_the_subset_is_among_them(
    rates: list[float | None], share: float, seed: int, policy: str
) -> None:
    table, labels = rates_table(rates), max(1, int(share * len(rates)))
    drawn = drawn_ids(rates, seed, labels=labels)
    assert len({*drawn}) == labels
    assert drawn == drawn_ids(rates, seed, labels=labels)
    size = max(1, labels // 2)
    chosen = selected_rows(table, policy, size, seed, labels=labels)
    ids = table["prompt_id"].to_pylist()
    assert {ids[row] for row in chosen} <= {*drawn} and len({*chosen}) == size
    # What is not drawn decides nothing.
    rng = np.random.default_rng(seed)
    others = [r if i in drawn else rng.random() for i, r in zip(ids, rates, strict=True)]
    assert selected_rows(rates_table(others), policy, size, seed, labels=labels) == chosen
    best = selected_rows(table.filter(pa.array([i in drawn for i in ids])), policy, size)
    if policy in ("hard", "easy"):
        kept = [i for i in ids if i in drawn]
        known = dict(zip(ids, rates, strict=True))
        assert sorted(str(rates[row]) for row in chosen) == sorted(
            str(known[kept[b]]) for b in best
        )


def test_seeds_draw_other_prompts_and_policies_of_one_seed_the_same() -> None:
    rates: list[float | None] = [0.5] * 40
    draws = [frozenset(drawn_ids(rates, seed, labels=10)) for seed in range(30)]
    assert len({*draws}) == 30
    counts = np.bincount([int(i[1:]) for draw in draws for i in draw], minlength=40)
    assert counts.min() > 0 and counts.max() < 25  # each prompt with the probability 1/4
    policy = Policy("spy", get_policy(f"{__name__}:spy", labels=10))
    for seed in range(3):  # which it does not remember
        SEEN.clear()
        policy(rates_table(rates), 1, np.random.default_rng(seed))
        assert {*SEEN[0]["prompt_id"].to_pylist()} == draws[seed]
    table = rates_table([i / 40 for i in range(40)])
    hard, easy = (selected_rows(table, p, 5, 3, labels=10) for p in ("hard", "easy"))
    assert {*hard} | {*easy} == {int(i[1:]) for i in drawn_ids([0.5] * 40, 3, labels=10)}


@pytest.mark.parametrize("policy", ["hard", "middle", "random", "hardest_nonzero"])
@pytest.mark.parametrize("labels", [40, 1.0])
def test_with_all_labels_ties_are_broken_as_without_the_option(policy: str, labels: float) -> None:
    table = rates_table([0.25, 0.5] * 20)
    for seed in range(5):
        alone = selected_rows(table, policy, 9, seed)
        assert selected_rows(table, policy, 9, seed, labels=labels) == alone


def test_ties_and_shortages_are_those_of_the_prompts_that_were_drawn() -> None:
    request = SubsetRequest(policy_entry("hard", {"labels": 20}), 8, seed=1)
    subset, why = select(rates_table([0.0] * 40), request)
    assert why["ties"] == {"pool": 20, "chosen": 8}
    assert all(subset["tied"].to_pylist())
    assert why["options"] == {"labels": 20}
    with refused("band has ", "labels: 10", by=PolicyError):
        selected_rows(rates_table([0.5] + [1.0] * 39), "band", 2, low=0, high=0.6, labels=10)


def test_labels_are_drawn_from_what_columns_leave_and_strata_select_among_them() -> None:
    table = rates_table([0.0, 1.0] * 20)
    table = table.append_column("source", pa.array(["a"] * 20 + ["b"] * 20))
    for seed in range(4):
        own = selected_rows(table, "hard", 10, seed, labels=20, where={"source": "b"})
        assert sorted(own) == list(range(20, 40, 2))
        both = selected_rows(table, "random", 8, seed, labels=16, within={"source": "equal"})
        assert sum(row < 20 for row in both) == 4
        # Pass rates are known of what was drawn only.
        failed = {"pass_rate": "0"}
        solved = selected_rows(table, "random", 2, seed, labels=20, exclude=failed)
        assert all(row % 2 for row in solved)
        with refused("labels: 20", by=PolicyError):
            selected_rows(table, "random", 20, seed, labels=20, exclude=failed)
    with refused("labels: 21", "20 prompts", by=PolicyError):
        selected_rows(table, "hard", 10, labels=21, where={"source": "b"})
    some = table.append_column("labelled", pa.array([True] * 8 + [False] * 32))
    assert {*selected_rows(some, "random", 4, labels=0.5)} < {*range(8)}
    assert Policy("hard", get_policy("hard", labels=0.5)).label_count(8) == 4


@pytest.mark.parametrize("labels", [0, -1, 1.5, 0.0, True, "160", [4]])
def test_a_number_of_labels_is_a_count_or_a_share(labels: Any) -> None:
    with refused("hard: labels", by=PolicyError):
        get_policy("hard", labels=labels)


def test_labels_that_cannot_be_used_are_refused() -> None:
    with refused("full", "labels", by=PolicyError):
        get_policy("full", labels=4)
    with refused("mixture: labels of hard", by=PolicyError):
        get_policy("mixture", shares={"hard": {"share": 0.5, "labels": 4}, "random": 0.5})
    with refused("labels: 4", "5 prompts", "labels: 5", by=PolicyError):
        selected_rows(rates_table([0.5] * 9), "hard", 5, labels=4)
    get_policy("mixture", shares={"hard": 0.5, "random": 0.5}, labels=4)


# --- what a cell uses ---

RULES: dict[str, Any] = {
    "clean": {"policy": "random", "options": {"exclude": "unsolved"}},
    "tiered": {"policy": "random", "options": {"within": {"tier": "equal"}}},
    "banded": {"policy": "random", "options": {"within": "pass_rate"}},
    "half": {"policy": "mixture", "options": {"shares": {"hard": 0.5, "random": 0.5}}},
    "trusted": {
        "policy": "mixture",
        "options": {"shares": {"random": 0.5, GOLD_FREE: 0.5}, "exclude": "unsolved"},
    },
    "free": {"policy": GOLD_FREE},
    "free-half": {"policy": "mixture", "options": {"shares": {GOLD_FREE: 0.5, "random": 0.5}}},
    "free-tiered": {"policy": GOLD_FREE, "options": {"within": {"tier": "equal"}}},
    "few": {"policy": "hard", "options": {"labels": 16}},
    "share": {"policy": "hard", "options": {"labels": 0.5}},
    "random-few": {"policy": "random", "options": {"labels": 16}},
    "of-random": {"policy": "predicted", "options": {"of": "random"}},
    "of-few": {"policy": "dynamic", "options": {"of": {"hard": {"labels": 16}}}},
    "of-hard": {"policy": "dynamic", "options": {"of": "hard"}},
    "dynamic-random": {"policy": "dynamic", "options": {"of": "random"}},
    "gated": {"policy": "mopps", "options": {"gates": [{"gaussian": {}}]}},
    "rested": {"policy": "mopps", "options": {"gates": [{"rest": {"updates": 1}}]}},
}
USED: dict[str, tuple[int | None, int]] = {  # before the first update, and at most
    **{"hard": (40, 40), "random": (8, 8), "full": (40, 40), "clean": (40, 40)},
    **{"trusted": (40, 40), "tiered": (8, 8), "banded": (40, 40), "half": (40, 40), "free": (8, 8)},
    **{"free-half": (8, 8), "free-tiered": (8, 8), "few": (16, 16), "share": (20, 20)},
    **{"random-few": (16, 16), "predicted": (40, 40), "of-random": (8, 8)},
    # Four updates of two groups, each of which is drawn at most four times.
    **{"dynamic": (None, 32), "of-few": (16, 16), "of-hard": (40, 40)},
    **{"dynamic-random": (None, 8), "mopps": (None, 8), "gated": (40, 40), "rested": (None, 8)},
}


def cells_by_policy(folder: Path, policies: Sequence[str], **more: Any) -> dict[str, Cell]:
    rules = {name: rule for name, rule in RULES.items() if name in policies}
    plan = small_plan(folder, policies=policies, rules=rules, **more)
    return {cell.policy: cell for cell in plan.cells}


def test_what_a_policy_uses_depends_on_what_its_choice_reads(tmp_path: Path) -> None:
    cells = cells_by_policy(tmp_path, [*USED])
    assert {p: (c.labels_before(c.size), c.most_labels) for p, c in cells.items()} == USED


def test_refreshes_use_the_golds_of_their_prompts(tmp_path: Path) -> None:
    """Three of them, of four prompts each; those of a static subset are bought already."""
    refresh = {"every": 1, "samples": 2, "share": 0.1}
    cells = cells_by_policy(tmp_path, ["mopps", "random"], refresh=refresh)
    assert [cell.most_labels for cell in cells.values()] == [8 + 3 * 4, 8]


def test_sizes_that_others_decide_read_their_golds(tmp_path: Path) -> None:
    cells = cells_by_policy(tmp_path, ["random", "hard"], match_sizes=True)
    assert [cell.labels_before(8) for cell in cells.values()] == [40, 40]
    cells = cells_by_policy(tmp_path, ["random", "tiered"], match_sizes=True)
    assert [cell.labels_before(5) for cell in cells.values()] == [5, 5]


@pytest.mark.parametrize(
    ("reward", "used"),
    [
        ("random", 0),
        ("format", 0),
        ("flipped", 8),
        (f"{__name__}:majority", 0),
        (f"{__name__}:declared", 0),
        ({"random": 0.5, f"{__name__}:majority": 1.0}, 0),
        ({"score": 0.0, f"{__name__}:majority": 1.0}, 0),
        ({"score": 0.1, f"{__name__}:majority": 1.0}, 8),
        (f"{__name__}:graded", 8),
        (f"{__name__}:any_columns", 8),
    ],
)
def test_golds_count_unless_nothing_that_is_rewarded_needs_them(
    tmp_path: Path, reward: Any, used: int
) -> None:
    policies = ["random", "hard", "dynamic-random"]
    cells = cells_by_policy(tmp_path, policies, reward=reward)
    assert cells["random"].labels_before(8) == used
    assert cells["hard"].labels_before(8) == 40
    assert cells["dynamic-random"].labels_before(8) is None  # what it keeps depends on marks
    for setting in ({"mask_dead_groups": True}, {"allocation": "sqrt"}):
        masked = cells_by_policy(tmp_path, ["random"], reward=reward, **setting)
        assert masked["random"].labels_before(8) == 8


def test_the_number_of_golds_changes_no_id(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    assert plan.cells[0].gold_count == 40
    for cell in plan.cells:
        stored = {n: v for n, v in cell.model_dump(mode="json").items() if n != "golds"}
        before = Cell.model_validate_json(json.dumps(stored))
        assert (before.gold_count, before.cell_id) == (0, cell.cell_id)
        assert before.subset_key == cell.subset_key and before.treatment == cell.treatment


GROUPS_DRAWN = st.lists(st.tuples(st.integers(1, 4), st.sampled_from("abcdef")), max_size=12)


@settings(max_examples=60)
@given(kept=GROUPS_DRAWN, lost=GROUPS_DRAWN, again=GROUPS_DRAWN)
def test_a_cell_that_learns_as_it_goes_uses_each_prompt_once(
    learning: Cell, kept: list, lost: list, again: list
) -> None:
    parts = [
        [group_row(u, ["correct", "wrong"], prompt_id=i) for u, i in sorted(part)]
        for part in (kept, lost, again)
    ]
    recorder = GroupRecorder(*parts)
    everything = [*kept, *lost, *again]
    assert ledger(learning, 40, recorder, [], 1.0)["labels"] == len({i for _, i in everything})
    groups = pa.Table.from_pylist([row for part in parts for row in part], schema=GROUPS)
    curve = cost_curve("labels", 4, groups, LOG.empty_table(), 1.0)
    assert curve.tolist() == [len({i for u, i in everything if u <= n}) for n in range(5)]
    assert cost_curve("labels", 4, groups, LOG.empty_table(), 1.0, 7).tolist() == [0, 7, 7, 7, 7]


@pytest.fixture(scope="module")
def learning(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    """A cell whose policy knows nothing of its prompts before it draws them."""
    return cells_by_policy(tmp_path_factory.mktemp("learning"), ["dynamic"])["dynamic"]


# --- finished cells ---

POLICIES = ("hard", "easy", "random", "few", "random-few", "rested")
# The cells of the factory train on the first two prompts in every update.
LABELS = {"hard": 40, "easy": 40, "random": 8, "few": 16, "random-few": 16, "rested": 2}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Store]:
    rules = {name: RULES[name] for name in POLICIES if name in RULES}
    folder = tmp_path_factory.mktemp("sweep")
    more: dict[str, Any] = {"compare_at": "labels", "seeds": (0, 1)}
    return finished_sweep(folder, policies=POLICIES, rules=rules, **more)


@pytest.fixture(scope="module")
def analysis(sweep: tuple[Plan, Store]) -> SweepAnalysis:
    return analyse(*sweep)


def ledger_without_labels(*arguments: Any) -> dict[str, float]:
    """The ledger of an earlier version."""
    return {name: value for name, value in ledger(*arguments).items() if name != "labels"}


def test_labels_stand_beside_the_other_costs(
    sweep: tuple[Plan, Store], analysis: SweepAnalysis
) -> None:
    plan, store = sweep
    assert {row.cell.policy: row.labels for row in analysis.rows} == LABELS
    for row in analysis.rows:
        assert row.result.ledger.get("labels") == row.labels == row.costs["labels"][-1]
        folder = CellFolder(store, row.cell.cell_id).place
        assert store.read_json(folder, "ledger.json")["labels"] == row.labels
    table = cell_table(analysis.rows)
    assert dict(zip(*(table[n].to_pylist() for n in ("policy", "labels")), strict=True)) == LABELS
    sections = sweep_page(analysis).sections
    tables = {table.title: table for section in sections for table in section.tables}
    for name in ("Every cell", "Ledger"):
        column = tables[name].head.index("labels")
        shown = [int(line[column]) for line in tables[name].body]
        assert shown == [LABELS[row.cell.policy] for row in analysis.rows]
    assert "labels" in terminal_report(analysis).split("\n")[2].split()


def test_cells_of_earlier_versions_get_their_labels_without_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = ("hard", "random", "rested")
    monkeypatch.setattr("orchestrator.training.record.ledger", ledger_without_labels)
    plan, store = finished_sweep(tmp_path, policies=policies, rules={"rested": RULES["rested"]})
    rows = read_rows(store, plan.cells)
    used = {row.cell.policy: row.result.ledger.get("labels") for row in rows}
    assert used == {name: LABELS[name] for name in policies}
    for cell in plan.cells:
        stored = CellFolder(store, cell.cell_id).result()
        assert stored is not None and stored.ledger.get("labels") is None
        view = read_view(store, cell, plan.pool(cell.baseline).test)
        assert view.points[0]["ledger/labels"] == LABELS[cell.policy]


def only_pairs(family: Any) -> set[frozenset[str]]:
    return {frozenset((pair.a, pair.b)) for pair in family.accuracy}


def test_at_equal_labels_only_cells_that_used_as_many_are_compared(
    analysis: SweepAnalysis,
) -> None:
    [family] = analysis.families
    assert only_pairs(family) == {
        frozenset(("hard", "easy")),
        frozenset(("few", "random-few")),
    }
    assert {family.points[row.cell.cell_id].cost for row in family.rows} == {2, 8, 16, 40}
    verdict = family_verdict(family)
    assert verdict.read_at.startswith("accuracy at equal labels")
    assert "2 or 8 or 16 or 40" in verdict.read_at
    line = "hard and easy have used 40 labels, few and random-few 16, random 8, rested 2"
    assert any(line in text for text in verdict.caveats)
    assert line in terminal_report(analysis).replace("\n", " ")
    tables = {table.title: table for table in sweep_page(analysis).sections[1].tables}
    shown = tables["Accuracy at equal labels"]
    read = [
        (line[0], [p for p, text in zip(shown.head[1:], line[1:], strict=True) if text != "–"])
        for line in shown.body
    ]
    assert read == [
        ("stub on small, 2 labels", ["rested"]),
        ("stub on small, 8 labels", ["random"]),
        ("stub on small, 16 labels", ["few", "random-few"]),
        ("stub on small, 40 labels", ["hard", "easy"]),
    ]


def test_a_policy_with_the_prompts_of_another_is_compared_at_its_own_labels(
    analysis: SweepAnalysis,
) -> None:
    trained = {
        row.cell.seed: row.cell.cell_id for row in analysis.rows if row.cell.policy == "hard"
    }

    def pairs(*copies: str) -> set[frozenset[str]]:
        same = [
            replace(row, result=row.result.model_copy(update={"same_as": trained[row.cell.seed]}))
            if row.cell.policy in copies
            else row
            for row in analysis.rows
        ]
        [family] = families(same, "labels")
        return only_pairs(family)

    at_16, at_40 = frozenset(("few", "random-few")), frozenset(("hard", "easy"))
    assert pairs("few") == {at_16, at_40}
    assert pairs("few", "random-few") == {at_40}
    assert pairs("easy") == {at_16}


def with_labels_by_update(row: Row, labels: Sequence[float]) -> Row:
    return replace(row, costs={**row.costs, "labels": np.array([0.0, *labels])})


def test_a_cell_that_learns_as_it_goes_is_read_within_the_labels_of_the_others(
    analysis: SweepAnalysis,
) -> None:
    """Evaluated after updates 2 and 4."""
    of = {
        name: [row for row in analysis.rows if row.cell.policy == name]
        for name in ("random", "rested", "hard")
    }
    for used, update in (((3, 6, 9, 12), 2), ((3, 6, 7, 8), 4)):
        rows = [*of["random"], *of["hard"]]
        rows += [with_labels_by_update(row, used) for row in of["rested"]]
        [family] = families(rows, "labels")
        assert only_pairs(family) == {frozenset(("random", "rested"))}
        at = {row.cell.policy: family.points[row.cell.cell_id].update for row in rows}
        assert at == {"random": 4, "hard": 4, "rested": update}
    late = [*of["random"], *(with_labels_by_update(row, (3, 9, 9, 12)) for row in of["rested"])]
    [family] = families(late, "labels")
    assert not family.accuracy and "equal labels" in family_verdict(family).single
    # One seed of a policy does not stand for the others.
    one = [with_labels_by_update(row, (1, 2, 3, 9 - row.cell.seed)) for row in of["rested"]]
    [family] = families([*of["random"], *one], "labels")
    assert [family.points[row.cell.cell_id].update for row in one] == [2, 4]


def claimed(sweep: tuple[Plan, Store], text: str, **changes: Any) -> Any:
    """The result of a claim about the sweep."""
    plan, store = sweep
    more = {"compare_at": "labels", "claims": [text], **changes}
    rules = {name: RULES[name] for name in POLICIES if name in RULES}
    folder = Path(plan.source.file).parent
    again = small_plan(folder, policies=POLICIES, seeds=(0, 1), rules=rules, **more)
    [result] = analyse(again, store).claims
    return result


def test_claims_are_judged_at_equal_labels_only(sweep: tuple[Plan, Store]) -> None:
    judged = claimed(sweep, "hard > easy on small")
    assert judged.value != "–" and judged.interval
    unequal = claimed(sweep, "hard > random on small")
    assert (unequal.verdict, unequal.value) == ("inconclusive", "–")
    assert "hard has used 40 labels, random 8" in unequal.reason
    assert claimed(sweep, "few > random-few on small at 16 labels").value != "–"
    assert claimed(sweep, "random > base on small").value != "–"
    assert "8 to 40 labels" in claimed(sweep, "learnable hard > random").reason
    at_updates = claimed(sweep, "hard > random on small", compare_at="updates")
    assert at_updates.value != "–"


@pytest.mark.parametrize(
    ("claim", "values"),
    [
        ("hard > random on small at 8 labels", ("hard/s0 uses 40 labels", "at least 40")),
        ("hard > random on small at 40 labels", ("random/s0 uses at most 8 labels",)),
        ("rested > base on small at 1 labels", ("rested/s0 uses 2 labels", "at least 2")),
        ("hard > easy on small over labels", ("over labels",)),
    ],
)
def test_claims_that_no_cell_can_meet_are_refused(
    sweep: tuple[Plan, Store], claim: str, values: tuple[str, ...]
) -> None:
    with refused(claim, *values):
        claimed(sweep, claim)


def test_a_cell_beyond_the_labels_of_a_claim_has_no_number(sweep: tuple[Plan, Store]) -> None:
    """Which a plan cannot know where a policy learns as it goes."""
    reason = claimed(sweep, "rested = random on small at 8 labels within 5").reason
    assert "rested/s0 ends at 2 labels" in reason


def test_accuracy_over_labels_is_drawn_where_labels_differ(
    tmp_path: Path, analysis: SweepAnalysis
) -> None:
    assert "test_accuracy_over_labels_stub_on_small" in sweep_page(analysis).figures
    [figure] = over_labels(analysis.families, dict.fromkeys(POLICIES, ("#000000", "o")))
    [axes] = figure.draw().axes
    assert axes.get_xscale() == "log"  # from 2 to 40
    marks = sorted(float(line.get_xdata()[0]) for line, *_ in axes.containers)
    assert marks == pytest.approx(sorted(LABELS.values()), rel=0.1)
    assert len({*marks}) == len(LABELS)  # equal ones are side by side
    assert figure.svg.startswith("<svg")
    same = [row for row in analysis.rows if row.labels == 40]
    assert over_labels(families(same), {}) == []
    few = [row for row in analysis.rows if row.labels in (8, 16, 40)]
    styles = dict.fromkeys(POLICIES, ("#000000", "o"))
    [figure] = over_labels(families(few), styles)
    assert figure.draw().axes[0].get_xscale() == "linear"


def test_the_budgets_of_a_grid_share_one_figure(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, grid=GRID | {"budget": [8, 16]})
    found = analyse(plan, store)
    [figure] = over_labels(found.families, dict.fromkeys(["hard", "random"], ("#000000", "o")))
    [axes] = figure.draw().axes
    marks = sorted(float(line.get_xdata()[0]) for line, *_ in axes.containers)
    assert marks == pytest.approx([8, 16, 40, 40], rel=0.1)
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sum("budget" in name for name in names) == 2


# --- decile plan ---


def summary_of(plan: Plan, folder: Path) -> Any:
    run = Run.of(plan, Store(str(folder / "runs")), {"CPU": 2.0})
    return plan_summary(run, Site({"CPU": 2.0}))


def test_plan_says_what_each_policy_will_use(tmp_path: Path) -> None:
    policies = ["hard", "random", "few", "dynamic"]
    plan = small_plan(tmp_path, policies=policies, rules={"few": RULES["few"]})
    summary = summary_of(plan, tmp_path)
    used = {cell.policy: (cell.labels, cell.labels_at_most) for cell in summary.cells}
    assert used == {name: USED[name] for name in policies}
    assert "labels of small: hard 40, random 8, few 16, dynamic up to 32" in summary.text()
    assert not any("labels" in note for note in summary.notes)
    grid = GRID | {"budget": [8, 16], "grpo.beta": [0.0, 0.1]}
    lines = summary_of(small_plan(tmp_path, grid=grid), tmp_path).text().split("\n")
    assert [line for line in lines if line.startswith("labels of")] == [
        "labels of small, budget 8: hard 40, random 8",
        "labels of small, budget 16: hard 40, random 16",
    ]


def test_plan_names_policies_that_are_not_comparable_at_equal_labels(tmp_path: Path) -> None:
    policies = ["hard", "easy", "random", "dynamic"]
    plan = small_plan(tmp_path, policies=policies, compare_at="labels")
    assert any("random 8, hard and easy 40" in note for note in summary_of(plan, tmp_path).notes)
    rules = {name: RULES[name] for name in ("few", "random-few")}
    plan = small_plan(tmp_path, policies=[*rules], rules=rules, compare_at="labels")
    assert not any("labels" in note for note in summary_of(plan, tmp_path).notes)


@pytest.mark.parametrize(
    ("options", "changes", "code", "values"),
    [
        ({"labels": 7}, {}, "labels-do-not-fit", ("labels: 7", "8 prompts")),
        ({"labels": 0.1}, {}, "labels-do-not-fit", ("labels: 0.1", "4 gold answers")),
        ({"labels": 41}, {}, "labels-do-not-fit", ("labels: 41", "40 prompts")),
        ({"labels": 16}, {"match_sizes": True}, "labels-with-match-sizes", ("match_sizes",)),
        ({"labels": "all"}, {}, "invalid-policy", ("labels",)),
    ],
)
def test_plan_refuses_labels_that_do_not_fit(
    tmp_path: Path, options: Mapping[str, Any], changes: Any, code: str, values: Any
) -> None:
    rules = {"few": {"policy": "hard", "options": options}}
    with refused(*values, code=code):
        small_plan(tmp_path, policies=["few", "random"], rules=rules, **changes)


def test_plan_refuses_labels_below_one_value_of_an_axis_at_its_line(tmp_path: Path) -> None:
    grid = GRID | {"policy": ["few"], "budget": [8, 24]}
    with refused("grid.budget", "24 prompts", code="labels-do-not-fit"):
        small_plan(tmp_path, grid=grid, rules={"few": RULES["few"]})

"""How an update's rollouts are divided among its prompts: rules, settings, and the groups drawn."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sweeps
import yaml
from factories import marked_rollout, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import refused

from orchestrator.config.allocation_entry import AllocationEntry
from orchestrator.config.catalog import load_config
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.evaluation.groups import (
    GroupRecorder,
    Marked,
    group_table,
    learnable_drawn_pct,
    learnable_pct,
)
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.selection.candidates import history_of
from orchestrator.storage.errors import UserError
from orchestrator.storage.schema import SUBSET
from orchestrator.training.online import Chooser, Rollout
from orchestrator.training.record import ledger as ledger_of
from orchestrator.training.rollouts import with_rewards
from policies import BuiltAllocation, Groups, History, PolicyError, get_allocation, groups_of
from policies.partition import Schedule
from tasks import Prompt
from tasks.prompt_table import PromptTable

G = 8


def groups_with(rates: Sequence[float], left: int | None = None, seed: int = 0) -> Groups:
    """Prompts with these latest pass rates, of which `rate` is a smoothed form."""
    last = np.array(rates, float)
    none = np.zeros(len(last), np.int64)
    smooth = (1 + 8 * np.nan_to_num(last, nan=0.5)) / 10
    return Groups(smooth, last, none, none, G * len(last) if left is None else left, G)


def some_rates(seed: int, count: int = 6) -> list[float]:
    """Distinct rates of recorded groups of various sizes, 0 and 1 among them."""
    rng = np.random.default_rng(seed)
    rates = {0.0, 1.0} if seed % 2 else set[float]()
    while len(rates) < count:
        n = int(rng.integers(3, 24))
        rates.add(int(rng.integers(1, n)) / n)
    return [float(rate) for rate in rng.permutation([*rates])]


@pytest.mark.parametrize("floor", [2, 4])
@pytest.mark.parametrize("seed", range(8))
def test_sqrt_is_neymans_allocation_with_a_floor(seed: int, floor: int) -> None:
    groups = groups_with(some_rates(seed))
    sizes = get_allocation("sqrt", floor=floor)(groups)
    sd = np.sqrt(groups.rate * (1 - groups.rate))
    # The factor under which max(floor, factor · sd) uses up the budget, by halving.
    low, high = 0.0, 1e4
    for _ in range(200):
        factor = (low + high) / 2
        low, high = (
            (factor, high) if np.maximum(floor, factor * sd).sum() < groups.left else (low, factor)
        )
    exact = np.maximum(floor, low * sd)
    assert np.sum(sizes) == groups.left and np.min(sizes) >= floor
    assert np.abs(sizes - exact).max() < 1


def knapsack_of(p: Sequence[float], left: int, least: int, most: int) -> list[int]:
    """Sizes that maximise the paper's sum, by dynamic programming over all budgets."""

    def value(n: int, rate: float) -> float:
        return (1 - rate**n - (1 - rate) ** n) * rate * (1 - rate) ** 2

    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for rate in p:
        following: dict[int, tuple[float, list[int]]] = {}
        for used, (total, sizes) in best.items():
            for n in range(least, most + 1):
                each = (total + value(n, rate), [*sizes, n])
                if used + n not in following or each[0] > following[used + n][0] + 1e-15:
                    following[used + n] = each
        best = following
    return best[left][1]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [12, 48])
def test_knapsack_maximises_the_sum_of_the_paper(seed: int, most: int) -> None:
    rates = np.array(some_rates(seed, 5))
    groups = groups_with(rates.tolist())
    sizes = np.asarray(get_allocation("knapsack", most=most, alpha=0.9)(groups))
    assert sizes.sum() == groups.left
    live = (rates > 0) & (rates < 1)
    left = groups.left - 2 * int((~live).sum())
    cost = [int(min(most - 2, np.log(1 - 0.9) / np.log(max(p, 1 - p)))) for p in rates[live]]
    left_of_live = left - 2 * int(live.sum())
    if (~live).any() and left_of_live > sum(
        cost
    ):  # what is beyond the cost goes to the never solved
        assert sizes[rates == 0].sum() == 2 + left_of_live - sum(cost)
        left = sum(cost) + 2 * int(live.sum())
    assert sizes[live].tolist() == knapsack_of(rates[live].tolist(), left, 2, most)


def test_knapsack_without_a_prompt_between() -> None:
    rule = get_allocation("knapsack")
    for rates in ([0.0] * 4, [1.0] * 4, [float("nan")] * 4, [0.5]):
        assert np.asarray(rule(groups_with(rates))).tolist() == [G] * len(rates)
    assert np.asarray(rule(groups_with([0, 0, 1, 1]))).tolist() == [14, 14, 2, 2]
    assert np.asarray(rule(groups_with([1, float("nan"), 1, 0]))).tolist() == [2, 8, 2, 20]
    tight = get_allocation("knapsack", most=2)(groups_with([0.5, 0.3, 0, 1]))
    assert np.asarray(tight).tolist() == [2, 2, 26, 2]
    capped = get_allocation("knapsack", most=4)(groups_with([0.5] * 4))
    assert np.asarray(capped).tolist() == [G] * 4, "no other prompt may have the rest"


def until_correct(first_right: Sequence[int], first: int, most: int, left: int) -> list[int]:
    """Sizes where the k-th completion of each prompt is the first right one (0: none is)."""
    sizes = [0] * len(first_right)

    def open_(i: int) -> bool:
        return sizes[i] < most and not 0 < first_right[i] <= sizes[i]

    while left:
        turn = sorted((i for i in range(len(sizes)) if open_(i)), key=lambda i: (sizes[i], i))
        if not turn:
            break
        for i in turn:
            more = min(first, most - sizes[i], left)
            sizes[i], left = sizes[i] + more, left - more
    for _ in range(left):
        sizes[sizes.index(min(sizes))] += 1
    return sizes


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("first", "most"), [(4, 32), (3, 10), (2, 2), (8, 8)])
def test_until_correct_draws_until_one_is_right(seed: int, first: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    first_right = rng.choice([0, 1, 2, 5, 9, 30], 6)
    rule, groups = get_allocation("until_correct", first=first, most=most), groups_with([0.5] * 6)
    rounds = 0
    while groups.left:
        more = BuiltAllocation("until_correct", rule).more(groups)
        drawn = groups.drawn + more
        right = ((first_right > 0) & (first_right <= drawn)).astype(int)
        left = groups.left - int(more.sum())
        groups, rounds = groups._replace(drawn=drawn, correct=right, left=left), rounds + 1
    assert groups.drawn.tolist() == until_correct([*map(int, first_right)], first, most, G * 6)
    assert rounds <= 1 + most // first + 1


WEIGHT = st.floats(0.01, 100) | st.sampled_from([1e-300, 1e308])


@settings(max_examples=200)
@given(
    values=st.lists(st.sampled_from("abcd"), min_size=1, max_size=30),
    weights=st.dictionaries(st.sampled_from("abc"), st.lists(WEIGHT, min_size=1), min_size=1),
    size=st.integers(2, 16),
    update=st.integers(1, 7),
)
def test_sizes_follow_the_weights_of_a_column(
    values: list[str], weights: dict[str, list[float]], size: int, update: int
) -> None:
    """Exactly in sum, at least two each, and above that within one of the proportion."""
    count = len(values)
    known = {"column": np.array(values)}
    groups = groups_with([0.5] * count, left=size * count)
    groups = groups._replace(size=size, update=update, updates=7, columns=known)
    rule = get_allocation("by_column", column="column", weights=weights)
    sizes = BuiltAllocation("by_column", rule).more(groups)
    assert sizes.sum() == size * count and sizes.min() >= 2
    now = {value: Schedule.of(each, "").at(update, 7) for value, each in weights.items()}
    weight = np.array([now.get(value, 1.0) for value in values])
    # The factor under which max(2, factor · weight) uses up the budget, by halving its logarithm.
    low, high = -1e3, 1e3
    for _ in range(100):
        factor = (low + high) / 2
        exact = np.exp(np.clip(np.log(weight) + factor, np.log(2), 20))
        low, high = (factor, high) if exact.sum() < size * count else (low, factor)
    assert np.abs(sizes - exact).max() < 1 + 1e-6


def test_weights_of_a_column_may_follow_the_updates() -> None:
    source = np.array(["b", "a", "x", "2"])
    weights = {"a": {"from": 1, "to": 3}, "b": [2, 1], 2: 1}
    rule = BuiltAllocation("mine", get_allocation("by_column", column="s", weights=weights))
    groups = groups_with([0.5] * 4, left=40)._replace(updates=3, columns={"s": source})
    sizes = [rule.more(groups._replace(update=update)).tolist() for update in (1, 2, 3)]
    assert sizes == [[16, 8, 8, 8], [13, 13, 7, 7], [7, 20, 7, 6]]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("values", [2, 3, 9])
def test_pods_keeps_the_most_varied_rewards(seed: int, values: int) -> None:
    rewards = np.random.default_rng(seed).integers(0, values, 10) / (values - 1)
    keep: Callable[..., Any] = get_allocation("pods", times=2).keep  # type: ignore[attr-defined]
    kept = rewards[keep(rewards, 4)]
    assert len(kept) == 4
    best = max(np.var(rewards[[*rows]]) for rows in combinations(range(10), 4))
    assert np.var(kept) == pytest.approx(best)


def test_pods_is_half_right_and_half_wrong_where_there_are_enough() -> None:
    keep: Callable[..., Any] = get_allocation("pods").keep  # type: ignore[attr-defined]
    assert keep(np.array([0, 1, 0, 1, 1, 0, 1.0]), 4).tolist() == [1, 0, 1, 0, 1, 0, 1]
    assert keep(np.array([0, 1, 0, 0, 0, 0.0]), 4).tolist() == [1, 1, 1, 1, 0, 0]
    assert keep(np.zeros(6), 4).tolist() == [1, 1, 1, 1, 0, 0], "the first ones of equal rewards"
    many = np.random.default_rng(0).integers(0, 2, 64) * 1.0
    wrong, right = (np.flatnonzero(many == reward).tolist() for reward in (0, 1))
    assert np.flatnonzero(keep(many, 4)).tolist() == sorted([*wrong[:2], *right[-2:]])


def test_estimates_are_those_of_the_probe_and_all_groups() -> None:
    ids = pa.array(["a", "b", "c"])
    history = History(ids, [4, 4, 0], [1, 4, 0], seed=0, updates=9, group_size=G)
    history.add(1, 0, 3, 8)
    history.add(2, 0, 5, 8)
    groups = groups_of(history, np.array([2, 0, 1]), 24, 3)
    assert groups.rate.tolist() == pytest.approx([0.5, (1 + 9) / (2 + 20), 5 / 6])
    assert groups.last[1:].tolist() == [5 / 8, 1] and np.isnan(groups.last[0])
    history.add_refresh(3, [2, 1], [2, 0], [4, 4])
    groups = groups_of(history, np.array([2, 0, 1]), 24, 3)
    assert groups.rate.tolist() == pytest.approx([3 / 6, (1 + 9) / (2 + 20), 5 / 10])
    assert groups.last.tolist() == [2 / 4, 5 / 8, 0]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([8, 8, 8], r"int64 of shape \(3,\) for 2 prompts"),
        ([8.0, 8.0], "float64 of shape"),
        ([20, -4], "returned 16 completions, the smallest -4"),
        ([9, 8], "returned 17 completions"),
        ([0, 0], "returned 0 completions"),
        ([15, 1], "1 of 16 completions: .* 2"),
        (RuntimeError("no idea"), r"'mine' raised RuntimeError: no idea \(.*:\d+\)"),
    ],
)
def test_an_allocation_that_misbehaves_is_named(returned: Any, message: str) -> None:
    def mine(groups: Groups) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return np.array(returned)

    with pytest.raises(PolicyError, match=message):
        BuiltAllocation("mine", mine).more(groups_with([0.5, 0.5]))


def loaded(folder: Path, allocation: Any, policy: str = "random", **changes: Any) -> Plan:
    """The plan of a sweep with an allocation, or with several as an axis."""
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": [policy]}
    if isinstance(allocation, list):
        grid["allocation"] = allocation
    elif allocation is not None:
        changes["allocation"] = allocation
    file = sweeps.experiments(folder, storage=str(folder / "runs"), grid=grid)
    content = yaml.safe_load(file.read_text())
    experiment = content["experiments"][sweeps.NAME]
    experiment["grpo"] |= changes.pop("grpo", {})
    file.write_text(yaml.safe_dump(content | {"experiments": {sweeps.NAME: experiment | changes}}))
    return make_plan(load_config(file), sweeps.NAME)


def test_cells_of_uniform_groups_keep_their_ids(tmp_path: Path) -> None:
    [plain] = loaded(tmp_path, None).cells
    uniform, sqrt, written, floor = loaded(
        tmp_path, ["uniform", "sqrt", {"knapsack": {}}, {"sqrt": {"floor": 3}}]
    ).cells
    assert uniform.cell_id == plain.cell_id and uniform.allocation is None
    assert "allocation" not in plain.model_dump()
    assert len({each.cell_id for each in (uniform, sqrt, written, floor)}) == 4
    assert [sqrt.setting_axes, floor.setting_axes] == [
        {"allocation": "sqrt"},
        {"allocation": {"sqrt": {"floor": 3}}},
    ]
    [default] = loaded(tmp_path, {"sqrt": {"floor": 2}}).cells
    assert default.cell_id == sqrt.cell_id
    assert Cell.model_validate(sqrt.model_dump(mode="json")).cell_id == sqrt.cell_id
    assert sqrt.subset_key == plain.subset_key


def test_rollouts_of_pods_count(tmp_path: Path) -> None:
    plan = loaded(tmp_path, ["uniform", "until_correct", {"pods": {"times": 3}}])
    uniform, until, pods = plan.cells
    assert uniform.rollouts == until.max_rollouts == pods.rollouts
    assert pods.min_rollouts == pods.max_rollouts == 3 * pods.rollouts
    assert [cell.discards for cell in plan.cells] == [False, False, True]
    assert plan.compare_at == "rollouts"


@pytest.mark.parametrize(
    ("allocation", "changes", "message"),
    [
        ({"by_column": {"column": "sorce", "weights": {"1": 2}}}, {}, "'sorce'"),
        ({"by_column": {"column": "tier", "weights": {"zoo": 2}}}, {}, "'zoo'"),
        ({"by_column": {"column": "tier", "weights": {"zoo": [1, 0]}}}, {}, "zoo is [1, 0]"),
        ({"by_column": {"column": "tier", "weights": {}}}, {}, "'tier'"),
        ({"by_column": {"column": 3, "weights": {"a": 2}}}, {}, "3"),
        ({"by_column": {"column": "tier"}}, {}, "weights"),
        ("sqr", {}, "unknown allocation 'sqr': write one of sqrt, knapsack"),
        ("sqrt", {"resources": {"workers": 2}}, "{workers: 1}"),
        ("sqrt", {"rollouts": "trl"}, "leave out rollouts: trl"),
        ("sqrt", {"grpo": {"min_p": 0.1}}, "leave out grpo.min_p"),
        ("pods", {"grpo": {"num_iterations": 2}}, "num_iterations"),
        ("pods", {"policy": "dynamic"}, "policy 'dynamic' discards groups"),
        ({"sqrt": {"floor": 99}}, {}, "floor is 99: "),
        ({"sqrt": {"floor": 1}}, {}, "at least 2"),
        ({"uniform": {"size": 1}}, {}, "uniform "),
        (7, {}, "such as sqrt"),
        ({"knapsack": {"alpha": 1}}, {}, "between 0 and 1"),
        ({"knapsack": {"least": 4, "most": 3}}, {}, "most 3 is below least 4"),
        (f"{__name__}:fails", {}, "raised ZeroDivisionError"),
        (f"{__name__}:G", {}, "is not callable"),
        ("sqrt", {"grpo": {"multi_objective_aggregation": "normalize_then_sum"}}, "sum_then_norm"),
    ],
)
@pytest.mark.parametrize("axis", [False, True])
def test_settings_that_an_allocation_cannot_have(
    tmp_path: Path, allocation: Any, changes: dict[str, Any], message: str, axis: bool
) -> None:
    with pytest.raises(UserError) as caught:
        loaded(tmp_path, ["uniform", allocation] if axis else allocation, **changes)
    text = str(caught.value)
    place, line = text.split(":")[:2]
    assert message in text and "\n" not in text
    written = Path(place).read_text().splitlines()[int(line) - 1]
    names = [*allocation] if isinstance(allocation, dict) else [str(allocation)]
    assert any(name in written for name in ("allocation", *names))


@pytest.mark.parametrize(("column", "value"), [("sorce", "5"), ("tier", "zoo")])
def test_a_pool_without_the_column_or_the_value_has_a_code(
    tmp_path: Path, column: str, value: str
) -> None:
    rule = {"by_column": {"column": column, "weights": {value: 2}}}
    named = repr(value) if column == "tier" else repr(column)
    with refused(named, code="allocation-lacks-column") as caught:
        loaded(tmp_path, ["sqrt", rule])
    lines = (tmp_path / "experiments.yaml").read_text().splitlines()
    assert "by_column" in lines[int(str(caught.value).split(":")[1]) - 1]


def test_a_cell_follows_the_values_of_the_column_that_its_allocation_reads(tmp_path: Path) -> None:
    pool = loaded(tmp_path, None).pools["few"].train
    tier = pool[0].tier
    rules = [{"by_column": {"column": "tier", "weights": {tier: each}}} for each in (1, 2, [2, 1])]
    uniform, *cells = loaded(tmp_path, ["uniform", *rules]).cells
    assert len({cell.cell_id for cell in cells}) == 3
    assert {cell.columns_hash for cell in cells} != {""} and not uniform.columns_hash
    assert Cell.model_validate(cells[2].model_dump(mode="json")).cell_id == cells[2].cell_id
    rows = [{"prompt_id": p.prompt_id, "tier": p.tier} for p in pool.take(pool.order)]
    history = history_of(cells[0], pa.Table.from_pylist(rows, schema=SUBSET))
    assert history.columns["tier"].tolist() == [row["tier"] for row in rows]


def fails(groups: Groups) -> Any:
    """An allocation of a user's own with a mistake."""
    return 1 / 0


def halves(groups: Groups, more: int = 2) -> Any:
    """One of a user's own with an option: the first prompts get more than the others."""
    count = len(groups.drawn)
    extra = np.where(np.arange(count) < count // 2, more, -more)
    return np.full(count, groups.left // count) + extra


def chooser_of(cell: Cell, answers: Sequence[str], recorder: GroupRecorder) -> Chooser:
    """A chooser without a trainer; completion k of a prompt is marked as word k of its answer."""
    prompts = PromptTable.of(
        [Prompt(f"p{i:02}", f"q {i}", answer, "") for i, answer in enumerate(answers)]
    )

    def mark(_: Any, ids: Any, rows: Sequence[dict[str, Any]]) -> list[Marked]:
        marks = []
        for row in rows:
            words = row["answer"].split()
            outcome = words[row["number"] % len(words)]
            score = None if outcome == "error" else float(outcome == "correct")
            marks.append(marked_rollout(outcome, score, row["prompt_id"]))
        return marks

    ids = prompts.column("prompt_id").combine_chunks()
    known = [4] * len(answers)
    right = [i % 5 for i in range(len(answers))]
    columns = {"source": np.array(["a", "b", "a", "b", "c"])[: len(answers)]}
    history = History(ids, known, right, seed=0, updates=9, group_size=4, columns=columns)
    rest = (mark, partial(with_rewards, cell))
    return Chooser(
        *(cell.online, history, prompts, recorder, row_of, *rest), allocation=cell.allocation
    )


def row_of(prompt: Prompt) -> dict[str, Any]:
    return {"prompt": prompt.question, "prompt_id": prompt.prompt_id, "answer": prompt.answer}


def rows_of(chooser: Chooser, *prompts: int) -> list[dict[str, Any]]:
    """Four rows for each prompt, as TRL's loader has them."""
    return [row_of(chooser.prompts[i]) for i in prompts for _ in range(4)]


def generate(rows: Sequence[dict[str, Any]]) -> list[Rollout]:
    return [Rollout([1], [2, 3], f"{row['prompt_id']} {row['number']}") for row in rows]


def cell_with(folder: Path, rule: str, online: str = "", **options: Any) -> Cell:
    [cell] = small_plan(folder, policies=["random"]).cells
    entry = AllocationEntry.of({rule: options})
    policy = PolicyEntry(policy=online) if online else None
    return cell.model_copy(update={"allocation": entry, "online": policy})


ANSWERS = ["wrong", "wrong correct", "correct", "wrong wrong wrong wrong correct", "error wrong"]


def batches_of(chooser: Chooser, updates: range) -> list[Any]:
    """Generations of three prompts each, as a loader orders them."""
    batches = []
    for update in updates:
        rows = rows_of(chooser, *((3 * update + i) % 5 for i in range(3)))
        batches.append(chooser.batch(update, 12, generate, rows))
    return batches


@pytest.mark.parametrize("online", ["", "predicted", "curriculum"])
@pytest.mark.parametrize("rule", ["sqrt", "knapsack", "until_correct", "pods", "by_column"])
def test_a_generation_has_its_rows_and_a_rebuilt_chooser_continues(
    tmp_path: Path, rule: str, online: str
) -> None:
    options = {"column": "source", "weights": {"a": {"from": 1, "to": 4}}}
    cell = cell_with(tmp_path, rule, online, **(options if rule == "by_column" else {}))
    record = GroupRecorder(discarded=[] if cell.discards else None)
    first = chooser_of(cell, ANSWERS, record)
    for batch in batches_of(first, range(1, 4)):
        assert len(batch.rows) == len(batch.rollouts) == sum(batch.sizes) == 12
        begin = 0
        for size in batch.sizes:
            own = batch.rows[begin : begin + size]
            assert len({row["prompt_id"] for row in own}) == 1
            assert len({row["number"] for row in own}) == size
            begin += size
        texts = [f"{row['prompt_id']} {row['number']}" for row in batch.rows]
        assert texts == [rollout.completion for rollout in batch.rollouts]
    assert sum(t.rollouts for t in record.tallies.values()) == 36
    lost = None if record.discarded is None else [*record.discarded]
    again = GroupRecorder([*record.rows], lost)
    second = chooser_of(cell, ANSWERS, again)
    assert batches_of(first, range(4, 7)) == batches_of(second, range(4, 7))
    assert (record.rows, record.discarded) == (again.rows, again.discarded)


def test_weights_of_a_column_are_those_of_the_update(tmp_path: Path) -> None:
    weights = {"a": {"from": 1, "to": 4}}
    cell = cell_with(tmp_path, "by_column", column="source", weights=weights)
    chooser = chooser_of(cell, ANSWERS, GroupRecorder())
    sizes = [chooser.batch(u, 12, generate, rows_of(chooser, 0, 1, 2)).sizes for u in (1, 9)]
    assert sizes == [[4, 4, 4], [5, 2, 5]]


def test_rollouts_move_to_a_prompt_until_one_is_right(tmp_path: Path) -> None:
    cell = cell_with(tmp_path, "until_correct", first=2, most=16)
    chooser = chooser_of(cell, ANSWERS, record := GroupRecorder())
    batch = chooser.batch(1, 12, generate, rows_of(chooser, 2, 0, 3))
    assert batch.sizes == [2, 6, 4], "the third has used the last of twelve before its first right"
    assert [len(row["tokens"]) for row in record.rows] == [2, 6, 4]
    ledger = ledger_of(cell, 5, record, [], 1.0)
    assert (ledger["smallest_group"], ledger["largest_group"], ledger["rollouts"]) == (2, 6, 12)


def test_a_rest_of_a_group_counts_as_rollouts_and_not_as_a_group(tmp_path: Path) -> None:
    cell = cell_with(tmp_path, "pods", times=4)
    chooser = chooser_of(cell, ANSWERS, record := GroupRecorder(discarded=[]))
    batch = chooser.batch(1, 12, generate, rows_of(chooser, 0, 1, 3))
    assert batch.sizes == [4, 4, 4] and batch.kept is None
    assert [row["outcomes"].count("correct") for row in record.rows] == [0, 2, 2]
    assert [len(row["outcomes"]) for row in record.discarded or []] == [12, 12, 12]
    ledger = ledger_of(cell, 5, record, [], 1.0)
    assert (ledger["rollouts"], ledger["discarded_rollouts"], ledger["discarded"]) == (48, 36, 0)
    assert (ledger["live"], ledger["all_wrong"]) == (2, 1)
    metrics, lost = record.metrics(1), group_table(record.discarded or [])
    assert lost is not None and metrics["train/discarded_pct"] == 75
    assert metrics["train/learnable_drawn_pct"] == pytest.approx(200 / 3)
    assert learnable_drawn_pct(record.table(), lost) == learnable_pct(record.table(), lost)
    chooser.batch(2, 4, generate, rows_of(chooser, 1))
    at, row, correct, marked = chooser.history.drawn
    assert (row.tolist(), marked.tolist()) == ([0, 1, 3], [16] * 3), "every completion"
    assert correct.tolist() == [0, 8, 3]


def test_a_completion_without_a_mark_has_the_mean_of_its_group(tmp_path: Path) -> None:
    cell = cell_with(tmp_path, "sqrt")
    chooser = chooser_of(cell, [*ANSWERS[:4], "error correct correct"], GroupRecorder())
    batch = chooser.batch(1, 12, generate, rows_of(chooser, 4, 0, 1))
    assert batch.sizes is not None
    assert [row["reward"] for row in batch.rows[: batch.sizes[0]]] == [1.0] * batch.sizes[0]


def test_a_rule_of_a_users_own_divides_them(tmp_path: Path) -> None:
    cell = cell_with(tmp_path, f"{__name__}:halves", more=1)
    chooser = chooser_of(cell, ANSWERS, GroupRecorder())
    assert chooser.batch(1, 16, generate, rows_of(chooser, 0, 1, 2, 3)).sizes == [5, 5, 3, 3]

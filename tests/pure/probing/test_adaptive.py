"""Adaptive probing selects the subsets of the full probe for any outcomes and batch size."""

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from factories import small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.adaptive import simulate
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.difficulty.outcomes import complete_pass_rates
from orchestrator.difficulty.table import difficulty
from orchestrator.probing import probe
from orchestrator.probing.adaptive import Counts, Target, score_bounds, undecided_rows
from orchestrator.probing.outcomes import NONE, Outcomes
from orchestrator.probing.probe import AdaptiveState
from orchestrator.selection.subsets import SubsetRequest, select
from policies import PolicyError, get_policy
from tasks import OUTCOMES, make_prompt
from tasks.prompt_table import PromptTable


def target(rule: PolicyEntry, size: int, seed: int) -> Target:
    policy = rule.build().scored
    assert policy
    return Target(policy, size, seed)


def samples(outcomes: np.ndarray, drawn: np.ndarray) -> pa.Table:
    """The first `drawn` of each prompt's outcomes [prompts, K], True for correct."""
    rows = [
        {"prompt_id": f"{i:05}", "sample": k, "outcome": OUTCOMES[0 if outcomes[i, k] else 1]}
        for i in range(len(outcomes))
        for k in range(drawn[i])
    ]
    schema = pa.schema({"prompt_id": pa.string(), "sample": pa.int32(), "outcome": pa.string()})
    return pa.Table.from_pylist(rows, schema=schema)


def subset(outcomes: np.ndarray, drawn: np.ndarray, rule: PolicyEntry, size: int, seed: int):
    prompts, k = outcomes.shape
    tiers = {f"{i:05}": "" for i in range(prompts)}
    table = difficulty(samples(outcomes, drawn), tiers, samples_per_prompt=k)
    assert table.num_rows == prompts
    try:
        chosen, _ = select(table, SubsetRequest(rule, size, seed, samples=k))
    except PolicyError:  # fewer prompts than that are eligible
        return None
    return set(chosen["prompt_id"].to_pylist())


def pool(seed: int, prompts: int, k: int, alpha: float = 0.24, beta: float = 0.21) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((prompts, k)) < rng.beta(alpha, beta, prompts)[:, None]


def test_random_needs_no_samples_and_base_wrong_needs_one() -> None:
    outcomes = pool(4, 50, 4)
    assert simulate(outcomes, [target(PolicyEntry(policy="random"), 5, 0)], 8).drawn.sum() == 0
    wrong = simulate(outcomes, [target(PolicyEntry(policy="base_wrong"), 5, 0)], 8)
    assert set(wrong.drawn.tolist()) == {1}


def test_hard_and_easy_need_less_than_half_of_the_samples() -> None:
    outcomes = pool(5, 500, 10)
    for name in ("hard", "easy"):
        drawn = simulate(outcomes, [target(PolicyEntry(policy=name), 50, 0)], 8).drawn
        assert drawn.sum() < 0.5 * outcomes.size


def test_errors_count_as_neither_correct_nor_wrong() -> None:
    none = np.zeros(3, dtype=np.int64)
    first = np.array(["error", None, "correct"], dtype=object)
    counts = Counts(np.array([0, 0, 1]), np.array([1, 0, 0]), np.array([1, 0, 1]), first)
    bounds = score_bounds(get_policy("hard"), counts, [""] * 3, 2)  # type: ignore[arg-type]
    assert bounds.low.tolist() == [0.0, 0.0, 0.5]
    assert bounds.high.tolist() == [1e300, 1e300, 1.0], "all errors: no pass rate, chosen last"
    assert undecided_rows([], counts._replace(drawn=none), [""] * 3, 2).size == 0


def test_complete_tables_are_unchanged() -> None:
    outcomes = pool(6, 20, 4)
    table = difficulty(samples(outcomes, np.full(20, 4)), samples_per_prompt=4)
    assert complete_pass_rates(table, 4)["pass_rate"].equals(table["pass_rate"])


def test_the_frontier_draws_what_the_simulation_draws(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    spec = plan.cells[0].probe
    pool = plan.pool(spec).train
    samples = spec.settings.samples
    correct = np.random.default_rng(3).random((len(pool), samples)) < 0.4
    targets = [target(PolicyEntry(policy=name), 9, 0) for name in ("hard", "easy")]
    none = Outcomes(pool, np.full((len(pool), samples), NONE, dtype=np.uint8))
    state = AdaptiveState(spec, targets, none)
    ids = sorted(prompt.prompt_id for prompt in pool)
    while part := state.next_part(5):
        rows = []
        for prompt, [sample] in part:
            outcome = "correct" if correct[ids.index(prompt.prompt_id), sample] else "wrong"
            rows.append({"prompt_id": prompt.prompt_id, "sample": sample, "outcome": outcome})
        state.record(rows)
    expected = simulate(correct, targets, 5)
    assert ((state.codes != NONE).sum(axis=1) == expected.drawn).all()
    assert state.drawn < correct.size and not state.remaining()


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_a_large_pool_is_scanned_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """The subset is that of the full probe, whichever parts are out while another is chosen."""
    monkeypatch.setattr(probe, "SCAN_SHARE", share)
    spec = small_plan(tmp_path).cells[0].probe
    prompts = PromptTable.of([make_prompt("t", f"question {i}", str(i), "") for i in range(200)])
    order, k = prompts.ids(prompts.order).to_pylist(), spec.settings.samples
    correct = pool(1, 200, k, 1.0, 1.0)
    rule = PolicyEntry(policy="hard")
    none = Outcomes(prompts, np.full((200, k), NONE, dtype=np.uint8))
    state = AdaptiveState(spec, [target(rule, 20, 0)], none)
    scans = []
    undecided = state.undecided
    monkeypatch.setattr(state, "undecided", lambda: (scans.append(1), undecided())[1])
    parts = []
    while (part := state.next_part(16)) or parts:
        if part:
            parts.append(part)
            if len(parts) < 3:
                continue
        rows = [
            {"prompt_id": prompt.prompt_id, "sample": sample, "outcome": OUTCOMES[1 - right]}
            for prompt, [sample] in parts.pop(0)
            for right in [int(correct[order.index(prompt.prompt_id), sample])]
        ]
        state.record(rows)
    drawn = (state.codes != NONE).sum(axis=1)
    assert not state.remaining() and len(scans) <= drawn.sum() / (200 * share) + k + 2
    full = np.full(200, k)
    assert subset(correct, drawn, rule, 20, 0) == subset(correct, full, rule, 20, 0)


BAND = PolicyEntry(policy="band", options={"low": 0.2, "high": 0.8})
EARLY = [
    *[PolicyEntry(policy=name) for name in ("hard", "easy", "random", "hardest_nonzero", "middle")],
    *[PolicyEntry(policy=name) for name in ("base_wrong", "base_right")],
    BAND,
]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    prompts=st.integers(1, 30),
    k=st.integers(1, 6),
    share=st.floats(0.05, 1.0),
    batch=st.integers(1, 40),
    flat=st.booleans(),
    rules=st.lists(st.sampled_from(EARLY), min_size=1, max_size=4, unique_by=lambda r: r.policy),
)
def test_any_pool_and_batch_size_select_the_subset_of_the_full_probe(
    seed, prompts, k, share, batch, flat, rules
) -> None:
    outcomes = pool(seed, prompts, k, *((1.0, 1.0) if flat else (0.2, 0.2)))
    size = max(1, int(share * prompts))
    targets = [target(rule, size, training_seed) for rule in rules for training_seed in (0, seed)]
    drawn = simulate(outcomes, targets, batch).drawn
    full = np.full(prompts, k)
    for rule, training_seed in product(rules, (0, seed)):
        expected = subset(outcomes, full, rule, size, training_seed)
        assert subset(outcomes, drawn, rule, size, training_seed) == expected

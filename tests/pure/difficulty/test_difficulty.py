"""Difficulty tables from marked samples."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from factories import small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.difficulty import summary as summary_module
from orchestrator.difficulty.estimates import fit_prior, rates, reliability
from orchestrator.difficulty.outcomes import outcome_histogram, pass_rate_histogram
from orchestrator.difficulty.probe_table import table_file
from orchestrator.difficulty.proportions import counts, wilson
from orchestrator.difficulty.summary import Summary, summarise, summary_lines
from orchestrator.difficulty.table import difficulty
from orchestrator.plugins.difficulty_table import DIFFICULTY
from orchestrator.report.content import svg_of
from orchestrator.report.sections.figures import MAX_BARS, failure_histogram
from policies import Policy, PolicyError, Ties, get_policy
from tasks import OUTCOMES


def built(name: str) -> Policy:
    return PolicyEntry(policy=name).build()


def samples(outcomes: dict[str, list[str]]) -> pa.Table:
    rows = [{"prompt_id": i, "outcome": o} for i, os in outcomes.items() for o in os]
    return pa.Table.from_pylist(rows)


def test_counts_rates_and_intervals() -> None:
    table = difficulty(
        samples({"b": ["wrong"] * 5, "a": ["correct"] * 5 + ["unparsed"] * 3 + ["truncated"] * 2}),
        {"a": "3"},
    ).to_pylist()
    assert [(row["prompt_id"], row["tier"]) for row in table] == [("a", "3"), ("b", "")]
    assert {name: table[0][name] for name in DIFFICULTY.names[:9]} == {
        **{"prompt_id": "a", "tier": "3", "n": 10, "successes": 5, "pass_rate": 0.5, "wrong": 0},
        **{"unparsed": 3, "truncated": 2, "error": 0},
    }
    assert table[0]["low"] == pytest.approx(0.2366, abs=1e-4)
    assert table[0]["high"] == pytest.approx(0.7634, abs=1e-4)
    assert table[1]["low"] == 0
    assert table[1]["high"] == pytest.approx(0.4345, abs=1e-4)


def test_the_histogram_counts_prompts() -> None:
    outcomes = {"a": ["correct"] * 4, "b": ["wrong"] * 4, "c": ["wrong"] * 4, "d": ["error"] * 4}
    assert pass_rate_histogram(difficulty(samples(outcomes)), 4).tolist() == [2, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 5, 0.0, 0.4345),
        (5, 5, 0.5655, 1.0),
        (1, 10, 0.0179, 0.4042),
        (0, 1, 0.0, 0.7935),
        (500, 1000, 0.4691, 0.5309),
    ],
)
def test_the_interval_agrees_with_published_values(
    successes: int, n: int, low: float, high: float
) -> None:
    interval = wilson(np.array([successes]), np.array([n]))
    assert [bound.item() for bound in interval] == pytest.approx([low, high], abs=1e-4)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(OUTCOMES)), min_size=1))
def test_every_sample_is_counted_once_under_its_outcome(rows: list[tuple[str, str]]) -> None:
    table = difficulty(pa.Table.from_pylist([{"prompt_id": i, "outcome": o} for i, o in rows]))
    assert table.schema.equals(DIFFICULTY)
    assert table["prompt_id"].to_pylist() == sorted({prompt for prompt, _ in rows})
    for row in table.to_pylist():
        mine = [outcome for prompt, outcome in rows if prompt == row["prompt_id"]]
        assert row["n"] == len(mine)
        assert row["successes"] == mine.count("correct")
        for outcome in OUTCOMES[1:]:
            assert row[outcome] == mine.count(outcome)
        labelled = {"correct", "wrong"} & {*mine} or "unlabelled" not in mine
        assert row["labelled"] == bool(labelled)
        judged = len(mine) - mine.count("error") - mine.count("unlabelled") if labelled else 0
        assert row["pass_rate"] == (mine.count("correct") / judged if judged else None)
        bounds = wilson(np.array([mine.count("correct")]), np.array([judged]))
        assert [row["low"], row["high"]] == [bound.item() if judged else None for bound in bounds]


MIXED = {
    "a": ["correct", "truncated", "wrong", "error"],
    "b": ["truncated", "truncated", "error", "error"],
    "c": ["correct", "correct", "unparsed", "wrong"],
    "d": ["error"] * 4,
}


@pytest.mark.parametrize(
    ("count_truncated", "scorable", "pass_rate"),
    [
        ("wrong", [3, 2, 4, 0], [1 / 3, 0, 0.5, None]),
        ("exclude", [2, 0, 4, 0], [0.5, None, 0.5, None]),
    ],
)
def test_unscorable_samples_are_counted_and_left_out(
    count_truncated: str, scorable: list[int], pass_rate: list[float | None]
) -> None:
    table = difficulty(samples(MIXED), count_truncated=count_truncated)  # type: ignore[arg-type]
    assert table["n"].to_pylist() == [4] * 4
    assert table["truncated"].to_pylist() == [1, 2, 0, 0]
    assert table["scorable"].to_pylist() == scorable
    assert table["pass_rate"].to_pylist() == pytest.approx(pass_rate)
    for name in ("low", "high", "posterior", "learnability"):
        assert [x is None for x in table[name].to_pylist()] == [x is None for x in pass_rate]


def test_first_is_the_outcome_of_sample_0() -> None:
    table = samples(MIXED).append_column("sample", pa.array([3, 2, 1, 0] * 4))
    shuffled = table.take([5, 3, 1, 15, 7, 0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14])
    assert difficulty(shuffled)["first"].to_pylist() == ["error", "error", "wrong", "error"]
    assert difficulty(table.slice(0, 3))["first"].to_pylist() == [None]
    assert difficulty(samples(MIXED))["first"].to_pylist() == [None] * 4


def test_prompts_with_too_few_samples_are_counted() -> None:
    table = samples({"a": ["correct"], "b": ["wrong", "error", "wrong"]})
    assert difficulty(table, samples_per_prompt=3)["short"].to_pylist() == [True, False]
    assert difficulty(table)["short"].to_pylist() == [False, False]


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="'right': write one of correct"):
        difficulty(samples({"a": ["right"]}))


def test_no_samples_make_an_empty_table() -> None:
    nothing = pa.table(
        {"prompt_id": pa.array([], pa.string()), "outcome": pa.array([], pa.string())}
    )
    assert difficulty(nothing).num_rows == 0
    assert difficulty(nothing).schema.equals(DIFFICULTY)


@pytest.mark.parametrize("options", [{}, {"group_size": 32}])
def test_posterior_and_learnability_follow_the_pools_prior(options: dict[str, int]) -> None:
    right, n = np.arange(9), np.full(9, 8)
    outcomes = {str(s): ["correct"] * s + ["wrong"] * (8 - s) for s in range(9)}
    table = difficulty(samples(outcomes), **options)
    expected = rates(right, n, fit_prior(right, n), options.get("group_size", 8))
    for name in ("pass_rate", "posterior", "learnability"):
        assert table[name].to_pylist() == pytest.approx(expected[name].to_pylist()), name


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(OUTCOMES)), min_size=1))
def test_the_outcome_histogram_counts_every_prompt_once(rows: list[tuple[str, str]]) -> None:
    table = difficulty(pa.Table.from_pylist([{"prompt_id": i, "outcome": o} for i, o in rows]))
    bins = len(rows)
    histogram = outcome_histogram(table, bins)
    assert histogram.shape == (bins + 2, len(OUTCOMES))
    assert histogram.sum(axis=1)[:-1] == pytest.approx(pass_rate_histogram(table, bins))
    assert histogram.sum() == pytest.approx(table.num_rows)
    assert not histogram[0, 0] and not histogram[bins, 1:4].any()


def test_the_outcome_histogram_divides_a_prompt_as_its_samples_are() -> None:
    histogram = outcome_histogram(difficulty(samples(MIXED)), 4)
    assert histogram[1].tolist() == [0.25, 0.25, 0, 0.25, 0.25, 0]  # 1 of 3, nearest to 1 of 4
    assert histogram[0].tolist() == [0, 0, 0, 0.5, 0.5, 0]
    assert histogram[-1].tolist() == [0, 0, 0, 0, 1, 0]


def test_the_failure_histogram_names_every_outcome_and_sets_unknown_prompts_apart() -> None:
    unlabelled = MIXED | {"e": ["unlabelled"]}
    cases = ((MIXED, True), (unlabelled, True), ({"a": ["correct", "wrong"]}, False))
    for outcomes, apart in cases:
        svg = svg_of(failure_histogram(difficulty(samples(outcomes)), 4))
        assert svg.startswith("<svg")
        assert all(f"<!-- {name} -->" in svg for name in OUTCOMES if name != "unlabelled")
        assert ("<!-- unlabelled -->" in svg) == ("e" in outcomes)
        assert ("<!-- scorable -->" in svg) == apart
    for count, in_percent in ((MAX_BARS, False), (MAX_BARS + 1, True)):
        svg = svg_of(failure_histogram(difficulty(samples({"a": ["wrong"] * count})), count))
        assert ("<!-- 100 -->" in svg) == in_percent


def test_each_pool_has_a_file_of_its_own_beside_the_page(tmp_path: Path) -> None:
    def file(folder: str, **changes: Any) -> Path:
        plan = small_plan(tmp_path / folder, policies=["random"], **changes)
        [cell] = plan.cells
        return table_file(plan, cell.probe, tmp_path / "page.html")

    (tmp_path / "one").mkdir()
    probe = {"samples": 4, "max_completion_length": 32}
    one = file("one")
    assert one.parent == tmp_path and one.name.startswith("page-") and one.suffix == ".parquet"
    assert len(one.name) == len("page-12345678.parquet")
    assert file("one") == one == file("one", probe=probe | {"samples": 8}), "of one probe's folder"
    larger = {"task": "shuffled_objects", "options": {"train": 41, "test": 12}}
    others = [
        file("one", probe=probe | {"temperature": 0.7}),
        file("one", datasets={"small": larger}),
        file("one", marking="strict"),
    ]
    assert len({one, *others}) == 4


def pool_of(successes: list[int], failures: list[str], samples_each: int) -> pa.Table:
    return difficulty(
        samples(
            {
                f"p{i:03}": ["correct"] * s + [failures[i % len(failures)]] * (samples_each - s)
                for i, s in enumerate(successes)
            }
        )
    )


def test_the_summary_predicts_a_second_probe() -> None:
    table = pool_of([0] * 30 + [2] * 10 + [4] * 20, ["wrong", "truncated"], 4)
    summary = summarise(table, 10, built("hard"), 0, 4)
    assert summary == summarise(table, 10, built("hard"), 0, 4)
    assert (summary.policy, summary.size) == ("hard", 10)
    assert summary.ties == (30, 10)
    assert 0.2 < summary.overlap < 0.5
    assert summary.learnable == pytest.approx(table["learnability"][0].as_py())


def test_second_probes_of_a_large_pool_are_simulated_on_a_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = np.random.default_rng(0).permutation([0] * 300 + [2] * 300 + [4] * 300)
    large = pool_of(counts.tolist(), ["wrong"], 4)
    whole = summarise(large, 150, built("hard"), 0, 4)
    monkeypatch.setattr(summary_module, "SIMULATED", 300)
    share = summarise(large, 150, built("hard"), 0, 4)
    assert 0 < abs(share.overlap - whole.overlap) < 0.1
    assert replace(share, overlap=0) == replace(whole, overlap=0)


def test_the_summary_describes_the_subset() -> None:
    """Hard takes the 30 prompts without a success, and the ten with two of four."""
    table = pool_of([0] * 30 + [2] * 10 + [4] * 20, ["wrong", "truncated"], 4)
    summary = summarise(table, 40, built("hard"), 0, 4, repeats=2)
    assert summary.outcomes == {
        **{"correct": 20, "wrong": 70, "unparsed": 0, "truncated": 70, "error": 0},
        "unlabelled": 0,
    }
    expected = table["posterior"].to_numpy()
    assert summary.pass_rate == pytest.approx(np.sort(expected)[:40].mean())
    assert summary.pass_rate > 20 / 160 and summary.unsolved == 30
    chance = np.sort(table["learnability"].to_numpy())
    assert summary.learnable == pytest.approx(table["learnability"].to_numpy()[:40].mean())
    assert chance[0] < summary.learnable < chance[-1]
    solved = summarise(table, 20, built("easy"), 0, 4, repeats=2)
    assert solved.pass_rate is not None and 0.9 < solved.pass_rate < 1 and solved.unsolved == 0
    assert solved.outcomes["correct"] == 80


def test_the_ties_of_a_summary_are_those_of_its_choice() -> None:
    """Labels are drawn anew by each choice, so that a simulated one would change the ties."""
    table = pool_of([0] * 30 + [2] * 10 + [4] * 20, ["wrong", "truncated"], 4)
    policy = Policy("hard", get_policy("hard", labels=20))
    chosen = policy(table, 10, np.random.default_rng(0))
    ties, _ = policy.tied(table, chosen)
    summary = summarise(table, 10, policy, 0, 4, repeats=3)
    assert summary.ties == ties and summary.overlap is None
    assert ties is not None and ties.pool < 20


def test_the_lines_of_a_summary_state_its_numbers() -> None:
    table = pool_of([0] * 3 + [1] * 2 + [2] * 2, ["wrong"], 2)
    summary = Summary(
        policy="hard",
        size=10,
        outcomes={"wrong": 1, "unparsed": 0, "truncated": 3},
        pass_rate=0.1,
        unsolved=3,
        suspected=None,
        learnable=0.1234,
        ties=Ties(30, 10),
        overlap=0.333,
    )
    histogram, outcomes, rates, subset, failures, overlap, live = summary_lines(table, 2, summary)
    assert histogram.endswith(", 0 to 2: 3 2 2")
    assert outcomes == "outcomes: 42.9 % correct, 57.1 % wrong"
    solved, scorable = counts(table, "successes"), counts(table, "scorable")
    prior = fit_prior(solved, scorable)
    below, above = (f"{100 * end:.0f} %" for end in prior.ends)
    value = f"reliability {reliability(solved, scorable, 2):.2f} at 2 samples"
    assert re.search(f"1 % .* {below} .* 99 % .* {above}; {value}$", rates)
    assert re.match("subset of policy hard: 10 prompts; all .* 30 ", subset)
    assert failures == "  failures: 25.0 % wrong, 75.0 % truncated"
    assert "overlap" in overlap and overlap.endswith(": 33 %")
    assert "live groups" in live and live.endswith(": 12.3 %")
    some = summary_lines(table, 2, replace(summary, ties=Ties(30, 4)))[3]
    assert re.search("10 prompts; 4 .* 30 ", some)
    known = replace(summary, ties=Ties(10, 10), learnable=None)
    *_, subset, _, _, live = summary_lines(table, 2, known)
    assert subset == "subset of policy hard: 10 prompts" and live.endswith(": unknown")


def test_a_pool_without_scorable_samples_has_a_summary() -> None:
    table = difficulty(samples({"a": ["error"], "b": ["error"]}))
    summary = summarise(table, 1, built("hard"), 0, 1)
    assert summary.learnable is None
    text = "\n".join(summary_lines(table, 1, summary))
    assert "; 2 without" in text and "flat prior" in text
    assert text.endswith(": unknown") and "failures: none" in text


def test_the_summary_of_a_subset_that_cannot_be_filled_is_refused() -> None:
    with pytest.raises(PolicyError):
        summarise(pool_of([0, 1], ["wrong"], 4), 3, built("hard"), 0, 4)


def test_the_summary_has_the_size_that_the_policy_selected() -> None:
    def three(table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        return np.arange(3)

    three.whole = True  # type: ignore[attr-defined]
    summary = summarise(
        pool_of([0, 1, 2, 3], ["wrong"], 4), 2, Policy("three", three), 0, 4, repeats=2
    )
    assert (summary.policy, summary.size, summary.ties) == ("three", 3, None)
    assert summary.overlap == 1

"""Related questions: a group counts as one in every test, and the mean stays that of all."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from factories import finished_sweep
from hypothesis import given, settings
from hypothesis import strategies as st

import decile
from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.planning.near_duplicates import grouped_ids
from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.report.analysis import comparison_table
from orchestrator.report.compare import families
from orchestrator.report.rows import read_rows
from orchestrator.report.sections.verdicts import family_verdict
from orchestrator.stats.comparison import compare_policies
from orchestrator.stats.inference import (
    by_group,
    difference_effect,
    group_codes,
    mean_effect,
    permutation_p,
    seed_spread,
)
from orchestrator.storage.errors import UserError
from orchestrator.storage.schema import SAMPLES, without_empty
from tasks import TaskError
from tasks.prompts import Prompt, make_prompt

LONG = (
    "A farmer sells {} apples and {} pears on the market in the town where her cousin lives with "
)
LONG += (
    "his wife, two dogs and a cat; on the way home she counts what is left of the fruit. How many?"
)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.integers(1, 4), st.integers(0, 99))
def test_grouping_keeps_each_runs_mean_over_questions(
    names: list[int], runs: int, seed: int
) -> None:
    values = np.random.default_rng(seed).random((runs, len(names)))
    ids = [f"q{n}" for n in range(len(names))]
    codes = group_codes(ids, {i: str(n) for i, n in zip(ids, names, strict=True)})
    assert np.allclose(by_group(values, codes).mean(axis=1), values.mean(axis=1))
    order = np.random.default_rng(seed).permutation(len(names))
    if codes is not None:
        shuffled = mean_effect(values[:, order], codes[order])
        assert np.allclose(shuffled, mean_effect(values, codes), equal_nan=True)


def test_equal_groups_are_plain_means() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.random((3, 60)), rng.random((3, 60))
    codes = np.arange(60) % 12
    averaged = [side.reshape(3, 5, 12).mean(axis=1) for side in (first, second)]
    both = seed_spread(first.mean(axis=1)), seed_spread(second.mean(axis=1))
    assert difference_effect(first, second, both, codes) == pytest.approx(
        difference_effect(*averaged, both)
    )
    assert mean_effect(first, codes) == pytest.approx(mean_effect(averaged[0]))
    flat = first[0] - second[0]
    assert permutation_p(flat, groups=codes) == permutation_p(averaged[0][0] - averaged[1][0])


def test_one_group_says_nothing_about_others() -> None:
    ids = [f"q{n}" for n in range(20)]
    sides = {
        name: {seed: (ids, np.full(20, right)) for seed in range(3)}
        for name, right in (("a", 1.0), ("b", 0.0))
    }
    (alone,) = compare_policies(sides)
    (one,) = compare_policies(sides, groups=dict.fromkeys(ids, "g"))
    assert alone.verdict == "a"
    assert (one.verdict, one.p, one.groups, one.effect) == ("inconclusive", 1, 1, 100)


def test_needed_questions_are_questions_and_not_groups() -> None:
    rng, ids = np.random.default_rng(2), [f"q{n}" for n in range(100)]
    sides = {
        name: {seed: (ids, np.repeat(rates, 5) + rng.normal(0, 0.01, 100)) for seed in range(4)}
        for name, rates in (("a", rng.random(20)), ("b", rng.random(20)))
    }
    (plain,) = compare_policies(sides)
    (grouped,) = compare_policies(sides, groups={i: str(n // 5) for n, i in enumerate(ids)})
    assert grouped.effect == pytest.approx(plain.effect)
    assert (grouped.items, grouped.groups) == (100, 20)
    assert grouped.high - grouped.low > 2 * (plain.high - plain.low)
    assert plain.needed.items and grouped.needed.items
    assert grouped.needed.items == pytest.approx(5 * plain.needed.items, rel=0.3)


def near_duplicates(prompts: list[Prompt]) -> dict[str, str]:
    by_id = dict(sorted((prompt.prompt_id, prompt.question) for prompt in prompts))
    return grouped_ids([*by_id], pa.chunked_array([[*by_id.values()]], pa.string()))


def test_near_duplicates_of_a_test_set_are_groups() -> None:
    texts = [LONG.format(a, b) for a, b in ((3, 4), (3, 5), (7, 5))]
    others = ["What is 3 + 4?", "What is 3 + 5?", LONG.upper().format(3, 4) + "!"]
    prompts = [make_prompt("file", text, str(n), "") for n, text in enumerate(texts + others)]
    groups = near_duplicates(prompts)
    related = {prompts[n].prompt_id for n in (0, 1, 2, 5)}
    assert groups == dict.fromkeys(related, min(related))
    assert near_duplicates(prompts[::-1]) == groups
    assert near_duplicates([]) == near_duplicates(prompts[3:5]) == {}


def question_rows(**groups: Any) -> list[dict[str, Any]]:
    return [
        {"question": f"What is {n} + {n}?", "answer": str(2 * n)}
        | ({"topic": groups["of"](n)} if groups else {})
        for n in range(8)
    ]


def written(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_a_column_of_groups_travels_from_the_test_file_to_stored_scores(tmp_path: Path) -> None:
    test = written(tmp_path / "test.jsonl", question_rows(of=lambda n: n // 2 if n < 6 else None))
    options = {"train": written(tmp_path / "train.jsonl", question_rows()), "test": test}
    pool = load_pool(Dataset("own", "file", {**options, "group": "topic"}, "lenient"))
    plain = load_pool(Dataset("own", "file", options, "lenient"))
    assert pool.test_hash == plain.test_hash and plain.groups == {}
    assert sorted(pool.groups.values()) == ["0", "0", "1", "1", "2", "2"]
    ids = [p.prompt_id for p in pool.test]
    samples = pa.Table.from_pylist([{"prompt_id": i, "sample": 0} for i in ids], schema=SAMPLES)
    table = as_evaluation(samples, 0, pool.tiers("test"), groups=pool.groups)
    assert table["group"].to_pylist() == [pool.groups.get(i) for i in ids]
    assert "group" not in without_empty(as_evaluation(samples, 0, pool.tiers("test"))).column_names


@pytest.mark.parametrize("of", [lambda _: "same", lambda _: None])
def test_a_column_that_tells_no_groups_apart_is_refused(tmp_path: Path, of: Any) -> None:
    options = {"test": written(tmp_path / "test.jsonl", question_rows(of=of)), "group": "topic"}
    with pytest.raises(TaskError, match=r"test\.jsonl: .*'topic'"):
        load_pool(Dataset("own", "file", options, "lenient"))


def test_the_report_of_a_sweep_counts_groups(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, seeds=(0, 1))
    ids = [p.prompt_id for p in plan.pools["small"].test]
    groups = {i: str(n // 3) for n, i in enumerate(ids)}
    plain = families(read_rows(store, plan.cells))
    rows = read_rows(store, plan.cells, groups={"small": groups})
    grouped = families(rows)
    [one], [two] = plain[0].accuracy, grouped[0].accuracy
    assert (one.groups, two.groups) == (None, 4) and two.effect == pytest.approx(one.effect)
    assert rows[0].gain.mean == pytest.approx(plain[0].rows[0].gain.mean)
    assert rows[0].gain != plain[0].rows[0].gain
    assert comparison_table(grouped)["groups"][0].as_py() == 4
    [caveat] = [c for c in family_verdict(grouped[0]).caveats if "4 groups" in c]
    assert caveat not in family_verdict(plain[0]).caveats


def arm(scores: str, **columns: Any) -> pa.Table:
    rows = [
        {"id": n, "correct": int(s)} | {name: of(n) for name, of in columns.items()}
        for n, s in enumerate(scores)
    ]
    return pa.Table.from_pylist(rows)


def test_compare_reads_groups_or_finds_them_in_texts() -> None:
    one, two = "1111100000", "0000000000"
    plain = decile.compare({"a": arm(one), "b": arm(two)}).to_dict()["comparisons"][0]
    named = {"a": arm(one, group=lambda n: n // 5), "b": arm(two)}
    grouped = decile.compare(named).to_dict()
    assert (plain["groups"], plain["p_runs"]) == (None, 0.0625)
    assert (grouped["comparisons"][0]["groups"], grouped["comparisons"][0]["p_runs"]) == (2, 1.0)
    assert any("2 groups" in caveat for caveat in grouped["caveats"])
    topic = {name: arm(s, topic=lambda n: n // 5) for name, s in (("a", one), ("b", two))}
    assert decile.compare(topic).to_dict()["comparisons"][0]["groups"] is None
    assert decile.compare(topic, group="topic").to_dict()["comparisons"] == grouped["comparisons"]
    texts = {"question": lambda n: LONG.format(n, 4) if n < 5 else f"What is {n} + 4?"}
    found = decile.compare({"a": arm(one, **texts), "b": arm(two, **texts)}).to_dict()
    assert found["comparisons"][0]["groups"] == 6


def test_contradicting_and_useless_groups_are_refused() -> None:
    sides = {"a": arm("1010", group=lambda n: n // 2), "b": arm("1010", group=lambda n: n % 2)}
    with pytest.raises(UserError, match="question 1 is in group 0 in .* and in 1 in"):
        decile.compare(sides)
    with pytest.raises(UserError, match="--group COLUMN"):
        decile.compare({name: arm("1010", group=lambda n: 7) for name in "ab"})
    with pytest.raises(UserError, match="nothing"):
        decile.compare({name: arm("1010") for name in "ab"}, group="nothing")

"""Equal shares of clusters of similar questions."""

import runpy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from diverse_cases import chosen, kinds_of, pool_of
from factories import small_plan
from paths import ROOT

from orchestrator.difficulty.probe_table import CellTables
from orchestrator.pipeline.run import Run
from orchestrator.probing.probe import targets_of
from orchestrator.selection.stored import store_subset
from orchestrator.storage.store import Store
from policies import Policy, PolicyError, choice_rng, get_policy


@pytest.mark.parametrize("texts", [["a b"] * 4, ["", None, "?!", "a"], ["1 x", "2 x", "3 x", "y"]])
def test_questions_without_differences_or_words_are_chosen_too(texts: list[str | None]) -> None:
    table = pa.table({"question": pa.array(texts, pa.string())})
    assert sorted(chosen(table, 4, clusters=16)) == [0, 1, 2, 3]


def test_a_table_without_questions_is_refused_with_what_to_do() -> None:
    table = pool_of(sum=4)
    with pytest.raises(PolicyError, match="column question.*FILE -e NAME"):
        chosen(table.drop(["question"]), 2)
    with pytest.raises(PolicyError, match="column question, .* int"):
        chosen(table.set_column(2, "question", pa.array([1, 2, 3, 4])), 2)
    with pytest.raises(PolicyError, match="diverse: clusters is 0"):
        chosen(table, 2, clusters=0)
    with pytest.raises(PolicyError, match="diverse has 0 of 2 prompts"):
        chosen(table.append_column("pass_rate", pa.array([0.0] * 4)), 2, exclude="unsolved")


def test_a_mixture_takes_equal_shares_of_what_its_first_part_left() -> None:
    table = pool_of(sum=200, name=30, word=12)
    shares = {"random": 0.5, "diverse": {"share": 0.5, "clusters": 3}}
    mixture = get_policy("mixture", shares=shares)
    assert Policy("", mixture).reads_questions and Policy("", mixture).needs == "nothing"
    rows = [int(row) for row in mixture(table, 40, np.random.default_rng(0))]
    assert len({*rows}) == 40
    assert sorted(kinds_of(table, rows[20:]).values()) == [6, 7, 7]


def test_a_cell_gets_its_questions_and_pays_for_no_probe(tmp_path: Path) -> None:
    probe = {"samples": 4, "max_completion_length": 32, "adaptive": True}
    plan = small_plan(tmp_path, policies=["diverse", "random"], probe=probe)
    [spec] = [spec for spec in plan.probes if spec.split == "train"]
    assert targets_of(plan, spec) == []
    store = Store(plan.source.config.storage)
    tables = CellTables(Run.of(plan, store).folder(spec).outcomes())
    diverse, random = plan.cells
    assert "question" not in tables.of(random).column_names
    table = tables.of(diverse)
    questions = {p.prompt_id: p.question for p in plan.pool(spec).train}
    columns = (table[name].to_pylist() for name in ("prompt_id", "question"))
    assert questions == dict(zip(*columns, strict=True))
    subset = store_subset(store, diverse, table)
    rows = get_policy("diverse")(table, diverse.size, choice_rng(diverse.seed, "diverse"))
    assert subset["prompt_id"].to_pylist() == table["prompt_id"].take(rows).to_pylist()


def test_the_policy_of_the_example_takes_what_varied_most(tmp_path: Path) -> None:
    names = runpy.run_path(str(ROOT / "docs" / "examples" / "historical_variance.py"))
    shares = {"steady": [2, 2, 2], "varied": [0, 4, 0], "rising": [0, 1, 2]}
    rows = [
        {"update": i, "prompt_id": name, "outcomes": ["correct"] * n + ["wrong"] * (4 - n)}
        for name, counts in shares.items()
        for i, n in enumerate(counts)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "groups.parquet")
    table = pa.table({"prompt_id": ["never", "rising", "steady", "varied"]})
    rng = np.random.default_rng(0)
    chosen = names["historical_variance"](table, 2, rng, groups=tmp_path / "groups.parquet")
    assert chosen.tolist() == [3, 1]

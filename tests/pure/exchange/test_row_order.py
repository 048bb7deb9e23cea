"""The order of an exported file: each row once, where the order says."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from remedies import refused

from orchestrator.optional.exchange.exports import LAYOUTS, export_subset
from orchestrator.optional.exchange.row_order import ORDERS, RowOrder
from orchestrator.storage.errors import UserError
from tasks import Prompt, get_task, make_prompt
from tasks.prompt_table import PromptTable

TASK = get_task("file", marker="number")
SOURCES = ("a", "b")


def pool(count: int, share: float = 0.5) -> list[Prompt]:
    """Prompts whose sources are the first `share` of them and the others."""
    made = [make_prompt("file", f"What is {n} + 1?", str(n + 1), "", "") for n in range(count)]
    return [replace(p, source=SOURCES[n >= share * count]) for n, p in enumerate(made)]


def subset(prompts: list[Prompt], rates: list[float | None]) -> pa.Table:
    return pa.table(
        {
            "rank": pa.array(range(len(prompts)), pa.int32()),
            "prompt_id": [prompt.prompt_id for prompt in prompts],
            "tier": [prompt.tier for prompt in prompts],
            "pass_rate": pa.array(rates, pa.float64()),
        }
    )


def ordered(rates: list[float | None], order: RowOrder, share: float = 0.5) -> pa.Table:
    prompts = pool(len(rates), share)
    return order.apply(subset(prompts, rates), PromptTable.of(prompts))


def test_rows_are_in_the_order_that_is_named() -> None:
    rates = [0.5, None, 0.0, 1.0, 0.25, 0.75]
    for name, expected in (
        ("easy", [1.0, 0.75, 0.5, 0.25, 0.0, None]),
        ("hard", [0.0, 0.25, 0.5, 0.75, 1.0, None]),
        ("learnable", [0.5, 0.25, 0.75, 0.0, 1.0, None]),
    ):
        table = ordered(rates, RowOrder(name))
        assert table["pass_rate"].to_pylist() == expected, name
        assert table["rank"].to_pylist() == [*range(6)]
    shuffled = [ordered(rates, RowOrder("random", seed=seed)) for seed in (0, 0, 1)]
    assert shuffled[0] == shuffled[1] != shuffled[2]
    assert ordered(rates, RowOrder())["pass_rate"].to_pylist() == rates


def test_a_moving_mean_goes_from_one_pass_rate_to_the_other() -> None:
    rates = np.random.default_rng(0).uniform(size=2000).tolist()
    table = ordered(rates, RowOrder("gaussian:0.9:0.1"))
    means = [float(np.mean(part)) for part in np.array_split(table["pass_rate"].to_numpy(), 5)]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.75 and means[-1] < 0.25
    neighbours = np.abs(np.diff(table["pass_rate"].to_numpy()))
    assert neighbours.mean() > 0.05, "it is no sorted list"
    assert ordered(rates, RowOrder("gaussian:0.9→0.1")) == table


@given(
    st.lists(st.one_of(st.none(), st.sampled_from([0, 0.25, 0.5, 1])), min_size=1, max_size=30),
    st.sampled_from([*ORDERS, "gaussian:0:1", ""]),
    st.sampled_from(["", "source", "band"]),
)
def test_every_row_is_there_once(rates: list[float | None], name: str, spread: str) -> None:
    table = ordered(rates, RowOrder(name, spread))
    assert sorted(table["prompt_id"].to_pylist()) == sorted(p.prompt_id for p in pool(len(rates)))


def test_every_part_has_the_shares_of_the_whole_and_keeps_the_order_within_a_source() -> None:
    rates = np.random.default_rng(1).uniform(size=200).tolist()
    prompts = pool(200, share=0.25)
    source = {prompt.prompt_id: prompt.source for prompt in prompts}
    table = ordered(rates, RowOrder("easy", "source"), share=0.25)
    sources = [source[i] for i in table["prompt_id"].to_pylist()]
    for start in range(0, 200, 20):
        assert abs(sources[start : start + 20].count("a") - 5) <= 1
    for name in SOURCES:
        own = [r for r, s in zip(table["pass_rate"].to_pylist(), sources, strict=True) if s == name]
        assert own == sorted(own, reverse=True)


def test_what_is_unknown_is_refused() -> None:
    for order, words in (
        (RowOrder("eassy"), ("--order 'eassy'", "gaussian:0.8:0.2")),
        (RowOrder("gaussian:2:0"), ("--order", "gaussian:0.8:0.2")),
        (RowOrder("gaussian:0.2"), ("--order", "gaussian:0.8:0.2")),
        (RowOrder("gaussian:0.5:0.5"), ("--order", "gaussian:0.8:0.2")),
        (RowOrder("gaussian:.:."), ("--order", "gaussian:0.8:0.2")),
        (RowOrder("easy", "topic"), ("--spread 'topic'", "source")),
    ):
        with refused(*words, by=UserError):
            order.check()
    with refused("--spread tier", "leave --spread out", by=UserError):
        ordered([0.5, 0.25], RowOrder("easy", "tier"))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not LAYOUTS[name].counted])
def test_the_file_and_its_provenance_have_the_order(layout: str, tmp_path: Path) -> None:
    prompts = pool(4)
    out = tmp_path / ("o.jsonl" if ".jsonl" in LAYOUTS[layout].suffixes else "o.parquet")
    origin = export_subset(
        subset(prompts, [0.5, 0.0, 1.0, 0.25]), prompts, TASK, layout, out, order=RowOrder("hard")
    )
    assert origin["order"]["name"] == "hard"
    assert origin["order"]["kept"] == LAYOUTS[layout].order_kept
    if out.suffix == ".jsonl":
        answers = [
            str(row.get("answer", row.get("label")))
            for row in map(json.loads, out.read_text().splitlines())
        ]
        assert answers == ["2", "4", "1", "3"]

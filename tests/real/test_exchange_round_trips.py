"""What Decile writes, it reads again: equal prompts, rates, samples and notes of nothing lost."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exchange_files import RIGHT, WRONG, rates, subset_of
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.optional.exchange.exports import LAYOUTS, export_subset, prompts_of
from orchestrator.optional.exchange.imports import Imported, import_probe, write_import
from tasks import Prompt, get_task, make_prompt


def lost(probe: Imported) -> list[str]:
    return [
        note
        for note in probe.notes
        if "dropped: no" in note or "prompt_id of a different task" in note
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_export_imports_as_the_pool_of_its_task(tmp_path: Path, layout: str) -> None:
    """Also with a task that is not a file: the ids are those of its own data."""
    task = get_task("shuffled_objects", train=12, test=4, prompt={"preset": "paper"})
    pool = task.train()
    out = tmp_path / f"o{LAYOUTS[layout].suffixes[0]}"
    export_subset(subset_of(pool, [3, 1, 2]), pool, task, layout, out)
    for known in (None, pool):
        probe = import_probe(out, None, task, pool=known)
        assert {p.prompt_id: p for p in probe.prompts} == {p.prompt_id: p for p in pool[1:4]}
        assert rates(probe) == {pool[i].question: i / 32 for i in (1, 2, 3)}
        assert lost(probe) == []


BOX = "Put the final answer within \\boxed{}."
QUESTIONS = st.one_of(
    st.text(min_size=1),
    st.text().map(lambda text: f"{text}\n{BOX}"),
    st.sampled_from(
        ["user\n2+2?\nassistant\n", "{question}", "placeholder", '{"a": 1}', "\u2028x"]
    ),
)
ANSWERS = st.one_of(st.text(min_size=1), st.sampled_from(["4", "1,000", "So #### 4", "\\boxed{4}"]))
PRESETS: Any = st.sampled_from(
    [
        {},
        {"preset": "bare"},
        {"system": "Be brief.", "few_shot": [{"question": "a", "answer": "b"}]},
    ]
)


@st.composite
def pools(draw: Any) -> list[Prompt]:
    entries = draw(st.lists(st.tuples(QUESTIONS, ANSWERS, st.text()), min_size=1, max_size=5))
    prompts = [
        make_prompt("file", question, answer, tier or "all")
        for question, answer, tier in entries
        if question.strip() and answer.strip()
    ]
    return list({prompt.prompt_id: prompt for prompt in prompts}.values())


@settings(max_examples=30)
@given(pools(), st.booleans(), PRESETS)
def test_every_export_comes_back_equal(pool: list[Prompt], rated: bool, prompt: Any) -> None:
    if not pool:
        return
    task = get_task("file", marker="text", prompt=prompt)
    table = subset_of(pool, list(range(len(pool))))
    column = [row / 32 if rated else None for row in range(len(pool))]
    place = table.column_names.index("pass_rate")
    table = table.set_column(place, "pass_rate", pa.array(column, pa.float64()))
    for name, values in (("n", [32] * len(pool)), ("successes", [*range(len(pool))])):
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(values, pa.int32()))
    with tempfile.TemporaryDirectory() as folder:
        for layout, shape in LAYOUTS.items():
            if shape.counted and not rated:
                continue
            for suffix in shape.suffixes:
                out = Path(folder) / f"{layout}{suffix}"
                export_subset(table, pool, task, layout, out)
                probe = import_probe(out, None, task)
                assert {p.prompt_id: p for p in probe.prompts} == {p.prompt_id: p for p in pool}
                assert lost(probe) == []
                if rated:
                    assert probe.difficulty is not None
                    again = probe.difficulty.select(["prompt_id", "pass_rate"]).to_pylist()
                    rate = {p.prompt_id: r for p, r in zip(pool, column, strict=True)}
                    assert {row["prompt_id"]: row["pass_rate"] for row in again} == rate
                else:
                    assert probe.kind == "prompts"


@settings(max_examples=30)
@given(pools(), st.lists(st.sampled_from([RIGHT, WRONG, "so", ""]), min_size=1, max_size=3))
def test_every_import_comes_back_equal(pool: list[Prompt], completions: list[str]) -> None:
    if not pool:
        return
    task = get_task("file", marker="text")
    by_question = {prompt.question: prompt for prompt in pool}  # one answer to a question
    rows = [
        {"prompt_id": p.prompt_id, "question": p.question, "answer": p.answer, "tier": p.tier}
        for p in by_question.values()
    ]
    kinds: dict[str, dict[str, Any]] = {
        "samples": {"completions": completions, "truncated": completions[-1] == "so"},
        "difficulty": {"pass_rate": 0.25, "n": 4},
        "prompts": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind, columns in kinds.items():
            source = Path(folder) / f"{kind}.parquet"
            pq.write_table(pa.Table.from_pylist([row | columns for row in rows]), source)
            first = import_probe(source, None, task)
            assert first.kind == kind and first.prompts == tuple(by_question.values())
            out = Path(folder) / "out.parquet"
            write_import(first, out)
            again = import_probe(out, None, task)
            assert again.kind == kind and lost(again) == []
            assert set(again.prompts) == set(prompts_of(out)) == set(first.prompts)
            if kind == "samples":
                assert again.samples is not None and again.samples.equals(first.samples)
            if kind == "difficulty":
                assert first.difficulty is not None and again.difficulty is not None
                assert again.difficulty.equals(first.difficulty)

"""Pools as Arrow columns: the same prompts as a list, without an object per prompt."""

import errno
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning.pools import Dataset, Pool, load_pool
from orchestrator.storage.proof import canonical_hash, sequence_hash
from tasks import Prompt, TaskError, make_prompt, prompt_table
from tasks.prompt_table import PromptTable, hex_ids, hex_numbers
from tasks.question_file import QuestionFile

TEXTS = st.text("aé\n", max_size=3)
HASHED = st.builds(make_prompt, st.just("t"), TEXTS, TEXTS, TEXTS)
NAMED = st.builds(Prompt, TEXTS | st.just("0123456789abcdef"), TEXTS, TEXTS, TEXTS)
PROMPTS = st.lists(HASHED, max_size=12) | st.lists(NAMED | HASHED, max_size=12)


def table_of(prompts: Sequence[Prompt], batch: int) -> PromptTable:
    """The prompts in batches of this size."""
    parts = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
    return PromptTable(batch for part in parts for batch in PromptTable.of(part).batches)


@given(PROMPTS, st.integers(1, 5), st.data())
def test_a_table_reads_like_the_list_of_its_prompts(
    prompts: list[Prompt], batch: int, data: st.DataObject
) -> None:
    table = table_of(prompts, batch)
    assert table == prompts and list(table) == prompts and len(table) == len(prompts)
    assert bool(table) == bool(prompts) and list(reversed(table)) == prompts[::-1]
    limits = st.none() | st.integers(-15, 15)
    part = slice(data.draw(limits), data.draw(limits), data.draw(limits.filter(lambda s: s != 0)))
    assert list(table[part]) == prompts[part]
    for row in range(-len(prompts), len(prompts)):
        assert table[row] == prompts[row]
    with pytest.raises(IndexError):
        table[len(prompts)]
    rows = data.draw(st.lists(st.integers(0, max(0, len(prompts) - 1)))) if prompts else []
    assert list(table.take(np.array(rows, dtype=np.int64))) == [prompts[row] for row in rows]
    kept = data.draw(st.lists(st.booleans(), min_size=len(prompts), max_size=len(prompts)))
    assert list(table.filter(kept)) == [p for p, keep in zip(prompts, kept, strict=True) if keep]


@given(PROMPTS, st.integers(1, 5), st.lists(TEXTS | HASHED.map(lambda p: p.prompt_id)))
def test_ids_are_found_ordered_and_hashed_as_in_the_list(
    prompts: list[Prompt], batch: int, others: list[str]
) -> None:
    distinct = {p.prompt_id: p for p in reversed(prompts)}
    pool = [p for row, p in enumerate(prompts) if distinct[p.prompt_id] is prompts[row]]
    table = table_of(prompts, batch).distinct()
    assert table == pool
    ids = [p.prompt_id for p in pool]
    assert table.ids(table.order).to_pylist() == sorted(ids)
    expected = [ids.index(i) if i in ids else -1 for i in [*ids, *others]]
    assert table.rows_of(pa.array([*ids, *others], pa.string())).tolist() == expected
    assert table.with_ids([*others, *ids[:2]]) == {
        i: distinct[i] for i in {*others, *ids[:2]} if i in distinct
    }
    hashes = Pool(Dataset("d", "file", {}, "lenient"), QuestionFile(), table, PromptTable())
    assert hashes.train_hash == canonical_hash(sorted(ids))
    assert hashes.test_hash == canonical_hash([])


@given(PROMPTS, PROMPTS)
def test_test_questions_are_left_out(train: list[Prompt], test: list[Prompt]) -> None:
    questions = {prompt.question for prompt in test}
    expected = [prompt for prompt in train if prompt.question not in questions]
    assert PromptTable.of(train).without_questions(PromptTable.of(test)) == expected


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_ids_are_numbers_in_their_order(numbers: list[int]) -> None:
    ids = hex_ids(np.array(numbers, dtype=np.uint64))
    assert ids.to_pylist() == [f"{number:016x}" for number in numbers]
    back = hex_numbers(ids)
    assert back is not None and back.tolist() == numbers


@pytest.mark.parametrize("other", ["0123456789ABCDEF", "0" * 15, "0" * 17, "é" * 8, ""])
def test_any_other_id_is_not_a_number(other: str) -> None:
    assert hex_numbers(pa.array(["0" * 16, other])) is None
    assert hex_numbers(pa.array(["0" * 16, None])) is None


@given(st.lists(st.lists(TEXTS, max_size=3), max_size=4))
def test_a_sequence_is_hashed_part_by_part(parts: list[list[str]]) -> None:
    assert sequence_hash(parts) == canonical_hash([text for part in parts for text in part])


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(TaskError, match="surrogate"):
        PromptTable.of([Prompt("a", "\ud800", "1", "")])


class ByRows(QuestionFile):
    """Reads every file row by row, as any subclass does."""


# Plain values, values that are read one by one, and invalid ones.
QUESTION = st.sampled_from(
    ["1+1?", "é", " ", "", "漢", "a\nPut the final answer within \\boxed{}.", "b #### c", 7, None]
)
ANSWER = st.sampled_from(
    ["4", "-1.5", "1,000", " 2 ", "1/2", "+3", "x", "A", "(B)", "C\n#### 5", "\\boxed{6}", ""]
    + [8, 2.5]
)
TIER = st.sampled_from(["1", "hard", 3, None])
ROW: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"question": QUESTION, "answer": ANSWER}, optional={"tier": TIER, "other": ANSWER}
)
LINES = st.lists(
    ROW.map(json.dumps)
    | st.sampled_from(["", " ", "[]", "{", '{"question": "a", "question": "b", "answer": "1"}'])
    | st.sampled_from(['{"question": "a", "answer": "1"} {"question": "b", "answer": "1"}'])
    | st.sampled_from(['{"question": "\\ud800", "answer": "1"}', '{"question": "\t", "answer": 1}'])
    | st.sampled_from(['{"question": "a", "answer": "1", "x": NaN}', '{"answer": "1"}']),
    max_size=6,
)
PLAIN_LINES = st.lists(
    st.fixed_dictionaries(
        {"question": QUESTION.filter(lambda q: isinstance(q, str))}
        | {"answer": ANSWER.filter(lambda a: isinstance(a, str)), "tier": st.just("t")}
    ).map(json.dumps),
    max_size=6,
)
OPTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "marker": st.sampled_from(["number", "letter", "text"]),
        "skip_invalid": st.booleans(),
        "tier": st.sampled_from([None, "tier"]),
        "prompt": st.sampled_from([None, {"preset": "bare"}]),
    }
)


def read(task: QuestionFile) -> Any:
    """The prompts and notes of a task, or its error."""
    try:
        return list(task.prompt_table("train")), task.notes, task.provenance
    except TaskError as error:
        return str(error)


@given(LINES | PLAIN_LINES, OPTIONS, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_columns_and_rows_of_json_lines_are_the_same_prompts(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    options: dict[str, Any],
    newline: str,
    end: bool,
) -> None:
    file = tmp_path_factory.getbasetemp() / "same.jsonl"
    file.write_text(newline.join(lines) + newline * end, newline="")
    expected = read(ByRows(train=str(file), **options))
    assert read(QuestionFile(train=str(file), **options)) == expected


@given(st.lists(ROW, max_size=6), OPTIONS)
def test_columns_and_rows_of_parquet_are_the_same_prompts(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    file = tmp_path_factory.getbasetemp() / "same.parquet"
    try:
        pq.write_table(pa.Table.from_pylist(rows), file)
    except pa.ArrowException:
        return  # values of different types are no column
    expected = read(ByRows(train=str(file), **options))
    assert read(QuestionFile(train=str(file), **options)) == expected


def test_what_neither_reader_can_read_is_refused_by_both(tmp_path: Path) -> None:
    answer, texts = pa.array(["1"]), pa.array(["a"])
    no_utf8 = pa.Array.from_buffers(pa.string(), 1, texts.buffers()[:2] + [pa.py_buffer(b"\xff")])
    tables = {
        "two columns 'question'": pa.table([texts, texts, answer], ["question"] * 2 + ["answer"]),
        "'utf-8' codec": pa.table([no_utf8, answer], ["question", "answer"]),
    }
    file = tmp_path / "a.parquet"
    for message, table in tables.items():
        pq.write_table(table, file)
        both = [read(cls(train=str(file))) for cls in (QuestionFile, ByRows)]
        assert message in both[0] and both[0] == both[1]
    lines = tmp_path / "a.jsonl"
    lines.write_text(json.dumps({"question": "a", "answer": "1"})[:-1] + ', "x": ' + "[" * 99_999)
    assert "a.jsonl:1: invalid JSON: " in read(QuestionFile(train=str(lines)))


def test_a_split_by_content_is_the_same_by_columns_and_by_rows(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    rows = [{"question": f"{i} + 1?", "answer": str(i + 1)} for i in range(500)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for share in (0.2, 1e-18, 0.999999):
        one, two = (cls(path=str(file), test_share=share) for cls in (QuestionFile, ByRows))
        assert (one.train(), one.test()) == (two.train(), two.test())
        limit = share * 2**64
        assert one.test() == [p for p in two.train() + two.test() if int(p.prompt_id, 16) < limit]


def test_no_prompt_of_a_plain_file_becomes_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split, first, count in (("train", 0, 3000), ("test", 5000, 20)):
        rows = [{"question": f"Is it {i}?", "answer": str(i)} for i in range(first, first + count)]
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    created = []
    monkeypatch.setattr(Prompt, "__init__", counted(Prompt.__init__, created))
    files = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "test")}
    pool = load_pool(Dataset("d", "file", files, "lenient", drop_overlap=True))
    assert pool.train_hash and pool.overlap(pool.test) == [] and len(pool.train) == 3000
    assert pool.tiers("train") and not created
    assert pool.train[7].question == "Is it 7?" and len(created) == 1


def counted(original: Any, calls: list[int]) -> Any:
    """A method that records its calls."""

    def method(self: Any, *arguments: Any) -> None:
        calls.append(1)
        original(self, *arguments)

    return method


@given(PROMPTS, st.integers(1, 5))
def test_a_large_pool_is_read_from_files_without_names(prompts: list[Prompt], batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_table, "LEAST", 40)
        table = PromptTable(prompt_table.mapped(table_of(prompts, batch).batches))
        assert table == prompts
        assert list(table.take(table.order)) == [prompts[row] for row in table.order]
        assert list(table.filter([True] * len(table))) == prompts
    assert sum(b.nbytes for b in table.batches) < 40 or is_mapped(table.batches[0])


def is_mapped(batch: pa.RecordBatch) -> bool:
    """Whether the texts of a batch are within a memory-mapped file of this process."""
    address = batch.column(0).buffers()[1].address
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if first <= address < last:
            return "(deleted)" in line
    return False


def test_a_pool_stays_in_memory_where_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(prompt_table, "LEAST", 1)
    monkeypatch.setattr(tempfile, "TemporaryFile", fails)
    prompts = [make_prompt("t", f"question {i}", str(i), "all") for i in range(3)]
    assert PromptTable.of(prompts) == prompts
    assert "full" in caplog.text and "TMPDIR" in caplog.text

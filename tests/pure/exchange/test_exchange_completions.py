"""Imports of stored completions, with their questions."""

import gzip
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from exchange_files import RIGHT, TASK, WRONG, imported, noted, outcomes, refusal, select, written

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.difficulty.remedies import FORM
from orchestrator.optional.exchange.exports import (
    export_subset,
    prompts_of,
    read_subset_file,
    summary_of,
)
from orchestrator.optional.exchange.imports import import_file, import_probe, write_import
from orchestrator.selection.from_samples import select_samples
from orchestrator.selection.subsets import reason
from orchestrator.storage.schema import SAMPLES
from tasks import make_prompt


@pytest.mark.parametrize("kind", ["in.jsonl", "in.parquet"])
def test_completions_are_marked_by_the_tasks_own_marker(tmp_path: Path, kind: str) -> None:
    rows = [
        {"question": "2+2", "answer": "4", "completion": RIGHT},
        {"question": "1+1", "answer": "2", "completion": WRONG},
        {"question": "2+2", "answer": "4", "completion": "hm"},
    ]
    probe = import_probe(written(tmp_path, rows, kind), None, TASK)
    assert probe.layout == "completions"
    assert probe.samples is not None and probe.samples.schema.equals(SAMPLES)
    assert outcomes(probe) == ["correct", "wrong", "unparsed"]
    four, two = (make_prompt("file", q, a, "all") for q, a in (("2+2", "4"), ("1+1", "2")))
    assert probe.prompts == (four, two)
    assert probe.samples["prompt_id"].to_pylist() == [p.prompt_id for p in (four, two, four)]
    assert probe.samples["sample"].to_pylist() == [0, 0, 1]
    assert probe.samples["tokens"].to_pylist() == [None] * 3
    assert set(probe.samples["marker"].to_pylist()) == {TASK.marker_id} == {probe.marker}
    assert probe.source.startswith(f"{kind} sha256:")


def test_lists_carry_truncation_tokens_and_finish(tmp_path: Path) -> None:
    rows = [
        {
            "question": "2+2",
            "answer": 4,
            "completions": ["so", RIGHT],
            "truncated": [True, False],
            "tokens": [9, 4],
        },
        {"question": "2+3", "answer": "5", "responses": ["so", ""], "finish": ["length", "error"]},
        {"question": "3+3", "answer": "6", "completions": ["so", "or"], "truncated": True},
    ]
    probe = imported(tmp_path, rows, TASK)
    assert outcomes(probe) == ["truncated", "correct", "truncated", "error", *["truncated"] * 2]
    assert probe.samples is not None
    assert probe.samples["tokens"].to_pylist() == [9, 4, None, None, None, None]
    assert probe.samples["finish"].to_pylist()[:4] == ["length", "stop", "length", "error"]


def test_rows_without_question_answer_or_completion_are_dropped_with_a_note(tmp_path: Path) -> None:
    rows = [
        {"question": "2+2", "answer": "4", "completion": RIGHT},
        {"question": " ", "answer": "4", "completion": RIGHT},
        *[{"question": "2+2", "answer": None, "completion": RIGHT}] * 4,
        {"question": "2+2", "answer": "4", "completions": []},
    ]
    probe = imported(tmp_path, rows, TASK)
    assert outcomes(probe) == ["correct"]
    for words in (
        "1 .* question .line 2.",
        "1 .* completion .line 7.",
        "4 .* answer .line 3, .*….",
    ):
        assert noted(probe, f"^{words}$")


def test_sample_numbers_of_the_file_are_kept(tmp_path: Path) -> None:
    row = {"question": "2+2", "answer": "4", "completion": RIGHT}
    probe = imported(tmp_path, [row | {"sample": 7}, row | {"sample": 2}], TASK)
    assert probe.samples is not None and probe.samples["sample"].to_pylist() == [7, 2]
    message = refusal(tmp_path, [row | {"sample": 7}, row | {"sample": 7}], TASK)
    assert re.search("in.jsonl:2 .* 7 .* line 1", message)
    assert "in.jsonl:2 " in refusal(tmp_path, [row | {"sample": 7}, row], TASK)


def test_an_answer_column_that_changes_with_the_completion_is_refused(tmp_path: Path) -> None:
    rows = [{"question": "2+2", "answer": a, "completion": RIGHT} for a in ("4", "5")]
    message = refusal(tmp_path, rows, TASK)
    assert re.search("in.jsonl:2 .*'5'.* line 1, .*'4'", message)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"completion": 7}, "completion has int: "),
        ({"completions": ["a", 7]}, "completions has list of int, str: "),
        ({"truncated": "maybe"}, "truncated is 'maybe': "),
        ({"truncated": 2}, "truncated is 2: "),
        ({"truncated": [True, True]}, "truncated has 2 entries for 1 "),
        ({"finish": "ended"}, "finish 'ended': write stop, length or error"),
        ({"tokens": -1}, "invalid tokens -1: "),
        ({"tokens": True}, "invalid tokens True"),
        ({"sample": 0.5}, "invalid sample 0.5"),
    ],
)
def test_an_invalid_column_is_named(tmp_path: Path, change: dict, words: str) -> None:
    row = {"question": "2+2", "answer": "4"}
    row |= change if "completion" in change or "completions" in change else {"completion": RIGHT}
    message = refusal(tmp_path, [row | change], TASK)
    assert f"in.jsonl:1: {words}" in message


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    row = {"question": "2+2", "answer": "4", "completion": RIGHT}
    file = tmp_path / "in.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(row).encode()))
    assert outcomes(import_probe(file, None, TASK)) == ["correct"]


def test_different_numbers_of_samples_become_a_difficulty_table(tmp_path: Path) -> None:
    rows = [
        {"question": "2+2", "answer": "4", "tier": "a", "completions": [RIGHT, WRONG, "hm"]},
        {"question": "1+3", "answer": "4", "tier": "b", "completion": RIGHT},
    ]
    probe = imported(tmp_path, rows, TASK)
    assert probe.kind == "difficulty" and outcomes(probe)[1:3] == ["wrong", "unparsed"]
    assert any(note.startswith("prompts have 1 to 3 samples") for note in probe.notes)
    write_import(probe, tmp_path / "probe.parquet")
    written_rows = pq.read_table(tmp_path / "probe.parquet").to_pylist()
    assert {(r["question"], r["n"], r["unparsed"], r["tier"]) for r in written_rows} == {
        ("2+2", 3, 1, "a"),
        ("1+3", 1, 0, "b"),
    }
    subset = select(tmp_path / "probe.parquet", "hard", "1")
    assert pq.read_table(subset)["tier"].to_pylist() == ["a"]


def test_a_written_import_can_be_selected_from(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"{n}+{n}",
            "answer": str(2 * n),
            "tier": "sum",
            "completions": [rf"\boxed{{{2 * n}}}"] * n + [r"\boxed{-1}"] * (4 - n),
        }
        for n in range(1, 5)
    ]
    out = tmp_path / "new" / "probe.parquet"
    summary = import_file(written(tmp_path, rows), TASK, out)
    assert (summary["kind"], summary["prompts"], summary["rows"]) == ("samples", 4, 16)
    assert summary_of(out) == summary
    assert [file.name for file in out.parent.iterdir()] == ["probe.parquet"]
    subset = select(out, "hard", "2")
    chosen = read_subset_file(subset)
    texts = prompts_of(out)
    questions = {p.prompt_id: p.question for p in texts}
    assert [questions[name] for name in chosen["prompt_id"].to_pylist()] == ["1+1", "2+2"]
    assert {p.tier for p in texts} == {"sum"}
    why = export_subset(subset, texts, TASK, "jsonl", tmp_path / "out.jsonl")
    assert why["subset"]["policy"] == "hard" and why["file"].startswith("subset.parquet sha256:")


@pytest.mark.parametrize(("texts", "noted"), [(["hm"] * 4, True), ([RIGHT, WRONG] * 2, False)])
def test_a_pool_that_the_marker_does_not_read_is_noted_by_import_and_select(
    tmp_path: Path, texts: list[str], noted: bool
) -> None:
    rows = [{"question": f"{i}+{4 - i}", "answer": "4", "completions": texts} for i in range(4)]
    file = tmp_path / "probe.parquet"
    summary = import_file(written(tmp_path, rows), TASK, file)
    assert any(FORM in note for note in summary["notes"]) == noted
    why = select_samples([file], PolicyEntry(policy="hard"), "2", 0, tmp_path / "subset.parquet")
    assert any(FORM in note for note in why.get("notes", [])) == noted
    assert reason(pq.read_table(tmp_path / "subset.parquet")).get("notes") == why.get("notes")

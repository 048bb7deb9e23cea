"""Prompts without a gold answer as a file for annotators.

A data set reads their answers with its setting `labels` (`tasks.sources.labels`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.pool_spellings import PoolSpellings
from orchestrator.difficulty.sources import rated_rows
from orchestrator.planning.cells import Cell
from orchestrator.planning.pool_columns import pool_columns
from orchestrator.planning.pools import Pool
from orchestrator.plugins.csv_text import csv_text
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.selection.stored import request_of
from orchestrator.selection.subsets import unranked
from orchestrator.storage.errors import UserError
from orchestrator.storage.local_files import check_output
from orchestrator.storage.store import Store
from policies import PolicyError
from tasks import Prompt
from tasks.prompt_table import PromptTable

SUFFIXES = (".jsonl", ".csv")


class ToLabel(NamedTuple):
    """Rows for annotators, notes on shortages, and the prompts that were read."""

    rows: list[dict[str, Any]]
    notes: list[str]
    counts: RowCounts


def prompts_to_label(probe: PlanProbe, cell: Cell, other: PlanProbe | None = None) -> ToLabel:
    """The prompts without a gold answer that the cell's policy chooses, best first.

    As many as the cell's subset has, or all that are left. other: the probe that it ranks by, if it
    is not one of the plan's. Raises PolicyError for a policy that ranks by gold answers, and
    UserError if no prompt lacks one.
    """
    pool = probe.plan.pool(probe.spec)
    table = probe.tables_by(other).of(cell, unlabelled=True)
    table = table.filter(pc.invert(table["labelled"]))
    if not table.num_rows:
        raise UserError(f"every prompt of {probe.spec.dataset.variant_key} has a gold answer")
    if cell.reads_golds:
        own = ", or set reads_golds = False in it" if ":" in cell.static_policy.policy else ""
        raise PolicyError(
            f"policy {cell.policy!r} ranks prompts by their gold answers: write one that does "
            f"not need them, such as least_agreed or random{own}"
        )
    if cell.difficulty and not rated_rows(table).any():
        title = cell.difficulty.title
        raise UserError(f"{title}: has no prompt without a gold answer: write another difficulty")
    size, notes = min(cell.size, table.num_rows), list[str]()
    if size < cell.size:
        notes.append(
            f"fewer than the {cell.size:,} of the budget: all other prompts have a gold answer"
        )
    policy = cell.static_policy.build()
    request = request_of(cell)
    chosen = policy(table, size, request.rng)
    notes += unranked(policy, table, chosen, request.difficulty)
    ties, _ = policy.tied(table, chosen)
    if ties and size == ties.chosen < ties.pool:
        notes.append(f"chosen at random: {ties.pool:,} prompts tie, these {size:,} among them")
    ids = table["prompt_id"].to_numpy()[chosen]
    prompts = pool.train.with_ids(ids)
    folder = ProbeFolder(probe.store, probe.spec, [*prompts.values()], pool.task)
    outcomes, texts = folder.with_answers()
    votes = PoolSpellings(texts, pool.task, folder.prompts).votes(outcomes.by_id)
    by_id = sorted(ids)  # the order of the votes' rows
    answers: dict[str, list[dict[str, Any]]] = {}
    spellings = votes.texts.take(pa.array(votes.text)).to_pylist()
    for row, text, count in zip(votes.row, spellings, votes.samples.tolist(), strict=True):
        answers.setdefault(by_id[row], []).append({"answer": text, "count": count})
    rows = _rows([prompts[i] for i in ids], answers)
    left_out = {
        "with a gold answer": len(pool.train) - table.num_rows,
        f"not chosen by {cell.policy}": table.num_rows - len(rows),
    }
    return ToLabel(rows, notes, RowCounts(len(pool.train), left_out, len(rows)))


def test_questions_to_label(pools: Sequence[Pool]) -> ToLabel:
    """The test questions without a gold answer. Raises UserError if a pool has none."""
    rows, labelled = list[dict[str, Any]](), 0
    for pool in pools:
        if not pool.unlabelled_test:
            raise UserError(f"every test question of {pool.dataset.variant_key} has a gold answer")
        rows += _rows([*pool.unlabelled_test], {})
        labelled += len(pool.test)
    counts = RowCounts(len(rows) + labelled, {"with a gold answer": labelled}, len(rows))
    return ToLabel(rows, [], counts)


def _rows(
    prompts: Sequence[Prompt], answers: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    """A row for each prompt: id, the columns of the user's data, question, the model's answers with
    their counts, most frequent first, and an empty answer."""
    columns = pool_columns(PromptTable.of(prompts))
    kept = columns.to_pylist() if columns.num_columns else [{}] * len(prompts)
    rows = []
    for prompt, own in zip(prompts, kept, strict=True):
        by_count = sorted(answers.get(prompt.prompt_id, []), key=lambda each: -each["count"])
        texts = {"question": prompt.question, "answers": by_count, "answer": ""}
        rows.append({"prompt_id": prompt.prompt_id, **own, **texts})
    return rows


def check_label_file(file: Path, *, replace: bool = False) -> None:
    """Raise UserError unless the file can be written; one that exists may hold labels."""
    check_output(file, SUFFIXES)
    if file.exists() and not replace:
        raise UserError(f"{file} exists, and may hold labels: write another name")


def write_to_label(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows as JSON lines or CSV, whole or not at all."""
    if file.suffix == ".jsonl":
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    else:
        flat = []
        for row in rows:
            counts = [f"{each['answer']} ({each['count']}×)" for each in row["answers"]]
            flat.append({**row, "answers": "; ".join(counts)})
        names = [*dict.fromkeys(name for row in flat for name in row)]
        cells = ([row.get(name, "") for name in names] for row in flat)
        text = csv_text(names, cells, as_typed=("prompt_id", "answer"))
    Store(str(file.absolute().parent)).write_bytes(text.encode(), file.name)

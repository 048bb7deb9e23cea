"""Prompts without a gold answer as a file for annotators, whose answers come back as labels.

A data set reads them with its setting `labels` (`tasks.sources.labels`).
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from orchestrator.planning.cells import Cell
from orchestrator.planning.pool_columns import pool_columns
from orchestrator.planning.pools import Pool
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store, check_output
from policies import PolicyError
from tasks import Prompt, Task
from tasks.prompt_table import PromptTable

SUFFIXES = (".jsonl", ".csv")


def prompts_to_label(probe: PlanProbe, cell: Cell) -> list[dict[str, Any]]:
    """The prompts that the cell's policy chooses of those without a gold answer, best first.

    As many as the cell's subset has, or all that are left. Raises PolicyError for a policy that
    ranks by gold answers, and UserError where no prompt lacks one.
    """
    pool = probe.plan.pool(probe.spec)
    table = probe.tables.of(cell, unlabelled=True)
    table = table.filter(pc.invert(table["labelled"]))
    if not table.num_rows:
        raise UserError(f"every prompt of {probe.spec.dataset.title} has a gold answer")
    if cell.reads_golds:
        raise PolicyError(
            f"policy {cell.policy!r} ranks prompts by their gold answers: write one that does "
            "without, such as least_agreed or random"
        )
    size = min(cell.size, table.num_rows)
    chosen = cell.rule.build()(table, size, np.random.default_rng(cell.seed))
    ids = table["prompt_id"].to_numpy()[chosen]
    prompts = pool.train.with_ids(ids)
    samples = ProbeFolder(probe.store, probe.spec, [*prompts.values()], pool.task).samples(
        ("extracted",), partial=True
    )
    answers: dict[str, Counter[str]] = {i: Counter() for i in ids}
    for row in samples.filter(samples["extracted"].is_valid()).to_pylist():
        answers[row["prompt_id"]][row["extracted"]] += 1
    return _rows([prompts[i] for i in ids], pool.task, answers)


def test_questions_to_label(pool: Pool) -> list[dict[str, Any]]:
    """The test questions without a gold answer. Raises UserError where none lacks one."""
    if not pool.unlabelled_test:
        raise UserError(f"every test question of {pool.dataset.title} has a gold answer")
    return _rows([*pool.unlabelled_test], pool.task, {})


def _rows(
    prompts: Sequence[Prompt], task: Task, answers: Mapping[str, Counter[str]]
) -> list[dict[str, Any]]:
    """A row for each prompt: id, the columns of the user's data, question, the model's answers with
    their counts, most frequent first, and an empty answer."""
    columns = pool_columns(PromptTable.of(prompts))
    kept = columns.to_pylist() if columns.num_columns else [{}] * len(prompts)
    return [
        {"prompt_id": prompt.prompt_id, **own, "question": prompt.question}
        | {"answers": _classes(answers.get(prompt.prompt_id, Counter()), task.own(prompt)[0])}
        | {"answer": ""}
        for prompt, own in zip(prompts, kept, strict=True)
    ]


def _classes(answers: Counter[str], task: Task) -> list[dict[str, Any]]:
    """Answers that the marker does not take for the same, each by its most frequent spelling."""
    classes: dict[str, int] = {}
    for answer, count in answers.most_common():
        same = next((other for other in classes if task.same_answer(other, answer)), answer)
        classes[same] = classes.get(same, 0) + count
    by_count = sorted(classes.items(), key=lambda each: -each[1])
    return [{"answer": answer, "count": count} for answer, count in by_count]


def check_label_file(file: Path) -> None:
    """Raise UserError unless the file can be written; one that exists may hold labels."""
    check_output(file, SUFFIXES)
    if file.exists():
        raise UserError(f"{file} exists, and may hold labels: write another name")


def write_to_label(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows as JSON lines or CSV, whole or not at all."""
    if file.suffix == ".jsonl":
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    else:
        flat = [{**row, "answers": _as_text(row["answers"])} for row in rows]
        buffer = io.StringIO()
        names = dict.fromkeys(name for row in flat for name in row)
        writer = csv.DictWriter(buffer, [*names], lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        text = buffer.getvalue()
    Store(str(file.absolute().parent)).write_bytes(text.encode(), file.name)


def _as_text(answers: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(f"{each['answer']} ({each['count']}×)" for each in answers)

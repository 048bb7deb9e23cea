"""Prompts on whose answer the completions agree, whatever the gold answer is. Pure.

Where a model never gives the gold answer and most of its completions agree on another value, the
gold answer is suspect. A systematic mistake of the model looks the same, so the share of agreed
answers that are the gold one says how much such a finding is worth in this pool.
"""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.estimates import counts
from tasks.spelling import normalize_latex

SHARE = 2 / 3  # of a prompt's completions that must agree
LEAST = 3  # completions that must agree, however few were drawn
_PLAIN = re.compile(r"[\w.()-]*")  # numbers, letters and words have one spelling


class SuspectGold(NamedTuple):
    """A prompt that was never solved: `votes` of its `n` completions agree on `answer`."""

    prompt_id: str
    answer: str
    votes: int
    n: int


class Agreement(NamedTuple):
    """Prompts with an agreed answer: how many agree on the gold one, how many on another.

    `suspects` are those of the others that were never solved, the most unanimous first.
    """

    on_gold: int
    on_other: int
    suspects: list[SuspectGold]


def agreement(samples: pa.Table, table: pa.Table) -> Agreement:
    """The agreed answers of a pool.

    `samples` has the columns prompt_id, outcome and extracted; `table` is their difficulty table.
    Answers that differ only in spelling (`\\dfrac12`, `\\frac{1}{2}`) are the same.
    """
    wrong = samples.filter(
        pc.and_(pc.equal(samples["outcome"], "wrong"), pc.is_valid(samples["extracted"]))
    )
    ids = table["prompt_id"].combine_chunks()
    row = pc.index_in(wrong["prompt_id"], value_set=ids).to_numpy()
    return agreement_of_rows(row, wrong["extracted"], table)


def agreement_of_rows(row: np.ndarray, answers: pa.ChunkedArray, table: pa.Table) -> Agreement:
    """The agreed answers, from the wrong ones and the row in `table` of each one's prompt."""
    n = counts(table, "n")
    needed = np.maximum(np.ceil(SHARE * n - 1e-9), LEAST)
    disputed = pa.array((counts(table, "wrong") >= needed)[row])
    agreed = _most_common(pa.array(row).filter(disputed), answers.filter(disputed))
    row = agreed["row"].to_numpy()
    enough = agreed["votes"].to_numpy() >= needed[row]
    chosen, solved = row[enough], counts(table, "successes")
    others = [
        (SuspectGold(prompt_id, answer, votes, int(n[i])), i)
        for prompt_id, answer, votes, i in zip(
            table["prompt_id"].take(pa.array(chosen)).to_pylist(),
            *(agreed[name].filter(pa.array(enough)).to_pylist() for name in ("answer", "votes")),
            chosen.tolist(),
            strict=True,
        )
    ]
    suspects = [suspect for suspect, i in others if solved[i] == 0]
    suspects.sort(key=lambda s: (-s.votes / s.n, s.prompt_id))
    return Agreement(int(np.count_nonzero(solved >= needed)), len(others), suspects)


def _most_common(row: pa.Array, wrong: pa.ChunkedArray) -> pa.Table:
    """One row per prompt: its row, its most common extracted answer, and its votes."""
    answers = wrong.combine_chunks().dictionary_encode()
    spellings = [_spelling(text) for text in answers.dictionary.to_pylist()]
    keyed = pa.table(
        {
            "row": row,
            "spelling": pa.array(spellings, pa.string()).take(answers.indices),
            "answer": wrong,
        }
    )
    grouped = keyed.group_by(["row", "spelling"]).aggregate([("answer", "min"), ([], "count_all")])
    order = [("row", "ascending"), ("count_all", "descending"), ("spelling", "ascending")]
    ranked = grouped.sort_by(order)
    rows = ranked["row"].to_numpy()
    first = np.ones(len(rows), dtype=bool)
    first[1:] = rows[1:] != rows[:-1]
    return (
        ranked.filter(pa.array(first))
        .select(["row", "answer_min", "count_all"])
        .rename_columns(["row", "answer", "votes"])
    )


def _spelling(text: str) -> str:
    return (text if _PLAIN.fullmatch(text) else normalize_latex(text)).casefold()

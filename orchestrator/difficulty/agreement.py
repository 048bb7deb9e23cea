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
from tasks.marking.spelling import normalize_latex

SHARE = 2 / 3  # of a prompt's completions that must agree
LEAST = 3  # completions that must agree, however few were drawn
MOST = 100  # suspects that are kept
ROWS = 1_000_000  # prompts that are compared at once
_PLAIN = re.compile(r"[\w.()-]*")  # numbers, letters and words have one spelling
_ASCII = r"\A[A-Za-z0-9_.()-]*\z"  # the same, of which Arrow changes the case


class SuspectGold(NamedTuple):
    """A prompt that was never solved: `votes` of its `n` completions agree on `answer`."""

    prompt_id: str
    answer: str
    votes: int
    n: int


class Agreement(NamedTuple):
    """Prompts with an agreed answer: how many agree on the gold one, how many on another.

    `suspected` of the others were never solved; `suspects` are the MOST most unanimous of those.
    """

    on_gold: int
    on_other: int
    suspected: int
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
    on_gold = on_other = suspected = 0
    suspects: list[SuspectGold] = []
    for start in range(0, table.num_rows, ROWS):
        prompts = table.slice(start, ROWS)
        here = (row >= start) & (row < start + ROWS)
        part = _agreement_of_part(row[here] - start, answers.filter(pa.array(here)), prompts)
        on_gold += part.on_gold
        on_other += part.on_other
        suspected += part.suspected
        suspects += part.suspects
    suspects.sort(key=lambda s: (-s.votes / s.n, s.prompt_id))
    return Agreement(on_gold, on_other, suspected, suspects[:MOST])


def _agreement_of_part(row: np.ndarray, answers: pa.ChunkedArray, prompts: pa.Table) -> Agreement:
    n, solved = counts(prompts, "n"), counts(prompts, "successes")
    needed = np.maximum(np.ceil(SHARE * n - 1e-9), LEAST)
    disputed = (counts(prompts, "wrong") >= needed)[row]
    agreed = _votes(row[disputed], answers.filter(pa.array(disputed)))
    rows, votes = agreed["row"].to_numpy(), agreed["votes"].to_numpy()
    enough = votes >= needed[rows]  # of a prompt's answers at most one
    never = np.flatnonzero(enough & (solved[rows] == 0))
    # The rows of a difficulty table are in the order of their ids.
    first = never[np.lexsort((rows[never], -votes[never] / n[rows[never]]))[:MOST]]
    columns = (
        prompts["prompt_id"].take(pa.array(rows[first])).to_pylist(),
        agreed["answer"].take(pa.array(first)).to_pylist(),
        votes[first].tolist(),
        n[rows[first]].tolist(),
    )
    suspects = [SuspectGold(*values) for values in zip(*columns, strict=True)]
    on_gold, on_other = np.count_nonzero(solved >= needed), np.count_nonzero(enough)
    return Agreement(int(on_gold), int(on_other), len(never), suspects)


def _votes(row: np.ndarray, wrong: pa.ChunkedArray) -> pa.Table:
    """The row of a prompt, an extracted answer, and its votes: a row per prompt and spelling."""
    answers = wrong.combine_chunks().dictionary_encode()
    texts = answers.dictionary
    other = pc.invert(pc.match_substring_regex(texts, _ASCII))
    others = [
        (text if _PLAIN.fullmatch(text) else normalize_latex(text)).casefold()
        for text in texts.filter(other).to_pylist()
    ]
    spellings = pc.replace_with_mask(pc.ascii_lower(texts), other, pa.array(others, pa.string()))
    keyed = pa.table({"row": row, "spelling": spellings.take(answers.indices), "answer": wrong})
    grouped = keyed.group_by(["row", "spelling"]).aggregate([("answer", "min"), ([], "count_all")])
    return grouped.select(["row", "answer_min", "count_all"]).rename_columns(
        ["row", "answer", "votes"]
    )

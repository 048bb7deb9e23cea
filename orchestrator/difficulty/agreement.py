"""Prompts on whose answer the completions agree, whatever the gold answer is. Pure.

Where most completions with an answer agree on another one than the gold answer, the gold answer is
suspect. Completions without an answer say nothing, so they do not count. A systematic mistake of
the model looks the same, so the share of agreed answers that are the gold one says how much such a
finding is worth in this pool. How many planted errors this finds: `python -m benchmarks.suspects`.
"""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.estimates import counts
from tasks.marking.spelling import normalize_latex

SHARE = 2 / 3  # of a prompt's completions with an answer that must agree
LEAST = 3  # completions that must agree, however few were drawn
MOST = 100  # suspects that are kept
ROWS = 1_000_000  # prompts that are compared at once
_PLAIN = re.compile(r"[\w.()-]*")  # numbers, letters and words have one spelling
_ASCII = r"\A[A-Za-z0-9_.()-]*\z"  # the same, of which Arrow changes the case


class SuspectGold(NamedTuple):
    """A prompt of which `votes` of its `n` completions agree on `answer`, not the gold one."""

    prompt_id: str
    answer: str
    votes: int
    n: int


class Agreement(NamedTuple):
    """Prompts with an agreed answer: how many agree on the gold one, how many on another.

    suspected: whether each row of the difficulty table is one of the latter. `suspects` are the
    MOST most unanimous of them.
    """

    on_gold: int
    on_other: int
    suspected: np.ndarray
    suspects: list[SuspectGold]

    @property
    def credible(self) -> bool:
        """Whether most agreed answers are the gold ones; otherwise it is the model that errs."""
        return self.on_gold > self.on_other


def agreement(samples: pa.Table, table: pa.Table, *, share: float = SHARE) -> Agreement:
    """The agreed answers of a pool: given by at least a `share` of completions with an answer.

    `samples` has the columns prompt_id, outcome and extracted; `table` is their difficulty table.
    Answers that differ only in spelling (`\\dfrac12`, `\\frac{1}{2}`) are the same.
    """
    wrong = samples.filter(
        pc.and_(pc.equal(samples["outcome"], "wrong"), pc.is_valid(samples["extracted"]))
    )
    ids = table["prompt_id"].combine_chunks()
    row = pc.index_in(wrong["prompt_id"], value_set=ids).to_numpy()
    return agreement_of_rows(row, wrong["extracted"], table, share=share)


def agreement_of_rows(
    row: np.ndarray, answers: pa.ChunkedArray, table: pa.Table, *, share: float = SHARE
) -> Agreement:
    """The agreed answers, from the wrong ones and the row in `table` of each one's prompt."""
    on_gold, suspected = 0, np.zeros(table.num_rows, dtype=bool)
    suspects: list[SuspectGold] = []
    for start in range(0, table.num_rows, ROWS):
        prompts = table.slice(start, ROWS)
        here = (row >= start) & (row < start + ROWS)
        solved, wrong = counts(prompts, "successes"), counts(prompts, "wrong")
        needed = np.maximum(np.ceil(share * (solved + wrong) - 1e-9), LEAST)
        on_gold += int(np.count_nonzero(solved >= needed))
        own, texts = row[here] - start, answers.filter(pa.array(here))
        disputed = (wrong >= needed)[own]
        agreed = _votes(own[disputed], texts.filter(pa.array(disputed)))
        agreed = agreed.filter(pa.array(agreed["votes"].to_numpy() >= needed[agreed["row"]]))
        rows, votes = agreed["row"].to_numpy(), agreed["votes"].to_numpy()
        suspected[start + rows] = True  # each once: of a prompt's answers, at most one is enough
        n = counts(prompts, "n")[rows]
        # The rows of a difficulty table are in the order of their ids.
        first = np.lexsort((rows, -votes / n))[:MOST]
        columns = (
            prompts["prompt_id"].take(pa.array(rows[first])).to_pylist(),
            agreed["answer"].take(pa.array(first)).to_pylist(),
            votes[first].tolist(),
            n[first].tolist(),
        )
        suspects += [SuspectGold(*values) for values in zip(*columns, strict=True)]
    suspects.sort(key=lambda s: (-s.votes / s.n, s.prompt_id))
    return Agreement(on_gold, int(np.count_nonzero(suspected)), suspected, suspects[:MOST])


def with_suspected(table: pa.Table, agreement: Agreement) -> pa.Table:
    """The difficulty table with its column `suspected`."""
    position = table.schema.get_field_index("suspected")
    return table.set_column(position, "suspected", pa.array(agreement.suspected))


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

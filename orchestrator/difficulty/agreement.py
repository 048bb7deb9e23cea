"""Prompts on whose answer the completions agree, whatever the gold answer is. Pure.

Where most completions with an answer agree on another one than the gold answer, they dispute it.
Completions without an answer say nothing, so they do not count. A mistake that the model often
makes looks the same, so the number of right golds that would be disputed is estimated first: from
how varied the wrong answers are to prompts that the model also solves, whose golds are mostly
right. Gold answers are suspected where at least half of the disputed ones are expected to be wrong.

Wrong answers to one prompt are taken as draws from Ewens' urn (1972): each is new with odds θ
against the number before it, else a repetition; θ has a distribution over the pool. What is
measured: `python -m benchmarks.suspects`.
"""

import re
from math import nan
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import gammaln, pdtrc, xlogy

from orchestrator.difficulty.estimates import counts, fit_weights
from tasks.marking.spelling import normalize_latex

SHARE = 2 / 3  # of a prompt's completions with an answer that must agree
LEAST = 3  # completions that must agree, however few were drawn
MOST = 100  # suspects that are kept
PRECISION = 1 / 2  # expected share of wrong golds among disputed ones from which on they count
CHANCE = 0.05  # of as many disputed ones without any wrong gold
MOST_RAISED = 4  # times that wrong golds may explain disputed ones beyond those by mistake
VARIED = 50_000  # solved prompts whose wrong answers are counted, of each ROWS
THETA = np.geomspace(0.01, 1000, 61)  # from wrong answers that are all the same to none alike
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

    disputed: whether each row of the difficulty table is one of the latter. by_mistake: how many
    would be disputed if all golds were right; precision: the expected share of the disputed golds
    that are wrong, nan without any. `suspects` are the MOST most unanimous of them.
    """

    on_gold: int
    on_other: int
    by_mistake: float
    precision: float
    disputed: np.ndarray
    suspects: list[SuspectGold]

    @property
    def credible(self) -> bool:
        """Whether disputed golds are suspected: most are expected to be wrong, beyond chance.

        Where most agreed answers are not the gold ones, it is the model that errs, or most golds
        are wrong.
        """
        by_chance = float(pdtrc(self.on_other - 1, self.by_mistake)) if self.on_other else 1.0
        return self.on_gold > self.on_other and self.precision >= PRECISION and by_chance < CHANCE

    @property
    def suspected(self) -> np.ndarray:
        """Whether the gold of each row is suspected: none where it is not credible."""
        return self.disputed & self.credible


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
    on_gold, answered, disputed = 0, 0, np.zeros(table.num_rows, dtype=bool)
    suspects: list[SuspectGold] = []
    varied: list[np.ndarray] = []  # wrong answers of a prompt that is also solved: number, distinct
    exposed: list[np.ndarray] = []  # correct and wrong answers of a prompt, and how many must agree
    for start in range(0, table.num_rows, ROWS):
        prompts = table.slice(start, ROWS)
        here = (row >= start) & (row < start + ROWS)
        solved, wrong = counts(prompts, "successes"), counts(prompts, "wrong")
        needed = np.maximum(np.ceil(share * (solved + wrong) - 1e-9), LEAST).astype(int)
        on_gold += int(np.count_nonzero(solved >= needed))
        answered += int(np.count_nonzero(solved + wrong >= LEAST))
        exposed.append(np.stack([solved, wrong, needed])[:, wrong >= needed])
        both = (solved > 0) & (wrong > 1)
        both &= np.cumsum(both) <= VARIED
        own, texts = row[here] - start, answers.filter(pa.array(here))
        read = ((wrong >= needed) | both)[own]
        votes = _votes(own[read], texts.filter(pa.array(read)))
        distinct = np.bincount(votes["row"].to_numpy(), minlength=prompts.num_rows)
        varied.append(np.stack([wrong, distinct])[:, both])
        agreed = votes.filter(pa.array(votes["votes"].to_numpy() >= needed[votes["row"]]))
        rows, most = agreed["row"].to_numpy(), agreed["votes"].to_numpy()
        disputed[start + rows] = True  # each once: of a prompt's answers, at most one is enough
        n = counts(prompts, "n")[rows]
        # The rows of a difficulty table are in the order of their ids.
        first = np.lexsort((rows, -most / n))[:MOST]
        columns = (
            prompts["prompt_id"].take(pa.array(rows[first])).to_pylist(),
            agreed["answer"].take(pa.array(first)).to_pylist(),
            most[first].tolist(),
            n[first].tolist(),
        )
        suspects += [SuspectGold(*values) for values in zip(*columns, strict=True)]
    suspects.sort(key=lambda s: (-s.votes / s.n, s.prompt_id))
    on_other = int(np.count_nonzero(disputed))
    right, unsolved = _by_mistake(np.concatenate(varied, axis=1), np.concatenate(exposed, axis=1))
    # With w wrong golds, w * unsolved fewer right ones are disputed, and w * agreed wrong ones, as
    # many as the prompts on which the model agrees. Where both are alike, little can be told.
    agreed = (on_gold + on_other) / max(1, answered)
    wrong_golds = (on_other - right) / max(agreed - unsolved, agreed / MOST_RAISED)
    precision = min(1.0, max(0.0, wrong_golds * agreed / on_other)) if on_other else nan
    return Agreement(on_gold, on_other, right, precision, disputed, suspects[:MOST])


def _by_mistake(varied: np.ndarray, exposed: np.ndarray) -> tuple[float, float]:
    """How many prompts would be disputed if all golds were right; and the share of unsolved ones.

    varied: [2, prompts], wrong answers and distinct ones among them; exposed: [3, prompts], correct
    and wrong answers, and how many of the wrong ones must agree.
    """
    (wrong, distinct), times = np.unique(varied, axis=1, return_counts=True)
    log = xlogy(distinct[:, None], THETA) - (gammaln(THETA + wrong[:, None]) - gammaln(THETA))
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    weights = fit_weights(likelihood, times, np.full(len(THETA), 1 / len(THETA)))
    kinds, times = np.unique(exposed, axis=1, return_counts=True)
    chances = np.empty(len(times))
    for kind, (_, wrong, needed) in enumerate(kinds.T):
        size = np.arange(needed, wrong + 1)[:, None]
        # More than half of the answers must agree, so the expected number of groups that are large
        # enough is the chance of one.
        log = gammaln(wrong + 1) - gammaln(wrong - size + 1) - np.log(size)
        log = log + np.log(THETA) + gammaln(THETA + wrong - size) - gammaln(THETA + wrong)
        chances[kind] = np.exp(log).sum(axis=0) @ weights
    unsolved = times * (kinds[0] == 0)
    return float(chances @ times), float(chances @ unsolved / max(1, unsolved.sum()))


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

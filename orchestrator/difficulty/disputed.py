"""Gold answers that the completions dispute: they agree on a different answer. Pure.

A gold answer is disputed if most completions with an answer agree on a different one. Completions
without an answer do not count. A frequent mistake of the model looks the same. Therefore the number
of right gold answers that would be disputed is estimated first, from how much wrong answers agree
on prompts that the model also solves, whose gold answers are mostly right (`wrong_answers`). Gold
answers are suspected if at least half of the disputed ones are expected to be wrong. Measurements:
`python -m benchmarks.disputed` and `python -m benchmarks.suspects`.
"""

from math import hypot, nan
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.answers import Votes
from orchestrator.difficulty.proportions import counts, wilson
from orchestrator.difficulty.suspects import DOUBT
from orchestrator.difficulty.wrong_answers import fit_wrong_answers
from orchestrator.plugins.counts import counted

SHARE = 2 / 3  # of a prompt's completions with an answer that must agree
LEAST = 3  # completions that must agree, however few were drawn
MOST = 100  # disputed golds that are kept with their answers
PRECISION = 1 / 2  # least expected share of wrong golds among disputed ones
DEVIATIONS = 1.96  # above the number by mistake; exceeded by chance once in forty times
INEXACT = 0.1  # standard error of that number, as a share, besides chance and the error of the fit
MOST_RAISED = 3  # limit of the raise from wrong golds, in multiples
VARIED = 5_000  # solved prompts whose wrong answers are counted, of each ROWS
ROWS = 1_000_000  # prompts that are compared at once


class DisputedGold(NamedTuple):
    """A prompt with `votes` of `n` completions that agree on `answer`, not the gold answer.

    evidence: the lower end of the Wilson 95 % interval of the agreed answer's lead over the gold
    answer, as a share of the completions with an answer.
    """

    prompt_id: str
    answer: str
    votes: int
    n: int
    evidence: float


class DisputedGolds(NamedTuple):
    """Prompts with an agreed answer: the numbers that agree on the gold answer and on another one.

    by_mistake: expected number of disputed golds if all golds are right, with its standard
    deviation `deviation`. precision: expected share of the disputed golds that are wrong; nan
    without any. evidence: for each row of the difficulty table, 0 if not disputed. candidates: the
    MOST disputed golds with the most evidence.
    """

    on_gold: int
    on_other: int
    by_mistake: float
    deviation: float
    precision: float
    evidence: npt.NDArray[np.float64]
    candidates: list[DisputedGold]

    @property
    def most_by_mistake(self) -> int:
        """Up to this many disputed golds are not evidence that any is wrong."""
        return int(self.by_mistake + DEVIATIONS * self.deviation)

    @property
    def credible(self) -> bool:
        """Whether disputed golds are suspected: most are expected to be wrong, beyond chance.

        If most agreed answers are not the gold ones, either the model errs or most golds are wrong.
        """
        beyond_chance = self.on_other > self.most_by_mistake
        return self.on_gold > self.on_other and self.precision >= PRECISION and beyond_chance

    @property
    def doubt(self) -> str:
        """Why disputed golds are not suspected; empty if they are, or if there are none."""
        if self.credible or not self.on_other:
            return ""
        prompts = counted(self.on_other, "prompt")
        disputed = f"on {prompts}, completions agree on an answer that is not the gold answer"
        if self.on_gold <= self.on_other:
            return (
                f"{disputed}. On {self.on_gold:,}, they agree on the gold answer. Either the model "
                "is often wrong, or many gold answers are"
            )
        if self.on_other <= self.most_by_mistake:
            return (
                f"{disputed}. {self.expected_by_mistake}. So it is unknown whether any of these "
                "gold answers is wrong"
            )
        return (
            f"{disputed}. {self.expected_by_mistake}. {self.expected_precision}; "
            f"they are suspected from {100 * PRECISION:.0f} %"
        )

    @property
    def title(self) -> str:
        """A title for the disputed golds."""
        return "Suspected wrong gold answers" if self.credible else "Disputed gold answers"

    @property
    def verdict(self) -> str:
        """The verdict on the disputed golds, if there are any."""
        if self.doubt:
            return f"No gold answer is suspected: {self.doubt}."
        return (
            f"Completions agree on an answer to {counted(self.on_gold + self.on_other, 'prompt')}. "
            f"For {self.on_other:,} of them, it is not the gold one. {self.expected_by_mistake}. "
            f"{self.expected_precision}."
        )

    @property
    def expected_by_mistake(self) -> str:
        """The expected number by mistake, as a sentence without a full stop."""
        return (
            f"If every gold answer were right, {self.by_mistake:.1f} such prompts would be "
            f"expected, and up to {self.most_by_mistake:,} could occur by chance"
        )

    @property
    def expected_precision(self) -> str:
        """The precision as a sentence without a full stop."""
        return f"An estimated {100 * self.precision:.0f} % of these gold answers are wrong"

    @property
    def disputed(self) -> npt.NDArray[np.bool_]:
        """Whether the gold of each row is disputed."""
        return self.evidence > 0

    @property
    def suspected(self) -> npt.NDArray[np.bool_]:
        """Whether the gold of each row is suspected; all False if not credible."""
        return self.disputed & self.credible


def tally(samples: pa.Table) -> pa.Table:
    """The columns of a difficulty table that `disputed_golds` reads: prompt_id, n, successes,
    wrong.

    A row per prompt of the samples (columns prompt_id, outcome), sorted by id.
    """
    outcome = samples["outcome"]
    marks = pa.table(
        {
            "prompt_id": samples["prompt_id"],
            "successes": pc.equal(outcome, "correct").cast(pa.int64()),
            "wrong": pc.equal(outcome, "wrong").cast(pa.int64()),
        }
    )
    sums = [("prompt_id", "count"), ("successes", "sum"), ("wrong", "sum")]
    table = marks.group_by("prompt_id").aggregate(sums).sort_by("prompt_id")
    names = {"n": "prompt_id_count", "successes": "successes_sum", "wrong": "wrong_sum"}
    columns = {name: table[column] for name, column in names.items()}
    return pa.table({"prompt_id": table["prompt_id"], **columns})


def disputed_golds(votes: Votes, table: pa.Table, *, share: float = SHARE) -> DisputedGolds:
    """The agreed answers of a pool: given by at least a `share` of completions with an answer.

    votes: of the samples that the difficulty table was made from.
    """
    on_gold = 0
    answered = 0
    evidence = np.zeros(table.num_rows)
    candidates: list[DisputedGold] = []
    # The wrong answers of solved prompts: row, number of completions, whether it could be agreed
    # on.
    varied = [np.empty((3, 0), int)]
    exposed = [
        np.empty((3, 0), int)
    ]  # correct and wrong answers of a prompt, and the number that must agree
    for start in range(0, table.num_rows, ROWS):
        prompts = table.slice(start, ROWS)
        solved = counts(prompts, "successes")
        wrong = counts(prompts, "wrong")
        needed = np.maximum(np.ceil(share * (solved + wrong) - 1e-9), LEAST).astype(int)
        on_gold += int(np.count_nonzero(solved >= needed))
        answered += int(np.count_nonzero(solved + wrong >= LEAST))
        exposed.append(np.stack([solved, wrong, needed])[:, wrong >= needed])
        both = (solved > 0) & (wrong > 1)
        both &= np.cumsum(both) <= VARIED
        own = votes.of_rows(start, start + prompts.num_rows)
        counted_too = (own.wrong > 0) & both[own.row]
        near = (wrong >= needed)[own.row]
        varied.append(np.stack([start + own.row, own.wrong, near])[:, counted_too])
        agreed = np.flatnonzero(own.wrong >= needed[own.row])
        rows, most = own.row[agreed], own.wrong[agreed]
        lead = most - solved[rows]
        evidence[start + rows] = own_evidence = wilson(lead, (solved + wrong)[rows])[0]
        # The rows of a difficulty table are in the order of their ids.
        first = np.lexsort((rows, -own_evidence))[:MOST]
        columns = (
            prompts["prompt_id"].take(pa.array(rows[first])).to_pylist(),
            own.texts.take(pa.array(own.text[agreed][first])).to_pylist(),
            most[first].tolist(),
            counts(prompts, "n")[rows[first]].tolist(),
            own_evidence[first].tolist(),
        )
        candidates += [DisputedGold(*values) for values in zip(*columns, strict=True)]
    candidates.sort(key=lambda gold: (-gold.evidence, gold.prompt_id))
    on_other = int(np.count_nonzero(evidence))
    wrong_answers = fit_wrong_answers(*np.concatenate(varied, axis=1))
    number, deviation, unsolved = wrong_answers.agreement(np.concatenate(exposed, axis=1))
    deviation = hypot(deviation, INEXACT * number)
    precision = _precision(on_gold, on_other, number, unsolved, answered)
    return DisputedGolds(
        on_gold, on_other, number, deviation, precision, evidence, candidates[:MOST]
    )


def _precision(
    on_gold: int, on_other: int, by_mistake: float, unsolved: float, answered: int
) -> float:
    """The expected share of disputed golds that are wrong; nan without any.

    Suppose w of the `answered` prompts have a wrong gold. Then w * unsolved fewer right golds are
    disputed by mistake, and w * agreed wrong golds are disputed, as on any prompt on which the
    model agrees. If both shares are similar, the estimate is imprecise.
    """
    if not on_other:
        return nan
    agreed = (on_gold + on_other) / answered
    wrong = (on_other - by_mistake) / max(agreed - unsolved, agreed / MOST_RAISED)
    return min(1.0, max(0.0, wrong * agreed / on_other))


def with_suspected(table: pa.Table, golds: DisputedGolds) -> pa.Table:
    """The table with `suspected` and `dispute`, and in its metadata the reason if none is."""
    for name, values in (("suspected", golds.suspected), ("dispute", golds.evidence)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table.replace_schema_metadata({DOUBT: golds.doubt})

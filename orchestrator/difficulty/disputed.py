"""Gold answers that the completions dispute: they agree on another answer. Pure.

Where most completions with an answer agree on another one than the gold answer, they dispute it.
Completions without an answer say nothing, so they do not count. A mistake that the model often
makes looks the same, so the number of right golds that would be disputed is estimated first: from
how alike the wrong answers are to prompts that the model also solves, whose golds are mostly right
(`wrong_answers`). Gold answers are suspected where at least half of the disputed ones are expected
to be wrong. What is measured: `python -m benchmarks.disputed` and `python -m benchmarks.suspects`.
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
PRECISION = 1 / 2  # expected share of wrong golds among disputed ones from which on they count
DEVIATIONS = 1.96  # above the number by mistake, as one in forty is by chance
INEXACT = 0.1  # standard error of that number, as a share, besides chance and the error of the fit
MOST_RAISED = 3  # times that wrong golds may explain disputed ones beyond those by mistake
VARIED = 5_000  # solved prompts whose wrong answers are counted, of each ROWS
ROWS = 1_000_000  # prompts that are compared at once


class DisputedGold(NamedTuple):
    """A prompt of which `votes` of its `n` completions agree on `answer`, not the gold one.

    evidence: the lower end of the Wilson 95 % interval of the agreed answer's lead over the gold
    one, as a share of the completions with an answer.
    """

    prompt_id: str
    answer: str
    votes: int
    n: int
    evidence: float


class DisputedGolds(NamedTuple):
    """Prompts with an agreed answer: how many agree on the gold one, how many on another.

    by_mistake: how many are expected to be disputed if all golds are right, deviation: the standard
    deviation around it; precision: the expected share of the disputed golds that are wrong, nan
    without any. evidence: of each row of the difficulty table, 0 where it is not disputed.
    `candidates` are the MOST disputed golds with the most evidence.
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
        """Up to so many disputed golds are no evidence that any is wrong."""
        return int(self.by_mistake + DEVIATIONS * self.deviation)

    @property
    def credible(self) -> bool:
        """Whether disputed golds are suspected: most are expected to be wrong, beyond chance.

        Where most agreed answers are not the gold ones, it is the model that errs, or most golds
        are wrong.
        """
        beyond_chance = self.on_other > self.most_by_mistake
        return self.on_gold > self.on_other and self.precision >= PRECISION and beyond_chance

    @property
    def doubt(self) -> str:
        """Why disputed golds are not suspected; empty where they are, and where there is none."""
        if self.credible or not self.on_other:
            return ""
        prompts = counted(self.on_other, "prompt")
        disputed = f"on {prompts}, completions agree on another answer than the gold one"
        if self.on_gold <= self.on_other:
            return (
                f"{disputed}. They agree on the gold one on {self.on_gold:,}. Either the model is "
                "often wrong, or many gold answers are"
            )
        if self.on_other <= self.most_by_mistake:
            return (
                f"{disputed}. {self.expected_by_mistake}. So it is unknown whether any of these "
                "gold answers is wrong"
            )
        return (
            f"{disputed}. {self.expected_by_mistake}. {self.expected_precision}, fewer than the "
            f"{100 * PRECISION:.0f} % from which they are suspected"
        )

    @property
    def title(self) -> str:
        """What the disputed golds are."""
        return "Suspected wrong gold answers" if self.credible else "Disputed gold answers"

    @property
    def verdict(self) -> str:
        """What can be said of the disputed golds, of which there are some."""
        if self.doubt:
            return f"No gold answer is suspected: {self.doubt}."
        return (
            f"Completions agree on an answer to {counted(self.on_gold + self.on_other, 'prompt')}. "
            f"For {self.on_other:,} of them, it is not the gold one. {self.expected_by_mistake}. "
            f"{self.expected_precision}."
        )

    @property
    def expected_by_mistake(self) -> str:
        """The number by mistake as a sentence without a full stop."""
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
        """Whether the gold of each row is suspected: none where it is not credible."""
        return self.disputed & self.credible


def tally(samples: pa.Table) -> pa.Table:
    """What `disputed_golds` reads of a difficulty table: prompt_id, n, successes, wrong.

    A row per prompt of the samples (columns prompt_id, outcome), sorted by its id.
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

    `votes` are those of the samples from which the difficulty table was made.
    """
    on_gold = 0
    answered = 0
    evidence = np.zeros(table.num_rows)
    candidates: list[DisputedGold] = []
    # The wrong answers of solved prompts: row, how many give it, whether it could be agreed on.
    varied = [np.empty((3, 0), int)]
    exposed = [
        np.empty((3, 0), int)
    ]  # correct and wrong answers of a prompt, and how many must agree
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

    Of `answered` prompts, w have a wrong gold. Then w * unsolved fewer right golds are disputed by
    mistake, and w * agreed wrong ones, as on any prompt on which the model agrees. Where both
    shares are alike, little can be told.
    """
    if not on_other:
        return nan
    agreed = (on_gold + on_other) / answered
    wrong = (on_other - by_mistake) / max(agreed - unsolved, agreed / MOST_RAISED)
    return min(1.0, max(0.0, wrong * agreed / on_other))


def with_suspected(table: pa.Table, golds: DisputedGolds) -> pa.Table:
    """The difficulty table with `suspected` and `dispute`, and in its metadata why none is."""
    for name, values in (("suspected", golds.suspected), ("dispute", golds.evidence)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table.replace_schema_metadata({DOUBT: golds.doubt})

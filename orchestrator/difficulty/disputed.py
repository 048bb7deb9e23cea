"""Gold answers that the completions dispute: they agree on another answer. Pure.

Where most completions with an answer agree on another one than the gold answer, they dispute it.
Completions without an answer say nothing, so they do not count. A mistake that the model often
makes looks the same, so the number of right golds that would be disputed is estimated first: from
how varied the wrong answers are to prompts that the model also solves, whose golds are mostly
right. Gold answers are suspected where at least half of the disputed ones are expected to be wrong.

The wrong answers to one prompt are taken as draws from some options whose chances are a symmetric
Dirichlet distribution; the number of options, and how equal their chances are, vary over the pool.
What is measured: `python -m benchmarks.suspects`.
"""

from math import nan, sqrt
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import betaln, gammaln  # scipy.stats takes half a second to import

from orchestrator.difficulty.answers import Votes
from orchestrator.difficulty.estimates import counts, fit_weights
from orchestrator.plugins.counts import counted

SHARE = 2 / 3  # of a prompt's completions with an answer that must agree
LEAST = 3  # completions that must agree, however few were drawn
MOST = 100  # suspects that are kept
PRECISION = 1 / 2  # expected share of wrong golds among disputed ones from which on they count
DEVIATIONS = 1.96  # above the number by mistake, as one in forty is by chance
INEXACT = 0.1  # standard error of that number, as a share, besides chance
MOST_RAISED = 3  # times that wrong golds may explain disputed ones beyond those by mistake
VARIED = 5_000  # solved prompts whose wrong answers are counted, of each ROWS
# Wrong answers of a prompt: of how many options, and the sum of their Dirichlet parameters, from
# always the same answer to equal chances.
OPTIONS, CONCENTRATION = (
    grid.ravel()
    for grid in np.meshgrid([1, 2, 3, 4, 6, 9, 15, 40, 1000], np.geomspace(0.1, 1000, 9))
)
ROWS = 1_000_000  # prompts that are compared at once
DOUBT = b"doubt"  # the key in a difficulty table's metadata


class SuspectGold(NamedTuple):
    """A prompt of which `votes` of its `n` completions agree on `answer`, not the gold one."""

    prompt_id: str
    answer: str
    votes: int
    n: int


class DisputedGolds(NamedTuple):
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
        deviation = sqrt(self.by_mistake + (INEXACT * self.by_mistake) ** 2)
        beyond_chance = self.on_other > self.by_mistake + DEVIATIONS * deviation
        return self.on_gold > self.on_other and self.precision >= PRECISION and beyond_chance

    @property
    def doubt(self) -> str:
        """Why disputed golds are not suspected; empty where they are, and where there is none."""
        if self.credible or not self.on_other:
            return ""
        prompts = counted(self.on_other, "prompt")
        disputed = f"completions agree on another answer than the gold one on {prompts}"
        if self.on_gold <= self.on_other:
            return (
                f"{disputed}, and on the gold one on {self.on_gold:,}, so it is the model that is "
                "wrong, or most gold answers are"
            )
        chance = self.precision >= PRECISION
        return (
            f"{disputed}, where {self.by_mistake:.1f} are expected if every gold answer is right: "
            f"{self.expected_precision}, "
            f"{'which may be chance' if chance else f'less than {100 * PRECISION:.0f} %'}"
        )

    @property
    def expected_precision(self) -> str:
        """The precision as text."""
        return f"about {100 * self.precision:.0f} % of these gold answers are wrong"

    @property
    def suspected(self) -> np.ndarray:
        """Whether the gold of each row is suspected: none where it is not credible."""
        return self.disputed & self.credible


def disputed_golds(votes: Votes, table: pa.Table, *, share: float = SHARE) -> DisputedGolds:
    """The agreed answers of a pool: given by at least a `share` of completions with an answer.

    `votes` are those of the samples from which the difficulty table was made.
    """
    on_gold, answered, disputed = 0, 0, np.zeros(table.num_rows, dtype=bool)
    suspects: list[SuspectGold] = []
    varied = [np.empty((2, 0), int)]  # of solved prompts: the row, and how many gave a wrong answer
    exposed = [
        np.empty((3, 0), int)
    ]  # correct and wrong answers of a prompt, and how many must agree
    for start in range(0, table.num_rows, ROWS):
        prompts = table.slice(start, ROWS)
        solved, wrong = counts(prompts, "successes"), counts(prompts, "wrong")
        needed = np.maximum(np.ceil(share * (solved + wrong) - 1e-9), LEAST).astype(int)
        on_gold += int(np.count_nonzero(solved >= needed))
        answered += int(np.count_nonzero(solved + wrong >= LEAST))
        exposed.append(np.stack([solved, wrong, needed])[:, wrong >= needed])
        both = (solved > 0) & (wrong > 1)
        both &= np.cumsum(both) <= VARIED
        own = votes.of_rows(start, start + prompts.num_rows)
        counted_too = (own.wrong > 0) & both[own.row]
        varied.append(np.stack([start + own.row, own.wrong])[:, counted_too])
        agreed = np.flatnonzero(own.wrong >= needed[own.row])
        rows, most = own.row[agreed], own.wrong[agreed]
        disputed[start + rows] = True  # each once: of a prompt's answers, at most one is enough
        n = counts(prompts, "n")[rows]
        # The rows of a difficulty table are in the order of their ids.
        first = np.lexsort((rows, -most / n))[:MOST]
        columns = (
            prompts["prompt_id"].take(pa.array(rows[first])).to_pylist(),
            own.texts.take(pa.array(own.text[agreed][first])).to_pylist(),
            most[first].tolist(),
            n[first].tolist(),
        )
        suspects += [SuspectGold(*values) for values in zip(*columns, strict=True)]
    suspects.sort(key=lambda s: (-s.votes / s.n, s.prompt_id))
    on_other = int(np.count_nonzero(disputed))
    right, unsolved = _by_mistake(np.concatenate(varied, axis=1), np.concatenate(exposed, axis=1))
    precision = _precision(on_gold, on_other, right, unsolved, answered)
    return DisputedGolds(on_gold, on_other, right, precision, disputed, suspects[:MOST])


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


def _by_mistake(varied: np.ndarray, exposed: np.ndarray) -> tuple[float, float]:
    """How many prompts would be disputed if all golds were right; and the share of unsolved ones.

    varied: [2, answers], the row of a prompt and how many completions gave one wrong answer;
    exposed: [3, prompts], correct and wrong answers, and how many of the wrong ones must agree.
    """
    _, row = np.unique(varied[0], return_inverse=True)
    each, votes = CONCENTRATION / OPTIONS, varied[1]
    distinct, wrong = np.bincount(row), np.bincount(row, votes)
    log = gammaln(OPTIONS + 1) - gammaln(OPTIONS - distinct[:, None] + 1)  # -inf: too few options
    log = log + gammaln(CONCENTRATION) - gammaln(CONCENTRATION + wrong[:, None])
    for kind, own in enumerate(each):
        log[:, kind] += np.bincount(row, gammaln(votes + own) - gammaln(own))
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    start = np.full(len(each), 1 / len(each))
    weights = fit_weights(likelihood, np.ones(len(likelihood)), start)
    kinds, times = np.unique(exposed, axis=1, return_counts=True)
    chances = np.empty(len(times))
    for kind, (_, wrong, needed) in enumerate(kinds.T):
        # More than half of the answers must agree, so at most one option is given so often: the
        # beta-binomial probability of `needed` of `wrong` answers and more, [counts, options].
        rest = np.maximum(CONCENTRATION - each, 1e-300)
        count = np.arange(needed, wrong + 1)[:, None]
        ways = gammaln(wrong + 1) - gammaln(count + 1) - gammaln(wrong - count + 1)
        chance = ways + betaln(count + each, wrong - count + rest) - betaln(each, rest)
        often = np.exp(chance).sum(axis=0)
        chances[kind] = np.where(OPTIONS == 1, 1.0, OPTIONS * often) @ weights
    unsolved = times * (kinds[0] == 0)
    return float(chances @ times), float(chances @ unsolved / max(1, unsolved.sum()))


def with_suspected(table: pa.Table, golds: DisputedGolds) -> pa.Table:
    """The difficulty table with its column `suspected`, and in its metadata why none is."""
    position = table.schema.get_field_index("suspected")
    table = table.set_column(position, "suspected", pa.array(golds.suspected))
    return table.replace_schema_metadata({DOUBT: golds.doubt})


def no_suspects(table: pa.Table) -> str:
    """That no prompt of a difficulty table is suspected, which a policy relies on, and why."""
    if pc.any(table["suspected"]).as_py():
        return ""
    doubt = (table.schema.metadata or {}).get(DOUBT, b"").decode()
    why = doubt or "completions do not agree on other answers than the gold ones"
    return f"no prompt is left out as suspected: {why}"

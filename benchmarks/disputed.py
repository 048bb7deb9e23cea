"""How often disputed golds are suspected, and rightly so, in pools with and without wrong golds.

The expected precision depends on how similar wrong answers are on prompts whose gold the model also
finds, so pools vary in this: letters and numbers; one or several kinds of prompts; answers that are
more similar, or more varied, at pass rates near 0; and one attractive wrong answer to some prompts,
regardless of their pass rates. A wrong gold is an answer that no completion gives. First five: the
share of wrong golds among the first five disputed ones in the list, regardless of the verdict.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.command_line import benchmark_parser
from orchestrator.difficulty.answers import votes_of
from orchestrator.difficulty.disputed import DisputedGolds, disputed_golds
from orchestrator.difficulty.table import difficulty

Floats = npt.NDArray[np.float64]
LISTED = 5
SCATTERED = 1e6  # from this sum of Dirichlet parameters on, wrong answers have equal chances


class Kind(NamedTuple):
    """A kind of pools.

    rates: the beta distribution of pass rates; others: wrong answers to a prompt; total: the sum of
    their Dirichlet parameters for pass rates above .05, and below; attracted: the share of prompts
    with an attractive wrong answer; attraction: its share, between two values, of their wrong
    completions, or `of_all` of them, so that the pass rate is lower.
    """

    rates: tuple[float, float]
    others: int = 60
    total: tuple[float, float] = (SCATTERED, SCATTERED)
    attracted: float = 0.0
    attraction: tuple[float, float] = (0.0, 0.0)
    of_all: bool = False
    wrong_golds: tuple[float, ...] = (0.0, 0.06)
    samples: tuple[int, ...] = (4, 8, 10)

    def chances(self, prompts: int, rng: np.random.Generator) -> Floats:
        """[prompts, 1 + others]: the chance of each answer, the right one first."""
        p = rng.beta(*self.rates, prompts)[:, None]
        wrong = rng.gamma(
            np.where(p > 0.05, *self.total) / self.others, size=(prompts, self.others)
        )
        wrong = (wrong + 1e-12) / (wrong + 1e-12).sum(axis=1, keepdims=True)
        own = rng.uniform(*self.attraction, (prompts, 1)) * (
            rng.random((prompts, 1)) < self.attracted
        )
        attractive = own * (np.arange(self.others) == 0)
        if self.of_all:
            return np.hstack([(1 - own) * p, (1 - own) * (1 - p) * wrong + attractive])
        return np.hstack([p, (1 - p) * ((1 - own) * wrong + attractive)])


def _attracted(accuracy: float, **options: object) -> Kind:
    rates = (accuracy, 1 - accuracy)
    return Kind(rates, attracted=0.3, wrong_golds=(0.0,), samples=(8, 16, 32), **options)


POOLS = {
    "Beta(.3, .6), four letters": Kind((0.3, 0.6), 4, (4, 4)),
    "Beta(.3, .6), four letters, unequal": Kind((0.3, 0.6), 4, (2, 2)),
    "Beta(.3, .6), numbers": Kind((0.3, 0.6), 60, (1, 1)),
    "Beta(.3, .6), numbers, more varied": Kind((0.3, 0.6), 60, (3, 3)),
    "Beta(.3, .6), numbers, most varied": Kind((0.3, 0.6), 60, (10, 10)),
    "Beta(.3, .6), numbers, alike near 0": Kind((0.3, 0.6), 60, (3, 0.2)),
    "Beta(.3, .6), numbers, varied near 0": Kind((0.3, 0.6), 60, (1, 10)),
    "Beta(2, .5), numbers": Kind((2, 0.5), 60, (1, 1)),
    **{
        f"accuracy {accuracy}, attracted, {name}": _attracted(accuracy, **options)
        for accuracy in (0.3, 0.5, 0.7)
        for name, options in {
            ".7": {"attraction": (0.7, 0.7)},
            ".5 to 1": {"attraction": (0.5, 1.0)},
            ".7 of all": {"attraction": (0.7, 0.7), "of_all": True},
        }.items()
    },
    "accuracy 0.6, both": Kind(
        (0.6, 0.4), attracted=0.3, attraction=(0.7, 0.7), wrong_golds=(0.06,), samples=(8, 16, 32)
    ),
    **{
        f"accuracy {accuracy}, scattered": Kind(
            (accuracy, 1 - accuracy), wrong_golds=(0.0, 0.03, 0.06), samples=(3, 4, 5, 8, 32)
        )
        for accuracy in (0.6, 0.75, 0.9)
    },
}


def golds_of(given: npt.NDArray[np.int64], bad: npt.NDArray[np.bool_]) -> DisputedGolds:
    """The disagreement of completions [prompts, K], 0 if right, with golds; bad: wrong golds."""
    prompts, samples = given.shape
    right = (given == 0) & ~bad[:, None]
    drawn = pa.table(
        {
            "prompt_id": np.repeat([f"p{i:05}" for i in range(prompts)], samples),
            "outcome": np.where(right, "correct", "wrong").ravel(),
            "extracted": np.char.add("x", given.astype(str)).ravel(),
        }
    )
    table = difficulty(drawn.select(["prompt_id", "outcome"]))
    return disputed_golds(votes_of(drawn, table), table)


def main() -> None:
    """Print a line for each kind of pools, share of wrong golds and K."""
    parser = benchmark_parser("disputed", __doc__)
    parser.add_argument("--probes", type=int, default=20, help="probes of each kind (20)")
    parser.add_argument("--prompts", type=int, default=1000, help="prompts of a pool (1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first probe (0)")
    parser.add_argument("--only", default="", help="kinds with this text in their name (all)")
    options = parser.parse_args()
    head = ("disputed %", "precision", "expected", "suspected in %", "recall", "first five")
    print(f"{'pool':38}{'wrong':>6}{'K':>4}{''.join(f'{name:>16}' for name in head)}")
    for name, kind in POOLS.items():
        if options.only not in name:
            continue
        for share, samples in ((share, k) for share in kind.wrong_golds for k in kind.samples):
            rows = []
            for seed in range(options.seed, options.seed + options.probes):
                rng = np.random.default_rng([seed, samples])
                ends = np.cumsum(kind.chances(options.prompts, rng), axis=1)
                ends[:, -1] = 1
                given = (rng.random((len(ends), samples, 1)) > ends[:, None]).sum(axis=2)
                bad = rng.random(len(ends)) < share
                golds = golds_of(given, bad)
                precision = (
                    (golds.disputed & bad).sum() / golds.on_other if golds.on_other else np.nan
                )
                recall = (golds.suspected & bad).sum() / bad.sum() if bad.any() else np.nan
                listed = [bad[int(gold.prompt_id[1:])] for gold in golds.candidates[:LISTED]]
                first = np.mean(listed) if listed else np.nan
                counts = 100 * golds.on_other / len(ends), precision, golds.precision
                rows.append((*counts, 100 * golds.credible, recall, first))
            with np.errstate(invalid="ignore"):
                means = np.nansum(rows, axis=0) / np.sum(~np.isnan(rows), axis=0)
            print(f"{name:38}{share:6.2f}{samples:4}{''.join(f'{v:16.2f}' for v in means)}")


if __name__ == "__main__":
    main()

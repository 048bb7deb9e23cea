"""The smallest difference that a planned design can detect. Pure: NumPy and SciPy."""

from functools import cache
from math import ceil, log, log2

import numpy as np
from scipy.optimize import brentq

from orchestrator.plugins.counts import counted
from orchestrator.stats.inference import ALPHA, Variances
from orchestrator.stats.power import POWER, Design, detectable

COLLAPSING = 1 / 3  # share of the seeds of a policy that collapses
# Assumptions about test questions before anything has been measured.
ACCURACY = 0.5  # the worst case
BETWEEN = 0.6  # share of an answer's variance that lies between questions
AGREEMENT = 0.8  # correlation of two policies' pass rates over questions
SEED_POINTS = 1.0  # standard deviation of a policy's accuracy between training seeds


@cache
def minimum_detectable(
    items: int,
    seeds: int = 1,
    samples_per_item: int = 1,
    *,
    level: float = ALPHA,
) -> float:
    """Smallest true difference of two policies, in points, that is detected with 80 % power.

    Two-sided at `level`, paired by question. With one seed it refers to the difference of these two
    runs, by the exact test of the verdict. 100 means that the design cannot detect any difference.
    Example: AIME's 15 questions, one sample each: 48 points; an observed difference under 40 (six
    questions) can never be significant.
    """

    def variances(size: float) -> Variances:
        """With the two policies at ACCURACY ± half of `size`."""
        per_answer = max(0.0, 2 * ACCURACY * (1 - ACCURACY) - size**2 / 2)
        # The effect differs between questions, because varied pass rates cannot all rise equally.
        # With beta-distributed pass rates its variance is about BETWEEN · size².
        item = per_answer * BETWEEN * (1 - AGREEMENT) + BETWEEN * size**2
        rest = per_answer * (1 - BETWEEN) / samples_per_item
        return Variances(2 * (SEED_POINTS / 100) ** 2, item, rest)

    if seeds == 1 and items < fewest(level):
        return 100.0
    most = 1.0
    if seeds == 1:  # more samples per question never detect less than one
        one = 2 * ACCURACY * (1 - ACCURACY)  # the variance of a difference of independent answers
        most = _by_mcnemar(one * (1 - BETWEEN * AGREEMENT), one, items, level)
    if seeds == 1 and samples_per_item == 1:
        return 100 * most
    size = 0.0
    for _ in range(50):  # fixed point: the variances depend on the size
        design = Design(seeds, items, level)
        previous, size = size, min(most, detectable(variances(size), design))
        if abs(size - previous) < 1e-6:
            break
    return 100 * size


def fewest(level: float = ALPHA) -> int:
    """Fewest questions that must differ, all in one direction, for an exact test to be significant.

    McNemar's test and the permutation of n questions give a two-sided p of at least 2 · ½ⁿ:
    .0625 for five of them (33 points of AIME's 15), .031 for six (40 points).
    """
    return ceil(1 - log2(level))


def _by_mcnemar(noise: float, independent: float, items: int, level: float) -> float:
    """The difference, 0 to 1, that McNemar's exact test detects with 80 % power (answers 0 or 1).

    noise: the variance of one question's difference without an effect, which is the share of
    questions that differ. independent: the same for two policies that answer independently. An
    effect of d adds d² to the share, up to the share of independent policies. Needs at least
    `fewest` items.
    """
    from scipy.stats import binom  # takes half a second to import

    differ = np.arange(items + 1)
    critical = binom.isf(level / 2, differ, 0.5)

    def excess_power(size: float) -> float:
        share = min(noise + size**2, independent + size**2 / 2)
        share = min(1.0, max(share, size))
        to_one_side = (share + size) / (2 * share)
        power = binom.pmf(differ, items, share) @ binom.sf(critical, differ, to_one_side)
        return float(power) - POWER

    return float(brentq(excess_power, 1e-9, 1, xtol=1e-6))


def resolution(
    dataset: str,
    items: int,
    seeds: int = 1,
    samples_per_item: int = 1,
    comparisons: int = 1,
) -> str:
    """The line of `decile plan`; comparisons: number in the report that share Holm's correction."""

    def in_points(points: float) -> str:
        return f"{points:.0f}" if points >= 10 else f"{points:.1f}"

    grid = f"{counted(seeds, 'seed')} × {counted(items, 'question')}"
    points = minimum_detectable(items, seeds, samples_per_item)
    if points >= 100:
        return f"no difference on {dataset} is detectable ({grid})"
    text = f"smallest detectable difference on {dataset}: {in_points(points)} points ({grid}"
    if comparisons > 1:
        strict = minimum_detectable(items, seeds, samples_per_item, level=ALPHA / comparisons)
        text += (
            f"; {in_points(strict)} after Holm's correction for "
            f"{counted(comparisons, 'comparison')}"
        )
    return text + ")" + ("; one seed cannot decide between policies" if seeds == 1 else "")


def collapse_seen(seeds: int) -> str:
    """The line of `decile plan` on a policy that ends below its base model in some seeds.

    Such a cell is detected individually (`report.compare.Family.collapsed`), so one is enough.
    """
    missed = 1 - COLLAPSING
    enough = ceil(log(1 - POWER) / log(missed))
    return (
        "a policy that ends below the base model in a third of its seeds: seen with a probability "
        f"of {100 * (1 - missed**seeds):.0f} % ({counted(seeds, 'seed')}"
        + (f"; {100 * POWER:.0f} % needs {enough}" if seeds < enough else "")
        + ")"
    )

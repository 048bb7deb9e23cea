"""A report's sentences: comparisons, sample sizes and numbers. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor, isfinite, isnan, log10, sqrt

from orchestrator.plugins.counts import counted
from orchestrator.report.content import NONE
from orchestrator.stats.comparison import Comparison
from orchestrator.stats.factors import DividedGain, Factors
from orchestrator.stats.inference import ALPHA, Effect
from tasks.marking.marks import FACTORS

# Samples that may be advised: published comparisons have up to 10 seeds, and the largest test set
# that ships has 5,000 questions; ten times a larger existing sample is also realistic.
REALISTIC_SEEDS, REALISTIC_ITEMS, TIMES_CURRENT = 100, 10_000, 10
NEGLIGIBLE = 1.0  # points
UNKNOWN = "unknown"
SHORT = ("finished", "parsed", "correct")  # the parts of a gain
PART_HEAD = (*SHORT, *(f"{factor} %" for factor in FACTORS))  # of `part_texts`
NO_DIFFERENCE = "practically no difference was observed"
SINGLE_SEED = (
    "single seed: the intervals of such a policy cover test questions but not training seeds, "
    "so its verdicts are inconclusive"
)
THESE_MODELS = (
    "one run of each: verdicts are about these models on new questions; training with another "
    "seed may change them"
)
KNOWN_SPREAD = "single seed: the spread between seeds is that of stored cells of the same policies"


def sentence(comparison: Comparison, dataset: str = "") -> str:
    """One comparison in words: effect, interval, sample, p; where inconclusive, what is needed."""
    c = comparison.leader_first
    on = f" on {dataset}" if dataset else ""
    if not c.items:
        return f"{c.a} vs. {c.b}{on}: inconclusive (no question has a score in both)"
    sample = counted_runs(c.runs) if c.scope == "policies" else "these models"
    if c.items > 1:
        sample += f" × {counted(c.items, c.item)}"
    if c.groups is not None:
        sample += f" in {counted(c.groups, 'group')}"
    for policy, spread in c.stored.items():
        deviation = in_points(100 * sqrt(spread.variance), plus=False)
        sample += f", sd between seeds of {policy} {deviation} points from "
        sample += counted(spread.cells, "stored run")
    sample += f", p {_p(c.p)}, Holm-corrected p {_p(c.p_holm)}"
    if c.spans_zero:
        size = f"{in_points(c.effect)} points [{in_points(c.low)}, {in_points(c.high)}]"
        return f"{c.a} vs. {c.b}{on}: inconclusive ({size}, {sample}); {_required_sample(c)}"
    better, worse = c.a, c.b
    effect, low, high = (in_points(x, plus=False) for x in (c.effect, c.low, c.high))
    size = f"{effect} points [{low}, {high}]"
    if c.verdict != "inconclusive":
        return f"{better} beats {worse} by {size}{on} ({sample})"
    if not c.covers_seeds and c.scope == "policies":
        ahead = f"{better} is ahead of {worse} by {size}{on} in this seed"
        return f"{ahead}: inconclusive ({sample}); needs more seeds"
    if c.p_holm <= ALPHA:
        return (
            f"{better} is ahead of {worse} by {size}{on}: inconclusive, because this look at the "
            f"results is not the planned one and needs a p of at most {c.level:g} ({sample})"
        )
    return (
        f"{better} is ahead of {worse} by {size}{on}, but not significantly after Holm's "
        f"correction over {counted(c.tests, 'comparison')}: inconclusive ({sample}); "
        f"{_required_sample(c)}"
    )


def pairing_caveats(
    seeds: Mapping[str, int], comparisons: Sequence[Comparison], names: str = "policies"
) -> list[str]:
    """What limits comparisons of `names` with these numbers of finished seeds."""
    caveats = []
    if min(seeds.values()) == 1:
        scopes = {c.scope for c in comparisons if not c.covers_seeds}
        caveats += [THESE_MODELS] if "models" in scopes else []
        caveats += [SINGLE_SEED] if "policies" in scopes else []
        caveats += [] if scopes else [KNOWN_SPREAD]
    if len(set(seeds.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in seeds.items())
        caveats.append(f"{names} have different numbers of finished seeds: {counts}")
    # Where `missing_text` says that interval and p allow for all values, these are among them.
    if left_out := max((c.left_out for c in comparisons if not c.misses_unlike), default=0):
        caveats.append(
            f"up to {counted(left_out, 'question')} left out: no score in one of the two compared; "
            "if that is because they failed, bounds do not cover them"
        )
    if related := [c for c in comparisons if c.groups is not None]:
        fewest = min(related, key=lambda c: c.groups or 0)
        caveats.append(
            f"{counted(fewest.items, 'question')} in {counted(fewest.groups or 0, 'group')}: those "
            "of one group (in the column that names groups, otherwise of nearly the same text) are "
            "averaged, because they are not independent"
        )
    unlike = [
        c
        for c in comparisons
        if c.misses_unlike or (c.verdict != "inconclusive" and c.bounds_span_zero)
    ]
    return [*caveats, *dict.fromkeys(missing_text(c) for c in unlike)]


def missing_text(c: Comparison) -> str:
    """How missing scores limit a comparison."""
    low, high = map(in_points, c.bounds)
    shares = " and ".join(f"{100 * share:.1f} %" for share in c.missing)
    text = f"{c.a} and {c.b} miss {shares} of their scores"
    if any(c.missing_runs):
        sides = zip((c.a, c.b), c.missing_runs, c.runs, strict=True)
        of_each = [
            f"{lost} of {counted(lost + runs, 'run')} of {name}"
            for name, lost, runs in sides
            if lost
        ]
        return (
            f"{' and '.join(of_each)} {'are' if sum(c.missing_runs) > 1 else 'is'} missing: "
            "interval and p allow for every accuracy of these runs"
        )
    if c.misses_unlike:
        return (
            f"{text}, which differs beyond chance (p {_p(c.missing_p)}): their interval and p "
            "allow for every value of the missing scores"
        )
    return (
        f"{text}, with no difference beyond chance: if they are not missing at random, the "
        f"difference may be anything in [{low}, {high}], which would change the verdict"
    )


def _required_sample(c: Comparison) -> str:
    """The sample sizes that would detect a difference of the observed size, as far as realistic."""
    if c.misses_unlike:
        return "needs the missing " + ("runs" if any(c.missing_runs) else "scores")
    if c.whole_range:
        why = "the interval is the whole range: " if isfinite(c.high) else ""
        return f"{why}needs more {_too_few(c)}"
    if c.effect == 0 or sum(c.variances) == 0:
        nothing = "no difference was observed" if c.effect == 0 else "nothing varies in these runs"
        return f"{nothing}, so the sample size needed cannot be estimated"
    most_seeds = max(REALISTIC_SEEDS, TIMES_CURRENT * c.seeds)
    most_items = max(REALISTIC_ITEMS, TIMES_CURRENT * c.items)
    negligible = abs(c.effect) < NEGLIGIBLE
    seeds, items = c.needed.seeds, c.needed.items
    if not c.covers_seeds:
        if items and items <= most_items:
            more = "" if c.scope == "models" else "more seeds and "
            return f"needs {more}about {_two_digits(max(items, c.items + 1)):,} {c.item}s"
        if c.scope == "models":
            return f"no realistic number of {c.item}s would be enough"
        return (f"{NO_DIFFERENCE} in this seed; " if negligible else "") + "needs more seeds"
    least, most = c.needed_range
    options = []
    if seeds is not None and seeds <= most_seeds:
        options.append(f"{range_text(least.seeds, most.seeds, most_seeds)} seeds")
    if items is not None and items <= most_items:
        options.append(f"{range_text(least.items, most.items, most_items)} {c.item}s")
    if options:
        return f"{' or '.join(options)} would be needed"
    both = c.needed.both if seeds is None and items is None else None  # neither alone suffices
    if both and both[0] <= most_seeds and both[1] <= most_items:
        return (
            f"about {counted(both[0], 'seed')} × {_two_digits(both[1]):,} {c.item}s would be needed"
        )
    kinds = ["seeds", *([f"{c.item}s"] if c.items > 1 else [])]
    too_few = f"no realistic number of {' and '.join(kinds)} would be enough"
    return NO_DIFFERENCE if negligible else too_few


def _too_few(c: Comparison) -> str:
    """What a pair has too few of if its interval is the whole range."""
    if c.groups is not None:
        return "groups of questions, of similar sizes"
    if c.item == "question" and c.items == 1:
        return "shared questions"
    return "seeds" if c.item == "run" else f"seeds or {c.item}s"


def range_text(least: int | None, most: int | None, realistic: int) -> str:
    """`8 to 40`, `8 or more` where the most is not realistic; large numbers in two digits."""
    if least is None:
        return NONE
    if most is None or most > realistic:
        return f"{_two_digits(least):,} or more"
    return f"{_two_digits(least):,}" + (f" to {_two_digits(most):,}" if most > least else "")


def counted_runs(runs: tuple[int, int]) -> str:
    """`3 seeds`, or `10 and 3 seeds` of the first and the second policy."""
    return (
        counted(runs[0], "seed")
        if runs[0] == runs[1]
        else f"{runs[0]} and {counted(runs[1], 'seed')}"
    )


def ties_text(pool: int, chosen: int) -> str:
    """The prompts chosen of those that tie at the cutoff; a dash if chance decided on none."""
    return f"{chosen:,} of {pool:,}" if chosen < pool else NONE


def _two_digits(number: int) -> int:
    """Rounded up to two significant digits, the precision of such an estimate."""
    unit: int = 10 ** max(0, floor(log10(number)) - 1)
    return -(-number // unit) * unit


def in_points(value: float, plus: bool = True) -> str:
    """One decimal, with a typographic minus, and no minus before zero."""
    rounded = round(value, 1) + 0.0
    text = f"{rounded:+.1f}" if plus else f"{rounded:.1f}"
    return text.replace("-", "−").replace("inf", "∞")


def rate_text(rate: Effect | None) -> str:
    """A gain per cost with its interval; a dash where the interval is wider than the value."""
    if rate is None or not rate.high - rate.low <= abs(rate.mean):
        return NONE
    return f"{in_digits(rate.mean)} [{in_digits(rate.low)}, {in_digits(rate.high)}]"


def in_digits(value: float, digits: int = 2) -> str:
    """With a sign, a typographic minus and `digits` significant digits, for any magnitude."""
    if not value or not isfinite(value):
        return NONE if isnan(value) else in_points(value)
    rounded = float(f"{value:.{digits - 1}e}")
    places = digits - 1 - floor(log10(abs(rounded)))
    return f"{rounded:+,.{max(0, places)}f}".replace("-", "−")


def _p(value: float) -> str:
    """As in journals: = .003, < .001."""
    if value < 0.001:
        return "< .001"
    return "= 1" if round(value, 3) == 1 else "= " + f"{value:.3f}".lstrip("0")


def effect_text(effect: Effect) -> str:
    """A difference of shares with its interval in points, which is left out where it is infinite.

    No difference exceeds 100 points, but the t interval of two questions may.
    """
    if isnan(effect.mean):
        return NONE
    mean, low, high = (in_points(max(-100.0, min(100.0, 100 * x))) for x in effect[:3])
    return f"{mean} [{low}, {high}]" if isfinite(effect.low) else mean


def part_texts(gain: DividedGain) -> tuple[str, ...]:
    """The gain, its parts (PART_HEAD), and each factor before and after."""
    parts = map(effect_text, gain.parts) if gain.parts else [UNKNOWN] * len(FACTORS)
    sides = zip(factor_texts(gain.before), factor_texts(gain.after), strict=True)
    return (effect_text(gain.gain), *parts, *(" → ".join(side) for side in sides))


def factor_texts(factors: Factors) -> list[str]:
    """The factors in %."""
    return [UNKNOWN if value is None else f"{100 * value:.1f}" for value in factors]


def rising(tiers: Iterable[str]) -> list[str]:
    """Names of tiers in rising order: "9" comes before "10"."""
    return sorted(tiers, key=lambda name: (len(name), name))

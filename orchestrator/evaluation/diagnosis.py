"""What a GRPO run learned from, what it wasted, and what is wrong with it. Pure.

Any trainer's log is a `RunLog`: a table of completions, and metrics by update; either may be
missing. A check reads `Facts` and gives findings; CHECKS is the list of them. `absent` names what a
log lacks, and a check that cannot be made is `Unchecked`: no check guesses.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from orchestrator.evaluation.dependence import LEAST_PROMPTS
from orchestrator.evaluation.liveness import HARDLY_ANY
from orchestrator.evaluation.run_facts import (
    LEAST_UPDATES,
    NOT_LOGGED,
    VISITS,
    Facts,
    Floats,
    change_of,
)
from orchestrator.evaluation.run_log import METRICS, RunLog
from orchestrator.evaluation.visits import ALPHA, pairs_needed
from orchestrator.plugins.counts import counted
from tasks.marking.digits import normalize_number
from tasks.marking.spelling import spelling_key

ONLY_UPDATES = "the log shows only in which updates all rewards are equal"
FEW_LIVE = 1 / 4  # share of live groups below which most of a run is wasted
NEVER = 1 / 2  # share of prompts without any signal that is reported
CUT, MOSTLY_CUT, CUT_RISE = 0.2, 0.5, 0.1  # shares of completions at the token limit
PHANTOM, MOSTLY_PHANTOM = 0.25, 0.5  # shares of the groups whose rewards differ
FOLLOWS_LENGTH = 0.8  # correlation of reward and length within groups
LONGER = 3.0  # factor of the length
LOGP, LOGP_BAD = 0.05, 0.1  # nats; trl#5312: .20 where the sampler's weights are old, else .015
KL, KL_BAD = 1.0, 10.0
SPIKE, SPIKE_LEAST = 10.0, 0.2  # times KL before and after, and KL at least
CLIPPED = 0.3
STALE, STALE_BAD = 4, 16  # updates; asynchronous trainers allow for up to 8
LORA_LEARNING_RATE = 5e-3  # above which it is reported: five times the largest of experiments.yaml
FULL_LEARNING_RATE = 1e-4  # of all weights: a hundred times TRL's default
KL_AGAIN = 0.1  # share of its level to which KL falls within an update if weights are reset
WINDOW = 3  # updates over which a value lasts
AGREES = 0.15  # correlation of reward and correctness within groups
EVALUATION = 0.8  # share of its start to which the score on held-out questions falls
MOST_LEFT_OUT = 0.25  # of groups, above which the rest does not represent them
FEW_PROMPTS = 256  # that are drawn in every update
LEAST_GROUPS = 10  # from which on a mean over groups is taken
CONSTANT = 0.7  # share of the most frequent answer, each prompt counting once
INDEPENDENT = 0.15  # `Dependence` up to which such answers are taken not to depend on prompts
FEW_ANSWERS = 0.2  # share of the most frequent answer where there are few
LOST = 1 / 4  # share of its start to which the dependence falls
SOLVED = 0.9  # share of correct completions from which on constant answers are right
DEVIATIONS = 3.3  # standard errors: ALPHA
SINGLE = 0.05  # share of groups of one completion that is reported
REGULAR = 0.9  # share of groups, or of updates, with the usual number of completions
ANOTHER_FORM = 0.01  # share of wrong completions that give the gold answer in another form
MOST_DIGITS = 100  # of a number that is compared by its value
LEAST_PAIRS = pairs_needed(1)  # of visits of the same prompts
AGAIN = 30  # visits of each prompt, on average


class Finding(NamedTuple):
    """One thing that is wrong: `bad` if the run taught nothing, or wrong things, because of it."""

    code: str
    bad: bool
    text: str
    remedy: str


class Unchecked(NamedTuple):
    """A code that a log cannot be checked for, and why."""

    code: str
    why: str


def percent(share: float) -> str:
    """A share from 0 to 1 as text."""
    return f"{100 * share:.{0 if share >= 0.1 or share == 0 else 1}f} %"


def _not_finite(facts: Facts) -> Iterator[Finding | Unchecked]:
    names = ("loss", "grad_norm", "reward", "kl")
    if not {"loss", "grad_norm"} <= facts.log.metrics.keys():
        yield Unchecked("not-finite", facts.why_unknown("loss", "grad_norm"))
    for name in names:
        values = facts.log.metrics.get(name, {})
        broken = {update for update, value in values.items() if not np.isfinite(value)}
        if name == "reward":
            broken |= facts.broken_rewards
        if broken:
            remedy = "lower the learning rate, or train in float32 or bfloat16 instead of float16"
            if name == "reward":
                remedy = "check the function that computes the reward of these completions"
            yield Finding(
                "not-finite",
                True,
                f"{METRICS[name].text} is not a number at {counted(len(broken), 'update')}, first "
                f"at update {min(broken)}",
                remedy,
            )


def _dead(facts: Facts) -> Iterator[Finding | Unchecked]:
    left_out = len(facts.groups.size) - facts.judged
    live, text = facts.live, "{} of groups are live"
    if not facts.knows_live:  # no group is live where all rewards of an update are equal
        varied = facts.varied[np.isfinite(facts.varied)]
        live, text = (
            float(varied.mean()) if len(varied) else np.nan,
            "rewards differ at {} of updates",
        )
    if left_out > MOST_LEFT_OUT * len(facts.groups.size):
        of = counted(len(facts.groups.size), "group")
        yield Unchecked("dead", f"{left_out:,} of {of} have too few known rewards")
        return
    if np.isnan(live):
        yield Unchecked("dead", facts.why_unknown("dead"))
        return
    if live > FEW_LIVE:
        if not facts.knows_live:
            yield Unchecked("dead", ONLY_UPDATES)
        return
    kinds, shares, groups = facts.kinds, [], facts.judged
    for kind, name in (("all_right", "all correct"), ("all_wrong", "all wrong")):
        if kinds[kind]:
            shares.append(f"{percent(kinds[kind] / groups)} are {name}")
    detail = f" ({', '.join(shares)})" if shares else ""
    if any(True for _ in _learning_rate(facts)):
        remedy = "lower the learning rate"
    elif kinds["all_right"] > kinds["all_wrong"]:
        remedy = "train on harder prompts, or sample at a higher temperature"
    elif facts.mean("truncated") >= CUT:
        remedy = "raise the token limit of completions"
    elif kinds["all_wrong"]:
        remedy = "train on easier prompts, draw larger groups, or check that answers are read"
    else:
        remedy = "train on prompts that the model solves sometimes; check that the reward varies"
    yield Finding("dead", live <= HARDLY_ANY, text.format(percent(live)) + detail, remedy)


def _single_completions(facts: Facts) -> Iterator[Finding | Unchecked]:
    size = facts.groups.size
    single = int((size == 1).sum())
    if not len(size):
        yield Unchecked("one-completion", NOT_LOGGED)
    elif single == len(size) or single >= max(LEAST_GROUPS, SINGLE * len(size)):
        text = f"{single:,} of {counted(len(size), 'group')} have one completion"
        remedy = "log all completions of a group, or draw several of each prompt"
        yield Finding("one-completion", False, text, remedy)


def _updates(facts: Facts) -> Iterator[Finding | Unchecked]:
    """Gaps, and updates with a multiple of the usual completions, as if they were written twice."""
    updates, place = np.unique(facts.groups.update, return_inverse=True)
    if len(updates) < LEAST_UPDATES:
        yield Unchecked("updates", f"{LEAST_UPDATES} updates with completions are needed")
        return
    steps = np.diff(updates)
    values, counts = np.unique(steps, return_counts=True)
    usual = int(values[counts.argmax()])
    gaps = [int(update) for update in updates[:-1][steps > usual]]
    drawn = np.bincount(place, weights=facts.groups.size)
    twice = [int(u) for u in updates[drawn >= 2 * np.median(drawn)]]
    texts = []
    if gaps and counts.max() > len(steps) / 2:
        texts.append(f"updates are missing after update {_listed(gaps)}")
    if twice and len(twice) < len(updates) / 4:
        texts.append(f"twice as many completions as usual at update {_listed(twice)}")
    if texts:
        remedy = "check whether the log is complete, and whether a part was written twice"
        yield Finding("updates", False, "; ".join(texts), remedy)


def _listed(values: Sequence[int | str]) -> str:
    shown = ", ".join(map(str, values[:5]))
    return f"{shown}{f' and {len(values) - 5} more' if len(values) > 5 else ''}"


def _run_dry(facts: Facts) -> Iterator[Finding | Unchecked]:
    known = 1 - facts.series("dead") if facts.knows_live else facts.varied
    live = change_of(known)
    if live is None:
        needed = f"{LEAST_UPDATES} updates are needed"
        yield Unchecked(
            "run-dry", needed if np.isfinite(known).any() else facts.why_unknown("dead")
        )
    elif live.fell and live.end <= HARDLY_ANY and live.start > FEW_LIVE:
        solved = facts.mean(facts.quality, last=True) > 1 / 2
        groups = "live groups" if facts.knows_live else "updates in which rewards differ"
        yield Finding(
            "run-dry",
            False,
            f"{groups} fell from {percent(live.start)} to {percent(live.end)}",
            "stop earlier, or go on with harder prompts" if solved else "check entropy and rewards",
        )
    elif not facts.knows_live:
        yield Unchecked("run-dry", ONLY_UPDATES)


def _truncated(facts: Facts) -> Iterator[Finding | Unchecked]:
    share, change = facts.mean("truncated"), facts.change("truncated")
    rises = change is not None and change.rose and change.end - change.start >= CUT_RISE
    falls = change is not None and change.start >= CUT
    if not (share >= CUT or rises or falls):
        return
    limit = f" of {facts.log.most_tokens}" if facts.log.most_tokens else ""
    text = f"{percent(share)} of completions end at the token limit{limit}"
    if (rises or falls) and change is not None:
        text += f", from {percent(change.start)} at the start to {percent(change.end)}"
    remedy = "raise the limit, or do not train on completions that it cuts off"
    yield Finding("truncated", share >= MOSTLY_CUT, text, remedy)


def _phantom(facts: Facts) -> Iterator[Finding | Unchecked]:
    known = np.isfinite(facts.groups.correct) & (facts.groups.rewarded == 1)
    count = facts.kinds["phantom"]
    if known.sum() < LEAST_GROUPS:
        yield Unchecked("phantom", f"{LEAST_GROUPS} groups with different rewards are needed")
    elif count >= PHANTOM * known.sum():
        share = count / int(known.sum())
        yield Finding(
            "phantom",
            share >= MOSTLY_PHANTOM,
            f"{percent(share)} of the groups with different rewards have equal correctness: they "
            "move the weights, but carry no information about answers",
            "give the other rewards less weight, or grant them only to correct completions",
        )


def _reward_not_correctness(facts: Facts) -> Iterator[Finding | Unchecked]:
    agree = facts.groups.agree[np.isfinite(facts.groups.agree)]
    if len(agree) >= LEAST_GROUPS and upper_mean(agree) < AGREES:
        yield Finding(
            "reward-not-correctness",
            True,
            f"within groups, correct completions do not have the higher reward (mean correlation "
            f"{agree.mean():.2f} in {counted(len(agree), 'group')})",
            "check the sign of the reward, and that rewards stay with their completions",
        )
        return
    reward, correct = facts.visits("reward").trend, facts.visits("correct").trend
    if correct.number < LEAST_PAIRS:
        yield Unchecked("reward-not-correctness", drawn_again(correct.number, LEAST_PAIRS))
    elif reward.rises() and not correct.is_rising:
        yield Finding(
            "reward-not-correctness",
            correct.falls(),
            f"from first to last visits of the same prompts, the reward rises from "
            f"{reward.before:.3g} to {reward.after:.3g}, while correctness goes from "
            f"{percent(correct.before)} to {percent(correct.after)}",
            "the reward can be obtained without right answers: read completions, and change it",
        )


def _reward_is_length(facts: Facts) -> Iterator[Finding | Unchecked]:
    rewards = facts.log.completions["reward"]
    if 0 < len(pc.unique(rewards.drop_null())) <= 2:  # right or wrong: does not depend on length
        return
    alike = facts.groups.alike[np.isfinite(facts.groups.alike)]
    if len(alike) < LEAST_GROUPS:
        yield Unchecked(
            "reward-is-length", f"{LEAST_GROUPS} groups with rewards and lengths are needed"
        )
    elif abs(alike.mean()) >= FOLLOWS_LENGTH:
        kind = "longer" if alike.mean() > 0 else "shorter"
        yield Finding(
            "reward-is-length",
            False,
            f"within groups, {kind} completions have the higher reward (mean correlation "
            f"{alike.mean():.2f} in {counted(len(alike), 'group')})",
            "give length less weight than correctness",
        )


def upper_mean(values: Floats) -> float:
    """The upper end of a mean's interval at level ALPHA."""
    error = float(values.std(ddof=1)) / float(np.sqrt(len(values)))
    return float(values.mean()) + float(stdtrit(len(values) - 1, 1 - ALPHA / 2)) * error


def drawn_again(count: int, needed: int) -> str:
    """Why prompts cannot be compared with themselves."""
    if not count:
        return "no prompt was drawn both early and late"
    return f"{counted(count, 'pair')} of visits of the same prompt; {needed} are needed"


def _collapse(facts: Facts) -> Iterator[Finding | Unchecked]:
    visits, evaluation = facts.visits(facts.quality), facts.change("evaluation")
    remedy = "lower the learning rate, raise beta, or check the gold answers"
    if evaluation and evaluation.fell and evaluation.end <= EVALUATION * evaluation.start:
        name = METRICS["evaluation"].text
        text = f"{name} falls from {evaluation.start:.3g} to {evaluation.end:.3g}"
        yield Finding("collapse", True, text, remedy)
    elif visits.step is not None and visits.step.back:
        return
    elif visits.lasting:
        fall = max(visits.lasting, key=lambda pairs: pairs.score)
        yield Finding(
            "collapse",
            True,
            f"from update {fall.update} on, {METRICS[facts.quality].text} is {fall.after:.3g}, and "
            f"was {fall.before:.3g} at earlier visits of the same prompts",
            remedy,
        )
    elif (step := visits.step) is not None:
        text = (
            f"near update {step.update}, {METRICS[facts.quality].text} at equal prompts goes from "
            f"{step.before:.3g} to {step.after:.3g}"
        )
        yield Finding("collapse", True, text, remedy)
    elif visits.available < visits.needed and evaluation is None:
        yield Unchecked("collapse", drawn_again(visits.available, visits.needed))


def _reset(facts: Facts) -> Iterator[Finding | Unchecked]:
    visits, kl = facts.visits(facts.quality), facts.series("kl")
    step, again = visits.step, kl_again(kl)
    remedy = "check that the resumed run loads the adapter and the optimizer's state"
    if step is not None and step.back:
        text = (
            f"near update {step.update}, {METRICS[facts.quality].text} at equal prompts goes from "
            f"{step.before:.3g} to {step.after:.3g}, as at the start"
        )
        yield Finding("reset", True, text, remedy)
    elif again is not None:
        text = f"at update {facts.updates[again]}, {METRICS['kl'].text} is back at its start"
        yield Finding("reset", False, text, f"{remedy}, unless the reference model is renewed")
    elif visits.available < visits.needed and not np.isfinite(kl).any():
        yield Unchecked("reset", drawn_again(visits.available, visits.needed))


def kl_again(kl: Floats) -> int | None:
    """The row in which KL divergence is back at its start within one update, and rises again."""
    for row in range(WINDOW, len(kl) - 1):
        before = kl[row - WINDOW : row].min()
        falls = kl[row] <= KL_AGAIN * before and kl[row + 1] <= before / 2
        if before > 0 and falls and kl[row] <= kl[:WINDOW].max():
            return row
    return None


def _never_live(facts: Facts) -> Iterator[Finding | Unchecked]:
    visits = np.bincount(facts.groups.prompt, minlength=len(facts.groups.prompts))
    often, never = int((visits >= VISITS).sum()), len(facts.without_signal)
    if not often:
        yield Unchecked("never-live", f"no prompt was drawn {VISITS} times")
    elif never and never >= NEVER * often and facts.live > HARDLY_ANY:
        of = f"{counted(often, 'prompt')} that were drawn {VISITS} times or more"
        remedy = "leave them out: decile probe shows such prompts before training"
        yield Finding("never-live", False, f"{never} of the {of} never had a live group", remedy)


def _few_prompts(facts: Facts) -> Iterator[Finding | Unchecked]:
    groups = facts.groups
    if not len(groups.update):
        yield Unchecked("few-prompts", NOT_LOGGED)
        return
    per_update = float(np.median(np.unique(groups.update, return_counts=True)[1]))
    visits = len(groups.update) / len(groups.prompts)
    few = len(groups.prompts) <= min(per_update, FEW_PROMPTS)
    if few and len(np.unique(groups.update)) > 1:
        drawn = counted(round(per_update), "group")
        text = f"an update draws {drawn} of {counted(len(groups.prompts), 'prompt')}"
    elif visits >= AGAIN:
        prompts = counted(len(groups.prompts), "prompt")
        text = f"each of {prompts} was drawn {visits:.0f} times on average"
    else:
        return
    yield Finding("few-prompts", False, text, "train on more prompts, or for fewer updates")


def lasting_peak(values: Floats) -> tuple[int, float]:
    """The highest median of WINDOW neighbours and its place; all values must be known."""
    width = min(WINDOW, len(values))
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    return int(np.argmax(medians)) + width // 2, float(medians.max())


def _logp_difference(facts: Facts) -> Iterator[Finding | Unchecked]:
    text, value = highest(facts, "logp_difference", LOGP)
    if value > LOGP:
        remedy = "check that the sampler has the trainer's weights"
        yield Finding("logp-difference", value > LOGP_BAD, text, remedy)


def _clipped(facts: Facts) -> Iterator[Finding | Unchecked]:
    text, value = highest(facts, "clipped", CLIPPED)
    if value > CLIPPED:
        remedy = "lower the learning rate, or take fewer steps per batch"
        yield Finding("clipped", False, text, remedy)


def highest(facts: Facts, name: str, limit: float) -> tuple[str, float]:
    """The `lasting_peak` of a metric, as text and as number."""
    known = np.isfinite(facts.series(name))
    at, value = lasting_peak(facts.series(name)[known])
    update = facts.updates[known][at]
    return f"{METRICS[name].text} is {value:.3g} at update {update} (usual: below {limit:g})", value


def _kl(facts: Facts) -> Iterator[Finding | Unchecked]:
    known = np.isfinite(facts.series("kl"))
    values, updates = facts.series("kl")[known], facts.updates[known]
    at, value = lasting_peak(values)
    top = int(np.argmax(values))
    lasts = value >= SPIKE_LEAST and value >= SPIKE * level_around(values, at)
    if value > KL or lasts:
        bad = value > KL_BAD or (lasts and value > KL)
    elif values[top] > KL and values[top] >= SPIKE * level_around(values, top):
        at, value, bad, lasts = top, float(values[top]), False, True
    else:
        return
    usual = "10 times that before and after" if lasts else f"usual: below {KL:g}"
    text = f"{METRICS['kl'].text} is {value:.3g} at update {updates[at]} ({usual})"
    yield Finding("kl", bad, text, "lower the learning rate, clip gradients, or raise beta")


def level_around(values: Floats, at: int) -> float:
    """The larger median of the values before a place and after it; inf if either has too few."""
    sides = (values[: max(0, at - WINDOW)], values[at + WINDOW + 1 :])
    return max(float(np.median(side)) if len(side) >= WINDOW else np.inf for side in sides)


def _entropy(facts: Facts) -> Iterator[Finding | Unchecked]:
    entropy, live = facts.change("entropy"), change_of(1 - facts.series("dead"))
    if entropy is None:
        return
    if entropy.rose and entropy.end > max(1.0, 5 * entropy.start):
        text = f"entropy rises from {entropy.start:.3g} to {entropy.end:.3g} nats"
        yield Finding("entropy", True, text, "lower the learning rate")
    solved = facts.mean(facts.quality, last=True) > 1 / 2
    if entropy.end >= entropy.start / 5 or solved:
        return
    if live is None:
        yield Unchecked("entropy", "it is unknown whether groups are live")
        return
    if live.end > HARDLY_ANY:
        return
    again = facts.visits("live").trend
    if again.number < LEAST_PAIRS:
        yield Unchecked("entropy", drawn_again(again.number, LEAST_PAIRS))
    elif again.falls():
        text = (
            f"entropy falls from {entropy.start:.3g} to {entropy.end:.3g} nats, and live groups of "
            f"the same prompts from {percent(again.before)} to {percent(again.after)}"
        )
        yield Finding("entropy", True, text, "lower the learning rate, or sample at temperature 1")


def _length(facts: Facts) -> Iterator[Finding | Unchecked]:
    length, quality = facts.visits("length").trend, facts.visits(facts.quality).trend
    if not np.isfinite(facts.groups.length).any():
        yield Unchecked("length", facts.why_unknown("tokens"))
        return
    if length.number < LEAST_PAIRS or quality.number < LEAST_PAIRS:
        yield Unchecked("length", drawn_again(min(length.number, quality.number), LEAST_PAIRS))
        return
    if quality.is_rising or not length.before > 0:
        return
    factor = length.after / length.before
    if (length.rises() and factor >= LONGER) or (length.falls() and factor <= 1 / LONGER):
        unit = "tokens" if np.isfinite(facts.groups.tokens).any() else "characters"
        yield Finding(
            "length",
            False,
            f"completions of the same prompts go from {length.before:.0f} to {length.after:.0f} "
            f"{unit}, and {METRICS[facts.quality].text} does not rise",
            "read completions from both ends; check what the reward encourages",
        )


def _no_gradient(facts: Facts) -> Iterator[Finding | Unchecked]:
    if not facts.knows_live:
        yield Unchecked("no-gradient", "it is unknown whether groups are live")
        return
    for name in ("grad_norm", "learning_rate"):
        values = facts.series(name)[np.isfinite(facts.series(name))]
        if len(values) >= LEAST_UPDATES and (values == 0).mean() > 0.9 and facts.live > HARDLY_ANY:
            text = f"{METRICS[name].text} is 0 at {percent(float((values == 0).mean()))} of updates"
            remedy = "check which weights are trained, and the learning rate"
            yield Finding("no-gradient", True, text, remedy)


def _learning_rate(facts: Facts) -> Iterator[Finding | Unchecked]:
    rates = facts.series("learning_rate")
    if not np.isfinite(rates).any():
        return
    rate = float(np.nanmax(rates))
    limit = FULL_LEARNING_RATE if facts.log.lora is False else LORA_LEARNING_RATE
    if rate > limit:
        what = "with LoRA" if facts.log.lora else "without LoRA" if facts.log.lora is False else ""
        text = f"the learning rate is {rate:g} {what}".rstrip()
        yield Finding("learning-rate", False, f"{text} (usual: at most {limit:g})", "lower it")


def _wrong_golds(facts: Facts) -> Iterator[Finding | Unchecked]:
    golds = facts.golds
    if golds is None:
        yield Unchecked("wrong-golds", NOT_LOGGED)
    elif golds.credible:
        yield Finding(
            "wrong-golds",
            False,
            f"completions of {counted(golds.on_other, 'prompt')} agree on an answer other than the "
            f"gold one. {golds.expected_by_mistake}. {golds.expected_precision}",
            "check these gold answers; the JSON lists them with the agreed answer",
        )


def _constant_answers(facts: Facts) -> Iterator[Finding | Unchecked]:
    every = np.ones(len(facts.prompt_of), bool)
    yield from _answers(facts, "constant-answers", {"": every})


def _source_answers(facts: Facts) -> Iterator[Finding | Unchecked]:
    sources = facts.log.completions["source"].fill_null("")
    names = [name for name in sources.unique().to_pylist() if name]
    rows = {f" of {name}": pc.equal(sources, name).to_numpy() for name in names}
    if not rows:
        yield Unchecked("source-answers", facts.why_unknown("source"))
    elif not any(isinstance(each, Finding) for each in _constant_answers(facts)):
        yield from _answers(facts, "source-answers", rows)


def _answers(
    facts: Facts, code: str, scopes: Mapping[str, npt.NDArray[np.bool_]]
) -> Iterator[Finding | Unchecked]:
    """The first of these [rows] whose answers do not depend on the prompt."""
    table, update = facts.log.completions, facts.log.completions["update"].to_numpy()
    if table["text"].null_count == len(table):
        yield Unchecked(code, facts.why_unknown("text"))
        return
    updates, answered = np.unique(update), pc.is_valid(facts.answers).to_numpy(False)
    if len(updates) < LEAST_UPDATES:
        yield Unchecked(code, f"{LEAST_UPDATES} updates with completions are needed")
        return
    width = max(WINDOW, len(updates) // 5)
    ends = update <= updates[:width][-1], update >= updates[-width:][0]
    if min(answered[rows].mean() for rows in ends) < 1 / 2:
        yield Unchecked(code, "most texts have neither a box nor a number")
        return
    starts, stops = (answered & rows for rows in ends)
    results = [_independent(facts, code, n, r & starts, r & stops) for n, r in scopes.items()]
    findings = [result for result in results if isinstance(result, Finding)]
    yield from findings[:1] or [result for result in results if result is not None][:1]


def _independent(
    facts: Facts, code: str, of: str, start: npt.NDArray[np.bool_], end: npt.NDArray[np.bool_]
) -> Finding | Unchecked | None:
    """Whether the answers at the end of a run depend on the prompt; [rows] of its start and end."""
    table = facts.log.completions
    remedy = "read completions from the end; stop earlier, and check what the reward encourages"
    last = facts.dependence(end)
    if last is None:
        return Unchecked(code, f"{LEAST_PROMPTS} prompts with two answers at the end are needed")
    if last.share >= CONSTANT and last.value <= INDEPENDENT:
        right = pc.mean(table["correct"].filter(pa.array(end))).as_py()
        golds = pc.count_distinct(table["gold"].filter(pa.array(end))).as_py()
        if golds == 0 and right is not None and right >= SOLVED:
            return Unchecked(
                code, "answers are the same and right, and the log has no gold answers"
            )
        text = f"at the end, {percent(last.share)} of answers{of} are the same for all prompts"
        return None if golds == 1 else Finding(code, True, text, remedy)
    prompts = facts.prompt_of
    both = np.isin(prompts, prompts[start]) & np.isin(prompts, prompts[end])
    first, again = facts.dependence(start & both), facts.dependence(end & both)
    if again is None or first is None:
        return Unchecked(code, f"{LEAST_PROMPTS} prompts drawn both early and late are needed")
    margin = max(DEVIATIONS * float(np.hypot(first.error, again.error)), (1 - LOST) * first.value)
    if first.value - again.value <= margin:
        return None
    if again.share >= FEW_ANSWERS and facts.visits(facts.quality).trend.is_rising:
        # Of two answers, both are equally frequent while prompts go from wrong to right.
        return Unchecked(code, "there are few answers, and more of them are right")
    text = (
        f"answers{of} to the same prompts depend less on the prompt: two completions of a prompt "
        f"agree beyond chance by {first.value:.2f} at the start and {again.value:.2f} at the end"
    )
    return Finding(code, True, text, remedy)


def _mixed_prompts(facts: Facts) -> Iterator[Finding | Unchecked]:
    table = facts.log.completions
    table = table.filter(pc.is_valid(table["named_group"]))
    if not len(table):
        yield Unchecked("mixed-prompts", "the log does not number groups")
        return
    groups = table.group_by(["update", "named_group"])
    counts = groups.aggregate([("prompt", "count_distinct"), ("prompt", "count")])
    size = counts["prompt_count"].to_numpy()
    several = counts["prompt_count_distinct"].to_numpy() > 1
    if several.mean() < SINGLE:
        return
    if (size == np.median(size)).mean() < REGULAR:  # rather kinds of prompts than groups
        yield Unchecked("mixed-prompts", "the numbered groups have different sizes")
        return
    text = f"{several.sum():,} of {counted(len(size), 'group')} compare different prompts"
    remedy = "check that the sampler repeats each prompt as often as groups have completions"
    yield Finding("mixed-prompts", True, text, remedy)


def _mixed_golds(facts: Facts) -> Iterator[Finding | Unchecked]:
    table = facts.log.completions
    if table["gold"].null_count == len(table):
        yield Unchecked("mixed-golds", facts.why_unknown("gold"))
        return
    golds = table.group_by("group").aggregate([("gold", "count_distinct")])
    several = golds["gold_count_distinct"].to_numpy() > 1
    if several.mean() >= SINGLE:
        text = f"{several.sum():,} of {counted(len(several), 'group')} have several gold answers"
        remedy = "check that gold answers stay with their prompts"
        yield Finding("mixed-golds", True, text, remedy)


def _group_size(facts: Facts) -> Iterator[Finding | Unchecked]:
    """A number of completions per prompt and update that changes mid-run and stays changed."""
    table = facts.log.completions
    drawn = table.group_by(["update", "prompt"]).aggregate([("prompt", "count")])
    update, count = drawn["update"].to_numpy(), drawn["prompt_count"].to_numpy()
    updates, row = np.unique(update, return_inverse=True)
    if len(updates) < LEAST_UPDATES:
        yield Unchecked("group-size", f"{LEAST_UPDATES} updates with completions are needed")
        return
    order = np.lexsort((count, row))
    middle = np.searchsorted(row[order], np.arange(len(updates))) + np.bincount(row) // 2
    usual = count[order][middle]  # the median of each update
    regular = np.bincount(row, count == usual[row]) / np.bincount(row) >= REGULAR
    starts = np.flatnonzero(np.diff(usual, prepend=-1))
    parts = np.diff(starts, append=len(usual))
    if len(starts) > 1 and regular.mean() >= REGULAR and parts.min() >= WINDOW:
        sizes = ", then ".join(f"{usual[at]} from update {updates[at]} on" for at in starts[:4])
        text = f"the completions per prompt in an update are {sizes}"
        remedy = "keep the group size when resuming a run, because advantages depend on it"
        yield Finding("group-size", False, text, remedy)


def _source(facts: Facts) -> Iterator[Finding | Unchecked]:
    dead = [name for name, (groups, live) in facts.sources.items() if groups and not live]
    if not facts.sources:
        lacking = ("source",) if facts.knows_live else ("source", "dead")
        yield Unchecked("source", facts.why_unknown(*lacking))
    elif dead and facts.live > HARDLY_ANY:
        of = counted(sum(facts.sources[name][0] for name in dead), "group")
        text = f"no group of {_listed(dead)} was live, of {of}"
        remedy = "leave the source out, or check how its answers are marked"
        yield Finding("source", False, text, remedy)


def _zero_weight(facts: Facts) -> Iterator[Finding | Unchecked]:
    weights = facts.log.weights
    if not weights:
        yield Unchecked("zero-weight", NOT_LOGGED)
    elif unused := [name for name, weight in weights.items() if weight == 0]:
        text = f"the reward ignores {_listed(unused)}: the weight is 0"
        remedy = "set its weight, unless it is only to be logged"
        yield Finding("zero-weight", False, text, remedy)


def _gold_form(facts: Facts) -> Iterator[Finding | Unchecked]:
    """Completions marked wrong whose answer is the gold one in another form."""
    table = facts.log.completions.append_column("answer", facts.answers)
    lacking = [n for n in ("answer", "gold", "correct") if table[n].null_count == len(table)]
    if lacking:
        yield Unchecked("gold-form", facts.why_unknown(*lacking))
        return
    wrong = table.filter(pc.invert(table["correct"]))
    pairs = wrong.group_by(["gold", "answer"]).aggregate([("prompt", "count")]).to_pylist()
    pairs = [pair for pair in pairs if pair["gold"] is not None and pair["answer"] is not None]
    same = [pair for pair in pairs if _value(pair["gold"]) == _value(pair["answer"])]
    number = sum(pair["prompt_count"] for pair in same)
    if number >= max(LEAST_GROUPS, ANOTHER_FORM * len(wrong)):
        first = max(same, key=lambda pair: pair["prompt_count"])
        yield Finding(
            "gold-form",
            False,
            f"{number:,} of {counted(len(wrong), 'completion')} marked wrong give the gold answer, "
            f"such as {first['answer']!r:.40} for {first['gold']!r:.40}",
            "check how answers are read and compared, and what else the reward requires",
        )


@lru_cache(100_000)
def _value(answer: str) -> Fraction | str:
    """A number by its value, any other answer by its spelling."""
    key = spelling_key(answer)
    number = normalize_number(key)
    return key if number is None or len(number) > MOST_DIGITS else Fraction(number)


def _stale(facts: Facts) -> Iterator[Finding | Unchecked]:
    text, value = highest(facts, "stale", STALE)
    if value > STALE:
        remedy = "update the sampler's weights more often, or limit how far it may run ahead"
        yield Finding("stale", value > STALE_BAD, text, remedy)


def _early_end(facts: Facts) -> Iterator[Finding | Unchecked]:
    planned, done = facts.log.planned, int(facts.updates.max(initial=0))
    if not planned:
        yield Unchecked("early-end", NOT_LOGGED)
    elif done < planned and not facts.log.running:
        text = f"the log ends at update {done:,} of {planned:,}"
        remedy = "resume it from its last checkpoint"
        if not done:  # TRL ends at once
            remedy = "check that the data set has at least as many prompts as an update draws"
        yield Finding("early-end", not done, text, remedy)


class Check(NamedTuple):
    """A check and its code. `needs`: the metrics that it requires.

    Each must have a value at this many `updates`.
    """

    code: str
    of: Callable[[Facts], Iterator[Finding | Unchecked]]
    needs: tuple[str, ...] = ()
    updates: int = 1

    def results(self, facts: Facts) -> Iterator[Finding | Unchecked]:
        """Its findings, or why it cannot be made."""
        known = {name: int(np.isfinite(facts.series(name)).sum()) for name in self.needs}
        lacking = [name for name, count in known.items() if count < self.updates]
        if not lacking and facts.same_reward and {"correct", "reward"} <= known.keys():
            yield Unchecked(self.code, "rewards are the same as correctness")
        elif not lacking:
            yield from self.of(facts)
        elif any(known[name] for name in lacking):
            yield Unchecked(self.code, f"{self.updates} updates are needed")
        else:
            yield Unchecked(self.code, facts.why_unknown(*lacking))


CHECKS = (
    Check("not-finite", _not_finite),
    Check("updates", _updates),
    Check("one-completion", _single_completions),
    Check("mixed-prompts", _mixed_prompts),
    Check("mixed-golds", _mixed_golds),
    Check("group-size", _group_size),
    Check("dead", _dead),
    Check("run-dry", _run_dry),
    Check("truncated", _truncated, ("truncated",)),
    Check("phantom", _phantom, ("correct", "reward")),
    Check("reward-not-correctness", _reward_not_correctness, ("correct", "reward")),
    Check("reward-is-length", _reward_is_length, ("reward",)),
    Check("collapse", _collapse),
    Check("reset", _reset),
    Check("never-live", _never_live, ("dead",)),
    Check("few-prompts", _few_prompts),
    Check("logp-difference", _logp_difference, ("logp_difference",)),
    Check("kl", _kl, ("kl",)),
    Check("clipped", _clipped, ("clipped",)),
    Check("entropy", _entropy, ("entropy",), LEAST_UPDATES),
    Check("length", _length),
    Check("no-gradient", _no_gradient, ("grad_norm",), LEAST_UPDATES),
    Check("learning-rate", _learning_rate, ("learning_rate",)),
    Check("constant-answers", _constant_answers),
    Check("source-answers", _source_answers),
    Check("source", _source),
    Check("zero-weight", _zero_weight),
    Check("gold-form", _gold_form),
    Check("stale", _stale, ("stale",)),
    Check("wrong-golds", _wrong_golds),
    Check("early-end", _early_end),
)


@dataclass(frozen=True)
class Diagnosis:
    """The facts of a log, what is wrong, the worst first, and what could not be checked."""

    facts: Facts
    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...] = ()

    @property
    def bad(self) -> bool:
        """Whether something is badly wrong."""
        return any(finding.bad for finding in self.findings)

    @property
    def not_made(self) -> set[str]:
        """The codes of checks that could not be made."""
        return {each.code for each in self.unchecked} - {each.code for each in self.findings}

    def to_dict(self) -> dict[str, Any]:
        """What `decile diagnose --json` prints of this run; shares are from 0 to 1."""
        facts, log = self.facts, self.facts.log
        golds = facts.golds
        disputed = [] if golds is None else [gold._asdict() for gold in golds.candidates]
        series = {name: facts.series(name) for name in METRICS}
        return {
            "name": log.name,  # of the run
            "layout": log.layout,  # the trainer, or table
            # what in the log is correctness; null if nothing is
            "correctness": log.by_correct or None,
            "updates": len(facts.updates),  # number of updates
            "planned_updates": log.planned,  # of the trainer's settings; null if the log lacks them
            "running": log.running,  # whether the run goes on
            "prompts": len(facts.groups.prompts),  # number of prompts drawn
            "groups": facts.kinds,  # groups by kind: live, all right, all wrong, phantom, …
            # share of live groups; null if unknown
            "live": None if np.isnan(facts.live) else facts.live,
            "taught_nothing": facts.wasted,  # what was spent on groups that are not live
            "sources": {  # by source: groups, and the share that was live
                name: {"groups": groups, "live": live}
                for name, (groups, live) in facts.sources.items()
            },
            "reward_weights": dict(log.weights),  # weights of the reward functions
            # each with `code`, `bad` (a problem, or else a warning), `text` and `remedy`
            "findings": [finding._asdict() for finding in self.findings],
            # by code: why the check could not be made
            "unchecked": {each.code: each.why for each in self.unchecked},
            # prompts that were drawn often and never live
            "prompts_without_signal": facts.without_signal,
            "disputed_golds": disputed,  # gold answers with the answer on which completions agree
            # the same, if they are suspected
            "suspected_golds": disputed if golds is not None and golds.credible else [],
            "golds_doubt": "" if golds is None else golds.doubt,  # why they are not suspected
            "series": {  # by metric: its value by update
                name: {
                    str(update): float(value)
                    for update, value in zip(facts.updates, values, strict=True)
                    if np.isfinite(value)
                }
                for name, values in series.items()
                if np.isfinite(values).any()
            },
            "absent": facts.absent,  # what the log does not hold
            "row_counts": log.rows.to_dict(),
            "notes": list(log.notes),
        }


def diagnose(log: RunLog) -> Diagnosis:
    """All checks on a log."""
    facts = Facts(log)
    results = [result for check in CHECKS for result in check.results(facts)]
    findings = [each for each in results if isinstance(each, Finding)]
    unchecked = [each for each in results if isinstance(each, Unchecked)]
    worst_first = sorted(findings, key=lambda finding: not finding.bad)
    return Diagnosis(facts, tuple(worst_first), tuple(unchecked))

"""What each check of a run reports, as the reference shows it."""

from collections.abc import Mapping
from typing import NamedTuple

from orchestrator.evaluation.diagnosis import (
    AGAIN,
    AGREES,
    CLIPPED,
    CONSTANT,
    CUT,
    CUT_RISE,
    EVALUATION,
    FEW_LIVE,
    FEW_PROMPTS,
    FOLLOWS_LENGTH,
    FULL_LEARNING_RATE,
    KL,
    KL_BAD,
    LOGP,
    LOGP_BAD,
    LONGER,
    LORA_LEARNING_RATE,
    MOSTLY_CUT,
    MOSTLY_PHANTOM,
    NEVER,
    PHANTOM,
    SINGLE,
    SPIKE,
    SPIKE_LEAST,
    STALE,
    STALE_BAD,
    WINDOW,
)
from orchestrator.evaluation.liveness import HARDLY_ANY
from orchestrator.evaluation.run_facts import VISITS


class Meaning(NamedTuple):
    """When a check reports a problem, and when a warning; empty if it never does."""

    problem: str = ""
    warning: str = ""


MEANINGS: Mapping[str, Meaning] = {
    "not-finite": Meaning(
        problem="loss, gradient, reward or KL is not a number",
    ),
    "updates": Meaning(
        warning="updates are missing between others, or have twice the usual completions",
    ),
    "one-completion": Meaning(
        warning=f"groups of one completion, which cannot be judged: all, or {SINGLE:g} of them",
    ),
    "mixed-prompts": Meaning(
        problem="numbered groups hold completions of different prompts",
    ),
    "mixed-golds": Meaning(
        problem="groups hold completions with different gold answers",
    ),
    "group-size": Meaning(
        warning="the completions of a prompt in an update change in mid-run, and stay so",
    ),
    "dead": Meaning(
        problem=(
            f"at most {HARDLY_ANY:g} of groups are live; of a log without groups, of updates in "
            "which rewards differ"
        ),
        warning=f"at most {FEW_LIVE:g}",
    ),
    "run-dry": Meaning(
        warning="live groups have become rare",
    ),
    "truncated": Meaning(
        problem=f"{MOSTLY_CUT:g} of completions end at the token limit",
        warning=(
            f"{CUT:g}, of all or at the start, or {CUT_RISE:g} more at the end than at the start"
        ),
    ),
    "phantom": Meaning(
        problem=f"{MOSTLY_PHANTOM:g} of the groups with different rewards have equal correctness",
        warning=f"{PHANTOM:g} of them",
    ),
    "reward-not-correctness": Meaning(
        problem=(
            f"within groups, the correlation of reward and correctness is below {AGREES:g}; or, at "
            "the same prompts, the reward rises and correctness falls"
        ),
        warning="at the same prompts, the reward rises and correctness does not",
    ),
    "reward-is-length": Meaning(
        warning=f"within groups, reward and length have a correlation of {FOLLOWS_LENGTH:g}",
    ),
    "collapse": Meaning(
        problem=(
            "at the same prompts, correctness falls and stays low, or falls suddenly and does not "
            f"rise again; or the score on held-out questions falls to {EVALUATION:g} of its start"
        ),
    ),
    "reset": Meaning(
        problem=(
            "at the same prompts, correctness falls suddenly to about its start, as if a resumed "
            "run had lost its adapter"
        ),
        warning=(
            "KL is back at its start within one update: that, or the reference model was renewed"
        ),
    ),
    "never-live": Meaning(
        warning=f"{NEVER:g} of the prompts that were drawn {VISITS} times never had a live group",
    ),
    "few-prompts": Meaning(
        warning=(
            f"there are no more prompts than an update draws, at most {FEW_PROMPTS}, or each is "
            f"drawn {AGAIN} times"
        ),
    ),
    "logp-difference": Meaning(
        problem=f"sampler and trainer differ by {LOGP_BAD:g} nats per token over {WINDOW} updates",
        warning=f"by {LOGP:g}",
    ),
    "kl": Meaning(
        problem=(
            f"KL is above {KL_BAD:g} over {WINDOW} updates, or above {KL:g} and {SPIKE:g} times "
            "what it was before and after"
        ),
        warning=f"it is above {KL:g}, or a spike of {SPIKE:g} times is above {SPIKE_LEAST:g}",
    ),
    "clipped": Meaning(
        warning=f"the clipped share is above {CLIPPED:g} over {WINDOW} updates",
    ),
    "entropy": Meaning(
        problem=(
            "entropy rises above 1 nat and fivefold; or it falls to a fifth while the same prompts "
            "have fewer live groups, and hardly any at the end"
        ),
    ),
    "length": Meaning(
        warning=(
            f"completions of the same prompts become {LONGER:g} times longer or shorter, and "
            "correctness does not rise"
        ),
    ),
    "no-gradient": Meaning(
        problem="the gradient or the learning rate is 0 while groups are live",
    ),
    "learning-rate": Meaning(
        warning=f"it is above {LORA_LEARNING_RATE:g} with LoRA, {FULL_LEARNING_RATE:g} without",
    ),
    "constant-answers": Meaning(
        problem=(
            f"at the end, {CONSTANT:g} of answers are the same for all prompts; or they depend "
            "much less on the prompt than at the start"
        ),
    ),
    "source-answers": Meaning(
        problem="the same of the prompts of a source",
    ),
    "source": Meaning(
        warning="a source is drawn often, and no group of it is live",
    ),
    "zero-weight": Meaning(
        warning="a reward function does not count",
    ),
    "gold-form": Meaning(
        warning=(
            "completions that are marked wrong give the gold answer, also in another form (`0.5` "
            "for `1/2`)"
        ),
    ),
    "stale": Meaning(
        problem=f"completions were written by weights more than {STALE_BAD} updates old",
        warning=f"more than {STALE} updates old",
    ),
    "wrong-golds": Meaning(
        warning=(
            "completions agree on other answers than the gold ones, on more prompts than mistakes "
            "explain"
        ),
    ),
    "early-end": Meaning(
        problem="there is no update at all",
        warning="the log ends before `max_steps`, and the run has ended",
    ),
}

"""Rewards that compare the completions of a prompt, as TRL's GRPOTrainer takes them."""

import re
from collections import Counter
from itertools import groupby
from math import comb

K = 4  # of pass@k
BOX = re.compile(r"\\boxed\{([^{}]+)\}")


def majority(prompts, completions, **columns):
    """1 for the most frequent answer of a prompt, without its gold answer (arXiv 2504.16084).

    Where several answers are the most frequent, each of them has 1. A completion without an answer
    has 0.
    """
    rewards = []
    for group in by_prompt(prompts, answers(completions)):
        counts = Counter(answer for answer in group if answer is not None)
        most = max(counts.values(), default=1)
        rewards += [float(counts[answer] == most) for answer in group]
    return rewards


majority.reads_golds = False  # not in columns either: see Labels in docs/sweeps.md


def pass_at_k(prompts, completions, answer, **columns):
    """The share of sets of K completions with this one that have a correct one.

    These are the rewards of arXiv 2505.15201 times n / K: 1 for a correct completion, and for any
    other the pass@(K - 1) of the others. Their mean is the unbiased pass@K of the n completions.
    """
    right = [read == gold for read, gold in zip(answers(completions), answer, strict=True)]
    rewards = []
    for group in by_prompt(prompts, right):
        n, k, wrong = len(group), min(K, len(group)), group.count(False)
        others = 1 - comb(max(wrong - 1, 0), k - 1) / comb(n - 1, k - 1)
        rewards += [1.0 if correct else others for correct in group]
    return rewards


def answers(completions):
    """What the last box of each completion holds; None without one."""
    boxes = [BOX.findall(messages[-1]["content"]) for messages in completions]
    return [each[-1].strip() if each else None for each in boxes]


def by_prompt(prompts, values):
    """The values of each prompt, as lists: a call of TRL's own trainer has several prompts."""
    pairs = groupby(zip(prompts, values, strict=True), lambda pair: pair[0])
    return [[value for _, value in group] for _, group in pairs]

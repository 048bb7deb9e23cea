"""How far answers depend on their prompts. Pure.

A policy whose answers no longer depend on the prompt ("template collapse", arXiv 2604.06268) keeps
its entropy, and its rewards may still differ within groups. Agreement shows it: two completions of
one prompt agree no more often than two of different prompts. Both chances are means over pairs, so
neither is biased by the number of completions or of possible answers.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

LEAST_PROMPTS = 10


class Dependence(NamedTuple):
    """Agreement of answers within prompts beyond that across prompts, 0 (independent) to 1.

    share: the share of the most frequent answer, each prompt counting once; error: the standard
    error of `value`, from leaving out one prompt at a time.
    """

    value: float
    error: float
    share: float


def dependence(prompt: Integers, answer: Integers) -> Dependence | None:
    """The dependence of N completions; prompt, answer: [N], their codes from 0.

    None for fewer than LEAST_PROMPTS prompts with two answers or more.
    """
    keep = np.bincount(prompt, minlength=1)[prompt] > 1
    _, prompt = np.unique(prompt[keep], return_inverse=True)
    base = int(answer.max(initial=0)) + 1
    pairs, number = np.unique(prompt * base + answer[keep], return_counts=True)
    row, column = pairs // base, pairs % base
    size = np.bincount(prompt).astype(float)
    count = len(size)
    if count < LEAST_PROMPTS:
        return None
    share = number / size[row]
    total = np.bincount(column, share)
    own = np.bincount(row, share**2)
    agree = np.bincount(row, number * (number - 1)) / (size * (size - 1))
    with_all = np.bincount(row, share * total[column])
    all_pairs, every = float(total @ total), float(own.sum())
    # First of all prompts, then without each of them.
    within = np.append(agree.mean(), (agree.sum() - agree) / (count - 1))
    others = (all_pairs - 2 * with_all + 2 * own - every) / ((count - 1) * (count - 2))
    across = np.append((all_pairs - every) / (count * (count - 1)), others)
    varied = across < 1 - 1e-9
    values = np.divide(within - across, 1 - across, out=np.zeros(len(across)), where=varied)
    without = values[1:]
    error = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    return Dependence(float(values[0]), float(error), float(total.max()) / count)

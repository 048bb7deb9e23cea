"""Policies that need no gold answers: they rank by the agreement or the length of the samples."""

from typing import ClassVar

import numpy as np
import pyarrow as pa

from orchestrator.plugins.difficulty_table import MEANING
from policies.base import BuiltIn, Floats, PolicyError, numbers
from policies.pass_rate import Between


class WithoutGolds(BuiltIn):
    """Ranks prompts by their samples alone, not by gold answers."""

    simulated = False
    ranks_by: ClassVar[str] = "agreement"

    @property
    def reads_golds(self) -> bool:
        """Only for `require` and `exclude`."""
        return bool(self.restrictions)

    def measured(self, difficulty: pa.Table, name: str) -> Floats:
        """The column as float64, nan for null. PolicyError if all values are null."""
        values = numbers(difficulty, name, self.title)
        if len(values) and np.isnan(values).all():
            raise PolicyError(
                f"{self.title} needs the column {name} ({MEANING[name]}), which is null for every "
                "prompt: choose a policy that does not read samples, such as random"
            )
        return values


class ByAnswers(WithoutGolds):
    """Uses the answers that were read from the samples."""

    @property
    def reads_answers(self) -> bool:
        return True


class LeastAgreed(ByAnswers):
    """Lowest agreement first: fewest samples give the most frequent answer. Needs no gold answer.

    A sample without an answer, such as an unfinished one, does not count as agreeing. Prompts
    without any answer therefore come first. Low agreement means that answers differ, not that they
    are wrong: a model that is confidently wrong agrees with itself.
    """

    name = "least_agreed"

    def score(self, difficulty: pa.Table) -> Floats:
        return self.measured(difficulty, "agreement")


class MostAgreed(ByAnswers):
    """Highest agreement first: most samples give the most frequent answer. Needs no gold answer."""

    name = "most_agreed"

    def score(self, difficulty: pa.Table) -> Floats:
        return -self.measured(difficulty, "agreement")


class AgreementBand(Between, ByAnswers):
    """Uniform among prompts with an agreement from `low` to `high`. Needs no gold answer.

    Options:
        low, high: the ends of the band, from 0 to 1, both included.
    """

    name = "agreement_band"
    meaning = "an agreement"
    easier = "choose a band of higher agreement"
    harder = "choose a band of lower agreement"
    example: ClassVar[str] = "low: 0.3, high: 0.7"

    def shares(self, difficulty: pa.Table) -> Floats:
        return self.measured(difficulty, "agreement")


class Uncertain(ByAnswers):
    """Highest semantic entropy first: the most varied answers. Needs no gold answer.

    The entropy of the shares of a prompt's distinct answers (Kuhn et al. 2023, arXiv 2302.09664;
    the discrete form of Farquhar et al. 2024). Unlike agreement, it leaves out samples without an
    answer.
    """

    name = "uncertain"
    ranks_by = "entropy"

    def score(self, difficulty: pa.Table) -> Floats:
        return -self.measured(difficulty, "entropy")


class Longest(WithoutGolds):
    """Most generated tokens on average first. Needs no gold answer."""

    name = "longest"
    ranks_by = "tokens"

    def score(self, difficulty: pa.Table) -> Floats:
        return -self.measured(difficulty, "tokens")

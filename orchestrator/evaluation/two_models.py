"""The difficulty of two models on the same prompts: what choosing by the other one costs. Pure.

Live groups are expected values under the posterior of each prompt's pass rate: the rate by which it
was chosen would be too optimistic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.evaluation.recording import Counts, difficulty_of
from orchestrator.plugins.json_values import json_value
from orchestrator.plugins.streams import generator
from orchestrator.stats.rankings import RankPair, compare_rankings
from orchestrator.stats.resampled import Estimate
from policies import Policy, PolicyError, choice_rng

RESAMPLES = 100  # pools drawn from the prompts, in each of which both models choose anew
DRAWS = 20  # choices with different ties, whose mean is the estimate


@dataclass(frozen=True)
class ModelRates:
    """Correct and all completions of a model for each prompt, [prompts]."""

    model: str
    successes: Counts
    samples: Counts


class Exchange(NamedTuple):
    """A policy for one model, by its own rates, by the other model's, and at random.

    own, other: expected shares of live groups of this model. cost: their difference; kept: the part
    of the own choice's lead over random prompts that the other's choice keeps. shared: the share of
    the own choice that is in the other's.
    """

    policy: str
    model: str
    own: Estimate
    other: Estimate
    random: float
    cost: Estimate
    shared: Estimate

    @property
    def kept(self) -> float:
        """nan if the own choice is not ahead of random ones beyond chance."""
        if self.own.low <= self.random:
            return float("nan")
        return (self.other.value - self.random) / (self.own.value - self.random)


class TwoModels:
    """Two models' rates of the same prompts, and the policies that choose `budget` of them."""

    def __init__(
        self,
        prompt_ids: Sequence[str],
        models: tuple[ModelRates, ModelRates],
        policies: Sequence[Policy],
        budget: int,
        group_size: int = 8,
    ) -> None:
        self.prompt_ids, self.models, self.policies = prompt_ids, models, policies
        self.budget, self.group_size = budget, group_size
        self.refused: dict[str, str] = {}

    @cached_property
    def ranking(self) -> RankPair:
        """How alike both orders are."""
        one, two = (each.successes / each.samples for each in self.models)
        return compare_rankings(one, two)

    def _tables(self, rows: npt.NDArray[np.int64]) -> list[pa.Table]:
        ids = [self.prompt_ids[row] for row in rows.tolist()]
        return [
            difficulty_of(ids, each.successes[rows], each.samples[rows], self.group_size, {})
            for each in self.models
        ]

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """Each policy for each model. Policies that cannot choose are in `refused`."""
        count = len(self.prompt_ids)
        pools = generator("resampled models").integers(0, count, (RESAMPLES, count))
        whole = self._tables(np.arange(count))
        again = [self._tables(rows) for rows in pools]
        exchanges = []
        for policy in self.policies:
            if policy.needs == "nothing":  # the same choice, apart from luck
                self.refused[policy.name] = (
                    f"{policy.name} reads no pass rates of either model: write a policy that does"
                )
                continue
            try:
                drawn = np.array([self._draw(policy, whole, seed) for seed in range(DRAWS)])
            except PolicyError as error:
                self.refused[policy.name] = str(error)
                continue
            resampled = np.array([self._redraw(policy, t, seed) for seed, t in enumerate(again)])
            for number, model in enumerate(self.models):
                own, other, shared = (
                    Estimate.of(float(drawn[:, number, place].mean()), resampled[:, number, place])
                    for place in range(3)
                )
                lost = resampled[:, number, 0] - resampled[:, number, 1]
                cost = Estimate.of(own.value - other.value, lost)
                random = float(np.mean(whole[number]["learnability"].to_numpy()))
                exchanges.append(
                    Exchange(policy.name, model.model, own, other, random, cost, shared)
                )
        return exchanges

    def to_dict(self) -> dict[str, Any]:
        """All values, for JSON."""
        values: dict[str, Any] = json_value(
            {
                "models": [each.model for each in self.models],  # both names
                "prompts": len(self.prompt_ids),  # prompts with a rate of both
                "ranking": self.ranking,  # agreement of the two rankings
                # what choosing by the other model's rates costs each policy
                "exchanges": self.exchanges,
                "refused": self.refused,  # policies that cannot choose, and why
            }
        )
        return values

    def _redraw(self, policy: Policy, tables: list[pa.Table], seed: int) -> list[list[float]]:
        """As `_draw`; nan where a resampled pool has too few prompts of a kind."""
        try:
            return self._draw(policy, tables, seed)
        except PolicyError:
            return [[np.nan] * 3] * 2

    def _draw(self, policy: Policy, tables: list[pa.Table], seed: int) -> list[list[float]]:
        """For each model: live groups by its own choice and by the other's, and the shared part."""
        rng_seeds = (seed, seed + max(DRAWS, RESAMPLES))  # ties of both are independent
        one, two = (
            policy(table, self.budget, choice_rng(own, policy.stream))
            for table, own in zip(tables, rng_seeds, strict=True)
        )
        shared = len(np.intersect1d(one, two)) / max(1, len(one))
        live = [table["learnability"].to_numpy() for table in tables]
        return [
            [float(live[0][one].mean()), float(live[0][two].mean()), shared],
            [float(live[1][two].mean()), float(live[1][one].mean()), shared],
        ]

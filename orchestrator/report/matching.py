"""Steps to match in a sweep: each policy against the one that trains on the whole pool."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from orchestrator.config.entries import build_policy
from orchestrator.report.rows import OWN, Row
from orchestrator.report.steps import Steps, steps_to_match
from policies import is_whole


class StepsToMatch(NamedTuple):
    """When `policy` reaches the final accuracy (a share) of `reference`, which took `updates`.

    rollouts: those drawn until then, as a share of the reference's; None if updates say the same.
    """

    policy: str
    reference: str
    accuracy: float
    updates: int
    steps: Steps
    rollouts: float | None = None

    def __str__(self) -> str:
        target = f"{self.reference}'s final accuracy ({100 * self.accuracy:.1f} %)"
        if self.steps.update is None:
            text = f"{self.policy} does not reach {target} within its updates"
            share = f"{100 * self.steps.reached:.0f} %"
            return f"{text} (it does in {share} of resamples)" if self.steps.reached else text
        share = f"{100 * self.steps.update / self.updates:.0f} % of {self.reference}'s"
        if self.rollouts is not None:
            share += f", with {100 * self.rollouts:.0f} % of its rollouts"
        return f"{self.policy} reaches {target} after {self.span} updates, {share}"

    @property
    def span(self) -> str:
        """The update with its interval; an open end where some resamples never get there."""
        ends = (self.steps.low, self.steps.high)
        low, high = ("never" if end is None else f"{end:.0f}" for end in ends)
        first = "not reached" if self.steps.update is None else f"{self.steps.update:.0f}"
        return first if ends == (None, None) else f"{first} [{low}, {high}]"


def steps_to_match_whole_pool(by_policy: Mapping[str, Sequence[Row]]) -> list[StepsToMatch]:
    """Every other policy against the one that takes the whole pool.

    Empty without such a policy, or without an evaluation between the base and the final model.
    """
    reference = whole_pool_policy(by_policy)
    if reference is None:
        return []
    full = by_policy[reference]
    target_scores = [row.scores(row.cell.updates) for row in full]
    matches = []
    for policy, rows in by_policy.items():
        updates = sorted(set.intersection(*(set(row.counts[OWN]) for row in rows)))
        curve = {u: [row.scores(u) for row in rows] for u in updates}
        sides = (*curve.values(), target_scores)
        shared = sorted(set.intersection(*(set(scores) for side in sides for scores in side)))
        if policy == reference or len(updates) < 3 or not shared:
            continue
        target = _as_array(target_scores, shared)
        steps = steps_to_match({u: _as_array(side, shared) for u, side in curve.items()}, target)
        last = max(row.cell.updates for row in full)
        rollouts = None
        if steps.update is not None and any(
            row.cell.max_rollouts > row.cell.rollouts for row in rows
        ):
            drawn = [
                np.interp(steps.update, range(len(curve)), curve)
                for curve in (row.costs["rollouts"] for row in rows)
            ]
            rollouts = float(np.mean(drawn) / np.mean([row.costs["rollouts"][-1] for row in full]))
        accuracy = float(target.mean())
        matches.append(StepsToMatch(policy, reference, accuracy, last, steps, rollouts))
    return matches


def whole_pool_policy(by_policy: Mapping[str, Sequence[Row]]) -> str | None:
    """The policy that trains on every prompt of the pool."""
    cells = {policy: rows[0].cell for policy, rows in by_policy.items()}
    static = {policy: cell.rule for policy, cell in cells.items() if cell.online is None}
    return next((name for name, rule in static.items() if is_whole(build_policy(rule))), None)


def _as_array(side: Sequence[dict[str, float]], questions: Sequence[str]) -> np.ndarray:
    """[seeds, items]."""
    return np.array([[scores[i] for i in questions] for scores in side])

"""Steps to match in a sweep: each policy beside the one that trains on the whole pool."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from orchestrator.config.entries import build_policy
from orchestrator.report.rows import OWN, Row
from orchestrator.report.steps import Steps, steps_to_match
from policies import is_whole


class Match(NamedTuple):
    """When `policy` reaches the final accuracy (a share) of `reference`, which took `updates`."""

    policy: str
    reference: str
    accuracy: float
    updates: int
    steps: Steps

    def __str__(self) -> str:
        goal = f"{self.reference}'s final accuracy ({100 * self.accuracy:.1f} %)"
        if self.steps.update is None:
            often = f"in {100 * self.steps.reached:.0f} % of resamples it does"
            says = f"{self.policy} does not reach {goal} within its updates"
            return f"{says} ({often})" if self.steps.reached else says
        share = f"{100 * self.steps.update / self.updates:.0f} % of its steps"
        return f"{self.policy} reaches {goal} after {self.span} updates, {share}"

    @property
    def span(self) -> str:
        """The update with its interval; an open end where some resamples never get there."""
        ends = (self.steps.low, self.steps.high)
        low, high = ("never" if end is None else f"{end:.0f}" for end in ends)
        first = "not reached" if self.steps.update is None else f"{self.steps.update:.0f}"
        return first if ends == (None, None) else f"{first} [{low}, {high}]"


def matches(by_policy: Mapping[str, Sequence[Row]]) -> list[Match]:
    """Every other policy beside the one that takes the whole pool.

    Empty where there is none, or where nothing was evaluated between the base and the final model.
    """
    reference = whole(by_policy)
    if reference is None:
        return []
    found = (
        _match(p, rows, by_policy[reference]) for p, rows in by_policy.items() if p != reference
    )
    return [match for match in found if match is not None]


def whole(by_policy: Mapping[str, Sequence[Row]]) -> str | None:
    """The policy that trains on every prompt of the pool."""
    rules = {policy: rows[0].cell.rule for policy, rows in by_policy.items()}
    return next((name for name, rule in rules.items() if is_whole(build_policy(rule))), None)


def _match(policy: str, rows: Sequence[Row], full: Sequence[Row]) -> Match | None:
    updates = sorted(set.intersection(*(set(row.counts[OWN]) for row in rows)))
    if len(updates) < 3:
        return None
    curve = {u: [row.scores(u) for row in rows] for u in updates}
    goal = [row.scores(row.cell.updates) for row in full]
    shared = sorted(set.intersection(*(set(s) for side in (*curve.values(), goal) for s in side)))
    if not shared:
        return None
    target = _at(goal, shared)
    steps = steps_to_match({u: _at(side, shared) for u, side in curve.items()}, target)
    last = max(row.cell.updates for row in full)
    return Match(policy, full[0].cell.policy, float(target.mean()), last, steps)


def _at(side: Sequence[dict[str, float]], questions: Sequence[str]) -> np.ndarray:
    """[seeds, items]."""
    return np.array([[scores[i] for i in questions] for scores in side])

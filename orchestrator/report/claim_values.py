"""What one finished cell measured of a claim, by test question or by update. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from orchestrator.config.claims import BASE_SIDE, Claim
from orchestrator.evaluation.metrics import pass_at_k
from orchestrator.report.rows import OWN, Row
from orchestrator.stats.comparison import Run


class NotMeasured(Exception):
    """A finished cell lacks what a claim needs; says which cell and what."""


class Reading(NamedTuple):
    """How one block of cells is read.

    claim: with one tier, if it has any. updates: id of a row -> update where the experiment
    compares it. limit: the end of the cost over which accuracy is averaged. questions: those of the
    claim's tier; None for all.
    """

    claim: Claim
    updates: Mapping[int, int]
    limit: float
    questions: frozenset[str] | None


def test_set_of(claim: Claim, row: Row) -> str:
    """The test set of a claim in a row's counts."""
    own = claim.test_set in (None, row.cell.probe.dataset.name)
    return OWN if own else str(claim.test_set)


def question_run(reading: Reading, row: Row, *, base: bool) -> Run:
    """Each test question and its value, of a trained or of the base model. Raises NotMeasured."""
    claim = reading.claim
    if base:
        values = _at(reading, row, 0)
    elif claim.over:
        values = _mean_over(reading, row)
    else:
        values = _at(reading, row, _update(reading, row))
    if claim.metric == "gain":
        before = _at(reading, row, 0)
        values = {i: values[i] - before[i] for i in values.keys() & before.keys()}
    return list(values), np.array(list(values.values()))


def learnable_run(reading: Reading, row: Row) -> tuple[Run, Run]:
    """Learnable % of a cell as one number, and by update: the share of live groups."""
    shares = {update: groups.live for update, groups in row.shares.items()}
    percentage = row.result["learnable_pct"]
    if reading.claim.at:
        last = _update(reading, row)
        shares = {update: share for update, share in shares.items() if update <= last}
        if not shares:
            raise NotMeasured(f"{row.cell.name} recorded no group by update {last}")
        percentage = 100 * float(np.mean(list(shares.values())))
    by_update = list(map(str, shares)), np.array(list(shares.values()))
    return ((("",), np.array([percentage / 100])), by_update)


def unequal_costs(claim: Claim, rows: Sequence[Row], compare_at: str) -> str:
    """The costs of rows that are read after training, where policies are compared at equal ones.

    Empty where they are equal, or the claim says where rows are read.
    """
    if claim.at or claim.over or compare_at == "updates" or BASE_SIDE in (claim.a, claim.b):
        return ""
    spent = [
        row.costs[compare_at][-1]
        for row in rows
        if claim.metric == "learnable" or test_set_of(claim, row) != OWN
    ]
    if not spent or min(spent) == max(spent):
        return ""
    return f"read after training, at {min(spent):,.0f} to {max(spent):,.0f} {compare_at}"


def _update(reading: Reading, row: Row) -> int:
    """The update at which a row is read: the claim's, or else where the experiment compares."""
    claim = reading.claim
    if not claim.at:
        own = claim.metric != "learnable" and test_set_of(claim, row) == OWN
        update = reading.updates[id(row)] if own else row.cell.updates
        if not update:
            raise NotMeasured(
                f"{row.cell.name} has no evaluation within the common budget: set a smaller "
                "evaluate.every"
            )
        return update
    cost, amount = claim.at
    if cost == "updates":
        return int(amount)
    spent = row.costs[cost]
    if spent[-1] < amount * (1 - 1e-9):
        raise NotMeasured(f"{row.cell.name} ends at {spent[-1]:,.0f} {cost}")
    evaluated: Sequence[int] = range(len(spent))
    if claim.metric != "learnable":
        evaluated = sorted(row.counts[test_set_of(claim, row)])
    last = max(u for u in evaluated if spent[u] <= amount * (1 + 1e-9))
    if not last:
        first = next(u for u in evaluated if u)
        raise NotMeasured(
            f"{row.cell.name} has no evaluation within {amount:,.15g} {cost}: the first one is at "
            f"{spent[first]:,.0f}; set a smaller evaluate.every"
        )
    return last


def _at(reading: Reading, row: Row, update: int) -> dict[str, float]:
    """Question -> value after an update; without questions that were not scored often enough."""
    claim, test_set = reading.claim, test_set_of(reading.claim, row)
    counts = row.counts.get(test_set, {}).get(update)
    if counts is None:
        name = test_set or row.cell.probe.dataset.name
        raise NotMeasured(f"{row.cell.name} was not tested on {name} after update {update}")
    k = claim.pass_at
    return {
        i: c / n if k is None else pass_at_k(n, c, k)
        for i, (n, c) in counts.items()
        if n >= (k or 1) and (reading.questions is None or i in reading.questions)
    }


def _mean_over(reading: Reading, row: Row) -> dict[str, float]:
    """Question -> area under its curve over a cost, up to the limit, divided by the limit."""
    updates = sorted(row.counts[OWN])
    spent = row.costs[str(reading.claim.over)][updates]
    curves = [_at(reading, row, update) for update in updates]
    shared = sorted(set.intersection(*map(set, curves)))
    values = np.array([[curve[i] for i in shared] for curve in curves]).reshape(len(updates), -1)
    within = spent < reading.limit
    ends = [np.interp(reading.limit, spent, column) for column in values.T]
    costs = np.append(spent[within], reading.limit)
    areas = np.trapezoid(np.vstack([values[within], ends]), costs, axis=0)
    return dict(zip(shared, (areas / reading.limit).tolist(), strict=True))

"""What is known of any policy, also of a plain function that says nothing about itself."""

from dataclasses import fields
from typing import Any, cast

import numpy as np
import pyarrow as pa

from policies.arrays import Bools
from policies.base import Needs, Policy, Ties
from policies.parsed import Requiring


def needs_of(policy: Policy) -> Needs:
    """What of the samples decides the subset; `all` where the policy does not say."""
    return cast(Needs, getattr(policy, "needs", "all"))


def is_whole(policy: Policy) -> bool:
    """Does it take every eligible row, whatever the size?"""
    return bool(getattr(policy, "whole", False))


def eligible_of(policy: Policy, difficulty: pa.Table) -> Bools:
    """One truth value per row: may it be chosen? All may, where the policy does not say."""
    eligible = getattr(policy, "eligible", None)
    if eligible is None:
        return np.ones(difficulty.num_rows, dtype=bool)
    return np.asarray(eligible(difficulty))


def capacity_of(policy: Policy, difficulty: pa.Table) -> int:
    """The number of eligible rows."""
    return int(np.count_nonzero(eligible_of(policy, difficulty)))


def ties_of(policy: Policy, difficulty: pa.Table, chosen: np.ndarray) -> Ties | None:
    """The ties at the subset's edge; None where a policy has no scores, or is blind on purpose."""
    ties = getattr(policy, "ties", None)
    return None if ties is None else cast(Ties | None, ties(difficulty, chosen))


def settled_options(policy: Policy, written: dict[str, Any]) -> dict[str, Any]:
    """The options in one form, plain values fit for JSON and for a hash: equal means the same.

    `levels: 1-3` and `[1, 2, 3]` come out alike, and the parts of a mixture as a list, since their
    order counts and that of JSON's keys does not. Options of a user's own come out as written.
    """
    if not isinstance(policy, Requiring):
        return dict(written)
    values = {field.name: getattr(policy, field.name) for field in fields(policy)}
    return {name: value for name, value in values.items() if value is not None}

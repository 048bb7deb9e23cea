"""Properties of any policy, with defaults for plain functions."""

from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from policies.arrays import Bools
from policies.base import Needs, Policy, ScorePolicy, Ties
from policies.online import OnlinePolicy, is_online
from policies.parsed import Requiring


def needs_of(policy: Policy | OnlinePolicy) -> Needs:
    """What a row's rank depends on; `all` if the policy does not declare it."""
    return cast(Needs, getattr(policy, "needs", "all"))


def is_whole(policy: Policy) -> bool:
    """Whether it selects every eligible row, whatever the size."""
    return bool(getattr(policy, "whole", False))


def eligible_of(policy: Policy, difficulty: pa.Table) -> Bools:
    """One boolean per row: whether it may be selected. By default, every row."""
    eligible = getattr(policy, "eligible", None)
    if eligible is None:
        return np.ones(difficulty.num_rows, dtype=bool)
    return np.asarray(eligible(difficulty))


def capacity_of(policy: Policy, difficulty: pa.Table) -> int:
    """The number of eligible rows."""
    return int(np.count_nonzero(eligible_of(policy, difficulty)))


def capacity_text(policy: Policy, name: str, difficulty: pa.Table) -> str:
    """The number of eligible rows in words: `band has 3 of 40 prompts with a pass rate from …`."""
    holds = policy.holds(difficulty) if isinstance(policy, ScorePolicy) else "that it may select"
    return f"{name} has {capacity_of(policy, difficulty)} of {difficulty.num_rows} prompts {holds}"


def ties_of(policy: Policy, difficulty: pa.Table, chosen: np.ndarray) -> Ties | None:
    """The ties at the cutoff; None for policies without scores and for `random`."""
    ties = getattr(policy, "ties", None)
    return None if ties is None else cast(Ties | None, ties(difficulty, chosen))


def settled_options(policy: Policy | OnlinePolicy, written: dict[str, Any]) -> dict[str, Any]:
    """The options in a canonical form, as JSON values: equal meaning gives equal hashes.

    `levels: 1-3` and `[1, 2, 3]` give the same, and the parts of a mixture become a list, because
    their order matters and that of JSON keys does not. Custom policies' options stay as written.
    """
    if not isinstance(policy, Requiring) and not (is_dataclass(policy) and is_online(policy)):
        return dict(written)
    values = {field.name: getattr(policy, field.name) for field in fields(policy)}
    return {name: value for name, value in values.items() if value is not None}

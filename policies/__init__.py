"""Policies: which prompts of a pool to train on. `get_policy` is the entry point."""

from policies.base import Needs, Policy, PolicyError, ScorePolicy, Ties, checked_rows
from policies.history import History
from policies.online import (
    OnlinePolicy,
    checked_ids,
    checked_keep,
    discards,
    max_draws_of,
)
from policies.ranking import tie_breakers
from policies.registry import (
    find_policy,
    get_online_policy,
    get_policy,
    policy_cost,
    policy_line,
    policy_names,
    policy_parts,
)
from policies.traits import (
    capacity_of,
    capacity_text,
    eligible_of,
    is_whole,
    needs_of,
    settled_options,
    ties_of,
)

__all__ = [
    "History",
    "Needs",
    "OnlinePolicy",
    "Policy",
    "PolicyError",
    "ScorePolicy",
    "Ties",
    "capacity_of",
    "capacity_text",
    "checked_ids",
    "checked_keep",
    "checked_rows",
    "discards",
    "eligible_of",
    "find_policy",
    "get_online_policy",
    "get_policy",
    "is_whole",
    "max_draws_of",
    "needs_of",
    "policy_cost",
    "policy_line",
    "policy_names",
    "policy_parts",
    "settled_options",
    "tie_breakers",
    "ties_of",
]

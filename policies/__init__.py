"""Policies: which prompts of a pool to train on. `get_policy` is the entry point."""

from policies.allocation import UNIFORM, Groups, groups_of
from policies.base import (
    End,
    Needs,
    PolicyError,
    ScorePolicy,
    SelectFunction,
    Ties,
    checked_rows,
    choice_rng,
    labelled_rows,
    tie_breakers,
)
from policies.built import BuiltAllocation, BuiltOnlinePolicy, Policy
from policies.online import WHOLE_POOL, History, OnlinePolicy
from policies.registry import (
    find_policy,
    get_allocation,
    get_online_policy,
    get_policy,
    policy_cost,
    policy_line,
    policy_names,
    policy_parts,
    settled_options,
)

__all__ = [
    "UNIFORM",
    "WHOLE_POOL",
    "BuiltAllocation",
    "BuiltOnlinePolicy",
    "Policy",
    "End",
    "Groups",
    "History",
    "Needs",
    "OnlinePolicy",
    "SelectFunction",
    "PolicyError",
    "ScorePolicy",
    "Ties",
    "checked_rows",
    "choice_rng",
    "find_policy",
    "get_allocation",
    "get_online_policy",
    "get_policy",
    "groups_of",
    "labelled_rows",
    "policy_cost",
    "policy_line",
    "policy_names",
    "policy_parts",
    "settled_options",
    "tie_breakers",
]

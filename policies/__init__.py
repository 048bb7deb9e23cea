"""Policies: which prompts of a pool to train on. `get_policy` is the entry point."""

from policies.base import Needs, Policy, PolicyError, ScorePolicy, Ties, checked_rows
from policies.ranking import tie_breakers
from policies.registry import find_policy, get_policy, policy_line, policy_names
from policies.traits import (
    capacity_of,
    eligible_of,
    is_whole,
    needs_of,
    settled_options,
    ties_of,
)

__all__ = [
    "Needs",
    "Policy",
    "PolicyError",
    "ScorePolicy",
    "Ties",
    "capacity_of",
    "checked_rows",
    "eligible_of",
    "find_policy",
    "get_policy",
    "is_whole",
    "needs_of",
    "policy_line",
    "policy_names",
    "settled_options",
    "tie_breakers",
    "ties_of",
]

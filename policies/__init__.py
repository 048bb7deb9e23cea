"""Which prompts are kept. `get_policy` is the way in."""

import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from policies.base import Policy, PolicyError, ScorePolicy, Ties

GROUP = "decile.policies"
BUILTIN = {
    "hard": "policies.pass_rate:Hard",
    "easy": "policies.pass_rate:Easy",
    "middle": "policies.pass_rate:Middle",
    "random": "policies.random:random",
}

__all__ = ["Policy", "PolicyError", "ScorePolicy", "Ties", "get_policy", "policy_names"]


def policy_names() -> list[str]:
    """Every policy known by name: built in, or installed as entry point `decile.policies`."""
    return [*BUILTIN, *sorted(entry_points(group=GROUP).names - BUILTIN.keys())]


def get_policy(name: str) -> Policy:
    """The policy of that name, or of a `package.module:attribute` of the user's own."""
    target = name if ":" in name else BUILTIN.get(name)
    if target is None:
        installed = list(entry_points(group=GROUP, name=name))
        if not installed:
            known = ", ".join(policy_names())
            raise PolicyError(
                f"unknown policy {name!r}: write one of {known}, or package.module:attribute"
            )
        target = installed[0].value
    try:
        found: Any = EntryPoint(name, target, GROUP).load()
    except (ImportError, AttributeError, ValueError) as error:
        raise PolicyError(f"policy {name!r} cannot be imported: {error}") from error
    try:
        policy: Any = found() if inspect.isclass(found) else found
    except TypeError as error:
        raise PolicyError(f"policy {name!r} cannot be made without arguments: {error}") from error
    if not callable(policy):
        raise PolicyError(f"policy {name!r} is no function: write one of (table, size, generator)")
    return policy  # type: ignore[no-any-return]

"""Policies by name: built in, installed, or of the user's own; made with their options."""

import inspect
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from policies.base import Policy, PolicyError

GROUP = "decile.policies"
BUILTIN = {
    "hard": "policies.pass_rate:Hard",
    "easy": "policies.pass_rate:Easy",
    "middle": "policies.pass_rate:Middle",
    "random": "policies.uniform:Random",
    "full": "policies.uniform:Full",
    "base_wrong": "policies.outcome:BaseWrong",
    "base_right": "policies.outcome:BaseRight",
    "hardest_nonzero": "policies.pass_rate:HardestNonzero",
    "learnable": "policies.learnable:Learnable",
    "band": "policies.pass_rate:Band",
    "tiers": "policies.tiers:Tiers",
    "mixture": "policies.mixture:Mixture",
}
_CALL = 3  # a function's own arguments: table, size, generator


def policy_names() -> list[str]:
    """Every policy known by name: built in, or installed as entry point `decile.policies`."""
    return [*BUILTIN, *sorted(entry_points(group=GROUP).names - BUILTIN.keys())]


def find_policy(name: str) -> Any:
    """What is behind a name or a `package.module:attribute`: a class, a function or an object."""
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
        return EntryPoint(name, target, GROUP).load()
    except (ImportError, AttributeError, ValueError) as error:
        raise PolicyError(f"policy {name!r} cannot be imported: {error}") from error


def policy_line(name: str) -> str:
    """The first line of the policy's docstring, or nothing; no policy is made for it."""
    return (inspect.getdoc(find_policy(name)) or "").partition("\n")[0]


def get_policy(name: str, /, **options: Any) -> Policy:
    """The policy of that name, made with its options.

    PolicyError where there is none, an option is unknown or missing, or a value is no good.
    """
    found = find_policy(name)
    _check_options(name, found, options)
    policy: Any = found
    if inspect.isclass(found):
        policy = _made(name, found, options)
    elif options:
        policy = partial(found, **options)
    if not callable(policy):
        raise PolicyError(f"policy {name!r} is no function: write one of (table, size, generator)")
    return policy  # type: ignore[no-any-return]


def _made(name: str, found: type, options: dict[str, Any]) -> Any:
    try:
        return found(**options)
    except PolicyError:
        raise
    except (TypeError, ValueError) as error:
        raise PolicyError(f"policy {name!r} cannot be made: {error}") from error


def _check_options(name: str, found: Any, options: dict[str, Any]) -> None:
    """Raise PolicyError for an option that the policy does not take, or that it misses."""
    known = _parameters(name, found) if options or inspect.isclass(found) else []
    named = [p for p in known if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes = ", ".join(p.name for p in named) or "no options"
    unknown = sorted(options.keys() - {p.name for p in named})
    if unknown and not any(p.kind == p.VAR_KEYWORD for p in known):
        raise PolicyError(f"policy {name!r} has no option {unknown[0]!r}: it takes {takes}")
    missing = [p.name for p in named if p.default is p.empty and p.name not in options]
    if missing:
        such = getattr(found, "example", "")
        such = f", such as {such}" if such else ""
        raise PolicyError(f"policy {name!r} needs {' and '.join(missing)}: write its options{such}")


def _parameters(name: str, found: Any) -> list[inspect.Parameter]:
    """What can be given as options: to a class all, to a function what comes after its three."""
    if not (inspect.isclass(found) or inspect.isroutine(found)):
        return []
    try:
        parameters = [*inspect.signature(found).parameters.values()]
    except (TypeError, ValueError) as error:
        raise PolicyError(f"policy {name!r} does not say what options it takes: {error}") from error
    return parameters if inspect.isclass(found) else parameters[_CALL:]

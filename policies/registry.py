"""Policies and allocations by name, built with their options."""

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from orchestrator.plugins.registry import Registry
from orchestrator.plugins.user_code import describe, is_own
from policies.allocation import Allocation, SizeRule
from policies.base import Options, PolicyError, Requiring, SelectFunction, check_count
from policies.built import BuiltOnlinePolicy, Policy
from policies.composed import Composed, composed
from policies.online import MAX_DRAWS, WHOLE_POOL, OnlinePolicy, Parts, is_online, static_part
from policies.strata import Stratified, split_options, stratified


def settled_options(
    policy: SelectFunction | OnlinePolicy | Allocation, written: Options
) -> Options:
    """The options in a canonical form, as JSON values: equal meaning gives equal hashes.

    `levels: 1-3` and `[1, 2, 3]` give the same result. The parts of a mixture become a list,
    because their order matters and that of JSON keys does not. Options of custom policies stay as
    written.
    """
    if isinstance(policy, Stratified | Composed):
        return dict(policy.options)
    settled = isinstance(policy, Requiring | SizeRule) or is_online(policy)
    if not settled or not is_dataclass(policy):
        return dict(written)
    values = {field.name: getattr(policy, field.name) for field in fields(policy)}
    return {name: value for name, value in values.items() if value is not None}


BUILTIN = {
    "hard": "policies.pass_rate:Hard",
    "easy": "policies.pass_rate:Easy",
    "middle": "policies.pass_rate:Middle",
    "random": "policies.uniform:Random",
    "full": "policies.uniform:Full",
    "diverse": "policies.diverse:Diverse",
    "base_wrong": "policies.uniform:BaseWrong",
    "base_right": "policies.uniform:BaseRight",
    "hardest_nonzero": "policies.pass_rate:HardestNonzero",
    "learnable": "policies.pass_rate:Learnable",
    "band": "policies.pass_rate:Band",
    "tiers": "policies.uniform:Tiers",
    "least_agreed": "policies.agreement:LeastAgreed",
    "most_agreed": "policies.agreement:MostAgreed",
    "agreement_band": "policies.agreement:AgreementBand",
    "uncertain": "policies.agreement:Uncertain",
    "longest": "policies.agreement:Longest",
    "mixture": "policies.mixture:Mixture",
    "dynamic": "policies.discarding:Dynamic",
    "balanced": "policies.discarding:Balanced",
    "curriculum": "policies.scheduled:Curriculum",
    "pools": "policies.scheduled:Pools",
    "predicted": "policies.scheduled:Predicted",
    "adarft": "orchestrator.optional.published_policies:Adarft",
    "e2h": "orchestrator.optional.published_policies:E2h",
    "sec": "orchestrator.optional.published_policies:Sec",
    "mopps": "orchestrator.optional.published_policies:Mopps",
    "greso": "policies.discarding:Greso",
    "lilo": "policies.discarding:Lilo",
    "pairs": "orchestrator.optional.published_policies:Pairs",
}
POLICIES = Registry("policy", "decile.policies", BUILTIN, "package.module:attribute", PolicyError)
ALLOCATIONS = Registry(
    "allocation",
    "decile.allocations",
    {
        "sqrt": "policies.allocation:Sqrt",
        "knapsack": "policies.allocation:Knapsack",
        "until_correct": "policies.allocation:UntilCorrect",
        "pods": "policies.allocation:Pods",
        "by_column": "policies.by_column:ByColumn",
    },
    "package.module:attribute",
    PolicyError,
)
# A function's own arguments: table, size and generator of a policy; groups of an allocation.
_CALL = {"policy": 3, "allocation": 1}


def policy_names() -> list[str]:
    """Names of all policies: built in, or installed as entry points `decile.policies`."""
    return POLICIES.names()


def find_policy(name: str) -> Any:
    """The class, function or object of a name or a `package.module:attribute`."""
    return POLICIES.find(name)


def policy_line(name: str) -> str:
    """The first line of the policy's docstring, or an empty string."""
    return (inspect.getdoc(find_policy(name)) or "").partition("\n")[0]


def policy_cost(name: str) -> str:
    """The cost of choosing prompts, besides training on them."""
    policy = find_policy(name)
    needs = getattr(policy, "needs", "all")
    parts = [{"nothing": "", "first": "one sample"}.get(needs, "a probe")]
    if is_online(policy):
        parts.append(getattr(policy, "cost", OnlinePolicy.cost))
    return ", ".join(filter(None, parts)) or "nothing"


def get_policy(name: str, /, **options: Any) -> SelectFunction:
    """Build the static policy of that name with its options.

    PolicyError if it does not exist or chooses prompts during training, an option is unknown or
    missing, or a value is invalid.
    """
    if is_online(find_policy(name)):
        raise PolicyError(
            f"policy {name!r} chooses prompts during training: write one that selects a subset, "
            "such as hard"
        )
    own, restrictions = split_options(options, _own_options(find_policy(name), options))
    policy = _build(name, own)
    if not callable(policy):
        raise PolicyError(
            f"policy {name!r} is not callable: write a function(table, size, generator)"
        )
    if restrictions:
        return stratified(Policy(name, policy), settled_options(policy, own), restrictions)
    return policy  # type: ignore[no-any-return]


def get_online_policy(name: str, /, **options: Any) -> OnlinePolicy:
    """Build the online policy of that name with its options except `of`. PolicyError as above."""
    taken = _own_options(find_policy(name), options)
    restrictions = [o for o in ("within", "gates") if o in options and o not in taken]
    outer: dict[str, Any] = {option: options[option] for option in restrictions}
    own = {option: value for option, value in options.items() if option not in outer}
    policy = _build(name, own)
    if not is_online(policy):
        raise PolicyError(f"policy {name!r} has no method next(update, history): add one")
    if callable(getattr(policy, "keep", None)):
        check_count(name, "max_draws", getattr(policy, "max_draws", MAX_DRAWS))
    if outer:

        def build() -> BuiltOnlinePolicy:
            return BuiltOnlinePolicy(name, _build(name, own))

        return composed(name, build, settled_options(policy, own), outer)
    return policy  # type: ignore[no-any-return]


def get_allocation(name: str, /, **options: Any) -> Allocation:
    """Build the allocation of that name with its options. PolicyError as above."""
    allocation = _build(name, options, ALLOCATIONS)
    if not callable(allocation):
        raise PolicyError(f"allocation {name!r} is not callable: write a function(groups)")
    if callable(getattr(allocation, "keep", None)):
        check_count(name, "times", getattr(allocation, "times", None))
    return allocation  # type: ignore[no-any-return]


def policy_parts(name: str, options: Mapping[str, Any]) -> Parts:
    """The two parts of a policy, with their options in canonical form. PolicyError as above."""
    if not is_online(find_policy(name)):
        return Parts((name, settled_options(get_policy(name, **options), dict(options))), None)
    static, of_static = static_part(name, options.get("of", WHOLE_POOL))
    own = {option: value for option, value in options.items() if option != "of"}
    online = get_online_policy(name, **own)
    try:
        selects = get_policy(static, **of_static)
    except PolicyError as error:
        raise PolicyError(f"policy {name!r}: of: {error}") from error
    return Parts(
        (static, settled_options(selects, of_static)), (name, settled_options(online, own))
    )


def _build(name: str, options: Options, registry: Registry = POLICIES) -> Any:
    """The plugin of that name with its options."""
    policy, kind = registry.find(name), registry.kind
    _check_options(name, policy, options, kind)
    if inspect.isclass(policy):
        try:
            policy = policy(**options)
        except PolicyError:
            raise
        except (TypeError, ValueError) as error:
            raise PolicyError(f"{kind} {name!r} cannot be built: {error}") from error
        except Exception as error:
            if is_own(policy):
                raise  # a bug in Decile keeps its traceback
            raise PolicyError(f"{kind} {name!r} cannot be built: {describe(error)}") from error
    elif options:
        bound = partial(policy, **options)
        bound.__dict__.update(getattr(policy, "__dict__", {}))  # its attributes, such as needs
        return bound
    return policy


def _own_options(policy: Any, options: Options) -> list[str]:
    """The options that a custom class or function takes itself, also through `**options`."""
    if inspect.isclass(policy) and issubclass(policy, Requiring):
        return []
    try:
        parameters = inspect.signature(policy).parameters.values()
    except (TypeError, ValueError):
        return []
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)
    return [*options] if takes_any else [parameter.name for parameter in parameters]


def _check_options(name: str, policy: Any, options: Options, kind: str) -> None:
    """Raise PolicyError for an option that is unknown, or required and missing."""
    known: list[inspect.Parameter] = []
    if inspect.isclass(policy) or (options and inspect.isroutine(policy)):
        try:
            known = [*inspect.signature(policy).parameters.values()]
        except (TypeError, ValueError) as error:
            raise PolicyError(
                f"cannot determine the options of {kind} {name!r}: {error}"
            ) from error
        known = known if inspect.isclass(policy) else known[_CALL[kind] :]
    named = [p for p in known if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes = ", ".join(p.name for p in named) or "no options"
    unknown = sorted(options.keys() - {p.name for p in named})
    if unknown and not any(p.kind == p.VAR_KEYWORD for p in known):
        raise PolicyError(f"{kind} {name!r} has no option {unknown[0]!r}: it takes {takes}")
    missing = [p.name for p in named if p.default is p.empty and p.name not in options]
    if missing:
        example = getattr(policy, "example", "")
        example = f", such as {example}" if example else ""
        raise PolicyError(
            f"{kind} {name!r} needs {' and '.join(missing)}: write its options{example}"
        )

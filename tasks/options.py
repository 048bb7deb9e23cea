"""The values of a task's options, checked against its constructor's annotations."""

from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


def wrong_option(constructor: Callable[..., Any], options: Mapping[str, Any]) -> str | None:
    """The first option whose value is of another type, and what to write; None if all fit."""
    try:
        kinds = get_type_hints(constructor)
    except (NameError, TypeError):  # annotations of a custom task that cannot be resolved
        return None
    for name, value in options.items():
        kind = kinds.get(name, Any)
        if not _fits(value, kind) and (expected := _described(kind)):
            return f"invalid {name} {value!r:.80}: write {expected}"
    return None


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of YAML has the annotated type; True for a type that is not one of YAML."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in inner)
    if origin in (Sequence, list, tuple):
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        return listed and all(_fits(item, inner[0] if inner else Any) for item in value)
    if origin in (Mapping, dict):
        return isinstance(value, Mapping)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind if kind in (int, bool, str, type(None)) else True


def _described(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(filter(None, map(_described, inner)))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (Sequence, list, tuple):
        items = {int: "integers", float: "numbers", str: "strings"}
        return f"a list of {items.get(inner[0], 'values') if inner else 'values'}"
    return "a mapping" if origin in (Mapping, dict) else _NAMES.get(kind, "")

"""Checks `engine_args`: which names an engine takes, and which values."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.config.corrections import shown, suggest
from orchestrator.config.entries import setting_error
from orchestrator.config.library_sources import (
    accepted_words,
    declared,
    expected_type,
    is_installed,
    site_packages,
)
from orchestrator.sampling import ENGINES, Sampler, find_sampler
from orchestrator.sampling.engine_args import ENGINE_ARGS, EngineArgs
from orchestrator.storage.errors import shortened

_MOST = 10**15  # of any number: bytes of memory are the largest


def engine_class(name: str) -> type[Sampler] | None:
    """The class of a custom engine. None for a built-in one, which is heavy to import."""
    if name in ENGINES:
        return None
    try:
        return find_sampler(name)
    except ValueError as error:
        raise setting_error(str(error)) from error


def check_engine_args(engine: str, values: Mapping[str, Any], python: str | None = None) -> None:
    """Raise a validation error, at its place in the block, for what the engine does not take.

    `python` is the interpreter of the engine's own environment, if it has one.
    """
    spec = ENGINE_ARGS.get(engine) or _own_engine_args(engine)
    site = site_packages(python) if python else None
    known = declared_args(engine, spec, site)
    for name, value in values.items():
        message = _wrong_name(engine, spec, known, name)
        if not message and (expected := _expected(engine, spec, known, site, name, value)):
            message = f"{name} is {shown(value)}: write {expected}"
        if message := message or spec.check(name, value):
            raise setting_error(message, "engine_args", name)
    if missing := [name for name in spec.required if name not in values]:
        raise setting_error(
            f"engine {engine} needs {', '.join(missing)}: write engine_args: {{{missing[0]}: …}}",
            "engine_args",
        )


def declared_args(
    engine: str, spec: EngineArgs, site: Path | None = None
) -> Mapping[str, str] | None:
    """Names that the engine takes -> annotations; None where its library is not installed."""
    if spec.library is None:
        return spec.arguments
    if not is_installed(engine, site):
        return None
    return {name: kind for name, kind in declared(engine, site).items() if name[0] != "_"}


def unchecked_args(engine: str, values: Mapping[str, Any], python: str | None) -> list[str]:
    """The names that could not be checked, because the engine's library is not installed here."""
    spec = ENGINE_ARGS.get(engine, EngineArgs())
    site = site_packages(python) if python else None
    if spec.library is None or declared_args(engine, spec, site) is not None:
        return []
    return [name for name in values if name not in {*spec.limits, *spec.harmless}]


def _own_engine_args(engine: str) -> EngineArgs:
    """The keyword arguments of a custom engine's `load`, besides those that every engine takes."""
    sampler = find_sampler(engine)
    try:
        parameters = [*inspect.signature(sampler.load).parameters.values()]
    except (TypeError, ValueError):  # not every callable has a signature
        parameters = []
    own = [
        parameter
        for parameter in parameters[3 if sampler.adapts else 2 :]
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    return EngineArgs(
        arguments={parameter.name: "Any" for parameter in own},
        any_name=any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters),
        required=tuple(p.name for p in own if p.default is p.empty),
        reserved={
            "source": "set grid.model",
            "device": "set gpus beside engine",
            "lora_rank": "set lora.r",
        },
    )


def _wrong_name(
    engine: str, spec: EngineArgs, known: Mapping[str, str] | None, name: str
) -> str | None:
    """Why a name is not accepted and what to write instead; None if it is, or is not known."""
    if name in spec.reserved:
        return f"{name} is not for engine_args: remove it ({spec.reserved[name]})"
    if known is None or name in known or spec.any_name:
        return None
    others = [
        other
        for other, its in ENGINE_ARGS.items()
        if other != engine
        and name in {*(declared_args(other, its) or {}), *its.limits, *its.harmless}
    ]
    instead = f", or write engine: {others[0]}, which takes it" if others else ""
    if not known:
        return f"engine {engine} takes no engine_args: remove {shortened(name)}{instead}"
    owner = spec.library or f"engine {engine}"
    advice = instead or suggest(name, known)
    return f"unknown setting {shortened(name)}: {owner} does not have it: remove it{advice}"


def _expected(
    engine: str,
    spec: EngineArgs,
    known: Mapping[str, str] | None,
    site: Path | None,
    name: str,
    value: Any,
) -> str | None:
    """The valid values of a setting, if the value is plainly not one of them."""
    if value is None:
        return "a value, or leave it out"
    annotation = (known or {}).get(name, "Any")
    words = accepted_words(engine, name, site) if spec.library and known else ()
    if words and value not in words:
        return f"one of {', '.join(words)}{suggest(str(value), words)}"
    if expected := expected_type(annotation, value):
        return expected
    if not _bounded(value):
        return f"finite numbers of at most {_MOST:,}"
    if name not in spec.limits:
        return None
    least, most = spec.limits[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if is_number and least <= value <= most else f"a number from {least:,} to {most:,}"


def _bounded(value: Any) -> bool:
    """Whether all numbers of a value, also inside lists and mappings, are finite and plausible."""
    if isinstance(value, list | dict):
        return all(map(_bounded, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int | float) or -_MOST <= value <= _MOST

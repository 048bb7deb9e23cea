"""`engine_args`: what each built-in engine takes, and what of it cannot change a completion.

Plain data: experiments.yaml is checked, and a probe's key computed, without importing an engine. A
setting that is not listed as harmless counts as one that can change a completion.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.sampling.server_args import (
    SERVER_ARGUMENTS,
    SERVER_HARMLESS,
    SERVER_LIMITS,
    SERVER_RESERVED,
    check_server_arg,
)
from orchestrator.sampling.vllm_args import VLLM_HARMLESS, VLLM_LIMITS, VLLM_RESERVED


@dataclass(frozen=True)
class EngineArgs:
    """What one engine takes as `engine_args`, passed to its `load` as keyword arguments.

    `arguments` maps names to annotations in Python's syntax. Where they are a library's own, they
    are read from its source instead (`orchestrator.config.library_sources`), and `library` is the
    title of the class that declares them. With `any_name`, other names are passed on too. `limits`
    maps names to the ends of their range, `reserved` to what to write instead, and `harmless` to
    the reason why another value leaves every completion as it is. `most_on_cpus` bounds the engines
    on a cluster without GPUs. `check` says what is wrong with a value of the right type.
    """

    arguments: Mapping[str, str] = field(default_factory=dict)
    library: str | None = None
    any_name: bool = False
    required: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reserved: Mapping[str, str] = field(default_factory=dict)
    harmless: Mapping[str, str] = field(default_factory=dict)
    most_on_cpus: int | None = None
    check: Callable[[str, Any], str | None] = lambda name, value: None


ENGINE_ARGS: Mapping[str, EngineArgs] = {
    "transformers": EngineArgs(
        reserved={
            "dtype": "set dtype on the model",
            "torch_dtype": "set dtype on the model",
            "quantization": "set load_in_4bit on the model",
            "load_in_4bit": "set it on the model",
            "attn_implementation": "set it on the model",
            "device": "set probe.gpus",
        }
    ),
    "vllm": EngineArgs(
        library="vLLM's EngineArgs",
        limits=VLLM_LIMITS,
        reserved=VLLM_RESERVED,
        harmless=VLLM_HARMLESS,
        most_on_cpus=1,  # one engine uses all cores of its machine
    ),
    "server": EngineArgs(
        arguments=SERVER_ARGUMENTS,
        required=("base_url",),
        limits=SERVER_LIMITS,
        reserved=SERVER_RESERVED,
        harmless=SERVER_HARMLESS,
        check=check_server_arg,
    ),
}


def most_on_cpus(engine: str) -> int | None:
    """How many engines a cluster without GPUs runs at most; None without a bound."""
    return ENGINE_ARGS[engine].most_on_cpus if engine in ENGINE_ARGS else None


def changing_args(engine: str, engine_args: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that can change a completion: they are part of a probe's key.

    All of an engine of the user's own.
    """
    harmless = ENGINE_ARGS[engine].harmless if engine in ENGINE_ARGS else {}
    return {name: value for name, value in engine_args.items() if name not in harmless}

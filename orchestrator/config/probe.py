"""The blocks `probe` and `evaluate`: how completions are drawn and counted, and by which engine."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orchestrator.config.library_settings import (
    accepted_words,
    declared,
    expected_type,
    is_installed,
    site_packages,
)
from orchestrator.config.problems import Problem
from orchestrator.config.settings import (
    MAX_RESOURCES,
    MAX_SAMPLES,
    MAX_TOKENS,
    MAX_UPDATES,
    Seed,
    Settings,
)
from orchestrator.config.wording import replacement, shown
from orchestrator.plugins.registry import suggest
from orchestrator.sampling import ENGINES, Sampler, SamplingSettings, find_sampler
from orchestrator.sampling.engine_args import ENGINE_ARGS, EngineArgs
from orchestrator.storage.errors import shortened

_MOST = 10**15  # limit of all numbers; bytes of memory are the largest


def engine_class(name: str) -> type[Sampler] | None:
    """The class of a custom engine; None for a built-in one, which is slow to import."""
    if name in ENGINES:
        return None
    try:
        return find_sampler(name)
    except ValueError as error:
        raise Problem("unknown-engine", str(error)) from error


def check_engine_args(engine: str, values: Mapping[str, Any], python: str | None = None) -> None:
    """Raise a validation error, at its place in the block, for invalid engine arguments.

    `python` is the interpreter of the engine's own environment, if it has one.
    """
    spec = ENGINE_ARGS.get(engine) or _own_engine_args(engine)
    site = site_packages(python) if python else None
    known = declared_args(engine, spec, site)
    for name, value in values.items():
        message = _wrong_name(engine, spec, known, name)
        if not message:
            words = accepted_words(engine, name, site) if spec.library and known else ()
            annotation = (known or {}).get(name, "Any")
            if expected := _expected(value, annotation, words, spec.limits.get(name)):
                message = f"{name} is {shown(value)}: write {expected}"
        if message := message or spec.check(name, value):
            raise Problem("invalid-engine-arg", message, "engine_args", name)
    if missing := [name for name in spec.required if name not in values]:
        raise Problem(
            "missing-engine-arg",
            f"engine {engine} needs {', '.join(missing)}: write engine_args: {{{missing[0]}: …}}",
            "engine_args",
        )


def declared_args(
    engine: str, spec: EngineArgs, site: Path | None = None
) -> Mapping[str, str] | None:
    """Names that the engine takes -> annotations; None if its library is not installed."""
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
    """Why a name is not accepted and what to write instead; None if it is accepted or unknown."""
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
    advice = f"remove it{instead}" if instead else replacement(name, known)
    return f"unknown setting {shortened(name)}: {owner} does not have it: {advice}"


def _expected(
    value: Any, annotation: str, words: Sequence[str], limits: tuple[float, float] | None
) -> str | None:
    """The valid values of a setting, if the value is clearly not one of them."""
    if value is None:
        return "a value, or leave it out"
    if words and value not in words:
        return f"one of {', '.join(words)}{suggest(str(value), words)}"
    if expected := expected_type(annotation, value):
        return expected
    if not _bounded(value):
        return f"finite numbers of at most {_MOST:,}"
    if limits is None:
        return None
    least, most = limits
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if is_number and least <= value <= most else f"a number from {least:,} to {most:,}"


def _bounded(value: Any) -> bool:
    """Whether all numbers in a value, its lists and its mappings are finite and plausible."""
    if isinstance(value, list | dict):
        return all(map(_bounded, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int | float) or -_MOST <= value <= _MOST


PASS_AT = (2, 4, 8, 16, 32)
ENGINE_PYTHON = ".venv-vllm/bin/python"


class Probe(Settings):
    """How difficulty is measured: K completions per prompt from the base model."""

    samples: int = Field(default=10, ge=1, le=MAX_SAMPLES)
    """K, completions per prompt."""
    temperature: float = Field(default=1.0, ge=0, le=100)
    """Sampling temperature; 0 means greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; 1 disables it."""
    top_k: int = Field(default=0, ge=0, le=MAX_TOKENS)
    """Sample from the k most likely tokens only; 0 disables it."""
    max_completion_length: int = Field(default=256, ge=1, le=MAX_TOKENS)
    """Token limit per completion; a low limit makes every prompt look hard."""
    seed: Seed = 0
    """Sampling seed; a different seed makes a different probe."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), strict=False, examples=[["Question:"]]
    )
    """Stop strings; the text before the first of them is marked."""
    adaptive: bool = False
    """Stop sampling a prompt once further samples cannot change any subset of the grid."""
    count_truncated: Literal["wrong", "exclude"] = "wrong"
    """Whether a completion cut at the token limit counts as wrong, or is left out."""
    engine: str = "transformers"
    """transformers, vllm (the GPU or CPU build), server (an OpenAI-compatible server), or
    package.module:Class."""
    engine_args: dict[str, Any] = Field(default_factory=dict, examples=[{"max_model_len": 4096}])
    """Settings of the engine: vLLM's own names, or keyword arguments of your engine's `load`."""
    engine_python: str | None = Field(default=None, min_length=1, examples=[ENGINE_PYTHON])
    """The interpreter of the engine's own environment; make engine-vllm builds one for vllm."""
    gpus: int = Field(default=1, ge=1, le=MAX_RESOURCES)
    """GPUs per sampler, if the cluster has any; vllm splits a large model across them."""

    @field_validator("engine")
    @classmethod
    def _engine_exists(cls, name: str) -> str:
        engine_class(name)
        return name

    @model_validator(mode="after")
    def _valid_engine_args(self) -> Self:
        check_engine_args(self.engine, self.engine_args, self.engine_python)
        return self

    @property
    def gpus_per_sampler(self) -> int:
        """GPUs that a sampler needs in the cluster: 0 if a server computes."""
        return 0 if self.engine == "server" else self.gpus

    @property
    def limit_text(self) -> str:
        """The setting of the token limit, and its value, for advice."""
        return f"probe.max_completion_length ({self.max_completion_length:,})"

    def sampling(self) -> SamplingSettings:
        """The settings that determine how a completion is drawn."""
        return SamplingSettings(
            self.temperature,
            self.top_p,
            self.top_k,
            self.max_completion_length,
            self.seed,
            self.stop,
        )


class Evaluate(Settings):
    """How accuracy is measured: on the same test questions in all cells."""

    every: int = Field(default=0, ge=0, le=MAX_UPDATES)
    """Updates between evaluations; 0 evaluates only the base and the final model."""
    samples: int = Field(default=4, ge=1, le=MAX_SAMPLES)
    """Completions per test question; accuracy is their mean."""
    temperature: float = Field(default=1.0, ge=0, le=100)
    """Sampling temperature; 0 means greedy."""
    pass_at: tuple[Annotated[int, Field(ge=2)], ...] = Field(default=PASS_AT, strict=False)
    """The values of k for pass@k; each needs at least k samples. Default: those that the samples
    allow."""
    greedy: bool = False
    """Also generate one answer per question at temperature 0."""
    ood: tuple[str, ...] = Field(default=(), strict=False, examples=[["arithmetic"]])
    """Datasets with test sets for a further evaluation of the base and the final model
    (out-of-distribution)."""
    ood_samples: int | None = Field(default=None, ge=1, le=MAX_SAMPLES)
    """Completions per question of those test sets. Default: `samples`."""
    max_completion_length: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Token limit per completion. Default: the probe's."""
    seed: Seed = 1
    """Sampling seed, the same in every evaluation so that comparisons are paired."""
    engine: str | None = None
    """What generates the answers. Unset: the trainer's own model, during training. Set: an engine,
    after training; it loads the base model once and swaps in each checkpoint's adapter."""
    engine_args: dict[str, Any] = Field(
        default_factory=dict, examples=[{"gpu_memory_utilization": 0.8}]
    )
    """Settings of that engine, as in probe."""
    engine_python: str | None = Field(default=None, min_length=1, examples=[ENGINE_PYTHON])
    """The interpreter of that engine's environment, as in probe."""

    @field_validator("engine")
    @classmethod
    def _engine_adapts(cls, name: str | None) -> str | None:
        if name and (engine := engine_class(name)) and not engine.adapts:
            raise Problem(
                "engine-cannot-adapt",
                f"engine {name!r} cannot swap adapters: leave engine out to evaluate with the "
                "trainer's own model",
            )
        return name

    @model_validator(mode="after")
    def _valid_engine_args(self) -> Self:
        if self.engine:
            check_engine_args(self.engine, self.engine_args, self.engine_python)
            return self
        remedy = "and the trainer's own model evaluates: leave out, or write engine: vllm beside"
        if self.engine_args:
            message = f"engine_args belong to an engine, {remedy} them"
            raise Problem("engine-args-without-engine", message, "engine_args")
        if self.engine_python:
            message = f"belongs to an engine, {remedy} it"
            raise Problem("python-without-engine", message, "engine_python")
        return self

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        if "pass_at" not in self.model_fields_set:
            return self
        most = max(self.samples, (self.ood_samples or 0) if self.ood else 0)
        for index, k in enumerate(self.pass_at):
            if k > most:
                raise Problem(
                    "too-few-samples",
                    f"pass@{k} needs {k} samples per question, not {most}: write samples: {k}, "
                    f"or remove {k}",
                    "pass_at",
                    index,
                )
        return self

    def as_probe(
        self, probe: Probe, *, samples: int | None = None, temperature: float | None = None
    ) -> Probe:
        """The probe of a test set; its completions are the base model's evaluation."""
        return Probe(
            samples=samples or self.samples,
            temperature=self.temperature if temperature is None else temperature,
            max_completion_length=self.max_completion_length or probe.max_completion_length,
            stop=probe.stop,
            seed=self.seed,
            # The same engine as for the trained models, so that comparisons are paired.
            engine=self.engine or "transformers",
            engine_args=self.engine_args,
            engine_python=self.engine_python,
            gpus=probe.gpus if self.engine else 1,
        )

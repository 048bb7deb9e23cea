"""The blocks `probe` and `evaluate`: how completions are drawn and counted."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orchestrator.config.engine_settings import check_engine_args, engine_class
from orchestrator.config.entries import (
    MAX_RESOURCES,
    MAX_SAMPLES,
    MAX_TOKENS,
    MAX_UPDATES,
    Seed,
    Settings,
    setting_error,
)
from orchestrator.sampling import SamplingSettings

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
    """Sampling seed; another seed is another probe."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), strict=False, examples=[["Question:"]]
    )
    """Stop strings; the text before the first of them is marked."""
    adaptive: bool = False
    """Stop sampling a prompt once further samples cannot change any subset of the grid."""
    count_truncated: Literal["wrong", "exclude"] = "wrong"
    """Whether a completion cut at the token limit counts as wrong, or is left out."""
    engine: str = "transformers"
    """transformers, vllm (its GPU or its CPU build), server (an OpenAI-compatible server), or
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
        """GPUs that a sampler needs in the cluster: none where a server computes."""
        return 0 if self.engine == "server" else self.gpus

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
    """The k of pass@k; each needs at least k samples. By default, those that the samples allow."""
    greedy: bool = False
    """Also generate one answer per question at temperature 0."""
    ood: tuple[str, ...] = Field(default=(), strict=False, examples=[["arithmetic"]])
    """Datasets whose test sets the base and the final model also answer (out-of-distribution)."""
    ood_samples: int | None = Field(default=None, ge=1, le=MAX_SAMPLES)
    """Completions per question of those test sets. Default: `samples`."""
    max_completion_length: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Token limit per completion. Default: the probe's."""
    seed: Seed = 1
    """Sampling seed, the same in every evaluation so that comparisons are paired."""
    engine: str | None = None
    """What generates the answers. Unset: the trainer's own model, during training. Set: an engine,
    after training, with the base model loaded once and each checkpoint's adapter swapped in."""
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
            raise setting_error(
                f"engine {name!r} cannot swap adapters: leave engine out to evaluate with the "
                "trainer's own model"
            )
        return name

    @model_validator(mode="after")
    def _valid_engine_args(self) -> Self:
        if self.engine_args and not self.engine:
            raise setting_error(
                "engine_args belong to an engine, and the trainer's own model evaluates: "
                "remove them, or write engine: vllm beside them",
                "engine_args",
            )
        if self.engine:
            check_engine_args(self.engine, self.engine_args, self.engine_python)
        return self

    @model_validator(mode="after")
    def _interpreter_of_an_engine(self) -> Self:
        if self.engine_python and not self.engine:
            raise setting_error(
                "belongs to an engine, and the trainer's own model evaluates: remove it, or write "
                "engine: vllm beside it",
                "engine_python",
            )
        return self

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        if "pass_at" not in self.model_fields_set:
            return self
        most = max(self.samples, (self.ood_samples or 0) if self.ood else 0)
        for index, k in enumerate(self.pass_at):
            if k > most:
                raise setting_error(
                    f"pass@{k} needs {k} samples per question, not {most}: write samples: {k}, "
                    f"or remove {k}",
                    *("pass_at", index),
                )
        return self

    def as_probe(
        self, probe: Probe, *, samples: int | None = None, temperature: float | None = None
    ) -> Probe:
        """The probe of a test set, whose completions are the base model's evaluation."""
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

"""The blocks of an experiment: grid, probe, evaluation, resources, and the experiment itself."""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orchestrator.config import library_settings as settings
from orchestrator.config.corrections import shown
from orchestrator.config.entries import (
    MAX_LISTED,
    MAX_RESOURCES,
    MAX_SAMPLES,
    MAX_TOKENS,
    MAX_UPDATES,
    Seed,
    Settings,
    setting_error,
)
from orchestrator.sampling import ENGINES, Sampler, SamplingSettings, find_sampler
from orchestrator.storage.errors import shortened

PASS_AT = (2, 4, 8, 16, 32)
_MAX_CELLS = 10_000
_MAX_BUDGET = 1_000_000_000


def _check_engine(name: str) -> type[Sampler] | None:
    """The class of a custom engine. None for a built-in one, which is heavy to import."""
    if name in ENGINES:
        return None
    try:
        return find_sampler(name)
    except ValueError as error:
        raise setting_error(str(error)) from error


class Grid(Settings):
    """The swept axes; a sweep has a cell for every combination."""

    model: list[str] = Field(min_length=1, max_length=MAX_LISTED, examples=[["tiny"]])
    """Names from `models`."""
    dataset: list[str] = Field(min_length=1, max_length=MAX_LISTED, examples=[["shuffled_objects"]])
    """Names from `datasets`, or tasks with default options."""
    policy: list[str] = Field(min_length=1, max_length=MAX_LISTED, examples=[["hard", "random"]])
    """Names from `policies`, policies with default options, or package.module:attribute."""
    seed: list[Seed] = Field(default=[0], min_length=1, max_length=MAX_LISTED)
    """Seeds of subset selection and training."""
    probe_seed: list[Seed] = Field(default=[], max_length=MAX_LISTED)
    """Seeds of the probe, to measure how much results vary between probes. Default: probe.seed."""

    @field_validator("model", "dataset", "policy", "seed", "probe_seed")
    @classmethod
    def _no_repeats(cls, values: list[Any]) -> list[Any]:
        for index, value in enumerate(values):
            if value in values[:index]:
                raise setting_error(f"{value!r} is listed twice: remove one", index)
        return values

    @model_validator(mode="after")
    def _countable(self) -> Self:
        axes = (self.model, self.dataset, self.policy, self.seed, self.probe_seed or [0])
        cells = prod(len(axis) for axis in axes)
        if cells > _MAX_CELLS:
            raise setting_error(
                f"the grid has {cells:,} cells: write at most {_MAX_CELLS:,}, "
                "or several experiments"
            )
        return self


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
    """transformers, vllm (needs a GPU and decile[vllm]), or package.module:Class."""
    gpus: int = Field(default=1, ge=1, le=MAX_RESOURCES)
    """GPUs per sampler, if the cluster has any; vllm splits a large model across them."""

    @field_validator("engine")
    @classmethod
    def _engine_exists(cls, name: str) -> str:
        _check_engine(name)
        return name

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

    @field_validator("engine")
    @classmethod
    def _engine_adapts(cls, name: str | None) -> str | None:
        if name and (engine := _check_engine(name)) and not engine.adapts:
            raise setting_error(
                f"engine {name!r} cannot swap adapters: leave engine out to evaluate with the "
                "trainer's own model"
            )
        return name

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
            gpus=probe.gpus if self.engine else 1,
        )


class Resources(Settings):
    """Resources of one trial; as many trials run concurrently as fit."""

    cpus: float = Field(default=1, gt=0, le=MAX_RESOURCES)
    """CPUs per worker; may be a fraction."""
    gpus: float = Field(default=0, ge=0, le=MAX_RESOURCES)
    """GPUs per worker, at most 1 (TRL supports one GPU per process); may be a fraction."""
    workers: int = Field(default=1, ge=1, le=MAX_RESOURCES)
    """Processes that train one cell, through Ray Train."""

    @model_validator(mode="after")
    def _one_gpu_per_worker(self) -> Self:
        if self.gpus > 1:
            raise setting_error(
                f"gpus is {self.gpus:g} per worker: write gpus: 1 and workers: {round(self.gpus)}",
                "gpus",
            )
        return self


class Experiment(Settings):
    """One named sweep."""

    about: str = ""
    """A one-line description."""
    grid: Grid
    """The swept axes."""
    budget: int | float = 0.10
    """Size of each subset: a share of the pool (0.10) or a number of prompts (80)."""
    compare_at: Literal["updates", "rollouts", "tokens", "seconds"] = "updates"
    """What the report's comparison keeps equal between policies."""
    mask_dead_groups: bool = False
    """Exclude dead groups (all rewards equal) from the loss."""
    claims: tuple[str, ...] = Field(default=(), strict=False, examples=[["hard > random on gsm8k"]])
    """Claims to test, stated in advance, such as "hard > random on gsm8k by 3"."""
    match_sizes: bool = False
    """If a policy cannot fill the budget, shrink all subsets to the size that it can fill."""
    marking: Literal["lenient", "strict"] = "lenient"
    """How answers are read for rewards and accuracy."""
    max_marking_errors: float = Field(default=0.1, ge=0, le=1)
    """Stop with an error if the marker fails on more than this share of a batch."""
    probe: Probe = Probe()
    """How difficulty is measured."""
    grpo: dict[str, Any] = Field(default_factory=dict, examples=[{"max_steps": 50}])
    """Settings of TRL's GRPOConfig."""
    lora: dict[str, Any] = Field(default_factory=dict, examples=[{"r": 32}])
    """Settings of PEFT's LoraConfig."""
    evaluate: Evaluate = Field(default=Evaluate(), examples=[{"every": 25, "samples": 4}])
    """How accuracy is measured."""
    resources: Resources = Resources()
    """Resources of one trial."""
    stop_hopeless: bool = False
    """Stop a cell early if an evaluation shows it clearly below the best policy of its seed."""
    max_gpu_hours: float | None = Field(default=None, gt=0)
    """Start no further block of policies if the forecast exceeds this many GPU-hours."""
    max_hours: float | None = Field(default=None, gt=0)
    """Start no further block of policies if the forecast exceeds this many hours of run time."""

    @field_validator("budget", mode="before")
    @classmethod
    def _budget(cls, budget: Any) -> Any:
        if isinstance(budget, bool) or not isinstance(budget, int | float) or not budget > 0:
            raise setting_error(
                f"invalid budget {shown(budget)}: write a share (0.10) or a count (80)"
            )
        if isinstance(budget, float) and budget > 1:
            raise setting_error(f"budget {budget} exceeds the pool: write a share up to 1.0")
        if budget > _MAX_BUDGET:
            raise setting_error(f"budget {shortened(budget)}: write at most {_MAX_BUDGET:,}")
        return budget

    @field_validator("grpo", "lora")
    @classmethod
    def _library_settings(cls, values: dict[str, Any], info: Any) -> dict[str, Any]:
        for name, value in values.items():
            if message := settings.check_setting(info.field_name, name, value):
                raise setting_error(message, name)
        return values

    @model_validator(mode="after")
    def _batch_fits(self) -> Self:
        if message := settings.check_batch(self.full_grpo(), self.resources.workers):
            raise setting_error(message, "grpo", "num_generations")
        return self

    @model_validator(mode="after")
    def _early_stopping_has_evaluations(self) -> Self:
        if self.stop_hopeless and self.evaluate.engine:
            raise setting_error(
                "needs evaluations during training, but evaluate.engine runs after it: "
                "remove one of the two",
                "stop_hopeless",
            )
        if self.stop_hopeless and not 0 < self.evaluate.every < self.full_grpo()["max_steps"]:
            raise setting_error(
                "no cell is evaluated before its last update: write evaluate: {every: N} below "
                "grpo.max_steps",
                "stop_hopeless",
            )
        return self

    def full_grpo(self) -> dict[str, Any]:
        """GRPO settings, with Decile's defaults filled in."""
        return settings.GRPO_DEFAULTS | self.grpo

    def full_lora(self, target_modules: Sequence[str] = ()) -> dict[str, Any]:
        """LoRA settings, with Decile's defaults and the model's target modules filled in."""
        modules = {"target_modules": list(target_modules)} if target_modules else {}
        return settings.LORA_DEFAULTS | modules | self.lora

    def subset_size(self, pool: int) -> int:
        """Prompts per subset: floor(share × pool), or the count (paper A: floor(p·N))."""
        return self.budget if isinstance(self.budget, int) else int(self.budget * pool + 1e-9)

"""The blocks of an experiment: grid, probe, evaluation, resources, and the experiment itself."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orchestrator.config import library_settings as settings
from orchestrator.config.entries import Settings, problem
from orchestrator.sampling import ENGINES, Sampler, SamplingSettings, find_sampler

PASS_AT = (2, 4, 8, 16, 32)


def _check_engine(name: str) -> type[Sampler] | None:
    """The class of an engine; None for a built-in one, heavy to import and here by name."""
    if name in ENGINES:
        return None
    try:
        return find_sampler(name)
    except ValueError as error:
        raise problem(str(error)) from error


class Grid(Settings):
    """The swept axes; the sweep is their product."""

    model: list[str] = Field(min_length=1)
    """Names from `models`."""
    dataset: list[str] = Field(min_length=1)
    """Names from `datasets`, or tasks with their default options."""
    policy: list[str] = Field(min_length=1)
    """Names from `policies`, built-in policies, or package.module:attribute."""
    seed: list[Annotated[int, Field(ge=0)]] = Field(default=[0], min_length=1)
    """Seeds of subset choice and training."""
    probe_seed: list[Annotated[int, Field(ge=0)]] = []
    """Seeds of the probe, to see what another probe would change; probe.seed when empty."""

    @field_validator("model", "dataset", "policy", "seed", "probe_seed")
    @classmethod
    def _no_repeats(cls, values: list[Any]) -> list[Any]:
        for index, value in enumerate(values):
            if value in values[:index]:
                raise problem(f"{value!r} is listed twice: a grid is a set, keep one", index)
        return values


class Probe(Settings):
    """How difficulty is measured: K completions per prompt from the base model."""

    samples: int = Field(default=10, ge=1)
    """K, completions per prompt."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; 1 is off."""
    top_k: int = Field(default=0, ge=0)
    """Keep only the k likeliest tokens; 0 is off."""
    max_completion_length: int = Field(default=256, ge=1)
    """Tokens per completion at most; too few make every prompt look hard."""
    seed: int = 0
    """Of the sampling; another seed is another probe."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end an answer; the text before the first of them is marked."""
    adaptive: bool = False
    """Stop sampling a prompt once nothing it could still say can change a subset of the grid."""
    count_truncated: Literal["wrong", "exclude"] = "wrong"
    """Whether an answer cut by the limit counts as a failure, or not at all."""
    engine: str = "transformers"
    """What generates: transformers, vllm (a GPU and decile[vllm]), or package.module:Class."""

    gpus: int = Field(default=1, ge=1)
    """GPUs per sampler where there are any; vllm shares a large model among them."""

    @field_validator("engine")
    @classmethod
    def _engine_exists(cls, name: str) -> str:
        _check_engine(name)
        return name

    def sampling(self) -> SamplingSettings:
        """The part that decides how one completion is drawn."""
        return SamplingSettings(
            self.temperature,
            self.top_p,
            self.top_k,
            self.max_completion_length,
            self.seed,
            self.stop,
        )


class Evaluate(Settings):
    """How accuracy is measured, on the same test questions in all cells."""

    every: int = Field(default=0, ge=0)
    """Updates between evaluations; 0 evaluates the base and the final model only."""
    samples: int = Field(default=4, ge=1)
    """Completions per test question; accuracy is their mean."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0 is greedy."""
    pass_at: tuple[Annotated[int, Field(ge=2)], ...] = PASS_AT
    """Each k of pass@k; needs as many samples."""
    greedy: bool = False
    """Also one answer at temperature 0 per question."""
    ood: tuple[str, ...] = ()
    """Out-of-distribution test sets, by dataset; the base and the final model answer them."""
    ood_samples: int | None = Field(default=None, ge=1)
    """Completions per question of those; `samples` when not set."""
    max_completion_length: int | None = Field(default=None, ge=1)
    """Tokens per completion; the probe's when not set."""
    seed: int = 1
    """Of the sampling: the same random numbers in every evaluation, so that they pair."""
    engine: str | None = None
    """What answers. Not set: the trainer's own model while it trains. Set: this engine, after
    training, with the base model loaded once and the adapters of all checkpoints swapped in."""

    @field_validator("engine")
    @classmethod
    def _engine_adapts(cls, name: str | None) -> str | None:
        if name and (found := _check_engine(name)) and not found.adapts:
            raise problem(
                f"engine {name!r} cannot swap adapters: leave engine out, so that the "
                "trainer's own model answers"
            )
        return name

    def as_probe(
        self, probe: Probe, *, samples: int | None = None, temperature: float | None = None
    ) -> Probe:
        """The probe of a test set whose completions are the base model's evaluation."""
        return Probe(
            samples=samples or self.samples,
            temperature=self.temperature if temperature is None else temperature,
            max_completion_length=self.max_completion_length or probe.max_completion_length,
            stop=probe.stop,
            seed=self.seed,
            # The base model is asked as the trained ones are, so that they pair.
            engine=self.engine or "transformers",
            gpus=probe.gpus if self.engine else 1,
        )


class Resources(Settings):
    """What one trial takes; as many trials run at once as fit."""

    cpus: float = Field(default=1, gt=0)
    """CPUs per worker; fractions allowed."""
    gpus: float = Field(default=0, ge=0)
    """GPUs per worker; fractions allowed up to 1, TRL refuses a process that sees two."""
    workers: int = Field(default=1, ge=1)
    """Processes that train one cell together, through Ray Train."""

    @model_validator(mode="after")
    def _one_gpu_per_worker(self) -> Self:
        if self.gpus > 1:
            raise problem(
                f"gpus is {self.gpus:g} per worker: write gpus: 1 and workers: {round(self.gpus)}",
                "gpus",
            )
        return self


class Experiment(Settings):
    """One named sweep."""

    about: str = ""
    """One line for people."""
    grid: Grid
    """The swept axes."""
    budget: int | float = 0.10
    """Size of each subset: a share of the pool (0.10) or a count (80)."""
    compare_at: Literal["updates", "rollouts", "tokens", "seconds"] = "updates"
    """What the report's comparison holds equal."""
    mask_dead_groups: bool = False
    """Leave groups whose rewards agree out of the loss."""
    claims: tuple[str, ...] = ()
    """What is claimed beforehand, such as "hard > random on gsm8k by 3"."""
    match_sizes: bool = False
    """Where a policy cannot fill the budget, all take the size of the smallest."""
    marking: Literal["lenient", "strict"] = "lenient"
    """The reading of answers that rewards and accuracy use."""
    max_marking_errors: float = Field(default=0.1, ge=0, le=1)
    """Share of a batch that may fail to be judged before the work stops with the reason."""
    probe: Probe = Probe()
    """How difficulty is measured."""
    grpo: dict[str, Any] = Field(default_factory=dict)
    """TRL's GRPOConfig, by its own names."""
    lora: dict[str, Any] = Field(default_factory=dict)
    """PEFT's LoraConfig, by its own names."""
    evaluate: Evaluate = Evaluate()
    """How accuracy is measured."""
    resources: Resources = Resources()
    """What one trial takes."""
    stop_hopeless: bool = False
    """Stop a cell that an evaluation shows to be clearly below the best policy of its seed."""
    max_gpu_hours: float | None = Field(default=None, gt=0)
    """No further block of policies begins once probes and cells would take more GPU-hours."""
    max_hours: float | None = Field(default=None, gt=0)
    """No further block of policies begins once runs of the experiment would last longer."""

    @field_validator("budget", mode="before")
    @classmethod
    def _budget(cls, budget: Any) -> Any:
        if isinstance(budget, bool) or not isinstance(budget, int | float) or not budget > 0:
            raise problem(f"budget {budget} is no size: write a share (0.10) or a count (80)")
        if isinstance(budget, float) and budget > 1:
            raise problem(f"budget {budget} is over the whole pool: write a share up to 1.0")
        return budget

    @field_validator("grpo", "lora")
    @classmethod
    def _library_settings(cls, values: dict[str, Any], info: Any) -> dict[str, Any]:
        for name, value in values.items():
            if message := settings.problem(info.field_name, name, value):
                raise problem(message, name)
        return values

    @model_validator(mode="after")
    def _batch_fits(self) -> Self:
        if message := settings.batch_problem(self.full_grpo(), self.resources.workers):
            raise problem(message, "grpo", "num_generations")
        return self

    @model_validator(mode="after")
    def _hopeless_is_seen(self) -> Self:
        if self.stop_hopeless and self.evaluate.engine:
            raise problem(
                "evaluate.engine answers after training, too late to stop a cell: leave one out",
                "stop_hopeless",
            )
        if self.stop_hopeless and not 0 < self.evaluate.every < self.full_grpo()["max_steps"]:
            raise problem(
                "no cell is evaluated before its end: write evaluate: {every: N}", "stop_hopeless"
            )
        return self

    def full_grpo(self) -> dict[str, Any]:
        """GRPO settings with every one that matters written out."""
        return settings.GRPO_DEFAULTS | self.grpo

    def full_lora(self, target_modules: Sequence[str] = ()) -> dict[str, Any]:
        """LoRA settings with every one that matters written out, for a model's own layers."""
        own = {"target_modules": list(target_modules)} if target_modules else {}
        return settings.LORA_DEFAULTS | own | self.lora

    def subset_size(self, pool: int) -> int:
        """Prompts per subset: floor(share × pool), or the count (paper A: floor(p·N))."""
        return self.budget if isinstance(self.budget, int) else int(self.budget * pool + 1e-9)

"""An experiment, with its blocks grid and resources."""

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orchestrator.config import library_settings as settings
from orchestrator.config.corrections import shown
from orchestrator.config.entries import (
    MAX_LISTED,
    MAX_RESOURCES,
    Seed,
    Settings,
    setting_error,
)
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.storage.errors import shortened

_MAX_CELLS = 10_000
_MAX_BUDGET = 1_000_000_000


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
    rollouts: Literal["decile", "trl"] = "decile"
    """What draws the completions of an update: Decile's decoder, or TRL's call of `generate`."""
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
    def _one_model_per_served_name(self) -> Self:
        blocks: dict[str, Probe | Evaluate] = {"probe": self.probe, "evaluate": self.evaluate}
        for name, block in blocks.items():
            served = block.engine_args.get("model") if block.engine == "server" else None
            if served and len(self.grid.model) > 1:
                raise setting_error(
                    f"{served!r:.80} is one model, and the grid has {len(self.grid.model)}: leave "
                    "model out (each is then served under its Hub id), or write an experiment "
                    "for each",
                    *(name, "engine_args", "model"),
                )
        return self

    @model_validator(mode="after")
    def _vllm_receives_weights_on_a_gpu(self) -> Self:
        if self.grpo.get("use_vllm") and not self.resources.gpus:
            raise setting_error(
                "true: TRL gives vLLM the weights of every update on a GPU: write resources: "
                "{gpus: 1}, or use_vllm: false",
                *("grpo", "use_vllm"),
            )
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

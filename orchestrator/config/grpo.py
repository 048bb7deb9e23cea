"""The GRPO settings of TRL that Decile reads, and how TRL divides rollouts into updates. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Self

from orchestrator.plugins.counts import counted


@dataclass(frozen=True, kw_only=True)
class GrpoSettings:
    """The settings of TRL's GRPOConfig that Decile reads; the rest is passed to TRL as written.

    Defaults are TRL's. Fields without one are in Decile's own (`library_settings.GRPO_DEFAULTS`).
    """

    max_steps: int
    save_steps: int
    num_generations: int
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    max_completion_length: int
    temperature: float
    top_p: float
    top_k: int | None
    num_iterations: int = 1
    steps_per_generation: int | None = None
    generation_batch_size: int | None = None
    beta: float = 0.0
    top_entropy_quantile: float = 1.0
    entropy_coef: float = 0.0
    multi_objective_aggregation: str = "sum_then_normalize"
    gradient_checkpointing: bool | None = None
    """None: on GPUs, see `training.trainer.grpo_config`."""
    optim: str | None = "adamw_torch_fused"
    use_vllm: bool = False

    @classmethod
    def of(cls, grpo: Mapping[str, Any]) -> Self:
        """From all settings, with Decile's defaults filled in."""
        return cls(**{name: grpo[name] for name in cls.__dataclass_fields__ if name in grpo})


@dataclass(frozen=True)
class GrpoBatch:
    """The batch of a cell's updates.

    TRL generates for `per_generation` micro-batches at once and uses them `iterations` times; an
    update accumulates the gradients of `accumulated` micro-batches of `micro` completions, on each
    of the workers.
    """

    micro: int
    accumulated: int
    per_generation: float  # a fraction if TRL refuses the generation_batch_size
    iterations: int
    group_size: int
    updates: int
    workers: int = 1

    @classmethod
    def of(cls, grpo: GrpoSettings, workers: int) -> Self:
        """The batch of an experiment's or a cell's settings."""
        micro, accumulated = grpo.per_device_train_batch_size, grpo.gradient_accumulation_steps
        per_generation: float = grpo.steps_per_generation or accumulated
        if grpo.generation_batch_size:
            per_generation = grpo.generation_batch_size / (micro * workers)
        return cls(
            micro=micro,
            accumulated=accumulated,
            per_generation=per_generation,
            iterations=grpo.num_iterations,
            group_size=grpo.num_generations,
            updates=grpo.max_steps,
            workers=workers,
        )

    @property
    def completions(self) -> int:
        """Completions that an update learns from, over all workers."""
        return self.micro * self.accumulated * self.workers

    @property
    def prompts_per_update(self) -> int:
        """Groups per update, over all workers."""
        return self.completions // self.group_size

    @property
    def updates_per_generation(self) -> float:
        """How many updates use a generation; below 1 if an update needs several."""
        return self.per_generation * self.iterations / self.accumulated

    @property
    def generations(self) -> int:
        """Generations of all updates."""
        return ceil(self.updates * self.accumulated / (self.per_generation * self.iterations))

    @property
    def rollouts(self) -> int:
        """Completions that are generated for all updates, over all workers."""
        return int(self.generations * self.per_generation * self.micro * self.workers)

    def group_problem(self) -> str | None:
        """Why groups do not fit the batch and what to write instead; None if they fit."""
        group, total = self.group_size, self.completions
        if group < 2:
            return f"num_generations is {group}: write at least 2 (a group of one is always dead)"
        if total % group == 0:
            return None
        fit = max(group, round(total / group) * group)
        return (
            f"num_generations {group} does not divide the "
            f"{counted(total, 'completion')} of one update "
            f"(per_device_train_batch_size {self.micro} × gradient_accumulation_steps "
            f"{self.accumulated} × workers {self.workers}): "
            f"write a batch of {counted(fit, 'completion')}, or another num_generations"
        )

    def copies(self, prompts: int) -> int:
        """How often an update has each prompt of a subset; 1 if the subset can fill it.

        Above 1, the subset is repeated until it fills an update, and each epoch is one update.
        """
        return max(1, self.prompts_per_update // prompts)

    def problem(self, prompts: int, *, repeats: bool = False) -> str | None:
        """Why a subset of `prompts` prompts does not fit updates and generations; None if it fits.

        With `repeats`, an update may have each prompt several times, all equally often. In each
        epoch, TRL leaves out the prompts that do not fill a generation, and shortens the last
        update if the micro-batches do not fill it.
        """
        if repeats and self.prompts_per_update % prompts == 0:
            prompts *= self.copies(prompts)
        if prompts < self.prompts_per_update:
            divisor = (
                f"; a number that divides {self.prompts_per_update} is repeated" if repeats else ""
            )
            return (
                f"{counted(prompts, 'prompt')}, fewer than the "
                f"{self.prompts_per_update} of one update: write "
                f"a smaller batch, or a budget and policies that select more prompts{divisor}"
            )
        needed = self.per_generation * self.micro * self.workers / self.group_size
        remedy = "leave out grpo.steps_per_generation and grpo.generation_batch_size"
        if prompts < needed:
            return (
                f"{counted(prompts, 'prompt')}, fewer than the {needed:g} of one "
                "generation: write a larger "
                f"budget, or {remedy}"
            )
        epoch = int(prompts // needed * self.per_generation * self.iterations)
        if epoch % self.accumulated and epoch < self.updates * self.accumulated:
            return (
                f"{counted(prompts, 'prompt')}, an epoch of {epoch} micro-batches, so "
                "that its last update "
                f"has {epoch % self.accumulated} in place of {self.accumulated}: {remedy}"
            )
        return None

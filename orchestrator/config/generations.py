"""Generations of rollouts and the updates that use them, as TRL divides them."""

from math import ceil
from typing import Any

from orchestrator.config.library_settings import prompts_per_update


def updates_per_generation(grpo: dict[str, Any], workers: int) -> float:
    """How many updates use the rollouts of one generation; below 1 where an update needs several.

    TRL generates for `steps_per_generation` micro-batches, and uses them `num_iterations` times.
    """
    steps = _steps_per_generation(grpo, workers)
    return float(steps * grpo.get("num_iterations", 1) / grpo["gradient_accumulation_steps"])


def rollouts(grpo: dict[str, Any], workers: int) -> int:
    """Completions that are generated for all updates."""
    steps = _steps_per_generation(grpo, workers)
    micro_batches = grpo["max_steps"] * grpo["gradient_accumulation_steps"]
    generations = ceil(micro_batches / (steps * grpo.get("num_iterations", 1)))
    return int(generations * steps * grpo["per_device_train_batch_size"] * workers)


def check_subset(grpo: dict[str, Any], workers: int, prompts: int) -> str | None:
    """Why a subset of so many prompts does not fit the updates and generations; None if it fits.

    Of each epoch, TRL leaves out the prompts that do not fill a generation, and cuts the last
    update short where the micro-batches do not fill it.
    """
    if prompts < (per_update := prompts_per_update(grpo, workers)):
        return (
            f"{prompts} prompts, fewer than the {per_update} of one update: write a smaller batch, "
            "or a budget and policies that select more prompts"
        )
    steps, accumulated = _steps_per_generation(grpo, workers), grpo["gradient_accumulation_steps"]
    needed = steps * grpo["per_device_train_batch_size"] * workers / grpo["num_generations"]
    remedy = "leave out grpo.steps_per_generation and grpo.generation_batch_size"
    if prompts < needed:
        return (
            f"{prompts} prompts, fewer than the {needed:g} of one generation: write a larger "
            f"budget, or {remedy}"
        )
    epoch = int(prompts // needed * steps * grpo.get("num_iterations", 1))
    if epoch % accumulated and epoch < grpo["max_steps"] * accumulated:
        return (
            f"{prompts} prompts, an epoch of {epoch} micro-batches, so that its last update has "
            f"{epoch % accumulated} in place of {accumulated}: {remedy}"
        )
    return None


def _steps_per_generation(grpo: dict[str, Any], workers: int) -> float:
    """Micro-batches of one generation; a fraction for a generation_batch_size that TRL refuses."""
    if size := grpo.get("generation_batch_size"):
        return float(size / (grpo["per_device_train_batch_size"] * workers))
    return float(grpo.get("steps_per_generation") or grpo["gradient_accumulation_steps"])

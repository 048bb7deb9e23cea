"""Prompts and token limits that exceed a model's context or its device's memory."""

import os
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

import numpy as np
import psutil

from orchestrator.config.problems import Problem
from orchestrator.config.vllm_rollouts import is_colocated
from orchestrator.cost.memory import GPUS, kv_bytes, longest_prompt, shape_of, weight_bytes
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.flaws import place_of, places
from orchestrator.planning.plan import Plan
from orchestrator.planning.prompt_texts import most_bytes, prompt_texts
from orchestrator.plugins.counts import counted, noun_for
from orchestrator.sampling.model import context_length, token_counts
from orchestrator.training.cell_folder import CellState, cell_state

VLLM_SHARE = 0.3  # TRL's default of vllm_gpu_memory_utilization
CANDIDATES = 256  # longest prompts of a data set, whose tokens are counted


class PromptLimit(NamedTuple):
    """A prompt must have fewer tokens than this, and why."""

    tokens: float
    reason: str


def check_long_prompts(run: Run, gpu: str | None) -> None:
    """Check what the built-in engine still has to draw, for the models on this machine.

    `gpu` is the type of the cluster's GPUs, None if unknown. Raises UserError at the data set of
    the first prompts that cannot be read, and at a token limit that no completion can reach.
    """
    plan = run.plan
    if _draws_more(run):
        _check_token_limits(plan)
        _check_vllm(plan, gpu)
    for spec in plan.probes:
        if spec.settings.engine != "transformers" or spec.model.recorded:
            continue
        limit = _limit(plan, spec, run.cluster, gpu)
        tokens = _long_prompts(plan, spec, limit.tokens)
        if tokens and run.pending_after_earlier_probes(spec).samples:
            table = plan.pool(spec).prompts(spec.split)
            kind = "training prompt" if spec.split == "train" else "test question"
            first, long = table[min(tokens)], np.isin(np.arange(len(table)), [*tokens])
            room = (context_length(spec.model) or inf) - spec.settings.max_completion_length
            most = int(max(1, min(limit.tokens - 1, room)))
            remedy = f"max_prompt_tokens: {most}"
            if spec.split == "test":
                remedy += " and clean_test: true"
            message = (
                f"{kind} {place_of(first)} ({first.question[:40]!r}…) has "
                f"{counted(tokens[min(tokens)], 'token')}, and {limit.reason}: shorten or remove "
                f"{noun_for(len(tokens), kind)} {places(table, long)}, or write {remedy}"
            )
            problem = Problem("long-prompts", message, "datasets", spec.dataset.name)
            raise plan.source.error(problem)


def _draws_more(run: Run) -> bool:
    """Whether a sweep has work left: otherwise a different limit would make different cells."""
    states = (cell_state(run.store, cell) for cell in run.plan.cells)
    return not run.plan.trains or any(state is not CellState.FINISHED for state in states)


def _check_token_limits(plan: Plan) -> None:
    """Raise UserError at a token limit that is not below the context of a model.

    Models without a known context, such as those that are not on this machine, are not checked.
    """
    models = {cell.probe.model.name: cell.probe.model for cell in plan.cells}
    contexts = {name: context_length(model) or inf for name, model in models.items()}
    sources = {spec.model.name: spec.model for spec in plan.probes} | models  # some are only probed
    probed = {name: context_length(model) or inf for name, model in sources.items()}
    for axes, variant in plan.experiment.variants:
        limits = {"probe": variant.probe.max_completion_length}
        if plan.trains:
            limits["evaluate"] = variant.evaluate.max_completion_length or 0
            limits["grpo"] = variant.grpo_settings.max_completion_length
        for block, limit in limits.items():
            of_block = probed if block == "probe" else contexts
            name = min(of_block, key=of_block.__getitem__)
            if limit >= of_block[name]:
                message = (
                    f"max_completion_length {limit:,} cannot be reached: the context of {name} "
                    f"(prompt and completion) is {of_block[name]:,} tokens: "
                    "write a smaller one"
                )
                path = ("experiments", plan.name, block, "max_completion_length")
                raise plan.source.error(Problem("limit-above-context", message, *path, axes=axes))


def _check_vllm(plan: Plan, gpu: str | None) -> None:
    """Raise UserError if a vLLM engine in the trainer's process cannot draw the rollouts."""
    for axes, variant in plan.experiment.variants if plan.trains else ():
        grpo = variant.full_grpo()
        if not is_colocated(grpo):
            continue
        if problem := _window_problem(plan, grpo) or _memory_problem(plan, grpo, gpu):
            path = ("experiments", plan.name, "grpo", *problem.path)
            raise plan.source.error(Problem(problem.code, problem.message, *path, axes=axes))


def _window_problem(plan: Plan, grpo: Mapping[str, Any]) -> Problem | None:
    """vLLM silently ends a completion where its window ends, and fails on a longer prompt."""
    window, limit = grpo.get("vllm_max_model_length"), grpo["max_completion_length"]
    for model in {cell.probe.model.name: cell.probe.model for cell in plan.cells}.values():
        context = context_length(model) or inf
        if window and window > context:  # `_get_and_verify_max_len` in vLLM's config/model.py
            return Problem(
                "vllm-window",
                f"vllm_max_model_length {window:,} is more than the context of {model.name}, "
                f"{context:,} tokens, so vLLM would not start: write at most that, or leave it out",
                "vllm_max_model_length",
            )
    for spec in plan.probes:
        if not window or spec.split != "train" or spec.model.recorded:
            continue
        if long := _long_prompts(plan, spec, window - limit + 1):
            number = (
                f"{'at least ' if len(long) == CANDIDATES else ''}{counted(len(long), 'prompt')}"
            )
            return Problem(
                "vllm-window",
                f"vllm_max_model_length {window:,} cuts the completions of {number} of "
                f"{spec.dataset.variant_key} below max_completion_length {limit:,}: write at least "
                f"{max(long.values()) + limit:,} and the tokens of the chat template",
                "vllm_max_model_length",
            )
    return None


def _memory_problem(plan: Plan, grpo: Mapping[str, Any], gpu: str | None) -> Problem | None:
    """vLLM starts only if its weights and one completion that fills its window have space.

    See `_check_enough_kv_cache_memory` in vLLM's v1/core/kv_cache_utils.py. Both are of 16 bits.
    """
    share = grpo.get("vllm_gpu_memory_utilization", VLLM_SHARE)
    for model in {cell.probe.model.name: cell.probe.model for cell in plan.cells}.values():
        shape = shape_of(model)
        tokens = grpo.get("vllm_max_model_length") or context_length(model)
        if not gpu or not shape or not tokens:
            continue
        weights = weight_bytes(shape, "bfloat16", load_in_4bit=False)
        cache, memory = tokens * kv_bytes(shape, 2), share * GPUS[gpu].memory
        if weights + cache > memory:
            return Problem(
                "vllm-memory",
                f"vLLM's share of {GPUS[gpu].name} is {memory / 2**30:.3g} GiB, less than the "
                f"weights of {model.name} ({weights / 2**30:.3g} GiB) with a completion of "
                f"{tokens:,} tokens ({cache / 2**30:.3g} GiB): write a smaller "
                "vllm_max_model_length, or a larger vllm_gpu_memory_utilization",
                "use_vllm",
            )
    return None


def crowded_prompts(run: Run) -> list[str]:
    """Where prompts leave less of a model's context than the token limit, a sentence each."""
    plan, notes = run.plan, []
    for spec in plan.probes:
        context, limit = context_length(spec.model), spec.settings.max_completion_length
        if (
            context is None
            or spec.model.recorded
            or not run.pending_after_earlier_probes(spec).samples
        ):
            continue
        if prompts := _long_prompts(plan, spec, context - limit + 1):
            what = "training prompts" if spec.split == "train" else "test questions"
            number = f"{'at least ' if len(prompts) == CANDIDATES else ''}{len(prompts):,}"
            notes.append(
                f"warning: {number} {what} of {spec.dataset.variant_key} leave fewer than the "
                f"{counted(limit, 'token')} of max_completion_length in the context "
                f"of {spec.model.name} "
                f"({counted(context, 'token')}): write a smaller limit, or shorten them"
            )
    return notes


def _limit(
    plan: Plan, spec: ProbeSpec, cluster: Mapping[str, float], gpu: str | None
) -> PromptLimit:
    """The lower of what the model's context and the memory of the device allow."""
    model, limits = spec.model, [PromptLimit(inf, "")]
    if context := context_length(model):
        limits.append(
            PromptLimit(context, f"the context of {model.name} is {counted(context, 'token')}")
        )
    memory, device = inf, "a remote machine"
    if cluster.get("GPU", 0.0) >= 1 or plan.experiment.resources.gpus:
        if gpu:
            memory, device = GPUS[gpu].memory, GPUS[gpu].name
    elif "RAY_ADDRESS" not in os.environ:
        memory, device = float(psutil.virtual_memory().total), "this machine"
    if memory < inf and (shape := shape_of(model)):
        completion = spec.settings.max_completion_length
        most = longest_prompt(shape, model.dtype, model.load_in_4bit, completion, memory)
        where = f"the memory of {device} ({memory / 2**30:.3g} GiB)"
        limits.append(PromptLimit(most + 1, f"{where} has space for {most:,} beside {model.name}"))
    return min(limits)


def _long_prompts(plan: Plan, spec: ProbeSpec, limit: float) -> dict[int, int]:
    """Row -> tokens, of the prompts of at least `limit` tokens among the longest of a pool.

    A token is at least one byte, so that most pools need no tokenizer.
    """
    pool = plan.pool(spec)
    table, task = pool.prompts(spec.split), pool.task
    sizes = most_bytes(table, task)
    rows = np.flatnonzero(sizes >= limit)
    if len(rows) > CANDIDATES:
        rows = np.sort(rows[np.argpartition(-sizes[rows], CANDIDATES)[:CANDIDATES]])
    prompts = [table[int(row)] for row in rows]
    counts = token_counts(spec.model, prompt_texts(prompts, task)) if prompts else None
    tokens = zip(rows.tolist(), counts or (), strict=counts is not None)
    return {row: count for row, count in tokens if count >= limit}

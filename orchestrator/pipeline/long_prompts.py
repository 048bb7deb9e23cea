"""Prompts and token limits for which a model's context, or its device's memory, has no space."""

import os
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import numpy as np
import psutil

from orchestrator.config.problems import Problem
from orchestrator.cost.memory import longest_prompt, shape_of
from orchestrator.cost.throughput import DEVICES
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.flaws import place_of, places
from orchestrator.planning.plan import Plan
from orchestrator.planning.prompt_texts import most_bytes, prompt_texts
from orchestrator.plugins.counts import counted, noun_for
from orchestrator.sampling.model import context_length, token_counts
from orchestrator.training.cell_folder import CellState, cell_state

CANDIDATES = 256  # of a data set, the longest: their tokens are counted


class PromptLimit(NamedTuple):
    """A prompt must have fewer tokens than this, and why."""

    tokens: float
    reason: str


def check_long_prompts(run: Run, gpu: str | None) -> None:
    """Check what the built-in engine has still to draw, as far as the models are on this machine.

    `gpu` is the type of the cluster's GPUs, None if unknown. Raises UserError at the data set of
    the first prompts that cannot be read, and at a token limit that no completion can reach.
    """
    plan = run.plan
    _check_token_limits(run)
    for spec in plan.probes:
        if spec.settings.engine != "transformers" or spec.model.recorded:
            continue
        limit = _limit(plan, spec, run.cluster, gpu)
        tokens = _long_prompts(plan, spec, limit.tokens)
        if tokens and run.pending(spec).samples:
            table = plan.pool(spec).prompts(spec.split)
            kind = "training prompt" if spec.split == "train" else "test question"
            first, long = table[min(tokens)], np.isin(np.arange(len(table)), [*tokens])
            room = (context_length(spec.model) or inf) - spec.settings.max_completion_length
            most = int(max(1, min(limit.tokens - 1, room)))
            message = (
                f"{kind} {place_of(first)} ({first.question[:40]!r}…) has "
                f"{counted(tokens[min(tokens)], 'token')}, and {limit.reason}: shorten or remove "
                f"{noun_for(len(tokens), kind)} {places(table, long)}"
                + (f", or write max_prompt_tokens: {most}" if spec.split == "train" else "")
            )
            problem = Problem("long-prompts", message, "datasets", spec.dataset.name)
            raise plan.source.error(problem)


def _check_token_limits(run: Run) -> None:
    """Raise UserError at a token limit that is not below the context of a model.

    Models without a known context, such as those that are not on this machine, are not checked, nor
    is a sweep with nothing left to do: another limit would make other cells.
    """
    plan = run.plan
    states = (cell_state(run.store, cell) for cell in plan.cells)
    if plan.trains and all(state is CellState.FINISHED for state in states):
        return
    models = {cell.probe.model.name: cell.probe.model for cell in plan.cells}
    contexts = {name: context_length(model) or inf for name, model in models.items()}
    sources = {spec.model.name: spec.model for spec in plan.probes} | models  # only probed, some
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
                    f"max_completion_length {limit:,} cannot be reached: the context of {name}, "
                    f"prompt and completion, is {of_block[name]:,} tokens: "
                    "write a smaller one"
                )
                path = ("experiments", plan.name, block, "max_completion_length")
                raise plan.source.error(Problem("limit-above-context", message, *path, axes=axes))


def crowded_prompts(run: Run) -> list[str]:
    """Where prompts leave less of a model's context than the token limit, a sentence each."""
    plan, notes = run.plan, []
    for spec in plan.probes:
        context, limit = context_length(spec.model), spec.settings.max_completion_length
        if context is None or spec.model.recorded or not run.pending(spec).samples:
            continue
        if prompts := _long_prompts(plan, spec, context - limit + 1):
            what = "training prompts" if spec.split == "train" else "test questions"
            number = f"{'at least ' if len(prompts) == CANDIDATES else ''}{len(prompts):,}"
            notes.append(
                f"warning: {number} {what} of {spec.dataset.title} leave fewer than the "
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
            memory, device = DEVICES[gpu].memory, DEVICES[gpu].name
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

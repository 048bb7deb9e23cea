"""The device of a worker, the speed of a model, and the workload of a cell. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.config.batch import GrpoBatch
from orchestrator.config.experiment import Resources
from orchestrator.cost.forecast import evaluations_until
from orchestrator.cost.throughput import (
    CHARACTERS_PER_TOKEN,
    DEVICES,
    TEMPLATE_TOKENS,
    Calibration,
    Cost,
    Device,
    Draws,
    GenerationCounts,
    ModelSize,
    TokenLengths,
    Workload,
    assumed_lengths,
    calibrate,
    cpu,
    generation_counts,
    skips_dead_groups,
)
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.plan import Plan
from tasks.prompt_table import PromptTable

DEFAULT_GPU = "h100"  # if neither the user nor the cluster names one


def gpu_type(names: Iterable[str]) -> str | None:
    """The type in DEVICES that one of these names, such as Ray's resources, contains."""
    return next((gpu for name in names for gpu in DEVICES if gpu in name.lower()), None)


def worker_device(resources: Resources, gpu: str) -> Device:
    """The device of one worker; workers that share a GPU share its speed."""
    return gpu_share(DEVICES[gpu], resources.gpus) if resources.gpus else cpu(resources.cpus)


def gpu_share(gpu: Device, count: float) -> Device:
    """A fraction of a GPU, or several that compute together."""
    return gpu._replace(bandwidth=gpu.bandwidth * count, flops=gpu.flops * count)


class ModelSpeed(NamedTuple):
    """The speed of a model on this cluster; `size` is None if nothing is known."""

    size: ModelSize | None
    calibration: Calibration
    source: str


# Cancels out for a measured model: calibration uses only ratios of the same arithmetic.
ANY_SIZE = ModelSize(4e9, 36, 8e9, 147_456.0)


def model_speed(
    size: ModelSize | None, pairs: Sequence[tuple[Cost, Cost]], resources: Resources, gpu: str
) -> ModelSpeed:
    """Calibrated on (nominal, measured) costs if there are any, else from the model's size."""
    if pairs:
        cells = f"{len(pairs)} finished cell{'s' * (len(pairs) > 1)}"
        source = f"measured on {cells} in this storage"
        return ModelSpeed(size or ANY_SIZE, calibrate(pairs), source)
    if size is None:
        return ModelSpeed(None, Calibration(), "unknown until a first cell has finished")
    millions, device = size.parameters / 1e6, worker_device(resources, gpu)
    count = f"{millions / 1e3:.1f} billion" if millions >= 1e3 else f"{millions:.1f} million"
    source = f"estimated from {count} parameters on {device.name}, not measured"
    return ModelSpeed(size, Calibration(), source)


def token_lengths(
    tokens: npt.NDArray[np.int32], prompts: PromptTable, spec: ProbeSpec
) -> TokenLengths:
    """Lengths from a probe's stored samples (negative: not stored), or assumed without any."""
    characters = prompts.question_lengths.mean() if prompts else 0.0
    prompt = float(characters) / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS
    drawn = tokens[tokens >= 0]
    if not len(drawn):
        return assumed_lengths(prompt, spec.settings.max_completion_length)
    return TokenLengths(prompt, drawn.astype(float))


def measured_cost(result: Mapping[str, Any]) -> Cost:
    """What a finished cell took, from its result.json."""
    timing = result.get("timing", {})
    training, evaluation = result["ledger"]["seconds"], timing.get("evaluation_seconds", 0.0)
    return Cost(timing.get("start_seconds", 0.0), training, evaluation)


def finished_workload(cell: Mapping[str, Any], result: Mapping[str, Any]) -> Workload:
    """What a finished cell computed, from its cell.json and result.json."""
    grpo, resources = cell["grpo"], Resources.model_validate(cell["resources"])
    ledger, timing = result["ledger"], result.get("timing", {})
    batch = GrpoBatch.of(grpo, resources.workers)
    counts = generation_counts(batch, grpo.get("beta", 0.0))
    counts = _with_draws(counts, ledger["rollouts"] / max(1, batch.rollouts))
    steps = timing.get("decode_steps", 0.0) / max(1, counts.generations)
    groups = ledger["rollouts"] / batch.group_size - ledger.get("discarded", 0)
    live = ledger.get("live", groups) / max(1, groups)
    drawn_by = result.get("versions", {}).get("rollouts")  # None: TRL did the whole update
    masked = cell.get("mask_dead_groups", False)
    prompt = ledger["prompt_tokens"] / max(1, ledger["rollouts"])
    evaluations, answers = timing.get("evaluations", 0), timing.get("answers", 0)
    evaluated = cell["baseline"]["settings"]
    return Workload(
        counts=counts,
        steps=steps or grpo["max_completion_length"],
        tokens=ledger["generated_tokens"] / max(1, ledger["rollouts"]),
        prompt=prompt,
        evaluations=evaluations,
        answers=Draws(
            answers / max(1, evaluations) / resources.workers,
            timing.get("answer_tokens", 0) / max(1, answers),
            evaluated["max_completion_length"],
            prompt,
            evaluated["samples"],
        ),
        live=live if skips_dead_groups(grpo, masked=masked) else 1.0,
        recompute=_recomputes(grpo, resources),
        trl_draws=drawn_by != "decile",
        padded=drawn_by is None,
        vllm=bool(grpo.get("use_vllm")),
    )


class Expected(NamedTuple):
    """What is known of a cell's completions before it runs, from the base model's.

    Lengths of its subset, of the whole pool and of its test set; the pool's share of live groups.
    Training moves mean lengths and pass rates of an extreme subset towards those of the pool, so
    that the subset only decides the longest completions. draws: rollouts drawn per rollout that is
    trained on.
    """

    subset: TokenLengths
    pool: TokenLengths
    test: TokenLengths
    live: float
    draws: float = 1.0


def _with_draws(counts: GenerationCounts, draws: float) -> GenerationCounts:
    """The counts of a policy that draws so many rollouts for each that it trains on."""
    return counts._replace(generations=ceil(counts.generations * max(1.0, draws)))


def cell_workload(plan: Plan, cell: Cell, expected: Expected) -> Workload:
    """What a cell will compute if its completions are as expected."""
    counts = generation_counts(cell.batch, cell.grpo.get("beta", 0.0))
    counts = _with_draws(counts, expected.draws)
    limit = int(cell.grpo["max_completion_length"])
    subset, pool = (
        lengths._replace(completions=np.minimum(lengths.completions, limit))
        for lengths in (expected.subset, expected.pool)
    )
    evaluations, settings = evaluations_until(cell, cell.updates), cell.baseline.settings
    count = float(len(plan.pool(cell.baseline).test) * settings.samples)
    for extra in cell.extra_evals:  # other test sets are evaluated only at the end
        once = len(plan.pool(extra.probe).test) * extra.probe.settings.samples
        count += once / (1 if extra.greedy else evaluations)
    return Workload(
        counts=counts,
        steps=subset.longest(counts.rows),
        tokens=pool.mean,
        prompt=subset.prompt,
        evaluations=evaluations,
        answers=Draws(
            count / cell.resources.workers,
            expected.test.mean,
            settings.max_completion_length,
            expected.test.prompt,
            settings.samples,
        ),
        live=expected.live if skips_dead_groups(cell.grpo, masked=cell.mask_dead_groups) else 1.0,
        recompute=_recomputes(cell.grpo, cell.resources),
        trl_draws=bool(cell.why_trl_draws),
        vllm=bool(cell.grpo.get("use_vllm")),
    )


def _recomputes(grpo: Mapping[str, Any], resources: Resources) -> bool:
    return bool(grpo.get("gradient_checkpointing", resources.gpus > 0))

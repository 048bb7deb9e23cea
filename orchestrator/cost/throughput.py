"""How long a cell takes, from its settings, its model and its device. Pure arithmetic.

One time model has two uses. Before any cell of a model has finished, it gives an estimate from the
devices' datasheets and the assumptions below, none of which is measured here. Afterwards, measured
times divided by the estimates of the same cells give a `Calibration`, and the assumptions matter
only for what differs between cells: lengths, batches, updates.

A rollout lasts until its longest completion ends, so its time follows the expected longest of a
batch, which is computed from the probe's completions. What else an update costs depends on what is
computed: Decile's decoder drops completions that have ended, and dead groups are left out of the
loss where that is exact, so the probe's lengths and pass rates matter as well.

Whether a cell fits a GPU's memory, and how many at once, follows from the peak memory of the plan's
finished cells if there are any, else from an estimate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, comb
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.config.experiment import Resources
from orchestrator.config.grpo import GrpoBatch, GrpoSettings
from orchestrator.cost.memory import (
    CPU_ROWS,
    DECODER_ROWS,
    ModelShape,
    bytes_of,
    kv_bytes,
    shape_of,
    training_load,
    training_memory,
    weight_bytes,
)
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.planning.result import GpuMemory, Result
from orchestrator.plugins.counts import counted
from orchestrator.sampling.gpu_peaks import Phase
from policies import BuiltOnlinePolicy
from tasks.prompt_table import PromptTable


class ModelSize(NamedTuple):
    """A model's parameters and layers, and bytes of its weights and of one token's KV cache."""

    parameters: float
    layers: int
    weight_bytes: float
    kv_bytes: float


def model_size(shape: ModelShape, dtype: str = "auto", *, load_in_4bit: bool = False) -> ModelSize:
    """The size of a model at a precision."""
    weights = weight_bytes(shape, dtype, load_in_4bit)
    return ModelSize(shape.parameters, shape.layers, weights, kv_bytes(shape, bytes_of(dtype)))


class Device(NamedTuple):
    """A GPU, or a share of a CPU."""

    name: str
    bandwidth: float  # bytes/s of its memory
    flops: float  # dense FLOP/s at the weights' precision
    layer_seconds: float  # overhead per layer of a decoding step, before any arithmetic
    start_seconds: float  # from a fresh process to a loaded model, without reading the weights
    memory: float = 0.0  # bytes
    rows: int = DECODER_ROWS  # completions that the decoder draws at once


# Assumptions. Decoding with transformers launches each layer's kernels and its adapter's one by one
# from Python: 1.25 ms per layer, 50 ms per token of 40 layers. vLLM replays recorded graphs.
LAUNCH_SECONDS = 1.25e-3
LAUNCH_SECONDS_VLLM = 0.05e-3
START_SECONDS = 25.0  # until a fresh process has imported its libraries
LOAD_BANDWIDTH = 1e9  # bytes/s at which weights are read
FLOPS_UTILISATION = 0.40  # share of the FLOP/s that dense layers reach
BANDWIDTH_UTILISATION = 0.6  # share of the bandwidth that decoding reaches
# FLOPs per parameter and token. LoRA computes no gradients of the base weights, so that a backward
# pass costs as much as a forward one; gradient checkpointing computes activations twice.
FORWARD_FLOPS = 2.0
BACKWARD_FLOPS = 2.0
SLACK = 1.25
CHARACTERS_PER_TOKEN = 4.0
TEMPLATE_TOKENS = 40.0  # of the chat template around a question

# Vendors' datasheets: SXM modules, dense bfloat16, memory bandwidth.
DEVICES = {
    "a100": Device("A100 80GB", 2.04e12, 312e12, LAUNCH_SECONDS, START_SECONDS, 80 * 2**30),
    "h100": Device("H100 80GB", 3.35e12, 989e12, LAUNCH_SECONDS, START_SECONDS, 80 * 2**30),
    "h200": Device("H200 141GB", 4.8e12, 989e12, LAUNCH_SECONDS, START_SECONDS, 141e9),
    "l40s": Device("L40S 48GB", 0.864e12, 362e12, LAUNCH_SECONDS, START_SECONDS, 48e9),
}


def cpu(cpus: float) -> Device:
    """A share of a CPU: about 60 GFLOP/s and 10 GB/s per core, and 2 ms per layer and step."""
    cores = max(1.0, cpus)
    return Device(f"{cores:g} CPU", 1e10 * cores, 6e10 * cores, 2e-3, 10.0, rows=CPU_ROWS)


class TokenLengths(NamedTuple):
    """Tokens of a prompt, and of completions (shape [N])."""

    prompt: float
    completions: np.ndarray

    @property
    def mean(self) -> float:
        """Mean length of a completion."""
        return float(self.completions.mean())

    def longest(self, rows: float) -> float:
        """Expected length of the longest of `rows` completions."""
        values, counts = np.unique(self.completions, return_counts=True)
        cumulative = (np.cumsum(counts) / counts.sum()) ** max(1.0, rows)
        return float((values * np.diff(cumulative, prepend=0.0)).sum())


class GenerationCounts(NamedTuple):
    """Generations of one worker, and completions: per generation, trained, and only scored.

    Trained completions go through forward and backward, scored ones through forward only. `drawn`
    completions of a prompt are drawn together, and `read` of them go through the loss together.
    """

    generations: int
    rows: int
    trained: int
    scored: int
    drawn: int
    read: int


def generation_counts(batch: GrpoBatch, beta: float) -> GenerationCounts:
    """What a cell's GRPO settings mean for one worker.

    TRL needs the reference's log-probabilities if beta > 0, and the old ones if a generation is
    used more than once.
    """
    rows = int(batch.micro * batch.per_generation)
    reused = batch.iterations > 1 or batch.per_generation > batch.accumulated
    return GenerationCounts(
        generations=batch.generations,
        rows=rows,
        trained=batch.updates * batch.micro * batch.accumulated,
        scored=batch.generations * rows * ((beta > 0) + reused),
        drawn=min(batch.group_size, rows),
        read=min(batch.group_size, batch.micro),
    )


def skips_dead_groups(grpo: GrpoSettings, *, masked: bool = False) -> bool:
    """Whether updates compute live groups only: they do where the result is the same.

    `masked`: dead groups do not count in the loss at all. See `training.trl_internals`.
    """
    connected = grpo.top_entropy_quantile < 1 or grpo.entropy_coef > 0
    return not connected and (masked or not grpo.beta)


class Draws(NamedTuple):
    """Completions that the decoder draws in one call. Lengths are in tokens.

    `together` completions have the same prompt, which is read once for them.
    """

    completions: float
    mean: float  # length
    longest: float
    prompt: float
    together: float


class Workload(NamedTuple):
    """What one worker of a cell computes. Lengths are in tokens.

    trl_draws: TRL draws the rollouts, each to the longest completion.
    """

    counts: GenerationCounts
    steps: float  # length of the longest completion of a generation
    tokens: float  # mean length of a completion of a generation
    prompt: float
    evaluations: int
    answers: Draws  # of one evaluation
    live: float = 1.0  # share of the trained completions that updates compute
    recompute: bool = True  # activations are computed twice
    trl_draws: bool = False
    vllm: bool = False


class Cost(NamedTuple):
    """Seconds of one cell, by phase."""

    start: float
    training: float
    evaluation: float

    @property
    def seconds(self) -> float:
        """From the cell's start to its result."""
        return self.start + self.training + self.evaluation


def nominal_cost(work: Workload, size: ModelSize, device: Device) -> Cost:
    """The cost of a cell by the datasheets and assumptions above, not calibrated."""
    counts, prompt = work.counts, work.prompt
    if work.trl_draws:
        context = prompt + work.steps / 2
        step = _step_seconds(counts.rows, context, size, device, vllm=work.vllm)
        prefill = _compute_seconds(FORWARD_FLOPS * counts.rows * prompt, size, device)
        rollout = work.steps * step + prefill
    else:
        draws = Draws(counts.rows, work.tokens, work.steps, prompt, counts.drawn)
        rollout = sampling_seconds(draws, size, device)
    width = prompt / counts.read + work.tokens
    flops = counts.trained * work.live * (FORWARD_FLOPS * (1 + work.recompute) + BACKWARD_FLOPS)
    updates = _compute_seconds((flops + FORWARD_FLOPS * counts.scored) * width, size, device)
    return Cost(
        device.start_seconds + size.weight_bytes / LOAD_BANDWIDTH,
        counts.generations * rollout + updates,
        work.evaluations * sampling_seconds(work.answers, size, device),
    )


def sampling_seconds(draws: Draws, size: ModelSize, device: Device, *, vllm: bool = False) -> float:
    """Seconds of one call of the decoder: waiting completions take the places of those that end."""
    if not draws.completions:
        return 0.0
    waiting = max(0.0, draws.completions - device.rows)
    steps = draws.longest + waiting * draws.mean / device.rows
    rows, context = (
        draws.completions * draws.mean / steps,
        draws.prompt / draws.together + draws.mean / 2,
    )
    prefill = FORWARD_FLOPS * draws.completions / draws.together * draws.prompt
    step = _step_seconds(rows, context, size, device, vllm=vllm)
    return steps * step + _compute_seconds(prefill, size, device)


def samples_per_call(
    lengths: TokenLengths, together: int, size: ModelSize, device: Device, *, vllm: bool = False
) -> tuple[int, float]:
    """Completions of one call that use the decoder well, and how many it then draws per second.

    `together` completions have the same prompt. In a call of few, the batch is never full, or
    empties while the last ones end: the first number is the least with which each takes at most
    SLACK times as long as with many.
    """

    def each(count: int) -> float:
        draws = Draws(count, lengths.mean, lengths.longest(count), lengths.prompt, together)
        return sampling_seconds(draws, size, device, vllm=vllm) / count

    *few, many = (2**power for power in range(3, 13))
    enough = next((n for n in few if each(n) <= SLACK * each(many)), many)
    return enough, 1 / each(enough)


def _step_seconds(
    rows: float, context: float, size: ModelSize, device: Device, *, vllm: bool
) -> float:
    """One token for each row: every weight and every cached token is read once."""
    bytes_read = size.weight_bytes + rows * context * size.kv_bytes
    read = bytes_read / (device.bandwidth * BANDWIDTH_UTILISATION)
    launch = LAUNCH_SECONDS_VLLM if vllm else device.layer_seconds
    return size.layers * launch + max(read, _compute_seconds(FORWARD_FLOPS * rows, size, device))


def _compute_seconds(flops_per_parameter: float, size: ModelSize, device: Device) -> float:
    return flops_per_parameter * size.parameters / (device.flops * FLOPS_UTILISATION)


class Calibration(NamedTuple):
    """Measured seconds of finished cells, as a multiple of their nominal cost."""

    start: float = 1.0
    training: float = 1.0
    evaluation: float = 1.0

    def __call__(self, cost: Cost) -> Cost:
        """A nominal cost, corrected for this cluster."""
        return Cost(*(factor * part for factor, part in zip(self, cost, strict=True)))


def calibrate(pairs: Sequence[tuple[Cost, Cost]]) -> Calibration:
    """The median ratio of each phase, from (nominal, measured) costs of finished cells.

    Where evaluation was not measured (0 seconds), its factor is that of training.
    """
    if not pairs:
        return Calibration()
    training = _ratio([(c.training, m.training) for c, m in pairs]) or 1.0
    start = _ratio([(c.start, m.start) for c, m in pairs]) or 1.0
    evaluation = _ratio([(c.evaluation, m.evaluation) for c, m in pairs]) or training
    return Calibration(start, training, evaluation)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    ratios = [took / expected for expected, took in pairs if expected > 0 and took > 0]
    return median(ratios) if ratios else None


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
        cells = f"{counted(len(pairs), 'finished cell')}"
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
    """Lengths of a probe's stored samples (negative: not stored); without any, uniform ones."""
    characters = prompts.question_lengths.mean() if prompts else 0.0
    prompt = float(characters) / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS
    drawn = tokens[tokens >= 0]
    assumed = np.linspace(1, spec.settings.max_completion_length, 32)
    return TokenLengths(prompt, drawn.astype(float) if len(drawn) else assumed)


def measured_cost(result: Result) -> Cost:
    """What a finished cell took."""
    timing = result.timing
    return Cost(timing.start_seconds, result.ledger.seconds, timing.evaluation_seconds)


def finished_workload(cell: Cell, result: Result) -> Workload:
    """What a finished cell computed."""
    grpo, batch, ledger, timing = cell.grpo_settings, cell.batch, result.ledger, result.timing
    counts = generation_counts(batch, grpo.beta)
    counts = _with_draws(counts, ledger.rollouts / max(1, batch.rollouts))
    steps = timing.decode_steps / max(1, counts.generations)
    lost = ledger.get("discarded_rollouts", ledger.get("discarded", 0) * batch.group_size)
    lost += ledger.get("refreshed_rollouts", 0)
    groups = (ledger.rollouts - lost) / batch.group_size
    live = ledger.get("live", groups) / max(1, groups)
    prompt = ledger.prompt_tokens / max(1, ledger.rollouts)
    evaluated = cell.baseline.settings
    return Workload(
        counts=counts,
        steps=steps or grpo.max_completion_length,
        tokens=ledger.generated_tokens / max(1, ledger.rollouts),
        prompt=prompt,
        evaluations=timing.evaluations,
        answers=Draws(
            timing.answers / max(1, timing.evaluations) / cell.resources.workers,
            timing.answer_tokens / max(1, timing.answers),
            evaluated.max_completion_length,
            prompt,
            evaluated.samples,
        ),
        live=live if skips_dead_groups(grpo, masked=cell.mask_dead_groups) else 1.0,
        recompute=_recomputes(grpo, cell.resources),
        trl_draws=result.versions.get("rollouts") != "decile",
        vllm=grpo.use_vllm,
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
    grpo = cell.grpo_settings
    counts = generation_counts(cell.batch, grpo.beta)
    refreshes = cell.refresh_rollouts / max(1, cell.rollouts)
    counts = _with_draws(counts, expected.draws + refreshes)
    limit = grpo.max_completion_length
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
        live=expected.live
        if skips_dead_groups(grpo, masked=cell.mask_dead_groups)
        and (cell.mask_dead_groups or not cell.reward)
        else 1.0,
        recompute=_recomputes(grpo, cell.resources),
        trl_draws=bool(cell.why_trl_draws),
        vllm=grpo.use_vllm,
    )


def _recomputes(grpo: GrpoSettings, resources: Resources) -> bool:
    written = grpo.gradient_checkpointing
    return resources.gpus > 0 if written is None else written


def evaluations_until(cell: Cell, update: int) -> int:
    """Evaluations of trained weights up to an update; the base model's come from its probe."""
    every = cell.evaluate_every
    passed = update // every if every else 0
    return passed + (update == cell.updates and (not every or update % every > 0))


UNKNOWN = 2.0  # before anything is known of the pass rates


def expected_draws(
    policy: BuiltOnlinePolicy, rates: npt.NDArray[np.float64] | None, group_size: int
) -> float:
    """Rollouts drawn per rollout that is trained on; 1 for a policy that discards none.

    `rates`: pass rates of the prompts (nan: unknown), or None without a probe. Training changes
    them, so this is a rough estimate.
    """
    if not policy.discards:
        return 1.0
    most = policy.max_draws
    if policy.at_once > 1:
        return min(policy.at_once, most)
    known = np.empty(0) if rates is None else rates[~np.isnan(rates)]
    if not len(known):
        return min(UNKNOWN, most)
    correct = np.arange(group_size + 1)
    kept = policy.keep(correct, np.full(group_size + 1, group_size))
    values, counts = np.unique(known, return_counts=True)
    ways = np.array([comb(group_size, c) for c in correct])
    chances = ways * values[:, None] ** correct * (1 - values[:, None]) ** (group_size - correct)
    share = float(counts @ chances @ kept) / len(known)
    return most if share * most <= 1 else 1 / share


GIB = 2**30
CUDA_CONTEXT_GIB = 0.75  # on top of what a process allocates; a round number, not measured


@dataclass(frozen=True)
class MemoryFit:
    """The peak memory of a model's largest cell, and how many such cells fit a GPU.

    requested: cells per GPU by `resources.gpus`; measured, running: numbers of finished and of
    running cells with the same memory load that give the peak, 0 for an estimate. phases_gib: what
    they have allocated at the peak of each phase. estimated_gib, estimated_phases_gib and the parts
    parts_gib are the estimate in either case.
    """

    peak_gib: float
    measured: int
    running: int
    phases_gib: Mapping[Phase, float]
    estimated_gib: float
    estimated_phases_gib: Mapping[Phase, float]
    parts_gib: Mapping[str, float]
    gpu: str
    gpu_gib: float
    per_gpu: int
    requested: int

    def lines(self, model: str) -> list[str]:
        """As text: the peak and what fits, then measured phases beside their estimates."""
        cells = {"finished cell": self.measured, "running cell": self.running}
        of_cells = " and ".join(counted(n, kind) for kind, n in cells.items() if n)
        source = "estimated"
        if of_cells:
            source = f"measured: {of_cells}; estimated {self.estimated_gib:.0f} GiB"
        if self.per_gpu == 0:
            fits = f" and does not fit {self.gpu}: use a smaller batch or load_in_4bit"
        elif self.per_gpu < self.requested:
            share = f"gpus: {1 / self.per_gpu:.2g}"
            most = f"{self.gpu}, {self.per_gpu} do"
            fits = f": {self.requested} at a time do not fit {most}; use {share}"
        else:
            fits = f": {self.per_gpu} at a time fit {self.gpu}"
        lines = [f"memory: a cell of {model} takes about {self.peak_gib:.0f} GiB ({source}){fits}"]
        if self.phases_gib:
            phases = (
                f"{phase} {gib:.1f} ({self.estimated_phases_gib[phase]:.1f})"
                for phase, gib in self.phases_gib.items()
            )
            lines.append(f"  GiB allocated by phase, measured (estimated): {', '.join(phases)}")
        return lines


def memory_fit(plan: Plan, gpu: Device, measured: Mapping[str, GpuMemory]) -> dict[str, MemoryFit]:
    """By model, how its largest cell fits a GPU; `measured` is by cell_id.

    Empty for trials without a GPU; models of unknown shape are left out.
    """
    if not plan.experiment.resources.gpus:
        return {}
    tokens: dict[str, int] = {}  # estimated from the characters of the longest prompt
    for dataset in {cell.probe.dataset.name for cell in plan.cells}:
        pool = plan.pools[dataset]
        longest = max(int(p.question_lengths.max(initial=0)) for p in (pool.train, pool.test))
        tokens[dataset] = round(longest / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS)
    loads = {c.cell_id: training_load(c, tokens[c.probe.dataset.name]) for c in plan.cells}
    by_load: dict[tuple[str, str], list[GpuMemory]] = {}
    for cell in plan.cells:
        if cell.cell_id in measured:
            key = (cell.probe.model.name, repr(loads[cell.cell_id]))
            by_load.setdefault(key, []).append(measured[cell.cell_id])
    fits: dict[str, MemoryFit] = {}
    for cell in plan.cells:
        model, load = cell.probe.model, loads[cell.cell_id]
        shape = shape_of(model)
        if shape is None:
            continue
        memory, of_load = training_memory(shape, load), by_load.get((model.name, repr(load)), [])
        peak = estimated = memory.peak / GIB
        if of_load:
            peak = max(each.reserved_gib for each in of_load) + CUDA_CONTEXT_GIB
        if model.name not in fits or peak > fits[model.name].peak_gib:
            fits[model.name] = MemoryFit(
                peak_gib=peak,
                measured=sum(each.done for each in of_load),
                running=sum(not each.done for each in of_load),
                phases_gib={
                    phase: max(peaks)
                    for phase in memory.phases
                    if (
                        peaks := [
                            m.allocated_gib[phase] for m in of_load if phase in m.allocated_gib
                        ]
                    )
                },
                estimated_gib=estimated,
                estimated_phases_gib={k: size / GIB for k, size in memory.phases.items()},
                parts_gib={name: part / GIB for name, part in memory._asdict().items()},
                gpu=gpu.name,
                gpu_gib=gpu.memory / GIB,
                per_gpu=int(gpu.memory // (peak * GIB)),
                requested=int(1 / cell.resources.gpus + 1e-9),
            )
    return fits

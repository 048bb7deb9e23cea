"""How long a cell takes, from what it has to do and where. Pure: arithmetic on plain numbers.

One model of time serves two sources. From the catalogue it is an estimate: datasheets of devices
and the assumptions named below, none of them measured here. Where cells of a model have finished,
what they took divided by what the same arithmetic says of them is its `Scale` on this cluster, and
then the assumptions matter only for what differs between cells: lengths, batches, updates.

A rollout runs until its longest completion ends, so its time follows the expected longest of a
batch, which the probe's own completions tell beforehand.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from orchestrator.cost.memory import BYTES, Shape, kv_bytes, weights


class Size(NamedTuple):
    """What of a model decides its speed: parameters, layers, and bytes of all weights and of one
    token's keys and values."""

    parameters: float
    layers: int
    weight_bytes: float
    kv_bytes: float


def size_of(shape: Shape, dtype: str = "auto", *, load_in_4bit: bool = False) -> Size:
    """The size of a model in a precision."""
    held = weights(shape, dtype, load_in_4bit)
    return Size(shape.parameters, shape.layers, held, kv_bytes(shape, BYTES[dtype]))


class Machine(NamedTuple):
    """A device: bytes/s of its memory, dense FLOP/s in the weights' precision, the seconds that a
    decoding step spends per layer before any arithmetic, and its bytes of memory."""

    name: str
    bandwidth: float
    flops: float
    layer_seconds: float
    start_seconds: float
    memory: float = 0.0


# Assumptions. Decoding with transformers launches each layer's kernels and its adapter's one by one
# from Python: 1.25 ms per layer, 50 ms per token of 40 layers. vLLM replays recorded graphs.
LAUNCH = 1.25e-3
LAUNCH_VLLM = 0.05e-3
START = 25.0  # seconds until a fresh process has its libraries and its model
LOAD = 1e9  # bytes/s at which weights are read
MFU = 0.40  # share of the FLOP/s that dense layers reach
READ = 0.6  # share of the bandwidth that decoding reaches
BACKWARD = 6.0  # FLOPs per parameter and token: forward, backward, and forward again (LoRA has no
# gradients of the weights, gradient checkpointing computes activations twice)
FORWARD = 2.0
EVALUATED_AT_ONCE = 128  # rows of one sampling batch; ended ones are replaced
CHARACTERS_PER_TOKEN = 4.0
TEMPLATE_TOKENS = 40.0  # of the chat around a question

# Vendors' datasheets: SXM modules, dense bfloat16, memory bandwidth.
MACHINES = {
    "a100": Machine("A100 80GB", 2.04e12, 312e12, LAUNCH, START, 80 * 2**30),
    "h100": Machine("H100 80GB", 3.35e12, 989e12, LAUNCH, START, 80 * 2**30),
    "h200": Machine("H200 141GB", 4.8e12, 989e12, LAUNCH, START, 141e9),
    "l40s": Machine("L40S 48GB", 0.864e12, 362e12, LAUNCH, START, 48e9),
}


def cpu(cpus: float) -> Machine:
    """A share of a CPU: about 60 GFLOP/s and 10 GB/s a core, and 2 ms per layer and step."""
    cores = max(1.0, cpus)
    return Machine(f"{cores:g} CPU", 1e10 * cores, 6e10 * cores, 2e-3, 10.0)


class Lengths(NamedTuple):
    """Tokens: of a prompt, and of a sample of completions [N]; `seen` where a probe drew these."""

    prompt: float
    completions: np.ndarray
    seen: bool = True

    @property
    def mean(self) -> float:
        """Of a completion."""
        return float(self.completions.mean())

    def longest(self, rows: float) -> float:
        """Expected length of the longest of `rows` completions."""
        values, counts = np.unique(self.completions, return_counts=True)
        below = (np.cumsum(counts) / counts.sum()) ** max(1.0, rows)
        return float((values * np.diff(below, prepend=0.0)).sum())


def assumed_lengths(prompt: float, limit: int) -> Lengths:
    """Where nothing was sampled yet: every length up to the limit, equally often."""
    return Lengths(prompt, np.linspace(1, limit, 32), seen=False)


class Work(NamedTuple):
    """What one worker of a cell does.

    generations of `rows` completions each, `steps` tokens long at their longest, behind prompts of
    `prompt` tokens; `trained` rows go through forward and backward, `scored` through forward only;
    `answers` of `answer` tokens are sampled to evaluate, in `evaluations` rounds.
    """

    generations: float
    rows: float
    steps: float
    prompt: float
    trained: float
    scored: float
    evaluations: int
    answers: float
    answer: float
    vllm: bool = False


class Rounds(NamedTuple):
    """How a cell's updates follow from its GRPO settings, for one worker."""

    generations: int
    rows: int
    trained: int
    scored: int


def rounds(grpo: Mapping[str, Any], workers: int) -> Rounds:
    """Generations, rows of each, and rows that are trained and scored without a gradient.

    TRL generates for `steps_per_generation` micro-batches at once and uses them `num_iterations`
    times; the reference's log-probabilities are needed where beta > 0, the old ones where a
    generation is used again.
    """
    micro, accumulated = grpo["per_device_train_batch_size"], grpo["gradient_accumulation_steps"]
    per_generation = grpo.get("steps_per_generation") or accumulated
    if grpo.get("generation_batch_size"):
        per_generation = max(1, grpo["generation_batch_size"] // (micro * workers))
    again = grpo.get("num_iterations", 1)
    updates = grpo["max_steps"]
    generations = ceil(updates * accumulated / (per_generation * again))
    rows = micro * per_generation
    passes = (grpo.get("beta", 0.0) > 0) + (again > 1 or per_generation > accumulated)
    return Rounds(generations, rows, updates * micro * accumulated, generations * rows * passes)


class Cost(NamedTuple):
    """Seconds of one cell, by what they are spent on."""

    start: float
    training: float
    evaluation: float

    @property
    def seconds(self) -> float:
        """From its start to its result."""
        return self.start + self.training + self.evaluation

    def until(self, share: float, evaluated: float) -> float:
        """Seconds when so much of the updates and of the evaluations is done (shares, 0 to 1)."""
        return self.start + share * self.training + evaluated * self.evaluation


def cost(work: Work, size: Size, machine: Machine) -> Cost:
    """What the catalogue says."""
    return Cost(
        machine.start_seconds + size.weight_bytes / LOAD,
        _training(work, size, machine),
        sampling(work.answers, work.answer, work.prompt, work.evaluations, size, machine),
    )


def _training(work: Work, size: Size, machine: Machine) -> float:
    """Rollouts, then the updates that use them."""
    step = _step(work.rows, work.prompt + work.steps / 2, size, machine, vllm=work.vllm)
    rollout = work.steps * step + _compute(FORWARD * work.rows * work.prompt, size, machine)
    tokens = (BACKWARD * work.trained + FORWARD * work.scored) * (work.prompt + work.steps)
    return work.generations * rollout + _compute(tokens, size, machine)


def sampling(
    answers: float,
    tokens: float,
    prompt: float,
    batches: int,
    size: Size,
    machine: Machine,
    *,
    vllm: bool = False,
) -> float:
    """Seconds to sample `answers` completions of `tokens` tokens, in so many batches."""
    if not answers:
        return 0.0
    rows = min(EVALUATED_AT_ONCE, answers / max(1, batches))
    step = _step(rows, prompt + tokens / 2, size, machine, vllm=vllm)
    return answers * tokens / rows * step + _compute(FORWARD * answers * prompt, size, machine)


def _step(rows: float, context: float, size: Size, machine: Machine, *, vllm: bool) -> float:
    """One token for each row: every weight and every cached token is read once."""
    read = (size.weight_bytes + rows * context * size.kv_bytes) / (machine.bandwidth * READ)
    launch = LAUNCH_VLLM if vllm else machine.layer_seconds
    return size.layers * launch + max(read, _compute(FORWARD * rows, size, machine))


def _compute(per_parameter: float, size: Size, machine: Machine) -> float:
    return per_parameter * size.parameters / (machine.flops * MFU)


class Scale(NamedTuple):
    """What finished cells took, as a multiple of what the catalogue says of them."""

    start: float = 1.0
    training: float = 1.0
    evaluation: float = 1.0
    cells: int = 0

    def __call__(self, cost: Cost) -> Cost:
        """A cost as this cluster would have it."""
        parts = zip(self[:3], cost, strict=True)
        return Cost(*(scale * part for scale, part in parts))


def scale_of(pairs: Sequence[tuple[Cost, Cost]]) -> Scale:
    """From (catalogue, measured) of finished cells: the median of each part's ratio.

    Evaluation follows the training where nobody measured it (0 seconds).
    """
    if not pairs:
        return Scale()
    training = _ratio([(said.training, took.training) for said, took in pairs]) or 1.0
    start = _ratio([(said.start, took.start) for said, took in pairs])
    evaluation = _ratio([(said.evaluation, took.evaluation) for said, took in pairs])
    return Scale(start or 1.0, training, evaluation or training, len(pairs))


def _ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    found = [took / said for said, took in pairs if said > 0 and took > 0]
    return median(found) if found else None

"""The work of cells and probes, in tokens and FLOPs, and measured speeds. Pure.

Speeds are not assumed: seconds per token of a model come from its finished cells, or from a pilot.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.cost.memory import CHARACTERS_PER_TOKEN, TEMPLATE_TOKENS
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.planning.result import Result
from tasks.prompt_table import PromptTable

FORWARD_FLOPS = 2.0  # per parameter and token: a multiplication and an addition
UNKNOWN_SIZE = 1.0  # parameters of a model of unknown shape


class Lengths(NamedTuple):
    """Mean tokens of a prompt and of a completion; at_most: only a completion's limit is known."""

    prompt: float
    completion: float
    at_most: bool = False

    @property
    def total(self) -> float:
        """Tokens of a completion and its prompt."""
        return self.prompt + self.completion


def mean_lengths(tokens: npt.NDArray[np.int32], prompts: PromptTable, limit: int) -> Lengths:
    """The lengths of a probe's stored samples (negative: not stored); without any, the limit."""
    characters = float(prompts.question_lengths.mean()) if prompts else 0.0
    prompt = characters / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS
    drawn = tokens[tokens >= 0]
    if len(drawn):
        return Lengths(prompt, float(drawn.mean()))
    return Lengths(prompt, float(limit), at_most=True)


class Work(NamedTuple):
    """Tokens of a cell's rollouts and of its evaluations, with the prompt of each completion."""

    training: float
    evaluation: float

    @property
    def tokens(self) -> float:
        """All tokens."""
        return self.training + self.evaluation

    def until(self, cell: Cell, update: int) -> float:
        """The tokens until the cell has completed this many updates."""
        update = min(update, cell.updates)
        evaluated = evaluations_until(cell, update) / evaluations_until(cell, cell.updates)
        return self.training * update / cell.updates + self.evaluation * evaluated

    def flops(self, cell: Cell, parameters: float) -> float:
        """The FLOPs of these tokens, for a model with this number of parameters."""
        passes = training_passes(cell) * self.training + self.evaluation
        return FORWARD_FLOPS * parameters * passes


def cell_work(plan: Plan, cell: Cell, rollout: Lengths, answer: Lengths) -> Work:
    """The work of a cell.

    It excludes groups that its policy may discard, and evaluations by an engine, which run after
    training.
    """
    limit = cell.grpo_settings.max_completion_length
    length = rollout.prompt + min(rollout.completion, limit)
    training = (cell.min_rollouts + cell.refresh_rollouts) * length
    if cell.evaluate_engine:
        return Work(training, 0.0)
    times = evaluations_until(cell, cell.updates)
    answers = times * len(plan.pool(cell.baseline).test) * cell.baseline.settings.samples
    for extra in cell.extra_evals:  # other test sets are evaluated only at the end
        once = len(plan.pool(extra.probe).test) * extra.probe.settings.samples
        answers += once * times if extra.greedy else once
    return Work(training, answers * answer.total)


def training_passes(cell: Cell) -> int:
    """Passes through the model for each token of a rollout, in units of a forward pass.

    Drawing the token is one pass. Every use is a forward and a backward pass, without gradients of
    the base weights; checkpointing recomputes activations. TRL needs the reference's
    log-probabilities if beta > 0, and the old ones if a generation is reused.
    """
    grpo, batch = cell.grpo_settings, cell.batch
    recomputes = grpo.gradient_checkpointing
    if recomputes is None:
        recomputes = cell.resources.gpus > 0
    reused = batch.iterations > 1 or batch.per_generation > batch.accumulated
    return 1 + (2 + recomputes) * batch.iterations + (grpo.beta > 0) + reused


def evaluations_until(cell: Cell, update: int) -> int:
    """Evaluations of trained weights up to an update; the base model's come from its probe."""
    every = cell.evaluate_every
    passed = update // every if every else 0
    return passed + (update == cell.updates and (not every or update % every > 0))


class Speed(NamedTuple):
    """Measurements of a model: seconds until training begins, and seconds per token."""

    start: float
    per_token: float
    source: str = ""

    @classmethod
    def of(cls, results: Sequence[Result], source: str) -> "Speed":
        """The medians of finished cells; `source` describes them."""
        paces = []
        for result in results:
            ledger, timing = result.ledger, result.timing
            prompt = ledger.prompt_tokens / max(1, ledger.rollouts)
            tokens = ledger.prompt_tokens + ledger.generated_tokens
            if timing.evaluation_seconds:  # 0 if an engine has evaluated after training
                tokens += timing.answer_tokens + timing.answers * prompt
            paces.append((ledger.seconds + timing.evaluation_seconds) / max(1, tokens))
        start = median(result.timing.start_seconds for result in results)
        return cls(start, median(paces), source)


class ProbeWork(NamedTuple):
    """A probe's missing samples, and their tokens including prompts.

    pace: seconds per token as a multiple of a cell's, which has different devices; None if unknown
    because a different engine draws.
    """

    model: str
    samples: int
    tokens: float
    pace: float | None = 1.0


class Estimates(NamedTuple):
    """The remaining work, and earlier measurements.

    works: by cell_id. probes: by probe_id. speeds: by the model's name, for measured models.
    parameters: by the model's name, UNKNOWN_SIZE if unknown.
    """

    works: Mapping[str, Work] = MappingProxyType({})
    probes: Mapping[str, ProbeWork] = MappingProxyType({})
    speeds: Mapping[str, Speed] = MappingProxyType({})
    parameters: Mapping[str, float] = MappingProxyType({})
    at_most: bool = False
    """Whether the lengths of some completions are unknown, so that the limit is used."""

    def remaining(
        self, cells: Sequence[Cell], updates: Mapping[str, int]
    ) -> tuple[float, float | None]:
        """Tokens and FLOPs of cells with these `updates` done, and of all probes.

        The FLOPs are None if the size of a model is unknown.
        """
        tokens = flops = 0.0
        for cell in cells:
            work, done = self.works[cell.cell_id], updates.get(cell.cell_id, 0)
            tokens += work.tokens - work.until(cell, done)
            size = self.parameters[cell.probe.model.name]
            flops += (1 - done / cell.updates) * work.flops(cell, size)
        for probe in self.probes.values():
            tokens += probe.tokens
            flops += FORWARD_FLOPS * self.parameters[probe.model] * probe.tokens
        return tokens, None if UNKNOWN_SIZE in self.parameters.values() else flops

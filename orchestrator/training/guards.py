"""Checks of a cell in training for faults that rewards and loss do not show.

They detect rollouts from weights that the trainer does not have (TRL issue 5312), an adapter that
is applied twice or not at all, base weights that change (TRL issue 6688), and prompts that training
tokenizes differently from probes. With each of these, training does not match the cell's
definition, so the cell ends.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from cluster.terminal import PlainError
from orchestrator.planning.cells import Cell
from orchestrator.plugins.counts import counted
from orchestrator.sampling.base import Request
from orchestrator.sampling.transformers import TransformersSampler
from orchestrator.training.record import CellRecord

LOGP_DIFFERENCE = "sampling/sampling_logp_difference/mean"  # TRL's name in its log with vLLM
UPDATES = 3  # above the limit in a row; a mean over few tokens may exceed it once
# The most nats per token from rounding, in a mean over tokens: in 16 bits, and on CPUs, where
# decoder and loss compute in float32.
ROUNDING, PRECISE_ROUNDING = 0.02, 1e-3
FACTOR = 2  # by which rollouts must be closer to a different use of the adapter
PROMPTS = 8  # with tokens compared before the first update
SAMPLE = 64  # numbers of each frozen tensor


class UnsoundTraining(PlainError, ValueError):
    """Training does not match the cell's definition; the cell would fail again in the same way."""


class Guards:
    """The checks of one execution of a cell.

    Before the first update, prompts must be tokenized as in probes, and a cell that resumes after
    update `resumed` must have the base weights of its checkpoint.
    """

    def __init__(
        self,
        cell: Cell,
        trainer: Any,
        sampler: TransformersSampler,
        record: CellRecord,
        resumed: int,
    ) -> None:
        self.trainer = trainer
        self.limit = cell.max_logp_difference
        self.rounding = ROUNDING
        on_cpu = not torch.cuda.is_available()
        if trainer.decoder and trainer.model.dtype == torch.float32 and on_cpu:
            self.rounding = PRECISE_ROUNDING
            self.limit = min(self.limit, PRECISE_ROUNDING)
        if trainer.rollout_func is None:  # an episode renders its own chats, with tools
            rows = trainer.train_dataset.select(range(min(PROMPTS, len(trainer.train_dataset))))
            for messages in rows["prompt"]:
                [expected] = sampler.rendered([Request("", messages, [])])
                check_prompt(trainer.read(messages), expected)
        self.weights = fingerprint(trainer.model)
        if resumed and not cell.probe.model.load_in_4bit:  # a GPU may round differently from a CPU
            check_base_model(record.base_weights, self.weights, resumed)
        record.base_weights = self.weights

    def check_rollouts(self, log: Sequence[Mapping[str, Any]]) -> None:
        """Raise UnsoundTraining if rollouts were not drawn from the weights in training.

        log: the rows of the cell's log (schema LOG), up to this update.
        """
        by_adapter = self.trainer.by_adapter
        self.trainer.by_adapter = {}
        check_adapter(by_adapter, self.rounding, log[-1]["update"] if log else 0)
        check_differences(log, self.limit)

    def check_weights(self, update: int) -> None:
        """Raise UnsoundTraining if the base model's weights have changed since the start."""
        if (now := fingerprint(self.trainer.model)) != self.weights:
            raise UnsoundTraining(
                f"unsound-weights: after update {update}, the frozen weights of the base model "
                f"have changed since the start ({self.weights} is now {now}): something merges "
                "the adapter into them, or casts them. Write rollouts: decile, and no use_vllm or "
                "use_transformers_continuous_batching"
            )


def check_differences(log: Sequence[Mapping[str, Any]], limit: float) -> None:
    """Raise UnsoundTraining if tokens differ by more than `limit` in each of the last updates.

    The measure is the mean over tokens of |log-probability when drawn - log-probability in the
    loss| in nats: 0.015 if vLLM has the same weights in bfloat16, 0.2 if it has outdated ones (TRL
    issue 5312).
    """
    newest = (row["value"] for row in reversed(log) if row["name"] == LOGP_DIFFERENCE)
    values = [*islice(newest, UPDATES)]
    if len(values) == UPDATES and not min(values) <= limit:  # NaN is above it
        raise UnsoundTraining(
            f"unsound-rollouts: after update {log[-1]['update']}, log-probabilities of tokens that "
            f"were drawn differ from those in the loss by {values[0]:.3g} nats (at most {limit:g} "
            f"in {UPDATES} updates): rollouts are not drawn from the trained weights. Write "
            "rollouts: decile and no use_vllm; or a larger max_logp_difference, if this is the "
            "precision of the engine"
        )


def check_adapter(differences: Mapping[str, float], rounding: float, update: int) -> None:
    """Raise UnsoundTraining if a different use of the adapter explains rollouts better.

    differences: of the tokens of some rollouts from the model with its adapter applied "once", and
    in other ways (`LiveGroupsTrainer._by_adapter`). If the adapter has learnt little, all are due
    to `rounding`, and any may be the smallest.
    """
    own = differences.get("once", 0.0)
    for use, difference in differences.items():
        if own > max(rounding, FACTOR * difference):
            raise UnsoundTraining(
                f"unsound-rollouts: the rollouts of update {update} were drawn with the adapter "
                f"applied {use}: their log-probabilities differ from such a model's by "
                f"{difference:.2g} nats, and from those of the trained model by {own:.2g}. "
                "Write rollouts: decile and no use_vllm"
            )


def check_prompt(ids: Sequence[int], expected: Sequence[int]) -> None:
    """Raise UnsoundTraining if training and probes read different tokens of a prompt."""
    if ids == expected:
        return
    pairs = enumerate(zip(ids, expected, strict=False))
    shorter = min(len(ids), len(expected))
    place = next((i for i, (own, other) in pairs if own != other), shorter)
    raise UnsoundTraining(
        f"unsound-prompts: training reads {counted(len(ids), 'token')} of a prompt, and probes "
        f"read {len(expected):,}; the first that differs is number {place}. Compare "
        "chat_template_kwargs of the model and of grpo"
    )


def check_base_model(stored: str, weights: str, update: int) -> None:
    """Raise UnsoundTraining if a checkpoint's base model has different weights of the same type.

    stored: its fingerprint; empty in checkpoints of earlier versions.
    """
    if stored.partition(":")[0] == weights.partition(":")[0] and stored != weights:
        raise UnsoundTraining(
            f"unsound-weights: checkpoint-{update} was trained on a base model with different "
            f"weights ({stored}, here {weights}): restore the model's files, or delete the cell's "
            "folder to train it again"
        )


def fingerprint(model: torch.nn.Module) -> str:
    """The data types of the frozen weights, and a hash of evenly spaced numbers of each tensor.

    Merging and unmerging an adapter in bfloat16 changes a sixth of a matrix (TRL issue 6688).
    """
    by_type: dict[str, list[torch.Tensor]] = {}
    for parameter in model.parameters():
        if not parameter.requires_grad and (size := parameter.numel()):
            numbers = parameter.detach().flatten()[:: max(1, size // SAMPLE)][:SAMPLE]
            by_type.setdefault(str(numbers.dtype).removeprefix("torch."), []).append(numbers)
    digest = hashlib.sha256()
    for _, sampled in sorted(by_type.items()):  # one transfer from the device for each type
        digest.update(torch.cat(sampled).view(torch.uint8).cpu().numpy().tobytes())
    return f"{'+'.join(sorted(by_type))}:{digest.hexdigest()[:16]}"

"""Checks of a cell in training whose failure shows in no reward and no loss.

Rollouts of weights that the trainer does not have (TRL issue 5312), an adapter that is applied
twice or not at all, base weights that move (TRL issue 6688) and prompts that training tokenizes
otherwise than probes do: each trains something else than the cell describes, and ends it.
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

LOGP_DIFFERENCE = "sampling/sampling_logp_difference/mean"  # TRL's name, of its log with vLLM
UPDATES = 3  # in a row above the limit: a mean of few tokens may be above it once
# Nats per token that rounding makes at most in a mean over tokens: in 16 bits, and where decoder
# and loss compute in float32, on CPUs.
ROUNDING, PRECISE_ROUNDING = 0.02, 1e-3
FACTOR = 2  # by which rollouts must be closer to another use of the adapter
PROMPTS = 8  # whose tokens are compared before the first update
SAMPLE = 64  # numbers of each frozen tensor


class UnsoundTraining(PlainError, ValueError):
    """What trains is not what the cell describes; the cell would fail again in the same way."""


class Guards:
    """The checks of one execution of a cell.

    Before the first update, prompts must be tokenized as probes do it, and a cell that resumes
    after update `resumed` must have the base weights of its checkpoint.
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
        if resumed and not cell.probe.model.load_in_4bit:  # a GPU may round as no CPU does
            check_base_model(record.base_weights, self.weights, resumed)
        record.base_weights = self.weights

    def check_rollouts(self, log: Sequence[Mapping[str, Any]]) -> None:
        """Raise UnsoundTraining where rollouts were not drawn from the weights that train.

        `log` are the rows of the cell's log (schema LOG), up to this update.
        """
        by_adapter = self.trainer.by_adapter
        self.trainer.by_adapter = {}
        check_adapter(by_adapter, self.rounding, log[-1]["update"] if log else 0)
        check_differences(log, self.limit)

    def check_weights(self, update: int) -> None:
        """Raise UnsoundTraining where the base model's weights are not those of the start."""
        if (now := fingerprint(self.trainer.model)) != self.weights:
            raise UnsoundTraining(
                f"unsound-weights: after update {update}, the frozen weights of the base model are "
                f"not those of the start ({self.weights} is now {now}): something merges the "
                "adapter into them, or casts them. Write rollouts: decile, and no use_vllm or "
                "use_transformers_continuous_batching"
            )


def check_differences(log: Sequence[Mapping[str, Any]], limit: float) -> None:
    """Raise UnsoundTraining where tokens differ by more than `limit` in each of the last updates.

    The measure is the mean over tokens of |log-probability when drawn - log-probability in the
    loss|, of the same weights, in nats: 0.015 where vLLM has them in bfloat16, 0.2 where it has old
    ones (TRL issue 5312).
    """
    newest = (row["value"] for row in reversed(log) if row["name"] == LOGP_DIFFERENCE)
    values = [*islice(newest, UPDATES)]
    if len(values) == UPDATES and not min(values) <= limit:  # NaN is above it
        raise UnsoundTraining(
            f"unsound-rollouts: after update {log[-1]['update']}, log-probabilities of tokens that "
            f"were drawn differ from those in the loss by {values[0]:.3g} nats (at most {limit:g} "
            f"in {UPDATES} updates): rollouts are not drawn from the weights that train. Write "
            "rollouts: decile and no use_vllm; or a larger max_logp_difference, if this is the "
            "precision of the engine"
        )


def check_adapter(differences: Mapping[str, float], rounding: float, update: int) -> None:
    """Raise UnsoundTraining where rollouts are explained by another use of the adapter.

    `differences` are those of the tokens of some rollouts from the model with its adapter "once",
    and otherwise (`LiveGroupsTrainer._by_adapter`). Where the adapter has learnt little, all are
    differences by `rounding`, and any may be the smallest.
    """
    own = differences.get("once", 0.0)
    for use, difference in differences.items():
        if own > max(rounding, FACTOR * difference):
            raise UnsoundTraining(
                f"unsound-rollouts: the rollouts of update {update} were drawn with the adapter "
                f"applied {use}: their log-probabilities differ from such a model's by "
                f"{difference:.2g} nats, and by {own:.2g} from those of the model that trains. "
                "Write rollouts: decile and no use_vllm"
            )


def check_prompt(ids: Sequence[int], expected: Sequence[int]) -> None:
    """Raise UnsoundTraining where training reads other tokens of a prompt than probes do."""
    if ids == expected:
        return
    pairs = enumerate(zip(ids, expected, strict=False))
    shorter = min(len(ids), len(expected))
    place = next((i for i, (own, other) in pairs if own != other), shorter)
    raise UnsoundTraining(
        f"unsound-prompts: training reads {counted(len(ids), 'token')} of a prompt of which probes "
        f"read {len(expected):,}; the first that differs is number {place}. Compare "
        "chat_template_kwargs of the model and of grpo"
    )


def check_base_model(stored: str, weights: str, update: int) -> None:
    """Raise UnsoundTraining where a checkpoint's base model has other weights, of the same type.

    `stored` is its fingerprint, empty in checkpoints of earlier versions.
    """
    if stored.partition(":")[0] == weights.partition(":")[0] and stored != weights:
        raise UnsoundTraining(
            f"unsound-weights: checkpoint-{update} was trained on a base model with other weights "
            f"({stored}, here {weights}): restore the model's files, or delete the cell's folder "
            "to train it again"
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

"""The only module that overrides private methods of TRL's GRPOTrainer.

TRL has no hooks for the order of prompts, the generation of rollouts, or the rows, mask and passes
of the loss. `test_library_internals.py` compares everything used here with the installed version,
and `pyproject.toml` pins TRL to the tested minor version.
"""

import logging
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

# TRL imports mlflow for a profile that Decile does not log; it costs a second per cell.
os.environ.setdefault("DISABLE_MLFLOW_INTEGRATION", "TRUE")

import torch
from accelerate.utils import gather_object
from peft.helpers import rescale_adapter_scale
from peft.tuners.tuners_utils import BaseTunerLayer
from torch.utils.data import Sampler
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from orchestrator.evaluation.groups import GroupRecorder, Marked
from orchestrator.evaluation.liveness import correctness, is_live
from orchestrator.sampling.base import Completion
from orchestrator.sampling.transformers import evaluating
from orchestrator.sampling.transformers_internals import has_dropout, scales_with_length
from orchestrator.storage.errors import UserError
from orchestrator.training.guards import LOGP_DIFFERENCE
from orchestrator.training.online import COPY, Chooser, Rollout, TrainingRow
from orchestrator.training.rollouts import EPISODE, Decoder, own_rows
from orchestrator.training.shortcuts import (
    BY_TOKENS,
    Inputs,
    arranged,
    denominator_ratio,
    disagreement,
    group_advantages,
    idle_rows,
    loss_mask,
    pack,
    rows_of,
    token_outputs,
    trim_padding,
    why_not,
)


class EpochOrder(Sampler[int]):
    """TRL's order of prompts, restored when training resumes in a later epoch.

    TRL's RepeatSampler draws one permutation per epoch from one generator, which a resumed process
    seeds again, so that it would repeat the first epoch's order. Here the epoch determines the
    permutation.
    """

    def __init__(self, inner: Any) -> None:
        self.inner, self.epoch = inner, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before it iterates; epochs count from 0."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.inner.generator.manual_seed(self.inner.seed)
        for _ in range(self.epoch):
            torch.randperm(self.inner.num_samples, generator=self.inner.generator)
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


log = logging.getLogger(__name__)


class ChoosingTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPO with prompts that a chooser selects at the start of a generation.

    TRL's sampler cannot choose them, because the loader and the trainer read ahead, before the
    groups of the last update have their rewards.
    """

    beta: float  # TRL's own, and the next
    _buffered_inputs: list[Inputs] | None
    chooser: Chooser | None = None  # None: TRL's loader orders the prompts
    rollouts: list[Rollout] | None = None  # drawn before TRL asks for them
    generating: Callable[[], AbstractContextManager[None]] = nullcontext  # around TRL's own
    drawn: Sequence[tuple[str, int]] = ()  # prompt_id and number in the group of each row
    played: list[Completion] | None = None  # by `rollout_func`, if any
    sizes: list[int] | None = None  # rows of each group of the generation; None: num_generations

    def read(self, messages: list[dict[str, Any]]) -> list[int]:
        """The token ids of a prompt as training reads it."""
        ids: list[list[int]] = self._tokenize_prompts([messages])[0]
        return ids[0]

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        inner = super()._get_train_sampler(dataset)
        ordered = isinstance(inner, RepeatSampler) and inner.shuffle
        return EpochOrder(inner) if ordered else inner

    def _generate_and_score_completions(self, inputs: Any) -> Inputs:
        model: Any = self.model
        if not model.training:
            return super()._generate_and_score_completions(inputs)
        kept: list[bool] | None = None
        if self.chooser:
            inputs, self.rollouts, kept, self.sizes = self.chooser.batch(
                self.state.global_step + 1, len(inputs), self.drawn_now, inputs
            )
            for name, value in self.chooser.metrics.items():
                self._metrics["train"][name].append(value)
        self._number(inputs)
        output: Inputs = super()._generate_and_score_completions(inputs)
        if self.sizes:
            output["advantages"] = self._advantages(inputs, self.sizes)
        live = self.live_groups(kept)
        return output if live is None else self.without_dead(output, live)

    def live_groups(self, kept: list[bool] | None) -> list[bool] | None:
        """Which groups of all workers to train on; None for all. kept: by the chooser."""
        return None if kept is None or all(kept) else kept

    def _number(self, inputs: Sequence[TrainingRow]) -> None:
        """Number this worker's rows in their groups; repeated prompts continue the count."""
        first: int = self.accelerator.process_index * len(inputs)
        size: Any = self.num_generations
        self.drawn = [
            (row["prompt_id"], row.get("number", row.get(COPY, 0) * size + i % size))
            for i, row in enumerate(inputs, first)
        ]

    def _advantages(self, inputs: Sequence[TrainingRow], sizes: Sequence[int]) -> torch.Tensor:
        """Advantages [B] as in TRL, for groups of any sizes; also replaces TRL's log of them."""
        weight = self.reward_weights.to(self.accelerator.device)
        rewards = weight * torch.tensor([row["reward"] for row in inputs], device=weight.device)
        advantages, spread = group_advantages(rewards, sizes, self.scale_rewards)
        logged: Any = self._logs["advantages"]  # of the last generation
        logged.extend(advantages.tolist())
        dead = torch.isclose(spread, torch.zeros_like(spread)).float().mean().item()
        self._metrics["train"]["frac_reward_zero_std"][-1] = dead
        return advantages

    def drawn_now(self, inputs: Sequence[TrainingRow]) -> list[Rollout]:
        """One rollout for each of this worker's rows."""
        self._number(inputs)
        drawn = self._generated([row["prompt"] for row in inputs])
        prompts, ids, _, completions, logprobs, *_ = drawn
        logprobs = logprobs or [None] * len(ids)
        return [Rollout(*each) for each in zip(prompts, ids, completions, logprobs, strict=True)]

    def _generate(self, prompts: Any) -> Any:
        """The rollouts that were already drawn, or as in TRL."""
        drawn, self.rollouts = self.rollouts, None
        if drawn is None:
            return self._generated(prompts)
        prompt_ids, ids, completions, logprobs = (list(part) for part in zip(*drawn, strict=True))
        of_tokens = None if None in logprobs else logprobs
        episodes = [c[0][EPISODE].episode for c in completions if EPISODE in c[0]]
        mask = [[*e.mask] or [0] if e else [0] for e in episodes] or None
        return prompt_ids, ids, mask, completions, of_tokens, {}, None, []

    def _generated(self, prompts: Any) -> Any:
        """As in TRL; played episodes are added to the completions, for their marks."""
        with self.generating():
            output = super()._generate(prompts)
        played, self.played = self.played, None
        if played is None:
            return output
        turns = [[{"role": "assistant", "content": c.text, EPISODE: c}] for c in played]
        return *output[:3], turns, *output[4:]

    def without_dead(self, output: Inputs, live: Sequence[bool]) -> Inputs:
        """A scored generation with the tokens of dead groups masked out of the loss.

        live: one entry per group of all workers. The mask is TRL's for tool tokens: the model still
        reads them, so log-probabilities do not change.
        """
        completion_mask = output["completion_mask"]
        sizes: Any = torch.tensor(self.sizes or [self.num_generations] * len(live))
        rows = torch.tensor(live).repeat_interleave(sizes).to(completion_mask.device)
        own = rows[own_rows(len(completion_mask))]
        mask = own.unsqueeze(1) * output.get("tool_mask", completion_mask)
        tokens = self.accelerator.gather((completion_mask * mask).sum()).sum()
        share = torch.tensor(int(rows.sum()) / len(rows))
        return output | {"tool_mask": mask, "num_items_in_batch": tokens, "live_share": share}

    def _compute_loss(self, model: Any, inputs: Inputs) -> torch.Tensor:
        """TRL's loss for the groups to train on."""
        share = float(inputs.get("live_share", 1.0))
        if share in (0.0, 1.0) or self.loss_type in BY_TOKENS:
            return super()._compute_loss(model, inputs)
        beta, advantages = self.beta, inputs["advantages"]
        # The loss is linear in both; scaling them does not change an entropy bonus.
        self.beta = beta / share
        try:
            return super()._compute_loss(model, inputs | {"advantages": advantages / share})
        finally:
            self.beta = beta


ROWS_COMPARED = 8  # rollouts of an update with a checkpoint
TOKENS_COMPARED = 64  # at least
BROUGHT = "decile_rewards"  # the column of rows with rollouts that are already drawn and rewarded


class Selector(Protocol):
    """Chooses the prompts of a user's own trainer."""

    groups: GroupRecorder

    def marks(
        self,
        rows: Sequence[TrainingRow],
        rewards: Sequence[Sequence[float]],
        ids: Sequence[Sequence[int]],
    ) -> list[Marked]:
        """Marks of rollouts for the record, by their rewards per function (nan: None)."""

    def save(self, folder: Path) -> None:
        """Write the state to a checkpoint."""

    def load(self, folder: Path) -> None:
        """Read the state of a checkpoint. Raises UserError if that is impossible."""


def reads_ahead(trainer: Any) -> bool:
    """Whether this is TRL's asynchronous trainer, which has a worker that reads prompts ahead.

    It checks class names, because importing TRL's experimental modules warns and takes seconds.
    """
    kinds = type(trainer).__mro__
    return any(kind.__module__.startswith("trl.experimental.async_grpo.") for kind in kinds)


def check_rows_read_ahead(trainer: Any, dataset: Any) -> None:
    """Raise UserError unless the worker of the asynchronous trainer reads the rows of `dataset`.

    The worker has a copy of the rows, and reads it repeatedly from first to last. Only the first
    process of a trainer has a worker.
    """
    worker = trainer.rollout_worker
    settings = getattr(worker, "_loop_kwargs", {})
    if worker is not None and settings.get("dataset") is not dataset:
        raise UserError(
            f"attach: the rollout_worker of this {type(trainer).__name__} reads different "
            "prompts: leave rollout_worker out, or give it the rows of selector.dataset and leave "
            "out attach"
        )


class SelectedTrainer(ChoosingTrainer):
    """A user's own trainer with an attached selector.

    Its groups are recorded with the rewards of its own functions. The selector's state is written
    before the trainer's, so that a checkpoint that can be resumed has both.
    """

    selector: Selector

    @classmethod
    def check(cls, trainer: Any) -> None:
        """Raise UserError if the trainer is not a GRPOTrainer, or already has a selector."""
        if not isinstance(trainer, GRPOTrainer) or isinstance(trainer, ChoosingTrainer):
            reason = "has a selector" if isinstance(trainer, cls) else "is not a trl.GRPOTrainer"
            name = type(trainer).__name__
            raise UserError(f"attach: this {name} {reason}: pass a new GRPOTrainer")

    @classmethod
    def adopt(cls, trainer: Any, selector: Selector) -> None:
        """Give an existing trainer this class in front of its own."""
        own = type(trainer)
        trainer.__class__ = type(own.__name__, (cls, own), {})
        trainer.selector = selector

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """As in TRL, recorded; rewards that are already known are not computed again."""
        model: Any = self.model
        if model.training and BROUGHT in inputs[0]:
            self._pending_extra_logs.clear()  # with the rows of discarded groups
            brought = torch.tensor([row[BROUGHT] for row in inputs], device=self.accelerator.device)
            return self.accelerator.gather(brought)
        rewards: torch.Tensor = super()._calculate_rewards(
            inputs, prompts, completions, completion_ids_list
        )
        if model.training:
            own = rewards[own_rows(len(inputs))].tolist()
            marks = gather_object(self.selector.marks(inputs, own, completion_ids_list))
            group_size: Any = self.num_generations
            self.selector.groups.add(self.state.global_step + 1, marks, group_size)
        return rewards

    def mark(
        self,
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        rows: Sequence[Any],
    ) -> list[Marked]:
        """Marks of rollouts that the chooser drew; adds their rewards to the rows."""
        prompts = [row["prompt"] for row in rows]
        every = super()._calculate_rewards(rows, prompts, completions, completion_ids)
        own = every[own_rows(len(rows))].tolist()
        for row, rewards in zip(rows, own, strict=True):
            row[BROUGHT] = rewards
        return self.selector.marks(rows, own, completion_ids)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial))
            self.selector.save(folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        if checkpoint is not None:
            self.selector.load(Path(checkpoint))
        super()._load_optimizer_and_scheduler(checkpoint)


class LiveGroupsTrainer(ChoosingTrainer):
    """Faster GRPO with the same gradients as TRL, up to rounding.

    Decile's decoder draws the rollouts, rows that cannot change the weights are not computed, and a
    group reads its prompt once.

    Given a recorder, dead groups are left out of the loss (TRL issue 5588, PR 6368). Plain GRPO
    includes them: with beta > 0 their KL term moves the weights, and they count in the loss's
    denominator, so that live groups have less weight the more groups are dead. Here the loss of an
    update is that of a batch with only its live groups. This is exact for grpo, dr_grpo, sapo and
    luspo (divided by rows) and for dapo, cispo and vespo (divided by the batch's tokens) with any
    micro-batches and workers, as long as one generation serves one update. It is exact for bnpo
    (divided by each micro-batch's tokens) with one micro-batch. Without a live group, loss and
    gradient are 0; an optimizer with momentum still moves the weights.
    """

    def __init__(self, *, recorder: GroupRecorder | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.recorder = recorder
        self.decoder: Decoder | None = None  # None: TRL draws the rollouts
        self.before = 0  # groups of the record when this generation began
        self.why_padded: str | None = None  # why rows do not share prompts; None until determined
        self.notes: list[str] = []  # for the user: computations left to TRL, and why
        self.base_weights: list[torch.Tensor] = []  # of layers with an adapter
        self.max_batch = sys.maxsize  # completions generated at once
        self.has_dropout = has_dropout(self.model)
        self.by_adapter: dict[str, float] = {}  # of the last comparison: see `_by_adapter`
        device = self.accelerator.device
        self.differences = torch.zeros(2, dtype=torch.float64, device=device)
        """The sum over tokens of an update, and their number: see `guards.check_rollouts`."""
        if self.use_vllm:
            vllm: Any = self.vllm_generation
            vllm.sync_weights = partial(self._sync_weights, vllm.sync_weights)

    def _sync_weights(self, sync: Callable[[], None]) -> None:
        """As in TRL, which merges the adapter meanwhile; then restores the base weights.

        Unmerging in bfloat16 changes a sixth of them by rounding, and more each time (TRL issue
        6688).
        """
        model: Any = self.model
        layers = [m.get_base_layer() for m in model.modules() if isinstance(m, BaseTunerLayer)]
        weights = {id(p): p.data for layer in layers for p in layer.parameters()}
        if not self.base_weights:
            self.base_weights = [data.to("cpu", copy=True) for data in weights.values()]
        sync()
        for data, before in zip(weights.values(), self.base_weights, strict=True):
            data.copy_(before)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing: a finished cell gets its own README.md (`record.model_card`)."""

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: Any,
        has_tool_images: bool = False,
    ) -> Any:
        """Draw with `decoder`, or as in TRL; both draw in parts if memory runs out.

        The generation's cache takes most of the memory, and a smaller micro-batch does not reduce
        it.
        """
        model: Any = self.model
        if self.decoder and model.training and not images:  # the loss also reads only token ids
            return self.decoder.draw(self.state.global_step + 1, self.drawn, prompt_ids)
        rest = (images, multimodal_fields, num_generations, has_tool_images)
        if self.use_vllm or self.is_fsdp_enabled:  # all workers must generate batches of one size
            return super()._generate_single_turn(prompt_ids, *rest)
        completion_ids: list[Any] = []
        while len(completion_ids) < len(prompt_ids):
            batch = prompt_ids[len(completion_ids) :][: self.max_batch]
            try:
                completion_ids += super()._generate_single_turn(batch, *rest)[0]
            except torch.OutOfMemoryError:
                if len(batch) == 1:
                    raise
                self.max_batch = len(batch) // 2
                log.warning("out of memory: generating %d completions at a time", self.max_batch)
        return completion_ids, None

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """As in TRL, with the rows of a new generation reordered: see `shortcuts.arranged`."""
        buffered = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is buffered or self._buffered_inputs is None:
            return inputs  # an evaluation, or a generation that serves several updates
        self._buffered_inputs = self._with_kept_rows(
            arranged(self._buffered_inputs, self._window(), self.beta)
        )
        return self._buffered_inputs[self._step % len(self._buffered_inputs)]

    def _window(self) -> int:
        """The number of micro-batches that rows may move between: those of one update, or one.

        It is one if the loss depends on which rows share a micro-batch.
        """
        args: Any = self.args
        steps = args.steps_per_generation
        accumulated = args.gradient_accumulation_steps
        if self.loss_type == "bnpo" or not self.independent_rows:
            return 1
        if steps % accumulated == 0:
            return accumulated
        return steps if accumulated % steps == 0 else 1

    @property
    def independent_rows(self) -> bool:
        """Whether each row's contribution to the loss is independent of other rows."""
        return not (
            self.top_entropy_quantile < 1 or self._entropy_bonus_enabled or self.aux_loss_enabled
        )

    def _with_kept_rows(self, batches: list[Inputs]) -> list[Inputs]:
        """The micro-batches with `kept` [B]: the rows that are computed.

        All workers compute equally many rows of a micro-batch, and at least one, because they
        gather numbers of every row and wait for each other's gradients.
        """
        if not self.independent_rows:
            return batches
        counts = torch.stack([(~idle_rows(batch, self.beta)).sum() for batch in batches])
        workers = self.accelerator.num_processes
        if workers > 1:
            counts = self.accelerator.gather(counts).view(workers, -1).amax(0).clamp(min=1)
        return [
            batch | {"kept": torch.arange(len(batch["row"]), device=counts.device) < count}
            for batch, count in zip(batches, counts, strict=True)
        ]

    def _generate_and_score_completions(self, inputs: Any) -> Inputs:
        self.before = len(self.recorder.rows) if self.recorder else 0
        output: Inputs = super()._generate_and_score_completions(inputs)
        model: Any = self.model
        if not model.training:
            return output
        group_size: Any = self.num_generations
        first = self.accelerator.process_index * len(inputs)
        rows = torch.arange(first, first + len(inputs), device=output["advantages"].device)
        if self.sizes is None:
            return output | {"row": rows, "group": rows // group_size}
        sizes = torch.tensor(self.sizes, device=rows.device)
        return output | {"row": rows, "group": torch.arange(len(sizes)).repeat_interleave(sizes)}

    def live_groups(self, kept: list[bool] | None) -> list[bool] | None:
        """Given a recorder, the groups with differing correctness."""
        if self.recorder is None:
            return super().live_groups(kept)
        outcomes = [row["outcomes"] for row in self.recorder.rows[self.before :]]
        live = [is_live(correctness(each)) for each in outcomes]
        return live + [False] * (len(kept or live) - len(live))

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: Any,
        batch_size: Any = None,
        compute_entropy: Any = False,
        compute_aux_loss: Any = False,
        **of_images: Any,
    ) -> Any:
        """As in TRL, each [B, C], from rows that share their prompts if the model allows it.

        The log-probabilities are kept for `_differences`.
        """
        options = (compute_entropy, compute_aux_loss)
        padded = partial(super()._get_per_token_logps_and_entropies, model, **of_images)
        has_images = any(value is not None for value in of_images.values())
        if self.why_padded is None and not has_images:
            self.why_padded = self._why_padded(padded, input_ids, attention_mask, logits_to_keep)
            if self.why_padded:
                self.notes.append(f"prompts are read once per completion: {self.why_padded}")
        if has_images or self.why_padded:
            output = padded(input_ids, attention_mask, logits_to_keep, batch_size, *options)
        else:
            size = batch_size or len(input_ids)
            parts = [
                self._packed(model, ids, mask, logits_to_keep)
                for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True)
            ]
            log_probs, entropies = map(torch.cat, zip(*parts, strict=True))
            output = (log_probs, entropies if compute_entropy else None, None)
        self.scored = output[0].detach()
        return output

    def _packed(self, model: Any, ids: Any, mask: Any, columns: int) -> list[torch.Tensor]:
        """Log-probabilities and entropies [B, C] of rows that share their prompts."""
        base = self.accelerator.unwrap_model(model).get_base_model()
        with self.accelerator.autocast():
            out = token_outputs(model, base, pack(ids, mask, columns))
        scored = mask[:, -columns:].bool()
        return [
            part.new_zeros(scored.shape).masked_scatter(scored, part)
            for part in (out.log_probs, out.entropy)
        ]

    def _why_padded(self, padded: Any, ids: Any, mask: Any, columns: int) -> str:
        """Why rows cannot share their prompts; empty if two rows agree when they do."""
        model: Any = self.model
        args: Any = self.args
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if sharded or args.torch_compile or args.neftune_noise_alpha:
            return "fsdp, deepspeed, torch_compile and neftune_noise_alpha do not allow it"
        if self.aux_loss_enabled:
            return "router_aux_loss_coef counts the tokens of a prompt in every row"
        if reason := why_not(model):
            return reason
        precise = torch.finfo(model.dtype).bits >= 32
        few = (ids[:2], mask[:2], columns)
        limit = 1e-3 if precise else 0.2
        return disagreement(lambda: self._packed(model, *few)[0], lambda: padded(*few)[0], limit)

    def _compute_loss(self, model: Any, inputs: Inputs) -> torch.Tensor:
        """TRL's loss from the rows and columns with an effect; equal up to rounding.

        TRL's logs of part of the rows are logged as `live_rows/…`.
        """
        if "row" not in inputs:
            return super()._compute_loss(model, inputs)
        rows = rows_of(inputs, inputs["kept"]) if "kept" in inputs else inputs
        if not len(rows["row"]):
            # An optimizer skips weights without gradients; here gradients are 0, as in TRL.
            zeros = [(0 * p).sum() for p in model.parameters() if p.requires_grad]
            return torch.stack(zeros).sum()
        if self.pad_to_multiple_of is None and not scales_with_length(self.model):
            rows = trim_padding(rows)
        if self.checks_adapter:
            self.by_adapter = self._by_adapter(model, rows)
        every = ours = self._metrics["train"]
        if self.independent_rows and not self.beta:
            self._metrics["train"] = ours = defaultdict(list)
        try:
            loss = super()._compute_loss(model, rows)
        finally:
            self._metrics["train"] = every
        if ours is not every:
            for name, values in ours.items():
                every[f"live_rows/{name}"] += values
        if not self.has_dropout:
            # Without old ones, an update only trains on rollouts of its own weights.
            scored = rows.get("old_per_token_logps", self.scored)
            self.differences += self._differences(rows, scored)
        return loss * denominator_ratio(rows, inputs, self.loss_type)

    @property
    def checks_adapter(self) -> bool:
        """Whether to compare rollouts with other uses of the adapter: once in an update with a
        checkpoint, if its rollouts are from the weights in training.
        """
        args: Any = self.args
        generations = args.steps_per_generation * self.num_iterations
        drawn_now = self._step % generations < args.gradient_accumulation_steps
        update = self.state.global_step + 1
        due = update % self.state.save_steps == 0 or update == self.state.max_steps
        return due and drawn_now and not self.by_adapter

    def _by_adapter(self, model: Any, rows: Inputs) -> dict[str, float]:
        """The differences of a few rollouts from the model with its adapter, without, and with it
        twice.

        Means over tokens, in nats; empty if there are too few, or none with a log-probability.
        """
        rows = rows_of(rows, slice(ROWS_COMPARED))
        ids, masks = (
            torch.cat([rows[f"prompt_{name}"], rows[f"completion_{name}"]], 1)
            for name in ("ids", "mask")
        )
        base = self.accelerator.unwrap_model(model)
        adapters = {
            "once": nullcontext(),
            "not at all": base.disable_adapter(),
            "twice": rescale_adapter_scale(base, 2.0),
        }
        by_adapter = {}
        for name, adapter in adapters.items():
            with adapter, evaluating(base):
                columns = rows["completion_ids"].shape[1]
                scored, *_ = self._get_per_token_logps_and_entropies(base, ids, masks, columns)
            sums = self._differences(rows, scored)
            if self.has_dropout and name == "once":
                self.differences += sums
            total, count = sums.tolist()
            if count >= TOKENS_COMPARED:
                by_adapter[name] = total / count
        return by_adapter

    def _differences(self, rows: Inputs, scored: torch.Tensor) -> torch.Tensor:
        """The sum of |log-probability when drawn - `scored`|, both [B, C], and the number of
        tokens: [2].

        They stay on the device, because reading them would wait for it.
        """
        drawn = rows.get("sampling_per_token_logps")
        # Without the correction, TRL lets vLLM return log-probabilities before the temperature.
        if drawn is None or (self.use_vllm and not self.vllm_importance_sampling_correction):
            return torch.zeros_like(self.differences)
        difference = (scored - drawn).abs()
        counts = loss_mask(rows).bool() & ~difference.isnan()  # NaN: vLLM has none
        return torch.stack([difference.where(counts, 0).sum(), counts.sum()]).to(self.differences)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As in TRL, plus the mean difference over the tokens of all workers."""
        total, count = self.accelerator.gather(self.differences[None]).sum(0).tolist()
        if count:
            self._metrics["train"][LOGP_DIFFERENCE] = [total / count]
        self.differences.zero_()
        super().log(logs, start_time)

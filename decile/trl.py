"""Selection inside your own trainer: the prompts of a plain `trl.GRPOTrainer`.

    selector = PromptSelector("predicted", table="probe.parquet", dataset=dataset)
    trainer = GRPOTrainer(..., train_dataset=selector.dataset)
    selector.attach(trainer)
    trainer.train()

A static policy selects a subset; an online policy chooses the prompts of every update from the
rewards so far. Both choose the same prompts as a cell of a sweep, and checkpoints hold their state.
"""

import json
import math
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from transformers import TrainerCallback

from cluster.terminal import echo
from decile.errors import as_user_error
from decile.sweep_errors import SWEEP_ERRORS
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.evaluation.groups import GroupRecorder, Marked
from orchestrator.planning.score_file import rated_table
from orchestrator.plugins.counts import counted
from orchestrator.selection.candidates import probed_history
from orchestrator.selection.subsets import SubsetRequest, reason, select, with_reason
from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.local_files import replace_file
from orchestrator.storage.proof import Unsound, open_table, read_parquet, sequence_hash, table_bytes
from orchestrator.storage.schema import GROUPS
from orchestrator.training.online import Chooser, TrainingRow
from orchestrator.training.trainer import training_row
from orchestrator.training.trl_internals import (
    SelectedTrainer,
    check_rows_read_ahead,
    reads_ahead,
)
from orchestrator.training.workers import Workers
from policies import History, policy_parts
from tasks import TaskError
from tasks.prompt_table import SCHEMA, PromptTable
from tasks.sources.user_files import read_bytes

STATE = "selector-state.parquet"  # in every checkpoint
_GROUPS = GROUPS.append(pa.field("discarded", pa.bool_()))
_NEAR = 1e-6  # rewards are float32


class SelectedRows(Dataset):  # type: ignore[misc]
    """The rows that an online policy chooses from. Trainers without a selector cannot read them."""

    attached = False

    def _check_attached(self) -> None:
        if not self.attached:
            raise UserError(
                "no selector is attached to this trainer, which would train on all rows in its own "
                "order: write selector.attach(trainer) before trainer.train()"
            )

    def __getitems__(self, keys: list[int]) -> list[Any]:
        """The rows of a batch. Raises UserError before `attach`."""
        self._check_attached()
        rows: list[Any] = super().__getitems__(keys)
        return rows

    def __iter__(self) -> Iterator[Any]:
        """The rows. Raises UserError before `attach` in a worker, such as AsyncGRPOTrainer's."""
        if multiprocessing.parent_process() is not None:
            self._check_attached()
        return iter(super().__iter__())


class PromptSelector(TrainerCallback):  # type: ignore[misc]
    """The prompts of a `trl.GRPOTrainer`, selected by a policy.

    policy: a name of `decile ls policies`, or "module:attribute"; `options` are its own, such as
    {"low": 0.2}. The prompts and their difficulty come from one of:

    - `probe`: a probe of this API; `dataset` may replace the rows built from its prompts
    - `table` and `dataset`: a difficulty table (Arrow, or a Parquet file that `decile probe`,
      `decile import` or `decile select` writes), and a `datasets.Dataset` with the columns that the
      trainer and its rewards need, `prompt` and `prompt_id` among them
    - `dataset` alone, for policies that need no probe, such as dynamic (diverse reads its column
      `question`)

    budget: a share of the prompts (0.1) or a number of them (80); an online policy chooses from all
    prompts, or from the subset of this size that its option `of` names. seed: the seed of the
    selection, as for a cell.

    An online policy learns from correct completions: those with a reward of at least
    `correct_from`. A warning appears if the rewards of an update differ and none is that high. With
    several reward functions, `correct_by` names the one that decides.

    A selector belongs to one trainer. Raises UserError if the values do not fit together.
    """

    @as_user_error(*SWEEP_ERRORS)
    def __init__(
        self,
        policy: str,
        *,
        probe: Any = None,
        table: pa.Table | str | Path | None = None,
        dataset: Dataset | None = None,
        options: dict[str, Any] | None = None,
        budget: float | int = 0.1,
        seed: int = 0,
        correct_by: str | None = None,
        correct_from: float = 1.0,
    ) -> None:
        self._check_values(policy, options, budget, seed, correct_by, correct_from)
        policy_parts(policy, dict(options or {}))  # its errors are single sentences
        self.policy, self.seed = PolicyEntry(policy=policy, options=dict(options or {})), seed
        static, self._online = self.policy.parts
        chooses = self._online.build_online() if self._online else None
        self._discards = chooses is not None and chooses.discards
        self._correct_by, self._correct_from = correct_by, correct_from
        self._learns = chooses is not None and chooses.needs != "nothing"
        needed = self._learns or static.build().needs != "nothing"
        rated = self._rated(probe, table, dataset, needed)
        if probe is not None and static.build().reads_questions:
            prompts = PromptTable.of(probe.prompts)
            questions = prompts.take(prompts.rows_of(rated["prompt_id"])).column("question")
            rated = rated.append_column("question", questions)
        total = rated.num_rows
        size = budget if isinstance(budget, int) else int(budget * total + 1e-9)
        if not size:
            raise UserError(
                f"budget {budget} selects none of {counted(total, 'prompt')}: write a larger one"
            )
        try:
            subset, self.reason = select(rated, SubsetRequest(static, size, seed))
        except pa.ArrowException as error:
            raise UserError(f"table: {error}: write numbers in pass_rate, n, successes") from error
        self.subset: pa.Table = subset.sort_by("prompt_id")
        """The prompts to train on, or to choose from, with the reason for each (Arrow table)."""
        self.dataset = self._dataset(probe, dataset)
        if chooses is not None:
            self.dataset.__class__ = SelectedRows
        """The same prompts as rows for the trainer, in the order of their ids."""
        self.groups = GroupRecorder()
        """The groups of the run: which prompts were trained on, with which rewards."""
        self._resumed: GroupRecorder | None = None
        self._trainer: Any = None
        self._watches_rewards = True  # until one is as high as correct_from, or a warning

    @staticmethod
    def _check_values(
        policy: Any, options: Any, budget: Any, seed: Any, correct_by: Any, correct_from: Any
    ) -> None:
        number = isinstance(budget, int | float) and not isinstance(budget, bool)
        if not number or not budget > 0 or (isinstance(budget, float) and budget > 1):
            raise UserError(f"budget {shortened(budget)}: write a share (0.1) or a number (80)")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
            raise UserError(f"seed {shortened(seed)}: write a whole number from 0")
        if not isinstance(policy, str):
            raise UserError(f"policy {shortened(policy)}: write its name, such as 'hard'")
        try:
            valid = json.loads(json.dumps(options)) == options  # checkpoints hold them as JSON
        except (TypeError, ValueError):
            valid = False
        if not valid or not isinstance(options, dict | None):
            raise UserError(f"options {shortened(options)}: write a dict, such as {{'low': 0.2}}")
        if not isinstance(correct_by, str | None):
            raise UserError(f"correct_by {shortened(correct_by)}: write a reward function's name")
        finite = isinstance(correct_from, int | float) and math.isfinite(correct_from)
        if not finite or isinstance(correct_from, bool):
            raise UserError(f"correct_from {shortened(correct_from)}: write a number, such as 1.0")

    def _rated(self, probe: Any, table: Any, dataset: Any, needed: bool) -> pa.Table:
        """The difficulty table, sorted by prompt_id; only ids if no table is given or needed."""
        if probe is not None and table is not None:
            raise UserError("probe and table: write one of them, a probe has its own table")
        if probe is not None and not hasattr(probe, "table"):
            raise UserError(f"probe is {type(probe).__name__}: write what decile.probe returns")
        if probe is None and dataset is None:
            raise UserError("no prompts: write probe=…, or dataset=… with table=…")
        where = "probe.table" if probe is not None else "table"
        if isinstance(table, str | Path):
            where = str(table)
            try:
                table = read_parquet(Path(table))
            except TaskError as error:
                raise UserError(str(error)) from error
            except (Unsound, pa.ArrowException, OSError) as error:
                raise UserError(
                    f"table {where}: {error}: write a Parquet file that decile probe writes"
                ) from error
        table = probe.table if probe is not None else table
        if table is None and needed:
            raise UserError(
                f"policy {self.policy.policy!r} needs the pass rates of a probe: write table=… or "
                "probe=…"
            )
        if table is None:
            table = pa.table({"prompt_id": pa.array(_ids(dataset), pa.string())})
            table = table.append_column("pass_rate", pa.nulls(table.num_rows, pa.float64()))
            if "question" in dataset.column_names:  # for policies that read it
                table = table.append_column("question", [dataset["question"][:]])
        if not isinstance(table, pa.Table):
            raise UserError(f"{where} is {type(table).__name__}: write a pyarrow.Table or a file")
        known = ["prompt_id", "pass_rate", *(["n", "successes"] if self._learns else [])]
        if missing := [name for name in known if name not in table.column_names]:
            raise UserError(
                f"{where}: has no column {missing[0]}: policy {self.policy.policy!r} needs "
                f"{', '.join(known)}"
            )
        if not table.num_rows or table["prompt_id"].null_count:
            problem = "a row without prompt_id" if table.num_rows else "no rows"
            raise UserError(f"{where}: has {problem}: write one row per prompt")
        ids = pc.cast(table["prompt_id"], pa.string())
        table = table.set_column(table.column_names.index("prompt_id"), "prompt_id", ids)
        return rated_table(where, table.replace_schema_metadata(None)).sort_by("prompt_id")

    def _dataset(self, probe: Any, dataset: Any) -> Dataset:
        """The rows of the subset, in its order."""
        ids: list[str] = self.subset["prompt_id"].to_pylist()
        given = [p.prompt_id for p in probe.prompts] if dataset is None else _ids(dataset)
        place = {prompt_id: i for i, prompt_id in enumerate(given)}
        if missing := [prompt_id for prompt_id in ids if prompt_id not in place]:
            raise UserError(
                f"dataset: {len(missing):,} of "
                f"{counted(len(ids), 'prompt has no row', 'prompts have no row')}, such as "
                f"{shortened(missing[0])}: write the dataset that was probed, with its prompt_id"
            )
        rows = [place[prompt_id] for prompt_id in ids]
        if dataset is not None:
            return dataset.select(rows)
        return Dataset.from_list([training_row(probe.task, probe.prompts[row]) for row in rows])

    def table(self) -> pa.Table:
        """A row per group: update, prompt_id, rewards, outcomes, tokens, …; whether discarded."""
        lost = self.groups.discarded or []
        rows = [row | {"discarded": False} for row in self.groups.rows]
        rows += [row | {"discarded": True} for row in lost]
        return pa.Table.from_pylist(rows, _GROUPS)

    @as_user_error(*SWEEP_ERRORS)
    def attach(self, trainer: Any) -> None:
        """Select the prompts of this trainer, before `trainer.train()`.

        TRL's AsyncGRPOTrainer reads the prompts of a static policy in the order of train_dataset;
        its groups are not recorded.

        Raises UserError for trainer settings that make this impossible, and if the policy cannot
        choose the first prompts.
        """
        other = self._trainer if self._trainer is not trainer else None
        if other is not None and self in other.callback_handler.callbacks:
            raise UserError(
                "this selector already has a trainer: create a new selector for each trainer"
            )
        if reads_ahead(trainer):
            self._check_reads_ahead(trainer)
            return
        SelectedTrainer.check(trainer)
        self._trainer = trainer
        names = [*trainer.reward_func_names]
        if self._correct_by not in names and (self._correct_by or len(names) > 1):
            shown = f"correct_by {self._correct_by!r}: no such" if self._correct_by else "several"
            raise UserError(f"{shown} reward functions: write correct_by= with one of {names}")
        self._decides = names.index(self._correct_by) if self._correct_by else 0
        columns = getattr(trainer.train_dataset, "column_names", None) or []
        if trainer.args.remove_unused_columns:
            raise UserError("remove_unused_columns=True drops prompt_id: leave it out")
        if not {"prompt_id", "prompt"} <= {*columns} or _ids(trainer.train_dataset) != _ids(
            self.dataset
        ):
            raise UserError("train_dataset has other prompts: write train_dataset=selector.dataset")
        prompts = trainer.args.generation_batch_size // trainer.num_generations
        if prompts > self.subset.num_rows:  # TRL would train nothing, silently
            raise UserError(
                f"a generation takes {counted(prompts, 'prompt')}, and policy "
                f"{self.policy.policy!r} selects "
                f"{self.subset.num_rows}: write a smaller batch or a larger budget"
            )
        if self._online:
            self._check_online(trainer, columns, prompts)
        SelectedTrainer.adopt(trainer, self)
        for rows in (self.dataset, trainer.train_dataset):
            if isinstance(rows, SelectedRows):
                rows.attached = True
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)

    def _check_reads_ahead(self, trainer: Any) -> None:
        """Raise UserError unless TRL's asynchronous trainer trains on the selected prompts."""
        name = type(trainer).__name__
        if self._online:
            raise UserError(
                f"policy {self.policy.policy!r} chooses prompts during training, and {name} cannot "
                "use it: its worker process reads the rows of a copy of train_dataset in their "
                "order, ahead of the updates: write a static policy, such as 'band', or use "
                "trl.GRPOTrainer"
            )
        if sorted(_ids(trainer.train_dataset)) != sorted(_ids(self.dataset)):
            raise UserError(
                "train_dataset has other prompts: write train_dataset=selector.dataset, or its "
                "rows in another order"
            )
        check_rows_read_ahead(trainer, trainer.train_dataset)

    def _check_online(self, trainer: Any, columns: Sequence[str], prompts: int) -> None:
        assert self._online
        args, name = trainer.args, self.policy.policy
        why = f"policy {name!r} chooses prompts during training"
        processes = trainer.accelerator.num_processes
        if self._discards and trainer.num_generations % processes:
            raise UserError(
                f"policy {name!r} shares every group among the processes: write a num_generations "
                f"that is a multiple of {processes}"
            )
        shared = args.steps_per_generation * args.num_iterations / args.gradient_accumulation_steps
        if shared != int(shared):
            raise UserError(
                f"{why}, and updates per generation are {shared:g}: write steps_per_generation as "
                f"a multiple of gradient_accumulation_steps ({args.gradient_accumulation_steps})"
            )
        # A share of the updates is not known yet; a state that does not fit is rejected later.
        by_steps = args.save_strategy == "steps" and args.save_steps >= 1
        if by_steps and args.save_steps % shared:
            raise UserError(
                f"{why}, and updates per generation are {shared:g}: write save_steps "
                f"({args.save_steps:g}) as a multiple of {shared:g}"
            )
        self._shared = int(shared)
        if self._discards:
            texts = {
                "rollout_func": trainer.rollout_func,
                "tools": trainer.tools,
                "environment_factory": trainer.environment_factories,
                "images": {"image", "images"} & {*columns},
            }
            if used := next((option for option, value in texts.items() if value), None):
                raise UserError(
                    f"policy {name!r} discards groups, which needs rollouts of text alone: leave "
                    f"out {used}, or write a policy that discards none, such as 'predicted'"
                )
        self._online.build_online().check(self._history(1), prompts)

    def _history(self, updates: int) -> History:
        return probed_history(
            self.subset,
            seed=self.seed,
            updates=updates,
            group_size=self._trainer.num_generations,
            columns=self._online.build_online().reads_columns if self._online else (),
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start from nothing, or from the checkpoint that the trainer has loaded.

        Raises UserError if the selector is a callback of a trainer, but not attached to it.
        """
        if self._trainer is None:
            raise UserError(
                "the selector is not attached to this trainer: write selector.attach(trainer) in "
                "place of callbacks=[selector]"
            )
        resumed, self._resumed = self._resumed, None
        self.groups = resumed or GroupRecorder(discarded=[] if self._discards else None)
        if self._online is None:
            return
        trainer, ids = self._trainer, self.subset["prompt_id"]
        place = {prompt_id: i for i, prompt_id in enumerate(ids.to_pylist())}
        blank = pa.array([""] * len(ids), pa.string())
        columns = [ids.combine_chunks(), *[blank] * (len(SCHEMA) - 1)]
        trainer.chooser = Chooser(
            self._online,
            self._history(state.max_steps),
            PromptTable([pa.record_batch(columns, SCHEMA)]),
            self.groups,
            row=lambda prompt: trainer.train_dataset[place[prompt.prompt_id]],
            mark=trainer.mark,
            reward=lambda update, marks, group_size: [*marks],
            workers=Workers(args.process_index, args.world_size),
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Warn, once, if rewards differ and none so far is as high as `correct_from`."""
        update = state.global_step
        if not self._watches_rewards or update not in self.groups.tallies:
            return
        last = takewhile(lambda row: row["update"] == update, reversed(self.groups.rows))
        scores = [score for row in last for score in row["scores"] if score is not None]
        correct = self.groups.tallies[update].correct > 0
        if correct or (scores and min(scores) < max(scores)):
            self._watches_rewards = False
        if not correct and not self._watches_rewards:
            name = self._trainer.reward_func_names[self._decides]
            echo(
                f"warning: none of {counted(len(scores), 'completion')} of update "
                f"{update} is correct: the "
                f"highest reward of {name} is {max(scores):g}, and correct_from is "
                f"{self._correct_from:g}: write the reward of a correct completion",
                sys.stderr,
            )

    def marks(
        self,
        rows: Sequence[TrainingRow],
        rewards: Sequence[Sequence[float]],
        ids: Sequence[Sequence[int]],
    ) -> list[Marked]:
        """Marks of rollouts for the record, by their rewards per function (nan: None)."""
        names = self._trainer.reward_func_names
        weights = self._trainer.reward_weights.tolist()
        marks = []
        for row, values, tokens in zip(rows, rewards, ids, strict=True):
            known = [None if math.isnan(value) else value for value in values]
            score = known[self._decides]
            outcome = "error"
            if score is not None:
                outcome = "correct" if score >= self._correct_from - _NEAR else "wrong"
            parts = [w * v for w, v in zip(weights, known, strict=True) if v is not None]
            marks.append(
                Marked(
                    prompt_id=str(row["prompt_id"]),
                    tier=str(row.get("tier") or ""),
                    tokens=len(tokens),
                    outcome=outcome,
                    other_outcome=outcome,
                    score=score,
                    reward=sum(parts) if parts else None,
                    components=dict(zip(names, known, strict=True)),
                )
            )
        return marks

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings that the state of a checkpoint must match."""
        columns = (self.subset[name].to_pylist() for name in ("prompt_id", "n", "successes"))
        return {
            "policy": self.policy.policy,
            "options": self.policy.options,
            "seed": self.seed,
            "prompts": sequence_hash([[str(value) for value in each] for each in columns]),
            "correct_by": self._correct_by,
            "correct_from": self._correct_from,
            "num_generations": self._trainer.num_generations,
        }

    def save(self, folder: Path) -> None:
        """Write the state to a checkpoint; the trainer calls it."""
        state = {"update": self._trainer.state.global_step, "settings": self._settings}
        replace_file(folder / STATE, table_bytes(with_reason(self.table(), state), STATE))

    def load(self, folder: Path) -> None:
        """Read the state of a checkpoint; the trainer calls it.

        Raises UserError for a state that is missing, damaged, or from a different run or
        checkpoint.
        """
        file, update = folder / STATE, self._trainer.state.global_step
        remedy = "resume from another checkpoint, or train from the start"
        try:
            table = open_table(read_bytes(file), STATE, _GROUPS)
        except (Unsound, OSError, TaskError) as error:
            problem = "is missing" if isinstance(error, FileNotFoundError) else str(error)
            raise UserError(f"{file} {problem}: {remedy}") from error
        state, here = reason(table), json.loads(json.dumps(self._settings))
        for name, value in here.items():
            if (there := state["settings"].get(name)) != value:
                raise UserError(
                    f"{file} is from a different run: its {name} is {shortened(there)}, here it "
                    f"is {shortened(value)}: write the same, or {remedy}"
                )
        if state["update"] != update:
            raise UserError(f"{file} is from update {state['update']}, not from {update}: {remedy}")
        if self._online and update % self._shared:
            raise UserError(
                f"{folder} is from the middle of a generation, which serves {self._shared} "
                f"updates: {remedy}"
            )
        kept, lost = (
            table.filter(pc.equal(table["discarded"], flag)).drop(["discarded"]).to_pylist()
            for flag in (False, True)
        )
        self._resumed = GroupRecorder(kept, lost if self._discards else None)


def _ids(dataset: Any) -> list[str]:
    """The prompt_ids of a dataset. Raises UserError unless it has rows for TRL, each id once."""
    if not isinstance(dataset, Dataset):
        raise UserError(f"dataset is {type(dataset).__name__}: write a datasets.Dataset")
    for name in ("prompt_id", "prompt"):
        if name not in dataset.column_names:
            raise UserError(
                f"dataset has no column {name}: add it; decile export --layout trl writes both"
            )
    values = dataset["prompt_id"][:]
    if None in values:
        raise UserError("dataset has a row without prompt_id: add one to every row")
    ids = [str(value) for value in values]
    if len({*ids}) < len(ids):
        [(repeated, _)] = Counter(ids).most_common(1)
        raise UserError(f"dataset has the prompt_id {shortened(repeated)} twice: write it once")
    return ids

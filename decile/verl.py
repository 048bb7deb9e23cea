"""Gates of Decile in verl: they decide which finished groups its trainer trains on.

    trainer.v1.sampler.custom_sampler.path=pkg://decile.verl
    trainer.v1.sampler.custom_sampler.name=GateSampler
    +trainer.v1.sampler.sampler_kwargs.gates=[{rates:{low:0.2,high:0.8}}]
    data.gen_batch_size=1

verl's data loader orders the prompts, and its sampler picks a batch of finished groups. This
sampler discards a group if its results make a gate close the prompt, and has verl draw the next
prompts of the loader instead. It reads and clears groups in TransferQueue, as verl's own sampler
does (verl 0.10).
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from decile.errors import as_user_error
from orchestrator.storage.errors import UserError, shortened
from policies.base import PolicyError
from policies.gates import BuiltGate, Rest, gate_of
from policies.online import MAX_DRAWS, History

_NEAR = 1e-6  # rewards are float32
_OPTIONS = ("gates", "correct_by", "correct_from", "prompt_id", "max_draws", "seed")


def _plain(value: Any) -> Any:
    """An OmegaConf setting as dicts and lists."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value


@dataclass
class _Groups:
    """A TransferQueue partition: the status and step of each group, and its rows."""

    status: dict[str, str] = field(default_factory=dict)
    step: dict[str, int] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # key -> tag, by group

    def of(self, *status: str) -> set[str]:
        """The groups in any of these states."""
        return {uid for uid, each in self.status.items() if each in status}

    def oldest(self, uids: Collection[str]) -> list[str]:
        """These groups in the order in which they were drawn, not in the order of a set."""
        listed = [uid for uid in self.step if uid in uids]
        return sorted(listed, key=self.step.__getitem__)


class GateSampler:
    """A sampler for verl's `trainer.v1.sampler.custom_sampler`; verl builds and calls it.

    Its options (`trainer.v1.sampler.sampler_kwargs`):

    - gates: gates as in an online policy's option `gates`. After a group is recorded, all gates
      must let its prompt pass for the next update
    - correct_by: the value of the reward function that decides whether a completion is correct
      ("acc"): it is if the value is at least `correct_from` (1.0)
    - prompt_id: the name in a row's `extra_info` that identifies prompts ("prompt_id")
    - max_draws: at most this multiple of a batch's prompts is drawn for it (4); after that, closed
      groups are trained on
    - seed: the seed of gates that pass prompts at random (0)

    Raises UserError for invalid options, and for unsupported verl settings.
    """

    @as_user_error(PolicyError)
    def __init__(
        self,
        trainer_mode: str,
        trainer_config: Any,
        max_off_policy_threshold: int,
        max_off_policy_strategy: str,
        sampler_kwargs: Any,
        refill_fn: Callable[[int], Any] | None = None,
        poll_interval: float = 2.0,
    ) -> None:
        options = _plain(sampler_kwargs or {})
        if unknown := options.keys() - {*_OPTIONS}:
            raise UserError(
                f"sampler_kwargs: {shortened(min(unknown))} is unknown: write some of "
                f"{', '.join(_OPTIONS)}"
            )
        gates = options.get("gates")
        if not isinstance(gates, list) or not gates:
            raise UserError(
                f"sampler_kwargs: gates is {shortened(gates)}: write a list of gates, such as "
                "[{rates:{low:0.2,high:0.8}}]"
            )
        self.gates: list[BuiltGate] = [gate_of("sampler_kwargs", gate) for gate in gates]
        if any(isinstance(gate.rule, Rest) for gate in self.gates):
            raise UserError(
                "sampler_kwargs: gate 'rest' would close the prompt of every finished group, which "
                "verl's data loader has chosen: leave it out"
            )
        self.correct_by = str(options.get("correct_by", "acc"))
        self.correct_from = self._number(options, "correct_from", 1.0)
        self.prompt_id = str(options.get("prompt_id", "prompt_id"))
        self.max_draws = self._number(options, "max_draws", float(MAX_DRAWS), least=1)
        self.seed = int(self._number(options, "seed", 0, least=0))
        self.waits = max_off_policy_strategy == "wait"
        self.threshold = max_off_policy_threshold
        self.asynchronous = trainer_mode != "sync"
        self.poll_interval = poll_interval
        trainer = getattr(refill_fn, "__self__", None)
        if refill_fn is None or trainer is None:
            raise UserError("refill_fn is not a method of verl's trainer: use verl 0.10")
        self._check_settings(trainer.config)
        self._trainer, self._refill = trainer, refill_fn
        self._rows: dict[str, int] = {}  # of the prompts in the history, by id
        self._drawn: list[tuple[int, int, int, int]] = []  # update, row, correct, marked
        self._history: History | None = None
        self._passed: dict[str, bool] = {}  # by finished group, until it is trained on or discarded
        self._discarded = 0  # groups, since the last batch
        self._metrics: Counter[str] = Counter()  # since the last batch
        self._queue = import_module("transfer_queue")

    @staticmethod
    def _number(
        options: Mapping[str, Any], name: str, default: float, least: float = -math.inf
    ) -> float:
        value = options.get(name, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < least:
            above = f" from {least:g}" if least > -math.inf else ""
            raise UserError(
                f"sampler_kwargs: {name} is {shortened(value)}: write a number{above}, such as "
                f"{default:g}"
            )
        return float(value)

    def _check_settings(self, config: Any) -> None:
        """Raise UserError for settings under which verl would not behave as its user expects."""
        fetched = config["data"].get("gen_batch_size")
        if not self.asynchronous and fetched != 1:  # other modes set it
            raise UserError(
                f"data.gen_batch_size is {fetched}, and discarded groups are replaced one by one: "
                "write data.gen_batch_size=1"
            )
        if (config["algorithm"].get("filter_groups") or {}).get("enable"):
            raise UserError(
                "algorithm.filter_groups belongs to verl's own sampler: leave it out, and write "
                "a gate, such as {rates:{low:0.01,high:0.99}}, which discards groups with equal "
                "rewards"
            )

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, Any]:
        """A batch of finished groups (KVBatchMeta) with numbers to log; verl calls it.

        Among the groups that all gates let pass, those with the earliest drawn prompts come first.
        In the partition "val", every finished group is taken.
        """
        ready, metrics = self.wait_for_sampleable(global_steps, partition_id, batch_size)
        groups = self._groups(partition_id)
        passed = {uid for uid in ready if self._passed.get(uid)}
        batch = [*groups.oldest(passed), *groups.oldest(ready - passed)][:batch_size]
        rows = {key: tag for uid in batch for key, tag in groups.rows.get(uid, {}).items()}
        if not rows:
            raise UserError(
                f"no group of a batch of {batch_size} has a completion, because rollouts failed: "
                f"read verl's log, and fix the failure"
            )
        self._queue.kv_clear(keys=batch, partition_id=partition_id)
        if partition_id != "val":
            taken = [self._passed.pop(uid, False) for uid in batch]
            metrics["training/gates/taken_closed_total"] = taken.count(False)
            self._discarded = 0
        meta = self._queue.KVBatchMeta(
            partition_id=partition_id, keys=[*rows], tags=[*rows.values()]
        )
        return meta, metrics

    def wait_for_sampleable(
        self, global_steps: int, partition_id: str, target_count: int
    ) -> tuple[set[str], dict[str, float]]:
        """Wait for a batch of groups; return their uids, and numbers to log. verl calls it.

        Meanwhile, groups that may not be trained on are discarded, and as many prompts are drawn.
        """
        while True:
            groups = self._groups(partition_id)
            ready = groups.of("finished", "failure")
            if partition_id == "val":
                if len(ready) >= target_count:
                    return ready, {}
                time.sleep(self.poll_interval)
                continue
            stale = self._stale(groups, global_steps)
            closed = self._closed(groups, global_steps, partition_id) - stale
            left = int((self.max_draws - 1) * target_count) - self._discarded
            first = groups.oldest(closed)[: max(0, left)]
            if stale or first:
                self._discard(groups, partition_id, {*first}, stale)
            elif self._enough(groups, global_steps, ready, target_count):
                metrics: dict[str, float] = {**self._metrics}
                self._metrics.clear()
                return ready, metrics
            else:
                time.sleep(self.poll_interval)

    def get_sampleable_count(self, global_steps: int, partition_id: str) -> int:
        """How many groups could be trained on now. verl calls it."""
        groups = self._groups(partition_id)
        ready = groups.of("finished", "failure")
        if partition_id == "val":
            return len(ready)
        closed = self._closed(groups, global_steps, partition_id)
        return len(ready - closed - self._stale(groups, global_steps))

    def _groups(self, partition_id: str) -> _Groups:
        groups = _Groups()
        keys = self._queue.kv_list(partition_id=partition_id) or {}
        for key, tag in keys.get(partition_id, {}).items():
            uid = key.split("_")[0]  # of a row: uid_session_index
            if tag.get("is_prompt"):
                groups.status[uid], groups.step[uid] = tag["status"], tag["global_steps"]
            else:
                groups.rows.setdefault(uid, {})[key] = tag
        return groups

    def _stale(self, groups: _Groups, global_steps: int) -> set[str]:
        """Finished groups that span more updates than verl's setting allows."""
        if not self.asynchronous or self.waits:
            return set()
        finished = groups.of("finished")
        return {u for u in finished if global_steps - groups.step[u] + 1 > self.threshold}

    def _enough(
        self, groups: _Groups, global_steps: int, ready: Collection[str], count: int
    ) -> bool:
        """Whether a batch is ready and no unfinished group has to be waited for."""
        if self.asynchronous and self.waits:
            under_way = groups.of("pending", "running")
            if any(global_steps - groups.step[u] + 1 >= self.threshold for u in under_way):
                return False
        return len(ready) >= count

    def _discard(
        self, groups: _Groups, partition_id: str, closed: set[str], stale: set[str]
    ) -> None:
        """Clear these groups, and have verl draw as many prompts."""
        failed = closed & groups.of("failure")
        self._metrics["training/gates/discarded_total"] += len(closed - failed)
        self._metrics["training/rollout_failure/evicted_samples"] += len(failed)
        self._metrics["training/off_policy/evicted_samples"] += len(stale)
        self._discarded += len(closed)
        uids = closed | stale
        keys = [key for uid in uids for key in (uid, *groups.rows.get(uid, {}))]
        self._queue.kv_clear(keys=keys, partition_id=partition_id)
        for uid in uids:
            self._passed.pop(uid, None)
        self._refill(len(uids))

    def _closed(self, groups: _Groups, global_steps: int, partition_id: str) -> set[str]:
        """Groups not to train on: failed ones, and those whose results make a gate close.

        A group is recorded and judged once, when it is finished.
        """
        finished = groups.of("finished")
        new = groups.oldest(finished - self._passed.keys())
        if new:
            results = self._results(groups, new, partition_id)
            self._passed |= dict(zip(new, self._judge(results, global_steps), strict=True))
        return {uid for uid in finished if not self._passed[uid]} | groups.of("failure")

    def _judge(self, results: Sequence[tuple[str, int, int]], global_steps: int) -> list[bool]:
        """Add finished groups to the history; return whether all gates let each prompt pass."""
        rows = [self._rows.setdefault(prompt_id, len(self._rows)) for prompt_id, _, _ in results]
        added = [
            (global_steps, row, correct, marked)
            for row, (_, correct, marked) in zip(rows, results, strict=True)
        ]
        self._drawn += added
        history = self._history
        if history is None or len(history.prompt_ids) < len(self._rows):
            unknown = np.zeros(len(self._rows), np.int32)
            history = self._history = History(
                pa.array([*self._rows], pa.string()),
                unknown,
                unknown,
                seed=self.seed,
                updates=self._trainer.total_training_steps,
                group_size=max(marked for *_, marked in self._drawn),
            )
            added = self._drawn
        for group in added:
            history.add(*group)
        update = global_steps + 1
        history.start(update, len(rows))
        passed = np.ones(len(self._rows), bool)
        for number, gate in enumerate(self.gates):
            passed &= gate.passes(update, history.of(f"gate {number}"))
        self._metrics["training/gates/groups_total"] += len(rows)
        return [bool(passed[row]) for row in rows]

    def _results(
        self, groups: _Groups, uids: Sequence[str], partition_id: str
    ) -> list[tuple[str, int, int]]:
        """For each group: its prompt_id, and how many of its marked completions are correct.

        A session may have several rows, each with the reward of the last row. Only that row counts.
        """
        last: dict[tuple[str, str], tuple[int, str]] = {}  # (group, session) -> (index, key)
        for uid in uids:
            for key in groups.rows.get(uid, {}):
                _, session, index = key.rsplit("_", 2)
                known = last.get((uid, session), (-1, ""))
                last[uid, session] = max(known, (int(index), key))
        data = self._queue.kv_batch_get(
            keys=[key for _, key in last.values()],
            partition_id=partition_id,
            select_fields=["extra_fields", "extra_info"],
        )
        ids, correct, marked = {}, Counter[str](), Counter[str]()
        rows = zip(last, list(data["extra_info"]), list(data["extra_fields"]), strict=True)
        for (uid, _), info, fields in rows:
            ids[uid] = self._identity(getattr(info, "data", info))
            value = self._correctness(getattr(fields, "data", fields))
            if not math.isnan(value):
                marked[uid] += 1
                correct[uid] += value >= self.correct_from - _NEAR
        if missing := [uid for uid in uids if uid not in ids]:
            raise UserError(
                f"group {missing[0]} is finished and has no completion: read verl's log, and fix "
                f"the failure"
            )
        return [(ids[uid], correct[uid], marked[uid]) for uid in uids]

    def _identity(self, info: Mapping[str, Any]) -> str:
        """The identity of a row's prompt."""
        if info.get(self.prompt_id) is None:
            raise UserError(
                f"a row of the training data has no extra_info.{self.prompt_id}: add it (decile "
                "export --layout verl writes prompt_id), or write a different name of extra_info "
                "in "
                "sampler_kwargs.prompt_id, such as index"
            )
        return str(info[self.prompt_id])

    def _correctness(self, fields: Mapping[str, Any]) -> float:
        """The reward value that decides whether a completion is correct; nan: no mark."""
        values = fields.get("reward_extra_info") or {}
        if self.correct_by not in values:
            names = ", ".join(sorted(values)) or "none: rewards are computed after sampling"
            raise UserError(
                f"a completion has no {self.correct_by} among the values of its reward "
                f"({names}): write one of them in sampler_kwargs.correct_by, and do not use a "
                f"colocated reward model"
            )
        value = values[self.correct_by]
        try:
            return math.nan if value is None else float(value)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{self.correct_by} of a completion is {shortened(value)}: return a number from "
                f"the reward function, or write the name of a different value in "
                f"sampler_kwargs.correct_by"
            ) from error

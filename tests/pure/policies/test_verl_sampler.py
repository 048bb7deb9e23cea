"""`decile.verl.GateSampler`: in verl's form of groups, and against verl's own source."""

import ast
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from remedies import refused

from decile.verl import GateSampler
from orchestrator.storage.errors import UserError

G = 4
Tags = dict[str, dict[str, Any]]


class Queue(ModuleType):
    """TransferQueue's store of keys with tags and values, in memory."""

    KVBatchMeta = SimpleNamespace

    def __init__(self) -> None:
        super().__init__("transfer_queue")
        self.tags: dict[str, Tags] = {"train": {}, "val": {}}
        self.values: dict[str, dict[str, Any]] = {}

    def kv_list(self, partition_id: str) -> dict[str, Tags]:
        tags = self.tags[partition_id]
        return {partition_id: dict(tags)} if tags else {}

    def kv_batch_get(
        self, keys: list[str], partition_id: str, select_fields: list[str]
    ) -> dict[str, list[Any]]:
        rows = [self.values[key] for key in keys]
        return {name: [SimpleNamespace(data=row[name]) for row in rows] for name in select_fields}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[partition_id][key]


class Trainer:
    """Draws the prompts of a loader in turn, and finishes their groups at once.

    correct: of each prompt, the correct completions of its groups, in turn; None: they fail.
    """

    total_training_steps = 10

    def __init__(self, queue: Queue, correct: dict[str, list[int | None]], **settings: Any) -> None:
        self.queue, self.correct, self.step = queue, correct, 1
        self.config: dict[str, Any] = {"data": {"gen_batch_size": 1}, "algorithm": {}} | settings
        self.loader = self.prompts()
        self.drawn: list[str] = []  # prompt_ids, by group

    def prompts(self) -> Iterator[str]:
        while True:
            yield from self.correct

    def draw(self, count: int, partition_id: str = "train", status: str = "finished") -> int:
        for _ in range(count):
            prompt_id, uid = next(self.loader), f"u{len(self.drawn)}"
            results = self.correct[prompt_id]
            correct = results[self.drawn.count(prompt_id) % len(results)]
            self.drawn.append(prompt_id)
            tags = self.queue.tags[partition_id]
            state = "failure" if correct is None else status
            tags[uid] = {"is_prompt": True, "status": state, "global_steps": self.step}
            for session in range(0 if correct is None else G):
                rewards = {"acc": float(session < correct), "grade": "good"}
                for index in (1, 0):  # two turns, of which the last one counts
                    key = f"{uid}_{session}_{index}"
                    tags[key] = {"status": "success", "seq_len": 3}
                    self.queue.values[key] = {
                        "extra_info": {"prompt_id": prompt_id},
                        "extra_fields": {"reward_extra_info": rewards if index else {"acc": 0.0}},
                    }
        return count


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setitem(sys.modules, "transfer_queue", queue)
    return queue


RATES = {"gates": [{"rates": {"low": 0.2, "high": 0.8}}]}


def sampler_of(
    trainer: Trainer, options: Any = RATES, mode: str = "sync", strategy: str = "drop"
) -> GateSampler:
    return GateSampler(
        trainer_mode=mode,
        trainer_config={},
        max_off_policy_threshold=2,
        max_off_policy_strategy=strategy,
        sampler_kwargs=options,
        refill_fn=trainer.draw,
        poll_interval=0.0,
    )


def batch(sampler: GateSampler, trainer: Trainer, size: int) -> tuple[list[str], dict[str, float]]:
    """The prompt_ids of the groups of a batch, in its order, and what it logs."""
    meta, metrics = sampler.sample(global_steps=trainer.step, partition_id="train", batch_size=size)
    assert len(meta.keys) == len(meta.tags) == len({*meta.keys})
    uids = list(dict.fromkeys(key.split("_")[0] for key in meta.keys))
    assert len(meta.keys) % (2 * G) == 0
    trainer.queue.kv_clear(meta.keys, "train")  # as the trainer does after the update
    return [trainer.drawn[int(uid[1:])] for uid in uids], metrics


def test_closed_groups_are_replaced_by_the_next_prompts_of_the_loader(queue: Queue) -> None:
    counts = {"a": [2], "b": [4], "c": [0], "d": [1], "e": [4], "f": [3], "g": [2]}
    trainer = Trainer(queue, {name: [*each] for name, each in counts.items()})
    sampler = sampler_of(trainer)
    trainer.draw(4)
    prompts, metrics = batch(sampler, trainer, 4)
    assert prompts == ["a", "d", "f", "g"] and trainer.drawn == [*"abcdefg"]
    assert metrics["training/gates/groups_total"] == 7
    assert metrics["training/gates/discarded_total"] == 3
    assert metrics["training/gates/taken_closed_total"] == 0
    assert queue.tags["train"] == {}


def test_closed_groups_are_taken_once_a_batch_was_drawn_max_draws_times(queue: Queue) -> None:
    trainer = Trainer(queue, {"a": [4], "b": [4], "c": [2], "d": [None]})
    sampler = sampler_of(trainer, RATES | {"max_draws": 2})
    trainer.draw(2)
    prompts, metrics = batch(sampler, trainer, 2)  # a and b, then c and d, which has no rows
    assert prompts == ["c"] and trainer.drawn == [*"abcd"]
    assert metrics["training/gates/taken_closed_total"] == 1
    trainer.step = 2
    trainer.draw(2)
    assert batch(sampler, trainer, 2)[0] == ["c"] and trainer.drawn == [*"abcd"] * 2


def test_a_gate_knows_the_groups_of_earlier_steps(queue: Queue) -> None:
    trainer = Trainer(queue, {"a": [4], "b": [4, 4, 2], "c": [1], "d": [2]})
    sampler = sampler_of(trainer, {"gates": [{"retire": {"solved": 2}}]})
    chosen = []
    for step in (1, 2, 3):
        trainer.step = step
        trainer.draw(4)
        chosen.append(sorted(batch(sampler, trainer, 4)[0]))
    # Solved once; then twice, so that two of the next round come in their place; then b is not.
    assert chosen[0] == ["a", "b", "c", "d"]
    assert chosen[1] == ["b", "c", "c", "d"] and trainer.drawn[4:10] == [*"abcdab"]


def test_async_modes_drop_stale_and_failed_groups_or_wait(queue: Queue) -> None:
    trainer = Trainer(queue, {"a": [2], "b": [None], "c": [1], "d": [3], "e": [2]})
    sampler = sampler_of(trainer, mode="separate_async")
    trainer.config["data"]["gen_batch_size"] = None
    trainer.draw(2)  # a, and b, which failed
    trainer.step = 3  # a now spans three updates of two
    assert sampler.get_sampleable_count(3, "train") == 0
    prompts, metrics = batch(sampler, trainer, 2)
    assert prompts == ["c", "d"]
    evicted = {name: n for name, n in metrics.items() if name.endswith("evicted_samples")}
    assert [*evicted.values()] == [1, 1]

    waiting = sampler_of(trainer, mode="separate_async", strategy="wait")
    trainer.draw(1)
    trainer.draw(1, status="running")
    assert waiting.get_sampleable_count(3, "train") == 1
    groups = waiting._groups("train")
    ready = groups.of("finished")
    assert waiting._enough(groups, 3, ready, 1) and not waiting._enough(groups, 4, ready, 1)


def test_validation_takes_every_group(queue: Queue) -> None:
    trainer = Trainer(queue, {"a": [4], "b": [0], "c": [None]})
    sampler = sampler_of(trainer)
    trainer.draw(3, "val")
    meta, metrics = sampler.sample(global_steps=1, partition_id="val", batch_size=3)
    assert len(meta.keys) == 4 * G and metrics == {} and len(trainer.drawn) == 3


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({}, "gates"),
        ({"gates": {"rates": {"low": 0, "high": 1}}}, "gates"),
        ({"gates": ["rates"]}, "rates"),
        ({"gates": [{"rest": {"updates": 3}}]}, "rest"),
        (RATES | {"max_draw": 2}, "max_draw"),
        (RATES | {"max_draws": 0}, "max_draws"),
        (RATES | {"correct_from": "1"}, "correct_from"),
        (RATES | {"correct_from": float("nan")}, "correct_from"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_drawn(
    queue: Queue, options: Any, value: str
) -> None:
    with refused(value, by=UserError):
        sampler_of(Trainer(queue, {"a": [1]}), options)


def test_settings_and_data_it_cannot_work_with_are_refused(queue: Queue) -> None:
    trainer = Trainer(queue, {"a": [1]}, data={"gen_batch_size": None})
    with refused("data.gen_batch_size=1", by=UserError):
        sampler_of(trainer)
    filtering = {"filter_groups": {"enable": True}}
    with refused("algorithm.filter_groups", by=UserError):
        sampler_of(Trainer(queue, {"a": [1]}, algorithm=filtering))
    wrong = {"index": {"prompt_id": "index"}, "acc": {"correct_by": "score"}}
    wrong["'good'"] = {"correct_by": "grade"}
    for value, options in wrong.items():
        trainer = Trainer(queue, {"a": [1]})
        sampler = sampler_of(trainer, RATES | options)
        trainer.draw(1)
        with refused(value, by=UserError):
            batch(sampler, trainer, 1)


def verl_module(name: str) -> ast.Module:
    """A module of verl's V1 trainer, of the checkout that VERL_SOURCE names."""
    folder = os.environ.get("VERL_SOURCE")
    if not folder:
        pytest.skip("no source of verl: set VERL_SOURCE to a checkout of it")
    return ast.parse((Path(folder) / "verl" / "trainer" / "ppo" / "v1" / name).read_text())


def test_verl_builds_and_calls_it_so() -> None:
    trainer = verl_module("trainer_base.py")
    [build] = [
        node
        for node in ast.walk(trainer)
        if isinstance(node, ast.FunctionDef) and node.name == "_build_replay_buffer"
    ]
    [given] = [
        node.value
        for node in ast.walk(build)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "replay_buffer_kwargs"
    ]
    assert isinstance(given, ast.Call)
    arguments = {str(each.arg): ast.unparse(each.value) for each in given.keywords}
    inspect.signature(GateSampler).bind(**arguments)
    assert arguments["refill_fn"] == "self._add_prompts_to_generate"
    assert arguments["sampler_kwargs"] == "sampler_config.sampler_kwargs"
    assigned = {ast.unparse(n.targets[0]) for n in ast.walk(trainer) if isinstance(n, ast.Assign)}
    assert {"self.total_training_steps", "self.config"} <= assigned

    calls = 0
    for name in ("trainer_base.py", "trainer_separate_async.py"):
        for node in ast.walk(verl_module(name)):
            if isinstance(node, ast.Call) and "self.replay_buffer." in ast.unparse(node.func):
                method = ast.unparse(node.func).rpartition(".")[2]
                names = {str(each.arg): None for each in node.keywords}
                signature = inspect.signature(getattr(GateSampler, method))
                signature.bind(None, *node.args, **names)
                calls += 1
    assert calls >= 2


def test_verl_marks_groups_so() -> None:
    text = ast.unparse(verl_module("agent_loop_tq.py")) + ast.unparse(
        verl_module("trainer_base.py")
    )
    for part in ("'is_prompt': True", "'status': 'pending'", "{'status': 'running'}", "'failure'"):
        assert part in text, part
    buffer = ast.unparse(verl_module("replay_buffer.py"))
    for part in ("extra_fields.get('reward_extra_info'", "key.split('_')[0]", "kv_batch_get"):
        assert part in buffer, part

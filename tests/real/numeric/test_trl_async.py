"""`decile.trl.PromptSelector` and TRL's asynchronous trainer, of which no server is needed."""

import multiprocessing
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from datasets import Dataset
from remedies import refused
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer
from trl.experimental.async_grpo import async_rollout_worker as worker

from decile.trl import PromptSelector
from orchestrator.embedded import embedded_path
from orchestrator.storage.errors import UserError

IDS = [f"p{i:02}" for i in range(12)]
G = 2


def reward(prompts: Sequence[Any], **_: Any) -> list[float]:
    return [1.0] * len(prompts)


def selector_of(policy: str) -> PromptSelector:
    table = pa.table({"prompt_id": IDS, "pass_rate": [i / 12 for i in range(12)]})
    counts = {"n": pa.array([12] * 12), "successes": pa.array([*range(12)])}
    for name, values in counts.items():
        table = table.append_column(name, values)
    prompts = [[{"role": "user", "content": prompt_id}] for prompt_id in reversed(IDS)]
    rows = Dataset.from_dict({"prompt_id": IDS[::-1], "prompt": prompts})
    return PromptSelector(policy, table=table, dataset=rows, budget=4)


@pytest.fixture
def trainer_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """TRL's trainer on these rows; it asks for a GPU and vLLM before it needs them."""
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: 1.0)
    monkeypatch.setattr(worker, "is_vllm_available", lambda: True)

    def build(rows: Dataset, **changes: Any) -> Any:
        settings: Any = {"bf16": False, "use_cpu": True, "report_to": []}
        args = AsyncGRPOConfig(str(tmp_path), num_generations=G, **settings)
        given: Any = {"args": args, "train_dataset": rows, "weight_transfer": object()} | changes
        return AsyncGRPOTrainer(str(embedded_path("tiny")), reward, **given)

    return build


def prompts_read(trainer: Any, groups: int) -> list[str]:
    """The prompts of the first groups that the worker's loop would send to the server."""
    names = ("model_version_value", "heartbeat_value", "failed_event", "exception_info_queue")
    shared = dict.fromkeys([*names, "rollout_buffer", "metrics_queue"], SimpleNamespace(value=0))
    settings = trainer.rollout_worker._loop_kwargs
    settings["processing_class"].response_template = {}  # TRL knows none for the embedded model
    loop = worker._AsyncRolloutLoop(**settings | shared)
    rows = [row for _, row in islice(loop._repeat_iterator(), groups * G)]
    assert rows[::G] == rows[1::G]
    return [row["prompt_id"] for row in rows[::G]]


def test_a_static_policy_gives_the_prompts_in_the_order_of_its_rows(trainer_of: Any) -> None:
    selector = selector_of("hard")
    trainer = trainer_of(selector.dataset)
    selector.attach(trainer)
    assert prompts_read(trainer, 9) == [*IDS[:4], *IDS[:4], IDS[0]]
    easiest_first = selector.dataset.select([3, 1, 2, 0])
    trainer = trainer_of(easiest_first)
    selector.attach(trainer)
    assert prompts_read(trainer, 4) == ["p03", "p01", "p02", "p00"]
    assert selector.table().num_rows == 0


def test_what_the_loop_does_not_allow_is_refused(
    trainer_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = selector_of("predicted")
    trainer = trainer_of(online.dataset)
    with refused("ahead of the updates", by=UserError):
        online.attach(trainer)
    assert online.dataset[0] and [*online.dataset]  # read by the user
    with monkeypatch.context() as context, refused("no selector is attached", by=UserError):
        context.setattr(multiprocessing, "parent_process", lambda: object())
        prompts_read(trainer, 1)

    static = selector_of("hard")
    trainer = trainer_of(static.dataset.select([0, 1]))
    with refused("other prompts", by=UserError):
        static.attach(trainer)
    own: Any = SimpleNamespace(rollout_buffer=None)
    trainer = trainer_of(static.dataset, rollout_worker=own)
    with refused("rollout_worker", by=UserError):
        static.attach(trainer)

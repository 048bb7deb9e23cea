"""TRL trains on the rows of an exported file in their order, in every epoch."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sweeps
from datasets import load_dataset
from grpo import one_thread  # noqa: F401
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from orchestrator.optional.exchange.exports import export_subset
from orchestrator.optional.exchange.row_order import RowOrder
from orchestrator.planning.pools import load_pool
from orchestrator.sampling.loading import load_model

ROWS, GROUP = 12, 2


@pytest.mark.parametrize("accumulated", [1, 3])
def test_the_order_of_the_file_arrives_in_every_epoch(tmp_path: Path, accumulated: int) -> None:
    cell = sweeps.plan_of(sweeps.experiments(tmp_path)).cells[0]
    pool = load_pool(cell.probe.dataset)
    prompts = [*pool.train][:ROWS]
    rates = [(7 * n % ROWS) / ROWS for n in range(ROWS)]
    subset = pa.table(
        {
            "rank": pa.array(range(ROWS), pa.int32()),
            "prompt_id": [prompt.prompt_id for prompt in prompts],
            "pass_rate": rates,
        }
    )
    file = tmp_path / "easy.jsonl"
    export_subset(subset, prompts, pool.task, "trl", file, order=RowOrder("easy"))
    seen: list[float] = []

    def reward(completions: list[Any], pass_rate: list[float], **_: Any) -> list[float]:
        seen.extend(pass_rate[::GROUP])
        return [0.0] * len(completions)

    model, tokenizer = load_model(cell.probe.model)
    settings = GRPOConfig(
        output_dir=str(tmp_path / "out"),
        shuffle_dataset=False,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulated,
        num_generations=GROUP,
        max_completion_length=4,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    rows = load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path))
    trainer = GRPOTrainer(
        model, reward, settings, rows, processing_class=tokenizer, peft_config=LoraConfig(r=2)
    )
    trainer.train()
    assert seen == sorted(rates, reverse=True) * 2

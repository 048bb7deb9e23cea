"""GRPO of one cell as a plain TRL script: TRL, PEFT, a model folder and a reward, without Decile.

Reads a JSON file: model (folder), task, prompts (messages and answer), grpo and lora (settings).
It only trains: nothing is evaluated, and only TRL's own checkpoints are kept.
"""

import json
import sys
import tempfile
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

from tasks import get_task


def main() -> None:
    """Train the cell that the file describes."""
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bare_trainer(spec, folder).train()


def bare_trainer(spec: dict[str, Any], folder: str) -> GRPOTrainer:
    """TRL's trainer for the cell; its checkpoints go to `folder`."""
    set_seed(spec["seed"])
    task = get_task(spec["task"])

    def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = [message[0]["content"] for message in completions]
        marks = [task.mark(text, gold) for text, gold in zip(texts, answer, strict=True)]
        return [float(mark.outcome == "correct") for mark in marks]

    cuda = torch.cuda.is_available()
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(spec["model"], dtype="auto"),
        processing_class=AutoTokenizer.from_pretrained(spec["model"], padding_side="left"),
        args=GRPOConfig(
            output_dir=folder,
            seed=spec["seed"],
            use_cpu=not cuda,
            bf16=cuda,
            gradient_checkpointing=cuda,
            report_to="none",
            disable_tqdm=True,
            **spec["grpo"],
        ),
        reward_funcs=[reward],
        train_dataset=Dataset.from_list(spec["prompts"]),
        peft_config=LoraConfig(task_type="CAUSAL_LM", **spec["lora"]),
    )


if __name__ == "__main__":
    main()

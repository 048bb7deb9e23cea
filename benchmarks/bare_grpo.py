"""GRPO of one cell as a plain script has it: TRL, PEFT, a model folder, a reward. No Decile.

Reads a JSON file: model (folder), task, prompts (messages and answer), grpo and lora (settings).
It trains and ends: nothing is evaluated, nothing is kept but TRL's own checkpoints.
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
    """Train as the file says."""
    with open(sys.argv[1]) as file:
        wanted = json.load(file)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bare_trainer(wanted, folder).train()


def bare_trainer(wanted: dict[str, Any], folder: str) -> GRPOTrainer:
    """TRL's trainer for what the file says; its checkpoints go to `folder`."""
    set_seed(wanted["seed"])
    task = get_task(wanted["task"])

    def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = [message[0]["content"] for message in completions]
        marks = [task.mark(text, gold) for text, gold in zip(texts, answer, strict=True)]
        return [float(mark.outcome == "correct") for mark in marks]

    cuda = torch.cuda.is_available()
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(wanted["model"], dtype="auto"),
        processing_class=AutoTokenizer.from_pretrained(wanted["model"], padding_side="left"),
        args=GRPOConfig(
            output_dir=folder,
            seed=wanted["seed"],
            use_cpu=not cuda,
            bf16=cuda,
            gradient_checkpointing=cuda,
            report_to="none",
            disable_tqdm=True,
            **wanted["grpo"],
        ),
        reward_funcs=[reward],
        train_dataset=Dataset.from_list(wanted["prompts"]),
        peft_config=LoraConfig(task_type="CAUSAL_LM", **wanted["lora"]),
    )


if __name__ == "__main__":
    main()

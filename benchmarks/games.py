"""Train `tiny-guess` on multi-turn games with TRL alone, without Decile's training.

Prints the share of test games that are won, before and after, by the width of their range.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

from benchmarks.command_line import add_json, benchmark_parser, write_json
from orchestrator.embedded import embedded_path
from tasks import Prompt, get_task
from tasks.number_guess import WIDTHS, NumberGuess

TOKENS = 112  # of a game: five turns, their answers, and a sixth turn


def main() -> None:
    """Evaluate, train, evaluate again, and print the results."""
    arguments = parse()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(arguments.model, Path(folder), arguments.updates, arguments.seed)
        before = won(trainer, arguments.test)
        start = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - start
        after = won(trainer, arguments.test)
    print(f"{arguments.updates} updates in {seconds:.0f} s")
    for name, rates in (("before", before), ("after", after)):
        columns = "  ".join(f"{width}: {rate:.3f}" for width, rate in rates.items())
        print(f"{name:8}{columns}  all: {sum(rates.values()) / len(rates):.3f}")
    write_json(arguments, {"seconds": seconds, "before": before, "after": after})


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("games", __doc__)
    parser.add_argument("--model", type=Path, default=embedded_path("tiny-guess"), help="a folder")
    parser.add_argument("--updates", type=int, default=50, help="updates (default 50)")
    parser.add_argument("--test", type=int, default=100, help="test games, 4 times each")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training (default 0)")
    add_json(parser)
    return parser.parse_args()


def trainer_of(model: Path, folder: Path, updates: int, seed: int, batch: int = 64) -> GRPOTrainer:
    """TRL's trainer on the default pool, 8 completions per prompt; `folder` is for its files."""
    set_seed(seed)
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        processing_class=AutoTokenizer.from_pretrained(model),
        args=GRPOConfig(
            output_dir=str(folder),
            seed=seed,
            max_steps=updates,
            per_device_train_batch_size=batch,
            num_generations=8,
            per_device_eval_batch_size=200,
            num_generations_eval=4,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            max_completion_length=TOKENS,
            save_strategy="no",
            logging_steps=1,
            use_cpu=not torch.cuda.is_available(),
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(rows(get_task("number_guess", seed=seed).train())),
        environment_factory=NumberGuess,
        peft_config=LoraConfig(
            task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules="all-linear"
        ),
    )


def rows(prompts: list[Prompt]) -> list[dict[str, Any]]:
    """The rows of TRL's data set: the chat, and the arguments of `reset`."""
    return [
        {"prompt": [{"role": "user", "content": p.question}], **json.loads(p.info)} for p in prompts
    ]


def won(trainer: GRPOTrainer, test: int) -> dict[str, float]:
    """The share of games that are won, by width, as TRL evaluates it."""
    prompts, shares = get_task("number_guess", test=test).test(), {}
    for width in map(str, WIDTHS):
        data = Dataset.from_list(rows([p for p in prompts if p.tier == width]))
        trainer.evaluate(eval_dataset=data)
        shares[width] = float(trainer.state.log_history[-1]["eval_reward"])
    return shares


if __name__ == "__main__":
    main()

"""`decile diagnose` on GRPO runs: some healthy, others with a built-in problem.

`python -m benchmarks.troubled_runs train --out FOLDER` trains runs of plain TRL (about half a
minute each on one core), `… diagnose --out FOLDER` prints the findings of each. The training uses
only the tasks' prompts and markers of Decile. `python -m benchmarks.simulated_diagnoses` needs no
training.
"""

import multiprocessing
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

import decile
from benchmarks.command_line import add_json, benchmark_parser, write_json
from orchestrator.embedded import embedded_path
from tasks import Task, get_task

UPDATES = 30
FRESH_AFTER = 18  # updates until a resumed run forgets its adapter
DONE = "completed"  # the file that marks a finished run


class Run(NamedTuple):
    """One run: its task and model, changed GRPO settings, and its problem.

    `expected`: codes of `decile diagnose`, one of which names the problem; empty: it is healthy.
    """

    name: str
    task: str
    model: str
    seed: int
    trouble: str = ""
    expected: tuple[str, ...] = ()
    grpo: dict[str, Any] = {}


_TASKS = (("shuffled_objects", "tiny"), ("plus_minus", "tiny-plus-minus"))
_TROUBLES: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    ("learning rate", ("collapse", "learning-rate"), {"learning_rate": 1e-1}),
    ("cut", ("truncated",), {"max_completion_length": 16}),
    ("length", ("reward-not-correctness", "reward-is-length", "phantom"), {}),
    ("dead pool", ("dead",), {}),
    ("tiny subset", ("few-prompts", "early-end"), {}),
    ("wrong golds", ("wrong-golds",), {}),
    ("fresh adapter", ("reset",), {}),
)


def runs() -> list[Run]:
    """Eight healthy runs, and one run per problem and task."""
    healthy = [Run(f"healthy-{task}-{s}", task, m, s) for task, m in _TASKS for s in range(4)]
    troubled = [
        Run(f"{trouble.replace(' ', '-')}-{task}", task, model, 0, trouble, expected, grpo)
        for trouble, expected, grpo in _TROUBLES
        for task, model in _TASKS
    ]
    return healthy + troubled


def wrong(gold: str) -> str:
    """A wrong answer: a number that is larger by 5, or the next letter."""
    return f"({chr(ord(gold[1]) + 1)})" if gold.startswith("(") else str(int(gold) + 5)


def prompts_of(run: Run, task: Task) -> list[dict[str, Any]]:
    """80 prompts of the training pool, messages and answers."""
    rng = random.Random(run.seed)
    pool = sorted(task.train(), key=lambda prompt: prompt.prompt_id)
    if run.task == "plus_minus":  # without subtractions, the model has nothing to learn
        pool = [prompt for prompt in pool if prompt.tier != "0"]
    chosen = rng.sample(pool, 80)
    if run.trouble == "tiny subset":
        chosen = chosen[: 3 if run.task == "shuffled_objects" else 8]  # an update draws 8
    golds = [prompt.answer for prompt in chosen]
    if run.trouble == "dead pool":
        golds = ["-1"] * len(golds)
    if run.trouble == "wrong golds":
        golds = [g if i % 3 else wrong(g) for i, g in enumerate(golds)]
    return [
        {"prompt": task.messages(prompt.question), "answer": gold}
        for prompt, gold in zip(chosen, golds, strict=True)
    ]


def rewards_of(run: Run, task: Task) -> list[Callable[..., list[float]]]:
    """The reward functions: correctness, and for the problem "length" one that rewards length."""

    def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = [message[0]["content"] for message in completions]
        marks = [task.mark(text, gold) for text, gold in zip(texts, answer, strict=True)]
        return [float(mark.outcome == "correct") for mark in marks]

    def long(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [len(ids) / 8 for ids in completion_ids]

    return [correct, long] if run.trouble == "length" else [correct]


def train(run: Run, folder: Path) -> None:
    """Train one run with TRL into `folder`, in a process of its own."""
    torch.set_num_threads(1)
    task = get_task(run.task)
    fresh = run.trouble == "fresh adapter"
    for steps in [FRESH_AFTER, UPDATES] if fresh else [UPDATES]:
        set_seed(run.seed)
        trainer = trainer_of(run, task, folder, steps)
        last = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
        if last:  # as a script that loads the trainer's state but not the adapter
            fresh_adapter(trainer, last[-1])
        trainer.train(resume_from_checkpoint=str(last[-1]) if last else None)
        trainer.save_state()
    (folder / DONE).touch()


def fresh_adapter(trainer: GRPOTrainer, checkpoint: Path) -> None:
    """Replace the adapter and the optimizer's state of a checkpoint with those of a new run."""
    trainer.model.save_pretrained(str(checkpoint))
    (checkpoint / "optimizer.pt").unlink()


def trainer_of(run: Run, task: Task, folder: Path, steps: int) -> GRPOTrainer:
    """TRL's trainer, which logs every update and its completions to `folder`."""
    settings: dict[str, Any] = {
        "max_steps": steps,
        "save_steps": steps,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "num_generations": 8,
        "per_device_train_batch_size": 64,
        "max_completion_length": 96 if run.task == "shuffled_objects" else 64,
        "logging_steps": 1,
        "log_completions": True,
        "num_completions_to_print": 1,
    }
    model = str(embedded_path(run.model))
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype="auto"),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        args=GRPOConfig(
            output_dir=str(folder),
            seed=run.seed,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            **(settings | run.grpo),
        ),
        reward_funcs=rewards_of(run, task),
        train_dataset=Dataset.from_list(prompts_of(run, task)),
        peft_config=LoraConfig(
            task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules="all-linear"
        ),
    )


def train_all(out: Path, only: str) -> None:
    """Train missing runs, each in its own process."""
    for run in runs():
        folder = out / run.name
        if (folder / DONE).exists() or only not in run.name:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        process = multiprocessing.get_context("spawn").Process(target=train, args=(run, folder))
        process.start()
        process.join()
        print(f"{run.name}: exit code {process.exitcode}", flush=True)


def diagnose_all(out: Path) -> dict[str, Any]:
    """Print the findings of each run; returns them, and how many problems are named correctly."""
    codes: dict[str, list[str]] = {}
    named, alarms, healthy, troubled = 0, 0, 0, 0
    for run in runs():
        if not (out / run.name / DONE).exists():
            continue
        findings = decile.diagnose(out / run.name).runs[0].findings
        codes[run.name] = [finding.code for finding in findings]
        right = bool({*run.expected} & {*codes[run.name]})
        healthy, troubled = healthy + (not run.trouble), troubled + bool(run.trouble)
        named, alarms = named + right, alarms + bool(not run.trouble and findings)
        print(f"{run.name}:")
        for finding in findings:
            print(f"  {'problem' if finding.bad else 'warning'} {finding.code}: {finding.text}")
    print(f"named rightly: {named} of {troubled} troubled runs")
    print(f"healthy runs with a finding: {alarms} of {healthy}")
    counts = {"named": named, "troubled": troubled, "alarms": alarms, "healthy": healthy}
    return {"codes": codes, **counts}


def main() -> None:
    """Train, or diagnose trained runs."""
    parser = benchmark_parser("troubled_runs", __doc__)
    parser.add_argument("step", choices=["train", "diagnose"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the trained runs")
    parser.add_argument("--only", default="", metavar="TEXT", help="runs whose name has this text")
    add_json(parser)
    arguments = parser.parse_args()
    if arguments.step == "train":
        train_all(arguments.out, arguments.only)
    else:
        write_json(arguments, diagnose_all(arguments.out))


if __name__ == "__main__":
    main()

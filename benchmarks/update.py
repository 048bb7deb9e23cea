"""Where the time of a GRPO update goes, what it holds of a GPU, and how many cells share one.

Trains a few updates on random weights in the shape of a catalogued model (or on the embedded one),
in processes of their own: as a cell does, one at a time and several at once, and as a plain TRL
script does (`benchmarks/bare_grpo.py`). Random weights end an answer almost never, so every
completion has `--tokens` tokens, and both sides do the same work. The first updates are not
counted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Qwen3Config,
    TrainerCallback,
)

from benchmarks.bare_grpo import bare_trainer
from orchestrator.config.catalog import load_config
from orchestrator.cost.memory import SHAPES
from orchestrator.embedded import embedded_path
from orchestrator.planning.plan import make_plan
from orchestrator.training.callback import CellCallback
from orchestrator.training.record import CellRecord
from orchestrator.training.trainer import build_trainer

ROOT = Path(__file__).parents[1]
NAMES = {name.partition("/")[2].lower(): name for name in SHAPES}
WARM = 2  # updates that are not counted
PARTS = ("rollout", "scoring", "forward-backward", "rest")


def main() -> None:
    """Reads the options, runs all, prints a table; or, with --one, is one of its processes."""
    wanted = options()
    if wanted.one:
        print(json.dumps(one(wanted.one, Path(wanted.file))))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = declared(Path(folder), wanted)
        rows = [("plain TRL", 1, together("bare", 1, file))]
        for count in (int(n) for n in wanted.at_once.split(",")):
            rows.append(("a cell", count, together("cell", count, file)))
    tell(wanted, rows)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.update",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add: Callable[..., Any] = parser.add_argument
    add("--shape", default="tiny", choices=["tiny", *NAMES], help="default: the embedded model")
    add("--at-once", default="1", help="cells that share the device, such as 1,2,4")
    add("--updates", type=int, default=6, help="of which the first two are not counted (default 6)")
    add("--prompts", type=int, default=8, help="of one update (default 8)")
    add("--tokens", type=int, default=64, help="of a completion (default 64)")
    add("--micro-batch", type=int, default=8, help="completions in the loss at once (default 8)")
    add("--one", choices=["cell", "bare"], help=argparse.SUPPRESS)
    add("--file", help=argparse.SUPPRESS)
    return parser.parse_args()


def declared(folder: Path, wanted: argparse.Namespace) -> Path:
    """A file of experiments with the one cell that everything here trains."""
    model = {"embedded": "tiny"}
    if wanted.shape != "tiny":
        random_weights(NAMES[wanted.shape], folder / "model")
        model = {"path": str(folder / "model")}
    gpus = float(torch.cuda.is_available()) / max(map(int, wanted.at_once.split(",")))
    grpo = {
        "max_steps": wanted.updates,
        "num_generations": 8,
        "per_device_train_batch_size": wanted.micro_batch,
        "gradient_accumulation_steps": wanted.prompts * 8 // wanted.micro_batch,
        "max_completion_length": wanted.tokens,
        "save_steps": 10_000,
    }
    content = {
        "models": {"shape": model},
        "datasets": {"few": {"task": "shuffled_objects", "options": {"train": 64, "test": 8}}},
        "experiments": {
            "update": {
                "grid": {"model": ["shape"], "dataset": ["few"], "policy": ["random"]},
                "budget": 64,
                "grpo": grpo,
                "resources": {"cpus": 1, "gpus": gpus},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def random_weights(name: str, folder: Path) -> None:
    """A model of a catalogued shape with random weights in bfloat16, and the tiny tokenizer."""
    shape = SHAPES[name]
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
    )
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded_path("tiny")).save_pretrained(folder)


def together(who: str, count: int, file: Path) -> list[dict[str, Any]]:
    """What `count` processes measured that trained at the same time."""
    command = [sys.executable, "-m", "benchmarks.update", "--one", who, "--file", str(file)]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    said = [process.communicate()[0] for process in running]
    failed = [process.returncode for process in running if process.returncode]
    if failed:
        raise SystemExit(f"{len(failed)} of {count} at once ended with {failed[0]}: see above")
    return [json.loads(text.splitlines()[-1]) for text in said]


def one(who: str, file: Path) -> dict[str, Any]:
    """Train as a cell or as a plain script; medians of seconds by part, and GiB at the peak."""
    torch.set_num_threads(1)
    plan = make_plan(load_config(file), "update")
    [cell], folder = plan.cells, file.parent / f"{who}-{time.monotonic_ns()}"
    pool = plan.pool(cell.probe)
    if who == "cell":
        record = CellRecord()
        trainer = build_trainer(cell, folder, pool.task, pool.train, record)
        trainer.add_callback(CellCallback(record, lambda _: (False, False), lambda _: None))
    else:
        rows = [{"prompt": pool.task.messages(p.question), "answer": p.answer} for p in pool.train]
        model, task = cell.probe.model.location, cell.probe.dataset.task
        told = {"model": model, "task": task, "seed": cell.seed, "prompts": rows}
        trainer = bare_trainer(told | {"grpo": cell.grpo, "lora": cell.lora}, str(folder))
    clock = Clock(trainer)
    trainer.add_callback(clock)
    trainer.train()
    counted = clock.updates[WARM:]
    peak = torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0
    return {part: statistics.median(u[part] for u in counted) for part in PARTS} | {"peak": peak}


class Clock(TrainerCallback):
    """Seconds of each update by part, taken around TRL's own methods."""

    def __init__(self, trainer: Any) -> None:
        self.updates: list[dict[str, float]] = []
        self.spent: dict[str, float] = {}
        for name in ("_generate_single_turn", "_prepare_inputs", "training_step"):
            setattr(trainer, name, self._timed(name, getattr(trainer, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            cell_started = now()
            result = method(*given, **named)
            self.spent[name] = self.spent.get(name, 0.0) + now() - cell_started
            return result

        return timed

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An update begins."""
        self.spent, self.cell_started = {}, now()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The optimiser has made its step."""
        rollout, inputs, step = (
            self.spent.get(name, 0.0)
            for name in ("_generate_single_turn", "_prepare_inputs", "training_step")
        )
        whole = now() - self.cell_started
        parts = (rollout, inputs - rollout, step - inputs, whole - step)
        self.updates.append(dict(zip(PARTS, parts, strict=True)))


def now() -> float:
    """Seconds, once the device has done all that it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def tell(wanted: argparse.Namespace, rows: list[tuple[str, int, list[dict[str, Any]]]]) -> None:
    """A line for each row, medians over its processes, and the ratio of the first two."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread each"
    print(
        f"{wanted.shape} on {device}: {wanted.prompts} prompts × 8 completions of at most "
        f"{wanted.tokens} tokens, {wanted.micro_batch} in the loss at once"
    )
    print(
        f"{'':>10} {'at once':>8} {'s/update':>9}"
        + "".join(f"{p:>18}" for p in PARTS)
        + f" {'GiB each':>9} {'updates/s':>10}"
    )
    whole = []
    for who, count, found in rows:
        parts = [statistics.median(each[part] for each in found) for part in PARTS]
        whole.append(sum(parts))
        peak = max(each["peak"] for each in found)
        print(
            f"{who:>10} {count:8} {sum(parts):9.2f}"
            + "".join(f"{p:18.2f}" for p in parts)
            + f" {peak:9.1f} {count / sum(parts):10.3f}"
        )
    print(f"a cell / plain TRL: {whole[1] / whole[0]:.2f}")


if __name__ == "__main__":
    main()

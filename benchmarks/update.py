"""The time of a GRPO update by part, its GPU memory, and the effect of cells sharing a GPU.

Trains a few updates on random weights in the shape of a catalogued model (or on the embedded one),
in processes of their own: as a cell, one at a time and several at once, and as a plain TRL script
(`benchmarks/bare_grpo.py`). Random weights almost never end an answer, so every completion has
`--tokens` tokens, and both sides do the same work. The first updates are not counted.
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
from benchmarks.command_line import benchmark_parser
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
    """Run all processes and print a table; with --one, run as one of these processes."""
    arguments = options()
    if arguments.one:
        print(json.dumps(measure(arguments.one, Path(arguments.file))))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = write_experiments(Path(folder), arguments)
        rows = [("plain TRL", 1, run_processes("bare", 1, file))]
        for count in (int(n) for n in arguments.at_once.split(",")):
            rows.append(("a cell", count, run_processes("cell", count, file)))
    print_table(arguments, rows)


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("update", __doc__)
    add: Callable[..., Any] = parser.add_argument
    add(
        "--shape",
        default="tiny",
        choices=["tiny", *NAMES],
        help="shape of the model (default: the embedded model)",
    )
    add("--at-once", default="1", help="cells that share the device, for example 1,2,4 (default 1)")
    add("--updates", type=int, default=6, help="updates; the first two are not counted (default 6)")
    add("--prompts", type=int, default=8, help="prompts per update (default 8)")
    add("--tokens", type=int, default=64, help="tokens per completion (default 64)")
    add("--micro-batch", type=int, default=8, help="completions per forward pass (default 8)")
    add("--one", choices=["cell", "bare"], help=argparse.SUPPRESS)
    add("--file", help=argparse.SUPPRESS)
    return parser.parse_args()


def write_experiments(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write an experiments.yaml with the one cell that all processes train."""
    model = {"embedded": "tiny"}
    if arguments.shape != "tiny":
        random_weights(NAMES[arguments.shape], folder / "model")
        model = {"path": str(folder / "model")}
    gpus = float(torch.cuda.is_available()) / max(map(int, arguments.at_once.split(",")))
    grpo = {
        "max_steps": arguments.updates,
        "num_generations": 8,
        "per_device_train_batch_size": arguments.micro_batch,
        "gradient_accumulation_steps": arguments.prompts * 8 // arguments.micro_batch,
        "max_completion_length": arguments.tokens,
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


def run_processes(kind: str, count: int, file: Path) -> list[dict[str, Any]]:
    """The measurements of `count` processes that train at the same time."""
    command = [sys.executable, "-m", "benchmarks.update", "--one", kind, "--file", str(file)]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    outputs = [process.communicate()[0] for process in running]
    failed = [process.returncode for process in running if process.returncode]
    if failed:
        raise SystemExit(
            f"{len(failed)} of {count} processes failed with exit code {failed[0]}: see above"
        )
    return [json.loads(text.splitlines()[-1]) for text in outputs]


def measure(kind: str, file: Path) -> dict[str, Any]:
    """Train as a cell or as a plain script; median seconds by part, and the peak in GiB."""
    torch.set_num_threads(1)
    plan = make_plan(load_config(file), "update")
    [cell], folder = plan.cells, file.parent / f"{kind}-{time.monotonic_ns()}"
    pool = plan.pool(cell.probe)
    if kind == "cell":
        record = CellRecord()
        trainer = build_trainer(cell, folder, pool.task, pool.train, record)
        trainer.add_callback(CellCallback(record, lambda _: (False, False), lambda _: None))
    else:
        rows = [{"prompt": pool.task.messages(p.question), "answer": p.answer} for p in pool.train]
        model, task = cell.probe.model.location, cell.probe.dataset.task
        spec = {"model": model, "task": task, "seed": cell.seed, "prompts": rows}
        trainer = bare_trainer(spec | {"grpo": cell.grpo, "lora": cell.lora}, str(folder))
    clock = Clock(trainer)
    trainer.add_callback(clock)
    trainer.train()
    counted = clock.updates[WARM:]
    peak = torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0
    return {part: statistics.median(u[part] for u in counted) for part in PARTS} | {"peak": peak}


class Clock(TrainerCallback):
    """Seconds of each update by part, measured around TRL's own methods."""

    def __init__(self, trainer: Any) -> None:
        self.updates: list[dict[str, float]] = []
        self.seconds: dict[str, float] = {}
        for name in ("_generate_single_turn", "_prepare_inputs", "training_step"):
            setattr(trainer, name, self._timed(name, getattr(trainer, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = synchronized_time()
            result = method(*args, **kwargs)
            self.seconds[name] = self.seconds.get(name, 0.0) + synchronized_time() - start
            return result

        return timed

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start an update."""
        self.seconds, self.start = {}, synchronized_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record an update after the optimizer's step."""
        rollout, inputs, step = (
            self.seconds.get(name, 0.0)
            for name in ("_generate_single_turn", "_prepare_inputs", "training_step")
        )
        whole = synchronized_time() - self.start
        parts = (rollout, inputs - rollout, step - inputs, whole - step)
        self.updates.append(dict(zip(PARTS, parts, strict=True)))


def synchronized_time() -> float:
    """Seconds, after the device has finished all queued work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def print_table(
    arguments: argparse.Namespace, rows: list[tuple[str, int, list[dict[str, Any]]]]
) -> None:
    """Print a line per row, medians over its processes, and the ratio of the first two rows."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread each"
    print(
        f"{arguments.shape} on {device}: {arguments.prompts} prompts × 8 completions of at most "
        f"{arguments.tokens} tokens, {arguments.micro_batch} per forward pass"
    )
    print(
        f"{'':>10} {'at once':>8} {'s/update':>9}"
        + "".join(f"{p:>18}" for p in PARTS)
        + f" {'GiB each':>9} {'updates/s':>10}"
    )
    whole = []
    for kind, count, measurements in rows:
        parts = [statistics.median(each[part] for each in measurements) for part in PARTS]
        whole.append(sum(parts))
        peak = max(each["peak"] for each in measurements)
        print(
            f"{kind:>10} {count:8} {sum(parts):9.2f}"
            + "".join(f"{p:18.2f}" for p in parts)
            + f" {peak:9.1f} {count / sum(parts):10.3f}"
        )
    print(f"a cell / plain TRL: {whole[1] / whole[0]:.2f}")


if __name__ == "__main__":
    main()

"""What the tests of recorded share."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from sweeps import decile_here

from tasks import get_task

SAMPLES = 6


def recording(folder: Path, prompts: int = 120) -> Path:
    """Responses to a task's training questions with pass rates from Beta(.3, .3)."""
    rng = np.random.default_rng(0)
    rows = []
    for prompt in get_task("arithmetic", train=prompts, test=5).train():
        right = rng.random(SAMPLES) < rng.beta(0.3, 0.3)
        texts = [rf"\boxed{{{prompt.answer}}}" if r else r"\boxed{-1}" for r in right]
        rows.append({"question": prompt.question, "responses": texts})
    file = folder / "recorded.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def experiments(folder: Path, policies: list[str], **probe: object) -> Path:
    content = {
        "storage": str(folder / "runs"),
        "models": {"past": {"recorded": str(folder / "recorded.parquet")}},
        "datasets": {"sums": {"task": "arithmetic", "options": {"train": 120, "test": 5}}},
        "experiments": {
            "study": {
                "grid": {"model": ["past"], "dataset": ["sums"], "policy": policies},
                "budget": 12,
                "probe": {"samples": SAMPLES, **probe},
                "grpo": {"num_generations": 4, "per_device_train_batch_size": 8},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def probe(file: Path) -> str:
    process = decile_here("probe", str(file), "-e", "study", folder=file.parent)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr

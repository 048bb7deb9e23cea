"""Files of other tools for tests of imports and exports, and what is read from them."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.cli.main import main
from orchestrator.optional.exchange.imports import Imported, import_probe
from orchestrator.selection.subsets import with_reason
from orchestrator.storage.schema import SUBSET
from tasks import Prompt, Task, TaskError, get_task

RIGHT, WRONG = r"\boxed{4}", r"\boxed{5}"
REASON = {"policy": "hard", "size": 2, "seed": 3, "ties": None, "probe": "abc"}
TASK = get_task("file", marker="number")
OBJECTS = get_task("shuffled_objects", train=20, test=4)


def written(folder: Path, rows: list[dict], name: str = "in.jsonl") -> Path:
    file = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def imported(folder: Path, rows: list[dict], task: Task, **more: Any) -> Imported:
    layout = more.pop("layout", None)
    return import_probe(written(folder, rows), layout, task, **more)


def refusal(folder: Path, rows: list[dict], task: Task, **more: Any) -> str:
    with pytest.raises(TaskError) as error:
        imported(folder, rows, task, **more)
    return str(error.value)


def noted(probe: Imported, pattern: str) -> bool:
    """Whether a note of the import matches, such as a count with its lines."""
    return any(re.search(pattern, note) for note in probe.notes)


def outcomes(probe: Imported) -> list[str]:
    assert probe.samples is not None
    return probe.samples["outcome"].to_pylist()


def rates(probe: Imported) -> dict[str, float]:
    """Pass rates by question."""
    assert probe.difficulty is not None
    questions = {p.prompt_id: p.question for p in probe.prompts}
    table = probe.difficulty
    return {
        questions[name]: rate
        for name, rate in zip(
            table["prompt_id"].to_pylist(), table["pass_rate"].to_pylist(), strict=True
        )
    }


def rllm_run(folder: Path, items: list[dict], attempts: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    head = {"dataset_name": "d", "model": "m", "agent": "a", "score": 0.5, "attempts": attempts}
    (folder / "results.json").write_text(json.dumps(head | {"items": items}))
    return folder


def select(probe: Path, policy: str, budget: str) -> Path:
    """Run `decile select` on an import; returns the subset's file, in the same folder."""
    out = probe.with_name("subset.parquet")
    arguments = ["--probe", str(probe), "--policy", policy, "--budget", budget, "--seed", "1"]
    assert main(["select", *arguments, "--out", str(out), "--force"]) == 0
    return out


def subset_of(prompts: list[Prompt], chosen: list[int]) -> pa.Table:
    rows = [
        {
            "rank": rank,
            "prompt_id": prompts[i].prompt_id,
            "tier": prompts[i].tier,
            "pass_rate": None if i == 0 else i / 32,
            "n": None if i == 0 else 32,
            "successes": None if i == 0 else i,
        }
        for rank, i in enumerate(chosen)
    ]
    return with_reason(pa.Table.from_pylist(rows, schema=SUBSET), REASON)

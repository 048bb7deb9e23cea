"""What the tests of probe report share."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from factories import sample_row, small_plan, store_samples

from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store
from tasks import Prompt

NAMED = {
    "some": {"policy": "band", "options": {"low": 0.0, "high": 0.8, "require": "parsed"}},
    "parts": {"policy": "mixture", "options": {"shares": {"hard": 0.5, "random": 0.5}}},
    "level": {"policy": "tiers", "options": {"levels": ["3", "5"]}},
    "trusted": {"policy": "hard", "options": {"exclude": "suspected"}},
}
Row = dict[str, Any]


def draw(plan: Plan, store: Store, sample: Callable[[Prompt, int], Row], **part: Any) -> None:
    """Store samples of the training probe; `sample` gives what differs from a wrong answer."""
    (spec,) = (spec for spec in plan.probes if spec.split == "train")
    rows = [
        sample_row(prompt.prompt_id, i, completion=f"text {number}-{i}") | sample(prompt, i)
        for number, prompt in enumerate(plan.pool(spec).train[: part.get("prompts")])
        for i in range(part.get("samples", spec.settings.samples))
    ]
    store_samples(store, spec, rows)


def mixed(prompt: Prompt, i: int) -> Row:
    """Pass rates from 0 to 1 by prompt; failures of every kind.

    Wrong answers differ where a prompt is solved, too, and are the same where it never is.
    """
    digits = int(prompt.prompt_id, 16) // 5  # the remainder decides the split
    if digits % 5 > i:
        return {"outcome": "correct", "extracted": prompt.answer}
    kind = ("wrong", "unparsed", "truncated")[digits // 5 % 3]
    answer = f"({'VWXY'[i]})" if digits % 5 else "(Z)"
    return {"outcome": kind, "extracted": answer if kind == "wrong" else None}


def with_grid(folder: Path, grid: Sequence[str], **probe: object) -> Plan:
    """The small plan with these policies, those of NAMED among them."""
    settings = {"samples": 4, "max_completion_length": 32, **probe}
    return small_plan(folder, policies=grid, rules=NAMED, probe=settings)


def file_plan(folder: Path, rows: list[Row]) -> Plan:
    """The small plan over questions of a file, with a budget of one prompt."""
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "test.jsonl").write_text('{"question": "2+2?", "answer": "4", "tier": "a"}\n')
    splits = {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}
    dataset = {"task": "file", "options": {**splits, "tier": "tier"}}
    grpo = {"max_steps": 4, "num_generations": 4, "per_device_train_batch_size": 4}
    return small_plan(folder, datasets={"small": dataset}, budget=1, grpo=grpo)


def tiers(count: int, prompts: int = 200) -> pa.Table:
    return pa.table(
        {
            "tier": [f"t{i % count}" for i in range(prompts)],
            "pass_rate": pa.array([[0.0, 0.2, 1.0, None][i % 4] for i in range(prompts)]),
        }
    )


def probed(folder: Path, sample: Callable[[Prompt, int], Row] = mixed, **part: Any):
    plan, store = small_plan(folder), Store(str(folder / "runs"))
    draw(plan, store, sample, **part)
    return plan, store

"""Small sweeps for tests: a plan of a few cells, and plausible results of a cell in a store."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from orchestrator.config.catalog import load_config
from orchestrator.evaluation.groups import Marked
from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.probing.probe_folder import write_part
from orchestrator.selection.subsets import with_reason
from orchestrator.storage.schema import EVALUATIONS, SAMPLES, SUBSET
from orchestrator.storage.store import Store
from orchestrator.training.record import CellRecord, finish
from tasks import Prompt


def small_plan(
    folder: Path,
    *,
    policies: Sequence[str] = ("hard", "random"),
    seeds: Sequence[int] = (0,),
    updates: int = 4,
    name: str = "small",
    datasets: Mapping[str, object] = MappingProxyType({}),
    models: Mapping[str, object] = MappingProxyType({}),
    rules: Mapping[str, object] = MappingProxyType({}),
    **settings: object,
) -> Plan:
    """A plan over 40 prompts and 12 test questions; its models, stub and other, have no weights.

    rules: the policies that the file names. Other blocks replace those of the experiment.
    """
    for model, config in (("model", "{}"), ("other", '{"other": 1}')):
        (folder / model).mkdir(parents=True, exist_ok=True)
        if not (folder / model / "config.json").exists():
            (folder / model / "config.json").write_text(config)
    stubs = {"stub": {"path": str(folder / "model")}, "other": {"path": str(folder / "other")}}
    small = {"task": "shuffled_objects", "options": {"train": 40, "test": 12}}
    content = {
        "storage": str(folder / "runs"),
        "models": stubs | {**models},
        "datasets": {"small": small, **datasets},
        **({"policies": {**rules}} if rules else {}),
        "experiments": {
            name: {
                "grid": {
                    "model": ["stub"],
                    "dataset": ["small"],
                    "policy": list(policies),
                    "seed": list(seeds),
                },
                "budget": 8,
                "probe": {"samples": 4, "max_completion_length": 32},
                "grpo": {
                    "max_steps": updates,
                    "num_generations": 4,
                    "per_device_train_batch_size": 8,
                },
                "evaluate": {"every": 2, "samples": 8},
                **settings,
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return make_plan(load_config(file), name)


def cell_record(plan: Plan, cell: Cell, seed: int = 0) -> CellRecord:
    """A record of a finished cell whose accuracy rises; the same seed gives the same numbers."""
    rng = np.random.default_rng([seed, cell.seed])
    pool = plan.pool(cell.probe)
    record = CellRecord(seconds=12.5)
    for update in range(1, cell.updates + 1):
        for prompt in pool.train[: cell.prompts_per_update]:
            record.groups.add(update, _group(cell, prompt, rng), int(cell.grpo["num_generations"]))
        record.log += [
            {"update": update, "name": "loss", "value": float(rng.normal())},
            {"update": update, "name": "completions/mean_length", "value": float(rng.normal(20))},
            {"update": update, "name": "completions/max_length", "value": 20.0},
            {"update": update, "name": "num_tokens", "value": 1000.0 * update},
        ]
    every = cell.evaluate_every or cell.updates
    for update in sorted({*range(0, cell.updates + 1, every), cell.updates}):
        record.add_evaluation(evaluation(cell, pool.test, update, rng))
    return record


def marked_rollout(
    outcome: str, score: float | None, prompt_id: str = "p", *, tokens: int = 3, **fields: Any
) -> Marked:
    """A rollout whose reward is its score."""
    own: dict[str, Any] = {"tier": "", "other_outcome": outcome, "components": {}, "reward": score}
    return Marked(prompt_id, outcome=outcome, score=score, tokens=tokens, **own | fields)


def _group(cell: Cell, prompt: Prompt, rng: np.random.Generator) -> list[Marked]:
    rewards = rng.integers(0, 2, int(cell.grpo["num_generations"]))
    of_prompt = {"prompt_id": prompt.prompt_id, "tier": prompt.tier, "tokens": 20}
    return [
        marked_rollout("correct", 1.0, **of_prompt)
        if reward
        else marked_rollout("wrong", 0.0, other_outcome="unparsed", **of_prompt)
        for reward in rewards
    ]


def evaluation(cell: Cell, test: list[Prompt], update: int, rng: np.random.Generator) -> pa.Table:
    """Marked samples of the test set, with an accuracy that rises with the update."""
    rows = []
    for prompt in test:
        for sample in range(cell.baseline.settings.samples):
            right = bool(rng.random() < 0.4 + 0.3 * update / cell.updates)
            rows.append(
                {
                    "prompt_id": prompt.prompt_id,
                    "sample": sample,
                    "completion": f"<b>after {update}</b> \\boxed{{{prompt.answer}}}",
                    "tokens": 20,
                    "finish": "stop",
                    "outcome": "correct" if right else "wrong",
                    "extracted": prompt.answer if right else "(Z)",
                    "rule": "boxed",
                    "other_outcome": "correct" if right else "unparsed",
                    "other_rule": "other",
                    "marker": cell.baseline.marker,
                }
            )
    tiers = {p.prompt_id: p.tier for p in test}
    table = as_evaluation(pa.Table.from_pylist(rows, schema=SAMPLES), update, tiers)
    return table.cast(EVALUATIONS)


def finished_sweep(folder: Path, **settings: object) -> tuple[Plan, Store]:
    """A small plan and a store in which all of its cells are finished."""
    plan = small_plan(folder, **settings)
    store = Store(str(folder / "runs"))
    for number, cell in enumerate(plan.cells):
        finished_cell(store, plan, cell, seed=number)
    return plan, store


def finished_cell(store: Store, plan: Plan, cell: Cell, seed: int = 0) -> CellRecord:
    """Write all files of a finished cell."""
    chosen = plan.pool(cell.probe).train[: cell.size]
    subset = pa.Table.from_pylist(
        [
            {"rank": rank, "prompt_id": p.prompt_id, "tier": p.tier, "pass_rate": 0.25}
            for rank, p in enumerate(chosen)
        ],
        schema=SUBSET,
    )
    subset = with_reason(subset, {**cell.subset_identity, "ties": None})
    store.write_table(subset, "subsets", f"{cell.subset_key}.parquet")
    store.write_json(cell.model_dump(mode="json"), "cells", cell.cell_id, "cell.json")
    record = cell_record(plan, cell, seed)
    finish(store, cell, record, {"trl": "0"})
    return record


def result_json(timing: Mapping[str, Any] = MappingProxyType({}), **more: Any) -> dict[str, Any]:
    """What every `result.json` contains; `more` replaces entries, or adds to them."""
    times = ("start_seconds", "evaluation_seconds", "evaluations", "answers", "answer_tokens")
    amounts = ("prompts", "rollouts", "prompt_tokens", "generated_tokens", "updates", "seconds")
    shares = ("learnable_pct", "accuracy_base", "accuracy_final", "gain")
    return {
        **{"model": "stub", "dataset": "small", "policy": "hard", "seed": 0, "cell_id": "a"},
        **{"updates": 4, "size": 8, "versions": {}, "ledger": dict.fromkeys(amounts, 1)},
        **{"probe_seed": 0, "base": {}, "final": {}},
        "finished_at": "2026-01-01T00:00:00.000+00:00",
        "timing": dict.fromkeys((*times, "decode_steps", "peak_gib"), 0) | timing,
        **dict.fromkeys(shares, 0.5),
        **more,
    }


def group_row(update: int, outcomes: Sequence[str], *, tokens: int = 5, **fields: Any) -> Any:
    """A group as the recorder stores it; each completion has its outcome's reward."""
    rewards = [None if o == "error" else float(o == "correct") for o in outcomes]
    marks = {"rewards": rewards, "outcomes": outcomes, "other_outcomes": outcomes}
    own = {"prompt_id": "p", "tier": "", "tokens": [tokens] * len(outcomes), "components": []}
    return {"update": update, **own, **marks, **fields}


def sample_row(prompt_id: str, sample: int, **fields: object) -> dict[str, Any]:
    """A stored sample: a wrong answer of five tokens, but for these fields."""
    drawn = {"completion": "text", "tokens": 5, "finish": "stop"}
    marks = {"outcome": "wrong", "extracted": "(Z)", "rule": "r"}
    other = {"other_outcome": "wrong", "other_rule": "r"}
    return {"prompt_id": prompt_id, "sample": sample, **drawn, **marks, **other, **fields}


def store_samples(store: Store, spec: ProbeSpec, rows: list[dict[str, Any]]) -> str:
    """Store rows as a part of a probe, as its marker has marked them; returns the part's name."""
    marked = [{"marker": spec.marker, **row} for row in rows]
    return write_part(store, spec.key, spec.split, pa.Table.from_pylist(marked, schema=SAMPLES))


def trl_columns(prompts: Sequence[Prompt]) -> dict[str, list[str]]:
    """The columns with which TRL calls a reward function, without prompts and completions."""
    return {name: [getattr(p, name) for p in prompts] for name in Prompt.__slots__}

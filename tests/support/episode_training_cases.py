"""What the tests of episode training share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from environments_cases import MODULE, call, file_of
from factories import small_plan
from grpo import Killed
from scripted_model import Scripted, calls, characters, counting
from tiny_sampler import SIZES
from transformers import Qwen3Config, Qwen3ForCausalLM

from orchestrator.difficulty.table import difficulty
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import load_pool
from orchestrator.probing.probe_folder import write_key, write_part
from orchestrator.probing.samples import sample_and_mark
from orchestrator.sampling.transformers import TransformersSampler
from orchestrator.selection.stored import store_subset
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.trial import run_cell

GROUP = 4


def turn(chat: str, sample: int) -> str:
    """Sample 0 counts, 1 gives up, 2 calls what does not exist, 3 makes one guess.

    After the first turn it depends on the chat alone.
    """
    if "tool\n" in chat:
        return "Done." if "fly" in chat or "Try." in chat else counting(chat, sample)
    first = {
        0: counting(chat, sample),
        1: "No.",
        2: calls(call("fly"), call("guess", number=0)),
        3: f"Try. {calls(call('guess', number=1))}",
    }
    return first[sample]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Every model of this process says what `turn` says."""
    script = Scripted(turn)
    monkeypatch.setattr(
        TransformersSampler,
        "sample",
        lambda _self, requests, settings: script.sample(requests, settings),
    )
    return script


def plan_of(folder: Path, experiment: dict[str, Any] | None = None, **grpo: Any) -> Plan:
    """One cell of a random model over single characters, with eight prompts to train on."""
    torch.manual_seed(0)
    tokenizer = characters()
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.eos_token_id}
    sizes = {**SIZES, "head_dim": 8, "vocab_size": len(tokenizer), **ids}
    Qwen3ForCausalLM(Qwen3Config(**sizes)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows: list[dict[str, Any]] = [{"prompt": f"Game {n}.", "number": n % 4} for n in range(30)]
    options = {"path": file_of(folder, rows), "mark_limits": {"processes": 1, "memory": 0.5}}
    sizes = {"max_steps": 4, "num_generations": GROUP, "per_device_train_batch_size": 2 * GROUP}
    settings = {
        "grid": {"model": ["stub"], "dataset": ["game"], "policy": ["random"]},
        "budget": 4,
        "probe": {"samples": GROUP, "max_completion_length": 400},
        "grpo": {**sizes, "save_steps": 1, **grpo},
        "lora": {"r": 4, "target_modules": ["q_proj"]},
        "evaluate": {"every": 2, "samples": 2},
    }
    game = {"task": f"{MODULE}:Guess", "options": options}
    return small_plan(folder, datasets={"game": game}, **{**settings, **(experiment or {})})


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    episodes = [[{**e, "seconds": 0} for e in row["episodes"]] for row in rows]
    return [{**row, "episodes": own} for row, own in zip(rows, episodes, strict=True)]


def probed(folder: Path, cell: Cell) -> Store:
    """A store with the probes and the subset of a cell."""
    store, pool = Store(str(folder / "runs")), load_pool(cell.probe.dataset)
    script = Scripted(turn)
    for spec in (cell.probe, cell.baseline):
        requests = [(p, range(spec.settings.samples)) for p in pool.prompts(spec.split)]
        samples = sample_and_mark(script, pool.task, requests, spec.settings.sampling())
        write_key(store, spec)
        write_part(store, spec.key, spec.split, samples)
        if spec is cell.probe:
            store_subset(
                store, cell, difficulty(samples, pool.tiers("train"), samples_per_prompt=4)
            )
    return store


def trained(folder: Path, cell: Cell, stops: Sequence[int]) -> Store:
    """Probe and run a cell to its end, from a new trial after each of `stops`."""
    store = probed(folder, cell)
    for stop in (*stops, 0):

        def report(values: dict[str, Any], stop: int = stop) -> None:
            if stop and values.get("update") == stop:
                raise Killed

        if stop:
            with pytest.raises(Killed):
                run_cell(cell, store.uri, report)
        else:
            run_cell(cell, store.uri, report)
    return store


def outcome(store: Store, cell: Cell) -> tuple[Any, ...]:
    """What a finished cell recorded that does not depend on the clock, and its adapter."""
    finished = CellFolder(store, cell.cell_id).finished()
    assert finished is not None
    result, tables = finished
    ledger = {k: v for k, v in result.ledger.as_json().items() if "seconds" not in k}
    adapter = store.read_bytes("cells", cell.cell_id, "adapter", "adapter_model.safetensors")
    groups = without_seconds(tables["groups"].to_pylist())
    order = [(name, "ascending") for name in ("update", "prompt_id", "sample")]
    return ledger, groups, tables["evaluations"].sort_by(order).to_pylist(), adapter

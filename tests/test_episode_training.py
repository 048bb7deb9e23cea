"""Training on episodes: the tokens and gradients of plain TRL, the record, and resuming."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from environments_of_users import Guess
from factories import small_plan
from grpo import Killed, generation, gradient, one_thread  # noqa: F401 (fixture)
from safetensors.torch import load
from scripted_model import Scripted, calls, characters, counting
from test_environments import MODULE, call, file_of
from test_episodes import SETTINGS
from tiny_sampler import SIZES
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from two_workers import two_workers

from orchestrator.difficulty.table import difficulty
from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import load_pool
from orchestrator.probing.probe_folder import write_key, write_part
from orchestrator.probing.samples import sample_and_mark
from orchestrator.sampling.base import Request
from orchestrator.sampling.transformers import TransformersSampler
from orchestrator.selection.stored import store_subset
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import CellRecord
from orchestrator.training.trainer import build_trainer
from orchestrator.training.trial import run_cell

pytestmark = pytest.mark.slow

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


def trainer_of(folder: Path, **grpo: Any) -> tuple[Any, CellRecord, Sequence[Any]]:
    [cell] = plan_of(folder, **grpo).cells
    pool, record = load_pool(cell.probe.dataset), CellRecord()
    subset = [*pool.train[:2]]
    trainer: Any = build_trainer(cell, folder / "out", pool.task, subset, record)
    return trainer, record, subset


def plain_trl(folder: Path, subset: Sequence[Any], limit: int) -> Any:
    """TRL's own trainer and loop, with the class as it is, and the same model's turns."""
    script, settings = Scripted(turn), replace(SETTINGS, max_completion_length=limit)
    args = GRPOConfig(
        str(folder / "trl"),
        num_generations=GROUP,
        per_device_train_batch_size=len(subset) * GROUP,
        max_completion_length=limit,
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    rows = [
        {"prompt": [{"role": "user", "content": p.question}], **json.loads(p.info)} for p in subset
    ]
    trainer: Any = GRPOTrainer(
        model=str(folder / "model"),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=characters(),
        environment_factory=Guess,
    )

    def single_turn(prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        requests = [Request("", [], [i % GROUP], ids=ids) for i, ids in enumerate(prompt_ids)]
        drawn = [script.turn(request, request.samples[0], settings) for request in requests]
        return [[*each.ids] for each in drawn], None

    trainer._generate_single_turn = single_turn
    return trainer


@pytest.mark.parametrize("limit", [400, 130, 75, 60, 20])
def test_an_update_has_the_tokens_the_mask_and_the_rewards_of_trl(
    tmp_path: Path, scripted: Scripted, limit: int
) -> None:
    grpo = {"max_completion_length": limit, "scale_rewards": "group"}
    trainer, _, subset = trainer_of(tmp_path, **grpo)
    ours, theirs = generation(trainer), generation(plain_trl(tmp_path, subset, limit))
    names = ("prompt_ids", "completion_ids", "tool_mask", "completion_mask", "advantages")
    rows = [  # in any order: each shuffles the prompts in its own way
        sorted(zip(*(batch[name].tolist() for name in names), strict=True))
        for batch in (ours, theirs)
    ]
    for mine, other in zip(*rows, strict=True):
        assert mine[:-1] == other[:-1]
        assert mine[-1] == pytest.approx(other[-1], abs=1e-4)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_gradients_are_those_of_trl(tmp_path: Path, scripted: Scripted, beta: float) -> None:
    trainer, _, _ = trainer_of(tmp_path, beta=beta)
    output = generation(trainer)
    assert bool((output["tool_mask"] < output["completion_mask"]).any())
    assert float(output["advantages"].abs().sum()) > 0
    trainer.model.double()
    batch = {k: v.double() if v.is_floating_point() else v for k, v in output.items()}
    [kept] = trainer._with_kept_rows([batch])
    ours = gradient(trainer, [kept], type(trainer)._compute_loss)
    assert trainer.why_padded == "", "rows share their prompts"
    trainer.why_padded = "TRL's own"
    theirs = gradient(trainer, [batch], GRPOTrainer._compute_loss)
    assert theirs.norm() > 1e-6
    assert (ours - theirs).norm() / theirs.norm() < 1e-6


def test_groups_hold_what_happened_in_their_episodes(tmp_path: Path, scripted: Scripted) -> None:
    trainer, record, _ = trainer_of(tmp_path)
    generation(trainer)
    table = record.groups.table()
    for row in table.to_pylist():
        assert [e["turns"] for e in row["episodes"]][1:] == [1, 2, 2]
        assert [e["tool_calls"] for e in row["episodes"]][1:] == [0, 2, 1]
        assert [e["tool_errors"] for e in row["episodes"]] == [0, 0, 1, 0]
        assert row["rewards"] == row["scores"]
    tally = record.groups.tallies[1]
    assert (tally.rollouts, tally.tool_errors) == (8, 2) and tally.environment_seconds > 0
    assert GroupRecorder(table.to_pylist()).tallies == record.groups.tallies
    assert record.groups.metrics(1)["train/turns"] == tally.turns / 8


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


def worker(rank: int, folder: Path, cell_json: str) -> None:
    """Run a cell as one of two workers, whose models say what `turn` says."""
    script = Scripted(turn)
    TransformersSampler.sample = lambda _, requests, settings: script.sample(requests, settings)  # type: ignore[method-assign]
    run_cell(Cell.model_validate_json(cell_json), f"{folder}/runs", lambda _: None)


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


@pytest.mark.parametrize("policy", ["random", "dynamic"])
def test_two_workers_play_the_episodes_of_one(
    tmp_path: Path, scripted: Scripted, policy: str
) -> None:
    results = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        grid = {"model": ["stub"], "dataset": ["game"], "policy": [policy]}
        changes = {"grid": grid, "resources": {"workers": count, "cpus": 1}}
        [cell] = plan_of(folder, changes, per_device_train_batch_size=2 * GROUP // count).cells
        if count == 1:
            store = trained(folder, cell, ())
        else:
            store = probed(folder, cell)
            two_workers(worker, folder, cell.model_dump_json())
        results.append(outcome(store, cell))
    (one, two) = results
    assert one[:3] == two[:3] and one[0]["tool_calls"] > 0
    weights = [load(adapter) for adapter in (one[3], two[3])]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name])


def test_a_resumed_cell_is_equal_to_an_undisturbed_one(tmp_path: Path, scripted: Scripted) -> None:
    results = []
    for stops in ((), (2, 3)):
        folder = tmp_path / f"stops{len(stops)}"
        folder.mkdir()
        [cell] = plan_of(folder).cells
        results.append(outcome(trained(folder, cell, stops), cell))
    assert results[0] == results[1]
    ledger, groups, evaluations, _ = results[0]
    assert ledger["turns"] == sum(e["turns"] for row in groups for e in row["episodes"])
    assert ledger["tool_calls"] > 0 and ledger["tool_errors"] == 8
    assert {row["update"] for row in evaluations} == {0, 2, 4}
    assert all(row["episode"]["turns"] for row in evaluations)


@pytest.mark.parametrize(
    ("experiment", "grpo", "problem"),
    [
        ({"rollouts": "trl"}, {}, "leave out rollouts: trl"),
        ({}, {"repetition_penalty": 1.1}, "leave out grpo.repetition_penalty"),
        ({"probe": {"samples": 4, "stop": ["x"]}}, {}, "leave probe.stop out"),
    ],
)
def test_settings_under_which_no_episode_is_played(
    tmp_path: Path, experiment: dict[str, Any], grpo: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UserError, match=problem) as refused:
        plan_of(tmp_path, experiment, **grpo)
    assert "datasets.game" in str(refused.value)

"""What cells compute, and how fast that was measured in a storage."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import finished_cell, result_json, small_plan

from orchestrator.config.experiment import Resources
from orchestrator.config.library_settings import GRPO_DEFAULTS
from orchestrator.cost.caps import UsageMeter, make_queue
from orchestrator.cost.memory import SHAPES, gpu_type
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.work import Lengths, Speed, Work, cell_work, mean_lengths, training_passes
from orchestrator.pipeline.estimate import estimate
from orchestrator.pipeline.probe_texts import probe_labels
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site, timetable
from orchestrator.planning.result import Result
from orchestrator.storage.store import Store


def test_lengths_are_those_of_the_stored_samples(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    train = plan.pool(plan.cells[0].probe).train
    characters = np.mean([len(prompt.question) for prompt in train])
    stored = np.array([[7, -1], [0, 9]], np.int32)
    assert mean_lengths(stored, train, 32) == Lengths(pytest.approx(characters / 4 + 40), 16 / 3)
    assert mean_lengths(stored[:0], train, 32) == (pytest.approx(characters / 4 + 40), 32, True)
    assert mean_lengths(stored, train[:0], 32).prompt == 40


def test_the_work_of_a_cell_by_hand(tmp_path: Path) -> None:
    """12 questions: 8 samples and a greedy one, twice; 6 others: 4 samples, at the end."""
    other = {"task": "shuffled_objects", "options": {"train": 0, "test": 6, "seed": 5}}
    evaluate = {"every": 2, "samples": 8, "greedy": True, "ood": ["other"], "ood_samples": 4}
    refresh = {"every": 2, "samples": 5, "share": 0.5}
    plan = small_plan(tmp_path, datasets={"other": other}, evaluate=evaluate, refresh=refresh)
    [cell, *_] = plan.cells
    rollouts = cell.rollouts + 5 * 4  # half of eight prompts, once
    work = cell_work(plan, cell, Lengths(10, 999), Lengths(20, 7))
    assert work == Work(rollouts * (10 + 256), (2 * 12 * 9 + 6 * 4) * 27), "256 is the limit"
    assert work.tokens == work.training + work.evaluation
    half = work.training / 2 + work.evaluation / 2
    assert [work.until(cell, update) for update in (0, 2, 4, 9)] == [0, half, *[work.tokens] * 2]
    assert work.flops(cell, 1e6) == 2e6 * (3 * work.training + work.evaluation)
    later = cell.model_copy(update={"evaluate_engine": "vllm"})
    assert cell_work(plan, later, Lengths(10, 7), Lengths(20, 7)).evaluation == 0


@pytest.mark.parametrize(
    ("grpo", "gpus", "passes"),
    [
        ({}, 0, 3),  # drawn, then forward and backward
        ({}, 1, 4),  # which computes activations again on a GPU
        ({"gradient_checkpointing": False}, 1, 3),
        ({"beta": 0.1}, 0, 4),
        ({"num_iterations": 2}, 0, 6),
        ({"steps_per_generation": 4}, 0, 4),
    ],
)
def test_passes_through_the_model_follow_from_trls_settings(
    tmp_path: Path, grpo: dict[str, Any], gpus: float, passes: int
) -> None:
    [cell, *_] = small_plan(tmp_path).cells
    settings = GRPO_DEFAULTS | cell.grpo | {"gradient_checkpointing": None, "beta": 0.0} | grpo
    changed = {"grpo": settings, "resources": Resources(gpus=gpus)}
    assert training_passes(cell.model_copy(update=changed)) == passes


def result_with(seconds: float, **timing: float) -> Result:
    """100 tokens of rollouts, 50 of them of prompts, of which each completion has 5."""
    spent = {"rollouts": 10, "prompt_tokens": 50, "generated_tokens": 50, "seconds": seconds}
    return Result.model_validate(result_json(ledger=result_json()["ledger"] | spent, timing=timing))


def test_a_speed_is_the_median_of_finished_cells() -> None:
    measured = {"start_seconds": 3.0, "evaluation_seconds": 5.0}
    evaluated = result_with(7.0, **measured, answers=4, answer_tokens=80)
    assert Speed.of([evaluated], "x") == Speed(3, 12 / 200, "x")
    by_engine = result_with(7.0, answers=4, answer_tokens=80)
    assert Speed.of([by_engine], "x") == Speed(0, 7 / 100, "x")
    others = [evaluated, result_with(1.0), result_with(900.0)]
    assert Speed.of(others, "x") == Speed(0, 12 / 200, "x")


def test_the_gpu_type_is_read_from_rays_resources_or_the_drivers_name() -> None:
    assert gpu_type({"CPU": 4, "accelerator_type:H200": 1}) == "h200"
    assert gpu_type({"NVIDIA A100-SXM4-80GB": 0}) == "a100"
    assert gpu_type({"CPU": 4}) is None


def test_a_finished_cell_gives_the_speed_of_its_model(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    store, [first, second] = Store(str(tmp_path / "runs")), plan.cells
    before = estimate(Run.of(plan, store, {"CPU": 2.0}), plan.cells)
    assert before.speeds == {} and before.at_most
    train, test = before.probes.values()
    assert (train.samples, test.samples) == (40 * 4, 12 * 8)
    assert (train.pace, test.pace) == (0.5, 0.5), "two samplers, and a cell has one core"
    finished_cell(store, plan, first)
    after = estimate(Run.of(plan, store, {"CPU": 2.0}), plan.cells)
    result = store.read_json("cells", first.cell_id, "result.json")
    tokens = result["ledger"]["prompt_tokens"] + result["ledger"]["generated_tokens"]
    seconds = result["ledger"]["seconds"] + result["timing"]["evaluation_seconds"]
    assert after.speeds["stub"].source == "measured on 1 finished cell"
    assert 0 < after.speeds["stub"].per_token <= seconds / tokens
    assert after.works[second.cell_id] == before.works[second.cell_id]
    given = estimate(Run.of(plan, store, {"CPU": 2.0}), plan.cells, before.speeds)
    assert given.speeds == {}, "those of an earlier estimate"


def test_cells_of_other_experiments_count_with_the_same_resources(tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path, seeds=[0]), Store(str(tmp_path / "runs"))
    finished_cell(store, plan, plan.cells[0])
    other = small_plan(tmp_path, seeds=[9], updates=8)
    [speed] = estimate(Run.of(other, store, {"CPU": 2.0}), other.cells).speeds.values()
    assert speed.source == "measured on 1 finished cell"
    larger = small_plan(tmp_path, seeds=[9], resources={"cpus": 2})
    assert estimate(Run.of(larger, store, {"CPU": 2.0}), larger.cells).speeds == {}


def test_a_model_of_the_same_shape_and_precision_is_as_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = small_plan(tmp_path), Store(str(tmp_path / "runs"))
    finished_cell(store, plan, plan.cells[0])
    (tmp_path / "model" / "config.json").write_text('{"tuned": true}')  # another model
    tuned = small_plan(tmp_path)
    assert estimate(Run.of(tuned, store, {"CPU": 2.0}), tuned.cells).speeds == {}, "unknown shapes"
    shape = SHAPES["Qwen/Qwen2.5-0.5B-Instruct"]
    monkeypatch.setattr("orchestrator.pipeline.estimate.shape_of", lambda model: shape)
    estimates = estimate(Run.of(tuned, store, {"CPU": 2.0}), tuned.cells)
    assert estimates.speeds["stub"].source.endswith("of a model of the same shape")
    assert estimates.parameters == {"stub": shape.parameters}
    models = {"stub": {"path": str(tmp_path / "model"), "dtype": "bfloat16"}}
    precise = small_plan(tmp_path, models=models)
    assert estimate(Run.of(precise, store, {"CPU": 2.0}), precise.cells).speeds == {}


def test_of_a_probe_by_another_engine_nothing_is_measured(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "runs"))
    on_gpu = small_plan(tmp_path, resources={"gpus": 0.5})
    probes = estimate(Run.of(on_gpu, store, {"CPU": 8.0, "GPU": 4.0}), on_gpu.cells).probes
    assert {probe.pace for probe in probes.values()} == {0.5 / 4}
    on_cpu = estimate(Run.of(on_gpu, store, {"CPU": 8.0}), on_gpu.cells).probes
    assert {probe.pace for probe in on_cpu.values()} == {None}
    engine = {"samples": 4, "max_completion_length": 32, "engine": "vllm"}
    by_vllm = small_plan(tmp_path, resources={"gpus": 1}, probe=engine)
    probes = estimate(Run.of(by_vllm, store, {"CPU": 8.0, "GPU": 1.0}), by_vllm.cells).probes
    assert [probe.pace for probe in probes.values()] == [None, 1.0], "evaluations are the trainer's"
    site = Site({"CPU": 8.0, "GPU": 1.0})
    speeds = {"stub": Speed(0.0, 1.0)}
    run = Run.of(by_vllm, store, site.cluster)
    planned = timetable(run, by_vllm.cells, site, 40, {}, speeds)
    assert planned.eta_seconds and planned.probe_seconds is None and planned.gpu_hours
    assert "without probes" in planned.time_lines()[0]


def test_every_probe_is_counted_and_has_a_label_of_its_own(tmp_path: Path) -> None:
    """Two probe seeds share one test set, which is also evaluated greedily: four probes."""
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["hard"], "probe_seed": [0, 1]}
    settings = {"grid": grid, "evaluate": {"every": 2, "samples": 8, "greedy": True}}
    plan, store = small_plan(tmp_path, **settings), Store(str(tmp_path / "runs"))
    finished_cell(store, plan, plan.cells[0])
    expected = estimate(Run.of(plan, store, {"CPU": 2.0}), plan.cells)
    assert len(plan.probes) == len(expected.probes) == 4
    queue = make_queue(
        plan.experiment, plan.cells, expected, Capacity((2.0,), 2, "CPU"), UsageMeter()
    )
    left = queue.forecast.left()
    assert left and left.seconds > queue.forecast.probe_seconds() > 0
    assert set(probe_labels(plan.probes).values()) == {
        "stub/small train, seed 0",
        "stub/small train, seed 1",
        "stub/small test",
        "stub/small test, greedy",
    }

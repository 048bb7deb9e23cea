"""How many cells fit a GPU's memory, and what to change if too few do."""

import re
from pathlib import Path

import pytest
from factories import result_json, small_plan

from orchestrator.cost.memory import GIB, GPUS, SHAPES, fit_training
from orchestrator.cost.memory_fit import memory_fit
from orchestrator.pipeline.estimate import finished_results, measured_memory
from orchestrator.storage.store import Store
from orchestrator.training.record import CellRecord

SHAPE = SHAPES["Qwen/Qwen3-14B"]
CONFIG = (
    f'{{"num_hidden_layers": {SHAPE.layers}, "hidden_size": {SHAPE.hidden}, '
    f'"num_attention_heads": {SHAPE.heads}, "num_key_value_heads": {SHAPE.kv_heads}, '
    f'"head_dim": {SHAPE.head_dim}, "intermediate_size": {SHAPE.intermediate}, '
    f'"vocab_size": {SHAPE.vocab}}}'
)


def lines(folder: Path, gpu: str, **settings: object) -> list[str]:
    small_plan(folder)
    (folder / "model" / "config.json").write_text(CONFIG)
    plan = small_plan(folder, **settings)
    store = Store(str(folder / "runs"))
    results = finished_results(plan, store)
    fits = memory_fit(plan, GPUS[gpu], measured_memory(plan, store, results))
    return [line for model, fit in fits.items() for line in fit.lines(model)]


@pytest.mark.parametrize(
    ("gpu", "gpus", "words"),
    [
        ("h200", 1, "3 .* H200 141GB$"),
        ("h100", 1, "1 .* H100 80GB$"),
        ("h200", 0.25, "4 .* H200 141GB, 3 .* gpus: 0.33"),
        ("l40s", 1, "1 .* L40S 48GB$"),
    ],
)
def test_a_plan_states_how_many_cells_fit_on_a_gpu(
    tmp_path: Path, gpu: str, gpus: float, words: str
) -> None:
    [line] = lines(tmp_path, gpu, resources={"gpus": gpus})
    assert re.match(f"memory: .* stub .* GiB.*: {words}", line)


def test_a_cell_that_does_not_fit_is_reported(tmp_path: Path) -> None:
    grpo = {
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_steps": 4,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 8192,
    }
    [line] = lines(tmp_path, "l40s", resources={"gpus": 1}, grpo=grpo)
    assert "L40S 48GB: " in line


def test_trials_without_a_gpu_have_no_memory_line(tmp_path: Path) -> None:
    assert lines(tmp_path, "h100") == []


def test_measured_peaks_replace_the_estimate(tmp_path: Path) -> None:
    [estimate] = lines(tmp_path, "h200", resources={"gpus": 1})
    first, second, *_ = small_plan(tmp_path, resources={"gpus": 1}).cells
    store = Store(str(tmp_path / "runs"))
    for cell, peak in ((first, 30.0), (second, 20.0)):
        own = {"cell_id": cell.cell_id, "timing": {"peak_gib": peak}}  # as of earlier versions
        store.write_json(result_json(**own), "cells", cell.cell_id, "result.json")
    [line] = lines(tmp_path, "h200", resources={"gpus": 1})
    assert re.search(r"31 GiB \(measured: 2 finished cells; .*\): 4 .* H200 141GB", line)
    assert "(estimated)" in estimate
    [estimated] = re.findall(r"(\d+) GiB", estimate)
    assert f"estimated {estimated} GiB" in line


def test_phases_of_finished_and_running_cells_stand_beside_their_estimates(tmp_path: Path) -> None:
    [estimate] = lines(tmp_path, "h200", resources={"gpus": 1})
    first, second, *_ = small_plan(tmp_path, resources={"gpus": 1}).cells
    store = Store(str(tmp_path / "runs"))
    peaks = {"rollout": 28.0, "update": 12.0}
    CellRecord(peak_gib=30.0, peaks_gib={**peaks}).save(store, second.cell_id, 2)
    line, phases = lines(tmp_path, "h200", resources={"gpus": 1})
    assert "31 GiB (measured: 1 running cell; " in line
    assert re.search(r"rollout 28\.0 \(\d+\.\d\), update 12\.0 \(\d+\.\d\)$", phases)

    own = {"peak_gib": 20.0, "peaks_gib": {"update": 14.0, "evaluation": 9.0}}
    result = result_json(cell_id=first.cell_id, timing=own)
    store.write_json(result, "cells", first.cell_id, "result.json")
    line, phases = lines(tmp_path, "h200", resources={"gpus": 1})
    assert "31 GiB (measured: 1 finished cell and 1 running cell; " in line
    assert re.search(r"rollout 28\.0 .*, update 14\.0 .*, evaluation 9\.0 ", phases)
    assert "(estimated)" in estimate


def test_training_gets_the_largest_batch_and_4_bits_only_as_a_last_resort() -> None:
    shape = SHAPES["Qwen/Qwen3-4B"]
    large = fit_training(shape, 80 * GIB, 64, 256, 512, 32)
    assert (large.batch, large.load_in_4bit, large.fits) == (16, False, True)
    small = fit_training(shape, 24 * GIB, 64, 256, 512, 32)
    assert small.load_in_4bit and small.fits
    assert small.peak <= 0.9 * 24 * GIB
    none = fit_training(shape, 8 * GIB, 64, 256, 512, 32)
    assert (none.batch, none.load_in_4bit, none.fits) == (1, True, False)
    assert fit_training(shape, 80 * GIB, 12, 256, 512, 32).batch == 4  # divides the completions

"""Estimated seconds: what they grow with, what measuring changes, what TRL's settings mean."""

import json
from pathlib import Path

import numpy as np
import pytest
from factories import finished_cell, small_plan
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.library_settings import GRPO_DEFAULTS
from orchestrator.cost.caps import UsageMeter, queue_of
from orchestrator.cost.expected import expect, kind_of, probe_labels
from orchestrator.cost.memory import SHAPES
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.throughput import (
    MACHINES,
    Cost,
    Lengths,
    Scale,
    Work,
    assumed_lengths,
    cost,
    rounds,
    scale_of,
    size_of,
)
from orchestrator.storage.store import Store

WORK = Work(100, 64, 200, 100, 6400, 0, 2, 800, 150)
H100 = MACHINES["h100"]


def test_a_model_in_four_bits_reads_less_and_computes_as_much() -> None:
    shape = SHAPES["Qwen/Qwen3-4B"]
    whole, packed = size_of(shape, "bfloat16"), size_of(shape, "bfloat16", load_in_4bit=True)
    assert whole.weight_bytes == 2 * whole.parameters
    assert packed.weight_bytes < whole.weight_bytes / 2
    assert (packed.parameters, packed.kv_bytes) == (whole.parameters, whole.kv_bytes)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 64))
def test_the_expected_longest_lies_between_the_mean_and_the_maximum(
    tokens: list[int], rows: int
) -> None:
    lengths = Lengths(10, np.array(tokens, dtype=float))
    assert lengths.mean - 1e-9 <= lengths.longest(rows) <= max(tokens) + 1e-9
    assert lengths.longest(1) == pytest.approx(lengths.mean)


def test_the_expected_longest_is_what_drawing_gives() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 100, 500).astype(float)
    drawn = rng.choice(tokens, (4000, 8)).max(axis=1).mean()
    assert Lengths(10, tokens).longest(8) == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize(
    "more",
    [{"generations": 200}, {"steps": 400}, {"prompt": 500}, {"trained": 12800}, {"scored": 6400}],
)
def test_more_work_takes_longer(more: dict[str, int]) -> None:
    size = size_of(SHAPES["Qwen/Qwen3-4B"])
    assert cost(WORK._replace(**more), size, H100).training > cost(WORK, size, H100).training
    answers = cost(WORK._replace(answers=1600), size, H100)
    assert answers.evaluation > cost(WORK, size, H100).evaluation


def test_a_larger_model_a_slower_device_and_plain_decoding_take_longer() -> None:
    small, large = (size_of(SHAPES[f"Qwen/Qwen3-{billions}"]) for billions in ("4B", "14B"))
    base = cost(WORK, small, H100).seconds
    assert cost(WORK, large, H100).seconds > base
    assert cost(WORK, small, MACHINES["a100"]).seconds > base
    assert cost(WORK._replace(vllm=True), small, H100).seconds < base


@pytest.mark.parametrize(
    ("grpo", "workers", "wanted"),
    [
        ({}, 1, (100, 8, 800, 0)),
        ({"gradient_accumulation_steps": 4}, 1, (100, 32, 3200, 0)),
        ({"num_iterations": 2}, 1, (50, 8, 800, 400)),
        ({"num_iterations": 2, "beta": 0.1}, 1, (50, 8, 800, 800)),
        ({"beta": 0.1}, 1, (100, 8, 800, 800)),
        ({"steps_per_generation": 4}, 1, (25, 32, 800, 800)),
        ({"generation_batch_size": 64}, 2, (25, 32, 800, 800)),
    ],
)
def test_generations_and_rows_follow_from_trls_settings(
    grpo: dict[str, float], workers: int, wanted: tuple[int, ...]
) -> None:
    assert rounds(GRPO_DEFAULTS | grpo, workers) == wanted


def test_measured_cells_scale_what_the_catalogue_says() -> None:
    said = Cost(10, 100, 20)
    scale = scale_of([(said, Cost(5, 150, 0)), (said, Cost(5, 170, 0)), (said, Cost(0, 900, 0))])
    assert scale == Scale(0.5, 1.7, 1.7, 3), "medians; evaluation was not measured"
    assert scale(said) == Cost(5, 170, 34)
    assert scale_of([]) == Scale()


def test_where_nothing_was_sampled_lengths_are_assumed_and_say_so() -> None:
    lengths = assumed_lengths(30, 200)
    assert not lengths.seen
    assert 90 < lengths.mean < 110
    assert lengths.longest(64) > 190


def test_a_resource_of_ray_or_a_name_of_the_driver_names_the_machine() -> None:
    assert kind_of({"CPU": 4, "accelerator_type:H200": 1}) == "h200"
    assert kind_of({"NVIDIA A100-SXM4-80GB": 0}) == "a100"
    assert kind_of({"CPU": 4}) is None


def test_a_finished_cell_of_the_plan_is_expected_to_take_what_it_took(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    store, [first, second] = Store(str(tmp_path / "runs")), plan.cells
    nothing = expect(plan, store, plan.cells, {"CPU": 2.0})
    assert nothing.cells == {}
    assert "not known" in nothing.sources["stub"]
    finished_cell(store, plan, first)
    known = expect(plan, store, plan.cells, {"CPU": 2.0})
    assert known.sources == {"stub": "measured: 1 finished cell in this storage"}
    assert known.cells[first.cell_id].training == pytest.approx(12.5)
    assert known.cells[second.cell_id].training == pytest.approx(12.5, rel=0.1)
    assert len(known.probes) == 2 and all(known.probes.values())


def test_cells_of_another_experiment_tell_the_models_speed(tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path, seeds=[0]), Store(str(tmp_path / "runs"))
    finished_cell(store, plan, plan.cells[0])
    other = small_plan(tmp_path, seeds=[9], updates=8)
    found = expect(other, store, other.cells, {"CPU": 2.0})
    assert found.sources["stub"].startswith("measured: 1 finished cell")
    assert found.cells[other.cells[0].cell_id].training > 12.5


def test_a_result_keeps_what_its_time_went_to(tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path), Store(str(tmp_path / "runs"))
    cell = plan.cells[0]
    finished_cell(store, plan, cell)
    timing = store.read_json("cells", cell.cell_id, "result.json")["timing"]
    assert (timing["evaluations"], timing["answers"]) == (2, 2 * 12 * 8)
    assert timing["answer_tokens"] == 20 * timing["answers"]
    assert json.dumps(timing)


def test_every_probe_is_counted_and_has_a_label_of_its_own(tmp_path: Path) -> None:
    """Two probe seeds share one test set, which is also evaluated greedily: four probes."""
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["hard"], "probe_seed": [0, 1]}
    settings = {"grid": grid, "evaluate": {"every": 2, "samples": 8, "greedy": True}}
    plan, store = small_plan(tmp_path, **settings), Store(str(tmp_path / "runs"))
    finished_cell(store, plan, plan.cells[0])
    expected = expect(plan, store, plan.cells, {"CPU": 2.0})
    assert len(plan.probes) == len(expected.probes) == 4
    queue = queue_of(
        plan.experiment,
        plan.cells,
        expected.cells,
        expected.probes,
        Capacity((2.0,), 2, "CPU"),
        UsageMeter(),
    )
    assert queue.forecast.seconds_left() > sum(expected.probes.values())
    assert set(probe_labels(plan.probes).values()) == {
        "stub/small train, probe seed 0",
        "stub/small train, probe seed 1",
        "stub/small test",
        "stub/small test, greedy",
    }

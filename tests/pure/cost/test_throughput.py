"""Estimated seconds: what they depend on, how they are calibrated, what TRL's settings mean."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import finished_cell, result_json, small_plan
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.experiment import Resources
from orchestrator.config.grpo import GrpoBatch, GrpoSettings
from orchestrator.config.library_settings import GRPO_DEFAULTS
from orchestrator.cost.caps import UsageMeter, make_queue
from orchestrator.cost.memory import SHAPES
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.throughput import (
    BANDWIDTH_UTILISATION,
    DEVICES,
    FLOPS_UTILISATION,
    LAUNCH_SECONDS_VLLM,
    LOAD_BANDWIDTH,
    Calibration,
    Cost,
    Device,
    Draws,
    Expected,
    GenerationCounts,
    ModelSize,
    TokenLengths,
    Workload,
    calibrate,
    cell_workload,
    cpu,
    finished_workload,
    generation_counts,
    gpu_share,
    gpu_type,
    measured_cost,
    model_size,
    model_speed,
    nominal_cost,
    sampling_seconds,
    skips_dead_groups,
    token_lengths,
    worker_device,
)
from orchestrator.difficulty.estimates import START, live_chance
from orchestrator.pipeline.estimate import estimate_costs, live_share, probe_labels
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import Cell
from orchestrator.planning.result import Result
from orchestrator.probing.outcomes import NONE
from orchestrator.storage.store import Store
from tasks import OUTCOMES

H100 = DEVICES["h100"]


def test_four_bits_read_fewer_bytes_and_compute_as_much() -> None:
    shape = SHAPES["Qwen/Qwen3-4B"]
    whole = model_size(shape, "bfloat16")
    quantised = model_size(shape, "bfloat16", load_in_4bit=True)
    assert whole.weight_bytes == 2 * whole.parameters
    assert quantised.weight_bytes < whole.weight_bytes / 2
    assert (quantised.parameters, quantised.kv_bytes) == (whole.parameters, whole.kv_bytes)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 64))
def test_the_expected_longest_lies_between_the_mean_and_the_maximum(
    tokens: list[int], rows: int
) -> None:
    lengths = TokenLengths(10, np.array(tokens, dtype=float))
    assert lengths.mean - 1e-9 <= lengths.longest(rows) <= max(tokens) + 1e-9
    assert lengths.longest(1) == pytest.approx(lengths.mean)


def test_the_expected_longest_agrees_with_simulation() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 100, 500).astype(float)
    drawn = rng.choice(tokens, (4000, 8)).max(axis=1).mean()
    assert TokenLengths(10, tokens).longest(8) == pytest.approx(drawn, rel=0.01)


# A megabyte of weights in a second, and a billion operations; 0.5 s to launch a layer.
SLOW = Device("slow", 1e6 / BANDWIDTH_UTILISATION, 1e9 / FLOPS_UTILISATION, 0.5, 3.0, rows=256)
SMALL = ModelSize(parameters=1e6, layers=2, weight_bytes=2e6, kv_bytes=10)


def test_seconds_of_sampling_by_hand() -> None:
    draws = Draws(completions=4, mean=6, longest=12, prompt=20, together=2)
    read = (2e6 + 2 * (20 / 2 + 6 / 2) * 10) / 1e6  # 2 rows are decoded at once on average
    prefill = 2 * (4 / 2 * 20) * 1e6 / 1e9
    assert sampling_seconds(draws, SMALL, SLOW) == pytest.approx(12 * (2 * 0.5 + read) + prefill)
    by_vllm = sampling_seconds(draws, SMALL, SLOW, vllm=True)
    assert by_vllm == pytest.approx(12 * (2 * LAUNCH_SECONDS_VLLM + read) + prefill)
    few = SLOW._replace(rows=3)  # the fourth waits: 14 steps, 24 / 14 rows
    read = (2e6 + 24 / 14 * 13 * 10) / 1e6
    assert sampling_seconds(draws, SMALL, few) == pytest.approx(14 * (1 + read) + prefill)
    weak = SLOW._replace(flops=1e6 / FLOPS_UTILISATION)  # a token costs 2 operations a parameter
    assert sampling_seconds(draws, SMALL, weak) == pytest.approx(12 * (1 + 2 * 2) + 80)
    assert sampling_seconds(draws._replace(completions=0), SMALL, SLOW) == 0


def test_seconds_of_a_cell_by_hand() -> None:
    answers = Draws(completions=4, mean=6, longest=12, prompt=20, together=2)
    counts = GenerationCounts(generations=5, rows=8, trained=40, scored=16, drawn=4, read=2)
    work = Workload(counts, steps=12, tokens=6, prompt=20, evaluations=3, answers=answers, live=0.5)
    drawn = sampling_seconds(Draws(8, 6, 12, 20, 4), SMALL, SLOW)
    flops = 40 * 0.5 * (2 + 2 + 2) + 2 * 16
    update = flops * (20 / 2 + 6) * 1e6 / 1e9
    cost = nominal_cost(work, SMALL, SLOW)
    assert cost.start == pytest.approx(3 + 2e6 / LOAD_BANDWIDTH)
    assert cost.training == pytest.approx(5 * drawn + update)
    assert cost.evaluation == pytest.approx(3 * sampling_seconds(answers, SMALL, SLOW))
    assert cost.seconds == pytest.approx(sum(cost))
    by_trl = nominal_cost(work._replace(trl_draws=True), SMALL, SLOW).training
    step = 2 * 0.5 + (2e6 + 8 * (20 + 12 / 2) * 10) / 1e6
    prefill = 2 * 8 * 20 * 1e6 / 1e9
    assert by_trl == pytest.approx(5 * (12 * step + prefill) + update)
    by_vllm = nominal_cost(work._replace(trl_draws=True, vllm=True), SMALL, SLOW).training
    step += 2 * (LAUNCH_SECONDS_VLLM - 0.5)
    assert by_vllm == pytest.approx(5 * (12 * step + prefill) + update)


def test_the_device_of_a_worker_is_its_share() -> None:
    half = worker_device(Resources(gpus=0.5), "h100")
    assert half == H100._replace(bandwidth=H100.bandwidth / 2, flops=H100.flops / 2)
    assert gpu_share(H100, 2).flops == 2 * H100.flops
    two, small = (worker_device(Resources(cpus=n), "h100") for n in (2, 0.25))
    assert (two.name, two.bandwidth, two.flops, two.rows) == ("2 CPU", 2e10, 12e10, 256)
    assert small == cpu(1), "a share of a core decodes as one"


def test_a_model_is_measured_estimated_or_unknown() -> None:
    pairs = [(Cost(1, 2, 3), Cost(2, 6, 12))]
    measured = model_speed(None, pairs, Resources(), "h100")
    assert measured.size is not None and measured.calibration == Calibration(2, 3, 4)
    assert model_speed(SMALL, pairs * 2, Resources(), "h100")[:2] == (
        SMALL,
        Calibration(2, 3, 4),
    )
    assert model_speed(None, [], Resources(), "h100")[:2] == (None, Calibration())
    for parameters, count in ((1e6, "1.0 million"), (1e9, "1.0 billion")):
        size = SMALL._replace(parameters=parameters)
        speed = model_speed(size, [], Resources(gpus=1), "a100")
        assert speed[:2] == (size, Calibration()) and count in speed.source


def test_lengths_are_those_of_the_stored_samples(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    spec, train = plan.cells[0].probe, plan.pool(plan.cells[0].probe).train
    characters = np.mean([len(prompt.question) for prompt in train])
    stored = np.array([[7, -1], [0, 9]], np.int32)
    lengths = token_lengths(stored, train, spec)
    assert lengths.prompt == pytest.approx(characters / 4 + 40)
    assert lengths.completions.tolist() == [7, 0, 9]
    assumed = token_lengths(stored[:0], train, spec)
    assert assumed.prompt == lengths.prompt
    assert (assumed.completions.min(), assumed.completions.max()) == (1, 32), "the probe's limit"
    assert assumed.mean == pytest.approx(16.5)
    assert assumed.longest(8) == pytest.approx(32 * 8 / 9, rel=0.05), "uniform"
    assert token_lengths(stored, train[:0], spec).prompt == 40


def test_the_measured_cost_is_that_of_the_result() -> None:
    timing = {"start_seconds": 3.0, "evaluation_seconds": 5.0}
    ledger = result_json()["ledger"] | {"seconds": 7.0}
    result = Result.model_validate(result_json(ledger=ledger, timing=timing))
    assert measured_cost(result) == Cost(3, 7, 5)
    assert measured_cost(Result.model_validate(result_json(ledger=ledger))) == Cost(0, 7, 0)


@pytest.mark.parametrize(
    ("grpo", "masked", "skips"),
    [
        ({}, False, True),
        ({"beta": 0.1}, False, False),
        ({"beta": 0.1}, True, True),
        ({"top_entropy_quantile": 0.2}, False, False),
        ({"entropy_coef": 0.01}, True, False),
    ],
)
def test_dead_groups_are_skipped_where_that_is_exact(
    grpo: dict[str, float], masked: bool, skips: bool
) -> None:
    assert skips_dead_groups(GrpoSettings.of(GRPO_DEFAULTS | grpo), masked=masked) is skips


def test_the_live_share_follows_the_pools_pass_rates() -> None:
    right, wrong, none = OUTCOMES.index("correct"), OUTCOMES.index("wrong"), NONE
    unknown = np.full((10, 4), none, dtype=np.uint8)
    assumed = float(START @ live_chance(8))
    assert live_share(unknown, 8) == pytest.approx(assumed)
    mixed = np.array([[right, wrong] * 2] * 100, dtype=np.uint8)
    assert live_share(mixed, 8) > 0.95
    never = np.full((100, 4), wrong, dtype=np.uint8)
    assert live_share(never, 8) < 0.1
    errors = np.full((100, 4), OUTCOMES.index("error"), dtype=np.uint8)
    assert live_share(errors, 8) == pytest.approx(assumed)


@pytest.mark.parametrize(
    ("grpo", "workers", "expected"),
    [
        ({}, 1, (100, 8, 800, 0, 8, 8)),
        ({"gradient_accumulation_steps": 4}, 1, (100, 32, 3200, 0, 8, 8)),
        ({"num_iterations": 2}, 1, (50, 8, 800, 400, 8, 8)),
        ({"num_iterations": 2, "beta": 0.1}, 1, (50, 8, 800, 800, 8, 8)),
        ({"beta": 0.1}, 1, (100, 8, 800, 800, 8, 8)),
        ({"steps_per_generation": 4}, 1, (25, 32, 800, 800, 8, 8)),
        ({"generation_batch_size": 64}, 2, (25, 32, 800, 800, 8, 8)),
        ({"per_device_train_batch_size": 2, "steps_per_generation": 4}, 1, (25, 8, 200, 200, 8, 2)),
    ],
)
def test_generations_and_rows_follow_from_trls_settings(
    grpo: dict[str, float], workers: int, expected: tuple[int, ...]
) -> None:
    grpo = GRPO_DEFAULTS | grpo
    assert generation_counts(GrpoBatch.of(GrpoSettings.of(grpo), workers), grpo["beta"]) == expected


def test_measured_cells_calibrate_nominal_costs() -> None:
    nominal = Cost(10, 100, 20)
    measured = [Cost(5, 150, 0), Cost(5, 170, 0), Cost(0, 900, 0)]
    calibration = calibrate([(nominal, each) for each in measured])
    assert calibration == Calibration(0.5, 1.7, 1.7), "medians; evaluation was not measured"
    assert calibration(nominal) == Cost(5, 170, 34)
    assert calibrate([]) == Calibration()
    without_start = [(Cost(0, 100, 0), Cost(3, 150, 0))]
    assert calibrate(without_start) == Calibration(1.0, 1.5, 1.5), "nothing to divide by"


def test_the_gpu_type_is_read_from_rays_resources_or_the_drivers_name() -> None:
    assert gpu_type({"CPU": 4, "accelerator_type:H200": 1}) == "h200"
    assert gpu_type({"NVIDIA A100-SXM4-80GB": 0}) == "a100"
    assert gpu_type({"CPU": 4}) is None


def test_a_finished_cell_of_the_plan_calibrates_its_estimate(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    store, [first, second] = Store(str(tmp_path / "runs")), plan.cells
    unmeasured = estimate_costs(Run.of(plan, store, {"CPU": 2.0}), plan.cells)
    assert unmeasured.cells == {} and "unknown" in unmeasured.speeds["stub"].source
    finished_cell(store, plan, first)
    measured = estimate_costs(Run.of(plan, store, {"CPU": 2.0}), plan.cells)
    assert measured.speeds["stub"].source.startswith("measured on 1 ")
    assert measured.cells[first.cell_id].training == pytest.approx(12.5)
    assert measured.cells[second.cell_id].training == pytest.approx(12.5, rel=0.1)
    train, test = measured.probes.values()
    assert train.samples == 40 * 4 and test.samples == 12 * 8
    assert train.sampling >= train.part > 0 and test.sampling >= test.part > 0
    assert train.start > 0 and test.start == 0, "the same actors draw both"


def test_cells_of_another_experiment_calibrate_the_models_speed(tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path, seeds=[0]), Store(str(tmp_path / "runs"))
    finished_cell(store, plan, plan.cells[0])
    other = small_plan(tmp_path, seeds=[9], updates=8)
    estimates = estimate_costs(Run.of(other, store, {"CPU": 2.0}), other.cells)
    assert estimates.speeds["stub"].source.startswith("measured on 1 ")
    assert estimates.cells[other.cells[0].cell_id].training > 12.5


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_what_a_finished_cell_computed_is_counted_per_worker(tmp_path: Path, workers: int) -> None:
    """10 updates of 4 rollouts a worker, of which an online policy drew 1.5 times as many."""
    [cell, *_] = small_plan(tmp_path).cells
    settings = cell.grpo | {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
    settings |= {"max_steps": 10, "num_generations": 4, "max_completion_length": 100, "beta": 0.0}
    resources = Resources(cpus=1, gpus=1, workers=workers)
    stored = cell.model_copy(update={"grpo": settings, "resources": resources})
    rollouts = 60 * workers
    values: dict[str, Any] = {
        "ledger": {
            **result_json()["ledger"],
            **{"rollouts": rollouts, "discarded": 5 * workers, "live": 4 * workers},
            **{"prompt_tokens": 50 * rollouts, "generated_tokens": 30 * rollouts},
        },
        "timing": {
            **{"decode_steps": 600.0, "evaluations": 2, "answers": 400 * workers},
            "answer_tokens": 25 * 400 * workers,
        },
        "versions": {"rollouts": "decile"},
    }

    def workload(cell: Cell, **changes: Any) -> Workload:
        return finished_workload(cell, Result.model_validate(result_json(**values | changes)))

    work = workload(stored)
    counts = GenerationCounts(generations=15, rows=4, trained=40, scored=0, drawn=4, read=4)
    answers = Draws(completions=200, mean=25, longest=32, prompt=50, together=8)
    expected = Workload(counts, 40, 30, 50, 2, answers, live=0.4, recompute=True)
    assert work == expected
    plain = {"ledger": values["ledger"] | {"rollouts": rollouts * 2 / 3}, "timing": {}}
    assert workload(stored, **plain).counts.generations == 10
    assert workload(stored, **plain).steps == 100, "not measured: the limit"
    pulled = stored.model_copy(update={"grpo": settings | {"beta": 0.1}})
    assert workload(pulled).live == 1, "the KL term computes all groups"
    assert workload(pulled.model_copy(update={"mask_dead_groups": True})).live == 0.4
    by_trl = workload(stored, versions={"rollouts": "trl"})
    assert by_trl == expected._replace(trl_draws=True)
    before = workload(stored, versions={})
    assert before == expected._replace(trl_draws=True)


def test_the_evaluations_of_a_cell_are_shared_by_its_workers(tmp_path: Path) -> None:
    """12 questions: 8 samples and a greedy one, twice; 6 others: 4 samples, at the end."""
    other = {"task": "shuffled_objects", "options": {"train": 0, "test": 6, "seed": 5}}
    evaluate = {"every": 2, "samples": 8, "greedy": True, "ood": ["other"], "ood_samples": 4}
    plan = small_plan(tmp_path, datasets={"other": other}, evaluate=evaluate)
    cell = plan.cells[0].model_copy(
        update={"grpo": plan.cells[0].grpo | {"max_completion_length": 25}}
    )
    lengths = [TokenLengths(10.0 * n, np.array([10.0 * n, 30 * n])) for n in (1, 2, 3)]
    expected = Expected(*lengths, live=0.5, draws=1.5)
    for workers in (1, 2):
        resources = cell.resources.model_copy(update={"workers": workers})
        work = cell_workload(plan, cell.model_copy(update={"resources": resources}), expected)
        assert work.answers == Draws((12 * 9 + 6 * 4 / 2) / workers, 60, 32, 30, 8)
        assert (work.evaluations, work.counts.generations, work.counts.rows) == (2, 6, 8)
        assert (work.prompt, work.tokens, work.live) == (10, 22.5, 0.5)
        assert 24 < work.steps < 25 and not (work.trl_draws or work.recompute)
    grpo = cell.grpo | {"gradient_checkpointing": True}
    assert cell_workload(plan, cell.model_copy(update={"grpo": grpo}), expected).recompute


def test_every_probe_is_counted_and_has_a_label_of_its_own(tmp_path: Path) -> None:
    """Two probe seeds share one test set, which is also evaluated greedily: four probes."""
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["hard"], "probe_seed": [0, 1]}
    settings = {"grid": grid, "evaluate": {"every": 2, "samples": 8, "greedy": True}}
    plan, store = small_plan(tmp_path, **settings), Store(str(tmp_path / "runs"))
    finished_cell(store, plan, plan.cells[0])
    expected = estimate_costs(Run.of(plan, store, {"CPU": 2.0}), plan.cells)
    assert len(plan.probes) == len(expected.probes) == 4
    capacity = Capacity((2.0,), 2, "CPU")
    queue = make_queue(
        plan.experiment, plan.cells, expected.cells, expected.probes, capacity, UsageMeter()
    )
    left = queue.forecast.left()
    assert left and left.seconds > sum(probe.seconds for probe in expected.probes.values())
    assert set(probe_labels(plan.probes).values()) == {
        "stub/small train, seed 0",
        "stub/small train, seed 1",
        "stub/small test",
        "stub/small test, greedy",
    }

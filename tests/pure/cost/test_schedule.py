"""Blocks stay whole, packings respect capacity, and none beats its lower bound."""

import io
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import experiments, plan_of, store_of

from benchmarks.cluster_simulation import lower_bound
from cluster.resources import ResourceError
from orchestrator.cli.plan_summary import plan_summary
from orchestrator.config.experiment import Resources
from orchestrator.cost.schedule import (
    Capacity,
    Job,
    cluster_capacity,
    device_seconds,
    gantt,
    make_blocks,
    makespan,
    pack,
)
from orchestrator.cost.work import Speed
from orchestrator.difficulty.table import difficulty
from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.sweep import Sweep, SweepOutcome
from orchestrator.pipeline.timetable import Site
from orchestrator.planning.cells import block_of
from orchestrator.planning.plan import Plan
from orchestrator.probing.probe_folder import write_part
from orchestrator.selection.stored import store_subset
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store


class Stub(NamedTuple):
    """A stand-in for a cell."""

    model: str
    policy: str
    seed: int
    seconds: float

    @property
    def axes(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "dataset": "d",
            "policy": self.policy,
            "seed": self.seed,
            "probe_seed": 0,
        }


def grid(models: dict[str, float], policies: str, seeds: int) -> list[Stub]:
    """Cells that take their model's seconds, plus one for each later policy."""
    cells = product(models.items(), range(seeds), enumerate(policies))
    return [Stub(m, p, s, each + number) for (m, each), s, (number, p) in cells]


def seconds(cell: Stub) -> float:
    return cell.seconds


def test_a_block_is_every_policy_of_a_seed_and_the_longest_comes_first() -> None:
    cells = grid({"small": 10, "large": 50}, "her", 3)
    names = [[(c.model, c.seed) for c in block][0] for block in make_blocks(cells, seconds)]
    assert names == [(model, seed) for model in ("large", "small") for seed in range(3)]
    blocks = make_blocks(cells, seconds, by_seed=True)
    assert [{(c.model, c.seed) for c in block} for block in blocks] == [
        {(model, seed)} for seed in range(3) for model in ("large", "small")
    ]
    assert all([c.policy for c in block] == ["r", "e", "h"] for block in blocks)


@given(st.permutations(grid({"a": 1, "b": 2}, "xyz", 3)), st.booleans())
def test_blocks_are_whole_whatever_the_order_of_the_grid(cells: list[Stub], by_seed: bool) -> None:
    blocks = make_blocks(cells, seconds, by_seed=by_seed)
    assert sorted(cell for block in blocks for cell in block) == sorted(cells)
    for block in blocks:
        assert len({block_of(cell) for cell in block}) == 1
        assert {cell.policy for cell in block} == set("xyz")


jobs = st.lists(st.builds(Job, st.just("j"), st.floats(0.1, 100)), max_size=25)


@given(jobs, st.integers(3, 6), st.integers(1, 9), st.integers(1, 3), st.sampled_from([0.25, 1.0]))
def test_a_packing_never_exceeds_capacity_and_loses_no_job(
    jobs: list[Job], gpus: int, cpus: int, workers: int, share: float
) -> None:
    resources = Resources(gpus=share, workers=workers)
    capacity = cluster_capacity({"GPU": gpus, "CPU": cpus * workers}, resources)
    placements = pack(jobs, capacity)
    assert [each.job for each in placements] == jobs
    for each in placements:
        now = [p for p in placements if p.start <= each.start < p.end]
        assert len(now) <= capacity.at_once
        devices = [device for p in now for device in capacity.devices_of(p.slot)]
        for device in devices:
            assert device < gpus
            assert share * devices.count(device) <= 1
    assert makespan(placements) >= lower_bound(jobs, capacity) - 1e-6
    assert makespan(placements) <= sum(job.seconds for job in jobs) + 1e-6


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=30), st.integers(1, 8))
def test_equal_shares_in_order_are_within_grahams_factor_of_the_bound(
    each: list[float], devices: int
) -> None:
    capacity, jobs = Capacity((1.0,) * devices, devices), [Job("j", s) for s in each]
    assert makespan(pack(jobs, capacity)) <= (2 - 1 / devices) * lower_bound(jobs, capacity) + 1e-6


def test_shares_fill_one_device_before_the_next() -> None:
    capacity = Capacity((1.0, 1.0), 8, share=0.25)
    quarter = pack([Job(str(i), 10) for i in range(4)], capacity)
    assert {device for p in quarter for device in capacity.devices_of(p.slot)} == {0}


def test_capacity_is_the_number_of_gpus_or_all_cpus() -> None:
    assert cluster_capacity({"CPU": 4}, Resources(cpus=2)) == Capacity((4,), 2, "CPU", share=2)
    halves = Capacity((1.0, 1.0), 4, share=0.5)
    assert cluster_capacity({"CPU": 64, "GPU": 2}, Resources(gpus=0.5)) == halves
    with pytest.raises(ResourceError, match="smaller resources"):
        cluster_capacity({"CPU": 4}, Resources(gpus=1))


def test_the_chart_has_a_row_per_lane_with_every_name_at_its_time() -> None:
    jobs = [Job("long", 6), Job("a", 3), Job("b", 3)]
    capacity = Capacity((1.0, 1.0), 2)
    assert gantt(pack(jobs, capacity), capacity, width=10) == [
        "GPU 0 |long─────┤|",
        "GPU 1 |a───┤b───┤|",
    ]
    both = Capacity((1.0, 1.0), 1, workers=2)
    assert gantt(pack([Job("both", 6)], both), both, width=5) == [
        "GPU 0 |both┤|",
        "GPU 1 |both┤|",
    ]
    halves = Capacity((1.0,), 2, share=0.5)
    shared = gantt(pack([Job("x", 1)] * 2, halves), halves, width=4)
    assert shared == ["GPU 0 |x──┤|", "      |x──┤|"]
    many = Capacity((1.0,) * 40, 40)
    assert gantt(pack([Job("x", 1)] * 40, many), many)[-1].strip() == "… and 24 more rows"
    assert gantt([], many) == []


def test_device_time_counts_workers_and_shares() -> None:
    assert device_seconds([Job("a", 10), Job("b", 4)], Capacity((1.0,) * 2, 1, "GPU", 2, 0.5)) == 14


def finish_probe(plan: Plan, store: Store) -> None:
    """Store the samples and subsets of a plan; the more often a prompt fails, the longer."""
    spec = plan.cells[0].probe
    rows = [
        dict.fromkeys(SAMPLES.names)
        | {"prompt_id": prompt.prompt_id, "sample": i, "tokens": 45 - 10 * (number % 5)}
        | {"completion": "", "finish": "stop", "rule": "", "other_outcome": "", "other_rule": ""}
        | {"outcome": "correct" if i < number % 5 else "wrong", "marker": spec.marker}
        for number, prompt in enumerate(plan.pool(spec).train)
        for i in range(spec.settings.samples)
    ]
    table = pa.Table.from_pylist(rows, schema=SAMPLES)
    write_part(store, spec.key, "train", table)
    for cell in plan.cells:
        store_subset(store, cell, difficulty(table))


def test_the_order_of_a_run_is_the_one_that_the_plan_shows(tmp_path: Path) -> None:
    """Also once the lengths of completions are known, by which other cells take longest."""
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["easy", "hard"]}
    file = experiments(tmp_path, grid=grid | {"evaluate.samples": [1, 8]})
    plan, store, cluster = plan_of(file), store_of(file), {"CPU": 1.0}

    def shown() -> list[str]:
        speeds = {"tiny": Speed(0.0, 1e-3)}
        run = Run.of(plan, store, cluster)
        [chart] = plan_summary(run, Site(cluster), pilot=speeds).packing
        return re.findall(r"(\w+)/s0/(\d)", chart)

    before, tracker = shown(), SimpleNamespace()
    display = ProgressDisplay(total=4, out=io.StringIO())
    run = Run(plan, store, display, cluster)
    sweep = Sweep(run, plan.cells, tracker, SweepOutcome())  # type: ignore[arg-type]
    finish_probe(plan, store)
    sweep.queue = sweep.planned_queue()
    assert before == [("easy", "8"), ("hard", "8"), ("easy", "1"), ("hard", "1")]
    run_order = [
        (cell.policy, str(cell.setting_axes["evaluate.samples"]))
        for cell in iter(sweep.queue.next, None)
    ]
    assert run_order == before

"""Caps drop whole blocks, count the usage of all runs, and report what they left out."""

from pathlib import Path

import pytest
from caps_cases import Clock, make, planned
from factories import small_plan

from orchestrator.cost.caps import (
    CellQueue,
    Usage,
    UsageMeter,
    dropped_summary,
    exceeded_cap,
    make_queue,
)
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.work import Estimates, Work
from orchestrator.pipeline.manifest import write_manifest
from orchestrator.report.analysis import analyse
from orchestrator.report.html_pages import page_html
from orchestrator.report.sections.page import sweep_page
from orchestrator.storage.store import Store


def started(queue: CellQueue) -> list[tuple[int, str]]:
    return [(cell.seed, cell.policy) for cell in iter(queue.next, None)]


def test_without_a_cap_every_cell_is_handed_out(tmp_path: Path) -> None:
    queue = make(planned(tmp_path))
    assert sorted(started(queue)) == [(s, p) for s in range(3) for p in ("hard", "random")]
    assert (queue.cap, queue.dropped) == ("", [])


@pytest.mark.parametrize(
    ("caps", "seeds"),
    [
        ({"max_gpu_hours": 6}, [0, 1, 2]),
        ({"max_gpu_hours": 5.9}, [0, 1]),
        ({"max_gpu_hours": 3}, [0]),
        ({"max_gpu_hours": 1.9}, []),
        ({"max_hours": 3}, [0, 1, 2]),
        ({"max_hours": 2.5}, [0, 1]),
        ({"max_hours": 0.5}, []),
        ({"max_hours": 2.5, "max_gpu_hours": 2}, [0]),
    ],
)
def test_a_cap_drops_whole_seeds_and_never_a_policy(
    tmp_path: Path, caps: dict[str, float], seeds: list[int]
) -> None:
    queue = make(planned(tmp_path, **caps))
    assert started(queue) == [(seed, policy) for seed in seeds for policy in ("hard", "random")]
    assert {cell.seed for cell in queue.dropped} == {0, 1, 2} - set(seeds)
    assert all(name in queue.cap for name in list(caps)[-1:]) == (len(seeds) < 3)


def test_probes_count_with_every_gpu_of_the_cluster(tmp_path: Path) -> None:
    assert started(make(planned(tmp_path, max_gpu_hours=2.0), probes=900)) == []
    assert len(started(make(planned(tmp_path, max_gpu_hours=2.5), probes=900))) == 2
    assert started(make(planned(tmp_path, max_hours=1.2), probes=900)) == []


def test_measured_usage_counts_instead_of_the_estimate(tmp_path: Path) -> None:
    """Cells that end in half the time leave hours for a seed that was not expected to fit."""
    plan, clock = planned(tmp_path, max_gpu_hours=4), Clock()
    queue = make(plan, meter=UsageMeter(clock=clock))
    queue.forecast.clock = clock
    for _ in range(2):
        pair = [queue.next(), queue.next()]
        clock.now += 1800
        for cell in pair:
            assert cell is not None
            queue.cell_ended(cell)
    assert queue.meter.usage().gpu_seconds == 4 * 1800
    assert queue.is_open()
    assert len(started(queue)) == 2


@pytest.mark.parametrize(
    ("caps", "used", "more", "cap"),
    [
        ({}, (1e9, 1e9), (1e9, 1e9), ""),
        ({"max_hours": 2}, (3600, 9e9), (3600, 9e9), ""),
        ({"max_hours": 2}, (3600, 0), (3601, 0), "max_hours 2 (1 used, 2 hours with the next blo"),
        ({"max_hours": 2}, (7200, 0), (0, 0), "max_hours 2 (2 used, 2 hours with"),
        ({"max_hours": 0.5}, (0.4, 0), (5400, 0), "max_hours 0.5 (0 used, 1.5 hours with"),
        ({"max_hours": 0.5}, (1, 0), (5399, 0), "max_hours 0.5 (0.000278 used, 1.5 hours with"),
        ({"max_gpu_hours": 1.5}, (0, 3600), (0, 3600), "max_gpu_hours 1.5 (1 used, 2 GPU-hours w"),
        ({"max_hours": 1, "max_gpu_hours": 1}, (9999, 9999), (0, 0), "max_gpu_hours 1 (2.78 used"),
    ],
)
def test_the_cap_that_would_be_exceeded_is_named(
    tmp_path: Path,
    caps: dict[str, float],
    used: tuple[float, float],
    more: tuple[float, float],
    cap: str,
) -> None:
    experiment = planned(tmp_path, **caps).experiment
    named = exceeded_cap(experiment, Usage(*used), Usage(*more))
    assert named.startswith(cap) and bool(named) == bool(cap)


def test_usage_is_counted_while_work_runs_and_over_all_runs(tmp_path: Path) -> None:
    cell = small_plan(tmp_path, resources={"gpus": 0.5, "workers": 3}).cells[0]
    clock = Clock()
    clock.now = 100.0
    meter = UsageMeter({"seconds": 7.0, "gpu_seconds": 5.0, "begun": ["b", "a"]}, clock)
    meter.add(10, 4)
    meter.cell_started(cell)
    clock.now = 120.0
    assert meter.usage() == (7 + 20, 5 + 40 + 20 * 1.5)
    meter.cell_ended(cell)
    clock.now = 150.25 + 2**-12
    assert meter.usage() == (7 + 50.25 + 2**-12, 5 + 40 + 20 * 1.5), "no longer"
    meter.cell_ended(cell)  # it was stopped before it started
    assert meter.as_json() == {"seconds": 57.25, "gpu_seconds": 75.0, "begun": ["a", "b"]}
    assert UsageMeter(clock=clock).as_json() == {"seconds": 0, "gpu_seconds": 0, "begun": []}


def test_a_started_block_is_finished_despite_the_cap(tmp_path: Path) -> None:
    plan, clock = planned(tmp_path, max_hours=1.5), Clock()
    first = make(plan, meter=UsageMeter(clock=clock))
    cell_started = first.next()
    assert cell_started is not None
    clock.now = 7200.0
    saved = first.meter.as_json()
    again = make(plan, meter=UsageMeter(saved, clock))
    assert started(again) == [(0, "hard"), (0, "random")]
    assert again.cap.startswith("max_hours 1.5 (2 used")


def test_a_larger_cap_continues_where_the_smaller_one_ended(tmp_path: Path) -> None:
    plan, clock = planned(tmp_path, max_gpu_hours=2), Clock()
    first = make(plan, meter=UsageMeter(clock=clock))
    cells = list(iter(first.next, None))
    clock.now = 3600.0
    for cell in cells:
        first.cell_ended(cell)
    remaining = [cell for cell in plan.cells if cell not in cells]
    saved = first.meter.as_json()
    assert started(make(plan, remaining, meter=UsageMeter(saved, clock))) == []
    larger = planned(tmp_path, max_gpu_hours=4)
    assert started(make(larger, remaining, meter=UsageMeter(saved, clock))) == [
        (1, "hard"),
        (1, "random"),
    ]


def test_before_anything_is_measured_one_block_starts_and_the_others_wait(tmp_path: Path) -> None:
    plan, clock = planned(tmp_path, max_gpu_hours=3), Clock()
    works = Estimates({cell.cell_id: Work(4.0, 2.0) for cell in plan.cells})
    meter, slots = UsageMeter(clock=clock), Capacity((1.0,) * 8, 8)
    queue = make_queue(plan.experiment, plan.cells, works, slots, meter)
    queue.forecast.clock = clock
    assert not queue.waits()
    pair = [queue.next(), queue.next()]
    for cell in pair:
        assert cell is not None
        queue.forecast.cell_progress(cell, 1)
        assert queue.waits()
    clock.now = 600.0
    queue.forecast.cell_progress(plan.cells[0], 2)  # 600 s of 2 tokens: half an hour a cell
    assert not queue.waits() and queue.next() is not None
    clock.now = 1200.0
    uncapped = make_queue(planned(tmp_path).experiment, plan.cells, works, slots, meter)
    assert uncapped.next() is not None and not uncapped.waits()


def test_without_estimates_only_past_usage_counts(tmp_path: Path) -> None:
    plan, clock = planned(tmp_path, max_gpu_hours=1), Clock()
    queue = make_queue(
        plan.experiment, plan.cells, Estimates(), Capacity((1.0,) * 2, 2), UsageMeter(clock=clock)
    )
    for _ in range(2):
        assert queue.next() is not None
    clock.now = 3600.0
    assert queue.next() is None
    assert {cell.seed for cell in queue.dropped} == {1, 2}


def test_the_report_names_what_did_not_run(tmp_path: Path) -> None:
    plan, store = planned(tmp_path), Store(str(tmp_path / "runs"))
    manifest = write_manifest(plan, store)
    left_out = [cell.cell_id for cell in plan.cells if cell.seed]
    store.write_json(
        manifest | {"dropped": {"cap": "max_hours 2", "cells": left_out}}, "sweeps", "small.json"
    )
    summary = "max_hours 2 leaves out seeds 1, 2 of stub/small: 4 of 6 cells"
    assert summary in page_html(sweep_page(analyse(plan, store)))
    manifest = write_manifest(plan, store)
    assert dropped_summary(manifest.get("dropped"), manifest["cells"]) == ""

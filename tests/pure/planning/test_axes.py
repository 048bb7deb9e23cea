"""Settings as axes of the grid: from the file over the plan to the report and MLflow."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axes_cases import GRID, GRPO, planned
from factories import finished_sweep, small_plan
from remedies import problems

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.cost.caps import dropped_summary
from orchestrator.difficulty.probe_table import CellTables, difficulty_of
from orchestrator.pipeline.manifest import write_manifest
from orchestrator.planning.cells import Cell
from orchestrator.probing.outcomes import Outcomes
from orchestrator.probing.probe import targets_of
from orchestrator.report.analysis import analyse
from orchestrator.report.probe_analysis import subset_cells
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.tables import results as results_table
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.settings_check import settings_of

FILE = """\
models:
  tiny: {embedded: tiny}
experiments:
  q:
    grid:
      model: [tiny]
      dataset: [shuffled_objects]
      policy: [hard, random]
      AXES
    budget: 0.1
    grpo: {num_generations: 8, per_device_train_batch_size: 16}
"""


@pytest.mark.parametrize(
    ("axis", "line", "code", "value"),
    [
        ("grpo.beta:\n        - 0\n        - -1", 11, "invalid-library-setting", "least 0"),
        ("beta: [0]", 9, "invalid-axis", "model, dataset, policy, seed"),
        ("beta: [0]", 9, "invalid-axis", "'grpo.beta'?"),
        ("probe.sample: [1]", 9, "invalid-axis", "'probe.samples'?"),
        ("probe.seed: [1]", 9, "invalid-axis", "probe_seed"),
        ("resources.gpus: [1]", 9, "invalid-axis", "on the experiment"),
        ("probe.samples: [1, 0]", 9, "greater-than-equal", "probe.samples.1: samples is 0"),
        ("probe.samples: 3", 9, "list-type", "probe.samples is 3"),
        ("probe.samples: []", 9, "too-short", "1 to 1,000"),
        ("probe.samples: [4, 4]", 9, "listed-twice", "probe.samples.1: 4"),
        ("budget: [0.1, 2.5]", 9, "budget-above-one", "budget.1: budget 2.5"),
        (
            "grpo.per_device_train_batch_size: [16, 12]",
            9,
            "group-size",
            "(with grpo.per_device_train_batch_size 12)",
        ),
        ("evaluate.ood: [[], [nowhere]]", 9, "unknown-dataset", "evaluate.ood.1.0: "),
        ("probe.engine: [transformers, no]", 9, "string-type", "probe.engine.1: engine is false"),
        (
            f"seed: {[*range(100)]}\n      lora.r: {[*range(1, 90)]}",
            5,
            "too-many-cells",
            "17,800",
        ),
    ],
)
def test_a_wrong_axis_is_refused_at_its_line(
    tmp_path: Path, axis: str, line: int, code: str, value: str
) -> None:
    file = tmp_path / "experiments.yaml"
    file.write_text(FILE.replace("AXES", axis))
    with pytest.raises(UserError) as caught:
        load_config(file)
    message = str(caught.value)
    assert caught.value.code == code and problems(message) == []
    assert f"experiments.yaml:{line}: experiments.q.grid" in message and value in message


def test_every_combination_is_the_cell_of_an_experiment_that_is_written_out(
    tmp_path: Path,
) -> None:
    axes = {
        "budget": [8, 0.25],
        "probe.samples": [2, 4],
        "probe.temperature": [1.0, 0.5],
        "grpo.beta": [0.0, 0.1],
        "grpo.max_steps": [4, 6],
        "lora.target_modules": ["all-linear", ["q_proj"]],
        "evaluate.samples": [4, 8],
    }
    swept = planned(tmp_path, axes, grpo=GRPO)
    assert len({cell.cell_id for cell in swept.cells}) == 2 * 2**7
    for number in (0, 42, 85, 127):
        values = {a: v[number >> i & 1] for i, (a, v) in enumerate(axes.items())}
        written_out = planned(
            tmp_path,
            {},
            budget=values["budget"],
            probe={
                "samples": values["probe.samples"],
                "max_completion_length": 32,
                "temperature": values["probe.temperature"],
            },
            grpo=GRPO | {"beta": values["grpo.beta"], "max_steps": values["grpo.max_steps"]},
            lora={"target_modules": values["lora.target_modules"]},
            evaluate={"every": 2, "samples": values["evaluate.samples"]},
        )
        own = [cell for cell in swept.cells if cell.setting_axes == values]
        assert [c.cell_id for c in own] == [c.cell_id for c in written_out.cells]
        assert [c.subset_key for c in own] == [c.subset_key for c in written_out.cells]
    stored = Cell.model_validate_json(own[0].model_dump_json())
    assert (stored.axes, stored.setting_axes) == (own[0].axes, values)
    assert "swept" not in small_plan(tmp_path).cells[0].model_dump(), "stored cells are unchanged"


def test_a_whole_number_is_the_float_that_it_equals(tmp_path: Path) -> None:
    plain = planned(tmp_path, {}, grpo=GRPO)  # TRL's beta is 0.0
    axis = planned(tmp_path, {"grpo.beta": [0, 1], "lora.lora_dropout": [0]}, grpo=GRPO)
    assert [cell.cell_id for cell in axis.cells[:2]] == [cell.cell_id for cell in plain.cells]
    assert axis.cells[0].name.endswith("/grpo.beta=0/lora.lora_dropout=0")
    steps = planned(tmp_path, {}, grpo=GRPO | {"save_steps": 1, "warmup_steps": 2})
    assert [type(steps.cells[0].grpo[name]) for name in ("save_steps", "warmup_steps")] == [int] * 2


@pytest.mark.parametrize(
    ("axes", "place"),
    [
        ({"evaluate.ood_samples": [2, 4]}, "grid.evaluate.ood_samples.1"),
        ({"policy": ["full"], "budget": [8, 16]}, "grid.budget.1"),
        ({"grpo.beta": [0, 0.1], "budget": [8, 0.2]}, "grid.budget.1"),
        ({"budget": [8, 41]}, "grid.budget.1"),
    ],
)
def test_a_value_that_changes_nothing_or_does_not_fit_is_refused(
    tmp_path: Path, axes: dict[str, list[Any]], place: str
) -> None:
    with pytest.raises(UserError, match=rf"yaml:\d+: experiments\.small\.{place}: "):
        planned(tmp_path, axes)


def test_a_cell_that_an_axis_does_not_change_runs_once_and_is_compared_with_each_value(
    tmp_path: Path,
) -> None:
    axes = {"policy": ["hard", "full"], "budget": [8, 16]}
    plan, store = finished_sweep(tmp_path, grid=GRID | axes, grpo=GRPO)
    names = ["hard/s0/budget=8", "full/s0/budget=8", "hard/s0/budget=16"]
    assert [cell.name.partition("small/")[2] for cell in plan.cells] == names
    small, full, large = plan.cells
    analysis = analyse(plan, store)
    assert len(analysis.rows) == 3
    for family, hard in zip(analysis.families, (small, large), strict=True):
        assert [row.cell.cell_id for row in family.rows] == [hard.cell_id, full.cell_id]
        assert len(family.accuracy) == 1


def test_the_largest_k_is_drawn_once_and_each_cell_reads_its_own(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"probe.samples": [1, 2, 6], "grpo.num_generations": [2, 4]})
    [probe] = [spec for spec in plan.probes if spec.split == "train"]
    assert probe.settings.samples == 6
    prompts = plan.pool(probe).train
    codes = np.random.default_rng(0).integers(0, 3, (len(prompts), 6)).astype(np.uint8)
    tables = CellTables(Outcomes(prompts, codes))
    for cell in plan.cells:
        samples, group = cell.probe.settings.samples, cell.grpo["num_generations"]
        alone = planned(tmp_path, {}, grpo=GRPO | {"num_generations": group})
        own = difficulty_of(alone, cell.probe, Outcomes(prompts, codes[:, :samples]))
        assert tables.of(cell).equals(own)
    assert list(subset_cells(plan, probe))[:2] == [
        "hard, grpo.num_generations 2, probe.samples 1",
        "random, grpo.num_generations 2, probe.samples 1",
    ]


def test_an_adaptive_probe_serves_the_subsets_of_its_k_only(tmp_path: Path) -> None:
    probe = {"adaptive": True, "max_completion_length": 32}
    plan = planned(tmp_path, {"probe.samples": [2, 6], "policy": ["hard"]}, probe=probe)
    probes = [spec for spec in plan.probes if spec.split == "train"]
    assert [spec.settings.samples for spec in probes] == [2, 6]
    assert len({spec.key for spec in probes}) == 1, "the larger one reuses the samples"
    assert [len(targets_of(plan, spec) or []) for spec in probes] == [1, 1]


def test_settings_that_are_trained_with_are_each_checked_once(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"grpo.beta": [0, 0.1], "lora.r": [4, 8], "budget": [8, 16]})
    settings = settings_of(plan.experiment, [plan.cells[0].probe.model])
    assert [(one.grpo["beta"], one.lora["r"]) for one in settings] == [
        *((0, 4), (0, 8), (0.1, 4), (0.1, 8))
    ]


def test_plan_shows_the_axes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned(tmp_path, {"grpo.beta": [0, 0.1], "rollouts": ["decile", "trl"]})
    command = ["plan", str(tmp_path / "experiments.yaml"), "-e", "small"]
    assert main([*command, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert cells[-1]["axes"] == {"grpo.beta": 0.1, "rollouts": "trl"}
    assert cells[-1]["rollouts"] == 4 * 8, "completions, not the axis"
    assert main(command) == 0
    assert "stub/small/random/s0/grpo.beta=0.1/rollouts=trl: 8 prompts" in capsys.readouterr().out


def test_a_cap_names_the_axes_of_what_it_leaves_out(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"grpo.beta": [0, 0.1]})
    manifest = write_manifest(plan, Store(str(tmp_path / "runs")))
    dropped = {"cap": "max_hours 1", "cells": [cell.cell_id for cell in plan.cells[2:]]}
    text = dropped_summary(dropped, manifest["cells"])
    assert "leaves out seed 0 of stub/small/grpo.beta=0.1: 2 of 4 cells" in text


def test_policies_are_compared_within_equal_axes(tmp_path: Path) -> None:
    claims = ["hard > random on small"]
    axes = {"grpo.beta": [0, 0.1], "seed": [0, 1]}
    plan, store = finished_sweep(tmp_path, grid=GRID | axes, grpo=GRPO, claims=claims)
    analysis = analyse(plan, store)
    titles = ["stub on small, grpo.beta 0", "stub on small, grpo.beta 0.1"]
    assert [family.title for family in analysis.families] == titles
    for family, beta in zip(analysis.families, (0, 0.1), strict=True):
        assert len(family.rows) == 4
        assert {row.cell.grpo["beta"] for row in family.rows} == {beta}
        assert len(family.accuracy) == 1
    assert [result.cells for result in analysis.claims] == titles
    results = results_table(analysis.rows)
    column = results.head.index("grpo.beta")
    assert [row[column] for row in results.body] == ["0"] * 4 + ["0.1"] * 4
    page = sweep_page(analysis)
    anchors = [section.anchor for section in page.sections]
    assert len({*anchors}) == len(anchors)
    [settings] = [b for s in page.sections for b in s.blocks if "All settings" in str(b)][:1]
    assert '"beta":' not in str(settings), "an axis has no single value"

"""The project's own experiments.yaml: it loads anywhere, and its descriptions match the plans."""

import re
from pathlib import Path
from typing import Any

import pytest
from catalogue_cases import CONFIG, FILE, PAPERS, plans  # noqa: F401 (fixtures)

from orchestrator.cli.main import main
from orchestrator.cost.memory import (
    DECODER_ROWS,
    SHAPES,
    TrainingLoad,
    training_load,
    training_memory,
)
from orchestrator.planning.plan import Plan

GIB = 2**30


def test_offline_experiments_plan_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("nobody may open a connection here")

    monkeypatch.setattr("socket.socket.connect", refused)
    for arguments in (
        ["ls", "experiments", str(FILE)],
        ["ls", "models", str(FILE)],
        ["plan", str(FILE), "-e", "quickstart", "--storage", str(tmp_path)],
    ):
        assert main(arguments) == 0
    assert "paper_a_code_as_shipped" in capsys.readouterr().out


def test_every_hub_model_is_pinned_and_its_shape_known() -> None:
    for name, entry in CONFIG.models.items():
        if entry.hub:
            assert re.fullmatch("[0-9a-f]{40}", str(entry.revision)), name
            assert set(entry.target_modules) == set(SHAPES[entry.hub].projections), name
            assert entry.dtype == "bfloat16", name
    by_hub = {entry.hub: entry.revision for entry in CONFIG.models.values() if entry.hub}
    assert by_hub.keys() == SHAPES.keys()
    for name, entry in CONFIG.models.items():
        if name.startswith("qwen3-"):
            assert entry.chat_template_kwargs == {"enable_thinking": "thinking" in name}


@pytest.mark.parametrize("name", PAPERS)
def test_gpu_sweeps_state_their_claims_and_cells(name: str) -> None:
    experiment = CONFIG.experiments[name]
    cells = re.search(r"(\d+) cells\.$", experiment.about)
    assert cells, experiment.about
    grid = experiment.grid
    fixed = len(grid.model) * len(grid.dataset) * len(grid.policy) * len(grid.seed)
    assert int(cells[1]) == fixed * len(experiment.variants)
    assert experiment.claims
    grpo = experiment.full_grpo()
    batch = grpo["per_device_train_batch_size"] * grpo["gradient_accumulation_steps"]
    per_update = {"paper_a_code_as_shipped": 1, "paper_b": 8, "paper_b_fewer_steps": 8}
    assert batch / grpo["num_generations"] == per_update.get(name, 32)


def test_the_papers_sweeps_can_be_planned_with_local_data(plans: dict[str, Plan]) -> None:
    sizes = {
        name: {
            c.probe.dataset.name: c.size
            for c in plan.cells
            if not c.static_policy.build().takes_all
        }
        for name, plan in plans.items()
    }
    assert sizes["paper_a"] == {"gsm8k": 747, "shuffled-seven": 100}
    assert sizes["paper_a_as_written"] == {"gsm8k-paper": 747}
    assert 32 <= sizes["paper_a_as_written_shuffled"]["shuffled-bbh"] <= 50
    assert sizes["paper_a_code_as_shipped"] == {"gsm8k-paper": 747, "shuffled-authors": 12}
    for name, plan in plans.items():
        assert f"{len(plan.cells)} cells" in plan.experiment.about, name


def test_the_four_ks_share_one_probe_and_their_baseline(plans: dict[str, Plan]) -> None:
    cells = plans["k_paradox"].cells
    assert [cell.probe.settings.samples for cell in cells[::6]] == [1, 5, 10, 32]
    assert [spec.settings.samples for spec in plans["k_paradox"].probes] == [32, 4]
    assert len({cell.baseline.key for cell in cells}) == 1
    assert len({cell.cell_id for cell in cells}) == 24


def test_fewer_steps_are_45_percent_of_the_steps(plans: dict[str, Plan]) -> None:
    whole = [cell.cell_id for cell in plans["paper_b"].cells]
    cells = plans["paper_b_fewer_steps"].cells
    assert [c.cell_id for c in cells if c.setting_axes["grpo.max_steps"] == 900] == whole
    assert {cell.updates for cell in cells if cell.cell_id not in whole} == {0.45 * 900}
    assert {cell.probe.key for cell in cells} == {c.probe.key for c in plans["paper_b"].cells}


def test_every_cell_fits_the_gpu_that_its_sweep_names(plans: dict[str, Plan]) -> None:
    for name, plan in plans.items():
        most = 40 if name.startswith("paper_b") else 80
        for cell in plan.cells:
            shape = SHAPES[cell.probe.model.location]
            peak = training_memory(shape, training_load(cell, prompt=256)).peak
            assert peak <= most * GIB, f"{name} {cell.name}: {peak / GIB:.0f} GiB"


def test_the_documented_memory_is_the_estimate() -> None:
    """A row per model of the note; GiB for 128 rows at once, prompts of 256 tokens."""
    text = (FILE.parent / "docs" / "notes" / "memory-estimates.md").read_text()
    for hub, shape in SHAPES.items():
        peaks = [
            training_memory(
                shape, TrainingLoad(DECODER_ROWS, 8, 256, tokens, 32, load_in_4bit=bits)
            ).peak
            / GIB
            for bits in (False, True)
            for tokens in (250, 512)
        ]
        row = [f"{shape.parameters / 1e9:.2f}", *(f"{peak:.0f}" for peak in peaks)]
        assert f"| {hub} | {' | '.join(row)} |" in text, row

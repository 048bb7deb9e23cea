"""Cells that start from adapters: of another experiment's finished cells, or of a folder."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file
from sweeps import NAME

from orchestrator.pipeline.evaluate import plan_evaluation
from orchestrator.pipeline.open_plan import open_plan
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.sampling.trained_weights import check_adapter
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.record import CellRecord
from orchestrator.training.trainer import build_trainer

SECOND = "second"
START = {"from": NAME, "policy": "random"}
BASE_HARD = {"policy": "hard", "difficulty": {"model": "tiny"}}


@pytest.fixture
def opened(finished: Path, tmp_path: Path) -> Callable[..., tuple[Plan, Store]]:
    """Opens a second experiment on a copy of the finished sweep; `settings` are its own."""
    folder = shutil.copytree(finished.parent, tmp_path / "sweep")
    file = folder / "experiments.yaml"
    content = yaml.safe_load(file.read_text())
    content["policies"] = {"base-hard": BASE_HARD}

    def second(**settings: Any) -> tuple[Plan, Store]:
        first = content["experiments"][NAME]
        grid = first["grid"] | {"policy": ["hard", "base-hard"]}
        content["experiments"][SECOND] = first | {"grid": grid, "start": START} | settings
        file.write_text(yaml.safe_dump(content))
        return open_plan(file, SECOND, None)

    return second


def first_cell(plan: Plan) -> Cell:
    first, _ = open_plan(plan.source.file, NAME, None)
    return next(cell for cell in first.cells if cell.policy == START["policy"])


def test_a_cell_is_probed_evaluated_and_trained_from_the_adapter(
    opened: Callable[..., tuple[Plan, Store]], tmp_path: Path
) -> None:
    plan, store = opened()
    first = first_cell(plan)
    adapter = store.local_path("cells", first.cell_id, "adapter")
    for cell in plan.cells:
        assert cell.axes["model"] == "tiny"
        for spec in (cell.probe, cell.baseline, *(each.probe for each in cell.extra_evals)):
            assert spec.model.adapter == str(adapter)
            assert spec.model.identity.startswith(f"{first.probe.model.identity}+adapter:")
            assert spec.key not in {first.probe.key, first.baseline.key}
    hard, base_hard = plan.cells
    assert hard.difficulty is None
    assert base_hard.difficulty and base_hard.difficulty.probe == first.probe
    assert hard.ranked_by != base_hard.ranked_by == first.ranked_by
    assert plan.start_notes

    [spec] = [spec for spec in plan.training_probes if spec.model.start]
    assert PlanProbe(plan, store, spec).cell("hard") == hard
    replaced = plan_evaluation(plan, adapter=adapter).spec
    assert replaced.model.identity == hard.probe.model.identity
    assert replaced.key == hard.baseline.key

    copied = shutil.copytree(adapter, tmp_path / "adapter")
    of_folder, _ = opened(start={"adapter": str(copied)})
    assert [cell.cell_id for cell in of_folder.cells] == [cell.cell_id for cell in plan.cells]

    penalized, _ = opened(grpo=plan.experiment.grpo | {"beta": 0.1})
    cell = penalized.cells[0]
    pool = penalized.pool(cell.probe)
    check_adapter(cell.probe.model)
    trainer = build_trainer(cell, tmp_path / "out", pool.task, pool.train[:16], CellRecord())
    weights = dict(trainer.model.named_parameters())
    for name, stored in load_file(adapter / "adapter_model.safetensors").items():
        for of in ("default", "ref"):  # KL is measured from the start
            own = weights[name.removesuffix(".weight") + f".{of}.weight"]
            assert own.detach().equal(stored)
            assert own.requires_grad == (of == "default")
    with pytest.raises(ValueError, match="changed"):
        check_adapter(replace(cell.probe.model, identity=f"{cell.probe.model.identity}0"))


def test_an_adapter_that_cannot_be_trained_further_is_refused(
    opened: Callable[..., tuple[Plan, Store]],
) -> None:
    def code(**settings: Any) -> str:
        with pytest.raises(UserError) as error:
            opened(**settings)
        return error.value.code

    plan, store = opened()
    place = ("cells", first_cell(plan).cell_id)
    assert code(lora={"r": 8}) == "start-with-other-lora"
    assert code(lora={"r": 4, "use_rslora": True}) == "start-with-other-lora"
    grid = plan.experiment.grid.model_dump() | {"lora.r": [4, 8]}
    assert code(grid=grid) == "start-with-other-lora"  # of its second value
    assert code(start={"adapter": "nowhere"}) == "invalid-start"
    adapter = store.local_path(*place, "adapter")
    for settings, more, expected in (
        ({"use_dora": True}, {}, "start-with-other-lora"),
        ({"exclude_modules": ["lm_head"]}, {}, "start-with-other-lora"),
        ({"init_lora_weights": "pissa_niter_4"}, {}, "start-changes-base"),
        ({"bias": "all"}, {"grpo": plan.experiment.grpo | {"beta": 0.1}}, "start-with-bias"),
        (
            {"rank_pattern": {"q_proj": 4}},
            {"probe": {"engine": "vllm"}, "lora": {"r": 4, "rank_pattern": {"q_proj": 4}}},
            "start-on-engine",
        ),
    ):
        changed = shutil.copytree(adapter, adapter.parents[3] / "changed", dirs_exist_ok=True)
        config = json.loads((adapter / "adapter_config.json").read_text())
        (changed / "adapter_config.json").write_text(json.dumps(config | settings))
        assert code(start={"adapter": str(changed)}, **more) == expected
    weights = store.read_bytes(*place, "adapter", "adapter_model.safetensors")
    flipped = weights[:-1] + bytes([weights[-1] ^ 1])
    store.write_bytes(flipped, *place, "adapter", "adapter_model.safetensors")
    assert code() == "unsound-start"
    store.delete(*place, "result.json")
    assert code() == "start-not-finished"

"""What makes a cell: its treatment is every field that is not excluded by name."""

from pathlib import Path
from typing import Any

import pytest
from factories import small_plan

from orchestrator.config.entries import AllocationEntry, PolicyEntry
from orchestrator.config.experiment import Refresh
from orchestrator.pipeline.manifest import id_settings
from orchestrator.planning.cells import NO_TREATMENT, Cell
from orchestrator.report.compare import policy_key
from orchestrator.tracking.views import cell_params

# With the id that stored cells of such a treatment have.
CHANGES: dict[str, tuple[Any, str]] = {
    "online": (PolicyEntry(policy="dynamic"), "9542d33e04fb0655"),
    "mask_dead_groups": (True, "1a61e8b789511465"),
    "reward": ({"brevity": 0.5}, "6bb1123d8e945c61"),
    "allocation": (AllocationEntry(rule="sqrt"), "92a117db5d3a376c"),
    "rollouts_by": ("trl", "a1f04e3090205bf5"),
    "grpo": ({"beta": 0.5}, "ad96d652baefcd9b"),
    "lora": ({"r": 3}, "98515db59bcec79f"),
    "refresh": (Refresh(every=2), "7fc8dabddc83c2cc"),
}

NAMES = {"rollouts_by": "rollouts"}  # of the experiment file, where they differ


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    return small_plan(Path(tmp_path_factory.mktemp("plan"))).cells[0]


def changed(cell: Cell, field: str) -> Cell:
    value, _ = CHANGES[field]
    if field in ("grpo", "lora"):
        value = getattr(cell, field) | value
    return anew(cell, **{field: value})


def anew(cell: Cell, **changes: Any) -> Cell:
    """A copy without the hashes that the cell has cached."""
    copy = cell.model_copy(update=changes)
    for name in ("cell_id", "subset_key"):
        copy.__dict__.pop(name, None)
    return copy


def test_every_field_is_a_treatment_or_excluded_by_name() -> None:
    assert {*Cell.model_fields} >= NO_TREATMENT
    assert {*Cell.model_fields} - NO_TREATMENT == {*CHANGES}, "add a change of the new field"


@pytest.mark.parametrize("field", CHANGES)
def test_another_treatment_is_another_cell_and_no_seed_of_the_same_policy(
    cell: Cell, field: str
) -> None:
    other = changed(cell, field)
    assert (cell.cell_id, other.cell_id) == ("b5cb529c9fa11572", CHANGES[field][1])
    assert policy_key(other) != policy_key(cell)
    then, now = id_settings(cell), id_settings(other)
    differing = {name for name in {*then, *now} if then.get(name) != now.get(name)}
    assert differing and {name.partition(".")[0] for name in differing} == {NAMES.get(field, field)}
    changed_params = cell_params(other).items() - cell_params(cell).items()
    assert changed_params, "MLflow tells them apart"
    seed = anew(other, seed=7)
    assert policy_key(seed) == policy_key(other) and seed.cell_id != other.cell_id

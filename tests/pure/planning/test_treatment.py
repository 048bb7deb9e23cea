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
    "online": (PolicyEntry(policy="dynamic"), "1c92eb612b5fd23d"),
    "mask_dead_groups": (True, "4bd072ddd01f9ca6"),
    "reward": ({"brevity": 0.5}, "3ddc861964204d54"),
    "allocation": (AllocationEntry(rule="sqrt"), "20fff231565f9537"),
    "rollouts_by": ("trl", "af1d0f40eb0681fc"),
    "grpo": ({"beta": 0.5}, "cf80510269f7398a"),
    "lora": ({"r": 3}, "e0a21924ebceadb4"),
    "refresh": (Refresh(every=2), "449ad18470045b1e"),
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
    assert (cell.cell_id, other.cell_id) == ("66ef917a9ceb2feb", CHANGES[field][1])
    assert policy_key(other) != policy_key(cell)
    then, now = id_settings(cell), id_settings(other)
    differing = {name for name in {*then, *now} if then.get(name) != now.get(name)}
    assert differing and {name.partition(".")[0] for name in differing} == {NAMES.get(field, field)}
    changed_params = cell_params(other).items() - cell_params(cell).items()
    assert changed_params, "MLflow tells them apart"
    seed = anew(other, seed=7)
    assert policy_key(seed) == policy_key(other) and seed.cell_id != other.cell_id

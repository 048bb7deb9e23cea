"""What makes a cell: its treatment is every field that is not excluded by name."""

from pathlib import Path
from typing import Any

import pytest
from factories import small_plan

from orchestrator.config.entries import AllocationEntry, PolicyEntry
from orchestrator.config.experiment import Refresh
from orchestrator.pipeline.manifest import id_settings
from orchestrator.planning.cells import NO_TREATMENT, Cell
from orchestrator.report.compare import _without_seed, settings_key
from orchestrator.storage.proof import canonical_hash
from orchestrator.tracking.views import cell_params

CHANGES: dict[str, Any] = {
    "online": PolicyEntry(policy="dynamic"),
    "mask_dead_groups": True,
    "reward": {"brevity": 0.5},
    "allocation": AllocationEntry(rule="sqrt"),
    "rollouts_by": "trl",
    "grpo": {"beta": 0.5},
    "lora": {"r": 3},
    "refresh": Refresh(every=2),
}


NAMES = {"rollouts_by": "rollouts"}  # of the experiment file, where they differ


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    return small_plan(Path(tmp_path_factory.mktemp("plan"))).cells[0]


def changed(cell: Cell, field: str) -> Cell:
    value = CHANGES[field]
    if field in ("grpo", "lora"):
        value = getattr(cell, field) | value
    return anew(cell, **{field: value})


def anew(cell: Cell, **changes: Any) -> Cell:
    """A copy without the hashes that the cell has cached."""
    copy = cell.model_copy(update=changes)
    for name in ("cell_id", "subset_key"):
        copy.__dict__.pop(name, None)
    return copy


def id_of_earlier_versions(cell: Cell) -> str:
    """The hash of stored cells, written out."""
    identity: dict[str, Any] = {
        "subset": cell.subset_identity,
        "evaluation": [cell.baseline.key, cell.baseline.settings.samples, cell.test_hash],
        "also": [extra.identity for extra in cell.extra_evals],
        "every": cell.evaluate_every,
        "grpo": cell.grpo,
        "mask_dead_groups": cell.mask_dead_groups,
        "lora": cell.lora,
        "workers": cell.resources.workers,
    }
    for name in ("online", "refresh", "allocation"):
        if part := getattr(cell, name):
            identity[name] = part.model_dump()
    if cell.reward:
        identity["reward"] = cell.reward
    if cell.rollouts_by != "decile":
        identity["rollouts_by"] = cell.rollouts_by
    return canonical_hash(identity)


def test_every_field_is_a_treatment_or_excluded_by_name() -> None:
    assert {*Cell.model_fields} >= NO_TREATMENT
    assert {*Cell.model_fields} - NO_TREATMENT == {*CHANGES}, "add a change of the new field"


@pytest.mark.parametrize("field", CHANGES)
def test_another_treatment_is_another_cell_and_no_seed_of_the_same_policy(
    cell: Cell, field: str
) -> None:
    other = changed(cell, field)
    assert other.cell_id != cell.cell_id and _without_seed(other) != _without_seed(cell)
    assert (settings_key(other) == settings_key(cell)) == (field == "online")
    then, now = id_settings(cell), id_settings(other)
    differing = {name for name in {*then, *now} if then.get(name) != now.get(name)}
    assert differing and {name.partition(".")[0] for name in differing} == {NAMES.get(field, field)}
    changed_params = cell_params(other).items() - cell_params(cell).items()
    assert changed_params, "MLflow tells them apart"
    seed = anew(other, seed=7)
    assert _without_seed(seed) == _without_seed(other) and seed.cell_id != other.cell_id


def test_stored_cells_keep_their_ids(cell: Cell) -> None:
    for each in (cell, *(changed(cell, field) for field in CHANGES)):
        assert each.cell_id == id_of_earlier_versions(each)

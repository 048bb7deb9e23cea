"""What makes a cell: every field declares which identity hashes it, and how people see it."""

from pathlib import Path
from typing import Any

import pytest
from factories import small_plan

from orchestrator.config.allocation_entry import AllocationEntry
from orchestrator.config.experiment import Refresh, Resources
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.pipeline.manifest import id_settings
from orchestrator.planning.cells import Cell, DifficultySource, ExtraEval, ProbeSpec
from orchestrator.report.compare import policy_key
from orchestrator.tracking.views import cell_params

ID = "b5cb529c9fa11572"  # of the unchanged cell, as stored

# Another value of each field, with the id that stored cells of it have; "" where ids of earlier
# versions do not pin it.
CHANGES: dict[str, tuple[Any, str]] = {
    "probe": ({"samples": 5}, ""),
    "baseline": ({"samples": 9}, ""),
    "extra_evals": ("an evaluation", ""),
    "pass_at": ((1, 2), ID),
    "policy": ("other name", ID),
    "static_policy": (PolicyEntry(policy="hard", options={"exclude": "suspected"}), ""),
    "stream": ("2", ""),
    "online": (PolicyEntry(policy="dynamic"), "9542d33e04fb0655"),
    "online_version": (2, ""),
    "difficulty": (DifficultySource(by="agreement"), ""),
    "seed": (7, ""),
    "size": (9, ""),
    "bounding_rules": ([PolicyEntry(policy="easy")], ""),
    "train_hash": ("0" * 16, ""),
    "columns_hash": ("1" * 16, ""),
    "gold_count": (3, ID),
    "test_hash": ("2" * 16, ""),
    "mask_dead_groups": (True, "1a61e8b789511465"),
    "reward": ({"brevity": 0.5}, "6bb1123d8e945c61"),
    "false_positive_rate": (0.2, ""),
    "false_negative_rate": (0.2, ""),
    "allocation": (AllocationEntry(rule="sqrt"), "92a117db5d3a376c"),
    "rollouts_by": ("trl", "a1f04e3090205bf5"),
    "grpo": ({"beta": 0.5}, "ad96d652baefcd9b"),
    "lora": ({"r": 3}, "98515db59bcec79f"),
    "evaluate_every": (3, ""),
    "refresh": (Refresh(every=2), "7fc8dabddc83c2cc"),
    "evaluate_engine": ("vllm", ID),
    "resources": (Resources(workers=2), ""),
    "max_logp_difference": (0.5, ID),
    "provenance": ({"train": "another file"}, ID),
    "setting_axes": ({"grpo.beta": 0.1}, ID),
}
# The final accuracies of cells that differ in these alone scatter alike: they are pooled.
POOLED = {"seed", "extra_evals", "evaluate_every", "online_version"}
PROBE_CHANGES: dict[str, Any] = {
    "model": {"identity": "folder:0"},
    "dataset": {"task": "math"},
    "split": "test",
    "settings": {"temperature": 0.5},
    "template": "3" * 16,
    "marker": "other/1",
}


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    return small_plan(Path(tmp_path_factory.mktemp("plan"))).cells[0]


def changed(cell: Cell, field: str) -> Cell:
    value, _ = CHANGES[field]
    if field in ("grpo", "lora"):
        value = getattr(cell, field) | value
    elif field in ("probe", "baseline"):
        spec = getattr(cell, field)
        value = anew(spec, settings=spec.settings.model_copy(update=value))
    elif field == "extra_evals":
        value = [ExtraEval(probe=cell.baseline, dataset="other", greedy=True, test_hash="4" * 16)]
    return anew(cell, **{field: value})


def anew(spec: Any, **changes: Any) -> Any:
    """A copy without the hashes that it has cached."""
    copy = spec.model_copy(update=changes)
    for name in ("cell_id", "subset_key", "key"):
        copy.__dict__.pop(name, None)
    return copy


def differing(one: dict[str, Any], two: dict[str, Any]) -> set[str]:
    return {name for name in {*one, *two} if one.get(name) != two.get(name)}


def test_every_field_is_changed_and_declared() -> None:
    assert {*Cell.parts()} == {*Cell.model_fields} == {*CHANGES}, "add a change of the new field"
    assert {*ProbeSpec.parts()} == {*ProbeSpec.model_fields} == {*PROBE_CHANGES}
    for part in [*Cell.parts().values(), *ProbeSpec.parts().values()]:
        assert bool(part.of) != bool(part.why), "an identity, or why there is none"


@pytest.mark.parametrize("field", CHANGES)
def test_another_value_is_another_cell_where_the_field_declares_it(cell: Cell, field: str) -> None:
    other, part, stored = changed(cell, field), Cell.parts()[field], CHANGES[field][1]
    assert cell.cell_id == ID and other.cell_id == (stored or other.cell_id)
    assert (other.cell_id != ID) is bool(part.of)
    assert (other.subset_key != cell.subset_key) is (part.of == "subset")
    assert (other.treatment != cell.treatment) is (part.of == "treatment")
    assert (other.evaluation_identity != cell.evaluation_identity) is (part.of == "evaluation")
    names = differing(id_settings(cell), id_settings(other))  # which `decile plan` lists
    params = differing(cell_params(cell), cell_params(other))
    assert bool(names) is bool(part.of)
    for name in names:
        values = id_settings(cell).get(name), id_settings(other).get(name)
        assert not any(values) or any(
            param == name or param.startswith(f"{name}.") for param in params
        ), name
    pooled = policy_key(other) == policy_key(cell)
    assert pooled is (not part.of or field in POOLED)
    seed = anew(other, seed=8)
    assert policy_key(seed) == policy_key(other) and seed.cell_id != other.cell_id


@pytest.mark.parametrize("field", PROBE_CHANGES)
def test_another_value_is_another_probe_where_the_field_declares_it(cell: Cell, field: str) -> None:
    spec, value = cell.probe, PROBE_CHANGES[field]
    if field == "settings":
        value = spec.settings.model_copy(update=value)
    elif isinstance(value, dict):
        value = getattr(spec, field).__class__(**(vars(getattr(spec, field)) | value))
    other = anew(spec, **{field: value})
    assert (other.key != spec.key) is bool(ProbeSpec.parts()[field].of)
    if ProbeSpec.parts()[field].of:
        assert differing(id_settings(cell), id_settings(anew(cell, probe=other)))


def test_stored_cells_have_the_names_of_earlier_versions(cell: Cell) -> None:
    own = anew(cell, setting_axes={"grpo.beta": 0.1})
    stored = own.model_dump(mode="json")
    assert {"rule", "match", "swept"} <= {*stored}
    assert not {"static_policy", "bounding_rules", "setting_axes"} & {*stored}
    assert Cell.model_validate(stored) == own

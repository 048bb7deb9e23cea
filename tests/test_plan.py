"""Cells and their ids: equal content, equal id; anything that can change a result, another."""

from pathlib import Path

import pytest
from factories import small_plan

from orchestrator.lines import UserError
from orchestrator.plan import Cell


def only(folder: Path, **settings: object) -> Cell:
    [cell] = small_plan(folder, policies=["hard"], **settings).cells
    return cell


def test_the_grid_is_the_product_of_its_axes(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["hard", "easy", "random"], seeds=[0, 1])
    assert len({cell.cell_id for cell in plan.cells}) == len(plan.cells) == 6
    assert len(plan.probes) == 2


def test_what_cannot_change_a_result_does_not_change_the_id(tmp_path: Path) -> None:
    plain = only(tmp_path)
    assert only(tmp_path, name="other").cell_id == plain.cell_id
    assert only(tmp_path, resources={"cpus": 0.5}).cell_id == plain.cell_id
    assert only(tmp_path, about="words").cell_id == plain.cell_id


@pytest.mark.parametrize(
    "change",
    [
        {"budget": 9},
        {"marking": "strict"},
        {"probe": {"samples": 5, "max_completion_length": 32}},
        {"probe": {"samples": 4, "max_completion_length": 33}},
        {"probe": {"samples": 4, "max_completion_length": 32, "temperature": 0.9}},
        {"lora": {"r": 5}},
        {"evaluate": {"every": 3, "samples": 8}},
        {"evaluate": {"every": 2, "samples": 7}},
        {"seeds": [7]},
        {"updates": 5},
        {"resources": {"workers": 2}},
    ],
)
def test_what_can_change_a_result_changes_the_id(tmp_path: Path, change: dict) -> None:
    assert only(tmp_path, **change).cell_id != only(tmp_path).cell_id


def test_a_probe_is_shared_across_k_and_marking_but_not_across_sampling(tmp_path: Path) -> None:
    key = only(tmp_path).probe.key
    base = {"samples": 4, "max_completion_length": 32}
    assert only(tmp_path, probe=base | {"samples": 9}).probe.key == key
    assert only(tmp_path, marking="strict").probe.key == key
    for change in ({"temperature": 0.5}, {"seed": 1}, {"max_completion_length": 31}, {"top_k": 5}):
        assert only(tmp_path, probe=base | change).probe.key != key


def test_other_weights_are_another_probe(tmp_path: Path) -> None:
    first = only(tmp_path).probe.key
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other")
    assert only(tmp_path).probe.key != first


def test_a_cell_survives_its_own_json(tmp_path: Path) -> None:
    cell = only(tmp_path)
    again = Cell.model_validate_json(cell.model_dump_json())
    assert again.cell_id == cell.cell_id
    assert again.subset_key == cell.subset_key


@pytest.mark.parametrize(("budget", "words"), [(41, "of a pool of 40"), (1, "fewer than the 2")])
def test_a_budget_that_does_not_fit_is_refused_with_its_line(
    tmp_path: Path, budget: int, words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        only(tmp_path, budget=budget)
    assert "experiments.yaml:" in str(caught.value)
    assert "budget" in str(caught.value)

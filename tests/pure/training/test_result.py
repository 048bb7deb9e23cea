"""`result.json` as a value: what is read is what is written."""

import json
from pathlib import Path

import pytest
from factories import finished_sweep, result_json
from pydantic import ValidationError

from orchestrator.planning.result import Result
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder, CellState, cell_state
from orchestrator.training.record import copy_result_from


def stored(store: Store, cell_id: str) -> tuple[str, Result]:
    value = store.read_json("cells", cell_id, "result.json")
    result = CellFolder(store, cell_id).result()
    assert result is not None
    return json.dumps(value, sort_keys=True), result


def text(result: Result) -> str:
    return json.dumps(result.as_json(), sort_keys=True)


def test_results_are_written_as_they_were_read(tmp_path: Path) -> None:
    """Also of axes that are settings, and of a cell with the files of another."""
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["hard"], "grpo.beta": [0, 0.1]}
    plan, store = finished_sweep(tmp_path, grid=grid)
    for cell in plan.cells:
        value, result = stored(store, cell.cell_id)
        assert text(result) == value
        assert result.as_json()["grpo.beta"] == cell.setting_axes["grpo.beta"]
        assert result.finished_at is not None and result.learnable_drawn_pct is None
    first, second = plan.cells
    assert copy_result_from(store, first, second)
    value, result = stored(store, first.cell_id)
    assert text(result) == value and result.same_as == second.cell_id


@pytest.mark.parametrize("number", [3, 3.0, 0, 1e-9])
def test_numbers_stay_what_they_were(number: float) -> None:
    ledger = result_json()["ledger"] | {"seconds": number, "all_wrong": number}
    value = result_json(ledger=ledger, gain=number, timing={"peak_gib": number}, base={"x": number})
    value |= {"accuracy_base": float("nan"), "learnable_drawn_pct": float("nan")}
    assert text(Result.model_validate(value)) == json.dumps(value, sort_keys=True)


def test_entries_that_only_some_cells_have() -> None:
    result = Result.model_validate(result_json())
    assert (result.learnable_drawn_pct, result.same_as) == (None, None)
    assert (result.ledger.get("live", 7), result.ledger.get("live")) == (7, None)
    assert Result.model_validate(result_json(more=[1])).as_json()["more"] == [1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": True},
        {"timing": {"peak_gib": "3"}},
        {"finished_at": "2026-01-01T00:00:00"},
        {"ledger": {"seconds": 1.0}},
        {"ledger": result_json()["ledger"] | {"seconds": -1}},
        {"ledger": result_json()["ledger"] | {"live": float("inf")}},
    ],
)
def test_values_of_other_types_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Result.model_validate(result_json(**wrong))


def test_a_cell_with_a_proven_result_of_another_form_is_not_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan, store = finished_sweep(tmp_path, policies=["hard"])
    [cell] = plan.cells
    value = store.read_json("cells", cell.cell_id, "result.json")
    del value["ledger"]
    store.write_json(value, "cells", cell.cell_id, "result.json")
    assert cell_state(store, cell) is CellState.RUNNING
    assert f"cells/{cell.cell_id}/result.json " in caplog.text and "(ledger " in caplog.text

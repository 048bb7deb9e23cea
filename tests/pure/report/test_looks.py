"""Looks at a sweep: which one is planned, what the others need, and what is stored of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from factories import finished_sweep, small_plan

from benchmarks.compare_null import looking_again
from orchestrator.report.analysis import analyse
from orchestrator.report.looks import EXTRA_LEVEL, LOOKS, looks_text, take_look
from orchestrator.stats.inference import ALPHA
from orchestrator.storage.store import Store


def levels(
    folder: Path, steps: Sequence[tuple[int, int]], name: str = "sweep", first: int = 0
) -> list[float]:
    """The level of each look: of a file with so many seeds, of which so many are finished."""
    store, result = Store(str(folder / "runs")), []
    for planned, finished in steps:
        plan = small_plan(folder, name=name, seeds=range(first, first + planned))
        cells = [c.cell_id for c in plan.cells if c.seed < first + finished]
        result.append(take_look(plan, store, cells)[-1].level)
    return result


@pytest.mark.parametrize(
    ("steps", "planned"),
    [
        ([(3, 3)], [True]),
        ([(3, 1), (3, 2), (3, 3)], [False, False, True]),
        ([(3, 3), (3, 3)], [True, True]),  # the same results again
        ([(3, 3), (4, 4), (5, 5)], [True, False, False]),  # seeds are added
        ([(5, 2), (3, 3)], [False, False]),  # the plan is cut to what is finished
        ([(2, 1), (4, 4), (2, 2)], [False, False, True]),  # back to the plan of the first look
    ],
)
def test_one_look_is_the_planned_one(
    tmp_path: Path, steps: list[tuple[int, int]], planned: list[bool]
) -> None:
    assert levels(tmp_path, steps) == [ALPHA if each else EXTRA_LEVEL for each in planned]


def test_another_name_is_no_fresh_look_but_other_seeds_are(tmp_path: Path) -> None:
    assert levels(tmp_path, [(3, 3)]) == [ALPHA]
    assert levels(tmp_path, [(4, 4)], "renamed") == [EXTRA_LEVEL]
    assert levels(tmp_path, [(3, 3)], "fresh", first=20) == [ALPHA]


def test_failed_cells_and_those_of_a_cap_do_not_keep_the_planned_look_back(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, seeds=range(3))
    ids = [cell.cell_id for cell in plan.cells]
    for number, left_out in enumerate(("failed", "dropped")):
        store = Store(str(tmp_path / str(number)))
        (look,) = take_look(plan, store, ids[:-1], **{left_out: ids[-1:]})
        assert look.level == ALPHA
        assert [each.level for each in take_look(plan, store, ids)] == [
            ALPHA,
            ALPHA if left_out == "failed" else EXTRA_LEVEL,
        ]


def test_an_analysis_is_a_look_and_is_stored(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, seeds=(0, 1, 2))
    more = small_plan(tmp_path, seeds=range(5))
    first, again = analyse(plan, store), analyse(plan, store)
    assert first.looks == again.looks and first.digest == again.digest
    assert len(store.names(LOOKS)) == 1 and looks_text(first.looks) == ""
    interim = analyse(more, store)
    assert interim.looks == first.looks, "no other results"
    pair = interim.families[0].accuracy[0]
    assert pair.missing_runs == (2, 2) and pair.verdict == "inconclusive"


def test_a_storage_that_cannot_be_written_has_the_level_of_its_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan, store = finished_sweep(tmp_path, seeds=(0, 1, 2))
    more, _ = finished_sweep(tmp_path, seeds=range(4))
    analyse(plan, store)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(store, "write_json", refused)
    assert analyse(more, store).looks[-1].level == EXTRA_LEVEL
    assert analyse(plan, store).looks[-1].level == ALPHA, "this one was recorded"
    assert "read-only" in caplog.text and len(store.names(LOOKS)) == 1


def test_the_cost_of_looks_is_stated(tmp_path: Path) -> None:
    store, plan = Store(str(tmp_path)), small_plan(tmp_path, seeds=range(3))
    ids = [cell.cell_id for cell in plan.cells]
    one = take_look(plan, store, ids[:2])
    assert looks_text([]) == "" and "0.1 %" in looks_text(one)
    assert "5.1 %" in looks_text(take_look(plan, store, ids))


def test_looking_again_keeps_the_level() -> None:
    """With every look at 5 %, in a fifth of the sweeps of equal policies one is significant."""
    assert looking_again([6.0, 6.0], 2, 200, planned=2) <= 0.07
    assert looking_again([6.0, 6.0], 2, 200, planned=2, extra_level=ALPHA) > 0.12

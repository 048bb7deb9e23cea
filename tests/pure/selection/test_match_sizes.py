"""`match_sizes`: every policy selects as many prompts as the one with the fewest can."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from factories import cell_record, sample_row, small_plan, store_samples
from remedies import place, refused

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.difficulty.probe_table import CellTables, difficulty_of
from orchestrator.pipeline import probes
from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.pipeline.run import Run
from orchestrator.planning.plan import Plan
from orchestrator.report.sections.pool import probe_report
from orchestrator.selection.stored import read_subset, store_subset
from orchestrator.selection.subsets import SubsetRequest, select
from orchestrator.storage.store import Store
from orchestrator.training.record import finish
from policies import PolicyError, ScorePolicy

POLICIES: dict[str, dict[str, Any]] = {
    "half": {"policy": "band", "options": {"low": 0.5, "high": 0.5}},  # 8 of 40 prompts
    "below": {"policy": "band", "options": {"low": 0.0, "high": 0.75}},  # 32
    "none": {"policy": "band", "options": {"low": 0.3, "high": 0.4}},
    "dynamic-half": {"policy": "dynamic", "options": {"of": {"band": {"low": 0.5, "high": 0.5}}}},
    "seven": {"policy": "tiers", "options": {"levels": [7]}},  # 12
    "unknown": {"policy": "tiers", "options": {"levels": [9]}},  # 0
    "raises": {"policy": f"{__name__}:Raises"},
    "by-count": {"policy": f"{__name__}:ByCount"},
    "if-sampled": {"policy": f"{__name__}:IfSampled"},
}


class Raises(ScorePolicy):
    """One of the user's own that fails where its capacity is read."""

    def score(self, difficulty: pa.Table) -> Any:
        raise NotImplementedError

    def eligible(self, difficulty: pa.Table) -> Any:
        return difficulty["absent"]


class ByCount(ScorePolicy):
    """Declares that it needs no samples, and reads their number."""

    needs = "nothing"

    def score(self, difficulty: pa.Table) -> Any:
        return np.zeros(difficulty.num_rows)

    def eligible(self, difficulty: pa.Table) -> Any:
        return difficulty["n"].to_numpy() > 0


class IfSampled(ByCount):
    """Declares that it needs samples, and selects nothing without them."""

    needs = "all"

    def eligible(self, difficulty: pa.Table) -> Any:
        sampled = "n" in difficulty.column_names
        return np.full(difficulty.num_rows, sampled)


def plan_of(folder: Path, policies: Sequence[str], **settings: Any) -> Plan:
    """A plan over 40 prompts with subsets of 12, and updates of 2 prompts."""
    settings = {"budget": 12, "match_sizes": True} | settings
    return small_plan(folder, policies=policies, rules=POLICIES, **settings)


def probed(plan: Plan) -> tuple[Store, pa.Table]:
    """Samples of the plan's probes, with pass rates of 0, 1/4, … 1 for 8 prompts each.

    Also the difficulty table.
    """
    store = Store(plan.source.config.storage)
    for spec in plan.probes:
        ids = sorted(prompt.prompt_id for prompt in plan.pool(spec).prompts(spec.split))
        rows = [
            sample_row(prompt_id, i, outcome="correct" if i < number % 5 else "wrong")
            for number, prompt_id in enumerate(ids)
            for i in range(spec.settings.samples)
        ]
        store_samples(store, spec, rows)
    spec = plan.cells[0].probe
    return store, difficulty_of(plan, spec, Run.of(plan, store).folder(spec).outcomes())


def sizes_of(store: Store, plan: Plan) -> list[int | None]:
    """The sizes of the stored subsets, by cell."""
    subsets = [read_subset(store, cell) for cell in plan.cells]
    return [None if subset is None else subset.num_rows for subset in subsets]


@pytest.mark.parametrize(
    ("policies", "settings", "sizes"),
    [
        (["half", "random", "hard"], {}, [8, 8, 8]),
        (["random", "dynamic-half", "hard"], {}, [8, 8, 8]),
        (["below", "random", "hard"], {}, [12, 12, 12]),
        (["below", "half", "seven", "full"], {}, [8, 8, 8, 40]),
        (["seven", "random"], {"budget": 20}, [12, 12]),
        (["below", "random", "full"], {"match_sizes": False}, [12, 12, 40]),
        (["by-count", "if-sampled"], {}, [12, 12]),
    ],
    ids=["fewer", "online", "no fewer", "whole pool", "tiers", "not matched", "own"],
)
def test_every_subset_has_the_smallest_size_and_never_more_than_the_budget(
    tmp_path: Path, policies: list[str], settings: dict[str, Any], sizes: list[int]
) -> None:
    plan = plan_of(tmp_path, policies, **settings)
    store, table = probed(plan)
    assert [store_subset(store, cell, table).num_rows for cell in plan.cells] == sizes
    assert sizes_of(store, plan) == sizes


def test_a_policy_that_takes_the_whole_pool_bounds_no_other() -> None:
    """Also where it takes less than the budget, as with a requirement."""
    outcomes = {"wrong": [1, 0, 0], "unparsed": [0, 1, 1], "truncated": [0, 0, 0]}
    table = pa.table({"prompt_id": ["a", "b", "c"], "tier": [""] * 3, **outcomes})
    parsed = PolicyEntry(policy="full", options={"require": "parsed"})
    request = SubsetRequest(PolicyEntry(policy="random"), 2, match=[parsed])
    assert select(table, request)[0].num_rows == 2
    assert select(table, request._replace(rule=parsed))[0].num_rows == 1


@pytest.mark.parametrize(
    ("policies", "settings", "values"),
    [
        (["half"], {"match_sizes": False}, ("band has 8 of 12",)),
        (["random", "half", "none"], {}, ("band has 0 of 40", "match_sizes")),
        (["hard", "raises"], {}, (f"{__name__}:Raises", "KeyError")),
    ],
)
def test_a_policy_that_cannot_fill_a_subset_is_named(
    tmp_path: Path, policies: list[str], settings: dict[str, Any], values: tuple[str, ...]
) -> None:
    plan = plan_of(tmp_path, policies, **settings)
    store, table = probed(plan)
    for cell in plan.cells:
        with pytest.raises(PolicyError) as caught:
            store_subset(store, cell, table)
        assert [value for value in values if value not in str(caught.value)] == []
    assert not store.names("subsets")


LARGE_UPDATES = {"max_steps": 4, "num_generations": 4, "per_device_train_batch_size": 40}


def test_subsets_that_are_too_small_for_an_update_end_the_probe_and_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the probe can show it; a corrected grid draws nothing again."""
    plan = plan_of(tmp_path, ["random", "half", "full"], grpo=LARGE_UPDATES)
    store, _ = probed(plan)
    monkeypatch.setattr(probes, "run_in_worker", lambda check, *arguments: check(*arguments))
    for _ in range(2):  # running it again does not accept them
        values = ("cell stub/small/random/s0: ", "8 prompts", "10 of", "band has 8 of 40", "1 more")
        with refused(*values, by=PolicyError), ProgressDisplay.of(plan) as progress:
            probes.run_probes(Run(plan, store, progress))
        assert sizes_of(store, plan) == [None, None, 40]
    smaller = plan_of(tmp_path, ["random", "half", "full"])
    with ProgressDisplay.of(smaller) as progress:
        probes.run_probes(Run(smaller, store, progress))
    assert sizes_of(store, smaller) == [8, 8, 40]


def test_a_stored_subset_that_is_too_small_is_refused(tmp_path: Path) -> None:
    """The batch is not part of a subset's key: another experiment may have stored it."""
    plan = plan_of(tmp_path, ["half"])
    store, table = probed(plan)
    store_subset(store, plan.cells[0], table)
    [cell] = plan_of(tmp_path, ["half"], grpo=LARGE_UPDATES).cells
    assert cell.subset_key == plan.cells[0].subset_key
    with pytest.raises(PolicyError, match="8 prompts, fewer than the 10 of one update"):
        store_subset(store, cell, table)


@pytest.mark.parametrize("policies", [["half", "random"], ["random", "half"]])
def test_a_probe_and_its_report_have_the_matched_size(tmp_path: Path, policies: list[str]) -> None:
    plan = plan_of(tmp_path, policies)
    store, table = probed(plan)
    for cell in plan.cells:
        store_subset(store, cell, table)
    spec, run = plan.cells[0].probe, Run.of(plan, store)
    tables = CellTables(run.folder(spec).outcomes())
    text = "\n".join(probes.difficulty_lines(plan.cells, store, [(spec, tables)]))
    assert f"subset of policy {plan.cells[0].static_policy.policy}: 8 prompts" in text
    (pool,) = probe_report(plan, store, tmp_path / "p.html").pools
    assert [each.summary.size for each in pool.policies] == [8, 8]
    assert all("--budget 8" in each.command for each in pool.policies)


def test_results_have_the_size_and_the_epochs_of_the_matched_subset(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ["random", "half"])
    store, table = probed(plan)
    for cell in plan.cells:
        store_subset(store, cell, table)
        record = cell_record(plan, cell)
        finish(store, cell, record, {})
        result = store.read_json("cells", cell.cell_id, "result.json")
        groups = cell.updates * cell.prompts_per_update
        assert (cell.size, result["size"]) == (12, 8)
        assert result["ledger"]["epochs"] == groups / 8
        assert store.read_json("cells", cell.cell_id, "ledger.json")["epochs"] == groups / 8
        assert "on 8 prompts of" in store.read_bytes("cells", cell.cell_id, "README.md").decode()


@pytest.mark.parametrize(
    ("policies", "settings", "code", "setting", "values"),
    [
        (["unknown", "random"], {}, "matched-size-does-not-fill-updates", "match_sizes", ()),
        (
            ["random", "seven"],
            {"budget": 20, "grpo": LARGE_UPDATES | {"per_device_train_batch_size": 64}},
            "matched-size-does-not-fill-updates",
            "match_sizes",
            ("12 prompts", "16 of"),
        ),
        (
            ["random", "seven"],
            {"budget": 20, "match_sizes": False},
            "budget-exceeds-policy",
            "budget",
            ("20 prompts", "12 of 40"),
        ),
    ],
)
def test_a_plan_refuses_what_no_probe_is_needed_to_know(
    tmp_path: Path,
    policies: list[str],
    settings: dict[str, Any],
    code: str,
    setting: str,
    values: tuple[str, ...],
) -> None:
    with refused(*values, code=code) as error:
        plan_of(tmp_path, policies, **settings)
    assert str(error.value).startswith(place(tmp_path / "experiments.yaml", f" {setting}: "))


@pytest.mark.parametrize(
    ("policies", "settings"),
    [
        (["random", "seven"], {"budget": 20, "grpo": LARGE_UPDATES | {"max_steps": 5}}),
        (["random", "seven"], {"budget": 12, "match_sizes": False}),
        (["full", "none", "half"], {"grpo": LARGE_UPDATES}),
        (["by-count", "if-sampled", "random"], {}),
    ],
)
def test_a_plan_accepts_what_a_probe_may_still_decide(
    tmp_path: Path, policies: list[str], settings: dict[str, Any]
) -> None:
    assert len(plan_of(tmp_path, policies, **settings).cells) == len(policies)


def test_only_the_value_of_an_axis_that_cannot_work_is_refused(tmp_path: Path) -> None:
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["random", "seven"]}
    grid["budget"] = [11, 12, 13]
    with refused("13 prompts", "tiers has 12", code="budget-exceeds-policy"):
        plan_of(tmp_path, [], grid=grid, budget=None, match_sizes=False)
    plan = plan_of(tmp_path, [], grid=grid, budget=None)
    assert {cell.size for cell in plan.cells} == {11, 12, 13}

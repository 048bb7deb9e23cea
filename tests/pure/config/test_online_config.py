"""Settings under which an online policy cannot work are errors with their line."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sweeps
import yaml
from policies_cases import ONLINE
from remedies import refused

from orchestrator.config.catalog import load_config
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.selection.candidates import check_candidates, history_of
from orchestrator.storage.errors import UserError
from orchestrator.storage.schema import SUBSET
from policies import PolicyError

GRID = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard", "mine"]}


def loaded(folder: Path, policy: dict[str, Any], **changes: Any) -> Plan:
    """The plan of a sweep with the policy `mine`; `grpo` is added to the sweep's own."""
    file = sweeps.experiments(folder, grid=GRID)
    content = yaml.safe_load(file.read_text())
    experiment = content["experiments"][sweeps.NAME]
    experiment["grpo"] |= changes.pop("grpo", {})
    content["policies"] = {"mine": policy}
    file.write_text(yaml.safe_dump(content | {"experiments": {sweeps.NAME: experiment | changes}}))
    return make_plan(load_config(file), sweeps.NAME)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollouts": "trl"}, "rollouts: trl"),
        ({"grpo": {"min_p": 0.1}}, "grpo.min_p"),
        ({"grpo": {"num_iterations": 2}}, "num_iterations"),
        ({"grpo": {"steps_per_generation": 4}}, "steps_per_generation"),
        ({"grpo": {"generation_batch_size": 32}}, "generation_batch_size"),
        ({"resources": {"workers": 8}}, "resources.workers (8)"),
    ],
)
def test_settings_that_a_discarding_policy_cannot_have(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        loaded(tmp_path, {"policy": "dynamic"}, **changes)
    text = str(caught.value)
    place, line = text.split(":")[:2]
    assert message in text and "\n" not in text
    assert "mine" in Path(place).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    "changes", [{"rollouts": "trl"}, {"grpo": {"min_p": 0.1}}, {"resources": {"workers": 4}}]
)
def test_a_policy_that_only_chooses_allows_them(tmp_path: Path, changes: dict[str, Any]) -> None:
    cells = loaded(tmp_path, {"policy": "predicted"}, **changes).cells
    assert [cell.max_rollouts == cell.rollouts for cell in cells] == [True, True]


def test_the_comparison_reads_at_equal_rollouts_unless_it_is_set(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"policy": "predicted"}).compare_at == "rollouts"
    assert loaded(tmp_path, {"policy": "easy"}).compare_at == "updates"
    for axis in ("updates", "tokens"):
        assert loaded(tmp_path, {"policy": "predicted"}, compare_at=axis).compare_at == axis


def test_a_cell_has_two_rules_and_an_id_of_its_own(tmp_path: Path) -> None:
    hard, of_hard = loaded(tmp_path, {"policy": "dynamic", "options": {"of": "hard"}}).cells
    assert hard.online is None and "online" not in hard.model_dump()
    assert of_hard.online == PolicyEntry(policy="dynamic", options={"max_draws": 4})
    assert (hard.subset_key, hard.size) == (of_hard.subset_key, of_hard.size)
    whole = loaded(tmp_path, {"policy": "dynamic"}).cells[1]
    shorter = loaded(tmp_path, {"policy": "dynamic", "options": {"max_draws": 2}}).cells[1]
    assert whole.size == 64 and (whole.max_rollouts, shorter.max_rollouts) == (768, 384)
    ids = {cell.cell_id for cell in (hard, of_hard, whole, shorter)}
    assert len(ids) == 4 and whole.subset_key == shorter.subset_key
    assert type(whole).model_validate_json(whole.model_dump_json()) == whole


class Unknown:
    """A policy that knows other prompts."""

    def next(self, update: int, history: Any) -> list[str]:
        return [f"other{i}" for i in range(history.size)]


class Raises:
    """A policy, or a gate, with a mistake."""

    def next(self, update: int, history: Any) -> list[str]:
        return history.prompts  # type: ignore[no-any-return]

    def passes(self, update: int, history: Any) -> Any:
        return pass_rate > 0.5  # type: ignore[name-defined] # noqa: F821


class Rare:
    """A policy, or a gate, that fails where no pass rate is 0.9."""

    def next(self, update: int, history: Any) -> Any:
        [*history.pass_rate.round(2)].index(np.float32(0.9))
        return history.prompt_ids[: history.size]

    def passes(self, update: int, history: Any) -> Any:
        return self.next(update, history) == history.prompt_ids


class Rows:
    """A gate that returns row numbers."""

    def passes(self, update: int, history: Any) -> Any:
        return np.flatnonzero(history.pass_rate > 0.5)


class KeepsOne:
    """A policy that judges only the first group."""

    def next(self, update: int, history: Any) -> Any:
        return history.prompt_ids[: history.size]

    def keep(self, correct: Any, marked: Any) -> Any:
        return correct[:1] > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Unknown", "'other0', .* 64"),
        ("Rare", r"raised ValueError: .* \(.*test_online_config.py:\d+\)"),
    ],
)
def test_a_policy_is_tried_before_any_cell_trains(tmp_path: Path, name: str, message: str) -> None:
    plan = loaded(tmp_path, {"policy": f"{__name__}:{name}"})
    cell = plan.cells[1]
    known = {"n": 4, "successes": 2, "pass_rate": 0.5}
    rows = [{"prompt_id": p.prompt_id, **known} for p in plan.pool(cell.probe).train]
    subset = pa.Table.from_pylist(rows, schema=SUBSET)
    with pytest.raises(PolicyError, match=message):
        check_candidates(cell, subset)
    check_candidates(plan.cells[0], subset)  # a static policy has nothing to try


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"policy": f"{__name__}:Raises"}, "AttributeError"),
        ({"policy": f"{__name__}:KeepsOne"}, "(1,)"),
        ({"policy": "predicted", "options": {"gates": [f"{__name__}:Raises"]}}, "NameError"),
        ({"policy": "dynamic", "options": {"gates": [f"{__name__}:Rows"]}}, "int64"),
    ],
)
def test_a_plan_finds_a_policy_or_a_gate_whose_code_fails(
    tmp_path: Path, policy: dict[str, Any], named: str
) -> None:
    with refused(named, code="policy-fails") as caught:
        loaded(tmp_path, policy)
    file = tmp_path / "experiments.yaml"
    lines = file.read_text().splitlines()
    line = int(str(caught.value).removeprefix(f"{file}:").split(":")[0])
    assert lines[line - 1] == "  mine:" and "policies:" in lines[: line - 1]


@pytest.mark.parametrize(
    "policy",
    [
        {"policy": f"{__name__}:Rare"},
        {"policy": f"{__name__}:Unknown"},
        {"policy": "pools", "options": {"gates": [f"{__name__}:Rare"]}},
    ],
)
def test_a_plan_leaves_what_pass_rates_may_cause_to_the_probe(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    assert len(loaded(tmp_path, policy).cells) == 2


@pytest.mark.parametrize("name", ONLINE)
def test_a_plan_can_try_every_online_policy(tmp_path: Path, name: str) -> None:
    options = {"within": "tier", "gates": ["gaussian", {"rest": {"updates": 1}}]}
    assert len(loaded(tmp_path, {"policy": name, "options": options}).cells) == 2


def test_before_training_a_prompt_is_known_by_the_samples_that_could_be_scored(
    tmp_path: Path,
) -> None:
    """A rate leaves errors out: 2 successes at a rate of 2/3 are two of three."""
    cell = loaded(tmp_path, {"policy": "dynamic"}).cells[1]
    subset = pa.table(
        {
            "prompt_id": [*"abcde"],
            "n": [4, 4, 4, 4, None],
            "successes": [2, 2, 0, 0, None],
            "pass_rate": [0.5, 2 / 3, 0.0, None, None],
        }
    )
    history = history_of(cell.model_copy(update={"seed": 7}), subset)
    assert history.prompt_ids.to_pylist() == [*"abcde"]
    assert history.samples.tolist() == [4, 3, 4, 0, 0]
    assert history.successes.tolist() == [2, 2, 0, 0, 0]
    rates = [0.5, 2 / 3, 0, np.nan, np.nan]
    assert history.pass_rate.tolist() == pytest.approx(rates, nan_ok=True)
    group_size = cell.grpo["num_generations"]
    assert (history.seed, history.updates, history.group_size) == (7, cell.updates, group_size)

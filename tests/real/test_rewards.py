"""The setting `reward`: its cells, and the report on controls."""

from dataclasses import replace
from pathlib import Path

import pytest
from factories import finished_sweep, small_plan
from remedies import refused

from orchestrator.report.analysis import analyse
from orchestrator.report.compare import control_arms, families
from orchestrator.report.html_pages import page_html
from orchestrator.report.render import terminal_report
from orchestrator.report.rows import read_rows
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.verdicts import control_lines

GRID = {"model": ["stub"], "dataset": ["small"], "policy": ["hard", "random"], "seed": [0, 1]}


def test_the_score_is_the_default_and_other_rewards_are_other_cells(tmp_path: Path) -> None:
    ids = [cell.cell_id for cell in small_plan(tmp_path).cells]
    for same in ("score", {"score": 1.0}, {"score": 1, "random": 0}):
        assert [c.cell_id for c in small_plan(tmp_path, reward=same).cells] == ids
    random = small_plan(tmp_path, reward="random").cells
    assert [c.cell_id for c in small_plan(tmp_path, reward={"random": 1.0}).cells] == [
        c.cell_id for c in random
    ]
    assert not {c.cell_id for c in random} & {*ids}
    assert {c.subset_key for c in random} == {c.subset_key for c in small_plan(tmp_path).cells}
    grid = GRID | {"reward": ["score", {"score": 1.0, "format": 0.5}]}
    assert len({cell.cell_id for cell in small_plan(tmp_path, grid=grid).cells}) == 8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reward": "scores"}, "'scores'"),
        ({"reward": {"brevity": 1.0}}, "'brevity'"),
        ({"reward": {"random": 0.0}}, "weight is 0"),
        ({"reward": {"random": float("nan")}}, "weight of random is .nan"),
        ({"reward": {"random": 1e308}}, "e+308"),
        ({"reward": {"random": True}}, "weight of random is true"),
        ({"reward": ["random"]}, "a list"),
        ({"grid": GRID | {"reward": ["score", "non"]}}, "reward.1"),
    ],
)
def test_an_invalid_reward_is_refused(tmp_path: Path, settings: dict, words: str) -> None:
    with refused("reward", words):
        small_plan(tmp_path, **settings)


def test_the_report_compares_the_score_with_each_control(tmp_path: Path) -> None:
    rewards = ["score", "random", {"score": 1.0, "format": 0.5}]
    plan, store = finished_sweep(tmp_path, grid=GRID | {"reward": rewards})
    rows = read_rows(store, plan.cells)
    arms = control_arms(families(rows))
    assert [(arm.arms.policy, arm.reward) for arm in arms] == [
        ("hard", "random"),
        ("random", "random"),
    ]
    final = {
        (row.cell.policy, row.cell.seed, bool(row.cell.reward)): row.result.accuracy_final
        for row in rows
        if len(row.cell.reward) < 2
    }
    for arm in arms:
        policy, pair = arm.arms.policy, arm.arms.comparisons["random"]
        by_seed = [final[policy, s, False] - final[policy, s, True] for s in (0, 1)]
        assert pair.effect == pytest.approx(100 * sum(by_seed) / 2)
        assert (pair.a, pair.b, pair.seeds) == ("score", "random", 2)
        gains = [row.result.gain for row in rows if row.cell.reward == {"random": 1.0}]
        assert min(gains) <= arm.gain / 100 <= max(gains)
    analysis = analyse(plan, store)
    for text in (terminal_report(analysis), page_html(sweep_page(analysis))):
        assert "the reward random [" in text
        assert "policies differ by" in text
    assert not control_arms(families([row for row in rows if row.cell.reward]))


@pytest.mark.parametrize(("factor", "update"), [(2, 2), (8, 0)])
def test_score_and_control_are_compared_within_their_common_budget(
    tmp_path: Path, factor: int, update: int
) -> None:
    plan, store = finished_sweep(tmp_path, grid=GRID | {"reward": ["score", "random"]})
    rows = [
        replace(row, costs={axis: factor * cost for axis, cost in row.costs.items()})
        if row.cell.reward
        else row
        for row in read_rows(store, plan.cells)
    ]
    [hard, _] = arms = control_arms(families(rows, "tokens"))
    own = [row for row in rows if row.cell.policy == "hard"]
    score, control = ([row for row in own if bool(row.cell.reward) == c] for c in (False, True))
    gain = sum(row.curve[update] - row.curve[0] for row in control) / 2
    assert hard.gain == pytest.approx(100 * gain)
    if not update:
        assert not hard.arms.comparisons
        assert all("first evaluation exceeds" in line for line in control_lines(arms))
        return
    ends = sum(row.curve[4] for row in score), sum(row.curve[update] for row in control)
    assert hard.arms.comparisons["random"].effect == pytest.approx(100 * (ends[0] - ends[1]) / 2)

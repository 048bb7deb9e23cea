"""How difficulty drifts: the model of it in `predicted`, and what the report says about it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from discarded_cases import group
from factories import cell_record, finished_cell, finished_sweep, marked_rollout, small_plan
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from scipy.stats import spearmanr

from orchestrator.evaluation.drift import drift_of
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.report.analysis import analyse
from orchestrator.report.render import terminal_report
from orchestrator.report.sections.page import sweep_page
from orchestrator.stats.rankings import hardest_overlap, rank_correlation
from orchestrator.storage.schema import GROUPS, SUBSET
from orchestrator.storage.store import Store
from orchestrator.tracking.views import cell_params, read_view, sweep_params, sweep_view
from orchestrator.training.record import finish
from policies import History, PolicyError, get_online_policy
from policies.scheduled import moved

GROUP, SAMPLES = 8, 10


def history_of(successes: Any, samples: Any = SAMPLES, updates: int = 50) -> History:
    ids = pa.array([f"p{i:04}" for i in range(len(successes))])
    samples = np.broadcast_to(samples, len(successes))
    return History(ids, samples, successes, seed=0, updates=updates, group_size=GROUP)


def played(seed: int, updates: int = 12) -> History:
    """A history with groups of every update, and a refresh before every third."""
    rng = np.random.default_rng(seed)
    samples = rng.choice([0, 5, 10], 40)
    history = history_of(rng.binomial(samples, 0.4), samples)
    for update in range(1, updates + 1):
        if update > 1 and update % 3 == 1:
            rows = rng.choice(40, 7, replace=False)
            history.add_refresh(update, rows, rng.integers(0, 5, 7), np.full(7, 4))
        for row in np.sort(rng.choice(40, 5, replace=False)).tolist():
            history.add(update, row, int(rng.integers(0, 7)), int(rng.integers(6, 9)))
    return history


def reference_shift(update: int, history: History, discount: float) -> float:
    """The maximum of the log posterior, from every observation by itself."""
    seen = []
    for (at, row, correct, marked), lag in ((history.drawn, 1), (history.refreshed, 0)):
        for a, r, c, m in zip(at, row, correct, marked, strict=True):
            if a + lag <= update and history.samples[r]:
                base = (history.successes[r] + 1) / (history.samples[r] + 2)
                seen.append((discount ** (update - a - lag), logit(base), c, m))

    def loss(shift: float) -> float:
        terms = [
            w * (c * np.log(expit(x + shift)) + (m - c) * np.log(expit(-x - shift)))
            for w, x, c, m in seen
        ]
        return shift**2 / 2 - sum(terms)

    return float(minimize_scalar(loss, bounds=(-10, 10), method="bounded").x)


@pytest.mark.parametrize("discount", [0.8, 0.5, 1.0])
def test_the_shift_is_that_of_a_plain_fit(discount: float) -> None:
    history = played(1)
    policy: Any = get_online_policy("predicted", drift="shift", drift_discount=discount)
    shifts = policy.shifts(13, history)
    assert shifts[:2].tolist() == [0, 0]
    for update in range(2, 14):
        assert shifts[update] == pytest.approx(reference_shift(update, history, discount), abs=1e-4)


@pytest.mark.parametrize("drift", [None, "shift"])
def test_posteriors_are_those_of_a_few_plain_lines(
    drift: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, update = played(2), 13
    policy: Any = get_online_policy("predicted", drift=drift)
    history.start(update, 5)
    asked: list[Any] = []
    generator = history.rng

    class Spy:
        def beta(self, a: Any, b: Any) -> Any:
            asked.extend((a.copy(), b.copy()))
            return generator.beta(a, b)

    monkeypatch.setattr(history, "rng", Spy())
    policy.next(update, history)
    shifts = [reference_shift(u, history, 0.8) if drift and u else 0.0 for u in range(14)]
    shifts[1] = 0.0

    def seen_now(c: float, m: float, since: float) -> float:
        smooth = (c + 1) / (m + 2)
        return min(m, max(0.0, c + m * (expit(logit(smooth) + since) - smooth)))

    expected = np.ones((2, 40))
    for row in range(40):
        n = int(history.samples[row])
        evidence = [(0.98 ** (update - 1), history.successes[row], n, shifts[update])]
        for (at, rows, correct, marked), lag in ((history.drawn, 1), (history.refreshed, 0)):
            evidence += [
                (0.98 ** max(0, update - 1 - a), c, m, shifts[update] - shifts[a + lag])
                for a, r, c, m in zip(at, rows, correct, marked, strict=True)
                if r == row
            ]
        for weight, c, m, since in evidence:
            right = seen_now(float(c), float(m), since)
            expected[:, row] += weight * right, weight * (m - right)
    assert np.array(asked) == pytest.approx(expected, abs=1e-3)
    assert len(asked) == 2


def test_counts_are_moved_by_a_shift_and_stay_counts() -> None:
    correct, marked = np.array([0, 4, 8, 0]), np.array([8, 8, 8, 0])
    assert moved(correct, marked, np.zeros(4)).tolist() == [0, 4, 8, 0]
    up, down = (moved(correct, marked, np.full(4, s)) for s in (1.0, -1.0))
    assert (up[:2] > correct[:2]).all() and (down[1:3] < correct[1:3]).all()
    assert up[2] == 8 and down[0] == 0 and up[3] == down[3] == 0
    assert up[1] == pytest.approx(8 * expit(1.0))
    assert np.isfinite(moved(correct, marked, np.full(4, 700.0))).all()


def test_the_drift_of_a_policy_rebuilt_later_is_the_same() -> None:
    history, running = played(3, updates=0), get_online_policy("predicted", drift="shift")
    whole, choices = played(3), []
    at, row, correct, marked = whole.drawn
    again = whole.refreshed
    history = history_of(whole.successes, whole.samples)
    for update in range(1, 14):
        part = again[0] == update
        if part.any():
            history.add_refresh(update, again[1][part], again[2][part], again[3][part])
        for policy in (running, get_online_policy("predicted", drift="shift")):
            history.start(update, 6)
            choices.append((update, policy.next(update, history).to_pylist()))
        assert choices[-1] == choices[-2]
        for i in np.flatnonzero(at == update).tolist():
            history.add(update, int(row[i]), int(correct[i]), int(marked[i]))
    assert len({tuple(ids) for _, ids in choices}) > 5


def test_a_refresh_informs_about_its_prompts_and_is_no_group() -> None:
    history = history_of([5] * 20)
    history.add(1, 3, 8, 8)
    history.add_refresh(2, [7, 4], [0, 0], [40, 0])
    assert [values.tolist() for values in history.refreshed] == [[2, 2], [4, 7], [0, 0], [0, 40]]
    assert not any(values.flags.writeable for values in history.refreshed)
    history.add_refresh(3, [1], [2], [4])
    assert history.refreshed[1].tolist() == [4, 7, 1]
    assert history.pass_rate[[1, 3, 4, 7]].tolist() == [0.5, 1, 0.5, 0]
    assert history.groups.sum() == 1 and history.last_update.tolist() == [0, 0, 0, 1, *[0] * 16]
    assert len(history.drawn[0]) == 1
    policy = get_online_policy("predicted")
    history.start(3, 19)
    left_out = {*range(20)} - {int(i[1:]) for i in policy.next(3, history).to_pylist()}
    assert left_out == {7}, "0 of 40 in the refresh"
    for values in (history.pass_rate, *history.refreshed):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drift": "linear"}, "drift is 'linear': write shift"),
        ({"drift": True}, "drift is True: write shift"),
        ({"drift_discount": 0.5}, "drift: shift"),
        ({"drift": "shift", "drift_discount": 0}, "drift_discount is 0"),
        ({"drift": "shift", "drift_discount": "x"}, "drift_discount is 'x'"),
        ({"discount": None}, "discount is None"),
    ],
)
def test_wrong_options_of_the_model_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        get_online_policy("predicted", **options)


def test_choices_and_ids_without_drift_are_those_of_before(tmp_path: Path) -> None:
    [cell] = small_plan(tmp_path, policies=["predicted"]).cells
    assert cell.online is not None and cell.online.options == {"discount": 0.98}


def test_rank_correlation_and_overlap_of_the_hardest_tenth() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 5, (2, 30)) / 4
        assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
        same = np.arange(30) / 30
        assert hardest_overlap(same, same) == 1 and hardest_overlap(same, same[::-1]) == 0
        draws = []
        for _ in range(2000):  # ties broken at random
            tenths = [{*np.lexsort((rng.random(30), side))[:3].tolist()} for side in (a, b)]
            draws.append(len(tenths[0] & tenths[1]) / 3)
        assert hardest_overlap(a, b) == pytest.approx(np.mean(draws), abs=0.03)
    assert np.isnan(rank_correlation(np.array([0.5]), np.array([0.1])))
    assert np.isnan(rank_correlation(np.ones(4), np.arange(4.0)))
    assert hardest_overlap(np.zeros(20), np.arange(20.0)) == pytest.approx(0.1)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=GROUPS)


def subset(rates: dict[str, float | None]) -> pa.Table:
    rows = [{"prompt_id": i, "pass_rate": rate} for i, rate in rates.items()]
    return pa.Table.from_pylist(rows, schema=SUBSET)


RIGHT, HALF, NONE_RIGHT = ["correct", "correct"], ["correct", "wrong"], ["wrong", "wrong"]


def test_drift_is_that_of_a_count_by_hand() -> None:
    drawn = table(
        [
            group(1, "a", HALF),
            group(3, "a", RIGHT),  # after its group of update 1: 2 updates
            group(3, "b", HALF),  # after the probe: 2
            group(4, "c", HALF),  # after the refresh before update 4: 0
            group(9, "b", NONE_RIGHT),  # 5
            group(30, "b", ["error", "error"]),  # 21
            group(9, "a", NONE_RIGHT),  # 5: nothing of the refresh before update 9 was marked
        ]
    )
    again = table(
        [
            group(4, "a", HALF),
            group(4, "b", NONE_RIGHT),
            group(4, "c", RIGHT),
            group(4, "d", RIGHT),  # unknown to the probe
            group(9, "a", ["error", "error"]),
            group(9, "c", ["correct", "error"]),
        ]
    )
    drift = drift_of(subset({"a": 0.5, "b": 0.0, "c": 1.0, "d": None, "e": 0.3}), drawn, again)
    assert drift.ages == {0: (2, 2), 2: (2, 1), 5: (2, 0), 50: (1, 0)}
    first = drift.refreshes[4]
    assert first[:3] == (3, 0.5, 0.5)
    assert first.of_probe == (1.0, 1.0)
    # The latest rates are 1 (its group of update 3), 0.5 and 1.
    assert first.of_latest.rank == pytest.approx(spearmanr([1, 0.5, 1], [0.5, 0, 1]).statistic)
    assert drift.refreshes[9][:3] == (1, 1.0, 1.0)
    assert np.isnan(drift.refreshes[9].of_probe.rank)
    assert drift.metrics[9] == {
        "drift/pass_rate": 1.0,
        "drift/hardest_tenth_overlap": 1.0,
        "drift/hardest_tenth_overlap_latest": 1.0,
    }
    assert drift_of(subset({}), table([])).metrics == {}


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Store, Cell, Cell]:
    """A finished sweep of `random` and `predicted`, one arm of which was refreshed."""
    folder = tmp_path_factory.mktemp("drift")
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["random", "predicted"]}
    grid |= {"refresh.every": [0, 2]}
    plan = small_plan(folder, grid=grid, refresh={"samples": 2, "share": 0.25})
    store = Store(plan.source.config.storage)
    for number, cell in enumerate(plan.cells):
        record = finished_cell(store, plan, cell, number)
        if cell.refresh:
            record = cell_record(plan, cell, number)
            record.groups.refreshed = []
            prompts = plan.pool(cell.probe).train[: cell.refresh.prompts(cell.size)]
            for prompt in prompts:
                marks = [
                    marked_rollout(o, s, prompt.prompt_id, tokens=30)
                    for o, s in (("correct", 1.0), ("wrong", 0.0))
                ]
                record.groups.add(3, marks, 2, refreshed=True)
            finish(store, cell, record, {"trl": "0"})
    cells = {(c.policy, bool(c.refresh)): c for c in plan.cells}
    return plan, store, cells["predicted", False], cells["predicted", True]


def test_costs_include_refreshes_from_their_update_on(
    refreshed: tuple[Plan, Store, Cell, Cell],
) -> None:
    plan, store, plain, again = refreshed
    rows = {row.cell.cell_id: row for row in analyse(plan, store).rows}
    added = 2 * again.refresh.prompts(again.size)  # type: ignore[union-attr]
    assert added == 20
    for axis, per in (("rollouts", 1), ("tokens", 30)):
        sides = [rows[cell.cell_id].costs[axis].tolist() for cell in (plain, again)]
        extra = [b - a for a, b in zip(*sides, strict=True)]
        assert extra == [0, 0, 0, added * per, added * per]
    assert rows[again.cell_id].result.ledger.rollouts == sides[0][-1] // 20 + added
    assert again.max_rollouts == 32 + added


def test_every_view_shows_drift(refreshed: tuple[Plan, Store, Cell, Cell]) -> None:
    plan, store, plain, again = refreshed
    analysis = analyse(plan, store)
    page = sweep_page(analysis)
    [section] = [section for section in page.sections if section.anchor == "drift"]
    by_update, by_age = section.tables
    assert {line[1] for line in by_update.body} == {"random", "predicted"}
    [line] = [line for line in by_update.body if line[1] == "predicted"]
    assert line[2:5] == ("2", "10", "0.25 → 0.50")
    assert line[5] == "–", "all rates are equal"
    assert by_age.body and by_age.head[:2] == ("model and data", "policy")
    text = terminal_report(analysis)
    assert by_update.title in text and by_age.title in text
    names = {*sweep_view(analysis).files}
    assert "tables/drift_by_update.csv" in names
    views = [read_view(store, cell, plan.pool(cell.baseline).test) for cell in (plain, again)]
    metrics = [{name for point in v.points.values() for name in point} for v in views]
    assert "drift/pass_rate" not in metrics[0] and "drift/pass_rate" in metrics[1]
    assert views[1].points[3]["drift/hardest_tenth_overlap"] == pytest.approx(0.1)
    assert "ledger/refreshed_rollouts" in metrics[1]
    assert cell_params(again)["refresh.every"] == "2" and "refresh.every" in cell_params(plain)
    shared = {name for name in sweep_params(plan.experiment) if name.startswith("refresh")}
    assert shared == {"refresh.samples", "refresh.share"}


def test_a_sweep_without_either_has_no_such_section(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path)
    page = sweep_page(analyse(plan, store))
    assert "drift" not in {section.anchor for section in page.sections}
    assert "refresh" not in sweep_params(plan.experiment)

"""The report's numbers: by tier and band, by group, over families of tests, over probes."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from factories import finished_sweep
from matplotlib.figure import Figure

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.report import sentences
from orchestrator.report.analysis import analyse
from orchestrator.report.compare import (
    BudgetMismatch,
    Steps,
    StepsToMatch,
    budget_mismatches,
    families,
)
from orchestrator.report.content import svg_of
from orchestrator.report.fairness import Point
from orchestrator.report.rows import OWN, Row, read_rows
from orchestrator.report.sections import figures, tables
from orchestrator.report.sections.verdicts import family_verdict, match_text, mismatch_text
from orchestrator.stats.inference import holm, mean_effect

POLICIES = ("hard", "easy", "middle", "random")
STYLES = figures.policy_styles(POLICIES)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The rows of one small finished sweep."""
    folder = tmp_path_factory.mktemp("sweep")
    plan, store = finished_sweep(folder, policies=POLICIES, seeds=(0, 1))
    return read_rows(store, plan.cells)


def test_tiers_and_bands_have_the_interval_of_the_main_comparison(rows: list[Row]) -> None:
    compared = families(rows)
    assert [line[1] for line in tables.tiers(compared).body] == ["3", "5", "7"]
    assert [line[1] for line in tables.bands(compared).body] == ["low", "middle", "high"]
    hard = compared[0].by_policy()["hard"]
    of = {i for i, tier in hard[0].kinds["tier"].items() if tier == "5"}
    gains = [
        [row.scores(row.cell.updates)[i] - row.scores(0)[i] for i in sorted(of)] for row in hard
    ]
    expected = mean_effect(np.array(gains))
    change = tables.change_in(hard, "tier", "5")
    assert change and change.effect == pytest.approx(expected) and change.questions == len(of)
    line = tables.tiers(compared).body[1]
    assert line[2:4] == (str(len(of)), f"{100 * change.base:.1f}")
    assert line[4] == f"{100 * change.final:.1f} ({sentences.effect_text(expected)})"


def test_a_bands_base_comes_from_the_samples_that_did_not_choose_it(rows: list[Row]) -> None:
    row = rows[0]
    change = tables.change_in([row], "band", "low")
    assert change and 100 * change.base == pytest.approx(100 * row.result.base["band/low/accuracy"])
    low = [i for i, band in row.kinds["band"].items() if band == "low"]
    # The odd ones of eight, before and after training: both draw sample i with the same numbers.
    assert all(counts[i][0] == 4 for counts in row.held_out for i in low)
    assert {i: row.counts[OWN][0][i][0] for i in low} == dict.fromkeys(low, 8)


def test_the_ledger_has_a_line_per_cell(rows: list[Row]) -> None:
    table = tables.ledgers(rows)
    assert [line[0] for line in table.body] == [row.cell.name for row in rows]
    assert dict(zip(table.head, table.body[0], strict=True))["rollouts"] == "32"


def test_groups_are_split_by_kind(rows: list[Row]) -> None:
    (family,) = families(rows)
    table = tables.groups([family])
    assert [line[1] for line in table.body] == list(POLICIES)
    for line, own in zip(table.body, family.by_policy().values(), strict=True):
        of = dict(zip(table.head, line, strict=True))
        ledgers = [row.result.ledger.as_json() for row in own]
        keys = {"live": "live", "all correct": "all_right", "all wrong": "all_wrong"}
        for name, key in keys.items():
            each = [one[key] / (one["rollouts"] / 4) for one in ledgers]
            assert float(of[name]) == pytest.approx(100 * np.mean(each), abs=0.06)
        live = [one["live_tokens"] / one["generated_tokens"] for one in ledgers]
        assert float(of["live tokens"]) == pytest.approx(100 * np.mean(live), abs=0.06)
        assert of["KL only"] == "–", "beta is 0: nothing moves the weights"


def test_with_beta_above_zero_updates_may_be_driven_by_kl_alone(rows: list[Row]) -> None:
    cell = rows[0].cell.model_copy(update={"grpo": {**rows[0].cell.grpo, "beta": 0.1}})
    row = dataclasses.replace(with_ledger(rows[0], kl_only_updates=1), cell=cell)
    assert tables.groups(families([row])).body[0][-1] == "25.0"  # one of four
    masked = cell.model_copy(update={"mask_dead_groups": True})
    assert tables.groups(families([dataclasses.replace(row, cell=masked)])).body[0][-1] == "–"


def test_groups_are_split_by_tier(rows: list[Row]) -> None:
    table = tables.groups_by_tier(families(rows))
    first = rows[0].tier_shares
    assert {line[1] for line in table.body} == set(first)
    line = next(line for line in table.body if line[2] == "hard")
    mean = np.mean([r.tier_shares[line[1]].live for r in rows if r.cell.policy == "hard"])
    assert float(line[3]) == pytest.approx(100 * mean, abs=0.06)
    for only in ("", "all"):
        same = [dataclasses.replace(r, tier_shares={only: r.shares[1]}) for r in rows]
        assert not tables.groups_by_tier(families(same)).body


def test_a_tier_of_all_questions_has_no_line(rows: list[Row]) -> None:
    kinds = [{**r.kinds, "tier": dict.fromkeys(r.kinds["tier"], "all")} for r in rows]
    same = [dataclasses.replace(r, kinds=own) for r, own in zip(rows, kinds, strict=True)]
    assert not tables.tiers(families(same)).body and tables.bands(families(same)).body


def test_truncated_groups_are_drawn_separately(rows: list[Row]) -> None:
    share = rows[0].shares[1]._replace(live=0.0, all_right=0.0, all_wrong=1.0, truncated=0.5)
    cut = dataclasses.replace(rows[0], shares={1: share, 2: share})
    assert "all wrong, truncated" in labels(figures.group_areas({"hard": [cut]}))
    assert "all wrong, truncated" not in labels(figures.group_areas({"hard": [rows[0]]}))


def test_a_cell_whose_subset_is_lost_is_reported_without_its_ties(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, seeds=[0])
    for cell in plan.cells:
        Path(store.path("subsets", f"{cell.subset_key}.parquet")).unlink()
    rows = read_rows(store, plan.cells)
    assert len(rows) == len(plan.cells) and all(row.ties is None for row in rows)


def test_the_views_are_written_again_once_claims_are_declared(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, seeds=[0])
    before = analyse(plan, store).digest
    assert analyse(plan, store).digest == before
    claims = {"hard > random": {"at": "2026-01-01 00:00:00Z", "results": 0}}
    store.write_json({"claims": claims}, "sweeps", f"{plan.name}.json")
    assert analyse(plan, store).digest != before


def labels(figure: Figure) -> str:
    """The texts of a figure, which its SVG contains as comments."""
    return "\n".join(re.findall(r"<!-- (.*?) -->", svg_of(figure)))


# ---- several families: one family of tests, steps to match, probes


def with_policy(row: Row, policy: str, rule: str | None = None, probe_seed: int = 0) -> Row:
    """The row under another policy (and its rule), or of another probe."""
    settings = row.cell.probe.settings.model_copy(update={"seed": probe_seed})
    probe = row.cell.probe.model_copy(update={"settings": settings})
    change = {"policy": policy, "probe": probe, "static_policy": PolicyEntry(policy=rule or policy)}
    return dataclasses.replace(row, cell=row.cell.model_copy(update=change))


def with_ledger(row: Row, **changes: float) -> Row:
    ledger = row.result.ledger.model_copy(update=changes)
    return dataclasses.replace(row, result=row.result.model_copy(update={"ledger": ledger}))


def test_a_cell_is_read_between_two_evaluations_by_question(rows: list[Row]) -> None:
    first, *_, last = rows[0].counts[OWN][2]
    counts = {2: {**rows[0].counts[OWN][2], first: (0, 0)}, 4: {**rows[0].counts[OWN][4]}}
    del counts[4][last]
    row = dataclasses.replace(rows[0], counts={OWN: counts})
    run = row.run_at(Point(2, 0.0, 0.0, later=4, share=0.25))
    assert first in run.items and last not in run.items
    for item, score, low, missing in zip(*run, strict=True):  # type: ignore[arg-type]
        (n, c), (later_n, later_c) = counts[2][item], counts[4][item]
        if item == first:
            assert np.isnan(score) and (low, missing) == (0.25 * later_c / later_n, 0.75)
        else:
            assert score == low == pytest.approx(0.75 * c / n + 0.25 * later_c / later_n)
    assert row.run_at(Point(2, 0.0, 0.0)).items == row.run(2).items


def test_at_equal_tokens_policies_differ_as_at_the_common_budget(rows: list[Row]) -> None:
    """The updates of `easy` cost 2 tokens, those of `hard` 3."""
    price = {"easy": 2, "hard": 3}
    pair = [
        dataclasses.replace(
            row, costs={**row.costs, "tokens": price[row.cell.policy] * np.arange(5.0)}
        )
        for policy in price
        for row in rows
        if row.cell.policy == policy
    ]
    [family] = families(pair, "tokens")
    points = [family.points[row.cell.cell_id] for row in pair]
    assert [p.cost for p in points] == [8.0] * 4
    assert [p.position for p in points] == pytest.approx([4, 4, 8 / 3, 8 / 3])
    [c] = family.accuracy
    value = {row.cell.policy: 0.0 for row in pair}
    for row, point in zip(pair, points, strict=True):
        between = np.interp(point.position, [*row.curve], [*row.curve.values()])
        assert point.value == pytest.approx(between)
        value[row.cell.policy] += float(between) / 2
    assert c.effect == pytest.approx(100 * (value[c.a] - value[c.b]))
    line = tables.at_equal_cost([family]).body[0]
    assert [" update 4 " in line[1], " update 3 " in line[2]] == [True, True]


def test_budgets_that_differ_are_flagged_with_their_seeds(rows: list[Row]) -> None:
    prompts = rows[0].result.ledger.prompts

    def changed(policies: tuple[str, ...], seed: int, **changes: float) -> list[Row]:
        return [
            with_ledger(row, **changes)
            if row.cell.policy in policies and row.cell.seed == seed
            else row
            for row in rows
        ]

    assert budget_mismatches(rows, "updates") == []
    one = changed(("hard",), 1, prompts=prompts / 2)
    for compare_at in ("updates", "tokens"):
        [flag] = budget_mismatches(one, compare_at)
        assert flag == BudgetMismatch("prompts", {"hard": (1,)}, 0.5)
    tokens = rows[0].result.ledger.generated_tokens
    longer = changed(("easy", "hard"), 0, generated_tokens=4 * tokens)
    [flag] = budget_mismatches(longer, "updates")
    assert (flag.axis, {*flag.policies}, flag.difference) == ("generated_tokens", {*POLICIES}, 0.75)
    assert "75 %" in mismatch_text(flag) and "compare_at: tokens" in mismatch_text(flag)
    assert budget_mismatches(longer, "tokens") == []
    both = [
        with_ledger(row, prompts=prompts * (3 + row.cell.seed) / 4)
        if row.cell.policy == "hard"
        else row
        for row in changed(("easy",), 1, prompts=prompts / 4)
    ]
    [flag] = budget_mismatches(both, "updates")
    assert flag.policies == {"hard": (0,), "easy": (1,)} and flag.difference == 0.75


def test_an_online_policy_may_see_more_prompts_but_not_train_on_more(rows: list[Row]) -> None:
    online = rows[0].cell.model_copy(update={"online": PolicyEntry(policy="dynamic")})
    of_one_seed = [row for row in rows if row.cell.seed == online.seed][1:]
    other = dataclasses.replace(rows[0], cell=online)
    assert budget_mismatches([with_ledger(other, prompts=999), *of_one_seed], "updates") == []
    [flag] = budget_mismatches([with_ledger(other, rollouts=999), *of_one_seed], "updates")
    assert (flag.axis, [*flag.policies]) == ("rollouts", [online.policy])


def test_holms_correction_covers_every_table_of_the_report(rows: list[Row]) -> None:
    again = [with_policy(row, row.cell.policy, probe_seed=1) for row in rows]
    one, two = families(rows), families([*rows, *again])
    assert [f.title for f in two] == ["stub on small", "stub on small, probe 1"]
    pairs = [c for family in two for c in family.accuracy]
    assert {c.tests for c in pairs} == {12} and {c.tests for c in one[0].accuracy} == {6}
    assert [c.p_holm for c in pairs] == holm([c.p for c in pairs])


def test_the_policy_that_takes_the_whole_pool_is_the_reference_to_match(rows: list[Row]) -> None:
    full = [with_policy(r, "everything", "full") for r in rows if r.cell.policy == "random"]
    others = [r for r in rows if r.cell.policy in ("hard", "easy")]
    (family,) = families([*others, *full])
    assert [m.policy for m in family.matches] == ["hard", "easy"]
    match = family.matches[0]
    assert (match.reference, match.updates) == ("everything", 4)
    assert match.accuracy == pytest.approx(np.mean([r.curve[4] for r in full]))
    assert "everything's final accuracy" in match_text(match)
    table = tables.steps([family])
    assert table.head[:2] == ("model and data", "everything: accuracy")
    assert table.body[0][3:] == tuple(tables.span_text(m) for m in family.matches)
    assert not families(rows)[0].matches and not tables.steps(families(rows)).body


def test_missing_evaluations_for_steps_to_match_are_a_caveat(rows: list[Row]) -> None:
    ends = [
        dataclasses.replace(r, counts={OWN: {u: r.counts[OWN][u] for u in (0, 4)}}) for r in rows
    ]
    with_full = [with_policy(r, "full") if r.cell.policy == "random" else r for r in ends]
    (family,) = families(with_full)
    assert not family.matches
    assert "evaluate.every" in family_verdict(family).caveats[-1]
    caveats = family_verdict(families(ends)[0]).caveats
    assert not any("evaluate.every" in text for text in caveats)


@pytest.mark.parametrize(
    ("steps", "numbers"),
    [
        (Steps(12.4, 8.0, 20.0, 1.0), ["60.0", "12", "8", "20", "31"]),
        (Steps(12.4, 8.0, None, 0.9), ["60.0", "12", "8", "never", "31"]),
        (Steps(None, 33.0, None, 0.2), ["60.0", "20"]),
        (Steps(None, None, None, 0.0), ["60.0"]),
    ],
)
def test_steps_to_match_are_a_span_and_a_share_or_the_share_of_resamples(
    steps: Steps, numbers: list[str]
) -> None:
    text = match_text(StepsToMatch("hard", "full", 0.6, 40, steps))
    assert re.findall(r"[\d.]+|never", text) == numbers


def test_steps_to_match_count_the_rollouts_of_a_policy_that_discards(rows: list[Row]) -> None:
    full = [with_policy(r, "everything", "full") for r in rows if r.cell.policy == "hard"]
    online = PolicyEntry(policy="dynamic")
    discarding = [
        dataclasses.replace(
            row,
            cell=row.cell.model_copy(update={"online": online}),
            costs=row.costs | {"rollouts": 2 * row.costs["rollouts"]},
        )
        for row in rows
        if row.cell.policy == "random"
    ]
    (match,) = families([*discarding, *full])[0].matches
    assert match.steps.update is not None
    assert match.rollouts == pytest.approx(2 * match.steps.update / match.updates)
    assert match_text(match).endswith(f", with {100 * match.rollouts:.0f} % of its rollouts")

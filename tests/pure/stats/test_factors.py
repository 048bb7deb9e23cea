"""Accuracy as a product of three shares, and the parts of a gain: what holds for any counts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from factories import finished_sweep
from hypothesis import given
from hypothesis import strategies as st

import decile
from orchestrator.config.claims import resolved_claim
from orchestrator.report.analysis import analyse
from orchestrator.report.claim_verdicts import claim_results
from orchestrator.report.compare import families
from orchestrator.report.gain_parts import gain_by_part, gain_part_table
from orchestrator.report.rows import OWN, Row, read_rows
from orchestrator.report.sections.gain_parts import gain_part_tables, gains_by_marking
from orchestrator.report.sections.page import sweep_page
from orchestrator.stats.factors import (
    AnswerCounts,
    RunAnswers,
    divided_gain,
    factor_scores,
    factors_of,
    gain_parts,
)
from orchestrator.stats.inference import mean_effect
from tasks.marking.marks import FACTORS

QUESTIONS = [f"q{i}" for i in range(8)]
GRID = {"model": ["stub"], "dataset": ["small"], "policy": ["hard", "random"], "seed": [0, 1, 2]}
SHARES = st.floats(0, 1)
FACTOR = st.tuples(SHARES, SHARES, SHARES)


@st.composite
def runs(draw: st.DrawFn, count: int = 1, least: int = 1) -> list[RunAnswers]:
    """Runs of all questions, of each `least` correct samples or more."""
    sides = []
    for _ in range(count):
        run = {}
        for question in QUESTIONS:
            marked = draw(st.integers(max(1, least), 6))
            finished = draw(st.integers(least, marked))
            parsed = draw(st.integers(least, finished))
            run[question] = AnswerCounts(marked, finished, parsed, draw(st.integers(0, parsed)))
        sides.append(run)
    return sides


@given(FACTOR, FACTOR, st.permutations(range(3)))
def test_parts_add_up_and_depend_on_no_order(
    before: tuple[float, ...], after: tuple[float, ...], order: list[int]
) -> None:
    parts = gain_parts(before, after)
    assert parts.sum() == pytest.approx(np.prod(after) - np.prod(before), abs=1e-12)
    assert gain_parts(after, before) == pytest.approx(-parts, abs=1e-12)
    shuffled = gain_parts(np.take(before, order), np.take(after, order))
    assert shuffled == pytest.approx(parts[order], abs=1e-12)
    same = [before[0], after[1], after[2]]
    assert gain_parts(before, same)[0] == 0


def test_parts_are_the_mean_over_all_orders_of_change() -> None:
    # finished .5 -> 1, parsed .4 -> .8, correct .5 -> .75: computed by hand from the six orders.
    parts = gain_parts((0.5, 0.4, 0.5), (1.0, 0.8, 0.75))
    finished = (2 * 0.5 * 0.2 + 0.5 * 0.4 + 0.5 * 0.3 + 2 * 0.5 * 0.6) / 6
    parsed = (2 * 0.4 * 0.25 + 0.4 * 0.5 + 0.4 * 0.375 + 2 * 0.4 * 0.75) / 6
    correct = (2 * 0.25 * 0.2 + 0.25 * 0.4 + 0.25 * 0.4 + 2 * 0.25 * 0.8) / 6
    assert parts == pytest.approx([finished, parsed, correct])


@given(runs(count=2), runs(count=2), st.booleans())
def test_factors_multiply_to_the_accuracy_and_intervals_go_with_the_gain(
    before: list[RunAnswers], after: list[RunAnswers], paired: bool
) -> None:
    gain = divided_gain(before, after, paired=paired)
    assert gain and gain.parts and gain.before.known and gain.after.known
    rates = [
        np.array([[run[i].correct / run[i].marked for i in QUESTIONS] for run in side])
        for side in (before, after)
    ]
    assert np.prod(gain.before.known) == pytest.approx(rates[0].mean())
    assert np.prod(gain.after.known) == pytest.approx(rates[1].mean())
    assert sum(part.mean for part in gain.parts) == pytest.approx(gain.gain.mean, abs=1e-12)
    for part in gain.parts:
        assert part.low - 1e-12 <= part.mean <= part.high + 1e-12
    if paired:  # the interval of the gain is that of the report's other tables
        assert gain.gain[:3] == pytest.approx(mean_effect(rates[1] - rates[0])[:3], abs=1e-12)
    same = divided_gain(before, before, paired=True)
    assert same and same.parts and all(part.mean == 0 for part in same.parts)


@given(runs(count=1), st.sampled_from(FACTORS))
def test_scores_of_a_factor_have_it_as_their_mean(run: list[RunAnswers], factor: str) -> None:
    scores = factor_scores(run[0], factor, 6)
    known = factors_of(run)[FACTORS.index(factor)]
    assert scores is not None and float(np.mean(scores.scores)) == pytest.approx(known)
    assert scores.low is not None and scores.missing is not None
    assert (scores.low <= scores.scores + 1e-12).all()
    assert (scores.scores <= scores.low + scores.missing + 1e-12).all()


def test_a_share_of_nothing_is_unknown_and_so_is_the_division() -> None:
    def run(*outcomes: str) -> list[RunAnswers]:
        return [{"p": AnswerCounts.of(outcomes), "q": AnswerCounts.of(outcomes)}]

    cases = [
        (run("truncated", "truncated"), (0.0, None, None), "before: no completion finished"),
        (run("unparsed", "truncated"), (0.5, 0.0, None), "before: no answer was parsed"),
    ]
    for before, factors, why in cases:
        gain = divided_gain(before, run("correct", "wrong"), paired=True)
        assert gain and (gain.before, gain.parts, gain.unknown) == (factors, None, why)
        assert gain.gain.mean == pytest.approx(0.5)  # which is known
        assert factor_scores(before[0], "correct-where-parsed", 2) is None
    failed = run("error", "error")
    assert divided_gain(failed, run("correct"), paired=True) is None
    assert factors_of(failed) == (None, None, None)
    assert AnswerCounts.of(["correct", "wrong", "unparsed", "truncated", "error"]) == (4, 3, 2, 1)


def test_the_intervals_cover_the_parts_of_new_questions_and_seeds() -> None:
    rng = np.random.default_rng(5)
    truth = np.array([[0.7, 0.6, 0.5], [0.95, 0.9, 0.6]])

    def draw(side: int, questions: np.ndarray, shift: float) -> RunAnswers:
        logits = np.log(truth[side] / (1 - truth[side]))
        run = {}
        for number, own in enumerate(questions):
            chance = 1 / (1 + np.exp(-(logits + own + shift)))
            passed = np.cumprod(rng.random((4, 3)) < chance, axis=1).sum(axis=0)
            run[f"q{number}"] = AnswerCounts(4, *map(int, passed))
        return run

    # What a sample of very many questions and seeds says is true.
    many = rng.normal(0, 0.8, (20_000, 1))
    shifts = rng.normal(0, 0.25, 40)
    whole = [np.mean([_expected(truth[0], many, 0.0)], axis=0)]
    whole.append(np.mean([_expected(truth[1], many, shift) for shift in shifts], axis=0))
    factors = [(u[0], u[1] / u[0], u[2] / u[1]) for u in whole]
    expected = gain_parts(*factors)
    covered = np.zeros(3)
    trials = 120
    for _ in range(trials):
        questions = rng.normal(0, 0.8, (80, 1))
        base = draw(0, questions, 0.0)
        after = [draw(1, questions, shift) for shift in rng.normal(0, 0.25, 3)]
        gain = divided_gain([base] * 3, after, paired=True)
        assert gain and gain.parts
        ends = zip(expected, gain.parts, strict=True)
        covered += [part.low <= value <= part.high for value, part in ends]
    assert (covered / trials >= 0.88).all(), covered  # .95, less four standard errors


def _expected(shares: np.ndarray, questions: np.ndarray, shift: float) -> np.ndarray:
    chance = 1 / (1 + np.exp(-(np.log(shares / (1 - shares)) + questions + shift)))
    return np.cumprod(chance, axis=1).mean(axis=0)


def test_a_sweep_says_what_its_gains_consist_of(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path)
    rows = read_rows(store, plan.cells)
    [every, *_] = gain_by_part(rows[:1])
    gain = every.gain
    # Of the factory's samples, each is finished and parsed: the gain is one of right answers.
    assert gain.parts and (gain.parts[0].mean, gain.parts[1].mean) == (0.0, 0.0)
    assert gain.parts[2].mean == pytest.approx(rows[0].gain.mean)
    table = gain_part_table(rows)
    whole = table.filter(pa.compute.equal(table["part"], "all"))
    assert whole["cell_id"].to_pylist() == [row.cell.cell_id for row in rows]
    assert whole["gain_from_correct_where_parsed"][0].as_py() == pytest.approx(rows[0].gain.mean)
    analysis = analyse(plan, store)
    page = sweep_page(analysis)
    [section] = [section for section in page.sections if section.anchor == "tiers"]
    assert section.figures and section.figures[0].svg
    body = gain_part_tables(analysis.families)[0].body
    assert [line[1] for line in body] == [*dict.fromkeys(row.cell.policy for row in rows)]
    # Under the strict marking of the factory, no wrong answer is parsed: both gains are equal.
    [marking] = [table for table in section.tables if table.title == "Gain by marking"]
    assert all(line[4].startswith("+0.0 ") for line in marking.body), marking.body
    unread = tuple(
        replace(row, other_reading=(dict.fromkeys(row.scores(0), 0.0),) * 2) for row in rows
    )
    [family] = analysis.families
    assert gains_by_marking([family]).body
    assert gains_by_marking([replace(family, rows=unread)]).body == []


def test_claims_about_a_factor_are_judged_as_those_about_accuracy(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, grid=GRID)
    rng = np.random.default_rng(2)

    def reads(row: Row) -> dict[int, RunAnswers]:
        """Hard learns to answer in the form that is read; among read answers, half are right."""
        chance = {0: 0.25, row.cell.updates: 0.9 if row.cell.policy == "hard" else 0.3}
        read = {}
        for update, parsed in chance.items():
            counts = {i: int(rng.binomial(8, parsed)) for i in row.counts[OWN][0]}
            read[update] = {
                i: AnswerCounts(8, 8, c, int(rng.binomial(c, 0.5))) for i, c in counts.items()
            }
        return read

    rows = [replace(row, answers_read={OWN: reads(row)}) for row in read_rows(store, plan.cells)]
    verdicts = {
        "parsed-where-finished hard > random by 20": "supported",
        "parsed-where-finished hard > base by 20": "supported",
        "finished hard = base within 1": "inconclusive",  # none differ, of few questions
        "parsed-where-finished random > hard": "refuted",
        "hard > random parsed-where-finished": "supported",
        "correct-where-parsed hard > random by 30": "refuted",
    }
    for text, verdict in verdicts.items():
        claim = resolved_claim(text, plan.experiment)
        [result] = claim_results([claim], families(rows))
        assert result.verdict == verdict, result
    blind = {
        update: dict.fromkeys(read, AnswerCounts(8, 8)) for update, read in reads(rows[0]).items()
    }
    rows = [replace(row, answers_read={OWN: blind}) for row in rows]
    claim = resolved_claim("correct-where-parsed hard > random", plan.experiment)
    [result] = claim_results([claim], families(rows))
    assert (result.verdict, result.value) == ("inconclusive", "–") and "parsed" in result.reason


def test_compare_divides_differences_of_files_that_hold_outcomes() -> None:
    outcomes = {
        "tuned": ["correct", "correct", "wrong", "truncated"],
        "base": ["correct", "unparsed", "wrong", "truncated"],
        "blind": ["unparsed", "unparsed", "truncated", "error"],
    }

    def table(name: str, *, sources: bool = True) -> pa.Table:
        own = outcomes[name]
        score = [None if o == "error" else o == "correct" for o in own]
        columns = {"prompt_id": ["p", "q", "r", "s"], "correct": score, "outcome": own}
        return pa.table(columns | ({"source": ["x", "x", "y", "y"]} if sources else {}))

    both = decile.compare({name: table(name) for name in ("tuned", "base")}).to_dict()
    [pair] = both["comparisons"]
    whole, x, y = pair["consists_of"]
    parts = [part["effect"] for part in whole["parts"].values()]
    assert sum(parts) == pytest.approx(pair["effect"]) == 25
    # finished .75 -> .75; parsed 2/3 -> 1; correct 1/2 -> 2/3: by hand.
    assert parts == pytest.approx([0, 100 * 0.75 * (1 / 3) * (7 / 12), 100 * 0.75 * (5 / 6) / 6])
    assert both["arms"][0]["factors"]["correct_where_parsed"] == pytest.approx(2 / 3)
    assert [(x["kind"], x["name"]), (y["kind"], y["name"])] == [("source", "x"), ("source", "y")]
    assert x["parts"]["parsed_where_finished"]["effect"] == pytest.approx(50)
    unknown = [
        ("outcomes of another tool", table("base").set_column(2, "outcome", [["pass"] * 4])),
        ("outcomes beside other scores", table("base").set_column(1, "correct", [[1, 1, 1, 1]])),
        ("no outcomes", table("base").drop_columns("outcome")),
    ]
    for why, other in unknown:
        compared = decile.compare({"tuned": table("tuned"), "other": other})
        values = compared.to_dict()
        assert values["arms"][1]["factors"] is None, why
        assert values["comparisons"][0]["consists_of"] == [], why
        assert "is unknown" in str(compared) and "other" in str(compared), why
    [pair] = decile.compare({n: table(n) for n in ("tuned", "blind")}).to_dict()["comparisons"]
    assert {*pair["consists_of"][0]["parts"].values()} == {None}
    assert pair["consists_of"][0]["of_b"]["correct_where_parsed"] is None

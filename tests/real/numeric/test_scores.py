"""Scores of marks: stored, rewarded, and kept apart from correctness."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from factories import marked_rollout, small_plan
from hypothesis import given
from hypothesis import strategies as st
from remedies import refused

from orchestrator.difficulty.table import difficulty, difficulty_of_codes
from orchestrator.evaluation.groups import (
    GroupRecorder,
    Marked,
    learnable_pct,
    tally,
    training_metrics,
)
from orchestrator.evaluation.metrics import as_evaluation, evaluation_metrics
from orchestrator.storage.schema import SAMPLES
from orchestrator.training.record import ledger
from orchestrator.training.rollouts import FAILED, with_rewards
from policies import PolicyError, get_policy
from tasks import OUTCOMES, Mark, make_prompt, score_mark

KINDS = ["correct", "wrong", "unparsed", "truncated", "error"]


def sample(prompt_id: str, number: int, outcome: str, score: float | None) -> dict[str, Any]:
    drawn = {"completion": "", "tokens": 1, "finish": "stop", "extracted": None, "rule": "r"}
    other = {"other_outcome": outcome, "other_rule": "r", "marker": "m"}
    own = {"prompt_id": prompt_id, "sample": number, "outcome": outcome, "score": score}
    return own | drawn | other


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def test_a_mark_has_the_score_of_its_outcome_unless_it_has_another() -> None:
    scores = {outcome: Mark(outcome, None, "r").score for outcome in OUTCOMES}  # type: ignore[arg-type]
    unscored = {"error": None, "unlabelled": None}
    assert scores == dict.fromkeys(OUTCOMES, 0.0) | {"correct": 1.0} | unscored
    assert Mark("wrong", "7", "r", 0.25).reward == 0.25
    assert Mark("error", None, "r", 0.25).reward is None
    assert score_mark(0.5, "7", "r") == ("wrong", "7", "r", 0.5)
    assert score_mark(0.5, "7", "r", threshold=0.5) == ("correct", "7", "r", 0.5)


def test_what_marking_needs_is_part_of_an_id_only_where_the_task_says_so() -> None:
    plain = make_prompt("t", "q", "a", "")
    assert make_prompt("t", "q", "a", "", '{"x": 1}').prompt_id == plain.prompt_id
    hashed = make_prompt("t", "q", "a", "", '{"x": 1}', info_in_id=True)
    assert hashed.info == '{"x": 1}' and hashed.prompt_id != plain.prompt_id


PROMPT = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0])),
    min_size=3,
    max_size=3,
)


@given(st.lists(PROMPT, min_size=1, max_size=6), st.sampled_from(["wrong", "exclude"]))
def test_mean_scores_are_those_of_the_scorable_samples(
    prompts: list[list[tuple[str, float]]], count_truncated: Any
) -> None:
    unscored = ("error", "truncated") if count_truncated == "exclude" else ("error",)
    rows = [
        sample(f"p{i}", k, outcome, None if outcome == "error" else score)
        for i, samples in enumerate(prompts)
        for k, (outcome, score) in enumerate(samples)
    ]
    table = difficulty(table_of(rows), count_truncated=count_truncated)
    for row, samples in zip(table.to_pylist(), prompts, strict=True):
        own = [score for outcome, score in samples if outcome not in unscored]
        assert row["score"] == (pytest.approx(np.mean(own)) if own else None)
        sd = np.std(own, ddof=1) if len(own) > 1 else None
        assert row["score_sd"] == (None if sd is None else pytest.approx(sd, abs=1e-5))
    codes = np.array([[OUTCOMES.index(o) for o, _ in samples] for samples in prompts])
    scores = np.array([[np.nan if o == "error" else s for o, s in own] for own in prompts])
    ids = pa.array([f"p{i}" for i in range(len(prompts))])
    options: Any = {"count_truncated": count_truncated}
    other = difficulty_of_codes(ids, pa.array([""] * len(ids)), codes, scores=scores, **options)
    assert other["score"].equals(table["score"])


def test_policies_rank_by_mean_score_where_they_are_told_to() -> None:
    rows = [
        sample(prompt, 0, "wrong", score) for prompt, score in (("a", 0.6), ("b", 0.2), ("c", 0.4))
    ]
    table = difficulty(table_of(rows))
    rng = np.random.default_rng
    for policy, first in (("hard", 1), ("easy", 0), ("middle", 2)):
        assert get_policy(policy, by="score")(table, 1, rng(0)).tolist() == [first]
    band = get_policy("band", by="score", low=0.3, high=0.5)
    assert band(table, 1, rng(0)).tolist() == [2]
    assert getattr(get_policy("hard", by="score"), "needs", "") == "all"
    assert vars(get_policy("hard", by="pass_rate")) == vars(get_policy("hard"))
    with refused("hard: by is 'rate': ", "pass_rate", "score", by=PolicyError):
        get_policy("hard", by="rate")
    with pytest.raises(PolicyError, match="needs the column score"):
        get_policy("hard", by="score")(table.drop_columns("score"), 1, rng(0))


def mark(outcome: str, score: float | None, **components: Any) -> Marked:
    return marked_rollout(outcome, score, components=components, reward=None)


def test_rewards_are_weighted_sums_of_what_applies(tmp_path: Path) -> None:
    [cell, *_] = small_plan(tmp_path).cells
    marks = [
        mark("correct", 1.0, **{"m:f": 0.5}),
        mark("wrong", 0.25, **{"m:f": None}),
        mark("wrong", 0.25, **{"m:f": FAILED}),
        mark("error", None, **{"m:f": 1.0}),
    ]
    assert [m.reward for m in with_rewards(cell, 1, marks, 4)] == [1.0, 0.25, 0.25, None]
    shaped = cell.model_copy(update={"reward": {"m:f": 2.0, "score": 1.0}})
    rewarded = with_rewards(shaped, 1, marks, 4)
    assert [m.reward for m in rewarded] == [2.0, 0.25, None, None]
    assert [m.components["m:f"] for m in rewarded] == [0.5, None, None, 1.0]
    recorder = GroupRecorder()
    recorder.add(1, rewarded, 4)
    stored = recorder.table()
    assert dict(stored["components"].to_pylist()[0])["m:f"] == [0.5, None, None, 1.0]
    assert GroupRecorder(stored.to_pylist()).table().equals(stored)
    assert training_metrics(stored)[1]["train/reward/m:f"] == 0.75


def test_a_verifier_that_errs_changes_rewards_and_no_mark(tmp_path: Path) -> None:
    [clean, *_] = small_plan(tmp_path).cells
    marks = [mark("correct", 1.0), mark("wrong", 0.25), mark("unparsed", 0.0), mark("error", None)]
    marks *= 1_000

    def rewards(update: int = 1, group: int = 4_000, **changes: Any) -> list[float | None]:
        cell = clean.model_copy(update=changes)
        rewarded = with_rewards(cell, update, marks, group)
        assert [m._replace(reward=None, components={}) for m in rewarded] == marks
        return [m.reward for m in rewarded]

    plain = rewards()
    few, many = rewards(false_positive_rate=0.1), rewards(false_positive_rate=0.3)
    missed = rewards(false_negative_rate=0.2)
    assert few[::4] == plain[::4] and missed[1::4] == plain[1::4], "each rate has its own marks"
    shares = [np.mean(np.array(flipped) == 1.0) for flipped in (few[1::4], few[2::4], many[1::4])]
    assert shares == pytest.approx([0.1, 0.1, 0.3], abs=0.05)  # five standard deviations
    assert np.mean(np.array(missed[::4]) == 0.0) == pytest.approx(0.2, abs=0.07)
    assert {*few[1::4]} == {0.25, 1.0} and {*missed[::4]} == {0.0, 1.0} and {*few[3::4]} == {None}
    extended = [b for a, b in zip(few, many, strict=True) if a == 1.0]
    assert {*extended} == {1.0}, "a higher rate keeps the errors of a lower one"
    assert few == rewards(false_positive_rate=0.1), "the same in every process"
    assert few != rewards(2, false_positive_rate=0.1) != rewards(false_positive_rate=0.1, seed=9)
    both = {"false_positive_rate": 0.1, "reward": {"flipped": 1.0}}
    assert rewards(**both)[1::4] == [1.0 - r for r in few[1::4] if r is not None]
    recorder = GroupRecorder()
    noisy = clean.model_copy(update={"false_positive_rate": 1.0})
    recorder.add(1, with_rewards(noisy, 1, marks[:4], 4), 4)
    [row] = recorder.table().to_pylist()
    assert row["scores"] == [1.0, 0.25, 0.0, None] and row["rewards"] == [1.0, 1.0, 1.0, None]
    assert row["outcomes"] == ["correct", "wrong", "unparsed", "error"]


def test_phantom_groups_are_counted_beside_those_that_are_live_by_correctness(
    tmp_path: Path,
) -> None:
    [cell, *_] = small_plan(tmp_path).cells
    live, phantom, muted = (
        [mark("correct", 1.0), mark("wrong", 0.0)],
        [mark("wrong", 0.5), mark("wrong", 0.0)],
        [mark("correct", 1.0), mark("wrong", 1.0)],
    )
    recorder = GroupRecorder()
    for group in (live, phantom, muted):
        recorder.add(1, with_rewards(cell, 1, group, 2), 2)
    counts = [tally(row) for row in recorder.rows]
    assert [(c.live, c.rewarded, c.phantom) for c in counts] == [(1, 1, 0), (0, 1, 1), (1, 0, 0)]
    table = recorder.table()
    assert learnable_pct(table) == pytest.approx(200 / 3), "learnable % counts correctness"
    metrics = training_metrics(table)[1]
    assert metrics["train/rewarded_pct"] == pytest.approx(200 / 3)
    assert metrics["train/phantom_pct"] == pytest.approx(100 / 3)
    counted = ledger(cell, 8, GroupRecorder(table.to_pylist()), [], 1.0)
    assert (counted["live"], counted["rewarded"], counted["phantom"]) == (2, 2, 1)
    plain = GroupRecorder()
    plain.add(1, with_rewards(cell, 1, live, 2), 2)
    assert "phantom" not in ledger(cell, 8, GroupRecorder(plain.table().to_pylist()), [], 1.0)
    assert "train/phantom_pct" not in training_metrics(plain.table())[1]


def test_an_evaluation_has_a_mean_score_only_where_the_marker_gives_scores() -> None:
    rows = [
        sample("a", 0, "wrong", 0.5),
        sample("a", 1, "correct", 1.0),
        sample("b", 0, "wrong", 0),
    ]
    tiers = {"a": "", "b": ""}
    metrics = evaluation_metrics(as_evaluation(table_of(rows), 1, tiers))
    assert (metrics["eval/accuracy"], metrics["eval/score"]) == (0.25, 0.375)
    plain = [row | {"score": float(row["outcome"] == "correct")} for row in rows]
    assert "eval/score" not in evaluation_metrics(as_evaluation(table_of(plain), 1, tiers))

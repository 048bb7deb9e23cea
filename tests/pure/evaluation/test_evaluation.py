"""Accuracy, pass@k, bands, and the evaluations of a cell."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from factories import small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.evaluation.evaluator import Evaluator
from orchestrator.evaluation.metrics import (
    accuracy,
    as_evaluation,
    bands,
    by_band,
    by_update,
    evaluation_metrics,
    held_out,
    marks,
    own_test_set,
    pass_at_k,
    per_prompt,
)
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import Pool
from orchestrator.probing.probe_folder import write_part
from orchestrator.probing.samples import sample_and_mark
from orchestrator.sampling.base import Completion, Request, Sampler, SamplingSettings
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.schema import EVALUATIONS, SAMPLES
from orchestrator.storage.store import Store
from orchestrator.tracking.views import clean
from tasks import OUTCOMES

# ---- the evaluator


class Answering(Sampler):
    """An engine that answers sample 0 of every question correctly, and no other."""

    chat_template_kwargs: dict[str, Any]

    def __init__(self, *pools: Pool) -> None:
        self.gold = {p.prompt_id: p.answer for pool in pools for p in [*pool.train, *pool.test]}
        self.calls: list[tuple[int, float, dict[str, Any]]] = []

    @classmethod
    def load(cls, source: ModelSource, device: str | None = None) -> "Answering":
        raise NotImplementedError

    def count_tokens(self, requests: Sequence[Request]) -> list[int]:
        return [1] * len(requests)

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        self.calls.append((len(requests), settings.temperature, self.chat_template_kwargs))
        answers = [[self._answer(r.prompt_id, i) for i in r.samples] for r in requests]
        return [[Completion(text, 7, "stop") for text in texts] for texts in answers]

    def _answer(self, prompt_id: str, sample: int) -> str:
        return "I do not know." if sample else f"\\boxed{{{self.gold[prompt_id]}}}"


def evaluated_plan(folder: Path) -> Plan:
    far = {"task": "arithmetic", "options": {"train": 0, "test": 6}}
    evaluate = {"every": 2, "samples": 3, "greedy": True, "ood": ["far"], "ood_samples": 2}
    return small_plan(folder, datasets={"far": far}, evaluate=evaluate, policies=["random"])


@settings(max_examples=50)
@given(n=st.integers(1, 8), data=st.data())
def test_pass_at_k_is_the_fraction_of_draws_with_a_correct_sample(
    n: int, data: st.DataObject
) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_refuses_invalid_counts() -> None:
    for n, c, k in ((4, 5, 1), (4, -1, 1), (4, 1, 0), (4, 1, 5)):
        with pytest.raises(ValueError, match="pass_at_k"):
            pass_at_k(n, c, k)


def evaluation(
    outcomes: dict[str, list[str]], dataset: str = "", greedy: bool = False, update: int = 4
) -> pa.Table:
    rows = [
        {
            **{"update": update, "dataset": dataset, "greedy": greedy, "prompt_id": i},
            **{"sample": k, "tier": i[0], "outcome": o, "other_outcome": o, "tokens": 3},
            "score": None if o == "error" else float(o == "correct"),
        }
        for i, os in outcomes.items()
        for k, o in enumerate(os)
    ]
    return pa.Table.from_pylist(rows, schema=EVALUATIONS)


def test_accuracy_is_the_mean_over_prompts_and_leaves_errors_out() -> None:
    table = evaluation({"a": ["correct", "error"], "b": ["wrong"] * 4, "c": ["error"]})
    assert accuracy(table) == 0.5
    only_errors = evaluation({"a": ["error"] * 3})
    assert isnan(accuracy(only_errors)) and per_prompt(only_errors) == {"a": (0, 0)}


def test_samples_are_marked_by_their_numbers() -> None:
    table = evaluation({"a": ["correct", "error", "wrong", "correct"], "b": ["error", "truncated"]})
    assert marks(table) == {"a": (0b1101, 0b1001), "b": (0b10, 0)}


def test_metrics_include_tiers_outcomes_and_pass_at_k() -> None:
    table = evaluation({"3x": ["correct", "wrong"], "5x": ["truncated", "wrong"]})
    metrics = evaluation_metrics(table)
    assert metrics["eval/accuracy"] == 0.25
    assert metrics["eval/pass_at_2"] == 0.5
    assert [metrics[f"eval/{outcome}"] for outcome in OUTCOMES[:-1]] == [0.25, 0.5, 0, 0.25, 0]
    assert "eval/unlabelled" not in metrics, "test questions have gold answers"
    assert (metrics["tier/3/accuracy"], metrics["tier/5/accuracy"]) == (0.5, 0.0)
    assert "eval/pass_at_4" not in metrics


def test_every_source_has_a_metric_of_its_own_that_mlflow_takes() -> None:
    sources = ["a/b: c", "a/b_ c", "a_b_ c", "a.b", "..", "x" * 300, "x" * 299 + "y", "größe ✓"]
    table = evaluation({f"{i}x": ["correct"] for i in range(len(sources))})
    table = table.set_column(
        table.schema.get_field_index("source"), "source", pa.array(sources, pa.string())
    )
    names = [clean(n) for n in evaluation_metrics(table) if n.startswith("source/")]
    assert len({*names}) == len(names)
    names = [name for name in names if name.endswith("/accuracy")]
    assert len(names) == len(sources)
    assert all(re.fullmatch(r"source/[^/]+/accuracy", name) for name in names)
    assert {"source/a.b/accuracy", "source/a_b_ c/accuracy"} <= {*names}


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (10, 1, 10, 1.0),
        (100, 1, 10, 0.1),
        (5000, 1, 2500, 0.5),
    ],
)
def test_pass_at_k_has_its_known_values(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected)


def test_errors_leave_out_their_question_of_pass_at_k_and_no_other() -> None:
    table = evaluation({"a": ["correct", "wrong", "error", "error"], "b": ["wrong"] * 4})
    metrics = evaluation_metrics(table)
    assert metrics["eval/pass_at_2"] == 0.5 and "eval/pass_at_2_left_out" not in metrics
    assert metrics["eval/pass_at_4"] == 0, "one prompt has only two marked samples"
    assert metrics["eval/pass_at_4_left_out"] == 1 and "eval/pass_at_8" not in metrics
    assert metrics["eval/error"] == 0.25


def test_questions_without_a_tier_give_no_tier_metric() -> None:
    table = evaluation({"a": ["correct"], "b": ["wrong"]})
    bare = table.set_column(table.column_names.index("tier"), "tier", pa.array(["", ""]))
    assert not [name for name in evaluation_metrics(bare) if name.startswith("tier/")]


def test_an_evaluation_has_its_update_and_tiers_and_is_grouped_by_update() -> None:
    row = dict.fromkeys(SAMPLES.names) | {"prompt_id": "a", "sample": 0, "tokens": 1}
    samples = pa.Table.from_pylist([row], schema=SAMPLES)
    both = pa.concat_tables([as_evaluation(samples, update, {"a": "5"}) for update in (0, 20)])
    assert both.schema.equals(EVALUATIONS)
    assert both["tier"].to_pylist() == ["5", "5"]
    assert {u: t["update"].to_pylist() for u, t in by_update(both).items()} == {0: [0], 20: [20]}
    with pytest.raises(KeyError):
        as_evaluation(samples, 0, {"b": "5"})


def test_other_test_sets_and_greedy_samples_have_separate_metrics() -> None:
    table = pa.concat_tables(
        [
            evaluation({"3x": ["correct", "wrong"]}),
            evaluation({"3x": ["wrong"]}, greedy=True),
            evaluation({"9a": ["correct", "correct"], "9b": ["wrong", "correct"]}, "far"),
        ]
    )
    metrics = evaluation_metrics(table)
    assert metrics["eval/accuracy"] == 0.5
    assert metrics["eval/greedy_accuracy"] == 0.0
    assert (metrics["ood/far/accuracy"], metrics["ood/far/pass_at_2"]) == (0.75, 1.0)
    assert not [name for name in metrics if name.startswith("tier/9")]
    assert own_test_set(table).num_rows == 2


def test_pass_at_k_is_reported_for_the_configured_ks() -> None:
    table = evaluation({"3x": ["correct", "wrong", "wrong"]})
    metrics = evaluation_metrics(table, pass_at=(3, 5))
    assert [name for name in metrics if "pass_at" in name] == ["eval/pass_at_3"]


@pytest.mark.parametrize(
    ("right", "band"),
    [(0, "low"), (1, "low"), (2, "middle"), (3, "middle"), (4, "high"), (6, "high")],
)
def test_a_third_and_two_thirds_belong_to_the_band_above(right: int, band: str) -> None:
    """Of twelve samples, the six even ones choose the band, and the odd ones are its accuracy."""
    even = ["correct"] * right + ["wrong"] * (6 - right)
    odd = ["wrong", "correct", "correct", "unparsed", "error", "correct"]
    mixed = [outcome for pair in zip(even, odd, strict=True) for outcome in pair]
    base = evaluation({"a": mixed}, update=0)
    assert bands(base) == {"a": band} and held_out(base) == {"a": (5, 3)}
    assert by_band(base, base) == {band: 0.6}
    later = evaluation({"a": ["correct", "correct", "correct", "wrong"], "b": ["correct"]})
    assert by_band(base, later) == {band: 0.5}, "of odd samples, too"
    assert evaluation_metrics(later, base)[f"band/{band}/accuracy"] == 0.5
    assert by_band(evaluation({"a": ["correct"]}, update=0), later) == {}


def test_a_band_whose_questions_were_not_scored_has_no_accuracy() -> None:
    base = evaluation({"a": ["correct"] * 4, "b": ["wrong"] * 4, "c": ["error"] * 4}, update=0)
    assert bands(base) == {"a": "high", "b": "low"}
    outcomes = {"a": ["correct", "error"], "b": ["wrong", "correct"], "c": ["correct"] * 2}
    later = by_band(base, evaluation(outcomes))
    assert later["low"] == 1.0 and isnan(later["high"])
    greedy = evaluation({"a": ["wrong"]}, greedy=True, update=0)
    assert bands(pa.concat_tables([greedy, base])) == bands(base)
    outcomes = {"a": ["error", "correct"], "b": ["correct", "wrong"], "d": ["correct"] * 2}
    two = by_band(base, evaluation(outcomes))
    assert two == {"low": 0.0, "high": 1.0}


def test_lengths_and_the_other_reading_are_those_of_each_test_set() -> None:
    own, far = evaluation({"3x": ["wrong"] * 20}), evaluation({"9y": ["correct"] * 4}, "far")
    place = own.column_names.index
    own = own.set_column(place("tokens"), "tokens", pa.array([*range(1, 21)], pa.int32()))
    other = ["correct"] * 5 + ["error"] * 10 + ["wrong"] * 5
    own = own.set_column(place("other_outcome"), "other_outcome", pa.array(other))
    metrics = evaluation_metrics(pa.concat_tables([own, far]))
    assert (metrics["eval/mean_tokens"], metrics["ood/far/mean_tokens"]) == (10.5, 3)
    assert metrics["eval/p95_tokens"] == pytest.approx(19.05)  # 5 % of the way from 20 to 19
    assert (metrics["eval/accuracy"], metrics["eval/accuracy_other_reading"]) == (0, 0.5)
    assert metrics["eval/wrong"] == 1 and metrics["eval/correct"] == 0
    nothing = evaluation_metrics(own.slice(0, 0), pass_at=(1, 2))
    assert isnan(nothing["eval/accuracy"]) and nothing["eval/wrong"] == 0
    assert "eval/mean_tokens" not in nothing and "eval/pass_at_1" not in nothing


def summary(table: pa.Table) -> dict[tuple[int, str, bool], tuple[int, int]]:
    """(update, test set, greedy) -> rows, correct ones."""
    counts: dict[tuple[int, str, bool], tuple[int, int]] = {}
    for row in table.to_pylist():
        key = row["update"], row["dataset"], row["greedy"]
        rows, right = counts.get(key, (0, 0))
        counts[key] = (rows + 1, right + (row["outcome"] == "correct"))
    return counts


@pytest.mark.parametrize(
    ("every", "due"), [(2, [2, 4, 5]), (1, [1, 2, 3, 4, 5]), (5, [5]), (9, [5]), (0, [5])]
)
def test_a_cell_is_evaluated_every_few_updates_and_at_its_end(
    tmp_path: Path, every: int, due: list[int]
) -> None:
    [cell] = small_plan(tmp_path, policies=["random"], updates=5).cells
    cell = cell.model_copy(update={"evaluate_every": every})
    assert [update for update in range(6) if cell.evaluates_after(update)] == due


def test_other_test_sets_are_sampled_at_the_end_and_greedy_answers_each_time(
    tmp_path: Path,
) -> None:
    plan = evaluated_plan(tmp_path)
    [cell] = plan.cells
    own, far = plan.pools["small"], plan.pools["far"]
    sampler = Answering(own, far)
    evaluator = Evaluator(cell, own)
    early, last = evaluator.evaluate(sampler, 2), evaluator.evaluate(sampler, 4)
    assert early.schema.equals(EVALUATIONS)
    assert summary(early) == {(2, "", False): (36, 12), (2, "", True): (12, 12)}
    assert summary(last) == {
        **{(4, "", False): (36, 12), (4, "", True): (12, 12)},
        (4, "far", False): (12, 6),
    }
    assert [call[:2] for call in sampler.calls] == [
        *[(12, cell.baseline.settings.temperature), (12, 0.0)] * 2,
        (6, cell.baseline.settings.temperature),
    ]
    tiers = own.tiers("test") | far.tiers("test")
    assert all(tiers[row["prompt_id"]] == row["tier"] for row in last.to_pylist())
    assert {*last["prompt_id"].to_pylist()} == {p.prompt_id for p in [*own.test, *far.test]}


def test_each_test_set_is_sampled_with_its_own_chat_template_settings(tmp_path: Path) -> None:
    plan = evaluated_plan(tmp_path)
    [cell] = plan.cells
    kwargs = [{"own": 1}, {"greedy": 2}, {"far": 3}]
    specs = [cell.baseline, *(extra.probe for extra in cell.extra_evals)]
    own, greedy, far = (
        spec.model_copy(update={"model": replace(spec.model, chat_template_kwargs=own)})
        for spec, own in zip(specs, kwargs, strict=True)
    )
    extra = [
        one.model_copy(update={"probe": spec})
        for one, spec in zip(cell.extra_evals, (greedy, far), strict=True)
    ]
    cell = cell.model_copy(update={"baseline": own, "extra_evals": extra})
    sampler = Answering(*plan.pools.values())
    Evaluator(cell, plan.pools["small"]).evaluate(sampler, 4)
    assert [call[2] for call in sampler.calls] == kwargs


def test_the_base_model_is_evaluated_by_its_probes_before_training(tmp_path: Path) -> None:
    plan = evaluated_plan(tmp_path)
    [cell] = plan.cells
    store, own, far = Store(str(tmp_path / "runs")), plan.pools["small"], plan.pools["far"]
    sampler = Answering(own, far)
    for pool, spec in (
        (own, cell.baseline),
        *((far if e.dataset else own, e.probe) for e in cell.extra_evals),
    ):
        requests = [(prompt, range(spec.settings.samples)) for prompt in pool.test]
        sampler.chat_template_kwargs = {}
        samples = sample_and_mark(sampler, pool.task, requests, spec.settings.sampling())
        write_part(store, spec.key, spec.split, samples)
    base = Evaluator(cell, own).base(store)
    assert base.schema.equals(EVALUATIONS)
    assert summary(base) == {
        **{(0, "", False): (36, 12), (0, "", True): (12, 12)},
        (0, "far", False): (12, 6),
    }


def test_workers_share_the_questions(tmp_path: Path) -> None:
    plan = evaluated_plan(tmp_path)
    [cell] = plan.cells
    own = plan.pools["small"]
    shares = [
        Evaluator(cell, own, rank, 5).evaluate(Answering(own), 2)["prompt_id"].unique().to_pylist()
        for rank in range(5)
    ]
    assert [len(share) for share in shares] == [3, 3, 2, 2, 2]
    assert sorted(sum(shares, [])) == sorted(p.prompt_id for p in own.test)

"""The parent run of a sweep in MLflow: report, tables, figures, headline numbers, saved views."""

import json
from pathlib import Path

import pytest
from factories import finished_sweep

from orchestrator.report.compare import families
from orchestrator.report.rows import read_rows
from orchestrator.report.sections.verdicts import family_verdict
from orchestrator.tracking.mlflow_internals import experiment_tags
from orchestrator.tracking.views import best_over_baseline, description


def test_views_have_the_format_that_mlflow_reads() -> None:
    tags = experiment_tags({}, 1234)
    view = json.loads(tags["mlflow.sharedViewState.by-policy"])
    assert (view["name"], view["createdAt"]) == ("By policy", 1234)
    assert json.loads(view["state"])["orderByKey"] == "params.`policy`"
    assert experiment_tags(tags, 1) == {}


def test_the_gain_over_random_is_read_in_either_order(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=("random", "hard"), seeds=(0, 1))
    rows = read_rows(store, plan.cells)
    (one,) = families(rows)
    (two,) = families(rows[::-1])
    a, b = best_over_baseline(one), best_over_baseline(two)
    assert a is not None and b is not None
    assert [(policy, c.verdict) for policy, c in (a, b)] == [("hard", "inconclusive")] * 2
    assert a[1].oriented("hard") == pytest.approx(b[1].oriented("hard"))


def test_the_whole_pool_is_not_a_subset(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=("full", "hard", "random"))
    (family,) = families(read_rows(store, plan.cells))
    best = best_over_baseline(family)
    assert best is not None and best[0] == "hard"


def test_a_long_description_is_cut_between_lines(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path)
    (family,) = families(read_rows(store, plan.cells))
    text = description([family_verdict(family)] * 40)
    assert "report.html" in text.splitlines()[-1]
    assert len(text) < 6100

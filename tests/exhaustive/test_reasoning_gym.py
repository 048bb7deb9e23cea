"""The data sets of reasoning_gym: pools, refused options, marks, scores and what goes wrong."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT
from reasoning_gym_cases import NAME, sums
from sweeps import experiments, plan_of, run, store_of

import orchestrator.optional.reasoning_gym.task
from benchmarks.local_cluster import environment
from benchmarks.procedural_tasks import LEAST, check_all, names
from tasks import Answer, TaskError

NAME = "reasoning_gym"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache folder of this module, in which a pool is drawn once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def test_at_least_a_hundred_data_sets_pass_the_check_of_the_marker() -> None:
    rows = [*check_all(names(), 5)]
    failed = {row.name: row.problem for row in rows if row.problem}
    assert len(rows) - len(failed) >= LEAST, failed


# A sweep


def test_a_mix_of_three_is_probed_and_trained_on(local_ray: Path, tmp_path: Path) -> None:
    mix = {"gcd": 2, "count_bits": 1, "simple_equations": 1}
    options = {"dataset": mix, "config": {"gcd": {"max_value": 12}}, "train": 48, "test": 8}
    file = experiments(
        tmp_path,
        grid={"model": ["tiny"], "dataset": ["mix"], "policy": ["hard"]},
        evaluate={"samples": 2},
    )
    content = yaml.safe_load(file.read_text())
    content["models"] = {"tiny": {"embedded": "tiny-arithmetic"}}
    content["datasets"] = {"mix": {"task": NAME, "options": options}}
    content["experiments"]["small"]["grpo"]["max_steps"] = 2
    file.write_text(yaml.safe_dump(content))
    run(file, here=True)
    store = store_of(file)
    [cell] = plan_of(file).cells
    assert store.read_json("cells", cell.cell_id, "result.json")["ledger"]["updates"] == 2
    tiers = {tier.split()[0] for tier in plan_of(file).pools["mix"].tiers("train").values()}
    assert tiers == set(mix)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache folder of this module, in which a pool is drawn once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def test_another_process_draws_the_same_items(tmp_path: Path) -> None:
    """These iterate over sets of strings, or use the global random generator."""
    mix = {"isomorphic_strings": 1, "list_functions": 5, "ransom_note": 1, "acre": 1}
    code = (
        "from tasks import get_task\n"
        f"task = get_task('{NAME}', dataset={mix}, train=48, test=8)\n"
        "print(*(p.prompt_id for p in (*task.train(), *task.test())))"
    )
    drawn = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment(PYTHONHASHSEED=seed, XDG_CACHE_HOME=str(tmp_path / seed)),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0].split())) == 56


def test_a_config_that_takes_too_long_or_too_much_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orchestrator.optional.reasoning_gym.task._DRAWERS, "limit", 3.0)
    huge = {"min_digits": 1, "max_digits": 2, "min_terms": 10**9, "max_terms": 10**9}
    with pytest.raises(TaskError, match=" 3 s|memory"):
        sums(config=huge).train()


def test_an_answer_that_hangs_the_score_is_an_error_and_concerns_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orchestrator.optional.reasoning_gym.task._SCORERS, "limit", 3.0)
    task = sums(dataset="polynomial_multiplication", config={}, train=4, test=0)
    [prompt, *_] = task.train()
    answers = [prompt.answer, "9**9**9**9", prompt.answer]
    marks = task.mark_all([Answer.to(prompt, f"\\boxed{{{answer}}}") for answer in answers])
    assert [mark.outcome for mark in marks] == ["correct", "error", "correct"]
    assert marks[1].score is None

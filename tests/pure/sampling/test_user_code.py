"""A task, a policy or an engine of a user's own that fails is one line with its name and place."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from remedies import refused
from user_code_cases import line, mine  # noqa: F401 (fixtures)

from orchestrator.cli.main import main
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.plugins.user_code import place_of, user_errors
from orchestrator.probing.adaptive import Target, count_outcomes, undecided_rows
from orchestrator.sampling import Request, load_sampler
from orchestrator.sampling.base import (
    Completion,
    Listener,
    SamplingError,
    SamplingSettings,
    drawn,
    listening,
)
from orchestrator.sampling.model import ModelSource
from orchestrator.selection.subsets import SubsetRequest, narrowest, select
from policies import (
    BuiltAllocation,
    BuiltOnlinePolicy,
    History,
    Policy,
    PolicyError,
    get_online_policy,
    get_policy,
)
from policies.built import Built
from policies.discarding import Dynamic
from policies.pass_rate import Band, Easy, Hard
from tasks import TaskError, find_task


def test_a_module_that_raises_is_named_with_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_on_import.py").write_text("import json\n\njson.loads('[')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TaskError, match=r"JSONDecodeError: .*/raises_on_import\.py:3\)"):
        find_task("raises_on_import:Task")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised KeyError: 'Field \"absent\" does not exist in schema' ({file}:{line})"),
        ("leaves", "raised SystemExit: 1 ({file}:{line})"),
        ("one_row", "returned 2 values (1 distinct): return each row once"),
        ("too_few", "returned 1 value (1 distinct): return 2 of them"),
        ("words", "must return 2 distinct row numbers"),
        ("nothing", "(1 distinct): return a NumPy array of integers"),
        ("Unbuildable", "cannot be built: KeyError: 'key'"),
    ],
)
def test_a_policy_that_fails_is_named(
    mine: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    table = mine.parent / "table.parquet"
    pq.write_table(pa.table({"prompt_id": ["a", "b", "c"], "pass_rate": [0.1, 0.2, 0.3]}), table)
    arguments = ["--probe", str(table), "--policy", f"code_of_mine:{name}", "--budget", "2"]
    assert main(["select", *arguments, "--out", str(mine.parent / "out.parquet")]) == 2
    [message] = capsys.readouterr().err.splitlines()
    assert f"policy 'code_of_mine:{name}' " in message
    assert words.format(file=mine, line=line(f"def {name}(") if "{line}" in words else 0) in message


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([float("nan")] * 3, "nan"),
        ([1j] * 3, "complex128"),
        ([2.0, None, 1.0], "object"),
        ([1.0, 2.0], "(2,)"),
        ([float("nan"), 2.0, float("nan")], ""),
        ([True, False, True], ""),
    ],
)
def test_scores_that_are_no_numbers_are_refused(scores: list[Any], words: str) -> None:
    class Mine(Hard):
        def score(self, difficulty: pa.Table) -> np.ndarray:
            return np.array(scores)

    table = pa.table({"prompt_id": ["a", "b", "c"], "pass_rate": [0.1, 0.2, 0.3]})
    chooses = Policy("mine", Mine())
    if not words:
        assert chooses(table, 1, np.random.default_rng(0)).tolist() == [1]
        return
    with refused(words, by=PolicyError):
        chooses(table, 1, np.random.default_rng(0))


def test_a_policy_that_fails_in_an_adaptive_probe_is_named(mine: Path) -> None:
    target = Target(get_policy("code_of_mine:Narrow"), 1, 0)  # type: ignore[arg-type]
    counts = count_outcomes({}, ["a", "b"], frozenset())
    with pytest.raises(PolicyError, match=rf"policy 'Narrow' raised .*:{line('nonsense')}\)$"):
        undecided_rows([target], counts, ["", ""], 4)


class Computes:
    """A policy whose attributes are all computed, which fails."""

    def __call__(self, *_: Any) -> None:
        raise AssertionError("not called here")

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize("kind", [Policy, BuiltOnlinePolicy, BuiltAllocation])
def test_what_a_policy_declares_may_fail(kind: type[Built]) -> None:
    built = kind("mine", Computes())
    every = {name for name, _ in inspect.getmembers(kind, lambda each: isinstance(each, property))}
    for name in every - {"scored", "metrics", "version"}:  # which read no attribute of the users
        with pytest.raises(PolicyError, match="'mine' raised KeyError"):
            getattr(built, name)
    with pytest.raises(PolicyError, match="'mine' raised KeyError"):
        built.change_towards("easy")


def test_a_bug_of_a_policy_of_ours_is_no_users_error_wherever_policies_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bug(*_: Any) -> None:
        raise KeyError("ours")

    for policy, method in (
        (Hard, "score"),
        (Band, "allowed"),
        (Dynamic, "next"),
        (Dynamic, "keep"),
    ):
        monkeypatch.setattr(policy, method, bug)
    table, counts = pa.table({"prompt_id": ["a"], "pass_rate": [0.1]}), np.array([1])
    band = PolicyEntry(policy="band", options={"low": 0, "high": 1})
    dynamic = get_online_policy("dynamic")
    assert BuiltOnlinePolicy("", dynamic).discards
    history = History(pa.array(["a"]), [1], [1], seed=0, updates=1, group_size=2)
    calls: list[Callable[[], Any]] = [
        lambda: select(table, SubsetRequest(PolicyEntry(policy="hard"), 1)),
        lambda: narrowest(table, [band]),
        lambda: BuiltOnlinePolicy("dynamic", dynamic).next_ids(history, 1, 1),
        lambda: BuiltOnlinePolicy("dynamic", dynamic).keep(counts, counts),
    ]
    monkeypatch.setattr(Easy, "__post_init__", bug)
    calls.append(lambda: get_policy("easy"))
    for call in calls:
        with pytest.raises(KeyError, match="ours"):
            call()


REQUESTS = [Request("a", [], [0, 1], "q"), Request("b", [], [0], "q")]
GOOD = Completion("x", 1, "stop")


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (None, "sample() raised ZeroDivisionError: division by zero ({file}:{line})"),
        ("text", "sample() returned str for 2 requests"),
        ([[GOOD, GOOD]], "sample() returned 1 value for 2 requests"),
        ([[GOOD], [GOOD]], "sample() returned 1 value for 2 samples of a request"),
        ([[GOOD, "x"], [GOOD]], "sample() returned 'x' as a completion"),
        ([[GOOD, Completion("x", 1, "eos")], [GOOD]], "finish='eos'"),  # type: ignore[arg-type]
        ([[GOOD, Completion("x", 1.5, "stop")], [GOOD]], "tokens=1.5"),  # type: ignore[arg-type]
    ],
)
def test_an_engine_that_fails_is_named(mine: Path, results: Any, words: str) -> None:
    engine: Any = load_sampler(ModelSource("m", "m", "m"), "code_of_mine:Engine")
    engine.results = results
    with pytest.raises(SamplingError) as caught:
        drawn(engine, REQUESTS, SamplingSettings())
    assert str(caught.value).startswith("engine code_of_mine:Engine: ")
    assert words.format(file=mine, line=line("self.results if")) in str(caught.value)
    engine.results = [[GOOD, GOOD], [GOOD]]
    assert drawn(engine, REQUESTS, SamplingSettings()) == engine.results


@pytest.mark.parametrize(
    ("place", "completion", "words"),
    [
        ((2, 0), GOOD, "on_completion() got 2, 0"),
        ((1, 1), GOOD, "on_completion() got 1, 1"),
        ((0, -1), GOOD, "on_completion() got 0, -1"),
        ((0, "a"), GOOD, "TypeError"),
        ((0, 0), "x", "on_completion() got 'x' as a completion"),
        ((0, 0), Completion("x", 1.5, "stop"), "tokens=1.5"),  # type: ignore[arg-type]
    ],
)
def test_what_an_engine_tells_is_checked_before_it_is_stored(
    mine: Path, place: Any, completion: Any, words: str
) -> None:
    engine: Any = load_sampler(ModelSource("m", "m", "m"), "code_of_mine:Engine")
    engine.results, complete = [[GOOD, GOOD], [GOOD]], list[Any]()
    sample = type(engine).sample

    def telling(requests: Any, settings: Any) -> Any:
        engine.listener.on_completion(*told)
        return sample(engine, requests, settings)

    engine.sample = telling
    listener = Listener(lambda more: None, lambda *values: complete.append(values))
    told = (0, 1, GOOD)
    with listening(engine, listener):
        drawn(engine, REQUESTS, SamplingSettings())
        assert complete == [told] and engine.listener is listener
        told = (*place, completion)
        with pytest.raises(SamplingError) as caught:
            drawn(engine, REQUESTS, SamplingSettings())
    assert complete == [(0, 1, GOOD)] and engine.listener is None
    assert str(caught.value).startswith("engine code_of_mine:Engine: ")
    assert words in str(caught.value)


def test_an_engine_that_cannot_be_loaded_is_named(mine: Path) -> None:
    place = rf"\({mine}:{line('no GPU')}\)"
    with pytest.raises(
        SamplingError, match=rf"Unloadable: load\(\) raised OSError: no GPU {place}"
    ):
        load_sampler(ModelSource("m", "m", "m"), "code_of_mine:Unloadable")


def test_an_error_outside_of_a_users_code_has_no_place() -> None:
    with pytest.raises(TaskError) as caught:
        find_task("nothing")
    error = caught.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    assert place_of(error) == ""


def test_an_error_whose_message_raises_is_named() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    with pytest.raises(TaskError, match="Silent"), user_errors("task x", TaskError):
        raise Silent

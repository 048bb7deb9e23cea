"""Rewards that compare the completions of a prompt: docs/examples/group_rewards.py."""

import importlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import sweeps
from grpo import one_thread, trained_cell  # noqa: F401 (a fixture)  # noqa: F401 (a fixture)  # noqa: F401 (a fixture)
from paths import ROOT

from orchestrator.evaluation.liveness import is_live
from orchestrator.evaluation.metrics import pass_at_k
from orchestrator.planning.pools import load_pool
from tasks import Answer
from tasks.reward_functions import GROUP, reward_values

EXAMPLES = ROOT / "docs" / "examples"
MAJORITY = "group_rewards:majority"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which child processes can import, too."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("group_rewards")


def called(function: Any, texts: Sequence[str], gold: str = "A", group: int = 99) -> list[float]:
    """What it gives these completions, `group` of which at a time are of one prompt."""
    return function(
        prompts=[[{"role": "user", "content": f"{i // group}"}] for i in range(len(texts))],
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        answer=[gold] * len(texts),
        trainer_state=None,
    )


@pytest.mark.parametrize("allocation", ["uniform", "sqrt", "until_correct"])
def test_training_on_the_majority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Any, allocation: str
) -> None:
    """Rewards are the function's, of whole groups; outcomes are those of the marker."""
    calls: list[Sequence[Answer]] = []

    def values(name: str, answers: Sequence[Answer], *others: Any, **options: Any) -> Any:
        calls.append(answers)
        return reward_values(name, answers, *others, **options)

    monkeypatch.setattr("orchestrator.training.rollouts.reward_values", values)
    settings = {"reward": MAJORITY, "allocation": allocation}
    cell = sweeps.plan_of(sweeps.experiments(tmp_path, **settings)).cells[1]
    sizes = {"max_steps": 4, "num_generations": 8, "per_device_train_batch_size": 32}
    cell = cell.model_copy(update={"grpo": cell.grpo | sizes, "evaluate_every": 0})
    store = trained_cell(tmp_path, cell, (), monkeypatch)
    ids = {prompt.question: prompt.prompt_id for prompt in load_pool(cell.probe.dataset).train}
    parts: dict[tuple[int, str], list[list[Answer]]] = {}  # of update and prompt: one per call
    drawn = 0
    for answers in calls:
        for question, part in groupby(answers, lambda answer: answer.question):
            parts.setdefault((1 + drawn // 32, ids[question]), []).append([*part])
        drawn += len(answers)
    groups = sweeps.groups(store, cell.cell_id).to_pylist()
    assert [(row["update"], row["prompt_id"]) for row in groups] == [*parts]
    live = rewarded = 0
    for row, calls_of in zip(groups, parts.values(), strict=True):
        texts = [[answer.completion for answer in part] for part in calls_of]
        assert row["rewards"] == [r for part in texts for r in called(example.majority, part)]
        right = [
            called(example.pass_at_k, [answer.completion], answer.answer) == [1]
            for part in calls_of
            for answer in part
        ]
        assert [outcome == "correct" for outcome in row["outcomes"]] == right
        live, rewarded = live + is_live(right), rewarded + is_live(row["rewards"])
    ledger = store.read_json("cells", cell.cell_id, "ledger.json")
    assert (ledger["live"], ledger["rewarded"]) == (live, rewarded) and 0 < live < len(groups)
    in_one_call = [len(calls_of) == 1 for calls_of in parts.values()]
    assert all(in_one_call) == (allocation != "until_correct"), "which has a call for each round"
    assert (len({len(row["rewards"]) for row in groups}) > 1) == (allocation != "uniform")


def boxed(letters: str) -> list[str]:
    r"""Completions that end with these answers; `-` is one without an answer."""
    return ["-" if each == "-" else rf"\boxed{{Z}} or \boxed{{ {each} }}." for each in letters]


@pytest.mark.parametrize(
    ("letters", "rewards"),
    [
        ("BBAC", [1, 1, 0, 0]),
        ("A--B-A", [1, 0, 0, 0, 0, 1]),
        ("ABABC", [1, 1, 1, 1, 0]),
        ("AB-", [1, 1, 0]),
        ("---", [0, 0, 0]),
        ("A", [1]),
    ],
)
def test_majority(example: Any, letters: str, rewards: list[float]) -> None:
    assert called(example.majority, boxed(letters)) == rewards
    assert called(example.majority, boxed(letters), gold="B") == rewards, "whatever is right"


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_k_is_that_of_the_sets_with_a_completion(
    example: Any, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    monkeypatch.setattr(example, "K", k)
    for n in range(1, 10):
        least = min(k, n)
        for c in range(n + 1):
            rewards = called(example.pass_at_k, boxed("A" * c + "B" * (n - c)))
            assert sum(rewards) / n == pytest.approx(pass_at_k(n, c, least))
            others = pass_at_k(n - 1, c, least - 1) if c < n and least > 1 else 0
            assert rewards == pytest.approx([1] * c + [others] * (n - c))


def test_a_call_may_have_several_prompts(example: Any) -> None:
    assert called(example.majority, boxed("AABBBA"), group=3) == [1, 1, 0, 1, 1, 0]
    assert called(example.pass_at_k, boxed("ABBBBB"), group=3) == [1, 1, 1, 0, 0, 0]


def test_a_larger_group_is_divided(example: Any) -> None:
    """Into groups of at most GROUP, each rewarded by itself."""
    letters = "A" * (GROUP // 2) + "B" * (GROUP // 2 - 1) + "C" + "BBB"
    given = [Answer(text, "A", False, "q") for text in boxed(letters)]
    values = reward_values(MAJORITY, given, lambda question, _: [{"content": question}])
    whole = [float(letter == "A") for letter in letters]
    assert [value for value, _ in values] == whole[:GROUP] + [1, 1, 1]
    assert called(example.majority, boxed(letters)) == [float(each == "B") for each in letters]

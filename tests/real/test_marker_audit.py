"""Audits of a marker: a second one beside it, and answers that must not pass."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from orchestrator.cli.main import main
from orchestrator.optional.exchange.disagreement import Disagreement
from orchestrator.optional.exchange.mark import COMPARED
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.probing.attacks import ATTACKS, LONG, Attacked, Target, attacked
from tasks import Task, find_task, get_task, make_prompt, task_names

ROWS = [
    {"question": "1+1", "answer": "2", "completions": ["\\boxed{2}", "so the answer is 2.", "no"]},
    {
        "question": "7+8",
        "answer": "15",
        "completions": ["\\boxed{15}", "the answer is 15", "neither"],
    },
]
FUNCTIONS = """
def contains(completions, answer, **kwargs):
    return [float(gold in c[0]["content"]) for c, gold in zip(completions, answer)]

def half(completions, **kwargs):
    return [0.5 for c in completions]

def picky(completions, **kwargs):
    for completion in completions:
        if len(completion[0]["content"]) > 10**5:
            raise MemoryError
    return [0.0 for c in completions]
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "rewards_to_audit.py").write_text(FUNCTIONS)
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "in.jsonl"


def of_kind(results: list[Attacked], name: str) -> Attacked:
    [result] = [each for each in results if each.attack == name]
    return result


def attack(source: str, function: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    marker = f"marker=rewards_to_audit:{function}"
    line = ["mark", "--task", "file", "--option", marker, "--input", source, "--attack"]
    assert main([*line, "--json"]) == 0
    attacks = json.loads(capsys.readouterr().out)["attacks"]
    assert main(line) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(attacks)
    return {each.pop("attack"): each for each in attacks}


GOLDS = {
    "number": ["18", "-3", "2.5", "1/2", "0", "100"],
    "letter": ["(A)", "(B)", "(C)"],
    "expression": [
        *("18", "\\frac{1}{2}", "x^2 + 1", "(2, 3)", "[2, 5)", "x \\geq 5", "1, 2", "\\pm 3"),
        *("\\text{(C)}", "\\text{even}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "2\\pi"),
    ],
    "text": ["New York", "not guilty", "no", "yes"],
}


@pytest.mark.parametrize("marking", ["lenient", "strict"])
@pytest.mark.parametrize("marker", GOLDS)
def test_no_marker_of_a_file_accepts_an_attack(marker: str, marking: str) -> None:
    task = get_task("file", marker=marker, marking=marking)
    prompts = [make_prompt("file", f"(A) (B) (C) {n}", g, "") for n, g in enumerate(GOLDS[marker])]
    results = attacked(task, prompts)
    assert [each.text() for each in results if each.accepted] == []
    assert len(results) == {"number": 11, "letter": 9, "expression": 11, "text": 9}[marker]
    assert of_kind(results, "not the gold").prompts == len(GOLDS[marker])
    assert of_kind(results, "built to hang").prompts == 3


def shipped() -> list[Task]:
    kinds = [find_task(name) for name in task_names() if name not in ("code", "reasoning_gym")]
    return [task for kind in kinds for task in kind.marker_variants() if task.environment is None]


@pytest.mark.parametrize("task", shipped(), ids=lambda task: task.marker_id)
def test_no_shipped_marker_accepts_an_attack(task: Task) -> None:
    for reading in (task, task.other_reading):
        results = attacked(reading, task.check_prompts()[:20])
        assert len(results) >= 8 and not [each for each in results if each.accepted]


def test_a_reward_function_is_attacked(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = attack(source, "contains", capsys)
    assert results["a bound"]["accepted"] == results["10^6 characters"]["accepted"] == 2
    assert results["not the gold"]["example"] == "The answer is not 2."
    assert results["the question itself"]["accepted"] == 0
    results = attack(source, "half", capsys)
    assert {(each["accepted"], each["score"]) for each in results.values()} == {(0, 0.5)}


def test_failures_are_counted_and_are_no_scores(
    source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = attack(source, "picky", capsys)
    failed = {name: each["failures"] for name, each in results.items() if each["failures"]}
    assert {name: sum(counts.values()) for name, counts in failed.items()} == {
        "10^6 characters": 2,
        "built to hang": 3,  # after which the rest is not tried
    }
    assert all("MemoryError" in rule for counts in failed.values() for rule in counts)
    assert results["10^6 characters"]["score"] is None


def target(gold: str, other: str = "19", question: str = "q", options: Any = ()) -> Target:
    return Target(question, gold, other, options, lambda answer: f"\\boxed{{{answer}}}")


def test_kinds_that_may_be_right_do_not_apply() -> None:
    """A question that is its own answer, a bound of an interval, the only option."""
    applies = {name for name, of in ATTACKS.items() if of(target("x \\geq 5", question=""))}
    assert applies.isdisjoint({"the question itself", "all options", "a bound"})
    assert "digits of another script" not in applies
    assert not ATTACKS["the question itself"](target("New York", question="new york "))
    assert ATTACKS["the question itself"](target("18", question="Is it 18?")) == ("Is it 18?",)
    assert not ATTACKS["all options"](target("(A)", options=["A"]))
    assert ATTACKS["all options"](target("(A)", options=["A", "B"]))[0] == "\\boxed{A, B}"
    assert ATTACKS["an ellipsis"](target("x"))[-1] == "\\boxed{\\ldots}"
    assert ATTACKS["digits of another script"](target("25"))[-1] == "\\boxed{2⁵}"
    assert len(ATTACKS["digits of another script"](target("1"))) == 1  # 1¹ is 1
    [text] = ATTACKS["10^6 characters"](target("18"))
    assert abs(len(text) - LONG) < 50 and text.endswith("18 19 \\boxed{19}")


def test_a_marker_that_accepts_any_number_of_a_text_is_caught() -> None:
    """`last_number` reads the last number wherever it is, as its documentation says."""
    prompts = [make_prompt("gsm8k", f"{n} and {n}", str(n), "") for n in range(10, 40)]
    results = attacked(get_task("gsm8k", last_number=True), prompts)
    passed = {each.attack: each.accepted for each in results if each.accepted}
    assert passed == {"the question itself": 30, "not the gold": 30, "a bound": 30}
    assert of_kind(results, "not the gold").example == "The answer is not 10."


def test_choices_in_columns_are_the_options(tmp_path: Path, capsys: Any) -> None:
    row = {"question": "Which?", "answer": "blue", "A": "red", "B": "blue", "C": "green"}
    (tmp_path / "in.jsonl").write_text(json.dumps(row))
    line = ["mark", "--task", "file", "--option", "marker=letter", "--attack", "--json"]
    assert main([*line, "--input", str(tmp_path / "in.jsonl")]) == 0
    attacks = json.loads(capsys.readouterr().out)["attacks"]
    assert "all options" in [each["attack"] for each in attacks]
    assert not any(each["accepted"] for each in attacks)


def compared(pairs: list[tuple[str, str]]) -> Disagreement:
    rows = [
        {
            **{"prompt_id": str(n // 2), "sample": n % 2, "answer": "1", "completion": "x" * 300},
            **{"outcome": one, "extracted": None, "rule": "a"},
            **{"against_outcome": two, "against_extracted": "1", "against_rule": "b"},
        }
        for n, (one, two) in enumerate(pairs)
    ]
    return Disagreement.of(rows, [""] * len(rows), ("a", "b"), RowCounts(len(rows)))


def test_kappa_and_the_examples() -> None:
    """Cohen (1960): 20 and 15 alike, 5 and 10 not: (0.7 - 0.5) / 0.5."""
    pairs = [("correct", "correct")] * 20 + [("correct", "wrong")] * 5
    pairs += [("wrong", "correct")] * 10 + [("wrong", "wrong")] * 15
    result = compared(pairs)
    assert (result.total, result.same, result.kappa) == (50, 35, pytest.approx(0.4))
    assert compared([("correct", "correct")] * 4).kappa is None
    examples = result.to_dict(2)["examples"]
    assert [each["outcomes"] for each in examples] == [("wrong", "correct")] * 2 + [
        ("correct", "wrong")
    ] * 2
    assert [each["prompt_id"] for each in examples] == ["12", "13", "10", "11"]
    assert len(examples[0]["completion"]) == 200
    assert result.to_dict(0)["examples"] == []


def test_two_markers_side_by_side(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["mark", "--task", "gsm8k", "--input", source, "--against", "gsm8k"]
    line += ["--against-option", "marking=strict"]
    assert main([*line, "--out", "both.parquet", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["outcomes"]["correct"] == {"correct": 2, "unparsed": 2}
    assert (result["completions"], result["same"]) == (6, 4)
    assert [each["question"] for each in result["examples"]] == ["1+1", "7+8"]
    assert result["examples"][0]["extracted"] == ["2", None]
    table = pq.read_table("both.parquet")
    assert table.schema.equals(COMPARED)
    assert table.column("against_outcome").to_pylist() == [
        *("correct", "unparsed", "unparsed"),
        *("correct", "unparsed", "unparsed"),
    ]
    assert {*table.column("against_marker").to_pylist()} == {"gsm8k/4/strict"}
    assert main(line) == 0
    lines = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert ["correct", "2", "2", "4"] in lines and ["all", "2", "4", "6"] in lines


def test_a_marker_and_a_reward_function(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["mark", "--task", "file", "--input", source, "--against", "file", "--json"]
    assert main([*line, "--against-option", "marker=rewards_to_audit:contains"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["same"], result["kappa"]) == (4, pytest.approx(0.4))
    assert result["outcomes"]["unparsed"]["wrong"] == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--out"),
        (["--against", "gsm8k"], "both markers are gsm8k/4/lenient"),
        (["--against", "nothing"], "'nothing'"),
        (["--against", "number_guess"], "NumberGuess"),
        (["--against-option", "marking=strict", "--out", "o.jsonl"], "--against"),
        (["--attack", "--out", "o.jsonl"], "--out"),
        (["--attack", "--against", "gsm8k"], "--against"),
        (["--against", "gsm8k", "--against-option", "marking=loose"], "loose"),
    ],
)
def test_options_that_contradict_each_other(
    source: str, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["mark", "--task", "gsm8k", "--input", source, *options]) == 2
    printed = capsys.readouterr()
    assert words in printed.err and printed.out == "" and not Path("o.jsonl").exists()

"""A marker of a user's own may do anything: its answer is an error, and nothing else changes."""

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from effort import some
from factories import sample_row, small_plan, trl_columns
from misbehaving_task import RETURNED, Misbehaving
from remedies import refused

from orchestrator.cli.main import main
from orchestrator.evaluation.evaluator import Evaluator
from orchestrator.planning.pools import Pool
from orchestrator.probing.checks import MarkerFails, check_marker
from orchestrator.probing.isolation import mark_answers
from orchestrator.probing.samples import (
    MarkingError,
    mark_completions,
    sample_and_mark,
    update_marks,
)
from orchestrator.sampling.base import Completion, Request, SamplingSettings
from orchestrator.storage.schema import SAMPLES
from tasks import Answer, Mark, MarkLimits, Prompt, Task, TaskError, get_task, make_prompt
from tasks.prompt_table import PromptTable

FILE = r"misbehaving_task\.py:\d+"
# What the completion makes the marker do, and the rule that is stored with the error.
FAULTS = {
    "raise": f"ZeroDivisionError@{FILE}",
    "leave": f"SystemExit@{FILE}",
    "recurse": f"RecursionError@{FILE}",
    "read input": f"EOFError@{FILE}",
    "exit": "crashed@exit-code-3",
    "segmentation fault": "crashed@SIGSEGV",
    "eat memory": f"MemoryError@{FILE}",
    "hang": "time-limit",
    "hang holding the interpreter": "time-limit",
    "hang below": "time-limit",
    "close everything": "crashed@.*",
}
HARMLESS = ["print", "change folder", "handle signals", "close output", "fork", "4"]
TEXTS = [text for fault in FAULTS for text in (fault, "4", "5")] + HARMLESS
GOLD = "4"
PROMPTS = [Prompt(f"{i:03}", text, GOLD, "1") for i, text in enumerate(TEXTS)]


class Echo:
    """A sampler whose completions are the questions."""

    def sample(self, requests: Sequence[Request], settings: Any) -> list[list[Completion]]:
        return [[Completion(r.question, 1, "stop")] for r in requests]


def completions(texts: Sequence[str]) -> list[Completion]:
    return [Completion(text, 1, "stop") for text in texts]


def in_probe(folder: Path) -> list[dict[str, Any]]:
    requests = [(prompt, [0]) for prompt in PROMPTS]
    sampler: Any = Echo()
    return sample_and_mark(sampler, Misbehaving(), requests, SamplingSettings()).to_pylist()


def in_training(folder: Path) -> list[dict[str, Any]]:
    from orchestrator.training.record import CellRecord
    from orchestrator.training.rollouts import marker, reward_function

    [cell, *_] = small_plan(folder).cells
    dataset = replace(cell.probe.dataset, max_marking_errors=1.0)
    probe = cell.probe.model_copy(update={"dataset": dataset})
    sizes = dict.fromkeys(("num_generations", "per_device_train_batch_size"), len(TEXTS))
    grpo = cell.grpo | sizes
    cell = cell.model_copy(update={"probe": probe, "grpo": grpo})
    record = CellRecord()
    rewards = reward_function(cell, marker(cell, Misbehaving(), [0]), record.groups)(
        completions=[[{"role": "assistant", "content": text}] for text in TEXTS],
        completion_ids=[[0]] * len(TEXTS),
        **trl_columns([Prompt("p", "", GOLD, "1")] * len(TEXTS)),
        trainer_state=SimpleNamespace(global_step=0),
    )
    [group] = record.groups.rows
    assert None not in rewards and group["rewards"].count(None) == len(FAULTS)
    return [{"outcome": outcome} for outcome in group["outcomes"]]


def in_evaluation(folder: Path) -> list[dict[str, Any]]:
    [cell, *_] = small_plan(folder).cells
    dataset = replace(cell.probe.dataset, max_marking_errors=1.0)
    settings = cell.baseline.settings.model_copy(update={"samples": 1})
    baseline = cell.baseline.model_copy(update={"settings": settings, "dataset": dataset})
    cell = cell.model_copy(update={"baseline": baseline, "extra_evals": []})
    sampler: Any = Echo()
    pool = Pool(dataset, Misbehaving(), PromptTable(), PromptTable.of(PROMPTS))
    rows = Evaluator(cell, pool).evaluate(sampler, cell.updates).to_pylist()
    return sorted(rows, key=lambda row: row["prompt_id"])


def in_the_command(folder: Path) -> list[dict[str, Any]]:
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text(json.dumps({"answer": GOLD, "completions": TEXTS}) + "\n")
    arguments = ["--task", "misbehaving_task:Misbehaving", "--input", str(source)]
    assert main(["mark", *arguments, "--output", str(target)]) == 0
    return [json.loads(line) for line in target.read_text().splitlines()]


def in_marking_again(folder: Path) -> list[dict[str, Any]]:
    rows = [sample_row(p.prompt_id, 0, completion=p.question, marker="another") for p in PROMPTS]
    samples = pa.Table.from_pylist(rows, schema=SAMPLES)
    prompts = {prompt.prompt_id: prompt for prompt in PROMPTS}
    return update_marks(samples, Misbehaving(), prompts).to_pylist()


@pytest.mark.parametrize(
    "place", some([in_training, in_probe, in_the_command, in_evaluation, in_marking_again], 2)
)
def test_every_fault_is_an_error_of_its_own_answer(
    place: Callable[[Path], list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, output = os.getcwd(), os.fstat(1).st_ino
    rows = place(tmp_path)
    expected = {"5": "wrong"} | dict.fromkeys(FAULTS, "error")
    assert [row["outcome"] for row in rows] == [expected.get(text, "correct") for text in TEXTS]
    if "rule" in rows[0]:
        for text, row in zip(TEXTS, rows, strict=True):
            assert re.fullmatch(FAULTS.get(text, "lenient:same"), row["rule"]), (text, row["rule"])
            assert re.fullmatch(FAULTS.get(text, "strict:same"), row["other_rule"])
    assert (os.getcwd(), os.fstat(1).st_ino) == (folder, output)


@pytest.mark.parametrize("text", list(RETURNED))
def test_what_is_no_mark_is_named_with_what_to_return(text: str) -> None:
    task = get_task("misbehaving_task:Misbehaving")
    with refused("misbehaving_task:Misbehaving: mark()", repr(text), "tasks.Mark(", by=TaskError):
        mark_completions(task, completions(["4", text]), PROMPTS[:1] * 2)


def test_a_score_of_numpy_is_a_number() -> None:
    task = get_task("misbehaving_task:Misbehaving")
    [(mark, _)] = mark_completions(task, completions(["a score of NumPy"]), PROMPTS[:1])
    assert mark == ("wrong", "1", "rule", 0.5) and type(mark.score) is float


def test_a_marker_that_hangs_is_given_up_when_too_many_answers_failed() -> None:
    with pytest.raises(MarkingError, match=r"^(\d) of \1 answers .* \(\1 × time-limit\)"):
        mark_completions(Misbehaving(), completions(["hang"] * 500), PROMPTS[:1] * 500, 0.004)
    assert not [p for p in psutil.Process().children(recursive=True) if p.name() == "sleep"]
    prompts = [make_prompt("m", f"q{i}", "4", "") for i in range(500)]
    with pytest.raises(MarkerFails, match="should be correct, but marks error by time-limit"):
        check_marker(Hanging(), prompts)


def test_stored_samples_are_not_marked_again_by_a_marker_that_fails() -> None:
    rows = [sample_row(str(i), 0, completion="raise", marker="another") for i in range(50)]
    samples = pa.Table.from_pylist(rows, schema=SAMPLES)
    prompts = {str(i): PROMPTS[0] for i in range(50)}
    with pytest.raises(MarkingError, match=r"max_marking_errors: 0\.1 allows") as caught:
        update_marks(samples, Misbehaving(), prompts, 0.1)
    tried = re.search(r"(\d+) of \1 answers", str(caught.value))
    assert tried and 5 < int(tried[1]) < 50, caught.value  # both children have some in hand


class Hanging(Misbehaving):
    """Hangs on every answer."""

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        time.sleep(1000)
        raise AssertionError


def test_children_are_built_with_the_options_and_are_used_again() -> None:
    def where(task: Task) -> list[str]:
        answers = [Answer("where", "5"), Answer("5", "5")]
        task.mark_limits = MarkLimits(processes=1)
        marks = mark_answers(task, answers)
        assert [mark.outcome for mark in marks] == ["wrong", "correct"]
        return re.findall(r"in (\d+) at (.*)", str(marks[0].extracted))[0]

    task = get_task("misbehaving_task:Misbehaving", answer="5")
    (pid, folder), again = where(task), where(task.other_reading)
    assert (pid, folder) == again
    assert int(pid) != os.getpid() and folder == os.getcwd()
    assert mark_answers(task.other_reading, [Answer("5", "5")])[0].rule == "strict:same"


def test_shipped_markers_stay_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.probing.isolation.Children", None)
    assert mark_answers(get_task("gsm8k"), [Answer(r"\boxed{1}", "1")])[0].outcome == "correct"
    with pytest.raises(TypeError):
        mark_answers(Unlisted(), [Answer("1", "1")])


class Unlisted(Misbehaving):
    """A task that no other test marks with."""


def test_a_task_that_no_child_can_build_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(Misbehaving):
        """Known to this process only."""

    answers = [Answer("4", "4")]
    with pytest.raises(TaskError, match=rf"Local is defined in {__name__}, .*: define it at"):
        mark_answers(Local(), answers)
    unsendable: Any = Path
    with refused("option", "strings, numbers", by=TaskError):
        mark_answers(Misbehaving(answer=unsendable), answers)

    file = tmp_path / "once_only.py"
    file.write_text("from misbehaving_task import Misbehaving as Once\n")
    monkeypatch.syspath_prepend(tmp_path)
    task = get_task("once_only:Once", answer="7")
    for code, words in (
        ("\n1 / 0\n", rf"cannot start: TaskError: .* ZeroDivisionError: .*\({file}:2\)"),
        ("import os; os._exit(7)", r".*\(exit-code-7\)"),
    ):
        file.write_text(code)
        with pytest.raises(TaskError, match=rf"its marking process {words}"):
            mark_answers(task, answers)


def test_a_child_that_builds_another_marker_is_refused() -> None:
    with pytest.raises(TaskError, match=f"'{os.getpid()}': .*marker_id"):
        mark_answers(Other(), [Answer("4", "4")])


class Other(Misbehaving):
    """A task whose marker changes from process to process."""

    @property
    def marker_id(self) -> str:
        return str(os.getpid())

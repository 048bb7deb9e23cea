"""A marker gives the same marks in any thread, as in Ray's actors, and as a reward of TRL.

Verifiers with time limits by signals return nothing in a thread, or kill their host.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from factories import small_plan, trl_columns

from orchestrator.training.record import CellRecord
from orchestrator.training.rollouts import marker, reward_function
from tasks import Answer, Prompt, get_task

ANSWERS = [
    Answer(r"\boxed{4i+8}", "8+4i"),
    Answer(r"\boxed{0.5}", r"\frac{1}{2}"),
    Answer(r"\boxed{9^{9^{9^{9}}}}", "1"),
    Answer(r"\boxed{x+1}", "x+2"),
    Answer("no idea", "1", truncated=True),
]
OUTCOMES = ["correct", "correct", "unparsed", "wrong", "truncated"]


def test_expressions_are_marked_in_threads_at_once() -> None:
    task = get_task("math")
    with ThreadPoolExecutor(2) as threads:
        marks = [*threads.map(task.mark_all, [ANSWERS] * 2)]
    assert [[mark.outcome for mark in each] for each in marks] == [OUTCOMES] * 2


def test_expressions_are_marked_in_a_trl_reward_function(tmp_path: Path) -> None:
    cell = small_plan(tmp_path).cells[0]
    record = CellRecord()
    reward = reward_function(cell, marker(cell, get_task("math"), [0]), record.groups)
    rewards = reward(
        completions=[[{"role": "assistant", "content": a.completion}] for a in ANSWERS[:4]],
        completion_ids=[[1, 0]] * 4,
        **trl_columns([Prompt("p", "", a.answer, "1") for a in ANSWERS[:4]]),
        trainer_state=SimpleNamespace(global_step=0),
    )
    [group] = record.groups.rows
    assert group["outcomes"] == OUTCOMES[:4]
    assert group["rewards"] == [1.0, 1.0, 0.0, 0.0]
    assert group["other_outcomes"] == ["wrong", "wrong", "wrong", "wrong"]
    assert rewards == [1.0, 1.0, 0.0, 0.0]

"""The marker check of all data sets of reasoning_gym: a table; an error if fewer than 100 pass.

    python -m benchmarks.procedural_tasks [--items 20] [NAME …]

Each data set gives a few training and test questions with its default configuration. Gold answers
must be marked correct, altered ones wrong, and pathological ones must not stop the marker. The
pools are drawn anew, in a separate cache folder.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from orchestrator.optional.reasoning_gym.task import EXCLUDED
from orchestrator.probing.checks import MarkerFails, check_marker
from tasks import Answer, Prompt, Task, get_task

LEAST = 100
WRONG = "\\boxed{x}"


class Row(NamedTuple):
    """The checked items of one data set, their tiers, marks per second of gold answers, how many
    of the answers "x" have a partial score, and what is wrong, or "".
    """

    name: str
    items: int
    tiers: int
    speed: float
    partial: int
    problem: str


def names() -> list[str]:
    """All data sets of the installed reasoning_gym."""
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


def check(task: Task, name: str, prompts: Sequence[Prompt]) -> Row:
    """The marker check of one data set's prompts."""
    try:
        check_marker(task, prompts)
        problem = ""
    except MarkerFails as error:
        problem = str(error)
    golds = [Answer.to(prompt, task.solution(prompt)) for prompt in prompts] * 20
    started = time.monotonic()
    task.mark_all(golds)
    speed = len(golds) / (time.monotonic() - started)
    marks = task.mark_all([Answer.to(prompt, WRONG) for prompt in prompts])
    partial = sum(0 < (mark.score or 0) < 1 for mark in marks)
    return Row(name, len(prompts), len({p.tier for p in prompts}), speed, partial, problem)


def check_all(chosen: Sequence[str], items: int) -> Iterator[Row]:
    """One row per data set that is not excluded, each with `count` items."""
    weights = {name: 1 for name in chosen if name not in EXCLUDED}
    test = items // 5 * len(weights)
    options = {"train": items * len(weights) - test, "test": test}
    task = get_task("reasoning_gym", dataset=weights, **options)
    with tempfile.TemporaryDirectory(prefix="decile-procedural-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        prompts = [*task.train(), *task.test()]
    for name in weights:
        yield check(task, name, [p for p in prompts if json.loads(p.info)["dataset"] == name])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--items", type=int, default=20)
    options = parser.parse_args()
    started = time.monotonic()
    print(f"{'data set':26}{'items':>6}{'tiers':>6}{'marks/s':>9}{'partial':>8}  result")
    passed = 0
    for row in check_all(options.names or names(), options.items):
        passed += not row.problem
        numbers = f"{row.items:6}{row.tiers:6}{row.speed:9,.0f}{row.partial:8}"
        print(f"{row.name:26}{numbers}  {row.problem or 'passes':.160}")
    for name, reason in EXCLUDED.items():
        print(f"{name:26}{'':29}  excluded: {reason}")
    print(f"{passed} pass, in {time.monotonic() - started:.0f} s")
    if not options.names and passed < LEAST:
        sys.exit(f"fewer than {LEAST} pass")


if __name__ == "__main__":
    main()

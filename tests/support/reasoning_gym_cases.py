"""The data sets of reasoning_gym: pools, refused options, marks, scores and what goes wrong."""

from typing import Any

from tasks import Task, get_task

NAME = "reasoning_gym"
SUMS = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2}


def sums(**options: Any) -> Task:
    return get_task(
        NAME, **{"dataset": "chain_sum", "config": SUMS, "train": 40, "test": 10, **options}
    )

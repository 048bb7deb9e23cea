"""docs/extending.md: its files run as they are, and its tables are those of the code."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from extending_cases import (
    TEXT,
    folder,  # noqa: F401 (fixtures)
)

from policies import (
    BuiltAllocation,
    BuiltOnlinePolicy,
    Groups,
    History,
    get_allocation,
    get_online_policy,
)
from policies.online import checked_ids


def test_the_table_of_what_an_online_policy_knows() -> None:
    section = TEXT[TEXT.index("| `history.`") : TEXT.index("`history` is rebuilt")]
    first_cells = re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)[1:]
    named = [name for cell in first_cells for name in re.findall(r"`(\w+)[`(]", cell)]
    history = History(pa.array(["a", "b"]), [4, 0], [2, 0], seed=0, updates=2, group_size=4)
    public = [n for n in dir(history) if not n.startswith("_")]
    assert sorted(named) == sorted(
        {*public} - {"add", "add_refresh", "start", "fresh", "ids", "part", "of"}
    )


def test_the_example_of_an_allocation_divides(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    rule, none = get_allocation("my_allocation:half_and_half", least=3), np.zeros(5, np.int64)
    groups = Groups(np.array([0.1, 0.9, 0.2, 0.5, 0.8]), none * np.nan, none, none, 40, 8)
    assert BuiltAllocation("mine", rule).more(groups).tolist() == [12, 3, 11, 11, 3]
    section = TEXT[TEXT.index("| `groups.`") : TEXT.index("A class with `__call__")]
    cells = re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)[1:]
    assert [n for cell in cells for n in re.findall(r"`(\w+)`", cell)] == [*Groups._fields]


def test_the_example_of_an_online_policy_chooses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    policy = get_online_policy("my_online:Frontier", target=0.5)
    ids = pa.array([f"p{i}" for i in range(5)])
    history = History(ids, [8] * 5, [0, 4, 8, 5, 8], seed=0, updates=2, group_size=4)
    history.start(1, 2)
    assert sorted(checked_ids(policy.next(1, history), "mine", 2).to_pylist()) == ["p1", "p3"]
    history.add(1, 1, 4, 4)
    history.add(1, 0, 2, 4)
    history.start(2, 2)
    assert sorted(checked_ids(policy.next(2, history), "mine", 2).to_pylist()) == ["p0", "p3"]


def test_the_example_of_a_gate_closes_prompts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    gates = [{"my_gates:Within": {"margin": 0.2, "weight": 0.5}}]
    policy = BuiltOnlinePolicy("pools", get_online_policy("pools", gates=gates))
    ids = pa.array([f"p{i}" for i in range(4)])
    history = History(ids, [8] * 4, [0, 4, 6, 8], seed=0, updates=3, group_size=4)
    assert {*policy.next_ids(history, 1, 2).to_pylist()} == {"p0", "p1"}
    history.add(1, 1, 4, 4)
    history.add(1, 0, 2, 4)
    policy.next_ids(history, 2, 2)
    mean = 0.5 * (0.5 * (0.5 + 2 / 4) + 4 / 4)  # of p0 before p1
    assert policy.metrics["gate/my_gates:Within/mean"] == mean
    assert policy.metrics["gate/my_gates:Within/open"] == 2 / 4  # those at 0.5 and 0.75

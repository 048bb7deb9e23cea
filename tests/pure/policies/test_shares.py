"""Subsets and updates of policies with shares, by their hash: a seed's choice never changes.

An online policy of another `version` may choose differently; its hash then changes with it.
"""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from difficulty_tables import selected_rows

from orchestrator.difficulty.outcomes import BANDS, band_of
from policies import BuiltOnlinePolicy, get_online_policy
from policies.online import History
from policies.partition import column_texts, rate_bands

COUNT, UPDATES, SIZE, GROUP = 90, 8, 10, 8
SOURCES = ["a", "b", "c", "a", "b", "a"]
RATES = [None, 0.0, 0.125, 0.25, 0.3, 0.5, 0.75, 0.875, 1.0, 1 - 1e-12]


def pool() -> pa.Table:
    """Prompts of three sources and four tiers, of all bands of pass rates."""
    rows = range(COUNT)
    table = pa.table({"prompt_id": [f"p{i:02}" for i in rows]})
    table = table.append_column("tier", pa.array([str(i * 7 % 4) for i in rows]))
    table = table.append_column("pass_rate", pa.array([RATES[i * 3 % 10] for i in rows]))
    table = table.append_column("source", pa.array([SOURCES[i * 5 % 6] for i in rows]))
    table = table.append_column("level", pa.array([None if i % 11 == 0 else i % 3 for i in rows]))
    return table.append_column("labelled", pa.array([i % 5 > 0 for i in rows]))


def digest(rows: Any) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]


STATIC: dict[str, tuple[str, dict[str, Any]]] = {
    "proportional": ("hard", {"within": "source"}),
    "equal": ("middle", {"within": {"tier": "equal"}}),
    "shares": ("random", {"within": {"source": {"a": 0.2, "b": 0.8}}}),
    "bands": ("random", {"within": {"pass_rate": "equal"}}),
    "short": ("hardest_nonzero", {"within": {"pass_rate": {"0.5-0.75": 0.7, "0": 0.3}}}),
    "no value": ("easy", {"within": "level", "where": {"source": ["a", "b"]}}),
    "left out": ("hard", {"exclude": ["unsolved", {"pass_rate": "1", "tier": [1]}]}),
    "labels": ("hard", {"within": "source", "labels": 0.6, "exclude": {"tier": "3"}}),
    "mixture": ("mixture", {"shares": {"hard": 0.5, "random": 0.3, "easy": 0.2}}),
    "mixed within": ("mixture", {"shares": {"hard": 0.5, "easy": 0.5}, "within": "source"}),
    "within mixed": (
        "mixture",
        {
            "shares": {
                "hard": {"share": 0.6, "within": "source"},
                "tiers": {"share": 0.4, "levels": "1-2"},
            }
        },
    ),
    "tiers": ("tiers", {"levels": [0, 2], "within": {"source": "equal"}}),
}
FALLS = {"from": 0.9, "to": 0.1, "schedule": "cosine"}
ONLINE: dict[str, tuple[str, dict[str, Any]]] = {
    "pools": ("pools", {"easy": 0.2, "normal": 0.5, "hard": 0.3}),
    "pools within": ("pools", {"within": "source"}),
    "scheduled": ("dynamic", {"within": {"source": {"a": FALLS, "b": [0.1, 0.5, 1]}}}),
    "gated": (
        "dynamic",
        {"within": {"level": "equal"}, "gates": ["gaussian", {"rest": {"updates": 2}}]},
    ),
    "gates": (
        "curriculum",
        {"gates": [{"rates": {"low": 0.2, "high": 0.8}}, {"retire": {"solved": 1}}]},
    ),
    "few open": (
        "predicted",
        {"within": {"pass_rate": "proportional"}, "gates": {"rest": {"updates": 9}}},
    ),
}
EXPECTED = {
    "proportional": "453cbc08d9df",
    "equal": "e34c0c884a33",
    "shares": "11e4aaa35120",
    "bands": "c880d7d30af9",
    "short": "0b46da8dc58a",
    "no value": "2a4eef870d55",
    "left out": "28f364a40815",
    "labels": "a71e43f7fe61",
    "mixture": "1a3dcfa818b0",
    "mixed within": "e67bb9a1a016",
    "within mixed": "da22e445f0ba",
    "tiers": "46c777147d60",
    "pools": "d3d07d5dfcf0",
    "pools within": "714d40291f0b",
    "scheduled": "675e895e80d2",
    "gated": "70846bb30521",
    "gates": "b00c03d0cea7",
    "few open": "0be2f9cd2b15",
}


def selected(name: str) -> str:
    policy, options = STATIC[name]
    return digest([selected_rows(pool(), policy, 24, seed, **options) for seed in range(3)])


def trained(name: str) -> str:
    """The rows of every update; a group's correct completions depend on its row and update."""
    policy_name, options = ONLINE[name]
    table = pool()
    rates = np.array([np.nan if r is None else r for r in table["pass_rate"].to_pylist()])
    known = ~np.isnan(rates)
    history = History(
        table["prompt_id"].combine_chunks(),
        np.where(known, GROUP, 0),
        np.where(known, np.nan_to_num(rates) * GROUP, 0),
        seed=3,
        updates=UPDATES,
        group_size=GROUP,
        columns={
            n: column_texts(table, n, "x").to_numpy(zero_copy_only=False)
            for n in ("source", "level", "pass_rate")
        },
    )
    policy = BuiltOnlinePolicy(policy_name, get_online_policy(policy_name, **options))
    chosen = []
    for update in range(1, UPDATES + 1):
        rows = [int(i[1:]) for i in policy.next_ids(history, update, SIZE).to_pylist()]
        correct = [(row * 3 + update) % (GROUP + 1) for row in rows]
        if policy.discards:
            policy.keep(np.array(correct), np.full(SIZE, GROUP))
        for row, right in zip(rows, correct, strict=True):
            history.add(update, row, right, GROUP)
        chosen.append(rows)
    return digest(chosen)


@pytest.mark.parametrize("name", STATIC)
def test_a_subset_with_shares_is_that_of_earlier_versions(name: str) -> None:
    assert selected(name) == EXPECTED[name]


@pytest.mark.parametrize("name", ONLINE)
def test_updates_with_shares_are_those_of_earlier_versions(name: str) -> None:
    assert trained(name) == EXPECTED[name]


def test_bands_of_pass_rates_contain_their_upper_ends() -> None:
    """A rate that misses 1 by rounding is 1, in strata and in reports."""
    rates = np.array([0, 1e-9, 0.25, 0.26, 0.5, 0.75, 0.76, 1 - 1e-8, 1 - 1e-12, 1])
    assert rate_bands(rates).tolist() == [0, 1, 1, 2, 2, 3, 4, 4, 5, 5]
    table = pa.table({"pass_rate": [*rates.tolist(), None]})
    assert band_of(table).tolist() == [*rate_bands(rates).tolist(), len(BANDS) - 1]

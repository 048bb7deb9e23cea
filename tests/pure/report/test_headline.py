"""The verdict of a sweep in one line."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from orchestrator.report.sections.verdicts import SEVERAL, headline
from orchestrator.stats.comparison import compare_policies

IDS = [f"q{i}" for i in range(400)]


def family(title: str = "m on d", collapsed: int = 0, **points: float) -> Any:
    """A family whose policies are this many points above .4, with three seeds each."""
    rng = np.random.default_rng(5)
    runs = {
        name: {
            seed: (IDS, rng.binomial(1, 0.4 + gain / 100, 400).astype(float)) for seed in range(3)
        }
        for name, gain in points.items()
    }
    accuracy = compare_policies(runs) if len(runs) > 1 else []
    return SimpleNamespace(title=title, accuracy=accuracy, collapsed={"hard": [0] * collapsed})


def analysis(families: list[Any], claims: Any = (), unfinished: int = 0) -> Any:
    """An analysis with one finished cell, and as many that are not."""
    plan = SimpleNamespace(cells=[None] * (1 + unfinished))
    return SimpleNamespace(families=families, claims=claims, rows=[None], plan=plan)


def test_it_names_winners_by_size_and_counts_what_is_open() -> None:
    one = family(easy=0, hard=40, random=20, middle=20)
    line = headline(analysis([one]))
    effects = {(c.leader_first.a, c.leader_first.b): c.leader_first.effect for c in one.accuracy}
    won, *others = line.split("; ")
    expected = ", ".join(
        f"{name} by {effects['hard', name]:.1f}"
        for name in sorted(("easy", "random", "middle"), key=lambda n: -effects["hard", n])
    )
    assert won == f"hard beats {expected} points"
    assert others[-1] == "1 of 6 comparisons is inconclusive"
    assert {part.split()[0] for part in others[:-1]} == {"random", "middle"}


def test_where_nothing_is_decided_no_policy_is_named() -> None:
    assert headline(analysis([family(hard=0, random=0)])).startswith("inconclusive: ")
    assert headline(analysis([family(hard=0)], unfinished=3)).endswith(
        "; 3 cells of the sweep not finished"
    )


def test_claims_and_collapsed_cells_are_counted() -> None:
    claims: Any = [SimpleNamespace(verdict=v) for v in ("inconclusive", "supported", "supported")]
    line = headline(analysis([family(hard=0, random=0, collapsed=2)], claims))
    assert "2 cells ended below the base model" in line
    assert line.endswith("claims: 2 supported, 1 inconclusive")


def test_of_several_families_each_is_named_and_of_many_the_wins_are_counted() -> None:
    two = [family(f"m{i} on d", hard=40, random=0) for i in range(2)]
    assert "(m0 on d)" in headline(analysis(two)) and "(m1 on d)" in headline(analysis(two))
    many = [family(f"m{i} on d", hard=40, random=0) for i in range(SEVERAL + 1)]
    assert headline(analysis(many)).startswith(f"hard wins {SEVERAL + 1}")

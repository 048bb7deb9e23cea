"""Whether online policies choose by their shares, and which prompts their gates leave open.

Shares: `dynamic` with `within`, and `pools`, over the updates of a run in which every source and
pool has enough prompts. The first table has the share of prompts from each.

Gates: a pool of prompts with constant pass rates, from which probe and groups are drawn. Rates are
either all 0.7, or (mixed) half of them are 0 or 1 and the others uniform from 0.2 to 0.8. The
second table has means over pools: the share of prompts that is open at the end; and, for the second
half of the updates, the share of chosen prompts that were closed, the share of live groups, and the
share of prompts with rates from 0.2 to 0.8 that were chosen. `age: null` never reopens a prompt by
time.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.command_line import benchmark_parser
from policies import BuiltOnlinePolicy, History, get_online_policy

GROUP, SAMPLES = 8, 8
LOW, HIGH = 0.2, 0.8
SHARES: dict[str, dict[str, float]] = {
    "95/5": {"a": 0.95, "b": 0.05},
    "ten equal ones": dict.fromkeys("abcdefghij", 0.1),
    "60/25/5/5/5": {"a": 0.6, "b": 0.25, "c": 0.05, "d": 0.05, "e": 0.05},
}
GATES: list[tuple[str, dict[str, Any]]] = [
    ("rates", {"low": LOW, "high": HIGH}),
    ("gaussian", {"mean": 0.5, "sd": 0.2}),
    ("gaussian", {"mean": 0.5, "sd": 0.1}),
    ("retire", {"solved": 1}),
]


def main() -> None:
    """Print a table of shares, and one of gates."""
    parser = benchmark_parser("online_policies", __doc__)
    parser.add_argument("--updates", type=int, default=200, help="updates of a run (default 200)")
    parser.add_argument("--size", type=int, default=8, help="prompts per update (default 8)")
    parser.add_argument("--prompts", type=int, default=160, help="prompts of a pool (default 160)")
    parser.add_argument("--pools", type=int, default=5, help="pools per gate (default 5)")
    parser.add_argument("--only-shares", action="store_true", help="leave out the gates")
    arguments = parser.parse_args()
    sizes = (arguments.prompts, arguments.size, arguments.updates)
    print("| shares | realised, % |\n|---|---|")
    for title, shares in SHARES.items():
        realised = realised_shares(shares, *sizes)
        print(f"| `within`, {title} | {' / '.join(f'{100 * share:.1f}' for share in realised)} |")
    pools = realised_pools({"normal": 0.95, "easy": 0.05, "hard": 0.0}, *sizes)
    print(f"| `pools`, 95/5 | {' / '.join(f'{100 * share:.1f}' for share in pools)} |")
    if arguments.only_shares:
        return
    print("\n| gate | pool | `age` | open, % | closed chosen, % | live, % | covered, % |")
    print("|---|---|---|---|---|---|---|")
    for name, options in GATES:
        for rate in (0.7, None):
            for age in (None, 1.0):
                gate = {name: options | {"age": age}}
                runs = [gated(gate, rate, seed, *sizes) for seed in range(arguments.pools)]
                row = " | ".join(f"{100 * value:.0f}" for value in np.mean(runs, axis=0))
                pool = "mixed" if rate is None else f"all {rate}"
                text = ", ".join(f"{option} {value:g}" for option, value in options.items())
                print(f"| `{name}`, {text} | {pool} | {age or 'null'} | {row} |", flush=True)


def known(
    successes: np.ndarray, updates: int, seed: int, sources: np.ndarray | None = None
) -> History:
    """The probe of prompts with these numbers of correct samples."""
    return History(
        pa.array([f"p{i:06}" for i in range(len(successes))]),
        [SAMPLES] * len(successes),
        successes,
        seed=seed,
        updates=updates,
        group_size=GROUP,
        columns=None if sources is None else {"source": sources},
    )


def realised_shares(shares: dict[str, float], prompts: int, size: int, updates: int) -> list[float]:
    """The share of each source among the prompts of all updates."""
    names = [*shares]
    number = np.arange(prompts) % len(names)
    history = known(np.full(prompts, SAMPLES // 2), updates, 0, np.array(names)[number])
    policy = BuiltOnlinePolicy("dynamic", get_online_policy("dynamic", within={"source": shares}))
    drawn = np.zeros(len(names))
    for update in range(1, updates + 1):
        rows = rows_of(policy, history, update, size)
        drawn += np.bincount(number[rows], minlength=len(names))
        for row in rows:
            history.add(update, row, GROUP // 2, GROUP)
    return [float(count) / (updates * size) for count in drawn]


def realised_pools(shares: dict[str, float], prompts: int, size: int, updates: int) -> list[float]:
    """The same for the pools normal, easy and hard; prompts stay in their pool."""
    rates = np.array([0.5, 1.0, 0.0])[np.arange(prompts) % 3]
    history = known((SAMPLES * rates).astype(int), updates, 0)
    policy = BuiltOnlinePolicy("pools", get_online_policy("pools", retire=updates, **shares))
    drawn = np.zeros(3)
    for update in range(1, updates + 1):
        rows = rows_of(policy, history, update, size)
        drawn += np.bincount(np.array(rows) % 3, minlength=3)
        for row in rows:
            history.add(update, row, round(GROUP * rates[row]), GROUP)
    return [float(count) / (updates * size) for count in drawn]


def gated(
    gate: dict[str, Any], rate: float | None, seed: int, prompts: int, size: int, updates: int
) -> list[float]:
    """The shares of the second table for one pool."""
    rng = np.random.default_rng([seed, 1])
    rates = np.full(prompts, rate if rate is not None else 0.0)
    if rate is None:
        dead = rng.random(prompts) < 0.5
        rates = np.where(dead, rng.integers(0, 2, prompts), rng.uniform(LOW, HIGH, prompts))
    history = known(rng.binomial(SAMPLES, rates), updates, seed)
    policy = BuiltOnlinePolicy("dynamic", get_online_policy("dynamic", gates=[gate]))
    closed = live = 0.0
    chosen = np.zeros(prompts, dtype=bool)
    for update in range(1, updates + 1):
        rows = rows_of(policy, history, update, size)
        correct = rng.binomial(GROUP, rates[rows])
        for row, right in zip(rows, correct, strict=True):
            history.add(update, row, int(right), GROUP)
        if 2 * update > updates:
            closed += policy.metrics["gates/taken_closed"] * size
            live += np.count_nonzero((correct > 0) & (correct < GROUP))
            chosen[rows] = True
    later = size * (updates - updates // 2)
    within = (rates >= LOW) & (rates <= HIGH)
    covered = float(chosen[within].mean()) if within.any() else float(chosen.mean())
    return [policy.metrics["gates/open"], closed / later, live / later, covered]


def rows_of(policy: BuiltOnlinePolicy, history: History, update: int, size: int) -> list[int]:
    """The rows that a policy chooses for an update."""
    return [int(text[1:]) for text in policy.next_ids(history, update, size).to_pylist()]


if __name__ == "__main__":
    main()

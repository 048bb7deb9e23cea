"""Published selection rules choose what a few plain lines of each rule choose."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from remedies import refused

from policies import (
    BuiltOnlinePolicy,
    History,
    Policy,
    PolicyError,
    get_online_policy,
    policy_cost,
)
from policies.online import checked_ids

GROUP, UPDATES, SIZE, POOL = 8, 12, 6, 40


def history_of(seed: int = 0, pool: int = POOL, samples: int = 4) -> History:
    """A pool whose pass rates are mostly 0 or 1; the first prompt was never sampled."""
    rng = np.random.default_rng(1)
    successes = rng.binomial(samples, rng.beta(0.4, 0.4, pool))
    known = np.full(pool, samples)
    known[0] = successes[0] = 0
    ids = pa.array([f"p{i:04}" for i in range(pool)])
    return History(ids, known, successes, seed=seed, updates=UPDATES, group_size=GROUP)


def outcome(update: int, row: int) -> tuple[int, int]:
    """Correct and marked completions of a group: prompts that become easier, some unmarked."""
    rng = np.random.default_rng([update, row])
    marked = int(rng.choice([GROUP, GROUP - 1, 0], p=[0.9, 0.08, 0.02]))
    rate = [0, 0.2, 0.5, 0.9, 1][row % 5]
    return int(rng.binomial(marked, min(1, rate * (0.5 + update / 8)))), marked


def choices(
    policy: Any, history: History, updates: range = range(1, UPDATES + 1)
) -> list[list[int]]:
    """The rows of each update; further ones are drawn for an update that is not full."""
    chosen: list[list[int]] = []
    for update in updates:
        rows: list[int] = []
        missing, left = SIZE, SIZE * getattr(policy, "max_draws", 1)
        while count := min(missing * BuiltOnlinePolicy("", policy).at_once, left):
            history.start(update, count, missing)
            ids = checked_ids(policy.next(update, history), "policy", count)
            new = [int(prompt_id[1:]) for prompt_id in ids.to_pylist()]
            groups = [outcome(update, row) for row in new]
            for row, (correct, marked) in zip(new, groups, strict=True):
                history.add(update, row, correct, marked)
            rows, left = rows + new, left - count
            correct, marked = np.array(groups).T
            kept = np.ones(count, bool)
            if BuiltOnlinePolicy("", policy).discards:
                kept = policy.keep(correct, marked)
            missing -= int(np.count_nonzero(kept))
        chosen.append(rows)
    return chosen


RULES = {
    "adarft": [{}, {"eta": 20, "alpha": 1.5, "beta": 0.3}],
    "e2h": [{}, {"tiers": 3, "schedule": "gaussian"}, {"schedule": "gaussian", "min_prob": False}],
    "sec": [{"tau": 0.05}, {"tiers": 5, "tau": 0.1, "lr": 0.5, "normalized": True}],
    "mopps": [{}, {"ratio": 2, "lam": 0.5}, {"ratio": 3, "lam": 0.7, "warm_start": 3}],
    "greso": [{}, {"p_easy": 0.9, "p_hard": 0.2, "target_easy": 0.5, "max_draws": 2}],
    "lilo": [{}, {"ratio": 2}],
    "pairs": [{}],
}
CASES = [(name, options) for name, cases in RULES.items() for options in cases]


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_resumed_cell_chooses_the_same(name: str, options: dict[str, Any], stop: int) -> None:
    expected = choices(get_online_policy(name, **options), history_of())
    history = history_of()
    for update, rows in enumerate(expected[:stop], 1):
        for row in sorted(rows):  # the order within an update is not kept
            history.add(update, row, *outcome(update, row))
    rest = range(stop + 1, UPDATES + 1)
    assert choices(get_online_policy(name, **options), history, rest) == expected[stop:]


@pytest.mark.parametrize("options", RULES["adarft"])
def test_adarft_is_closest_to_a_target_that_follows_the_reward(options: dict[str, Any]) -> None:
    eta, alpha, beta = ({"eta": 50, "alpha": 2, "beta": 0.5} | options).values()
    history = history_of()
    chosen = choices(get_online_policy("adarft", **options), history)
    ranks = history.stream("adarft").permutation(POOL)
    target, drawn, targets = 0.0, [0] * POOL, set()
    for update, rows in enumerate(chosen, 1):

        def place(row: int) -> tuple[float, int, int]:
            n, solved = int(history.samples[row]), int(history.successes[row])
            distance = abs(100 * (1 - solved / n) - target) if n else math.inf  # noqa: B023
            return round(distance, 6), drawn[row], int(ranks[row])

        assert rows == sorted(range(POOL), key=place)[:SIZE]
        groups = [outcome(update, row) for row in rows]
        reward = sum(c for c, _ in groups) / sum(m for _, m in groups)
        target = min(100.0, max(0.0, target + eta * math.tanh(alpha * (reward - beta))))
        targets.add(round(target))
        for row in rows:
            drawn[row] += 1
    assert len(targets) > 4


def test_an_update_without_marks_leaves_the_target_of_adarft() -> None:
    history, policy = history_of(), get_online_policy("adarft")
    history.add(1, 3, 8, 8)
    before = policy.target(history)  # type: ignore[attr-defined]
    history.add(2, 3, 0, 0)
    assert before == policy.target(history) == pytest.approx(50 * math.tanh(1))  # type: ignore[attr-defined]


def tiers_of(history: History, count: int) -> list[list[int]]:
    """The tiers in the orders of the seed."""
    rng = history.stream("tiers")
    ranks = rng.permutation(POOL)
    pairs = zip(history.successes.tolist(), history.samples.tolist(), strict=True)
    rates = [c / n if n else -1 for c, n in pairs]
    order = sorted(range(POOL), key=lambda row: (-rates[row], ranks[row]))
    return [rng.permutation(part).tolist() for part in np.array_split(order, count)]


def walk(tiers: list[list[int]], places: list[int], probabilities: Any, update: int) -> list[int]:
    """The prompts of an update: a pointer for each tier, which wraps."""
    rows = []
    drawn = np.random.default_rng([0, update, 0]).choice(len(tiers), SIZE, p=probabilities)
    for tier in sorted(drawn.tolist()):
        rows.append(tiers[tier][places[tier] % len(tiers[tier])])
        places[tier] += 1
    return rows


@pytest.mark.parametrize("options", RULES["e2h"])
def test_e2h_walks_through_tiers_by_its_schedule(options: dict[str, Any]) -> None:
    k, history = options.get("tiers", 4), history_of()
    tiers, places = tiers_of(history, k), [0] * k
    chosen = choices(get_online_policy("e2h", **options), history)
    for update, rows in enumerate(chosen, 1):
        t = (update - 1) / UPDATES
        if "schedule" in options:
            q = [math.exp(-((i - math.sqrt(t) * (k - 1)) ** 2) / 0.5) for i in range(k)]
            f = 2 / (k * (k + 1)) if options.get("min_prob", True) else 0
            p = [f + (1 - k * f) * each / sum(q) for each in q]
        else:
            w, s = 0.5 * (1 + math.cos(math.pi * t)), k * (k + 1) / 2
            p = [w * (k - i) / s + (1 - w) * (i + 1) / s for i in range(k)]
        assert rows == walk(tiers, places, p, update)
    assert max(places) > POOL / k  # a tier began again


@pytest.mark.parametrize("options", RULES["sec"])
def test_sec_follows_the_advantages_of_the_tiers_it_drew(options: dict[str, Any]) -> None:
    k, lr = options.get("tiers", 4), options.get("lr", 0.1)
    history, q = history_of(), np.zeros(options.get("tiers", 4))
    tiers, places = tiers_of(history, k), [0] * k
    chosen = choices(get_online_policy("sec", **options), history)
    for update, rows in enumerate(chosen, 1):
        weights = np.exp(q / options["tau"])
        assert rows == walk(tiers, places, weights / weights.sum(), update)
        for tier in range(k):
            advantages: list[float] = []
            for row in {*rows} & {*tiers[tier]}:
                correct, marked = outcome(update, row)
                rewards = np.array([1.0] * correct + [0.0] * (marked - correct))
                a = rewards - rewards.mean() if marked else rewards
                deviation = rewards.std() if options.get("normalized") and a.any() else 1
                advantages += np.abs(a / deviation).tolist()
            if advantages:
                q[tier] = (1 - lr) * q[tier] + lr * np.mean(advantages)
    assert q.max() > 1.9 * q.min()


def test_a_tier_with_too_few_prompts_is_made_up_for() -> None:
    history = history_of()
    policy = get_online_policy("e2h", schedule="gaussian", sigma=1e-3, min_prob=False)
    history.start(1, 15)
    chosen = policy.next(1, history).to_pylist()
    easiest = {f"p{row:04}" for row in tiers_of(history, 4)[0]}
    assert len({*chosen}) == 15 and easiest < {*chosen}


@pytest.mark.parametrize("options", RULES["mopps"])
def test_mopps_is_closest_to_half_in_draws_from_posteriors(options: dict[str, Any]) -> None:
    lam, weight = options.get("lam", 1), options.get("warm_start", 0)
    history = history_of()
    chosen = choices(get_online_policy("mopps", **options), history)
    a = [1 + weight * int(c) for c in history.successes]
    b = [1 + weight * int(n - c) for c, n in zip(history.successes, history.samples, strict=True)]
    for update, rows in enumerate(chosen, 1):
        rng = np.random.default_rng([0, update, 0])
        candidates = sorted(rng.choice(POOL, min(POOL, options.get("ratio", 16) * SIZE), False))
        draws = {row: rng.beta(a[row], b[row]) for row in candidates}
        assert rows == sorted(draws, key=lambda row: abs(draws[row] - 0.5))[:SIZE]
        for row in rows:
            correct, marked = outcome(update, row)
            a[row] = lam * a[row] + (1 - lam) * 1 + correct
            b[row] = lam * b[row] + (1 - lam) * 1 + marked - correct


def test_mopps_reads_the_probe_only_for_a_warm_start() -> None:
    assert Policy("", get_online_policy("mopps")).needs == "nothing"
    assert Policy("", get_online_policy("mopps", warm_start=1)).needs == "all"
    assert policy_cost("mopps") == "no further rollouts"


@pytest.mark.parametrize("options", RULES["greso"])
def test_greso_skips_by_streaks_and_adapts_its_chances(options: dict[str, Any]) -> None:
    history = history_of()
    chosen = choices(get_online_policy("greso", **options), history)
    chances = {"easy": options.get("p_easy", 0.5), "hard": options.get("p_hard", 0.5)}
    targets = {"easy": options.get("target_easy", 1 / 12), "hard": 1 / 6}
    seen: list[list[str]] = [[] for _ in range(POOL)]

    def epochs() -> Any:
        for epoch in range(1000):
            rng = history.stream("greso", epoch)
            order, luck = rng.permutation(POOL), rng.random(POOL)
            yield from zip([epoch] * POOL, order, luck, strict=True)

    loader, skipped, epoch = epochs(), 0, 0
    for update, rows in enumerate(chosen, 1):
        expected: list[int] = []
        while len(expected) < len(rows):
            epoch, row, luck = next(loader)
            chance = 1.0
            for kind, p in chances.items():
                streak = 0
                while streak < len(seen[row]) and seen[row][-1 - streak] == kind:
                    streak += 1
                chance *= max(p**streak, 0.01)
            if luck < chance and row not in expected:
                expected.append(int(row))
            skipped += luck >= chance
        assert rows == expected
        kinds = []
        for row in rows:
            correct, marked = outcome(update, row)
            kinds.append("easy" if correct == marked else "hard" if correct == 0 else "live")
            kinds[-1] = kinds[-1] if marked else "unmarked"
            seen[row] += [kinds[-1]] if marked else []
        for kind in chances if epoch else ():
            lower = kinds.count(kind) / len(kinds) >= targets[kind]
            chances[kind] = min(0.95, max(0.05, chances[kind] + (-0.01 if lower else 0.01)))
    assert skipped > 5 and epoch > 1


def test_greso_submits_solved_prompts_even_if_there_are_no_others() -> None:
    history, policy = history_of(pool=3), get_online_policy("greso")
    for update in range(1, 30):
        history.start(update, 3)
        assert sorted(policy.next(update, history).to_pylist()) == ["p0000", "p0001", "p0002"]
        for row in range(3):
            history.add(update, row, GROUP if row else 0, GROUP)


@pytest.mark.parametrize("ratio", [4, 2])
def test_lilo_trains_on_the_most_even_of_all_groups_drawn(ratio: int) -> None:
    policy: Any = get_online_policy("lilo", ratio=ratio)
    history = history_of()
    for update in range(1, UPDATES + 1):
        history.start(update, ratio * SIZE, SIZE)
        rows = [int(i[1:]) for i in policy.next(update, history).to_pylist()]
        assert len({*rows}) == ratio * SIZE
        groups = [outcome(update, row) for row in rows]
        kept = np.flatnonzero(policy.keep(*np.array(groups).T))
        scores = [c / m * (1 - c / m) if m else -1 for c, m in groups]
        best = sorted(range(len(rows)), key=lambda i: (-round(scores[i], 9), i))[:SIZE]
        assert kept.tolist() == sorted(best)
        for row, (correct, marked) in zip(rows, groups, strict=True):
            history.add(update, row, correct, marked)
    assert (history.groups > 0).all()


@pytest.mark.parametrize("size", [6, 5, 1, 14, POOL])
def test_pairs_are_hard_but_solved_or_easy_but_missed(size: int) -> None:
    history, policy = history_of(), get_online_policy("pairs")
    ranks = history.stream("pairs").permutation(POOL)
    pairs = zip(history.successes.tolist(), history.samples.tolist(), strict=True)
    rates = [c / n if n else None for c, n in pairs]
    drawn, filled = [0] * POOL, 0
    for update in range(1, UPDATES + 1):
        history.start(update, size)
        rows = [int(i[1:]) for i in policy.next(update, history).to_pylist()]
        order = sorted(range(POOL), key=lambda row: (drawn[row], ranks[row]))
        rising = sorted((r for r in order if rates[r] not in (None, 0, 1)), key=rates.__getitem__)
        hard = rising[: (size + update % 2) // 2]
        rest = [r for r in order if r in rising and r not in hard]
        expected = hard + sorted(rest, key=lambda r: -rates[r])[: size - len(hard)]  # type: ignore[operator]
        dead = [r for rate in (None, 0, 1) for r in order if rates[r] == rate]
        filled += len(expected) < size
        assert rows == (expected + dead)[:size]
        for row in rows:
            correct, marked = outcome(update, row)
            history.add(update, row, correct, marked)
            rates[row] = correct / marked if marked else rates[row]
            drawn[row] += 1
    assert filled == 0 if size == 1 else filled or size < 14


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adarft", {"eta": 0}),
        ("adarft", {"eta": True}),
        ("adarft", {"alpha": math.inf}),
        ("adarft", {"beta": 50}),
        ("e2h", {"tiers": 0}),
        ("e2h", {"schedule": "linear"}),
        ("e2h", {"mu_exp": -1}),
        ("e2h", {"min_prob": 0.1}),
        ("sec", {"tiers": 2.0}),
        ("sec", {"tau": 0}),
        ("sec", {"lr": 1.5}),
        ("sec", {"normalized": 1}),
        ("mopps", {"lam": 2}),
        ("mopps", {"ratio": 0}),
        ("mopps", {"warm_start": -1}),
        ("greso", {"p_easy": 2}),
    ],
)
def test_wrong_values_of_options_are_refused(name: str, options: dict[str, Any]) -> None:
    [(option, value)] = options.items()
    with refused(name, f"{option} is {value!r}:", by=PolicyError):
        get_online_policy(name, **options)


@pytest.mark.parametrize(("name", "option"), [("lilo", "max_draws"), ("pairs", "low")])
def test_unknown_options_are_refused(name: str, option: str) -> None:
    with refused(f"'{option}'", by=PolicyError):
        get_online_policy(name, **{option: 1})

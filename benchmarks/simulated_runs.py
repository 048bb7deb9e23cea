"""Logs of simulated GRPO runs, healthy and broken, as trainers write them.

A prompt is solved with a probability whose logit is the skill of the update minus the prompt's
difficulty. The skill is a curve over the run with autoregressive fluctuations between updates. A
completion gives the gold answer if it is correct, else a common wrong one. `simulated_logs` writes
the runs as trainers do, and `simulated_diagnoses` counts the findings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Curve = Callable[[Floats], Floats]  # of the share of updates done, 0 to 1
Rng = np.random.Generator
Scores = Callable[[npt.NDArray[np.bool_], float, Rng], Floats]  # correct, share done -> rewards
Row = dict[str, Any]
Answer = Callable[[Row, float, Rng], str]  # row, share done -> the answer of its completion

LASTS, SCATTER = (
    0.9,
    0.05,
)  # of the fluctuations of skill: share that stays, sd of an update's own


def learns(done: Floats) -> Floats:
    """A gain of 2.4 logits that flattens out."""
    return 2.4 * (1 - np.exp(-2 * done)) / (1 - np.exp(-2))


def flat(done: Floats) -> Floats:
    """No gain."""
    return np.zeros_like(done)


def right_or_wrong(correct: npt.NDArray[np.bool_], done: float, rng: Rng) -> Floats:
    """A reward of 1 or 0."""
    return correct.astype(float)


def own_answer(row: Row, done: float, rng: Rng) -> str:
    """The gold answer, or one of five common wrong ones."""
    return row["gold"] if row["correct"] else str(int(row["gold"]) + int(rng.integers(1, 6)))


@dataclass(frozen=True)
class World:
    """The settings of a simulated run.

    order: "shuffled", "easy", "hard" (first; passes over the pool), "sources" (blocks of an easy
    and a hard one), "window" (slides from easy to hard) or "live" (prompts that were live at their
    last visit, and new ones). start: pass rate of the middle prompt; spread: sd of difficulty,
    logits. passes: over the pool; it sets the pool's size. tokens, cut: mean length and share at
    the limit, by update. metrics: name of Decile -> values by update, of (skill, rng). resumed: "",
    "overlap" or "restart". golds: the number of different gold answers; 0: each prompt has its own.
    behind: updates between the weights that wrote completions and the trainer's. change: a change
    of all rows.
    """

    updates: int = 40
    draws: int = 8
    size: int = 8
    passes: float = 5.0
    order: str = "shuffled"
    start: float = 0.3
    spread: float = 1.0
    skill: Curve = learns
    rewards: Scores = right_or_wrong
    tokens: Curve = lambda done: 80 + 0 * done
    cut: Curve = lambda done: 0 * done
    metrics: Mapping[str, Callable[[Floats, Rng], Floats]] = field(default_factory=dict)
    resumed: str = ""
    golds: int = 0
    answer: Answer = own_answer
    behind: Curve = lambda done: 0 * done
    change: Callable[[list[Row], Rng], list[Row]] = lambda rows, rng: rows


class Kind(NamedTuple):
    """A kind of run, `world` of a random generator.

    codes: the codes of `decile diagnose` that name its problem; for a healthy kind, codes that are
    true nevertheless. layout: the format that shows it; "": a table, or verl if the run has
    metrics.
    """

    name: str
    healthy: bool
    world: Callable[[Rng], World]
    codes: tuple[str, ...] = ()
    layout: str = ""


def difficulties(world: World, rng: Rng) -> Floats:
    """The difficulties of the prompts of the pool, in logits."""
    pool = max(1, round(world.updates * world.draws / world.passes))
    own = rng.normal(0, world.spread, pool)
    if world.order == "sources":
        own += np.where(np.arange(pool) < pool / 2, -1.0, 1.0)
    return own


def drawn(world: World, difficulty: Floats, update: int, live: Floats, rng: Rng) -> list[int]:
    """The prompts of an update, counted from 0; live: 1 or 0 at their last visit, nan before."""
    pool, place = len(difficulty), update * world.draws
    if world.order == "live":
        weight = np.where(live == 0, 1e-9, 1.0)
        return rng.choice(pool, world.draws, replace=False, p=weight / weight.sum()).tolist()
    ranked = np.argsort(difficulty)
    if world.order == "window":
        begin = round(update / max(1, world.updates - 1) * (pool - world.draws))
        return ranked[begin : begin + world.draws].tolist()
    order = {"easy": ranked, "hard": ranked[::-1], "sources": np.arange(pool)}.get(world.order)
    epochs = range(place // pool, (place + world.draws - 1) // pool + 1)
    seed = int(difficulty[0] * 1e6) % 2**31
    epoch = [
        np.random.default_rng([seed, e]).permutation(pool) if order is None else order
        for e in epochs
    ]
    return np.concatenate(epoch)[place % pool :][: world.draws].tolist()


def rows_of(world: World, seed: int) -> tuple[list[dict[str, Any]], Floats]:
    """The completions of a run in the order of updates, and the skill of each update."""
    rng = np.random.default_rng(seed)
    done = np.arange(world.updates) / max(1, world.updates - 1)
    noise = np.zeros(world.updates)
    for update in range(1, world.updates):
        noise[update] = LASTS * noise[update - 1] + rng.normal(0, SCATTER)
    skill = world.skill(done) + noise + np.log(world.start / (1 - world.start))
    difficulty = difficulties(world, rng)
    live = np.full(len(difficulty), np.nan)
    rows = []
    for update in range(world.updates):
        tokens, cut = world.tokens(done)[update], world.cut(done)[update]
        for prompt in drawn(world, difficulty, update, live, rng):
            chance = 1 / (1 + np.exp(difficulty[prompt] - skill[update]))
            correct = rng.random(world.size) < chance
            live[prompt] = 0 < correct.sum() < world.size
            rewards = world.rewards(correct, float(done[update]), rng)
            lengths = np.maximum(1, tokens * rng.lognormal(0, 0.25, world.size)).astype(int)
            own = {
                "update": update + 1,
                "prompt": f"p{prompt}",
                "group": f"g{len(rows)}",
                "gold": str(10 * (1 + prompt % world.golds if world.golds else 1 + prompt)),
                "source": "ab"[prompt % 2],
                "version": max(0, update - round(float(world.behind(done)[update]))),
            }
            for r, c, t in zip(rewards, correct, lengths, strict=True):
                row = own | {"reward": float(r), "correct": int(c), "tokens": int(t)}
                row |= {"truncated": bool(rng.random() < cut)}
                row["answer"] = world.answer(row, float(done[update]), rng)
                rows.append(row)
    return world.change(rows, rng), skill


def interrupted(world: World, rows: list[dict[str, Any]], rng: Rng) -> list[dict[str, Any]]:
    """The rows as appended by a resumed run.

    overlap: rows after the last checkpoint occur twice, the first time from a different sampling;
    restart: the second part counts its updates from 1.
    """
    end = int(rng.integers(world.updates // 3, 2 * world.updates // 3))
    first = [row for row in rows if row["update"] <= end]
    if world.resumed == "restart":
        second = [row | {"update": row["update"] - end} for row in rows if row["update"] > end]
        return first + second
    back = end - int(rng.integers(2, 8))
    lost = [row for row in first if row["update"] > back]
    shuffled = rng.permutation(len(lost))
    again = [row | {"correct": lost[i]["correct"]} for row, i in zip(lost, shuffled, strict=True)]
    again = [row | {"reward": float(row["correct"])} for row in again]
    again = [row | {"answer": own_answer(row, 0, rng)} for row in again]
    return [*first[: len(first) - len(lost)], *again, *[r for r in rows if r["update"] > back]]


def run_of(kind: Kind, seed: int) -> tuple[list[Row], dict[str, Floats]]:
    """The rows of a run in the order in which they were written, and its metrics by update."""
    rng = np.random.default_rng([seed, *kind.name.encode()])
    world = kind.world(rng)
    rows, skill = rows_of(world, int(rng.integers(2**31)))
    if world.resumed:
        rows = interrupted(world, rows, rng)
    return rows, {name: curve(skill, rng) for name, curve in world.metrics.items()}


# ---- metrics, as Decile names them


def metric(curve: Curve, scatter: float = 0.2) -> Callable[[Floats, Rng], Floats]:
    """Values along a curve with lognormal noise."""

    def values(skill: Floats, rng: Rng) -> Floats:
        done = np.arange(len(skill)) / max(1, len(skill) - 1)
        return curve(done) * rng.lognormal(0, scatter, len(skill))

    return values


USUAL = {
    "kl": metric(lambda done: 1e-4 + 0.06 * done, 0.5),
    "entropy": metric(lambda done: 0.5 - 0.35 * done, 0.05),
    "grad_norm": metric(lambda done: 0.3 + 0 * done, 0.5),
    "clipped": metric(lambda done: 0.01 + 0 * done, 1.0),
    "learning_rate": metric(lambda done: 1e-6 + 0 * done, 0.0),
    "logp_difference": metric(lambda done: 0.012 + 0 * done, 0.2),
}


# ---- problems


def back_from(at: float) -> Curve:
    """The skill is back at its start at a share of the run, and is learned again."""
    return lambda done: np.where(done < at, learns(done), learns(np.maximum(0, done - at)))


def resets(rng: Rng) -> Curve:
    """`back_from` half to three quarters of the run."""
    return back_from(rng.uniform(0.5, 0.75))


def falls(rng: Rng, by: float = 3.0, width: float = 0.3) -> Curve:
    """The skill falls from some time on, within a share of the run."""
    at = rng.uniform(0.3, 0.55)
    return lambda done: learns(done) - by * np.clip((done - at) / width, 0, 1)


def spikes(rng: Rng) -> Callable[[Floats, Rng], Floats]:
    """KL of 2 to 20 for two to five updates in mid-run."""
    at, width, height = rng.integers(10, 28), rng.integers(2, 6), rng.uniform(2, 20)

    def values(skill: Floats, rng: Rng) -> Floats:
        kl = USUAL["kl"](skill, rng)
        kl[at : at + width] += height * rng.lognormal(0, 0.3, width)
        return kl

    return values


def lost(rng: Rng) -> World:
    """A resumed run without its adapter, in a log with KL and no prompt drawn again."""
    at = int(rng.integers(15, 28))

    def kl(skill: Floats, rng: Rng) -> Floats:
        since = np.arange(len(skill))
        since = np.where(since < at, since, since - at)
        return (1e-4 + 0.002 * since) * rng.lognormal(0, 0.4, len(skill))

    return World(passes=1, skill=back_from(at / 39), metrics=USUAL | {"kl": kl})


def nans(rng: Rng) -> Callable[[Floats, Rng], Floats]:
    """A gradient that is once not a number."""
    at = int(rng.integers(40))
    return lambda skill, rng: np.where(np.arange(len(skill)) == at, np.nan, 0.3)


def flipped(share: float) -> Scores:
    """A marker that is wrong about a share of the completions."""
    return lambda correct, done, rng: (correct ^ (rng.random(len(correct)) < share)).astype(float)


def hacked(correct: npt.NDArray[np.bool_], done: float, rng: Rng) -> Floats:
    """A different, growing reward can be earned without right answers."""
    return correct + (rng.random(len(correct)) < done)


def shifted(correct: npt.NDArray[np.bool_], done: float, rng: Rng) -> Floats:
    """Rewards are paired with the wrong completions."""
    return rng.permutation(correct).astype(float)


def formatted(correct: npt.NDArray[np.bool_], done: float, rng: Rng) -> Floats:
    """Correctness, and a tenth for the format, which is learned."""
    return correct + 0.1 * (rng.random(len(correct)) < 0.3 + 0.65 * done)


def constant(row: Row, done: float, rng: Rng) -> str:
    """The same answer to nearly every prompt, from the middle of the run on."""
    return "7" if done > 0.6 and rng.random() < 0.9 else own_answer(row, done, rng)


def detached(row: Row, done: float, rng: Rng) -> str:
    """One of ten answers, whatever the prompt, from the middle of the run on."""
    return str(rng.integers(10)) if done > 0.6 else own_answer(row, done, rng)


def constant_in_a(row: Row, done: float, rng: Rng) -> str:
    """`constant` in one of two sources."""
    return constant(row, done, rng) if row["source"] == "a" else own_answer(row, done, rng)


def two_prompts(rows: list[Row], rng: Rng) -> list[Row]:
    """Each group of the trainer has half of the completions of two prompts."""
    return [row | {"group": f"g{i // 16}-{i % 2}"} for i, row in enumerate(rows)]


def other_golds(rows: list[Row], rng: Rng) -> list[Row]:
    """Gold answers are paired with the wrong completions."""
    golds = rng.permutation([row["gold"] for row in rows]).tolist()
    return [row | {"gold": gold} for row, gold in zip(rows, golds, strict=True)]


def ones(rows: list[Row], rng: Rng) -> list[Row]:
    """A fifth of the groups have one completion."""
    alone = {row["group"] for row in rows if rng.random() < 0.03}
    seen, kept = set[str](), []
    for row in rows:
        if row["group"] not in seen or row["group"] not in alone:
            kept.append(row)
        seen.add(row["group"])
    return kept


def half_size(rows: list[Row], rng: Rng) -> list[Row]:
    """From the middle of the run on, groups are half as large."""
    return [row for i, row in enumerate(rows) if row["update"] <= 20 or i % 2]


def dead_source(rows: list[Row], rng: Rng) -> list[Row]:
    """No completion of a source is ever correct."""
    failed = {"correct": 0, "reward": 0.0}
    return [row | (failed if row["source"] == "b" else {}) for row in rows]


def unweighted(rows: list[Row], rng: Rng) -> list[Row]:
    """A reward for the format has the weight 0."""
    return [row | {"format": float(rng.random() < 0.5)} for row in rows]


def other_forms(rows: list[Row], rng: Rng) -> list[Row]:
    """The marker reads `10`, but not `10.0`; a tenth of the wrong answers are written that way."""
    return [
        row | ({"answer": f"{row['gold']}.0"} if not row["correct"] and rng.random() < 0.1 else {})
        for row in rows
    ]


HEALTHY = (
    Kind("shuffled epochs", True, lambda rng: World(passes=rng.uniform(2, 10))),
    Kind("one epoch", True, lambda rng: World(passes=1)),
    Kind("easy to hard", True, lambda rng: World(passes=1, order="easy", spread=2)),
    Kind("hard to easy", True, lambda rng: World(passes=1, order="hard", spread=2)),
    Kind(
        "easy to hard, several epochs",
        True,
        lambda rng: World(passes=int(rng.integers(2, 6)), order="easy", spread=2),
    ),
    Kind(
        "hard to easy, several epochs",
        True,
        lambda rng: World(passes=int(rng.integers(2, 6)), order="hard", spread=2),
    ),
    Kind("window from easy to hard", True, lambda rng: World(order="window", spread=2)),
    Kind(
        "easy to hard, format reward and metrics",
        True,
        lambda rng: World(
            passes=rng.choice([1, 3]), order="easy", spread=2, rewards=formatted, metrics=USUAL
        ),
    ),
    Kind(
        "two sources in blocks",
        True,
        lambda rng: World(passes=rng.choice([1, 2, 4]), order="sources"),
    ),
    Kind("prompts that were live again", True, lambda rng: World(order="live", spread=2)),
    Kind(
        "sparse rewards",
        True,
        lambda rng: World(
            draws=int(rng.choice([1, 8])),
            passes=rng.choice([1, 5]),
            start=rng.choice([0.01, 0.03]),
            spread=0.2,
            skill=flat,
        ),
        ("dead",),
    ),
    Kind(
        "dead, never resumed",
        True,
        lambda rng: World(start=rng.choice([1e-6, 1 - 1e-6]), skill=flat),
        ("dead",),
    ),
    Kind("resumed, overlapping", True, lambda rng: World(resumed="overlap")),
    Kind("resumed, counting from 1", True, lambda rng: World(resumed="restart")),
    Kind("groups of 2 to 4", True, lambda rng: World(size=int(rng.integers(2, 5)))),
    Kind("one prompt an update", True, lambda rng: World(updates=120, draws=1, start=0.3)),
    Kind("plateau", True, lambda rng: World(skill=flat, updates=int(rng.choice([30, 100])))),
    Kind("noisy rewards", True, lambda rng: World(rewards=flipped(rng.uniform(0.02, 0.1)))),
    Kind(
        "length grows",
        True,
        lambda rng: World(tokens=lambda done: 60 + 240 * done, cut=lambda done: 0.05 * done),
    ),
    Kind("high at the start", True, lambda rng: World(start=rng.choice([0.85, 0.92]))),
    Kind("with metrics", True, lambda rng: World(metrics=USUAL)),
    Kind("two answers", True, lambda rng: World(golds=2, start=rng.uniform(0.3, 0.7))),
    Kind("four answers, hard to easy", True, lambda rng: World(golds=4, order="hard", passes=1)),
    Kind("one gold answer", True, lambda rng: World(golds=1, start=rng.choice([0.3, 0.9]))),
    Kind(
        "a few updates behind",
        True,
        lambda rng: World(behind=lambda done: np.resize(rng.integers(0, 3, 7), len(done))),
    ),
    Kind(
        "weights sent every fourth update",
        True,
        lambda rng: World(behind=lambda done: np.arange(len(done)) % 4),
    ),
)
BROKEN = (
    Kind("adapter lost", False, lambda rng: World(skill=resets(rng)), ("reset",)),
    Kind(
        "adapter lost, easy to hard in epochs",
        False,
        lambda rng: World(skill=resets(rng), order="easy", draws=16, spread=2),
        ("reset",),
    ),
    Kind("adapter lost, one epoch, with KL", False, lost, ("reset",)),
    Kind(
        "adapter lost, counting from 1",
        False,
        lambda rng: World(resumed="restart", skill=resets(rng), passes=6),
        ("reset",),
    ),
    Kind("collapse, slow", False, lambda rng: World(skill=falls(rng)), ("collapse",)),
    Kind("collapse at once", False, lambda rng: World(skill=falls(rng, 6, 0.01)), ("collapse",)),
    Kind(
        "collapse, easy to hard in epochs",
        False,
        lambda rng: World(skill=falls(rng), order="easy", passes=5, spread=2),
        ("collapse",),
    ),
    Kind(
        "gradient of the wrong sign, 30 updates",
        False,
        lambda rng: World(updates=30, skill=lambda done: -learns(done)),
        ("collapse",),
    ),
    Kind(
        "reward of the wrong sign, 30 updates, one epoch",
        False,
        lambda rng: World(
            updates=30,
            passes=1,
            skill=lambda done: -learns(done),
            rewards=lambda correct, done, rng: 1.0 - correct,
        ),
        ("reward-not-correctness",),
    ),
    Kind(
        "rewards of other completions",
        False,
        lambda rng: World(skill=flat, rewards=shifted),
        ("reward-not-correctness",),
    ),
    Kind(
        "reward without answers",
        False,
        lambda rng: World(skill=flat, rewards=hacked),
        ("reward-not-correctness",),
    ),
    Kind(
        "KL spike",
        False,
        lambda rng: World(metrics=USUAL | {"kl": spikes(rng)}),
        ("kl",),
    ),
    Kind(
        "KL runs away",
        False,
        lambda rng: World(
            metrics=USUAL | {"kl": metric(lambda done: 1e-3 * np.exp(10 * done), 0.4)}
        ),
        ("kl",),
    ),
    Kind(
        "entropy explodes",
        False,
        lambda rng: World(
            skill=falls(rng),
            metrics=USUAL | {"entropy": metric(lambda done: 0.3 + 4 * done**2, 0.1)},
        ),
        ("entropy",),
    ),
    Kind(
        "entropy is used up",
        False,
        lambda rng: World(
            start=0.2,
            spread=0.5,
            skill=lambda done: -6 * np.clip(2 * done - 0.5, 0, 1),
            metrics=USUAL | {"entropy": metric(lambda done: 0.5 * np.exp(-5 * done), 0.1)},
        ),
        ("entropy",),
    ),
    Kind(
        "old weights in the sampler",
        False,
        lambda rng: World(metrics=USUAL | {"logp_difference": metric(lambda done: 0.2 + 0 * done)}),
        ("logp-difference",),
    ),
    Kind(
        "no gradient",
        False,
        lambda rng: World(skill=flat, metrics=USUAL | {"grad_norm": metric(flat)}),
        ("no-gradient",),
    ),
    Kind(
        "gradient not finite",
        False,
        lambda rng: World(metrics=USUAL | {"grad_norm": nans(rng)}),
        ("not-finite",),
    ),
    Kind("cut", False, lambda rng: World(cut=lambda done: 0.65 + 0 * done), ("truncated",)),
    Kind("nothing is solved", False, lambda rng: World(start=0.003, skill=flat), ("dead",)),
    Kind(
        "length is paid",
        False,
        lambda rng: World(
            start=0.05,
            spread=0.3,
            skill=flat,
            rewards=lambda correct, done, rng: correct + rng.random(len(correct)),
        ),
        ("phantom",),
    ),
    Kind(
        "reward rises, answers fall",
        False,
        lambda rng: World(
            start=0.6,
            skill=lambda done: -learns(done),
            rewards=lambda correct, done, rng: correct + 4 * (rng.random(len(correct)) < done),
        ),
        ("reward-not-correctness",),
    ),
    Kind("one answer", False, lambda rng: World(answer=constant), ("constant-answers",)),
    Kind("any answer", False, lambda rng: World(answer=detached), ("constant-answers",)),
    Kind(
        "one answer in a source",
        False,
        lambda rng: World(answer=constant_in_a),
        ("source-answers",),
    ),
    Kind("groups of two prompts", False, lambda rng: World(change=two_prompts), ("mixed-prompts",)),
    Kind("golds of others", False, lambda rng: World(change=other_golds), ("mixed-golds",)),
    Kind("groups of one", False, lambda rng: World(change=ones), ("one-completion",)),
    Kind("smaller groups", False, lambda rng: World(change=half_size), ("group-size",)),
    Kind("a dead source", False, lambda rng: World(change=dead_source), ("source",)),
    Kind(
        "a reward of weight 0",
        False,
        lambda rng: World(change=unweighted),
        ("zero-weight",),
        "TRL",
    ),
    Kind("other forms of golds", False, lambda rng: World(change=other_forms), ("gold-form",)),
    Kind("old weights", False, lambda rng: World(behind=lambda done: 8 + 0 * done), ("stale",)),
    Kind(
        "weights that stay",
        False,
        lambda rng: World(behind=lambda done: np.maximum(0, np.arange(len(done)) - 15)),
        ("stale",),
    ),
)

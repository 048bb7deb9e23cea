"""Random numbers: one module makes generators, and no two uses have the same stream."""

import ast
import random
from collections.abc import Iterator
from functools import cache
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from paths import ROOT

from orchestrator.plugins.streams import LIMIT, generator, labels_of, stream_key, text_random
from policies import History, choice_rng, find_policy, get_policy, policy_names
from policies.online import is_online

PRODUCT = ("policies", "orchestrator", "tasks", "decile", "cluster")
STREAMS = "orchestrator/plugins/streams.py"
GENERATORS = {
    *("default_rng", "SeedSequence", "RandomState", "Random", "Generator", "seed", "manual_seed"),
    *("set_seed", "Philox", "PCG64", "PCG64DXSM", "MT19937", "SFC64"),
}
# PyTorch's generators, and the global ones of processes that run code of others.
ELSEWHERE = {
    ("orchestrator/training/trainer.py", "set_seed"),
    ("orchestrator/training/trl_internals.py", "manual_seed"),
    ("tasks/environments.py", "seed"),
    ("orchestrator/optional/reasoning_gym/library.py", "seed"),
}
SEEDS, UPDATES, PLACES = range(6), range(1, 40), range(5)


@cache
def calls() -> list[tuple[str, ast.Call, str]]:
    """File, call and last name of what is called, of every call in the product."""
    found = []
    for file in sorted(chain(*(ROOT.joinpath(name).rglob("*.py") for name in PRODUCT))):
        text = file.read_text()
        if any(word in text for word in ("random", "seed", "generator", "stream")):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    found.append((file.relative_to(ROOT).as_posix(), node, name))
    return found


def uses(function: str) -> list[str]:
    """The first argument of every call of a function or method, which is a text as written."""
    first = [call.args[0] for _, call, name in calls() if name == function and call.args]
    assert all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in first)
    return sorted(each.value for each in first if isinstance(each, ast.Constant))


def history(seed: int, place: str = "") -> History:
    known = History(pa.array(["p"]), [1], [1], seed=seed, updates=1, group_size=2)
    return known.of(place) if place else known


def test_one_module_makes_generators() -> None:
    made = {(file, name) for file, _, name in calls() if name in GENERATORS and file != STREAMS}
    assert made <= ELSEWHERE
    # Of the global generators, whose methods are those of their modules.
    of_module = {
        (file, node.func.attr)
        for file, node, _ in calls()
        if isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) in ("random", "np.random", "numpy.random")
        and file != STREAMS
    }
    waits = {("orchestrator/storage/lease.py", "uniform")}  # between two attempts
    assert of_module <= ELSEWHERE | waits


def of_a_sweep() -> Iterator[tuple[str, np.random.Generator]]:
    """Every stream of cells with all policies, some seeds and updates, and of their report."""
    for use in ("diverse: sample", "hashes of words", "resampled rankings", "flipped signs"):
        yield use, generator(use)
    for what in ("recordings", "forecasts", "drift", "online", "predictions", "models"):
        yield f"resampled {what}", generator(f"resampled {what}")
    for use in ("resampled curves", "simulated histograms", "permuted visits"):
        yield use, generator(use)
    for seed in SEEDS:
        yield "ties", generator("ties", seed)
        yield "labels", labels_of(generator("ties", seed))
        yield "refresh", generator("refresh", seed)
        yield "order of an export", generator("order of an export", seed)
        for name in {
            get_policy(n).stream for n in ("random", "base_wrong", "base_right", "diverse")
        }:
            yield "choice of a subset", generator("choice of a subset", name, seed)
        for repeat in range(50):
            yield "second probe", generator("second probe", seed, repeat)
            yield "ties of a second probe", generator("ties of a second probe", seed, repeat)
        for update in UPDATES:
            for drawn in (0, 8, 32):
                yield "update", generator("update", seed, update, drawn)
        for known in (history(seed, place) for place in places()):
            for use in ("before the first update", "curriculum", "adarft", "tiers", "pairs"):
                yield f".{use}", known.stream(use)
            for number in (0, *UPDATES):
                yield ".greso", known.stream("greso", number)
                yield ".gate", known.stream("gate", number)
                yield ".update", known.stream("update", number, 0)


def places() -> list[str]:
    return ["", *(f"stratum {n}" for n in PLACES), *(f"gate {n}" for n in PLACES)]


def test_no_two_streams_of_a_sweep_are_equal() -> None:
    drawn: dict[bytes, str] = {}
    for use, rng in of_a_sweep():
        content = rng.bit_generator.random_raw(4).tobytes()
        assert content not in drawn, (use, drawn[content])
        drawn[content] = use
    assert uses("generator") == sorted({*uses("generator")}), "two uses have one name"
    assert uses("stream") == sorted({*uses("stream")}), "two uses have one name"
    named = {*uses("generator"), *(f".{use}" for use in uses("stream"))}
    assert named == {*drawn.values()} - {"labels"} | {"choice"}, "add the new use above"


def test_prompts_of_tasks_have_streams_of_their_own() -> None:
    named = {ast.unparse(c.args[0]) for _, c, name in calls() if name == "text_random"}
    assert named == {"_NAME", "key"}
    states = {
        text_random(task, *keys).getstate()
        for task in ("arithmetic", "number_guess", "plus_minus", "shuffled_objects")
        for seed in SEEDS
        for keys in ((seed, "train"), (seed, "test"), ("bbh", seed))
    }
    assert len(states) == 4 * len(SEEDS) * 3


def test_streams_that_stored_subsets_and_cells_rest_on_stay() -> None:
    for rng, entropy in (
        (generator("ties", 5), 5),
        (choice_rng(5), 5),
        (generator("update", 5, 3, 0), [5, 3, 0]),
        (generator("refresh", 5), [5, *b"refresh"]),
    ):
        assert rng.random() == np.random.default_rng(entropy).random()
    assert labels_of(generator("ties", 5)).random() == np.random.default_rng(5).spawn(1)[0].random()
    assert (
        text_random("arithmetic", 5, "test").random() == random.Random("arithmetic/5/test").random()
    )
    assert stream_key(3, "p", 1) >> 65 == 5719436015697680289


def test_seeds_that_numpy_would_divide_are_no_others() -> None:
    assert generator("update", 1 + LIMIT, 2).random() != generator("update", 1, 1, 2).random()


def test_what_chooses_at_random_shares_no_luck_with_what_ranks() -> None:
    """Of 800 prompts, 600 of which tie as the hardest ones, each chooses 80."""
    rates = np.where(np.arange(800) < 600, 0.0, 1.0)
    table = pa.table({"prompt_id": [f"p{i}" for i in range(800)], "pass_rate": rates})
    common = []
    for seed in range(100):
        one, other = (
            {*get_policy(name)(table, 80, choice_rng(seed, get_policy(name).stream)).tolist()}
            for name in ("hard", "random")
        )
        common.append(len(one & other))
    assert np.mean(common) == pytest.approx(8, abs=1)  # 80 · 80 / 800; standard error 0.25


def test_policies_that_rank_break_ties_in_the_same_way() -> None:
    options = {
        "agreement_band": {"low": 0, "high": 1},
        "band": {"low": 0, "high": 1},
        "mixture": {"shares": {"hard": 1}},
        "tiers": {"levels": 1},
    }
    static = [name for name in policy_names() if not is_online(find_policy(name))]
    streams = {name: get_policy(name, **options.get(name, {})).stream for name in static}
    at_random = {"random", "base_wrong", "base_right", "tiers", "band", "agreement_band", "diverse"}
    assert {name: stream for name, stream in streams.items() if stream} == {n: n for n in at_random}
    assert get_policy("mixture", shares={"hard": 0.5, "random": 0.5}).stream == "mixture"
    assert get_policy("random", within="source").stream == "random"

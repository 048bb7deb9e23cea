"""Items and scores of reasoning_gym; the only module that imports it.

Everything here runs in child processes with PYTHONHASHSEED=0: some data sets iterate over sets of
strings, so that other processes would draw different items, and a configuration or an answer may
hang.
"""

import hashlib
import importlib
import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

from orchestrator.plugins.registry import suggest
from tasks.marking.boxes import last_box

ENVIRONMENT = {"PYTHONHASHSEED": "0"}
# The items of some data sets depend on the number of items, so all are drawn from data sets of one
# size (the library's default), each with its own seed.
BLOCK = 500
OPTIONS = ("seed", "size")  # of every configuration; the task's own options set them
# The metadata key of an example answer, for data sets with many right answers and none given.
EXAMPLES = {
    "graph_color": "possible_answer",
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
MAX_VALUES = 10  # the most values of a difficulty parameter that become tiers; else BINS ranges
BINS = 4


def functions() -> Callable[..., Any]:
    """The function that a child calls: the name of one of `_FUNCTIONS`, and its arguments."""
    importlib.import_module("reasoning_gym")  # not within the time limit of the first call
    return lambda name, *arguments: _FUNCTIONS[name](*arguments)


def check(name: str, config: Mapping[str, Any]) -> str:
    """The error, with a remedy, in the name of a data set or its configuration; or ""."""
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        return f"reasoning_gym has no data set {name!r:.80}{suggest(name, DATASETS)}"
    defaults = _defaults(name)
    shown = ", ".join(f"{key}: {value!r}" for key, value in defaults.items())
    for key in config:
        if key in OPTIONS:
            return f"config of {name}: {key} is set by the options train, test and seed"
        if key not in defaults:
            near = suggest(key, defaults)
            return f"config of {name} has no {key!r:.80}{near}; it takes {shown}"
    try:
        _dataset(name, json.dumps(config), 0)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001 assertions, and whatever a value of another type does
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"config of {name} is rejected: {reason:.200}; the defaults are {shown}"
    return ""


def draw(name: str, config: str, seed: int, number: int) -> list[str] | str:
    """Question, answer, tier and info of a numbered item, or why it cannot be used.

    Depends only on the arguments; `config` is JSON.
    """
    block, index = divmod(number, BLOCK)
    digest = hashlib.sha256(json.dumps([name, seed, block]).encode()).digest()
    first = int.from_bytes(digest[:4]) >> 1  # NumPy's seeds are below 2**32, and the index is added
    random.seed(first + index)  # list_functions uses the global generator
    try:
        entry = _dataset(name, config, first)[index]
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 a bug of the library in this item
        _dataset.cache_clear()  # word_ladder is unusable after a failure
        return f"{type(error).__name__}: {error}"[:200]
    metadata = entry["metadata"]
    answer = metadata[EXAMPLES[name]] if name in EXAMPLES else entry["answer"]
    answer = answer if isinstance(answer, str) else json.dumps(answer)
    if not answer or last_box(rf"\boxed{{{answer}}}") != answer:
        return f"a box cannot hold the answer {answer!r:.80}"
    info = {"dataset": name, "answer": answer, "metadata": _encoded(metadata)}
    # For the remaining items, such as fractions in gsm_symbolic, scores depend only on the text.
    text = json.dumps(info, ensure_ascii=False, default=str)
    reached, _ = score({name: config}, answer, answer, entry["question"], text)
    if reached < 1:  # some examples of propositional_logic are trivial
        return f"its reference answer {answer!r:.80} has the score {reached:g}"
    return [entry["question"], answer, _tier(metadata), text]


def score(
    configs: Mapping[str, str], text: str, gold: str, question: str, info: str
) -> tuple[float, str]:
    """The library's score of an answer, from 0 to 1, and "score".

    If the gold is not the drawn one (label noise), it is compared as text: "text".
    """
    stored = json.loads(info)
    if stored["answer"] != gold:
        return float(text == gold), "text"
    entry = {"question": question, "answer": gold, "metadata": _decoded(stored["metadata"])}
    dataset = _dataset(stored["dataset"], configs[stored["dataset"]], 0)
    try:
        value = float(dataset.score_answer(text, entry))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 prime_factorization raises ValueError on "x"
        value = 0.0
    return (min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0), "score"


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"check": check, "draw": draw, "score": score}


def _defaults(name: str) -> dict[str, Any]:
    """The parameters of a data set's configuration, and their defaults."""
    from reasoning_gym.factory import DATASETS

    values = {}
    for field in fields(DATASETS[name][1]):
        factory = field.default_factory
        values[field.name] = field.default if factory is MISSING else factory()
    return {key: value for key, value in values.items() if key not in OPTIONS}


@lru_cache(maxsize=128)  # there are 106
def _dataset(name: str, config: str, seed: int) -> Any:
    """Raises the library's errors for a configuration."""
    from reasoning_gym.factory import create_dataset

    defaults, values = _defaults(name), json.loads(config)
    for key, value in values.items():
        if isinstance(value, list) and isinstance(defaults[key], tuple):
            values[key] = tuple(value)
    return create_dataset(name, **values, seed=seed, size=BLOCK)


def _tier(metadata: Mapping[str, Any]) -> str:
    """`num_terms=3`: the first parameter of difficulty that varies, and its value for this item.

    `metadata["difficulty"]` is the configuration (mostly ranges), the same for all items; the
    item's own values are next to it, under the same names. "" if there are none.
    """
    difficulty = metadata.get("difficulty")
    if not isinstance(difficulty, dict):
        return "" if difficulty is None else f"difficulty={difficulty}"
    for key, limits in difficulty.items():
        value = metadata.get(key, metadata.get(f"num_{key}"))
        value = len(value) if isinstance(value, list) else value
        if type(value) is not int or not isinstance(limits, tuple | list) or len(limits) != 2:
            continue
        low, high = limits
        if type(low) is not int or type(high) is not int or low >= high:
            continue
        count = high - low + 1
        if count <= MAX_VALUES:
            return f"{key}={value}"
        part = min(BINS - 1, max(0, (value - low) * BINS // count))
        first, last = (low + -(-count * i // BINS) for i in (part, part + 1))
        return f"{key}={first}-{last - 1}"
    own = difficulty.get("difficulty")
    return "" if own is None else f"difficulty={own}"


def _encoded(value: Any) -> Any:
    """A value as JSON; types that it lacks (tuples, keys that are not text) as {"(type)": list}."""
    if isinstance(value, dict):
        if all(type(key) is str for key in value):
            return {key: _encoded(inner) for key, inner in value.items()}
        return {"(dict)": [[_encoded(key), _encoded(inner)] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        items = [_encoded(inner) for inner in value]
        return items if isinstance(value, list) else {"(tuple)": items}
    if isinstance(value, set | frozenset):
        return {"(set)": [_encoded(inner) for inner in value]}
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(inner) for inner in value]
    if isinstance(value, dict):
        if len(value) == 1:
            [(kind, items)] = value.items()
            if kind in _KINDS:
                return _KINDS[kind](_decoded(items))
        return {key: _decoded(inner) for key, inner in value.items()}
    return value


_KINDS: Mapping[str, Callable[..., Any]] = {"(dict)": dict, "(tuple)": tuple, "(set)": set}

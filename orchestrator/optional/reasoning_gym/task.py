r"""The procedural data sets of reasoning_gym, and its own scores of answers.

reasoning_gym draws items and scores answers in child processes (`library`): if a configuration or
an answer makes it hang or crash, only that configuration or answer is affected.
"""

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, NamedTuple, Self

from orchestrator.optional.reasoning_gym.library import ENVIRONMENT
from orchestrator.plugins.counts import counted
from orchestrator.storage import user_cache
from orchestrator.storage.proof import canonical_hash
from tasks.base import Marking, Task, Template, check_integer, check_size
from tasks.children import ChildError, Children
from tasks.errors import TaskError
from tasks.marking.boxes import last_box, last_filled_box
from tasks.marking.marks import Mark, no_answer_mark, score_mark
from tasks.marking.reading import find_statement, first_sentence, without_thinking
from tasks.prompts import TEST_SHARE, Answer, Prompt, in_test_split, make_prompt

EXCLUDED: Mapping[str, str] = {
    "boxnet": "an item has no reference answer, and a full score needs all boxes lifted at once",
    "composite": "write a mapping of data sets and their weights instead",
    "game_of_life_halting": "its score_answer accepts any text",
    "rush_hour": "an item has no reference answer",
}
_LIBRARY = "orchestrator.optional.reasoning_gym.library:functions"
_children = partial(Children, _LIBRARY, 2, setup=[], environment=ENVIRONMENT)
_DRAWERS = _children(60.0)  # seconds for one item
_SCORERS = _children(10.0)  # seconds for one answer; wrong integrals take sympy several seconds
MAX_ANSWER = 100_000  # the most characters that are scored
PATIENCE = 200  # items in a row without a new question, after which drawing stops
ROUND = 100  # the most items drawn at once; an interruption loses them
STORE_EVERY = 30.0  # seconds between two stores of drawn items
_SPLITS = ("train", "test")
_NAME = "reasoning_gym"
_WRAPPED = re.compile(r"\\text\s*\{([^{}]*)\}")

Splits = dict[str, list[Prompt]]


class _Extracted(NamedTuple):
    """The answer of a completion, and the kind of place it is in."""

    text: str
    place: str


class ReasoningGym(Task):
    """Generated items of reasoning_gym, scored by its own `score_answer`.

    It needs the extra `decile[reasoning-gym]`. Neither split depends on the size of the other, and
    test questions of one seed are never training questions of another. The tier is the item's value
    of the first parameter that the configuration gives a range, after the name of its data set in a
    mix. The preset `tags` asks for the answer between `<answer>` and `</answer>`, `bare` is only
    the question. Lenient marking accepts a box, tags and "the answer is …"; strict marking accepts
    the requested form.

    Items are drawn in child processes and stored in the user's cache folder, because some take
    seconds. An exception of `score_answer` is a wrong answer; an answer that takes more than 10
    seconds, or crashes the process, is an `error`. The data sets `boxnet`, `composite`,
    `game_of_life_halting` and `rush_hour` are not available.

    Options:
        dataset: the name of a data set, or a mapping of names to weights.
        config: parameters of its configuration; for a mapping, by the name of a data set.
        train, test: numbers of items.
        seed: decides which items are drawn.
        threshold: the lowest score of a correct answer.
    """

    name: ClassVar[str] = _NAME
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "2"
    templates: ClassVar[Mapping[str, Template]] = {
        "plain": Template("{question}\nPut the final answer within \\boxed{}."),
        "tags": Template("{question}\nWrite the final answer as <answer>…</answer>."),
        "bare": Template("{question}"),
    }

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        dataset: str | Mapping[str, float] | None = None,
        config: Mapping[str, Any] | None = None,
        train: int = 800,
        test: int = 200,
        seed: int = 0,
        threshold: float = 1.0,
    ) -> None:
        super().__init__(marking=marking, prompt=prompt)
        self.library = _library_version()
        self.weights = _check_weights(dataset)
        self.mixed = not isinstance(dataset, str)
        self.configs = _check_configs(self.weights, config, self.mixed)
        self.sizes = {"train": check_size("train", train), "test": check_size("test", test)}
        self.seed = check_integer("seed", seed)
        if not _is_number(threshold) or not 0 < threshold <= 1:
            raise TaskError(f"invalid threshold {threshold!r:.80}: write a number above 0, up to 1")
        self.threshold = float(threshold)
        self._splits: Splits = {}
        self._golds: dict[str, list[str]] = {}  # the different answers of each data set, sorted

    def train(self) -> list[Prompt]:
        return self._prompts("train")

    def test(self) -> list[Prompt]:
        return self._prompts("test")

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """Without the item, an answer scores 1 if it is the reference answer's text, else 0.

        `mark_answer` and `mark_all` have the item of a prompt and use the library's score.
        """
        return self.mark_answer(Answer(completion, answer, truncated))

    def mark_answer(self, answer: Answer) -> Mark:
        """The library's score of the answer in a completion."""
        return self.mark_all([answer])[0]

    def mark_all(self, answers: Sequence[Answer]) -> list[Mark]:
        """Mark all answers at once; scores come from child processes that can be killed."""
        marks = [self._mark_text(answer) for answer in answers]
        waiting = [(a, m) for a, m in zip(answers, marks, strict=True) if isinstance(m, _Extracted)]
        scores = iter(self._scores([(answer, extracted.text) for answer, extracted in waiting]))
        scored = []
        for mark in marks:
            if isinstance(mark, _Extracted):
                value, source = next(scores)
                text, rule = mark.text, f"{self.marking}:{mark.place}-{source}"
                scored.append(
                    Mark("error", text, rule)
                    if value is None
                    else score_mark(value, text, rule, self.threshold)
                )
            else:
                scored.append(mark)
        return scored

    @property
    def marker_id(self) -> str:
        """The library's version and the threshold also affect marks."""
        return f"{super().marker_id}/{self.library}/{self.threshold:g}"

    @property
    def provenance(self) -> dict[str, str]:
        """The version of reasoning_gym and the seed."""
        return dict.fromkeys(_SPLITS, f"reasoning-gym {self.library} seed {self.seed}")

    def format_answer(self, answer: str) -> str:
        """The answer in a box, or between tags with that preset."""
        return f"<answer>{answer}</answer>" if self._tags else super().format_answer(answer)

    @classmethod
    def marker_variants(cls) -> list[Task]:
        """A mix with a number, a text and a grid, in both forms of answers; [] if not installed."""
        try:
            _library_version()
        except TaskError:
            return []
        mix = {"chain_sum": 1, "spell_backward": 1, "spiral_matrix": 1}
        presets = ({"preset": preset} for preset in cls.templates)
        return [cls(dataset=mix, train=0, test=30, prompt=preset) for preset in presets]

    def check_prompts(self) -> list[Prompt]:
        """The test questions, or the training pool if there are none."""
        return self.test() or self.train()

    def perturb(self, prompt: Prompt) -> str:
        """An answer that the library scores below the threshold: the next number, or another gold.

        The gold of another item may be right for this one.
        """
        self.check_prompts()
        own = json.loads(prompt.info)["dataset"] if prompt.info else ""
        golds = [answer for answer in self._golds.get(own, []) if answer != prompt.answer]
        start = int(prompt.prompt_id, 16) % len(golds) if golds else 0
        candidates = [*(golds[start:] + golds[:start])[:8], f"{prompt.answer} no"]
        if prompt.answer.lstrip("-").isdigit():
            candidates.insert(0, str(int(prompt.answer) + 1))
        for text in candidates:
            [(score, _)] = self._scores([(Answer.to(prompt, ""), text)])
            if score is not None and score < self.threshold:
                return text
        return candidates[-1]

    @property
    def _tags(self) -> bool:
        return self.prompt_settings.preset == "tags"

    def _mark_text(self, answer: Answer) -> Mark | _Extracted:
        """The answer of a completion, or its mark if there is no answer to score."""
        text = answer.completion
        if self.marking == "strict":
            inner = _last_tag(text) if self._tags else last_box(text)
            extracted = _Extracted(inner, "tag" if self._tags else "boxed") if inner else None
        else:
            extracted = _extract_lenient(without_thinking(text), answer.truncated, self._tags)
        if extracted is None:
            return no_answer_mark(answer.truncated)
        if len(extracted.text) > max(MAX_ANSWER, 10 * len(answer.answer)):
            return Mark("wrong", extracted.text, f"{self.marking}:{extracted.place}-too-long")
        return extracted

    def _scores(self, answers: Sequence[tuple[Answer, str]]) -> list[tuple[float | None, str]]:
        """The score of each answer's text and its source; None and the reason if scoring failed."""
        items = [(text, a.answer, a.question, a.info) for a, text in answers if a.info]
        calls = [["score", self.configs, *item] for item in items]
        replies = iter(_SCORERS.map(calls) if calls else [])
        scores: list[tuple[float | None, str]] = []
        for answer, text in answers:
            if not answer.info:
                scores.append((float(text == answer.answer), "text"))
                continue
            reply = next(replies)
            scores.append((None, reply.failure) if reply.failure else tuple(reply.value))
        return scores

    def _prompts(self, split: str) -> list[Prompt]:
        if not self._splits:
            try:
                parts = {name: self._fill(name) for name in self.weights}
            finally:
                _DRAWERS.close()
            for name, part in parts.items():
                self._golds[name] = sorted({p.answer for s in _SPLITS for p in part[s]})
            self._splits = {s: [p for part in parts.values() for p in part[s]] for s in _SPLITS}
        return list(self._splits[split])

    def _fill(self, name: str) -> Splits:
        """The prompts of one data set: the first drawn ones of each split."""
        needed = {split: _shares(self.sizes[split], self.weights)[name] for split in _SPLITS}
        kept: Splits = {split: [] for split in _SPLITS}
        if not any(needed.values()):
            return kept
        seen: set[str] = set()
        without_new, unusable = 0, ""
        train_share = 1 - 1 / TEST_SHARE
        expected = max(needed["train"] / train_share, needed["test"] * TEST_SHARE)
        with _Draws(name, self.configs[name], self.seed, self.library) as draws:
            for item in draws.items(round(1.05 * expected) + 10):
                if isinstance(item, str):
                    unusable = item
                # By the question alone: a question with two answers must not be in both splits.
                key = None if isinstance(item, str) else make_prompt(_NAME, item[0], "", "")
                new = key is not None and key.prompt_id not in seen
                without_new = 0 if new else without_new + 1
                if without_new > PATIENCE:
                    if unusable and not any(kept.values()):
                        raise TaskError(
                            f"{name}: none of its items can be used with this config: {unusable}"
                        )
                    most = " and ".join(f"{split}: {len(kept[split]):,}" for split in _SPLITS)
                    raise TaskError(
                        f"{name}: with this config there are not {needed['train']:,} different "
                        f"training and {counted(needed['test'], 'test question')}: write at most "
                        f"{most} of it, or a config with more"
                    )
                if key is not None and new:
                    seen.add(key.prompt_id)
                    split = _SPLITS[in_test_split(key)]
                    if len(kept[split]) < needed[split]:
                        question, answer, tier, info = item
                        tier = f"{name} {tier}".rstrip() if self.mixed else tier
                        prompt = make_prompt(_NAME, question, answer, tier or "all", info)
                        kept[split].append(prompt)
                if all(len(kept[split]) == needed[split] for split in _SPLITS):
                    break
        return kept


class _Draws:
    """The items of one data set in the order of their numbers: stored ones, then drawn ones.

    An item is [question, answer, tier, info], or the reason why it cannot be used. Drawn items are
    stored when the block ends, and at intervals before.
    """

    def __init__(self, name: str, config: str, seed: int, library: str) -> None:
        self.name, self.config, self.seed = name, config, seed
        self.key = [name, json.loads(config), seed, library, ReasoningGym.version]

    def __enter__(self) -> Self:
        self.known = load_rows(self.key)
        self._stored, self._time = len(self.known), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._store()

    def items(self, expected: int) -> Iterator[Any]:
        """All items, endlessly; `expected` items are drawn without a pause."""
        yield from self.known
        [problem] = self._call([["check", self.name, json.loads(self.config)]])
        if problem:
            raise TaskError(problem)
        few = max(10, expected // 20)
        while True:
            first = len(self.known)
            numbers = range(first, first + min(ROUND, max(few, expected - first)))
            drawn = self._call([["draw", self.name, self.config, self.seed, n] for n in numbers])
            self.known += drawn
            if time.monotonic() > self._time + STORE_EVERY:
                self._store()
            yield from drawn

    def _call(self, calls: Sequence[Sequence[Any]]) -> list[Any]:
        """The values of all calls. Raises TaskError if one hangs or crashes."""
        try:
            replies = _DRAWERS.map(calls, tolerated=0)
        except ChildError as error:
            raise TaskError(f"reasoning_gym {error.reason}") from error
        if failed := next((r for r in replies if r.failure not in (None, "not-tried")), None):
            limits = {
                "time-limit": f"takes more than {_DRAWERS.limit:g} s",
                "MemoryError": "needs too much memory",
            }
            reason = limits.get(str(failed.failure), f"ends with {failed.failure} {failed.detail}")
            raise TaskError(
                f"{self.name}: drawing an item {reason.rstrip()}: write different values in its "
                f"config"
            )
        return [reply.value for reply in replies]

    def _store(self) -> None:
        if len(self.known) > self._stored:
            save_rows(self.key, self.known)
            self._stored, self._time = len(self.known), time.monotonic()


def load_rows(key: Sequence[Any]) -> list[Any]:
    """The rows that `save_rows` stored in the user's cache under a key of JSON values, if any."""
    return list(user_cache.read(_cache_name(key)).get("rows", []))


def save_rows(key: Sequence[Any], rows: Sequence[Any]) -> None:
    """Store rows; if two processes do so at once, the later one wins."""
    user_cache.write(_cache_name(key), {"rows": [*rows]})


def _cache_name(key: Sequence[Any]) -> str:
    return f"rows/{key[0]}-{canonical_hash(key)}.json"


def _library_version() -> str:
    try:
        return version("reasoning-gym")
    except PackageNotFoundError as error:
        raise TaskError(
            "task reasoning_gym needs a library that is not installed: "
            "pip install 'decile[reasoning-gym]'"
        ) from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_weights(dataset: Any) -> dict[str, float]:
    """The weight of each data set. Raises TaskError."""
    weights = {dataset: 1} if isinstance(dataset, str) else dataset
    if not isinstance(weights, Mapping) or not weights:
        raise TaskError(
            "option dataset is missing: write the name of a data set of reasoning_gym, such as "
            "chain_sum, or several with their weights: {chain_sum: 2, gcd: 1}"
        )
    for name, weight in weights.items():
        if not isinstance(name, str):
            raise TaskError(f"dataset names {name!r:.80}: write the name of a data set")
        if name in EXCLUDED:
            raise TaskError(f"data set {name} cannot be used: {EXCLUDED[name]}")
        if not _is_number(weight) or weight <= 0:
            raise TaskError(
                f"invalid weight {weight!r:.80} of {name}: write a number above 0, or leave "
                f"{name} out"
            )
    return {name: float(weight) for name, weight in weights.items()}


def _check_configs(weights: Mapping[str, float], config: Any, mixed: bool) -> dict[str, str]:
    """The configuration of each data set, as JSON. Raises TaskError."""
    config = config or {}
    configs = config if mixed else {next(iter(weights)): config}
    form = "parameters, such as {min_terms: 2}"
    if not isinstance(configs, Mapping):
        raise TaskError(f"invalid config {config!r:.80}: write a mapping of data sets to {form}")
    for name, values in configs.items():
        if name not in weights:
            raise TaskError(
                f"config has {name!r:.80}, which is not in dataset: with a mapping of data sets, "
                f"write {{{next(iter(weights))}: {{…}}}}"
            )
        if not isinstance(values, Mapping):
            raise TaskError(f"invalid config of {name} {values!r:.80}: write a mapping of {form}")
    try:
        return {name: json.dumps(configs.get(name, {}), sort_keys=True) for name in weights}
    except (TypeError, ValueError) as error:
        raise TaskError(f"config has a value that JSON does not have ({error})") from error


def _shares(size: int, weights: Mapping[str, float]) -> dict[str, int]:
    """The size in parts by weight, which add up: the largest remainders are rounded up."""
    total = sum(weights.values())
    exact = {name: size * weight / total for name, weight in weights.items()}
    shares = {name: int(part) for name, part in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (shares[name] - exact[name], name))
    for name in by_remainder[: size - sum(shares.values())]:
        shares[name] += 1
    return shares


def _last_tag(text: str) -> str | None:
    """The content of the last closed `<answer>`."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    return text[start + len("<answer>") : end].strip() if start >= 0 else None


def _extract_lenient(text: str, truncated: bool, tags: bool) -> _Extracted | None:
    """The answer in the requested form, else in the other form, else stated in a sentence."""
    forms = [("boxed", last_filled_box), ("tag", _last_tag)]
    for place, find in reversed(forms) if tags else forms:
        if inner := find(text):
            wrapped = _WRAPPED.fullmatch(inner)
            return _Extracted(wrapped[1].strip() if wrapped else inner, place)
    rest = find_statement(text)
    sentence = None if rest is None else first_sentence(rest, truncated)
    stated = (sentence or "").strip(" \t\n*")
    return _Extracted(stated, "stated") if stated else None

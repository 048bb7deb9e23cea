"""Which layout a file is in, told by its columns, and the rows in it."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.exchange.completions import TEXTS, read_completions
from orchestrator.exchange.entries import (
    CompletionRecord,
    Hints,
    Notes,
    Row,
    SolveRateRecord,
    inner,
)
from orchestrator.exchange.rates import (
    BIG_MATH_RATE,
    QUESTIONS,
    RIGHT_OF,
    SAMPLES_OF,
    rate_columns,
    read_big_math,
    read_skywork,
    read_solve_rates,
    read_verl,
)
from orchestrator.exchange.rllm import read_rllm
from orchestrator.exchange.verifiers import read_verifiers
from tasks import TaskError
from tasks.sources import read_file

Entries = list[CompletionRecord] | list[SolveRateRecord]
Reader = Callable[[Sequence[Row], Hints, Notes], Entries]
NEEDS = {
    "completions": "question, answer, and completion, completions or responses",
    "solve-rates": "question or problem, answer, and a solve rate (or samples and successes)",
    "big-math": f"problem, answer, {BIG_MATH_RATE}",
    "skywork": "prompt, reward_model, extra_info with model_difficulty",
    "verl": "prompt, reward_model with ground_truth",
    "rllm": "a run's folder or results.json: an object with items",
    "verifiers": "prompt, completion, reward (results.jsonl), or task with nodes or traces",
}
ALIASES = {"dapo": "verl"}
READERS: Mapping[str, Reader] = {
    "completions": read_completions,
    "solve-rates": read_solve_rates,
    "big-math": read_big_math,
    "skywork": read_skywork,
    "verl": read_verl,
    "verifiers": read_verifiers,
}
_IN_FOLDERS = ("results.json", "traces.jsonl", "results.jsonl")


@dataclass(frozen=True)
class Opened:
    """A source's rows, or the one object that rLLM writes, and where it was read."""

    file: Path
    origin: str
    rows: Sequence[Row]
    whole: Row | None = None

    @property
    def columns(self) -> list[str]:
        """Every column that any row has, in the order of the first."""
        return [*dict.fromkeys(name for row in self.rows for name in row)]


def open_source(source: Path) -> Opened:
    """Read a file, or the file in a run's folder. Raises TaskError where it cannot be read."""
    file = source
    if source.is_dir():
        found = [source / name for name in _IN_FOLDERS if (source / name).is_file()]
        if not found:
            raise TaskError(f"{source} holds no {', '.join(_IN_FOLDERS)}: write a file's path")
        file = found[0]
    run = _object(file)
    if run is not None:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        return Opened(file, f"{file.name} sha256:{digest}", [], run)
    read = read_file(file, [])
    if not read.rows:
        raise TaskError(f"{file} holds no rows")
    return Opened(file, read.origin, read.rows)


def _object(file: Path) -> Row | None:
    """The content where it is one object with items; read_file says what is wrong with others."""
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError:
        return None
    return content if isinstance(content, dict) and "items" in content else None


def layout_of(opened: Opened, wanted: str | None, hints: Hints) -> str:
    """The layout that is named, or the only one that fits. Raises TaskError with what fits."""
    name = ALIASES.get(wanted, wanted) if wanted else None
    if name is not None and name not in NEEDS:
        raise TaskError(f"layout {wanted!r} is unknown: write {', '.join((*NEEDS, *ALIASES))}")
    fits = _fitting(opened, hints)
    if name is None and len(fits) == 1:
        return fits[0]
    if name is not None and (name in fits or name == _general(fits)):
        return name
    raise TaskError(_refusal(opened, name, fits))


def _general(fits: Sequence[str]) -> str | None:
    """The layout of which the one that fits is a kind."""
    kinds: dict[tuple[str, ...], str] = {("skywork",): "verl", ("big-math",): "solve-rates"}
    return kinds.get(tuple(fits))


def _fitting(opened: Opened, hints: Hints) -> list[str]:
    if opened.whole is not None:
        return ["rllm"]
    has = set(opened.columns)
    texts = has & set(TEXTS)
    counted = has & set(SAMPLES_OF) and has & set(RIGHT_OF)
    rated = hints.rate in has or rate_columns(has) or counted
    asks = bool(has & set(QUESTIONS)) and "answer" in has
    skywork = "model_difficulty" in inner(opened.rows[0], "extra_info")
    big_math = {"problem", "answer", BIG_MATH_RATE} <= has and hints.rate in (None, BIG_MATH_RATE)
    fits = {
        "completions": {"question", "answer"} <= has and texts,
        "solve-rates": asks and rated and not big_math,
        "big-math": big_math,
        "skywork": {"prompt", "reward_model"} <= has and skywork,
        "verl": {"prompt", "reward_model"} <= has and not skywork,
        "verifiers": {"prompt", "completion", "reward"} <= has
        or ("task" in has and has & {"nodes", "traces"}),
    }
    return [name for name, fit in fits.items() if fit]


def _refusal(opened: Opened, wanted: str | None, fits: Sequence[str]) -> str:
    found = ", ".join(opened.columns) or "one object with items"
    if wanted is not None:
        return (
            f"{opened.file} is not in the layout {wanted}, which needs {NEEDS[wanted]}; "
            f"it has: {found}"
        )
    if fits:
        return (
            f"{opened.file} fits several layouts ({', '.join(fits)}); it has: {found}: "
            f"write which one: layout: {fits[0]}"
        )
    needs = "; ".join(f"{name}: {need}" for name, need in NEEDS.items())
    return f"{opened.file} is in no known layout; it has: {found}. Layouts need {needs}"


def read_layout(opened: Opened, layout: str, hints: Hints, notes: Notes) -> Entries:
    """What the source holds, under the layout."""
    try:
        if opened.whole is not None:
            return read_rllm(opened.whole, opened.file, notes)
        return READERS[layout](opened.rows, hints, notes)
    except TaskError as error:
        raise TaskError(f"{opened.file}: {error}") from error

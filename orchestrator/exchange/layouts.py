"""Detects a file's layout by its columns, and reads its rows."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.exchange.completions import TEXTS, read_completions
from orchestrator.exchange.rates import (
    BIG_MATH_RATE,
    QUESTIONS,
    SAMPLE_COUNTS,
    SUCCESS_COUNTS,
    rate_columns,
    read_big_math,
    read_skywork,
    read_solve_rates,
    read_verl,
)
from orchestrator.exchange.records import (
    CompletionRecord,
    Hints,
    Notes,
    Row,
    SolveRateRecord,
    nested,
)
from orchestrator.exchange.rllm import read_rllm
from orchestrator.exchange.verifiers import read_verifiers
from tasks import TaskError
from tasks.files import read_file

Records = list[CompletionRecord] | list[SolveRateRecord]
Reader = Callable[[Sequence[Row], Hints, Notes], Records]
REQUIRES = {
    "completions": "question, answer, and completion, completions or responses",
    "solve-rates": "question or problem, answer, and a solve rate (or samples and successes)",
    "big-math": f"problem, answer, {BIG_MATH_RATE}",
    "skywork": "prompt, reward_model, extra_info with model_difficulty",
    "verl": "prompt, reward_model with ground_truth",
    "rllm": "a run's folder or results.json: an object with items",
    "verifiers": "prompt, completion, reward (results.jsonl), or task with nodes or traces",
}
ALIASES = {"dapo": "verl"}
GENERAL = {"skywork": "verl", "big-math": "solve-rates"}  # a layout, and the one it is a kind of
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
class SourceFile:
    """A source's rows, or the one object that rLLM writes, and where it was read."""

    file: Path
    origin: str
    rows: Sequence[Row]
    rllm_run: Row | None = None

    @property
    def columns(self) -> list[str]:
        """Every column that any row has, in the order of the first occurrence."""
        return [*dict.fromkeys(name for row in self.rows for name in row)]


def read_source(source: Path) -> SourceFile:
    """Read a file, or the file in a run's folder. Raises TaskError where it cannot be read."""
    file = source
    if source.is_dir():
        files = [source / name for name in _IN_FOLDERS if (source / name).is_file()]
        if not files:
            raise TaskError(f"{source} holds no {', '.join(_IN_FOLDERS)}: write a file's path")
        file = files[0]
    run = _rllm_run(file)
    if run is not None:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        return SourceFile(file, f"{file.name} sha256:{digest}", [], run)
    read = read_file(file, [])
    if not read.rows:
        raise TaskError(f"{file} holds no rows")
    return SourceFile(file, read.origin, read.rows)


def _rllm_run(file: Path) -> Row | None:
    """The file's content if it is one object with items; read_file reports other problems."""
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError:
        return None
    return content if isinstance(content, dict) and "items" in content else None


def detect_layout(source: SourceFile, layout: str | None, hints: Hints) -> str:
    """The named `layout`, or the only one that fits. Raises TaskError that says what fits."""
    name = ALIASES.get(layout, layout) if layout else None
    if name is not None and name not in REQUIRES:
        raise TaskError(f"layout {layout!r} is unknown: write {', '.join((*REQUIRES, *ALIASES))}")
    fits = _fitting(source, hints)
    if name is None and len(fits) == 1:
        return fits[0]
    if name is not None and (name in fits or [name] == [GENERAL.get(fit) for fit in fits]):
        return name
    columns = ", ".join(source.columns) or "one object with items"
    if name is not None:
        raise TaskError(
            f"{source.file} is not in the layout {name}, which needs {REQUIRES[name]}; "
            f"it has: {columns}"
        )
    if fits:
        raise TaskError(
            f"{source.file} fits several layouts ({', '.join(fits)}); it has: {columns}: "
            f"write which one: layout: {fits[0]}"
        )
    required = "; ".join(f"{known}: {needed}" for known, needed in REQUIRES.items())
    raise TaskError(
        f"{source.file} is in no known layout; it has: {columns}. Layouts need {required}"
    )


def _fitting(source: SourceFile, hints: Hints) -> list[str]:
    if source.rllm_run is not None:
        return ["rllm"]
    columns = set(source.columns)
    counted = columns & set(SAMPLE_COUNTS) and columns & set(SUCCESS_COUNTS)
    rated = hints.rate in columns or rate_columns(columns) or counted
    answered = bool(columns & set(QUESTIONS)) and "answer" in columns
    skywork = "model_difficulty" in nested(source.rows[0], "extra_info")
    big_math = {"problem", "answer", BIG_MATH_RATE} <= columns
    big_math &= hints.rate in (None, BIG_MATH_RATE)
    fits = {
        "completions": {"question", "answer"} <= columns and columns & set(TEXTS),
        "solve-rates": answered and rated and not big_math,
        "big-math": big_math,
        "skywork": {"prompt", "reward_model"} <= columns and skywork,
        "verl": {"prompt", "reward_model"} <= columns and not skywork,
        "verifiers": {"prompt", "completion", "reward"} <= columns
        or ("task" in columns and columns & {"nodes", "traces"}),
    }
    return [name for name, fit in fits.items() if fit]


def read_layout(source: SourceFile, layout: str, hints: Hints, notes: Notes) -> Records:
    """The source's records, read in the given layout."""
    try:
        if source.rllm_run is not None:
            return read_rllm(source.rllm_run, source.file, notes)
        return READERS[layout](source.rows, hints, notes)
    except TaskError as error:
        raise TaskError(f"{source.file}: {error}") from error

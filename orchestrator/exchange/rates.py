"""Pools with a solve rate, or with none: how an answer failed is not known."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from orchestrator.exchange.records import (
    Hints,
    Notes,
    PlacedRow,
    Row,
    SolveRateRecord,
    SourceQuestion,
    parse_count,
    with_questions,
)
from tasks import TaskError
from tasks.columns import cell

QUESTIONS = ("question", "problem")
SAMPLE_COUNTS = ("n", "samples", "num_samples", "n_samples", "rollouts", "attempts")
SUCCESS_COUNTS = ("successes", "num_correct", "n_correct")
RATE = re.compile(r"(?:.+_)?(?:solve|pass|success)_rate(?:_.+)?")
BIG_MATH_RATE, BIG_MATH_SAMPLES = "llama8b_solve_rate", 64
RATES_ONLY = "solve rates only: no outcome detail, so hard may also mean unparsed or truncated"
_SHARE = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*")


def rate_columns(names: Iterable[str]) -> list[str]:
    """The columns that are named like a solve rate, each once."""
    return [name for name in dict.fromkeys(names) if RATE.fullmatch(name)]


def rate_column(names: Iterable[str], hints: Hints) -> str | None:
    """The column of solve rates: `hints.rate`, or the only one named like a solve rate."""
    columns = rate_columns(names)
    if hints.rate is None and len(columns) > 1:
        raise TaskError(
            f"several columns are named like a solve rate ({', '.join(columns)}): "
            f"write which one: --rate {columns[0]}"
        )
    return hints.rate or next(iter(columns), None)


def read_big_math(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Big-Math-RL-Verified: problem, answer, source, domain, llama8b_solve_rate.

    As its dataset card says: the share of 64 rollouts of Llama-3.1-8B that succeed. The values are
    shares from 0 to 1 (public code compares them as such), null where none was measured.
    """
    samples = hints.samples or BIG_MATH_SAMPLES
    pairs = with_questions(rows, notes, _question_and_answer)
    return [rate_record(row, source, BIG_MATH_RATE, samples) for row, source in pairs]


def _question_and_answer(row: Row, place: str, notes: Notes) -> tuple[Any, Any]:
    return next((row[name] for name in QUESTIONS if row.get(name)), None), row.get("answer")


def rate_record(
    row: Row, source: SourceQuestion, column: str | None, samples: int | None
) -> SolveRateRecord:
    """A row's rate: a number from 0 to 1, a text such as "7/8", or successes of samples."""
    n = _first_count(row, SAMPLE_COUNTS, source.place)
    n = samples if n is None else n
    successes = _first_count(row, SUCCESS_COUNTS, source.place)
    value = cell(row, column) if column else None
    if isinstance(value, str) and (share := _SHARE.fullmatch(value)):
        successes, n, value = int(share[1]), int(share[2]), None
    if value is None and n and successes is not None:
        value = successes / n
    if value is None:
        return SolveRateRecord(source, None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise TaskError(
            f"{source.place}: invalid solve rate {value!r:.60}: write a number from 0 to 1"
        )
    if n is not None and successes is not None and successes > n:
        raise TaskError(f"{source.place}: {successes:,} successes of {n:,} samples")
    rate = float(value)
    return SolveRateRecord(
        source, rate, n, exact_count(rate, n) if successes is None else successes
    )


def _first_count(row: Row, names: Sequence[str], place: str) -> int | None:
    name = next((name for name in names if row.get(name) is not None), "")
    return parse_count(row.get(name), place, name)


def exact_count(rate: float, n: int | None) -> int | None:
    """n × rate if it is an integer; a rounded rate does not determine the successes."""
    if n is None or abs(n * rate - round(n * rate)) > 1e-6:
        return None
    return round(n * rate)

"""Pools with a solve rate, or with none: how an answer failed is not known."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from orchestrator.exchange.records import (
    Hints,
    Notes,
    Row,
    SolveRateRecord,
    SourceQuestion,
    last_message,
    nested,
    parse_count,
    with_questions,
)
from tasks import TaskError

QUESTIONS = ("question", "problem")
SAMPLE_COUNTS = ("n", "samples", "num_samples", "n_samples", "rollouts", "attempts")
SUCCESS_COUNTS = ("successes", "num_correct", "n_correct")
RATE = re.compile(r"(?:.+_)?(?:solve|pass|success)_rate(?:_.+)?")
BIG_MATH_RATE, BIG_MATH_SAMPLES = "llama8b_solve_rate", 64
SKYWORK_SAMPLES = 16
RATES_ONLY = "solve rates only: no outcome detail, so hard may also mean unparsed or truncated"
# How DAPO-Math-17k wraps each problem. The task adds its own instructions, so these are removed.
_DAPO = re.compile(
    r"Solve the following math problem step by step\. The last line of your response should be of "
    r"the form Answer: \$Answer \(without quotes\) where \$Answer is the answer to the problem\."
    r"\s*(?P<problem>.*?)\s*Remember to put your answer on its own line after \"Answer:\"\.\s*",
    re.DOTALL,
)
_SHARE = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")


def rate_columns(names: Iterable[str]) -> list[str]:
    """The columns that are named like a solve rate, each once."""
    return [name for name in dict.fromkeys(names) if RATE.fullmatch(name)]


def read_solve_rates(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Columns: question or problem, answer, and one named like a solve rate (or `hints.rate`).

    A rate is a number from 0 to 1 or a text such as "7/8". Alternatively, two columns hold the
    numbers of samples and of successes; `hints.samples` is the number of samples of all rows.
    """
    names = rate_columns(name for row in rows for name in row)
    if hints.rate is None and len(names) > 1:
        raise TaskError(
            f"several columns are named like a solve rate ({', '.join(names)}): "
            f"write which one: rate: {names[0]}"
        )
    column = hints.rate or next(iter(names), None)
    pairs = with_questions(rows, notes, _question_and_answer)
    return [_rate_record(row, source, column, hints.samples) for row, source in pairs]


def read_big_math(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Big-Math-RL-Verified: problem, answer, source, domain, llama8b_solve_rate.

    As its dataset card says: the share of 64 rollouts of Llama-3.1-8B that succeed. The values are
    shares from 0 to 1 (public code compares them as such), null where none was measured.
    """
    samples = hints.samples or BIG_MATH_SAMPLES
    pairs = with_questions(rows, notes, _question_and_answer)
    return [_rate_record(row, source, BIG_MATH_RATE, samples) for row, source in pairs]


def read_skywork(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Skywork-OR1-RL-Data: verl's columns, and extra_info.model_difficulty by model.

    As its dataset card describes the columns (read at 1cdedc5): a number from 0 to 16 for each of
    three models. It counts failures: the authors keep 1 to 15 (or1_scripts at 2336f0a), and other
    users of the set call 0 too easy and 16 too hard. `ground_truth` is a JSON list of answers.
    """
    difficulties = [nested(row, "extra_info", "model_difficulty") for row in rows]
    models = [*dict.fromkeys(name for entry in difficulties for name in entry)]
    model = models[0] if hints.model is None and len(models) == 1 else hints.model
    if model not in models:
        problem = f"no difficulty for model {model!r}" if model else "several models are rated"
        raise TaskError(f"{problem}: write model: one of {', '.join(models)}")
    records = []
    for row, source in with_questions(rows, notes, lambda row: _skywork_texts(row, notes)):
        count = nested(row, "extra_info", "model_difficulty").get(model)
        failures = parse_count(count, source.place, f"model_difficulty of {model}")
        if failures is None:
            records.append(SolveRateRecord(source, None))
            continue
        if failures > SKYWORK_SAMPLES:
            raise TaskError(f"{source.place}: {failures} failures of {SKYWORK_SAMPLES} samples")
        successes = SKYWORK_SAMPLES - failures
        rate = successes / SKYWORK_SAMPLES
        records.append(SolveRateRecord(source, rate, SKYWORK_SAMPLES, successes))
    return records


def read_verl(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """verl's columns (DAPO-Math-17k has them): prompt, reward_model.ground_truth, extra_info.

    As examples/data_preprocess/gsm8k.py writes them (verl at 030a519). The question is
    extra_info.question where there is one, else the last user message, without DAPO's instructions.
    A solve rate is read from a column, or a key of extra_info, that is named like one, if any.
    """
    flat = [{**nested(row, "extra_info"), **row} for row in rows]
    column = hints.rate or next(iter(rate_columns(k for row in flat for k in row)), None)
    pairs = with_questions(flat, notes, lambda row: _verl_texts(row, notes))
    return [_rate_record(row, source, column, hints.samples) for row, source in pairs]


def _question_and_answer(row: Row) -> tuple[Any, Any]:
    return next((row[name] for name in QUESTIONS if row.get(name)), None), row.get("answer")


def _verl_texts(row: Row, notes: Notes) -> tuple[Any, Any]:
    truth = nested(row, "reward_model").get("ground_truth")
    answer = _first_answer(truth, notes)
    question = nested(row, "extra_info").get("question")
    if isinstance(question, str) and question.strip():
        return question, answer
    prompt = last_message(row.get("prompt"), "user")
    wrapped = _DAPO.fullmatch(prompt)
    if wrapped is None:
        return prompt, answer
    notes.add("DAPO's instructions were removed from the questions: the task adds its own")
    return wrapped["problem"], answer


def _skywork_texts(row: Row, notes: Notes) -> tuple[Any, Any]:
    question = last_message(row.get("prompt"), "user")
    truth = nested(row, "reward_model").get("ground_truth")
    try:
        answers = json.loads(truth) if isinstance(truth, str) else truth
    except ValueError:
        return question, truth
    if isinstance(answers, dict):  # a program's tests: there is no answer to mark
        return question, None
    return question, _first_answer(answers, notes) if isinstance(answers, list) else truth


def _first_answer(truth: Any, notes: Notes) -> Any:
    """The first of a list of answers; any other value as it is."""
    if not isinstance(truth, list):
        return truth
    if len(truth) > 1:
        notes.add("where several answers are correct, the first is used")
    return truth[0] if truth else None


def _rate_record(
    row: Row, source: SourceQuestion, column: str | None, samples: int | None
) -> SolveRateRecord:
    n = _first_count(row, SAMPLE_COUNTS, source.place)
    n = samples if n is None else n
    successes = _first_count(row, SUCCESS_COUNTS, source.place)
    value = row.get(column) if column else None
    if isinstance(value, str) and (share := _SHARE.fullmatch(value)):
        successes, n, value = int(share[1]), int(share[2]), None
    if value is None and n and successes is not None:
        value = successes / n
    if value is None:
        return SolveRateRecord(source, None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise TaskError(
            f"{source.place}: invalid solve rate {value!r}: expected a number from 0 to 1"
        )
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

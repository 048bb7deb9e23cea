"""Pools that come with a solve rate, or with none: nothing is known of how an answer failed."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orchestrator.exchange.entries import (
    Hints,
    Notes,
    Row,
    SolveRateRecord,
    SourceQuestion,
    asked,
    inner,
    last_of,
    whole,
)
from tasks import TaskError

QUESTIONS = ("question", "problem")
SAMPLES_OF = ("n", "samples", "num_samples", "n_samples", "rollouts", "attempts")
RIGHT_OF = ("successes", "num_correct", "n_correct")
RATE = re.compile(r"(?:.+_)?(?:solve|pass|success)_rate(?:_.+)?")
BIG_MATH_RATE, BIG_MATH_SAMPLES = "llama8b_solve_rate", 64
SKYWORK_SAMPLES = 16
RATES_ONLY = "solve rates only: no outcome detail, so hard may also mean unparsed or truncated"
# How DAPO-Math-17k wraps each problem. The task asks in its own words, so these go.
_DAPO = re.compile(
    r"Solve the following math problem step by step\. The last line of your response should be of "
    r"the form Answer: \$Answer \(without quotes\) where \$Answer is the answer to the problem\."
    r"\s*(?P<problem>.*?)\s*Remember to put your answer on its own line after \"Answer:\"\.\s*",
    re.DOTALL,
)
_SHARE = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")


def rate_columns(names: Iterable[str]) -> list[str]:
    """The columns that are named like a solve rate."""
    return [name for name in names if RATE.fullmatch(name)]


def read_solve_rates(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Columns: question or problem, answer, and one named like a solve rate (or `hints.rate`).

    A rate is a number from 0 to 1 or a text such as "7/8". In its place may stand the numbers of
    samples and of right answers; `hints.samples` says how many samples all rows had.
    """
    column = hints.rate or _one_rate(rows)
    return _each(
        rows,
        notes,
        lambda row: _asking(row, QUESTIONS),
        lambda row, who: _rated(row, who, column, hints.samples),
    )


def read_big_math(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Big-Math-RL-Verified: problem, answer, source, domain, llama8b_solve_rate.

    As its dataset card has it: the share of 64 rollouts of Llama-3.1-8B that succeed. The values
    are shares from 0 to 1 (so public code compares them), null where none was measured.
    """
    samples = hints.samples or BIG_MATH_SAMPLES
    return _each(
        rows,
        notes,
        lambda row: _asking(row, QUESTIONS),
        lambda row, who: _rated(row, who, BIG_MATH_RATE, samples),
    )


def read_skywork(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Skywork-OR1-RL-Data: verl's columns, and extra_info.model_difficulty by model.

    As its dataset card has the columns (read at 1cdedc5): a number from 0 to 16 for each of three
    models. It counts failures: the authors keep 1 to 15 (or1_scripts at 2336f0a), and others who
    use the set call 0 too easy and 16 too hard. `ground_truth` is a JSON list of right answers.
    """
    model = _model(rows, hints.model)

    def rated(row: Row, who: SourceQuestion) -> SolveRateRecord:
        failed = inner(inner(row, "extra_info"), "model_difficulty").get(model)
        failures = whole(failed, who.place, f"model_difficulty of {model}")
        if failures is None:
            return SolveRateRecord(who, None)
        if failures > SKYWORK_SAMPLES:
            raise TaskError(f"{who.place}: {failures} failures of {SKYWORK_SAMPLES} samples")
        right = SKYWORK_SAMPLES - failures
        return SolveRateRecord(who, right / SKYWORK_SAMPLES, SKYWORK_SAMPLES, right)

    return _each(rows, notes, lambda row: _of_skywork(row, notes), rated)


def read_verl(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """verl's columns (DAPO-Math-17k has them): prompt, reward_model.ground_truth, extra_info.

    As examples/data_preprocess/gsm8k.py writes them (verl at 030a519). The question is
    extra_info.question where there is one, else the last user message, without DAPO's wording. A
    solve rate is read where a column, or a key of extra_info, is named like one; often none is.
    """
    flat = [{**inner(row, "extra_info"), **row} for row in rows]
    column = hints.rate or next(iter(rate_columns(dict.fromkeys(k for r in flat for k in r))), None)
    return _each(
        flat,
        notes,
        lambda row: _of_verl(row, notes),
        lambda row, who: _rated(row, who, column, hints.samples),
    )


def _each(
    rows: Sequence[Row],
    notes: Notes,
    texts: Callable[[Row], tuple[Any, Any]],
    rated: Callable[[Row, SourceQuestion], SolveRateRecord],
) -> list[SolveRateRecord]:
    found = []
    for number, row in enumerate(rows, 1):
        who = asked(row, f"row {number}", *texts(row), notes)
        if who is not None:
            found.append(rated(row, who))
    return found


def _asking(row: Row, names: Sequence[str]) -> tuple[Any, Any]:
    return next((row[name] for name in names if row.get(name)), None), row.get("answer")


def _of_verl(row: Row, notes: Notes) -> tuple[Any, Any]:
    truth = inner(row, "reward_model").get("ground_truth")
    if isinstance(truth, list):
        truth = _first(truth, notes)
    question = inner(row, "extra_info").get("question")
    if isinstance(question, str) and question.strip():
        return question, truth
    prompt = last_of(row.get("prompt"), "user")
    wrapped = _DAPO.fullmatch(prompt)
    if wrapped is None:
        return prompt, truth
    notes.say("questions were freed of DAPO's wording: the task asks in its own")
    return wrapped["problem"], truth


def _of_skywork(row: Row, notes: Notes) -> tuple[Any, Any]:
    question = last_of(row.get("prompt"), "user")
    truth = inner(row, "reward_model").get("ground_truth")
    try:
        answers = json.loads(truth) if isinstance(truth, str) else truth
    except ValueError:
        return question, truth
    if isinstance(answers, dict):  # tests of a program: there is no answer to mark
        return question, None
    return question, _first(answers, notes) if isinstance(answers, list) else truth


def _first(answers: list[Any], notes: Notes) -> Any:
    if len(answers) > 1:
        notes.say("where several answers are right, the first is kept")
    return answers[0] if answers else None


def _rated(
    row: Row, who: SourceQuestion, column: str | None, samples: int | None
) -> SolveRateRecord:
    counts = [_counted(row, names, who.place) for names in (SAMPLES_OF, RIGHT_OF)]
    n, right = counts[0] if counts[0] is not None else samples, counts[1]
    value = row.get(column) if column else None
    if isinstance(value, str) and (share := _SHARE.fullmatch(value)):
        right, n = int(share[1]), int(share[2])
        value = None
    if value is None and n and right is not None:
        value = right / n
    if value is None:
        return SolveRateRecord(who, None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise TaskError(
            f"{who.place}: solve rate {value!r} is no share: write a number from 0 to 1"
        )
    return SolveRateRecord(
        who, float(value), n, _exact(float(value), n) if right is None else right
    )


def _counted(row: Row, names: Sequence[str], place: str) -> int | None:
    name = next((name for name in names if row.get(name) is not None), "")
    return whole(row.get(name), place, name)


def _exact(rate: float, n: int | None) -> int | None:
    """n × rate where that is a whole number; a rounded rate does not say how many were right."""
    if n is None or abs(n * rate - round(n * rate)) > 1e-6:
        return None
    return round(n * rate)


def _one_rate(rows: Sequence[Row]) -> str | None:
    found = rate_columns(dict.fromkeys(name for row in rows for name in row))
    if len(found) > 1:
        raise TaskError(
            f"several columns are named like a solve rate ({', '.join(found)}): "
            f"write which one: rate: {found[0]}"
        )
    return found[0] if found else None


def _model(rows: Sequence[Row], wanted: str | None) -> str:
    rated = (inner(inner(row, "extra_info"), "model_difficulty") for row in rows)
    models = [*dict.fromkeys(name for entry in rated for name in entry)]
    if wanted is None and len(models) == 1:
        return models[0]
    if wanted not in models:
        said = f"model {wanted!r} has no difficulty here" if wanted else "several models are rated"
        raise TaskError(f"{said}: write model: one of {', '.join(models)}")
    return wanted

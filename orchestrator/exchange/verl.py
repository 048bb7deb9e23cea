"""verl's data sets (DAPO, Skywork-OR1 and rLLM use their columns) and its dumps of rollouts."""

import json
import re
from collections.abc import Sequence
from typing import Any

from orchestrator.exchange.rates import rate_columns, rate_record
from orchestrator.exchange.records import (
    CompletionRecord,
    Hints,
    Notes,
    PlacedRow,
    Row,
    SolveRateRecord,
    chat_question,
    count_dropped,
    first_answer,
    nested,
    parse_count,
    source_question,
    with_questions,
)
from orchestrator.sampling.base import Completion
from tasks import TaskError

SKYWORK_SAMPLES = 16
PLACEHOLDER = "placeholder"  # the prompt of rLLM's files for verl
# Prompts as a tokenizer decodes them without special tokens: of ChatML (Qwen), Llama 3 and Gemma.
_TURN = re.compile(r"(?:^|\n)(system|user|assistant|model)\n+|(?<=\S)(assistant)\n\n$")
_THINKING = re.compile(r"<think>\s*(?:</think>\s*)?$")


def read_skywork(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Skywork-OR1-RL-Data: verl's columns, and extra_info.model_difficulty by model.

    As its dataset card describes the columns (read at 1cdedc5): a number from 0 to 16 for each of
    three models. It counts failures: the authors keep 1 to 15 (or1_scripts at 2336f0a), and other
    users of the set call 0 too easy and 16 too hard. `ground_truth` is a JSON list of answers.
    """
    difficulties = [nested(row, "extra_info", "model_difficulty") for _, row in rows]
    models = [*dict.fromkeys(name for entry in difficulties for name in entry)]
    model = models[0] if hints.model is None and len(models) == 1 else hints.model
    if model not in models:
        problem = f"no difficulty for model {model!r}" if model else "several models are rated"
        raise TaskError(f"{problem}: write --model with one of {', '.join(models)}")
    records = []
    for row, source in with_questions(rows, notes, _skywork_texts):
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


def read_verl(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """verl's columns (DAPO-Math-17k has them): prompt, reward_model.ground_truth, extra_info.

    As examples/data_preprocess/gsm8k.py writes them (verl at 030a519). The question is
    extra_info.question where there is one, else the last user message. rLLM's files for verl (at
    9beb6e0) hold placeholders, and their texts in extra_info. A solve rate is read from a column,
    or a key of extra_info, that is named like one, if any.
    """
    flat = [PlacedRow(place, {**nested(row, "extra_info"), **row}) for place, row in rows]
    column = hints.rate or next(iter(rate_columns(k for _, row in flat for k in row)), None)
    pairs = with_questions(flat, notes, _verl_texts)
    return [rate_record(row, source, column, hints.samples) for row, source in pairs]


def read_rollouts(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """Rollouts that verl dumps (trainer.rollout_data_dir, validation_data_dir; at b178a3c).

    Columns: input (the decoded prompt), output, gts (absent in older files), score, step.
    """
    records = []
    for place, row in rows:
        texts = {}
        for name in ("input", "output"):
            if not isinstance(row.get(name), str):
                raise TaskError(f"{place}: {name} is {row.get(name)!r:.60}: expected a text")
            texts[name] = row[name]
        question = _decoded_question(texts["input"], place, notes)
        answer = first_answer(row.get("gts"), place, notes)
        source = source_question(row, place, question, answer, notes)
        if source is None:
            continue
        score = row.get("acc", row.get("score"))
        correct = bool(score == 1) if score in (0, 1, -1) else None  # True and False are 1 and 0
        completion = Completion(texts["output"], 0, "stop")
        records.append(CompletionRecord(source, completion, correct=correct))
    steps = {str(row.get("step")) for _, row in rows}
    if len(steps) > 1:
        notes.add(f"rollouts of {len(steps)} training steps: not samples of one model")
    notes.add("verl does not record which answers were cut off: they count as unparsed or wrong")
    return records


def _decoded_question(text: str, place: str, notes: Notes) -> str:
    """The last user turn of a decoded chat prompt; a text in no known template as it is."""
    text = _THINKING.sub("", text)
    turns = list(_TURN.finditer(text))
    roles = [turn[1] or turn[2] for turn in turns]
    if len(turns) < 2 or roles[-1] not in ("assistant", "model") or "user" not in roles:
        notes.count("prompts are in no known chat template: the whole text is the question", place)
        return text
    last = max(index for index, role in enumerate(roles) if role == "user")
    system = roles.count("system")
    count_dropped(system, len(roles) - system - 2, place, notes)
    return text[turns[last].end() : turns[last + 1].start()].strip("\n")


def _verl_texts(row: Row, place: str, notes: Notes) -> tuple[Any, Any]:
    truth = nested(row, "reward_model").get("ground_truth")
    truth = row.get("ground_truth", row.get("answer")) if truth is None else truth
    answer = first_answer(truth, place, notes)
    question = nested(row, "extra_info").get("question")
    if isinstance(question, str) and question.strip():
        return question, answer
    question = chat_question(row.get("prompt"), place, notes)
    return (None if question == PLACEHOLDER else question), answer


def _skywork_texts(row: Row, place: str, notes: Notes) -> tuple[Any, Any]:
    question = chat_question(row.get("prompt"), place, notes)
    truth = nested(row, "reward_model").get("ground_truth")
    try:
        answers = json.loads(truth) if isinstance(truth, str) else truth
    except (ValueError, RecursionError):
        return question, truth
    if isinstance(answers, dict):  # a program's tests: there is no answer to mark
        return question, None
    return question, first_answer(answers, place, notes) if isinstance(answers, list) else truth

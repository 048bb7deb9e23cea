"""Readers of formats that a table of columns cannot describe.

inspect_ai's logs: .json, or .eval (a zip of JSON files), read without it. lm-evaluation-harness:
samples_TASK_DATE.jsonl of `--log_samples`. `rllm eval`: results.json, and episodes/ if they were
saved. PrimeIntellect's verifiers and prime-rl: results.jsonl (v0) and traces.jsonl (v1). NeMo-Gym:
rollouts and `*_reward_profiling.jsonl`. verl's data sets (DAPO, Skywork-OR1 and rLLM use their
columns) and its dumps of rollouts.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from orchestrator.optional.exchange.columns import rate_columns, rate_record
from orchestrator.optional.exchange.decoded_chats import decoded_question
from orchestrator.optional.exchange.documents import document_question
from orchestrator.optional.exchange.inspect_logs import attached
from orchestrator.optional.exchange.placed_rows import (
    Notes,
    PlacedRow,
    Row,
    count_dropped,
    json_object,
    nested,
    objects,
)
from orchestrator.optional.exchange.records import (
    CompletionRecord,
    Hints,
    SolveRateRecord,
    SourceQuestion,
    chat_question,
    first_answer,
    last_message,
    source_question,
)
from orchestrator.plugins.counts import counted
from orchestrator.sampling.base import Completion, Finish
from tasks import TaskError
from tasks.sources.files import is_chat, message_text, parse_json, read_chat, read_file
from tasks.sources.user_files import read_bytes
from tasks.sources.values import parse_count, valid_count

CUT = ("max_tokens", "model_length")
_GRADES = {"C": True, "I": False, 1: True, 0: False}


def read_inspect(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """Samples as inspect_ai 0.3 logs them: one per input and epoch.

    The question is the input; with choices, it is the user message that a solver wrote. The
    completion is the output's first choice.
    """
    records = []
    for place, row in rows:
        messages, question = row.get("messages"), row.get("input")
        if is_chat(messages):
            chat = read_chat(messages)
            count_dropped(chat.system, chat.turns, place, notes)
            if row.get("choices"):
                notes.count("questions with choices are read as the solver worded them", place)
                users = (m.get("content") for m in messages if m.get("role") == "user")
                question = message_text(next(users, ""))
        if is_chat(question):
            question = read_chat(question).question
        question = attached(question, row) if isinstance(question, str) else question
        answer = first_answer(row.get("target"), place, notes)
        source = source_question({}, place, question, answer, notes)
        if source is None:
            continue
        choice = next(iter(objects(nested(row, "output").get("choices"))), {})
        text = attached(message_text(nested(choice, "message").get("content")), row)
        failed = bool(row.get("error")) or not choice
        cut = choice.get("stop_reason") in CUT
        tokens = valid_count(nested(row, "output", "usage").get("output_tokens"))
        completion = Completion(text, tokens or 0, _finish(failed, cut))
        # The decision of the only scorer, if it is correct or incorrect.
        scores = [score.get("value") for score in objects([*nested(row, "scores").values()])]
        value = scores[0] if len(scores) == 1 and not failed else None
        correct = _GRADES.get(value) if isinstance(value, str | int | float) else None
        records.append(CompletionRecord(source, completion, tokens, correct=correct))
    return records


def _finish(failed: object, truncated: object) -> Finish:
    return "error" if failed else "length" if truncated else "stop"


def read_lm_eval(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """One row per document and filter, as written by lm_eval 0.4.13.

    Columns: doc (the source's row), target, arguments (the requests), resps (a list of texts per
    request), filter, metrics and one column per metric. Filters read the same texts, so only the
    first one is kept. The question is the document's, or else the request's prompt.
    """
    records = []
    filters = [*dict.fromkeys(str(row.get("filter")) for _, row in rows)]
    if len(filters) > 1:
        notes.add(f"read once, not once per filter of lm-eval ({', '.join(filters)})")
    for place, row in rows:
        if str(row.get("filter")) != filters[0]:
            continue
        prompt = _prompt(row)
        requests = row.get("resps")
        texts = requests[0] if isinstance(requests, list) and requests else None
        if prompt is None or not isinstance(texts, list):
            notes.count("rows dropped: log-likelihoods of choices, not completions", place)
            continue
        document = nested(row, "doc")
        question = document_question(document)
        question = question if isinstance(question, str) else prompt
        answer = first_answer(row.get("target"), place, notes)
        source = source_question(document, place, question, answer, notes)
        if source is None:
            continue
        if question != prompt:
            notes.count(
                "questions are read without the evaluation's own prompt and examples", place
            )
        if not texts or not all(isinstance(text, str) for text in texts):
            notes.count("rows dropped: no completion", place)
            continue
        names = row.get("metrics")
        score = row.get(str(names[0]) if isinstance(names, list) and names else "exact_match")
        # The decision of the first metric, if it is 0 or 1 and there is one text.
        decided = len(texts) == 1 and isinstance(score, int | float) and score in (0, 1)
        correct = bool(score) if decided else None
        for text in texts:
            completion = Completion(text, 0, "stop")
            records.append(CompletionRecord(source, completion, correct=correct))
    notes.add(
        "lm-eval does not record which answers were truncated: they count as unparsed or wrong"
    )
    return records


def _prompt(row: Row) -> str | None:
    """The prompt of a request that generates; None for one that scores a given text.

    `arguments` holds gen_args_0: {arg_0: prompt, arg_1: settings}, or (until 0.4.3) lists of them.
    """
    arguments: Any = row.get("arguments")
    requests = [*arguments.values()] if isinstance(arguments, Mapping) else arguments
    first = requests[0] if isinstance(requests, list) and requests else None
    values = list(first.values()) if isinstance(first, Mapping) else first
    if not isinstance(values, list) or len(values) < 2 or not isinstance(values[1], Mapping):
        return None
    return str(values[0])


RLLM_ANSWERS = ("ground_truth", "answer", "final_answer")
RLLM_LIMITS = ("max_response_length_exceeded", "max_prompt_length_exceeded", "max_turns_exceeded")


def read_rllm(
    content: Row, file: Path, notes: Notes
) -> list[CompletionRecord] | list[SolveRateRecord]:
    """Completions if episodes/ next to the file has them, else rates by task.

    As written by rllm/eval/results.py (at 0038684) and episode_store.py (at 198c8e4): items of idx,
    attempt, task_id, is_correct, error, termination_reason; episode_NNNNNN_TASK.json with task
    (instruction, and metadata: its source row) and trajectories, NNNNNN = idx × attempts + attempt.
    The answer is read from metadata: ground_truth, answer or final_answer.
    """
    items = content["items"]
    if not isinstance(items, list) or not all(isinstance(i, dict) and "idx" in i for i in items):
        raise TaskError('invalid items: write a list of {"idx": …, "is_correct": …}')
    # Older runs write NAME.json next to the folder NAME.
    for folder in (file.parent / "episodes", file.parent / file.stem / "episodes"):
        files = sorted(folder.glob("episode_*.json"))
        numbers = (file.name.split("_")[1].removesuffix(".json") for file in files)
        numbered = zip(numbers, files, strict=True)
        if episodes := {int(number): file for number, file in numbered if number.isdigit()}:
            attempts = parse_count(content.get("attempts"), "results", "attempts") or 1
            return _completions(items, attempts, episodes, notes)
    notes.add("no episodes/ next to results.json: prompts are only identified by rLLM's task ids")
    groups: dict[str, list[Row]] = {}
    for item in items:
        name = item.get("task_id") or f"idx {_index(item, 'items')}"
        groups.setdefault(str(name), []).append(item)
    records = []
    for name, group in groups.items():
        scored = [item for item in group if not item.get("error")]
        successes = sum(bool(item.get("is_correct")) for item in scored)
        rate = successes / len(scored) if scored else None
        source = SourceQuestion(f"task {name}", "", "", "", name)
        failed = len(group) - len(scored)
        records.append(SolveRateRecord(source, rate, len(group), successes, failed))
    return records


def _completions(
    items: Sequence[Row], attempts: int, episodes: dict[int, Path], notes: Notes
) -> list[CompletionRecord]:
    records = []
    for number, item in enumerate(items):
        place = f"item {number}"
        attempt = parse_count(item.get("attempt"), place, "attempt") or 0
        index = _index(item, place) * attempts + attempt
        if index not in episodes:
            notes.count("items dropped: no episode was saved", place)
            continue
        file = episodes[index]
        try:
            episode = parse_json(read_bytes(file), str(file))
        except OSError as error:
            raise TaskError(f"{file} cannot be read: {error}") from error
        if not isinstance(episode, dict):
            raise TaskError(f"{file} is not an episode: write one JSON object")
        task = nested(episode, "task")
        row = nested(task, "metadata") or task
        answer = next((row[name] for name in RLLM_ANSWERS if row.get(name) is not None), None)
        question = row.get("question") or message_text(task.get("instruction"))
        source = source_question(row, place, question, answer, notes)
        if source is None:
            continue
        reason = item.get("termination_reason") or episode.get("termination_reason")
        finish = _finish(item.get("error"), reason in RLLM_LIMITS)
        # The model's last message: of the last step's chat, or the step's or the run's output.
        trajectory: Row = next(iter(objects(episode.get("trajectories"))), {})
        step: Row = next(reversed(objects(trajectory.get("steps"))), {})
        replies = (
            last_message(step.get("chat_completions"), "assistant"),
            step.get("model_response"),
            step.get("output"),
            trajectory.get("output"),
        )
        text = next((reply for reply in replies if isinstance(reply, str) and reply), "")
        completion = Completion(text, 0, finish)
        correct = bool(item.get("is_correct"))
        records.append(CompletionRecord(source, completion, correct=correct))
    return records


def _index(item: Row, place: str) -> int:
    index = parse_count(item["idx"], place, "idx")
    if index is None:
        raise TaskError(f"{place}: idx is null: write the task's number")
    return index


VERIFIERS_LIMITS = {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens"}
VERIFIERS_LIMITS |= {"compaction_failed", "context_length"}  # since 0.4.0, and at a60a606


def read_verifiers(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """One row per rollout, or (traces.jsonl of late v1) one row per episode with several traces.

    v0 as written by save_utils.py (0.1.14): prompt, completion, answer, info, reward, error,
    is_truncated, token_usage. v1 as in trace.py and episode.py (at 00eee6c and 11eb4d6, and in
    0.4.0): task.data, nodes, calls, rewards, errors, stop_condition. In both, the answer is the
    field `answer` of the task; the question is the task's, or else the prompt's last user message.
    prime-rl (at 559b447) writes such episodes to rollouts/step_N/train/all and effective.
    """
    records: list[CompletionRecord] = []
    for place, row in rows:
        read = _read_v1 if "nodes" in row or "traces" in row else _read_v0
        record = read(row, place, notes)
        if record is not None:
            records.append(record)
    if not any(record.source.answer for record in records):
        fields = sorted({name for _, row in rows for name in _task_data(row)})
        notes.add(f"no task has the field answer; tasks have: {', '.join(fields)}")
    _note_steps((nested(row, "run", "work").get("step") for _, row in rows), notes)
    traces = (trace for _, row in rows for trace in (row, *objects(row.get("traces"))))
    if any("advantages" in node for trace in traces for node in objects(trace.get("nodes"))):
        notes.add(
            "the rollouts that prime-rl trained on: by default (filter_zero_advantages) without "
            "prompts that were always or never solved; train/all next to train/effective has them"
        )
    return records


def _note_steps(steps: Iterable[Any], notes: Notes) -> None:
    if len(different := {str(step) for step in steps}) > 1:
        notes.add(
            f"rollouts of {counted(len(different), 'training step')}: not samples of one model"
        )


def _read_v0(row: Row, place: str, notes: Notes) -> CompletionRecord | None:
    info = json_object(row.get("info"))
    prompt = last_message(row.get("prompt"), "user")
    question = info.get("question") or row.get("question") or prompt
    answer = row.get("answer") or info.get("answer")
    source = source_question(info, place, question, answer, notes)
    if source is None:
        return None
    tokens = valid_count(nested(row, "token_usage").get("output_tokens"))
    text = last_message(row.get("completion"), "assistant")
    finish = _finish(row.get("error"), row.get("is_truncated"))
    return _record(source, text, tokens, finish, row.get("reward"))


def _read_v1(row: Row, place: str, notes: Notes) -> CompletionRecord | None:
    data = _task_data(row)
    question = data.get("question") or last_message(data.get("prompt"), "user")
    source = source_question(data, place, question, data.get("answer"), notes)
    if source is None:
        return None
    traces = objects(row["traces"]) if "traces" in row else [row]
    if len(traces) > 1:
        notes.count("rows dropped: several agents answer in one episode", place)
        return None
    if not traces:  # the run failed before a model was called
        return _record(source, "", None, "error", None)
    trace = traces[0]
    # Early v1 has no `sampled`; its only assistant messages are the model's.
    nodes = [
        node
        for node in objects(trace.get("nodes"))
        if node.get("sampled", nested(node, "message").get("role") == "assistant")
    ]
    calls = [call for call in objects(trace.get("calls")) if not call.get("error")]
    reply = trace.get("root_reply")
    if not isinstance(reply, str) or not reply:
        reply = message_text(nested(nodes[-1], "message").get("content")) if nodes else ""
    last = (calls or nodes or [{}])[-1]
    limited = str(trace.get("stop_condition")) in VERIFIERS_LIMITS
    truncated = limited or last.get("finish_reason") == "length"
    failed = bool(trace.get("errors")) and not trace.get("ok")
    counts = [valid_count(nested(call, "usage").get("completion_tokens")) for call in calls]
    tokens = None if None in counts or not counts else sum(c or 0 for c in counts)
    rewards = [reward for reward in nested(trace, "rewards").values() if reward is not None]
    weighted: list[tuple[Any, Any]] = [
        (reward.get("score"), reward.get("weight", 1.0))
        if isinstance(reward, Mapping)
        else (reward, 1)
        for reward in rewards
    ]
    numbers = all(isinstance(number, int | float) for pair in weighted for number in pair)
    reward = sum(map(prod, weighted)) if weighted and numbers else None
    return _record(source, reply, tokens, _finish(failed, truncated), reward)


def _record(
    source: SourceQuestion, text: str, tokens: int | None, finish: Finish, reward: Any
) -> CompletionRecord:
    # Only a plain 0 or 1 is a decision of the source's grader; a weighted sum is not.
    correct = bool(reward) if reward in (0, 1) else None
    return CompletionRecord(source, Completion(text, tokens or 0, finish), tokens, None, correct)


def _task_data(row: Row) -> Row:
    task = nested(row, "task")
    return nested(task, "data") or task or row


_NG_TASK, _NG_ANSWERS = "_ng_task_index", ("expected_answer", "answer")


def read_nemo_gym(
    rows: Sequence[PlacedRow], file: Path, notes: Notes
) -> list[CompletionRecord] | list[SolveRateRecord]:
    """NeMo-Gym's rollouts, reward profiles (`gym eval profile`), or inputs (at 07d6b0d, 0.5.1).

    Completions if rows have a `response`. A profile's solve rates are counts of the rewards in
    `rollout_infos`. The question is the last user message of the model's input, the answer the
    field expected_answer or answer of the row, or of its task in OUT_materialized_inputs.jsonl.
    """
    beside = file.with_name(f"{file.stem}_materialized_inputs.jsonl")
    written = read_file(beside, []).rows if os.path.isfile(beside) else []
    inputs = {valid_count(row.get(_NG_TASK)): row for row in written}
    completions, rated = [], []
    for place, row in rows:
        task = nested(row, "sample") or {**row, **inputs.get(valid_count(row.get(_NG_TASK)), {})}
        question = nested(task, "responses_create_params").get("input")
        question = chat_question(question, place, notes)
        golds = (task[name] for name in _NG_ANSWERS if task.get(name) is not None)
        answer = first_answer(next(golds, None), place, notes)
        source = source_question(task, place, question, answer, notes)
        if source is None:
            continue
        if "response" not in row:
            rated.append(_profiled(row, source, notes))
            continue
        response = nested(row, "response")
        failed = not response or bool(response.get("error")) or "_ng_failure_class" in row
        cut = nested(response, "incomplete_details").get("reason") == "max_output_tokens"
        tokens = valid_count(nested(response, "usage").get("output_tokens"))
        text = last_message(response.get("output"), "assistant")
        finish = _finish(failed, cut)
        completions.append(_record(source, text, tokens, finish, row.get("reward")))
    return completions or rated


def _profiled(row: Row, source: SourceQuestion, notes: Notes) -> SolveRateRecord:
    if "mean/reward" in row and "rollout_infos" not in row:
        raise TaskError(
            f"{source.place}: no rollout_infos, so the rewards cannot be counted: import the "
            "rollouts, or a profile by a newer NeMo-Gym"
        )
    rewards = [info.get("reward") for info in objects(row.get("rollout_infos"))]
    scored = [reward for reward in rewards if reward is not None]
    for reward in scored:
        if reward not in (0, 1):
            raise TaskError(
                f"{source.place}: the reward {reward!r:.60} is not 0 or 1, so correct answers "
                "cannot be counted: import the rollouts, which the task marks"
            )
    if row.get("missing_num_rollouts"):
        notes.count("prompts have missing rollouts, which do not count", source.place)
    if not scored:
        return SolveRateRecord(source, None)
    errors = len(rewards) - len(scored)
    rate = sum(scored) / len(scored)
    return SolveRateRecord(source, rate, len(rewards), int(sum(scored)), errors)


SKYWORK_SAMPLES = 16
PLACEHOLDER = "placeholder"  # the prompt of rLLM's files for verl


def read_skywork(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """Skywork-OR1-RL-Data: verl's columns, and extra_info.model_difficulty by model.

    According to its dataset card (read at 1cdedc5): a number from 0 to 16 for each of three models.
    It counts failures: the authors keep 1 to 15 (or1_scripts at 2336f0a), and other users of the
    data set call 0 too easy and 16 too hard. `ground_truth` is a JSON list of answers.
    """
    difficulties = [nested(row, "extra_info", "model_difficulty") for _, row in rows]
    models = [*dict.fromkeys(name for entry in difficulties for name in entry)]
    model = models[0] if hints.model is None and len(models) == 1 else hints.model
    if model not in models:
        problem = f"no difficulty for model {model!r}" if model else "several models are rated"
        raise TaskError(f"{problem}: write --model with one of {', '.join(models)}")
    records = []
    for place, row in rows:
        question = chat_question(row.get("prompt"), place, notes)
        source = source_question(row, place, question, _skywork_answer(row, place, notes), notes)
        if source is None:
            continue
        count = nested(row, "extra_info", "model_difficulty").get(model)
        failures = parse_count(count, place, f"model_difficulty of {model}")
        if failures is None:
            records.append(SolveRateRecord(source, None))
            continue
        if failures > SKYWORK_SAMPLES:
            raise TaskError(f"{place}: {counted(failures, 'failure')} of {SKYWORK_SAMPLES} samples")
        successes = SKYWORK_SAMPLES - failures
        rate = successes / SKYWORK_SAMPLES
        records.append(SolveRateRecord(source, rate, SKYWORK_SAMPLES, successes))
    return records


def _skywork_answer(row: Row, place: str, notes: Notes) -> Any:
    """The first of a JSON list of answers, or `ground_truth` unchanged."""
    truth = nested(row, "reward_model").get("ground_truth")
    try:
        answers = json.loads(truth) if isinstance(truth, str) else truth
    except (ValueError, RecursionError):
        return truth
    if isinstance(answers, dict):  # a program's tests: there is no answer to mark
        return None
    return first_answer(answers, place, notes) if isinstance(answers, list) else truth


def read_verl(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[SolveRateRecord]:
    """verl's columns (DAPO-Math-17k has them): prompt, reward_model.ground_truth, extra_info.

    As written by examples/data_preprocess/gsm8k.py (verl at 030a519). The question is
    extra_info.question if it exists, else the last user message. rLLM's files for verl (at 9beb6e0)
    have placeholders, and their texts in extra_info. A solve rate is read from a column, or a key
    of extra_info, with the name of a solve rate, if any.
    """
    flat = [PlacedRow(place, {**nested(row, "extra_info"), **row}) for place, row in rows]
    columns = rate_columns((row for _, row in flat), hints)
    records = []
    for place, row in flat:
        truth = nested(row, "reward_model").get("ground_truth")
        truth = row.get("ground_truth", row.get("answer")) if truth is None else truth
        answer = first_answer(truth, place, notes)
        question = nested(row, "extra_info").get("question")
        if not isinstance(question, str) or not question.strip():
            question = chat_question(row.get("prompt"), place, notes)
            question = None if question == PLACEHOLDER else question
        source = source_question(row, place, question, answer, notes)
        if source is not None:
            records.append(rate_record(row, source, columns, hints))
    return records


def read_rollouts(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """Rollout dumps of verl (trainer.rollout_data_dir, validation_data_dir; at b178a3c).

    Columns: input (the decoded prompt), output, gts (absent in older files), score, step.
    """
    records = []
    for place, row in rows:
        texts = {}
        for name in ("input", "output"):
            if not isinstance(row.get(name), str):
                raise TaskError(f"{place}: {name} is {row.get(name)!r:.60}: expected text")
            texts[name] = row[name]
        question = decoded_question(texts["input"], place, notes)
        answer = first_answer(row.get("gts"), place, notes)
        source = source_question(row, place, question, answer, notes)
        if source is None:
            continue
        score = row.get("acc", row.get("score"))
        correct = bool(score == 1) if score in (0, 1, -1) else None  # True and False are 1 and 0
        completion = Completion(texts["output"], 0, "stop")
        records.append(CompletionRecord(source, completion, correct=correct))
    _note_steps((row.get("step") for _, row in rows), notes)
    notes.add("verl does not record which answers were truncated: they count as unparsed or wrong")
    return records

"""Checks before sampling: a marker on its own gold answers, and an engine on its worker."""

import hashlib
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from cluster.actors import WorkerFails, interpreter_path, interpreter_problem, run_in_worker
from cluster.terminal import PlainError
from orchestrator.config.probe import Probe, check_engine_args
from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.plugins.counts import counted
from orchestrator.plugins.project_modules import PACKAGES, ROOT
from orchestrator.probing.attacks import BOMBS
from orchestrator.probing.isolation import NOT_TRIED, mark_answers
from orchestrator.sampling import find_sampler
from orchestrator.sampling.base import SamplingError
from tasks import Answer, Mark, Prompt, Task, TaskError, is_shipped, task_errors
from tasks.environments import Session, environment_of, environments_of, row_of, tool_schemas
from tasks.prompt_table import PromptTable, labelled
from tasks.question_file import QuestionFile

BATCH = 50_000  # golds that are marked at once
PERTURBED = 200  # golds that are altered and marked, evenly spread: seconds for any pool
RESET = 8  # rows with which an environment is reset
CALLED = 20  # golds in calls of a reward function, which may take seconds for each
TIME_LIMIT = 60.0  # seconds for answers built to hang, including the start of a verifier


class MarkerFails(PlainError, RuntimeError):
    """A marker gets its own answers wrong; the message has the answer and the rule."""


def check_function(task: QuestionFile, prompts: Sequence[Prompt]) -> str:
    """Call a function on some golds, evenly spread; returns a line on scores. Raises MarkerFails.

    The scores are not judged: the function may require more than the answer in a completion.
    """
    some = prompts[:: -(-len(prompts) // CALLED)]
    marks = mark_answers(task, [Answer.to(p, task.solution(p) or "") for p in some])
    for prompt, mark in zip(some, marks, strict=True):
        if mark.outcome == "error":
            raise MarkerFails(
                f"marker {task.marker} fails for the answer {prompt.answer!r:.80}: {mark.rule}"
            )
    correct = sum(mark.outcome == "correct" for mark in marks)
    mean = sum(mark.score or 0.0 for mark in marks) / len(marks)
    return (
        f"{task.marker} called for {counted(len(marks), 'gold answer')}: {correct} correct, mean "
        f"score {mean:.2f}"
    )


def check_environment(task: Task, prompts: Sequence[Prompt]) -> str:
    """Describe the tools, and reset the environment with some rows, evenly spread.

    Raises MarkerFails if a reset fails, or if the model would get no prompt.
    """
    assert task.environment is not None
    some = prompts[:: -(-len(prompts) // RESET)]
    chats = [task.messages(prompt.question) for prompt in some]
    sessions = [
        Session(p.prompt_id, row_of(p, chat), p.prompt_id)
        for p, chat in zip(some, chats, strict=True)
    ]
    environment = environment_of(task.environment)
    try:
        tool_schemas(task.environment)
        texts = environments_of(task).reset(sessions)
    except TaskError as error:
        raise MarkerFails(str(error)) from error
    finally:
        environments_of(task).close()
    for session, text, chat in zip(sessions, texts, chats, strict=True):
        if session.failure:
            raise MarkerFails(
                f"environment {environment.reference} cannot be reset with the row "
                f"{session.row!r:.200}: {session.failure}"
            )
        if not (text or chat[-1]["content"].strip()):
            raise MarkerFails(
                f"environment {environment.reference}: reset() returns no text, and the row has no "
                "question: the model would get no prompt"
            )
    tools = f"{counted(len(environment.tools), 'tool')} ({', '.join(environment.tools)})"
    return f"{environment.reference} reset with {counted(len(sessions), 'row')}, {tools}"


def check_marker(task: Task, prompts: Sequence[Prompt]) -> str:
    """Every gold must mark correct, a perturbed gold wrong, and a bomb not correct, in time.

    Returns a line on the checks; raises MarkerFails if one fails. Up to PERTURBED golds, evenly
    spread, are perturbed. Reward functions are only called (`check_function`), and environments
    only reset.
    """
    if not prompts:
        raise MarkerFails(f"task {task.name} has no prompts to check its marker on")
    if task.environment is not None:
        return check_environment(task, prompts)
    if isinstance(task, QuestionFile) and task.function is not None:
        return check_function(task, prompts)
    remaining, checked = iter(prompts), 0
    while batch := [*islice(remaining, BATCH)]:
        with task_errors(task, "solution() or format_answer()"):
            pairs = [(prompt, task.solution(prompt)) for prompt in batch]
        golds = [Answer.to(prompt, text) for prompt, text in pairs if text is not None]
        _check_outcomes(golds, mark_answers(task, golds, 0), "correct")
        checked += len(golds)
    some = prompts[:: -(-len(prompts) // PERTURBED)]
    some = [prompt for prompt in some if task.own(prompt)[0].reads(prompt.answer)]
    with task_errors(task, "format_answer() or perturb()"):
        perturbed = [Answer.to(p, task.wrong_completion(p)) for p in some]
    _check_outcomes(perturbed, mark_answers(task, perturbed, 0), "wrong")
    gold, started = prompts[0].answer, time.monotonic()
    marks = mark_answers(task, [Answer.to(prompts[0], bomb) for bomb in BOMBS])
    seconds = time.monotonic() - started
    for bomb, mark in zip(BOMBS, marks, strict=True):
        if mark.outcome == "correct":
            raise MarkerFails(f"{bomb[:30]!r} for {gold!r} marks correct by {mark.rule}")
    if seconds > TIME_LIMIT and is_shipped(task):  # custom markers have limits of their own
        raise MarkerFails(f"marking {len(BOMBS)} answers built to hang took {seconds:.0f} s")
    unread = task.unread_golds([prompt.answer for prompt in prompts])
    return (
        f"{counted(checked, 'gold answer')} marked correct, {len(perturbed):,} altered ones wrong, "
        f"{len(BOMBS)} pathological ones handled in time{'; ' + unread if unread else ''}"
    )


def check_dataset(dataset: Dataset) -> str:
    """Check a dataset's marker on every answer of both splits. Raises MarkerFails."""
    pool = load_pool(dataset)
    prompts = PromptTable([*pool.test.batches, *pool.train.batches])
    if with_golds := prompts.filter(labelled(prompts, pool.task)):
        return check_marker(pool.task, with_golds)
    tasks = pool.task.mixed_tasks or [pool.task]  # examples replace missing gold answers
    return "; ".join(check_marker(task, task.check_prompts()) for task in tasks)


def _check_outcomes(answers: Sequence[Answer], marks: Sequence[Mark], outcome: str) -> None:
    for answer, mark in zip(answers, marks, strict=True):
        if mark.outcome != outcome and mark.rule != NOT_TRIED:
            raise MarkerFails(
                f"{answer.completion!r:.200} should be {outcome}, but marks {mark.outcome} by "
                f"{mark.rule}: its marker or this answer is wrong "
                f"(question {answer.question!r:.100})"
            )


class EngineFails(RuntimeError):
    """An engine cannot be loaded; the message has the reason and a remedy."""


class _Engine(NamedTuple):
    name: str
    args: dict[str, Any]
    sources: str  # `source_hash` of the driver


def check_engine(settings: Probe, gpus: float) -> str:
    """The engine's library, version and interpreter, from a Ray worker with this many GPUs.

    Raises EngineFails.
    """
    python = settings.engine_python
    try:
        if python and (problem := run_in_worker(interpreter_problem, python, gpus)):
            raise EngineFails(f"{problem}; make engine-vllm builds such an environment")
        engine = _Engine(settings.engine, settings.engine_args, source_hash())
        version = run_in_worker(_version, engine, gpus, python)
    except WorkerFails as error:
        raise EngineFails(
            f"decile cannot be imported by {python}: {error}; install it there: "
            f"{python} -m pip install -e FOLDER"
        ) from error
    return f"{version} ({interpreter_path(python)})" if python else version


def _version(engine: _Engine) -> str:
    """The version of the engine's library in this process, after a check of its settings."""
    if source_hash() != engine.sources:
        raise EngineFails(
            f"the decile in {ROOT} differs from that of this run: install the same version"
        )
    try:
        version = find_sampler(engine.name).version() or engine.name
        check_engine_args(engine.name, engine.args)  # here, vLLM's own names are known
    except (SamplingError, ValueError) as error:
        raise EngineFails(str(error)) from error
    return version


def source_hash() -> str:
    """A hash of the source of Decile's packages."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()

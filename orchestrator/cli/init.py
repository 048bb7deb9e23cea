"""`decile init`: looks at a file of questions and writes an experiments.yaml that fits it."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar, get_args

from cluster.session import this_machine
from orchestrator.cli.init_model import ModelChoice, choose_model, slug
from orchestrator.cli.init_plan import Data, Site, make_starter
from orchestrator.cli.init_text import next_lines, plan_lines, survey_lines
from orchestrator.config.catalog import load_config
from orchestrator.config.starter import EXPERIMENT
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.output import check_output
from orchestrator.storage.store import Store
from tasks import TaskError, task_names
from tasks.file_answers import Marker
from tasks.file_survey import (
    FileSurvey,
    check_column,
    choose_columns,
    columns_of,
    survey_rows,
)
from tasks.files import SUFFIXES, Rows, read_file

T = TypeVar("T")
_MARKERS: tuple[Marker, ...] = get_args(Marker)


class Answers:
    """Replies to questions: asked for on a terminal, the defaults with --yes."""

    def __init__(self, yes: bool) -> None:
        self.yes = yes
        self.asks = not yes and sys.stdin.isatty()

    def get(self, question: str, default: str, check: Callable[[str], T]) -> T:
        """The reply, checked; one that `check` refuses is asked for again."""
        if not self.asks:
            return check(default)
        while True:
            try:
                reply = input(f"{question}{f' [{default}]' if default else ''}: ").strip()
                return check(reply or default)
            except EOFError as error:
                raise UserError(f"{question}: no reply: pass it as an option") from error
            except (UserError, TaskError) as error:
                print(f"  {error}")


class QuestionRows(NamedTuple):
    """A file of questions: its path as the user wrote it, and its rows."""

    path: str
    read: Rows

    def survey(
        self, question: str | None, answer: str | None, marker: Marker | None = None
    ) -> FileSurvey:
        """The survey of the rows. Raises TaskError with the file's name."""
        try:
            return survey_rows(self.read, question, answer, marker)
        except TaskError as error:
            raise TaskError(f"{self.path}: {error}") from error


def init(arguments: argparse.Namespace) -> int:
    """Survey the data, print it, and write a file that `decile plan` accepts."""
    _check_new(arguments.output, arguments.force)
    answers, site = Answers(arguments.yes), Site.of(this_machine())
    _check_complete(arguments, answers)
    if arguments.train is not None and arguments.model is not None:
        answers.asks = False  # what is not given is derived from the data
    model = None if arguments.model is None else choose_model(arguments.model)
    train = _train(arguments.train, answers)
    test = _test(arguments, answers)
    survey = _survey(arguments, train, answers)
    print("\n".join(survey_lines(train.path, survey)))
    data = Data(_dataset_name(train.path), train.path, survey)
    if test:
        held_out = test.survey(survey.question, survey.answer, survey.marker)
        print("\n".join(survey_lines(test.path, held_out)))
        data = data._replace(test=test.path, test_survey=held_out)
    model = model or _model(answers, site)
    starter, sizing = make_starter(data, model, site)
    plan = write_planned(arguments.output, starter.render())
    print("\n".join(plan_lines(plan, starter, model, site, sizing)))
    print("\n".join(next_lines(arguments.output, plan)))
    return 0


def _check_new(output: Path, force: bool) -> None:
    check_output(output, (".yaml", ".yml"))
    if os.path.lexists(output) and not force:
        raise UserError(
            f"output {output} exists: write --output with another name, or --force to replace it"
        )


def _check_complete(arguments: argparse.Namespace, answers: Answers) -> None:
    """Raise UserError for what is neither given nor asked for nor has a default."""
    missing = ["--train FILE"] if arguments.train is None else []
    missing += ["--model NAME"] if arguments.model is None and not answers.yes else []
    if missing and not answers.asks:
        raise UserError(
            f"{' and '.join(missing)} missing: pass "
            f"{'it' if len(missing) == 1 else 'them'}, or run decile init on a terminal to be asked"
        )


def _train(path: str | None, answers: Answers) -> QuestionRows:
    if path is not None:
        return _read(path, "train")
    return answers.get("training file", "", lambda reply: _read(reply, "train"))


def _test(arguments: argparse.Namespace, answers: Answers) -> QuestionRows | None:
    """The test file, where one is given, asked for, or beside the training file of a folder."""
    if arguments.test is not None:
        return _read(arguments.test, "test")
    if arguments.train is not None and Path(arguments.train).is_dir():
        files = [Path(arguments.train) / f"test{suffix}" for suffix in SUFFIXES]
        return next((_read(str(file), "test") for file in files if file.is_file()), None)
    question = "test file, or nothing to hold out a part of the training file"
    return answers.get(question, "", lambda reply: _read(reply, "test") if reply else None)


def _read(path: str, split: str) -> QuestionRows:
    """The rows of a file, or of a folder's file with the split's name. Raises UserError."""
    try:
        os.fsencode(path).decode("utf-8")  # the written file is UTF-8
        file = Path(path)
        if path and file.is_dir():
            files = [file / f"{split}{suffix}" for suffix in SUFFIXES]
            file = next((one for one in files if one.is_file()), files[0])
        rows = read_file(file, ())
    except TaskError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name is not UTF-8"
        raise UserError(f"{shortened(path)} cannot be read: {reason}: rename it") from error
    return QuestionRows(path if file == Path(path) else str(file), rows)


def _survey(arguments: argparse.Namespace, train: QuestionRows, answers: Answers) -> FileSurvey:
    """The survey under the columns and the marker that are given, asked for or recognized."""
    question, answer, marker = arguments.question, arguments.answer, arguments.marker
    if not answers.asks:
        return train.survey(question, answer, marker)
    columns = columns_of(train.read.rows)

    def column(name: str) -> str:
        check_column(columns, name)
        return name

    try:
        recognized = choose_columns(columns, question, answer)
    except TaskError as error:
        print(f"  {error}")
        recognized = ("", "")
    question = question or answers.get("column of the questions", recognized[0], column)
    answer = answer or answers.get("column of the answers", recognized[1], column)
    survey = train.survey(question, answer, marker)
    if marker is None:
        chosen = answers.get(f"marker ({', '.join(_MARKERS)})", survey.marker, _marker)
        survey = survey if chosen == survey.marker else train.survey(question, answer, chosen)
    return survey


def _marker(name: str) -> Marker:
    for marker in _MARKERS:
        if name == marker:
            return marker
    raise UserError(f"unknown marker {shortened(name)}: write one of {', '.join(_MARKERS)}")


def _model(answers: Answers, site: Site) -> ModelChoice:
    default = "Qwen/Qwen3-4B" if site.gpus else "tiny-arithmetic"
    return answers.get("model: a Hub id, a folder or an embedded name", default, choose_model)


def _dataset_name(path: str) -> str:
    """A name for the dataset, from the file's or its folder's; not that of a task."""
    file = Path(path).resolve()
    stem = file.name.partition(".")[0]
    name = slug(file.parent.name if stem in ("train", "data") else stem, "questions")
    return f"my-{name}" if name in task_names() else name


def write_planned(output: Path, text: str) -> Plan:
    """Write the file, replacing what is there, if `decile plan` accepts it. Raises UserError."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / output.name
        draft.write_text(text, encoding="utf-8")
        try:
            plan = make_plan(load_config(draft), EXPERIMENT)
        except UserError as error:
            raise UserError(str(error).replace(str(draft), str(output))) from error
    Store(str(output.resolve().parent)).write_bytes(text.encode(), output.name)
    return plan

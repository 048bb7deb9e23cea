"""`decile init`: looks at a file of questions and writes an experiments.yaml that fits it.

The experiment that it proposes fits the data, the model (an embedded name, a folder, a GGUF file or
a Hub id) and the machine; what it found out about each is printed.
"""

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args

from cluster.session import this_machine
from cluster.terminal import ask, echo
from orchestrator.cli.exit_codes import ExitCode
from orchestrator.cli.plan_summary import plan_summary
from orchestrator.config.catalog import load_config
from orchestrator.config.starter import Starter
from orchestrator.cost.memory import DEFAULT_GPU, GIB, Sizing, gpu_type
from orchestrator.pipeline.long_prompts import check_long_prompts
from orchestrator.pipeline.open_plan import open_plan
from orchestrator.pipeline.own_data import (
    Data,
    Machine,
    ModelChoice,
    QuestionRows,
    choose_model,
    make_starter,
    read_questions,
    test_beside,
    title_of_files,
)
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.plugins.counts import counted, counted_label
from orchestrator.report.layout import output_width, wrapped
from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.local_files import check_output
from orchestrator.storage.store import Store
from tasks import TaskError
from tasks.marking.golds import Marker
from tasks.sources.roles import ROLES, spelling
from tasks.sources.survey import MIX, FileSurvey, check_column, choose_columns, columns_of

_ROWS = 3  # listed rows that cannot be used
_COLUMNS = 8
CLEANING = (
    *("max_prompt_tokens", "duplicates", "conflicts", "clean_test", "drop_overlap"),
    "corrections",
)
PATHS = ("path", "train", "test")  # options of task file
_MARKED = "with a gold answer that is marked correct"


def survey_lines(path: str, survey: FileSurvey) -> list[str]:
    """What a file holds."""
    names = [f"{name!r:.40}" for name in list(survey.columns)[:_COLUMNS]]
    more = len(survey.columns) - len(names)
    names += [f"{more} more"] if more else []
    head = f"{_name(path)}: {counted(survey.rows, 'row')}, columns {', '.join(names)}"
    lines = [wrapped(head, output_width())]
    questions = [
        f"{survey.question!r:.40}",
        f"up to {counted(survey.longest_question, 'character')}",
    ]
    if survey.repeated:
        questions.append(f"{survey.repeated:,} repeated")
    if survey.contradicted:
        questions.append(f"{survey.contradicted:,} with several answers")
    lines.append(_line("questions", ", ".join(questions)))
    if survey.choices:
        lines.append(_line("", "the choices, in separate columns, are added to each question"))
    lines += [_line("", note) for note in survey.choice_notes]
    if survey.rendered:
        taken = f"{survey.rendered:,} are rendered in a chat template, which is removed"
        lines.append(_line("", taken))
    if survey.inputs:
        lines.append(_line("", f"'input' is appended to {survey.question!r:.40}"))
    for name in survey.contexts:
        unused = f"{name!r:.40} is not used: add it to the question if that needs it"
        lines.append(_line("", unused))
    forms = ", ".join(counted_label(count, form) for form, count in survey.forms.items())
    worked = f"; {counted(survey.worked, 'worked solution')} with the answer at the end"
    worked = worked if survey.worked else ""
    known = spelling(survey.answer.rpartition(".")[2]) in ROLES["answer"].names
    only = "" if known or survey.answer == survey.question else " (not a known name for answers)"
    lines.append(_line("answers", f"{survey.answer!r:.40}{only}: {forms or 'none'}{worked}"))
    if survey.unlabelled:
        lines.append(_line("", f"{counted(survey.unlabelled, 'row')} without an answer yet"))
    if survey.parts:
        lines.append(_line("mix", f"{counted(len(survey.parts), 'data set')}, one per marker"))
    for part in survey.parts or [survey]:
        what = "with a question and an answer" if ":" in part.marker else _MARKED
        without = part.unlabelled or 0
        counts = f"{part.valid - without:,} of {counted(part.rows - without, 'row')} {what}"
        lines.append(_line("marker", f"{part.marker}: {counts}"))
    lines += [*_likely_lines(survey), *_comma_lines(survey)]
    if survey.mixed:
        lines.append(_line("", f"the answers are a mixture: {survey.mixed}"))
    for place, reason in of_every_reason(survey.invalid, _ROWS):
        lines.append(_line("", f"invalid: {_name(place)}, {reason}"))
    if (rest := len(survey.invalid) - _ROWS) > 0:
        lines.append(_line("", f"invalid: {rest:,} more"))
    if survey.tier:
        lines.append(_line("tiers", f"{survey.tier!r:.40}"))
    if survey.source:
        kept = ", kept with each prompt; the data sets of the mix are its sources"
        lines.append(_line("sources", f"{survey.source!r:.40}{kept if survey.mix else ''}"))
    if survey.id:
        lines.append(_line("ids", f"{survey.id!r:.40} is kept with each prompt"))
    if survey.id_names:
        columns = ", ".join(f"{name!r:.40} ({place})" for name, place in survey.id_names.items())
        lines.append(_line("ids", f"not kept, under several names: {columns}; rename one of them"))
    return lines


def of_every_reason(rows: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Up to `most` places and reasons: the first place of each reason, then the others."""
    first: dict[str, tuple[str, str]] = {}
    for row in rows:
        first.setdefault(row[1], row)
    examples = [*first.values()][:most]
    others = (row for row in rows if row not in examples)
    return [*examples, *islice(others, most - len(examples))]


def _comma_lines(survey: FileSurvey) -> list[str]:
    """How a comma between two numbers is read, where answers have one."""
    text = "3,5 is read as the two numbers 3 and 5: write 3.5 for a decimal"
    return [_line("", text)] if survey.forms.get("numbers with a comma") else []


def _likely_lines(survey: FileSurvey) -> list[str]:
    """The share of gold answers that a model could give, and the usable rows with other answers."""
    if not survey.likely:
        return []
    likely = sum(count for count, _ in survey.likely.values())
    total = sum(count for _, count in survey.likely.values())
    by_form = ", ".join(f"{n:,} of {all_:,} {form}" for form, (n, all_) in survey.likely.items())
    lines = [
        _line("possible", f"{likely:,} of {total:,} gold answers that a model can give: {by_form}")
    ]
    for place, reason in survey.unlikely[:_ROWS]:
        lines.append(_line("", f"not possible: {_name(place)}, {reason}"))
    if (rest := len(survey.unlikely) - _ROWS) > 0:
        lines.append(_line("", f"not possible: {rest:,} more"))
    return lines


def plan_lines(
    plan: Plan, starter: Starter, model: ModelChoice, site: Machine, sizing: Sizing | None
) -> list[str]:
    """The split, the model and how the plan fits the machine."""
    pool = plan.pools[starter.dataset]
    split = (
        f"{counted(len(pool.train), 'training prompt')}, {counted(len(pool.test), 'test question')}"
    )
    options = [starter.options, *(part["options"] for part in starter.parts.values())]
    split += " (held out)" if any("test_share" in each for each in options) else ""
    size = plan.cells[0].size
    millions = model.shape.parameters / 1e6 if model.shape else 0.0
    large = f"{millions / 1e3:.3g} billion" if millions >= 1e3 else f"{millions:.3g} million"
    gpus = counted(site.gpus, "GPU") if site.gpus else "no GPU"
    return [
        _line("pool", split),
        *(
            _line("", note)
            for note in (*pool.row_lines, *pool.notes, *pool.flaw_lines, *pool.overlap_lines)
        ),
        _line("budget", f"{starter.budget:.0%} of the pool: {counted(size, 'prompt')} per policy"),
        *(_line("", note) for note in plan.unused_budgets),
        _line("model", f"{starter.model}, {large} parameters" if millions else starter.model),
        _line("machine", f"{counted(site.cpus, 'CPU')}, {gpus}"),
        *(_line("", warning) for warning in _trial_lines(starter, site, sizing)),
    ]


def _trial_lines(starter: Starter, site: Machine, sizing: Sizing | None) -> list[str]:
    """How a trial fits the GPU or, without one, the memory of the machine."""
    if not starter.gpus and sizing:
        need = f"a trial takes {counted(starter.cpus, 'CPU')} and about {sizing.peak / GIB:.1f} GiB"
        return [f"{need} of memory (estimated)"]
    if not starter.gpus:
        return []
    lines = []
    if not site.gpus:
        lines.append(f"a trial needs a GPU; estimates assume {site.device.name}")
    elif not site.recognized:
        lines.append(f"the GPU's memory is not known; estimates assume {site.device.name}")
    if sizing is None:
        lines.append("the model's size is not known here, so its memory is not estimated")
    elif sizing.fits:
        in_4bit = " in 4 bits" if sizing.load_in_4bit else ""
        lines.append(f"a trial takes about {sizing.peak / GIB:.0f} GiB{in_4bit} (estimated)")
    else:
        lines.append(
            f"a trial takes about {sizing.peak / GIB:.0f} GiB, even in 4 bits: more than "
            f"{site.device.name} has; use a smaller model or larger GPU"
        )
    return lines


def forecast_lines(file: Path, experiment: str, machine: Mapping[str, float]) -> list[str]:
    """How long `decile plan` expects the experiment to take on this machine."""
    run = Run.of(*open_plan(file, experiment, None), machine)
    summary = plan_summary(run, Site(machine, gpu_type(machine) or DEFAULT_GPU))
    time = summary.time_lines()[0] if summary.cells_to_run else "nothing to run"
    return [_line("forecast", time.removeprefix("ETA: "))]


def next_lines(file: Path, plan: Plan) -> list[str]:
    """The commands that follow."""
    name = f"{shlex.quote(str(file))} -e {shlex.quote(plan.name)}"
    lines = [
        "",
        f"Wrote {_name(str(file))}. Next:",
        f"  decile plan {name}   # what would run; with --pilot, how long",
        f"  decile probe {name}  # how hard each prompt is",
    ]
    if plan.lacking_golds:
        chosen = "--policy least_agreed --to-label labels.csv"
        return [*lines, f"  decile select {name} {chosen}  # which prompts to label"]
    return [
        *lines,
        f"  decile export {name} --policy hard --layout trl --out hard.jsonl",
        f"  decile run {name}    # train with every policy and compare",
    ]


def _line(label: str, text: str) -> str:
    return wrapped(f"  {label:<10} {text}", output_width(), 11 if label else 0)


def _name(path: str) -> str:
    """A path on one line."""
    return path if path.isprintable() else repr(path)


T = TypeVar("T")
_MARKERS: tuple[Marker, ...] = get_args(Marker)


class Answers:
    """Replies to questions: asked for on a terminal, the defaults with --yes."""

    def __init__(self, yes: bool) -> None:
        self.yes = yes
        self.asks = not yes and sys.stdin.isatty()

    def get(self, question: str, default: str, check: Callable[[str], T]) -> T:
        """The checked reply; asks again if `check` refuses it."""
        if not self.asks:
            return check(default)
        while True:
            try:
                reply = ask(f"{question}{f' [{default}]' if default else ''}: ").strip()
                return check(reply or default)
            except EOFError as error:
                raise UserError(f"{question}: no reply: pass it as an option") from error
            except (UserError, TaskError) as error:
                echo(f"  {error}")


def init(arguments: argparse.Namespace) -> int:
    """Survey the data, print it, and write a file that `decile plan` accepts."""
    check_output(arguments.out, (".yaml", ".yml"))
    if arguments.problems:
        check_output(arguments.problems, (".jsonl",))
    machine = this_machine()
    answers, site = Answers(arguments.yes), Machine.of(machine)
    missing = ["--train FILE"] if arguments.train is None else []
    missing += ["--model NAME"] if arguments.model is None and not answers.yes else []
    if missing and not answers.asks:
        raise UserError(
            f"{' and '.join(missing)} missing: pass "
            f"{'it' if len(missing) == 1 else 'them'}, or run decile init on a terminal to be asked"
        )
    if arguments.train is not None and arguments.model is not None:
        answers.asks = False  # what is not given is derived from the data
    model = None if arguments.model is None else choose_model(arguments.model)
    if arguments.train is not None:
        train = read_questions(arguments.train, "train")
    else:
        train = answers.get("training file", "", lambda reply: read_questions(reply, "train"))
    test: QuestionRows | None
    if arguments.test is not None:
        test = read_questions(arguments.test, "test")
    elif arguments.train is not None:
        test = test_beside(arguments.train)
    else:
        question = "test file (leave empty to hold out a part of the training file)"
        test = answers.get(
            question, "", lambda file: read_questions(file, "test") if file else None
        )
    data = Data.of(train, _survey(arguments, train, answers), test)
    echo("\n".join(survey_lines(train.title, data.survey)))
    if data.test and data.test_survey:
        echo("\n".join(survey_lines(title_of_files(data.test), data.test_survey)))
    if model is None:
        default = "Qwen/Qwen3-4B" if site.gpus else "tiny-arithmetic"
        question = "model: a Hub id, a folder, a .gguf file or an embedded name"
        model = answers.get(question, default, choose_model)
    starter, sizing = make_starter(data, model, site)
    given = {name: getattr(arguments, name) for name in CLEANING}
    cleaning = {name: value for name, value in given.items() if value}
    starter = replace(starter, cleaning=cleaning)
    plan = write_planned(arguments.out, starter, machine)
    echo("\n".join(plan_lines(plan, starter, model, site, sizing)))
    echo("\n".join(forecast_lines(arguments.out, plan.name, machine)))
    if arguments.problems:
        echo(_line("problems", write_problems(arguments.problems, plan)))
    echo("\n".join(next_lines(arguments.out, plan)))
    return ExitCode.DONE


def write_problems(output: Path, plan: Plan) -> str:
    """Write the flawed rows of the plan's data set as JSON lines; returns what to do with them."""
    rows = plan.pools[plan.name].flaw_rows()
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    Store(str(output.resolve().parent)).write_bytes(text.encode(), output.name)
    if not rows:
        return f"none: {_name(str(output))} is empty"
    return (
        f"{counted(len(rows), 'row')} in {_name(str(output))}: correct question and answer, or set "
        f"keep: false, and run this command with --corrections {shlex.quote(str(output))} --force"
    )


def _relative_to(file: Path, settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The settings with relative paths as they are written in the file: relative to its folder."""
    folder = os.path.realpath(file.parent)
    if folder == os.getcwd():
        return dict(settings)

    def relative(path: str) -> str:
        return path if os.path.isabs(path) else os.path.relpath(os.path.realpath(path), folder)

    return {
        name: value
        if name not in names
        else [*map(relative, value)]
        if isinstance(value, list)
        else relative(value)
        for name, value in settings.items()
    }


def _survey(arguments: argparse.Namespace, train: QuestionRows, answers: Answers) -> FileSurvey:
    """The survey under the columns and the marker that are given, asked for or recognized."""
    question, answer, marker = arguments.question, arguments.answer, arguments.marker
    if not answers.asks or arguments.answers == "optional":
        return train.survey(question, answer, marker, optional=arguments.answers == "optional")
    columns = columns_of(train.read.rows)

    def column(name: str) -> str:
        check_column(columns, name)
        return name

    def valid_marker(name: str) -> str:
        if name in names or ":" in name:
            return name
        raise UserError(f"unknown marker {shortened(name)}: write one of {', '.join(names)}")

    try:
        recognized = choose_columns(columns, question, answer)
    except TaskError as error:
        echo(f"  {error}")
        recognized = ("", "")
    question = question or answers.get("column of the questions", recognized[0], column)
    answer = answer or answers.get("column of the answers", recognized[1], column)
    survey = train.survey(question, answer, marker)
    names: Sequence[str] = (*_MARKERS, MIX) if survey.mix else _MARKERS
    if marker is None:
        chosen = answers.get(f"marker ({', '.join(names)})", survey.marker, valid_marker)
        survey = survey if chosen == survey.marker else train.survey(question, answer, chosen)
    return survey


def write_planned(output: Path, starter: Starter, machine: Mapping[str, float]) -> Plan:
    """Write the file, replacing an existing one, if `decile plan` accepts it. Raises UserError."""
    text = starter.render()  # with paths from the current folder
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / output.name
        draft.write_text(text, encoding="utf-8")
        try:
            plan = make_plan(load_config(draft, Path()), starter.dataset)
            run = Run.of(plan, Store(plan.source.config.storage), machine)
            check_long_prompts(run, gpu_type(machine) or DEFAULT_GPU)
        except UserError as error:
            raise UserError(str(error).replace(str(draft), str(output))) from error
    paths = starter.source.model_dump(include={"path", "gguf"}, exclude_none=True)
    starter = replace(
        starter,
        options=_relative_to(output, starter.options, *PATHS),
        parts={
            name: {**part, "options": _relative_to(output, part["options"], *PATHS)}
            for name, part in starter.parts.items()
        },
        cleaning=_relative_to(output, starter.cleaning, "corrections"),
        source=starter.source.model_copy(update=_relative_to(output, paths, *paths)),
    )
    text = starter.render()
    Store(str(output.resolve().parent)).write_bytes(text.encode(), output.name)
    return plan

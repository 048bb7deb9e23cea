"""`decile init`: looks at a file of questions and writes an experiments.yaml that fits it.

The experiment that it proposes fits the data, the model (an embedded name, a folder or a Hub id)
and the machine; what it found out about each is printed.
"""

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from cluster.session import this_machine
from orchestrator.config.catalog import load_config
from orchestrator.config.starter import GROUP, Starter
from orchestrator.cost.memory import ModelShape, Sizing, fit_training, shape_of
from orchestrator.cost.throughput import (
    CHARACTERS_PER_TOKEN,
    DEFAULT_GPU,
    DEVICES,
    GIB,
    TEMPLATE_TOKENS,
    Device,
    gpu_type,
)
from orchestrator.difficulty.probe_table import table_file
from orchestrator.embedded import EMBEDDED, embedded_path
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.report.layout import output_width, wrapped
from orchestrator.sampling.model import ModelSource, check_hub_id
from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.store import Store, check_output
from tasks import TaskError, task_names
from tasks.marking.marks import Marker
from tasks.sources.files import SUFFIXES, Rows, read_file
from tasks.sources.hub import Repository
from tasks.sources.survey import (
    FileSurvey,
    check_column,
    choose_columns,
    columns_of,
    survey_rows,
)

# The commits in the experiments.yaml of the repository, so that no network is needed.
REVISIONS: Mapping[str, str] = {
    "Qwen/Qwen3-4B": "1cfa9a7208912126459214e8b04321603b3df60c",
    "Qwen/Qwen3-14B": "40c069824f4251a91eefaf281ebe4c544efd3e18",
    "microsoft/phi-4": "2db69c1c3e91a05d2c64a3185acfbaf36f744e25",
    "meta-llama/Llama-3.1-8B-Instruct": "0e9e39f249a16976918f6564b8830bc894c89659",
    "Qwen/Qwen2.5-0.5B-Instruct": "7ae557604adf67be50417f59c2c2f167def9a775",
    "Qwen/Qwen2.5-1.5B-Instruct": "989aa7980e4cf806f80c7fef2b1adb7bc71aa306",
    "Qwen/Qwen2.5-3B-Instruct": "aa8e72537993ba99e69dfaafa59ed015b17504d1",
}
_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:@([0-9a-f]{40}))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_THINKS = re.compile(r"Qwen/Qwen3-[\d.]+B")  # unless the chat template is told not to
_TIMEOUT = 10.0  # seconds for the Hub's answer


class ModelChoice(NamedTuple):
    """A model by the name it gets in the file, its entry there, and its shape if that is known."""

    name: str
    entry: dict[str, Any]
    shape: ModelShape | None

    @property
    def embedded(self) -> str | None:
        """The name of an embedded model."""
        return self.entry.get("embedded")


def choose_model(text: str) -> ModelChoice:
    """An embedded model's name, a folder, or a Hub id with or without @COMMIT.

    Raises UserError if it is none of these, or if a Hub model's commit cannot be determined.
    """
    if text in EMBEDDED:
        source = ModelSource(text, str(embedded_path(text)), "")
        return ModelChoice(text, {"embedded": text}, shape_of(source))
    folder = Path(text).expanduser()
    try:
        is_folder = folder.is_dir()
    except (OSError, ValueError):  # over-long, or with a null byte
        is_folder = False
    if is_folder:
        if not (folder / "config.json").is_file():
            raise UserError(
                f"--model {text}: the folder has no config.json: write a model's folder"
            )
        name = slug(folder.resolve().name, "model")
        return ModelChoice(name, {"path": text}, shape_of(ModelSource(name, str(folder), "")))
    match = _HUB_ID.fullmatch(text)
    if match is None:
        raise UserError(
            f"--model {shortened(text)} is not a model: write a Hub id such as Qwen/Qwen3-4B, "
            f"OWNER/NAME@COMMIT, a folder, or {' or '.join(EMBEDDED)}"
        )
    hub = match[1]
    try:
        check_hub_id(hub)
    except ValueError as error:
        raise UserError(str(error)) from error
    revision = match[2] or _revision(hub)
    entry: dict[str, Any] = {"hub": hub, "revision": revision, "dtype": "bfloat16"}
    if _THINKS.match(hub):
        entry["chat_template_kwargs"] = {"enable_thinking": False}
    name = slug(hub.partition("/")[2].lower(), "model")
    return ModelChoice(name, entry, shape_of(ModelSource(name, hub, "", revision)))


def slug(text: str, default: str) -> str:
    """A valid name of an entry of the file, close to `text`."""
    name = re.sub(r"[^A-Za-z0-9_.+-]+|\.{2,}", "-", text)[:60].strip("-.+")
    return name or default


def _revision(hub: str) -> str:
    """The commit of a Hub model: the pinned, cached or current one. Raises UserError."""
    if hub in REVISIONS:
        return REVISIONS[hub]
    reference = Repository("model", hub, "").folder / "refs" / "main"
    if reference.is_file() and _COMMIT.fullmatch(cached := reference.read_text("ascii").strip()):
        return cached
    from huggingface_hub import HfApi

    try:
        commit = HfApi().model_info(hub, timeout=_TIMEOUT).sha
    except Exception as error:  # the hub's client raises many types
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(
            f"--model {hub}: its commit cannot be looked up ({reason}): write "
            f"--model {hub}@COMMIT, with the 40 hex digits of the commit on the Hub"
        ) from error
    return str(commit)


MIN_TRAIN, MIN_TEST = 16, 4  # prompts, below which subsets and accuracies mean nothing
MAX_HELD_OUT = 500  # test questions taken from a file
TEST_SHARES = (0.2, 0.25, 0.3, 0.4, 0.5)  # held out; the first that gives enough questions
PROMPTS_PER_UPDATE = 8
SHARES = (0.10, 0.15, 0.20, 0.25, 0.50)  # of the pool
ON_CPU = 100e6  # parameters of a model that trains without a GPU
CPUS_PER_GPU = 4
INSTRUCTED = 0.9  # share of questions with instructions of their own
# Updates and learning rates of the experiments that ship for the embedded models.
EMBEDDED_TRAINING = {
    "tiny": (50, 1e-3),
    "tiny-arithmetic": (30, 3e-4),
    "tiny-plus-minus": (40, 1e-3),
}
EMBEDDED_TOKENS = 96


class Data(NamedTuple):
    """The user's files, as paths, and what they hold; `test` is None if a part is held out."""

    name: str
    train: str
    survey: FileSurvey
    test: str | None = None
    test_survey: FileSurvey | None = None
    test_share: float = 0.0

    def options(self) -> dict[str, Any]:
        """Options of `task: file`."""
        survey = self.survey
        options: dict[str, Any] = {"path": self.train, "test_share": self.test_share}
        if self.test:
            options = {"train": self.train, "test": self.test}
        options |= {"question": survey.question, "answer": survey.answer}
        tiers = survey.tier and (not self.test_survey or self.test_survey.tier == survey.tier)
        options |= {"tier": survey.tier} if tiers else {}
        options["marker"] = survey.marker
        invalid = survey.invalid or (self.test_survey and self.test_survey.invalid)
        return options | ({"skip_invalid": True} if invalid else {})

    def prompt(self) -> dict[str, Any]:
        """The chat around a question."""
        instructed = self.survey.instructed >= INSTRUCTED * self.survey.rows
        return {"preset": "bare"} if instructed else {}


class Machine(NamedTuple):
    """The machine's CPUs and GPUs, and the GPU that estimates assume if it is not `recognized`."""

    cpus: int
    gpus: int
    device: Device
    recognized: bool

    @classmethod
    def of(cls, machine: Mapping[str, float]) -> "Machine":
        """From Ray's resource counts."""
        kind = gpu_type(machine)
        device = DEVICES[kind or DEFAULT_GPU]
        return cls(int(machine.get("CPU", 1)), int(machine.get("GPU", 0)), device, bool(kind))

    @property
    def cpus_per_trial(self) -> int:
        """CPUs of a trial that occupies a GPU."""
        return max(1, min(CPUS_PER_GPU, self.cpus // self.gpus)) if self.gpus else CPUS_PER_GPU


def make_starter(data: Data, model: ModelChoice, site: Machine) -> tuple[Starter, Sizing | None]:
    """The file's content, and the memory estimate if the model needs a GPU and its shape is known.

    Raises UserError if the data has too few prompts.
    """
    data, prompts = _split(data)
    # A tenth of the pool; of a small pool the share that gives two updates' worth of prompts.
    sizes = [(share, int(share * prompts + 1e-9)) for share in SHARES]
    enough = (each for each in sizes if each[1] >= 2 * PROMPTS_PER_UPDATE)
    budget, size = next(enough, sizes[-1])
    # Room to finish: by the marker, or by the length of worked solutions.
    usual = 1024 if data.survey.marker == "expression" else 512
    solution = 1.5 * data.survey.solution_length / CHARACTERS_PER_TOKEN
    tokens = min(4096, max(usual, -(-int(solution) // 256) * 256))
    updates, rate = EMBEDDED_TRAINING.get(model.embedded or "", (100, 1e-5))
    on_cpu = bool(model.shape and model.shape.parameters < ON_CPU)
    starter = Starter(
        dataset=data.name,
        options=data.options(),
        prompt=data.prompt(),
        model=model.name,
        source=model.entry,
        budget=budget,
        prompts_per_update=PROMPTS_PER_UPDATE,
        tokens=EMBEDDED_TOKENS if model.embedded else tokens,
        updates=updates,
        learning_rate=rate,
        rank=16 if on_cpu else 32,
        batch=GROUP * PROMPTS_PER_UPDATE,
        cpus=1 if on_cpu else site.cpus_per_trial,
        gpus=0 if on_cpu else 1,
        remarks=_remarks(data, size),
    )
    return (starter, None) if on_cpu else _sized(starter, data, model, site)


def _sized(
    starter: Starter, data: Data, model: ModelChoice, site: Machine
) -> tuple[Starter, Sizing | None]:
    """With the micro-batch and the precision that fit the GPU; unknown shapes get a small batch."""
    completions = GROUP * starter.prompts_per_update
    if model.shape is None:
        remark = "completions in memory at once; the model's size is not known"
        remarks = {**starter.remarks, "per_device_train_batch_size": remark}
        return replace(starter, batch=GROUP, remarks=remarks), None
    prompt = round(data.survey.longest_question / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS)
    sizing = fit_training(
        model.shape, site.device.memory, completions, prompt, starter.tokens, starter.rank
    )
    need = f"{sizing.peak / GIB:.0f} GiB estimated, {site.device.name}"
    remarks = {**starter.remarks, "per_device_train_batch_size": need}
    source = dict(starter.source)
    if sizing.load_in_4bit:
        source["load_in_4bit"] = True
        remarks["load_in_4bit"] = "to fit the GPU; needs pip install 'decile[4bit]'"
    return replace(starter, batch=sizing.batch, source=source, remarks=remarks), sizing


def _split(data: Data) -> tuple[Data, int]:
    """The data with a share that leaves enough prompts in both splits, and the training prompts.

    A question's content decides its split, so the parts of a small file vary. Raises UserError.
    """
    train = test = dropped = 0
    for share in TEST_SHARES:
        # A large file needs no more than MAX_HELD_OUT test questions.
        most = max(0.001, round(MAX_HELD_OUT / max(1, data.survey.valid), 3))
        data = data._replace(test_share=min(share, most))
        pool = load_pool(Dataset(data.name, "file", data.options(), "lenient", data.prompt()))
        train, test, dropped = len(pool.train), len(pool.test), pool.dropped_prompts
        if train >= MIN_TRAIN and test >= MIN_TEST:
            return data, train
        if data.test:
            break
    also = f" (another {dropped:,} are test questions, too)" * (dropped > 0)
    raise UserError(
        f"{data.train}: {train} training prompts{also} and {test} test questions are too few: add "
        f"different questions until there are at least {MIN_TRAIN} and {MIN_TEST}"
    )


def _remarks(data: Data, size: int) -> dict[str, str]:
    """Comments on settings that come from the data."""
    survey = data.survey
    remarks = {
        "revision": "the Hub commit, so that the weights never change",
        "chat_template_kwargs": "true: with thinking; raise both token limits",
        "test_share": "held out as test questions, chosen by content",
        "marker": "a function" if ":" in survey.marker else "number, letter, expression or text",
        "budget": f"share of the pool: {size} prompts per policy",
        "max_completion_length": "tokens; raise it if completions are truncated",
        "resources": "per trial; fractions allowed",
        "prompt": "the questions say how to answer",
    }
    invalid = len(survey.invalid) + len(data.test_survey.invalid if data.test_survey else ())
    if invalid:
        remarks["skip_invalid"] = f"drops {invalid} row{'s' * (invalid > 1)} that cannot be used"
    return remarks


_ROWS = 3  # rows listed that cannot be used
_COLUMNS = 8
_MARKED = "gold answers marked correct"
_PLURAL = re.compile(r"s\b")


def survey_lines(path: str, survey: FileSurvey) -> list[str]:
    """What a file holds."""
    names = [f"{name!r:.40}" for name in list(survey.columns)[:_COLUMNS]]
    more = len(survey.columns) - len(names)
    names += [f"{more} more"] if more else []
    head = f"{_name(path)}: {_count(survey.rows, 'row')}, columns {', '.join(names)}"
    lines = [wrapped(head, output_width())]
    questions = [f"{survey.question!r:.40}", f"up to {survey.longest_question:,} characters"]
    if survey.repeated:
        questions.append(f"{survey.repeated:,} repeated")
    if survey.contradicted:
        questions.append(f"{survey.contradicted:,} with several answers")
    lines.append(_line("questions", ", ".join(questions)))
    forms = ", ".join(
        f"{count:,} {form if count > 1 else _PLURAL.sub('', form, count=1)}"
        for form, count in survey.forms.items()
    )
    worked = f"; {_count(survey.worked, 'worked solution')} with the answer at the end"
    worked = worked if survey.worked else ""
    lines.append(_line("answers", f"{survey.answer!r:.40}: {forms or 'none'}{worked}"))
    what = "rows with a question and an answer" if ":" in survey.marker else _MARKED
    counts = f"{survey.valid:,} of {survey.rows:,} {what}"
    lines.append(_line("marker", f"{survey.marker}: {counts}"))
    for place, question, answer in survey.invalid[:_ROWS]:
        problem = f"answer {shortened(answer, 50)}" if answer else "no answer"
        dropped = f"dropped: {_name(place)}, {problem if question else 'no question'}"
        lines.append(_line("", dropped))
    if (rest := len(survey.invalid) - _ROWS) > 0:
        lines.append(_line("", f"dropped: {rest:,} more"))
    if survey.tier:
        lines.append(_line("tiers", f"{survey.tier!r:.40}"))
    return lines


def plan_lines(
    plan: Plan, starter: Starter, model: ModelChoice, site: Machine, sizing: Sizing | None
) -> list[str]:
    """The split, the model and how the plan fits the machine."""
    pool = plan.pools[starter.dataset]
    split = f"{len(pool.train):,} training prompts, {len(pool.test):,} test questions"
    split += " (held out)" if "test_share" in starter.options else ""
    size = plan.cells[0].size
    millions = model.shape.parameters / 1e6 if model.shape else 0.0
    large = f"{millions / 1e3:.3g} billion" if millions >= 1e3 else f"{millions:.3g} million"
    gpus = _count(site.gpus, "GPU") if site.gpus else "no GPU"
    return [
        _line("pool", split),
        *(_line("", note) for note in pool.notes),
        _line("budget", f"{starter.budget:.0%} of the pool: {size} prompts per policy"),
        _line("model", f"{starter.model}, {large} parameters" if millions else starter.model),
        _line(
            "machine",
            f"{_count(site.cpus, 'CPU')}, {gpus}",
        ),
        *(_line("", warning) for warning in _gpu_lines(starter, site, sizing)),
    ]


def _gpu_lines(starter: Starter, site: Machine, sizing: Sizing | None) -> list[str]:
    """How a trial fits the GPU, if it needs one."""
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


def next_lines(file: Path, plan: Plan) -> list[str]:
    """The commands that follow."""
    name = f"{shlex.quote(str(file))} -e {shlex.quote(plan.name)}"
    table = table_file(plan, plan.cells[0].probe, Path(f"probe-{plan.name}.html"))
    return [
        "",
        f"Wrote {_name(str(file))}. Next:",
        f"  decile plan {name}   # what would run, and how long it takes",
        f"  decile probe {name}  # how hard each prompt is",
        f"  decile select --probe {table} \\",
        f"      --policy hard --budget {plan.experiment.budget:g} --out hard.parquet",
        f"  decile run {name}    # train with every policy and compare",
    ]


def _line(label: str, text: str) -> str:
    return wrapped(f"  {label:<10} {text}", output_width(), 11 if label else 0)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


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
        self, question: str | None, answer: str | None, marker: str | None = None
    ) -> FileSurvey:
        """The survey of the rows. Raises TaskError with the file's name."""
        try:
            return survey_rows(self.read, question, answer, marker)
        except TaskError as error:
            raise TaskError(f"{self.path}: {error}") from error


def init(arguments: argparse.Namespace) -> int:
    """Survey the data, print it, and write a file that `decile plan` accepts."""
    check_output(arguments.out, (".yaml", ".yml"))
    if os.path.lexists(arguments.out) and not arguments.force:
        raise UserError(
            f"output {arguments.out} exists: write --out with another name, or --force to "
            "replace it"
        )
    answers, site = Answers(arguments.yes), Machine.of(this_machine())
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
        train = _read(arguments.train, "train")
    else:
        train = answers.get("training file", "", lambda reply: _read(reply, "train"))
    test = _test(arguments, answers)
    survey = _survey(arguments, train, answers)
    print("\n".join(survey_lines(train.path, survey)))
    data = Data(_dataset_name(train.path), train.path, survey)
    if test and os.path.realpath(test.path) == os.path.realpath(train.path):
        raise UserError(
            f"--train and --test are the same file, {train.path}: leave out --test, so that a part "
            "of the questions is held out, or write another file"
        )
    if test:
        held_out = test.survey(survey.question, survey.answer, survey.marker)
        print("\n".join(survey_lines(test.path, held_out)))
        data = data._replace(test=test.path, test_survey=held_out)
    if model is None:
        default = "Qwen/Qwen3-4B" if site.gpus else "tiny-arithmetic"
        question = "model: a Hub id, a folder or an embedded name"
        model = answers.get(question, default, choose_model)
    starter, sizing = make_starter(data, model, site)
    starter = replace(
        starter,
        options=_relative_to(arguments.out, starter.options, "path", "train", "test"),
        source=_relative_to(arguments.out, starter.source, "path"),
    )
    plan = write_planned(arguments.out, starter)
    print("\n".join(plan_lines(plan, starter, model, site, sizing)))
    print("\n".join(next_lines(arguments.out, plan)))
    return 0


def _relative_to(file: Path, settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The settings with relative paths as they are written in the file: relative to its folder."""
    folder = os.path.realpath(file.parent)
    return {
        name: os.path.relpath(os.path.realpath(value), folder)
        if name in names and folder != os.getcwd() and not os.path.isabs(value)
        else value
        for name, value in settings.items()
    }


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

    def valid_marker(name: str) -> str:
        if name in _MARKERS or ":" in name:
            return name
        raise UserError(f"unknown marker {shortened(name)}: write one of {', '.join(_MARKERS)}")

    try:
        recognized = choose_columns(columns, question, answer)
    except TaskError as error:
        print(f"  {error}")
        recognized = ("", "")
    question = question or answers.get("column of the questions", recognized[0], column)
    answer = answer or answers.get("column of the answers", recognized[1], column)
    survey = train.survey(question, answer, marker)
    if marker is None:
        chosen = answers.get(f"marker ({', '.join(_MARKERS)})", survey.marker, valid_marker)
        survey = survey if chosen == survey.marker else train.survey(question, answer, chosen)
    return survey


def _dataset_name(path: str) -> str:
    """A name for the dataset, from the file's or its folder's; not that of a task."""
    file = Path(path).resolve()
    stem = file.name.partition(".")[0]
    name = slug(file.parent.name if stem in ("train", "data") else stem, "questions")
    return f"my-{name}" if name in task_names() else name


def write_planned(output: Path, starter: Starter) -> Plan:
    """Write the file, replacing what is there, if `decile plan` accepts it. Raises UserError."""
    text = starter.render()
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / output.name
        draft.write_text(text, encoding="utf-8")
        try:
            plan = make_plan(load_config(draft, output.parent), starter.dataset)
        except UserError as error:
            raise UserError(str(error).replace(str(draft), str(output))) from error
    Store(str(output.resolve().parent)).write_bytes(text.encode(), output.name)
    return plan

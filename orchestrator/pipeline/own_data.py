"""A file of questions and a model -> the experiment that fits them, the data and the machine."""

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from cluster.session import this_machine
from orchestrator.config.catalog import resolve_paths, validated
from orchestrator.config.entries import DatasetEntry, ModelEntry
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.config.starter import GROUP, PROMPTS_PER_UPDATE, Starter
from orchestrator.config.wording import one_of
from orchestrator.cost.memory import (
    CHARACTERS_PER_TOKEN,
    DEFAULT_GPU,
    GIB,
    GPUS,
    HUB_MODELS,
    TEMPLATE_TOKENS,
    Gpu,
    ModelShape,
    Sizing,
    fit_training,
    gpu_type,
    shape_of,
)
from orchestrator.embedded import EMBEDDED, NAMES
from orchestrator.pipeline.user_rows import ROWS, paths_of, store_rows
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.planning.resolve import source_of
from orchestrator.plugins.counts import counted
from orchestrator.sampling.model import context_length
from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.store import Store
from tasks import TaskError, find_task, task_names
from tasks.base import PromptSettings
from tasks.sources.answer_kinds import Kind, marker_of
from tasks.sources.files import SUFFIXES, Rows, read_file
from tasks.sources.hub import Repository, current_commit
from tasks.sources.named_files import named_files
from tasks.sources.survey import MIX, FileSurvey, survey_rows
from tasks.sources.user_files import Files, free_memory

_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:@([0-9a-f]{40}))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_THINKS = re.compile(r"Qwen/Qwen3-[\d.]+B")  # unless the chat template is told not to


class ModelChoice(NamedTuple):
    """A model by the name it gets in the file and its entry there.

    Its shape and its context in tokens are None if they are not known.
    """

    name: str
    entry: ModelEntry
    shape: ModelShape | None
    context: int | None = None

    @property
    def tiny(self) -> bool:
        """Whether it is one of those that ship with Decile."""
        return self.entry.embedded in EMBEDDED


def choose_model(text: str) -> ModelChoice:
    """An embedded model's name, a folder, a GGUF file, or a Hub id with or without @COMMIT.

    Raises UserError if it is none of these, or if a Hub model's commit cannot be determined.
    """
    folder = os.path.expanduser(text)
    if text in NAMES:
        name, settings = text, {"embedded": text}
    elif os.path.isdir(folder):
        name, settings = slug(Path(folder).resolve().name, "model"), {"path": text}
    elif text.lower().endswith(".gguf"):
        name, settings = slug(Path(text).stem, "model"), {"gguf": text}
    elif match := _HUB_ID.fullmatch(text):
        hub = match[1]
        name = slug(hub.partition("/")[2].lower(), "model")
        settings = {"hub": hub, "revision": match[2] or _revision(hub), "dtype": "bfloat16"}
    else:
        raise UserError(
            f"model {shortened(text)} is not a model: write a Hub id such as Qwen/Qwen3-4B, "
            f"OWNER/NAME@COMMIT, a folder, a .gguf file, or {' or '.join(NAMES)}"
        )
    try:
        entry = ModelEntry.model_validate(settings)
        if _THINKS.match(entry.hub or ""):
            entry = entry.model_copy(update={"chat_template_kwargs": {"enable_thinking": False}})
        source = source_of(name, entry)
    except (OSError, ValueError) as error:
        raise UserError(f"model {shortened(text)}: {error}") from error
    return ModelChoice(name, entry, shape_of(source), context_length(source))


def slug(text: str, default: str) -> str:
    """A valid name of an entry of the file, close to `text`."""
    name = re.sub(r"[^A-Za-z0-9_.+-]+|\.{2,}", "-", text)[:60].strip("-.+")
    return name or default


def _revision(hub: str) -> str:
    """The commit of a Hub model: the pinned, cached or current one. Raises UserError."""
    if hub in HUB_MODELS:
        return HUB_MODELS[hub].revision
    reference = Repository("model", hub, "").folder / "refs" / "main"
    if reference.is_file() and _COMMIT.fullmatch(cached := reference.read_text("ascii").strip()):
        return cached
    try:
        return current_commit(hub)
    except Exception as error:  # the hub's client raises many types
        words = re.sub(r"\[Errno -?\d+\] ", "", " ".join(str(error).split()))
        reason = words[:120] or type(error).__name__
        raise UserError(
            f"model {hub}: its commit cannot be looked up ({reason}): write "
            f"{hub}@COMMIT, with the 40 hex digits of the commit on the Hub"
        ) from error


MIN_TRAIN, MIN_TEST = 16, 4  # prompts, below which subsets and accuracies mean nothing
MAX_HELD_OUT = 500  # test questions taken from a file
TEST_SHARES = (0.2, 0.25, 0.3, 0.4, 0.5)  # held out; the first that gives enough questions
SHARES = (0.10, 0.15, 0.20, 0.25, 0.50)  # of the pool
ON_CPU = 100e6  # parameters of a model that trains without a GPU, even where there is one
WITHOUT_GPU = 1e9  # where there is none; an update of a larger model takes a core an hour or more
TRIAL_CPUS = 4  # of a trial that occupies a GPU: it loads, marks and tokenizes beside it
INSTRUCTED = 0.9  # share of questions with instructions of their own
EMBEDDED_TOKENS = 96
CORE_TRAINING = (20, 2e-4)  # of other models without a GPU
CORE_TOKENS = 256


class Data(NamedTuple):
    """The user's files, as paths, and what they hold; `test` is None if a part is held out."""

    name: str
    train: Files
    survey: FileSurvey
    test: Files | None = None
    test_survey: FileSurvey | None = None
    test_share: float = 0.0  # 0 without a test file: all are training prompts
    given: Mapping[str, Any] = MappingProxyType({})  # options in place of the survey's
    given_prompt: Mapping[str, Any] = MappingProxyType({})  # the same for the chat

    @classmethod
    def of(cls, train: "QuestionRows", survey: FileSurvey, test: "QuestionRows | None") -> "Data":
        """Files that were read, the test file under the columns and marker of the survey."""
        data = cls(dataset_name(train.files), train.files, survey)
        if test is None:
            return data
        real = [{*map(os.path.realpath, named_files(each.files))} for each in (train, test)]
        if shared := real[0] & real[1]:
            raise UserError(
                f"--train and --test are the same file, {min(shared)}: leave out --test to hold "
                "out a part of the questions, or write another file"
            )
        optional = survey.unlabelled is not None
        marker = None if survey.mix else survey.marker
        held_out = test.survey(
            survey.question, survey.answer, marker, optional=optional, mix=survey.mix
        )
        if survey.id != held_out.id:  # kept from both files or from neither
            ids = [(survey.id, train.read.places[0]), (held_out.id, test.read.places[0])]
            names = {name: place for name, place in ids if name is not None}
            survey = replace(survey, id=None, id_names=names)
            held_out = replace(held_out, id=None)
        return data._replace(survey=survey, test=test.files, test_survey=held_out)

    @property
    def mix(self) -> Sequence[tuple[Kind, ...]]:
        """The kinds of answers of each data set of a mix; empty if one marker reads all."""
        return self.test_survey.mix if self.test_survey else self.survey.mix

    def parts(self) -> dict[str, dict[str, Any]]:
        """The entries of the data sets of a mix, by name; each has the rows of its kinds."""
        entries = {}
        # In all parts, because a corrected row may be of another kind.
        invalid = any(each.invalid for each in self._part_surveys())
        for kinds in self.mix:
            marker = marker_of(kinds)
            surveys = [each for each in self._part_surveys() if each.marker == marker]
            prompt = {"preset": "bare"} if all(map(_is_instructed, surveys)) else {}
            options = {**self._columns(), "kinds": [*kinds], "marker": marker}
            options |= {"skip_invalid": True} if invalid else {}
            entries[f"{self.name}-{marker}"] = {
                "task": "file",
                "options": {**options, **self.given},
                "prompt": {**prompt, **self.given_prompt},
            }
        return entries

    def _part_surveys(self) -> list[FileSurvey]:
        """The surveys of the parts of both files."""
        return [*self.survey.parts, *(self.test_survey.parts if self.test_survey else ())]

    def dataset(self) -> Dataset:
        """The data set as in the written file."""
        if not self.mix:
            return Dataset(self.name, "file", self.options(), "lenient", self.prompt())
        specs = {name: {**part, "amount": None} for name, part in self.parts().items()}
        return Dataset(self.name, "mix", {"parts": specs}, "lenient")

    def options(self) -> dict[str, Any]:
        """Options of `task: file`, or of the mix."""
        if self.mix:
            return {"parts": [*self.parts()]}
        survey = self.survey
        options = {**self._columns(), "marker": survey.marker}
        options |= {"answers": "optional"} if survey.unlabelled is not None else {}
        invalid = survey.invalid or (self.test_survey and self.test_survey.invalid)
        return {**options, **({"skip_invalid": True} if invalid else {}), **self.given}

    def _columns(self) -> dict[str, Any]:
        """The options of `task: file` that do not depend on the answers."""
        survey = self.survey
        options: dict[str, Any] = {"path": self.train, "test_share": self.test_share}
        if self.test or not self.test_share:
            options = {"train": self.train} | ({"test": self.test} if self.test else {})
        options |= {"question": survey.question, "answer": survey.answer}
        tiers = survey.tier and (not self.test_survey or self.test_survey.tier == survey.tier)
        options |= {"tier": survey.tier} if tiers else {}
        everywhere = self.test_survey.columns if self.test_survey else survey.columns
        kept = [survey.id] if survey.id in everywhere else []
        if survey.source in everywhere and self.mix:  # whose sources are its data sets
            kept.append(survey.source)
        elif survey.source in everywhere:
            options |= {"source": survey.source}
        options |= {"keep": kept} if kept else {}
        rendered = survey.rendered or (self.test_survey and self.test_survey.rendered)
        return options | ({"unwrap": True} if rendered else {})

    def prompt(self) -> dict[str, Any]:
        """The chat around a question; in a mix each data set has its own."""
        if self.mix:
            return {}
        instructed = _is_instructed(self.survey)
        return {**({"preset": "bare"} if instructed else {}), **self.given_prompt}


def _is_instructed(survey: FileSurvey) -> bool:
    """Whether the questions themselves say how to answer."""
    return survey.instructed >= INSTRUCTED * survey.rows


class Machine(NamedTuple):
    """The machine's CPUs and GPUs, and the GPU that estimates assume if it is not `recognized`.

    memory: free bytes, of the machine itself.
    """

    cpus: int
    gpus: int
    device: Gpu
    recognized: bool
    memory: int = 0

    @classmethod
    def of(cls, machine: Mapping[str, float]) -> "Machine":
        """From Ray's resource counts."""
        kind = gpu_type(machine)
        device = GPUS[kind or DEFAULT_GPU]
        cpus, gpus = int(machine.get("CPU", 1)), int(machine.get("GPU", 0))
        return cls(cpus, gpus, device, bool(kind), free_memory())

    @property
    def cpus_per_trial(self) -> int:
        """CPUs of a trial that occupies a GPU."""
        return max(1, min(TRIAL_CPUS, self.cpus // self.gpus)) if self.gpus else TRIAL_CPUS


def make_starter(
    data: Data, model: ModelChoice, site: Machine, *, trains: bool = True
) -> tuple[Starter, Sizing | None]:
    """The file's content, and the memory estimate unless the model is tiny or of unknown shape.

    Without a GPU, a model of moderate size gets settings for CPUs, where the memory allows it.
    Raises UserError if the data has too few prompts; without `trains`, one is enough.
    """
    data, prompts = _split(data, trains=trains)
    parameters = model.shape.parameters if model.shape else inf
    if parameters < ON_CPU:
        updates, rate = EMBEDDED.get(model.entry.embedded or "", (100, 1e-5))
        starter = _starter(data, prompts, model, updates, rate)
        return replace(starter, cpus=1, gpus=0, rank=16, batch=GROUP * PROMPTS_PER_UPDATE), None
    if not site.gpus and parameters < WITHOUT_GPU:
        starter = _starter(data, prompts, model, *CORE_TRAINING)
        if not data.survey.solution_length:
            starter = replace(starter, tokens=min(starter.tokens, CORE_TOKENS))
        # CPUs are slow in half precision; a GGUF file's weights are in float32.
        dtype = "float32" if model.entry.hub or model.entry.path else "auto"
        source = model.entry.model_copy(update={"dtype": dtype})
        starter = replace(starter, gpus=0, rank=16, source=source)
        # As many trials at once as the memory holds.
        for at_once in range(site.cpus, 0, -1):
            on_cpus = replace(starter, cpus=-(-site.cpus // at_once))
            on_cpus, sizing = _sized(on_cpus, data, model, site.memory / at_once, "this machine")
            if sizing and sizing.fits:
                return on_cpus, sizing
    starter = replace(_starter(data, prompts, model, 100, 1e-5), cpus=site.cpus_per_trial)
    return _sized(starter, data, model, site.device.memory, site.device.name)


def _starter(
    data: Data, prompts: int, model: ModelChoice, updates: int, learning_rate: float
) -> Starter:
    """Settings that follow from the data; the resources are those of a GPU."""
    # A tenth of the pool; of a small pool the share that gives two updates' worth of prompts.
    sizes = [(share, int(share * prompts + 1e-9)) for share in SHARES]
    enough = (each for each in sizes if each[1] >= 2 * PROMPTS_PER_UPDATE)
    budget, size = next(enough, sizes[-1] if sizes[-1][1] else (1.0, prompts))
    # Room to finish: by the marker, or by the length of worked solutions.
    usual = 1024 if data.survey.marker in ("expression", MIX) else 512
    solution = 1.5 * data.survey.solution_length / CHARACTERS_PER_TOKEN
    tokens = min(4096, max(usual, -(-int(solution) // 256) * 256))
    if model.context:  # which the prompt shares
        tokens = min(tokens, max(1, model.context // 2))
    return Starter(
        dataset=data.name,
        options=data.options(),
        prompt=data.prompt(),
        parts=data.parts(),
        model=model.name,
        source=model.entry,
        budget=budget,
        tokens=EMBEDDED_TOKENS if model.tiny else tokens,
        updates=updates,
        learning_rate=learning_rate,
        rank=32,
        batch=GROUP,
        cpus=1,
        gpus=1,
        remarks=_remarks(data, size),
    )


def _sized(
    starter: Starter, data: Data, model: ModelChoice, memory: float, place: str
) -> tuple[Starter, Sizing | None]:
    """With the micro-batch and the precision that fit the memory (bytes) of a place.

    Unknown shapes get a small batch.
    """
    completions = GROUP * PROMPTS_PER_UPDATE
    if model.shape is None:
        remark = "completions in memory at once; the model's size is not known"
        remarks = {**starter.remarks, "per_device_train_batch_size": remark}
        return replace(starter, batch=GROUP, remarks=remarks), None
    prompt = round(data.survey.longest_question / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS)
    sizing = fit_training(
        model.shape,
        memory,
        completions,
        prompt,
        starter.tokens,
        starter.rank,
        on_cpus=not starter.gpus,
    )
    need = f"{sizing.peak / GIB:.0f} GiB estimated, {place}"
    remarks = {**starter.remarks, "per_device_train_batch_size": need}
    source = starter.source.model_copy(update={"load_in_4bit": sizing.load_in_4bit})
    return replace(starter, batch=sizing.batch, source=source, remarks=remarks), sizing


def _split(data: Data, *, trains: bool) -> tuple[Data, int]:
    """The data with a share that leaves enough prompts in both splits, and the training prompts.

    A question's content decides its split, so the parts of a small file vary. Without `trains`, no
    test question is needed, and few questions are not split. Raises UserError.
    """
    train = test = dropped = 0
    fixed = bool(data.test) or "test_share" in data.given
    for share in TEST_SHARES if trains or fixed else (*TEST_SHARES, 0.0):
        # A large file needs no more than MAX_HELD_OUT test questions.
        most = max(0.001, round(MAX_HELD_OUT / max(1, data.survey.valid), 3))
        data = data._replace(test_share=min(share, most))
        pool = load_pool(data.dataset())
        train, dropped = len(pool.train), pool.dropped_prompts
        test = len(pool.test) + len(pool.unlabelled_test)
        enough = train >= MIN_TRAIN and test >= MIN_TEST
        if enough or (train and not trains and (fixed or not share)):
            return data, train
        if fixed:
            break
    also = f" (without {counted(dropped, 'test question')} among them)" if dropped else ""
    raise UserError(
        f"{title_of_files(data.train)}: {counted(train, 'training prompt')}{also} and "
        f"{counted(test, 'test question')} are too few: add "
        f"different questions until there are at least {MIN_TRAIN} and {MIN_TEST}"
    )


def _remarks(data: Data, size: int) -> dict[str, str]:
    """Comments on settings that come from the data."""
    survey = data.survey
    remarks = {
        "marker": "a function" if ":" in survey.marker else "number, letter, expression or text",
        "budget": f"share of the pool: {counted(size, 'prompt')} per policy",
    }
    if data.mix:
        return remarks | {"skip_invalid": "rows that cannot be used as they stand"}
    invalid = len(survey.invalid) + len(data.test_survey.invalid if data.test_survey else ())
    if invalid:
        remarks["skip_invalid"] = f"{counted(invalid, 'row')} cannot be used as they stand"
    return remarks


class QuestionRows(NamedTuple):
    """Files of questions: their paths and globs as the user wrote them, and the rows of all."""

    files: Files
    read: Rows

    @property
    def title(self) -> str:
        """How messages name them."""
        return title_of_files(self.files)

    def survey(
        self,
        question: str | None,
        answer: str | None,
        marker: str | None = None,
        *,
        optional: bool = False,
        mix: Sequence[tuple[Kind, ...]] = (),
    ) -> FileSurvey:
        """The survey of the rows. Raises TaskError with the file's name."""
        try:
            return survey_rows(self.read, question, answer, marker, optional=optional, mix=mix)
        except TaskError as error:
            raise TaskError(f"{self.title}: {error}") from error


def title_of_files(files: Files) -> str:
    """How messages name files."""
    if isinstance(files, str) or len(files) == 1:
        return files if isinstance(files, str) else files[0]
    return f"{files[0]} and {counted(len(files) - 1, 'other')}"


def read_questions(files: Files, split: str) -> QuestionRows:
    """The rows of files, globs, and of a folder's file with the split's name. Raises UserError."""
    read: list[Rows] = []
    paths = [_in_folder(path, split) for path in ([files] if isinstance(files, str) else files)]
    for path in paths:
        try:
            os.fsencode(path).decode("utf-8")  # the written file is UTF-8
            read += [read_file(file, ()) for file in named_files(path)]
        except TaskError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its name is not UTF-8"
            raise UserError(f"{shortened(path)} cannot be read: {reason}: rename it") from error
    named_files(paths)  # refuses a file that is named twice
    rows = [row for each in read for row in each.rows]
    places = [place for each in read for place in each.places]
    origin = "; ".join(each.origin for each in read)
    return QuestionRows(paths[0] if len(paths) == 1 else paths, Rows(rows, origin, places=places))


def _in_folder(path: str, split: str) -> str:
    """The file of a folder that has the split's name; any other path as it is."""
    if not path or not os.path.isdir(path):
        return path
    files = [str(Path(path, f"{split}{suffix}")) for suffix in SUFFIXES]
    return next(filter(os.path.isfile, files), files[0])


def test_beside(train: Files) -> QuestionRows | None:
    """The rows of the test file in a folder of training files, if it has one."""
    folder = train if isinstance(train, str) else train[0] if len(train) == 1 else ""
    file = _in_folder(folder, "test")
    return read_questions(file, "test") if file != folder and os.path.isfile(file) else None


def dataset_name(files: Files) -> str:
    """A name for the dataset, from the file's or its folder's; not that of a task."""
    paths = [Path(file).resolve() for file in named_files(files)]
    several, file = len(paths) > 1, paths[0]
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    stem = file.name.partition(".")[0]
    name = slug(folder.name if several or stem in ("train", "data") else stem, "questions")
    return f"my-{name}" if name in task_names() else name


def planned_probe(
    data: Any,
    model: str,
    test: Any = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    store: Store | None = None,
    block: Literal["probe", "evaluate"] = "probe",
) -> Plan:
    """The plan of a user's data: the experiment of `decile init` without its training.

    data, test: a path, a glob, a list of them, or rows, which are stored below `store`. settings:
    of a data set, its prompt and the block, by name. Raises UserError and TaskError.
    """
    if not isinstance(model, str | Path) or not str(model):
        raise UserError(f"model {shortened(model)}: write a path or a name")
    given = _by_block(settings, block)
    chosen = choose_model(str(model))
    train = read_questions(_files_of("data", data, store), "train")
    named = (given["options"].get(name) for name in ("question", "answer", "marker"))
    survey = train.survey(*named, optional=given["options"].get("answers") == "optional")
    held_out: QuestionRows | None
    if test is not None:
        held_out = read_questions(_files_of("test", test, store), "test")
    else:
        held_out = test_beside(str(data) if isinstance(data, str | Path) else "")
    own = Data.of(train, survey, held_out)
    own = own._replace(given=given["options"], given_prompt=given["prompt"])
    trains = block != "probe"  # an evaluation reads the test set
    starter, _ = make_starter(own, chosen, Machine.of(this_machine()), trains=trains)
    content = starter.content()
    content["datasets"][starter.dataset] |= given["dataset"]
    experiment = content["experiments"][starter.dataset]
    experiment[block] |= given["block"]
    experiment |= given["experiment"]
    resolve_paths(content, Path.cwd())  # there is no file whose folder they could be relative to
    loaded = validated(Path(f"{block} of {train.title}"), content, {})
    return make_plan(loaded, starter.dataset, trains=trains)


def _files_of(name: str, data: Any, store: Store | None) -> Files:
    """The paths and globs that an argument names, or the file that its rows are stored in."""
    files = paths_of(data)
    if files is None and store is not None:
        return store_rows(store, data)
    if not files:
        raise UserError(f"{name} {shortened(data)}: {ROWS}")
    return files


def _by_block(
    settings: Mapping[str, Any], block: Literal["probe", "evaluate"]
) -> dict[str, dict[str, Any]]:
    """The settings by the block of the file that has them; None: as if it were left out.

    Raises UserError for a name that no block has.
    """
    names = {
        "options": {*inspect.signature(find_task("file").__init__).parameters},
        "prompt": {each.name for each in fields(PromptSettings)},
        "dataset": {*DatasetEntry.model_fields},
        "block": {*(Probe if block == "probe" else Evaluate).model_fields},
        "experiment": {"marking"},
    }
    names["options"] -= {"self", "prompt", "marking", "train", "test", "path"}
    names["dataset"] -= {"task", "options", "prompt"}
    known = ["prompt", *sorted(set().union(*names.values()))]
    given: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name, value in settings.items():
        if name not in known:
            raise UserError(
                f"unknown setting {shortened(name)}: write {one_of(known, name)}",
                "unknown-setting",
            )
        if name == "prompt" and value is not None:  # a preset, or as in the file
            given["prompt"] |= value if isinstance(value, Mapping) else {"preset": value}
        elif value is not None:
            given[next(part for part in names if name in names[part])][name] = value
    return given

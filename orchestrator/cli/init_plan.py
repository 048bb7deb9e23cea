"""The experiment that `decile init` proposes: it fits the data, the model and the machine."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from orchestrator.cli.init_model import ModelChoice
from orchestrator.config.starter import GROUP, Starter
from orchestrator.cost.fit import GIB
from orchestrator.cost.sizing import Sizing, fit_training
from orchestrator.cost.speed import DEFAULT_GPU, gpu_type
from orchestrator.cost.throughput import CHARACTERS_PER_TOKEN, DEVICES, TEMPLATE_TOKENS, Device
from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.storage.errors import UserError
from tasks.file_survey import FileSurvey

MIN_TRAIN, MIN_TEST = 16, 4  # prompts, below which subsets and accuracies mean nothing
MAX_HELD_OUT = 500  # test questions taken from a file
TEST_SHARES = (0.2, 0.25, 0.3, 0.4, 0.5)  # held out; the first that gives enough questions
PROMPTS_PER_UPDATE = 8
SHARES = (0.10, 0.15, 0.20, 0.25, 0.50)  # of the pool
ON_CPU = 100e6  # parameters of a model that trains without a GPU
CPUS_PER_GPU = 4
INSTRUCTED = 0.9  # share of questions with instructions of their own
# Updates and learning rates of the experiments that ship for the embedded models.
EMBEDDED_TRAINING = {"tiny": (50, 1e-3), "tiny-arithmetic": (30, 3e-4)}
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


class Site(NamedTuple):
    """The machine's CPUs and GPUs, and the GPU that estimates assume if it is not `recognized`."""

    cpus: int
    gpus: int
    device: Device
    recognized: bool

    @classmethod
    def of(cls, machine: Mapping[str, float]) -> "Site":
        """From Ray's resource counts."""
        kind = gpu_type(machine)
        device = DEVICES[kind or DEFAULT_GPU]
        return cls(int(machine.get("CPU", 1)), int(machine.get("GPU", 0)), device, bool(kind))

    @property
    def cpus_per_trial(self) -> int:
        """CPUs of a trial that occupies a GPU."""
        return max(1, min(CPUS_PER_GPU, self.cpus // self.gpus)) if self.gpus else CPUS_PER_GPU


def make_starter(data: Data, model: ModelChoice, site: Site) -> tuple[Starter, Sizing | None]:
    """The file's content, and the memory estimate if the model needs a GPU and its shape is known.

    Raises UserError if the data has too few prompts.
    """
    data, prompts = _split(data)
    budget, size = _budget(prompts)
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
        tokens=EMBEDDED_TOKENS if model.embedded else _completion_tokens(data.survey),
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
    starter: Starter, data: Data, model: ModelChoice, site: Site
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


def _budget(pool: int) -> tuple[float, int]:
    """A tenth of the pool; of a small pool the share that gives two updates' worth of prompts."""
    sizes = [(share, int(share * pool + 1e-9)) for share in SHARES]
    return next((size for size in sizes if size[1] >= 2 * PROMPTS_PER_UPDATE), sizes[-1])


def _completion_tokens(survey: FileSurvey) -> int:
    """A limit with room to finish: by the marker, or by the length of worked solutions."""
    usual = 1024 if survey.marker == "expression" else 512
    solution = 1.5 * survey.solution_length / CHARACTERS_PER_TOKEN
    return min(4096, max(usual, -(-int(solution) // 256) * 256))


def _remarks(data: Data, size: int) -> dict[str, str]:
    """Comments on settings that come from the data."""
    survey = data.survey
    remarks = {
        "revision": "the Hub commit, so that the weights never change",
        "chat_template_kwargs": "true: with thinking; raise both token limits",
        "test_share": "held out as test questions, chosen by content",
        "marker": "number, letter, expression or text",
        "budget": f"share of the pool: {size} prompts per policy",
        "max_completion_length": "tokens; raise it if completions are truncated",
        "resources": "per trial; fractions allowed",
        "prompt": "the questions say how to answer",
    }
    invalid = len(survey.invalid) + len(data.test_survey.invalid if data.test_survey else ())
    if invalid:
        remarks["skip_invalid"] = f"drops {invalid} row{'s' * (invalid > 1)} that cannot be used"
    return remarks

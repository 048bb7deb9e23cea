"""The first experiments.yaml for the user's own data: commented, and valid as written. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from orchestrator.config.entries import ModelEntry
from orchestrator.config.experiment import GRID_AXES
from orchestrator.plugins.counts import counted

# learnable takes prompts that are never solved last: many of these have a wrong gold answer. random
# and full (the whole pool at equal updates) are the baselines.
POLICIES = ("hard", "learnable", "middle", "easy", "random", "full")
WITHOUT_GOLDS = ("least_agreed", "most_agreed", "random")  # if gold answers come later
SEEDS = (0, 1, 2)
GROUP = 8  # completions of a prompt in an update
PROMPTS_PER_UPDATE = 8
_HEADER = """\
# Which of your prompts should GRPO train on? Written by decile init; change what you like.
# Every setting is described in docs/experiments.schema.json.
"""
_ON_ONE_LINE = ("chat_template_kwargs", "prompt", "lora", "resources")  # mappings
_PLAIN = re.compile(r"[A-Za-z_./][\w./@+-]*", re.ASCII)
_COMMENT_COLUMN = 38
# Comments by setting, with its block if several blocks have a setting of this name.
_REMARKS = {
    "storage": "probes, subsets and results",
    "revision": "the Hub commit, so that the weights never change",
    "chat_template_kwargs": "true: with thinking; raise both token limits",
    "load_in_4bit": "to fit the GPU; needs pip install 'decile[4bit]'",
    "test_share": "held out as test questions, chosen by content",
    "answers": "gold answers may come later: labels: FILE beside options",
    "kinds": "only rows with answers that need one of these markers",
    "unwrap": "questions are rendered in a chat template, and taken out of it",
    "prompt": "the questions contain instructions for the answer",
    "grid.policy": "more: decile ls policies",
    "seed": "one seed cannot decide between policies",
    "probe.samples": "completions per training prompt",
    "probe.max_completion_length": "tokens; raise it if completions are truncated",
    "max_steps": "updates",
    "num_generations": "completions per prompt and update",
    "gradient_accumulation_steps": f"{counted(PROMPTS_PER_UPDATE, 'prompt')} × {GROUP} completions "
    "per update",
    "lora": "PEFT's own names; those of grpo are TRL's",
    "every": "updates between evaluations on the test questions",
    "evaluate.samples": "completions per test question",
    "resources": "per trial; fractions allowed",
}


@dataclass(frozen=True)
class Starter:
    """The content of the file; `remarks` are further comments, by setting.

    The experiment has the name of the dataset.
    """

    dataset: str
    options: Mapping[str, Any]
    prompt: Mapping[str, Any]
    model: str
    source: ModelEntry
    budget: float
    tokens: int  # limit of a completion
    updates: int
    learning_rate: float
    rank: int
    batch: int
    cpus: int
    gpus: int
    cleaning: Mapping[str, Any] = field(default_factory=dict)  # settings of the data set
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # entries of a mix's parts
    remarks: Mapping[str, str] = field(default_factory=dict)

    @property
    def policies(self) -> Sequence[str]:
        """The policies of the grid."""
        return WITHOUT_GOLDS if self.options.get("answers") == "optional" else POLICIES

    def content(self) -> dict[str, Any]:
        """The file's content."""
        task = "mix" if self.parts else "file"
        data = {"task": task, "options": dict(self.options), "prompt": dict(self.prompt)}
        data |= self.cleaning
        grid = ([self.model], [self.dataset], [*self.policies], [*SEEDS])
        experiment = {
            "about": f"{counted(len(self.policies), 'policy', 'policies')} on {self.dataset}.",
            "grid": dict(zip(GRID_AXES, grid, strict=True)),
            "budget": self.budget,
            "probe": {
                "samples": 10,
                "temperature": 1.0,
                "max_completion_length": self.tokens,
            },
            "grpo": {
                "max_steps": self.updates,
                "learning_rate": self.learning_rate,
                "num_generations": GROUP,
                "per_device_train_batch_size": self.batch,
                "gradient_accumulation_steps": GROUP * PROMPTS_PER_UPDATE // self.batch,
                "max_completion_length": self.tokens,
                "save_steps": self.updates // 4,
            },
            "lora": {"r": self.rank, "lora_alpha": self.rank},
            "evaluate": {"every": self.updates // 2, "samples": 4},
            "resources": {"cpus": self.cpus, "gpus": self.gpus},
        }
        parts = {name: dict(part) for name, part in self.parts.items()}
        return {
            "storage": "./runs",
            "models": {self.model: self.source.model_dump(exclude_defaults=True)},
            "datasets": {**parts, self.dataset: data},
            "experiments": {self.dataset: experiment},
        }

    def render(self) -> str:
        """The file's text."""
        remarks = _REMARKS | dict(self.remarks)
        blocks = (_lines({name: block}, remarks) for name, block in self.content().items())
        return _HEADER + "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _lines(
    block: Mapping[str, Any], remarks: Mapping[str, str], of: str = "", indent: str = ""
) -> Iterator[str]:
    """A block `of` the file, without empty settings."""
    for name, value in block.items():
        setting = f"{indent}{scalar(name)}:"
        if isinstance(value, dict) and name not in _ON_ONE_LINE:
            yield setting
            yield from _lines(value, remarks, name, f"{indent}  ")
        elif value != {}:
            text, remark = f"{setting} {_written(value)}", remarks.get(f"{of}.{name}")
            remark = remark or remarks.get(name)
            yield f"{text:<{_COMMENT_COLUMN}}  # {remark}" if remark else text


def _written(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_written(v)}" for name, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return json.dumps(value)


def scalar(text: str) -> str:
    """A string as YAML on one line: plain if that is read as this string, else quoted."""
    ends_document = text == "..."  # which YAML reads as no value at all
    if _PLAIN.fullmatch(text) and not ends_document and yaml.safe_load(text) == text:
        return text
    quoted = yaml.safe_dump(text, default_style='"', width=10**9, allow_unicode=True)
    return str(quoted).rstrip("\n")

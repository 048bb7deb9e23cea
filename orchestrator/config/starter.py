"""The first experiments.yaml for data of one's own: commented, and valid as it is. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from orchestrator.plugins.counts import counted

# learnable takes prompts that are never solved last: many of these have a wrong gold answer.
POLICIES = ("hard", "learnable", "middle", "easy", "random")
GROUP = 8  # completions of a prompt in an update
_PLAIN = re.compile(r"[A-Za-z_./][\w./@+-]*", re.ASCII)
_COMMENT_COLUMN = 38
# {setting} is a line with a remark; other braces are doubled.
_TEMPLATE = """\
# Which of your prompts should GRPO train on? Written by decile init; change what you like.
# Every setting is described in docs/experiments.schema.json.
{storage}

models:
  {model}:
{source}

datasets:
  {dataset}:
    task: file
    options:
{options}
{prompt}
experiments:
  {experiment}:
    about: {about}
    grid:
      model: [{model}]
      dataset: [{dataset}]
{policies}
{seeds}
{budget}
    probe:
{samples}
      temperature: 1.0
{completion}
    grpo:
{updates}
      learning_rate: {learning_rate}
{group}
{batch}
{accumulation}
      max_completion_length: {tokens}
      save_steps: {save}
{lora}
    evaluate:
{every}
{answers}
{resources}
"""


@dataclass(frozen=True)
class Starter:
    """What the file says; `remarks` are comments by the setting that they explain.

    The experiment has the name of the dataset.
    """

    dataset: str
    options: Mapping[str, Any]
    model: str
    source: Mapping[str, Any]  # the model's entry
    budget: float
    prompts_per_update: int
    tokens: int  # limit of a completion
    updates: int
    learning_rate: float
    rank: int
    batch: int
    cpus: int
    gpus: int
    prompt: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = (0, 1, 2)
    samples: int = 10
    remarks: Mapping[str, str] = field(default_factory=dict)

    def render(self) -> str:
        """The file's text."""
        completions, half = GROUP * self.prompts_per_update, max(1, self.updates // 2)
        resources = {"cpus": self.cpus, "gpus": self.gpus}
        lora = {"r": self.rank, "lora_alpha": self.rank}
        prompt = self._line(4, "prompt", self.prompt) + "\n" if self.prompt else ""
        return _TEMPLATE.format(
            storage=_line(0, "storage", "./runs", "probes, subsets and results"),
            model=scalar(self.model),
            source=self._lines(4, self.source),
            dataset=scalar(self.dataset),
            options=self._lines(6, self.options),
            prompt=prompt,
            experiment=scalar(self.dataset),
            about=scalar(f"{len(POLICIES)} policies on {self.dataset}."),
            policies=_line(6, "policy", POLICIES, "more: decile ls policies"),
            seeds=_line(6, "seed", self.seeds, "one seed cannot decide between policies"),
            budget=self._line(4, "budget", self.budget),
            samples=_line(6, "samples", self.samples, "completions per training prompt"),
            completion=self._line(6, "max_completion_length", self.tokens),
            updates=_line(6, "max_steps", self.updates, "updates"),
            learning_rate=f"{self.learning_rate:g}",
            group=_line(6, "num_generations", GROUP, "completions per prompt and update"),
            batch=self._line(6, "per_device_train_batch_size", self.batch),
            accumulation=_line(
                6,
                "gradient_accumulation_steps",
                completions // self.batch,
                f"{counted(self.prompts_per_update, 'prompt')} × {GROUP} completions per update",
            ),
            tokens=self.tokens,
            save=max(1, self.updates // 4),
            lora=_line(4, "lora", lora, "PEFT's own names; those of grpo are TRL's"),
            every=_line(6, "every", half, "updates between evaluations on the test questions"),
            answers=_line(6, "samples", 4, "completions per test question"),
            resources=self._line(4, "resources", resources),
        )

    def _lines(self, indent: int, values: Mapping[str, Any]) -> str:
        return "\n".join(self._line(indent, name, value) for name, value in values.items())

    def _line(self, indent: int, name: str, value: Any) -> str:
        return _line(indent, name, value, self.remarks.get(name, ""))


def _line(indent: int, name: str, value: Any, remark: str) -> str:
    setting = f"{' ' * indent}{name}: {_written(value)}"
    return f"{setting:<{_COMMENT_COLUMN}}  # {remark}" if remark else setting


def _written(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_written(v)}" for name, v in value.items()) + "}"
    return "[" + ", ".join(map(_written, value)) + "]"


def scalar(text: str) -> str:
    """A string as YAML on one line: plain where that is read as this string, else quoted."""
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    quoted = yaml.safe_dump(text, default_style='"', width=10**9, allow_unicode=True)
    return str(quoted).rstrip("\n")

"""The prompts of a dataset: its training pool and its test set, hashed by content."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from orchestrator.models import canonical_hash
from tasks import Prompt, Task, get_task

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Dataset:
    """A task with its options and its reading of answers: enough to rebuild it in any process."""

    name: str
    task: str
    options: dict[str, Any]
    marking: str

    def build(self) -> Task:
        """The task; TaskError where an option or a data file is wrong."""
        return get_task(self.task, marking=self.marking, **self.options)


@dataclass(frozen=True)
class Pool:
    """A dataset's prompts, loaded."""

    task: Task
    train: list[Prompt]
    test: list[Prompt]

    def prompts(self, split: Split) -> list[Prompt]:
        """The prompts of one split."""
        return self.train if split == "train" else self.test

    def tiers(self, split: Split) -> dict[str, str]:
        """prompt_id -> tier."""
        return {p.prompt_id: p.tier for p in self.prompts(split)}

    @cached_property
    def train_hash(self) -> str:
        """Content hash of the training pool; order does not matter."""
        return canonical_hash(sorted(p.prompt_id for p in self.train))

    @cached_property
    def test_hash(self) -> str:
        """Content hash of the test set."""
        return canonical_hash(sorted(p.prompt_id for p in self.test))


def load_pool(dataset: Dataset) -> Pool:
    """Build the task and load both splits."""
    task = dataset.build()
    return Pool(task, task.train(), task.test())


def marker_name(task: Task) -> str:
    """What judged a completion, as stored beside every mark: task, marker version, reading."""
    return f"{task.name}/{task.marker_version}/{task.marking}"


def template_hash(task: Task) -> str:
    """Hash of the chat around a question: wording, system prompt and examples."""
    return canonical_hash([task.name, task.version, task.messages("{question}")])

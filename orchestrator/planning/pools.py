"""The prompts of a dataset: its training pool and its test set, hashed by content."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from orchestrator.planning.overlap import Overlap, describe, find_overlap, without_overlap
from orchestrator.storage.hashing import canonical_hash
from tasks import Prompt, Task, get_task

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Dataset:
    """A task with its options and its reading of answers: enough to rebuild it in any process.

    `prompt` is what YAML says of the chat around a question; `max_marking_errors` the share of a
    batch that may fail to be judged; `drop_overlap` takes training prompts out that the test holds,
    or that of `apart_from`.
    """

    name: str
    task: str
    options: dict[str, Any]
    marking: str
    prompt: dict[str, Any] = field(default_factory=dict)
    max_marking_errors: float = 1.0
    drop_overlap: bool = False
    apart_from: tuple["Dataset", ...] = ()

    def build(self) -> Task:
        """The task; TaskError where an option or a data file is wrong."""
        asked = {"prompt": self.prompt} if self.prompt else {}
        return get_task(self.task, marking=self.marking, **asked, **self.options)


@dataclass(frozen=True)
class Pool:
    """A dataset's prompts, loaded."""

    dataset: Dataset
    task: Task
    train: list[Prompt]
    test: list[Prompt]
    notes: tuple[str, ...] = ()  # what was left out of the source, and why

    def prompts(self, split: Split) -> list[Prompt]:
        """The prompts of one split."""
        return self.train if split == "train" else self.test

    def overlap(self, test: "Pool") -> list[Overlap]:
        """The training prompts that a test set holds too, word for word or nearly."""
        return find_overlap(self.train, test.test)

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
    """Build the task and load both splits; training prompts that overlap go where asked."""
    task = dataset.build()
    train, test = task.train(), task.test()
    notes = list(task.notes)
    if dataset.drop_overlap:
        tests = {"test": test, **{d.name: d.build().test() for d in dataset.apart_from}}
        for name, load_samples in tests.items():
            if found := find_overlap(train, load_samples):
                notes.append(f"dropped: {describe(found, len(train), name)}")
                train = without_overlap(train, found)
    return Pool(dataset, task, train, test, tuple(notes))


def template_hash(task: Task) -> str:
    """Hash of the chat around a question: wording, system prompt and examples."""
    return canonical_hash([task.name, task.version, task.messages("{question}")])

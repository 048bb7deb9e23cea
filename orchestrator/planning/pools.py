"""The prompts of a dataset: its training pool and its test set, with content hashes."""

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from orchestrator.planning.overlap import Overlap, describe, find_overlap, without_overlap
from orchestrator.storage.hashing import canonical_hash
from tasks import Prompt, Task, TaskError, get_task, is_shipped
from tasks.user_code import named_errors, title_of

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Dataset:
    """A task with its options and marking: all that is needed to build it in any process.

    `prompt` configures the chat around a question; `max_marking_errors` is the share of a batch on
    which the marker may fail. `drop_overlap` removes training prompts that are duplicates of
    questions in the test set, or in those of `apart_from`.
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
        """The task. TaskError for an invalid option or data file."""
        prompt = {"prompt": self.prompt} if self.prompt else {}
        return get_task(self.task, marking=self.marking, **prompt, **self.options)


@dataclass(frozen=True)
class Pool:
    """The loaded prompts of a dataset."""

    dataset: Dataset
    task: Task
    train: list[Prompt]
    test: list[Prompt]
    notes: tuple[str, ...] = ()  # what was excluded from the source, and why

    def prompts(self, split: Split) -> list[Prompt]:
        """The prompts of one split."""
        return self.train if split == "train" else self.test

    def overlap(self, test: "Pool") -> list[Overlap]:
        """The training prompts that are exact or near duplicates of a test set's."""
        return find_overlap(self.train, test.test)

    def tiers(self, split: Split) -> dict[str, str]:
        """prompt_id -> tier."""
        return {p.prompt_id: p.tier for p in self.prompts(split)}

    @cached_property
    def train_hash(self) -> str:
        """Content hash of the training pool, independent of order."""
        return canonical_hash(sorted(p.prompt_id for p in self.train))

    @cached_property
    def test_hash(self) -> str:
        """Content hash of the test set, independent of order."""
        return canonical_hash(sorted(p.prompt_id for p in self.test))


def load_pool(dataset: Dataset) -> Pool:
    """Build the task, load both splits and drop overlapping training prompts if configured."""
    task = dataset.build()
    train, test = load_prompts(task, "train"), load_prompts(task, "test")
    notes = list(task.notes)
    if dataset.drop_overlap:
        others = {d.name: load_prompts(d.build(), "test") for d in dataset.apart_from}
        tests = {"test": test, **others}
        for name, prompts in tests.items():
            if overlaps := find_overlap(train, prompts):
                notes.append(f"dropped: {describe(overlaps, len(train), name)}")
                train = without_overlap(train, overlaps)
    return Pool(dataset, task, train, test, tuple(notes))


def load_prompts(task: Task, split: Split) -> list[Prompt]:
    """The prompts of one split. Raises TaskError where a custom task returns anything else."""
    place = f"{title_of(task)}: {split}()"
    read = task.train if split == "train" else task.test
    # A bug of ours keeps its traceback.
    with nullcontext() if is_shipped(task) else named_errors(place):
        prompts: Any = read()
    form = "return a list of tasks.Prompt, such as make_prompt(task, question, answer, tier)"
    if not isinstance(prompts, list | tuple):
        raise TaskError(f"{place} returned {type(prompts).__name__}: {form}")
    ids: set[str] = set()
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, Prompt):
            raise TaskError(f"{place}[{index}] is {type(prompt).__name__}: {form}")
        for name in ("prompt_id", "question", "answer", "tier"):
            if not isinstance(value := getattr(prompt, name), str):
                raise TaskError(f"{place}[{index}].{name} is {value!r:.80}: write a string")
        if prompt.prompt_id in ids:
            raise TaskError(f"{place}[{index}] repeats a prompt_id: return it once")
        ids.add(prompt.prompt_id)
    return list(prompts)


def template_hash(task: Task) -> str:
    """Hash of the chat around a question: template, system prompt and examples."""
    with named_errors(f"{title_of(task)}: name, version or messages()"):
        return canonical_hash([task.name, task.version, task.messages("{question}")])

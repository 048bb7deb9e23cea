"""The prompts of a dataset: its training pool and its test set, with content hashes."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from orchestrator.planning.overlap import Overlap, describe, find_overlap, without_overlap
from orchestrator.storage.proof import canonical_hash, sequence_hash
from tasks import Prompt, Task, TaskError, get_task, is_shipped, task_errors, title_of
from tasks.prompt_table import ROWS, PromptTable
from tasks.sources.source import ReadTask

Split = Literal["train", "test"]

_FORM = "return a list of tasks.Prompt, such as make_prompt(task, question, answer, tier)"


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
    train: PromptTable
    test: PromptTable
    notes: tuple[str, ...] = ()  # what was excluded from the source, and why
    dropped_prompts: int = 0  # training prompts left out for being test questions, or almost

    def prompts(self, split: Split) -> PromptTable:
        """The prompts of one split."""
        return self.train if split == "train" else self.test

    def overlap(self, test: "Pool") -> list[Overlap]:
        """The training prompts that are exact or near duplicates of a test set's."""
        return find_overlap(self.train, test.test)

    def tiers(self, split: Split) -> dict[str, str]:
        """prompt_id -> tier."""
        prompts = self.prompts(split)
        ids, tiers = prompts.column("prompt_id"), prompts.column("tier")
        return dict(zip(ids.to_pylist(), tiers.to_pylist(), strict=True))

    @cached_property
    def train_hash(self) -> str:
        """Content hash of the training pool, independent of order."""
        return sequence_hash(_sorted_ids(self.train))

    @cached_property
    def test_hash(self) -> str:
        """Content hash of the test set, independent of order."""
        return sequence_hash(_sorted_ids(self.test))


def _sorted_ids(prompts: PromptTable) -> Iterator[list[str]]:
    """The ids in their order, many at a time."""
    for start in range(0, len(prompts), ROWS):
        yield prompts.ids(prompts.order[start : start + ROWS]).to_pylist()


def load_pool(dataset: Dataset) -> Pool:
    """Build the task, load both splits and drop overlapping training prompts if configured."""
    task = dataset.build()
    train, test = load_prompts(task, "train"), load_prompts(task, "test")
    notes, dropped = list(task.notes), task.dropped_prompts
    if dataset.drop_overlap:
        others = {d.name: load_prompts(d.build(), "test") for d in dataset.apart_from}
        tests = {"test": test, **others}
        for name, prompts in tests.items():
            if overlaps := find_overlap(train, prompts):
                notes.append(f"dropped: {describe(overlaps, len(train), name)}")
                train = without_overlap(train, overlaps)
                dropped += len(overlaps)
    return Pool(dataset, task, train, test, tuple(notes), dropped)


def load_prompts(task: Task, split: Split) -> PromptTable:
    """The prompts of one split. Raises TaskError where a custom task returns anything else."""
    place = f"{title_of(task)}: {split}()"
    shipped = is_shipped(task)
    if shipped and isinstance(task, ReadTask):
        return task.prompt_table(split)
    read = task.train if split == "train" else task.test
    # A bug of ours keeps its traceback.
    with nullcontext() if shipped else task_errors(task, f"{split}()"):
        prompts: Any = read()
    if not isinstance(prompts, list | tuple):
        raise TaskError(f"{place} returned {type(prompts).__name__}: {_FORM}")
    ids: set[str] = set()
    for index, prompt in enumerate(prompts):
        _check_prompt(prompt, f"{place}[{index}]")
        if prompt.prompt_id in ids:
            raise TaskError(f"{place}[{index}] repeats a prompt_id: return it once")
        ids.add(prompt.prompt_id)
    try:
        return PromptTable.of(prompts)
    except TaskError as error:
        raise TaskError(f"{place}: {error}") from error


def _check_prompt(prompt: Any, place: str) -> None:
    """Raise TaskError unless it is a prompt of four strings."""
    if not isinstance(prompt, Prompt):
        raise TaskError(f"{place} is {type(prompt).__name__}: {_FORM}")
    for name in ("prompt_id", "question", "answer", "tier"):
        if not isinstance(value := getattr(prompt, name), str):
            raise TaskError(f"{place}.{name} is {value!r:.80}: write a string")


def template_hash(task: Task) -> str:
    """Hash of the chat around a question: template, system prompt and examples."""
    with task_errors(task, "name, version or messages()"):
        return canonical_hash([task.name, task.version, task.messages("{question}")])

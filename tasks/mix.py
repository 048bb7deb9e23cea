"""Several data sets as one pool, each with its own wording, marker and test questions."""

import copy
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.plugins.shares import SLACK, largest_remainder
from tasks.base import Marking, MarkLimits, Message, Task, Template
from tasks.errors import TaskError
from tasks.marking.marks import Mark
from tasks.prompts import Answer, Prompt
from tasks.question_file import QuestionFile
from tasks.sources.hub import HubFails, NotCached, Repository
from tasks.sources.source import ReadTask
from tasks.sources.values import json_text

if TYPE_CHECKING:
    from tasks.prompt_table import PromptTable

PART = "part"  # the key of a prompt's info that names the data set it comes from
HOW = "write parts: [gsm, maths], or with shares or counts, such as {gsm: 0.7, maths: 0.3}"


class Part(NamedTuple):
    """A data set of the mix: its task, and the share or the number of its training prompts."""

    task: Task
    share: float | None
    prompts: int | None


class PartError(TaskError):
    """What is wrong with a data set of a mix; `part` is its name."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(part, message)
        self.part = part

    def __str__(self) -> str:
        return ": ".join(self.args)


class Mix(ReadTask):
    """Several data sets of the file as one pool, with shares or numbers of prompts.

    Prompts are taken in the order of their ids, so that a larger share contains a smaller one. Each
    prompt keeps the wording, the marker and the id of its data set, and `source` is the name of
    that data set. If the data set has a source column, it becomes a kept column with its name in
    the file. The test set has the test questions of all data sets; a training prompt that is a test
    question of another data set is left out. Multi-turn tasks cannot be part of a mix.

    Options:
        parts: data sets of the file, or tasks with default options: a list (every prompt), a
            mapping to shares that sum to 1 (the largest pool with these shares), or a mapping to
            numbers of training prompts (null: all).
    """

    name: ClassVar[str] = "mix"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "1"
    templates: ClassVar[Mapping[str, Template]] = {"plain": Template("{question}")}
    why_no_variants: ClassVar[str] = "each data set of the mix is checked by itself"

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        parts: Mapping[str, Any] | Sequence[str] | None = None,
    ) -> None:
        super().__init__(marking=marking, prompt=prompt)
        if prompt:
            raise TaskError("a mix has no prompt of its own: write prompt in each data set")
        if not isinstance(parts, Mapping) or len(parts) < 2:
            named = [*parts] if isinstance(parts, Mapping) else parts
            raise TaskError(f"parts is {named!r:.80}: name at least two data sets: {HOW}")
        self.parts_by_name = {name: _part(name, spec, marking) for name, spec in parts.items()}
        self.mixed_tasks = [part.task for part in self.parts_by_name.values()]
        self.labelled_sources = [
            name for name, part in self.parts_by_name.items() if not part.task.optional_answers
        ]
        self.optional_answers = len(self.labelled_sources) < len(parts)
        limits = (task.mark_limits for task in self.mixed_tasks)
        self.mark_limits = MarkLimits(*map(max, zip(*limits, strict=True)))
        shares = [p.share for p in self.parts_by_name.values() if p.share is not None]
        if 0 < len(shares) < len(parts):
            raise TaskError(f"parts has shares for only some data sets: {HOW}")
        if shares and abs(sum(shares) - 1) > SLACK:
            raise TaskError(f"the shares of parts sum to {sum(shares):g}, not 1: {HOW}")

    def read(self) -> "tuple[PromptTable, PromptTable]":
        """The prompts of all data sets, one after another."""
        from tasks.prompt_table import PromptTable

        pools = {name: _tables(name, part.task) for name, part in self.parts_by_name.items()}
        sizes = self._sizes({name: len(train) for name, (train, _) in pools.items()})
        taken: tuple[list[Any], list[Any]] = ([], [])
        for name, (train, test) in pools.items():
            task = self.parts_by_name[name].task
            column = task.kept.source_name if isinstance(task, QuestionFile) else "source"
            for note in task.notes:
                self.note(f"{name}: {note}")
            if isinstance(task, ReadTask):
                batches = task.left_out.batches
                self._left_out[name] = PromptTable(_named(b, name, column) for b in batches)
            self._origins |= {f"{name} {split}": o for split, o in task.provenance.items()}
            counts = RowCounts(len(train) + len(test))
            if isinstance(task, ReadTask):
                counts = task.row_counts(counts.read)
            not_taken = RowCounts(0, {"not taken into the mix": len(train) - sizes[name]})
            self._rows[name] = RowCounts.sum([counts, not_taken])
            if sizes[name] < len(train):
                self.note(f"{name}: {sizes[name]:,} of {counted(len(train), 'prompt')} taken")
                train = train.take(np.sort(train.order[: sizes[name]]))
            for batches, table in zip(taken, (train, test), strict=True):
                batches += [_named(batch, name, column) for batch in table.batches]
        return PromptTable(taken[0]), PromptTable(taken[1])

    def _sizes(self, available: Mapping[str, int]) -> dict[str, int]:
        """The training prompts to take of each data set. Raises TaskError if it has fewer."""
        parts = self.parts_by_name
        counts = {name: part.prompts for name, part in parts.items() if part.prompts is not None}
        if too_many := next((n for n, count in counts.items() if count > available[n]), None):
            raise TaskError(
                f"{too_many} has {counted(available[too_many], 'training prompt')}, fewer than "
                f"{counts[too_many]:,}: write at most that many"
            )
        shares = {name: part.share for name, part in parts.items() if part.share is not None}
        if not shares:
            return {**available, **counts}
        total = int(min(available[name] / share for name, share in shares.items()) + 1e-9)
        exact = np.array([*shares.values()]) / sum(shares.values()) * total
        return dict(zip(shares, largest_remainder(exact, total), strict=True))

    @property
    def downloads(self) -> list[Repository]:
        """Those of its tasks."""
        tasks = [task for task in self.mixed_tasks if isinstance(task, ReadTask)]
        return list(dict.fromkeys(each for task in tasks for each in task.downloads))

    @property
    def template_content(self) -> list[Any]:
        """Those of its tasks, by the name of the data set."""
        parts = {name: part.task.template_content for name, part in self.parts_by_name.items()}
        return [self.name, self.version, parts]

    def messages_of(self, question: str, info: str) -> list[Message]:
        """The messages of the data set that the question comes from."""
        name, own = _of(info)
        return self.parts_by_name[name].task.messages_of(question, own)

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """Raises TaskError: the marker depends on the prompt."""
        raise TaskError("a mix marks a completion with the marker of its prompt's data set")

    def mark_answer(self, answer: Answer) -> Mark:
        """The mark of the data set that the question comes from."""
        return self.mark_all([answer])[0]

    def mark_all(self, answers: Sequence[Answer]) -> list[Mark]:
        """The marks of each data set, with all of its answers at once."""
        of_part: dict[str, list[tuple[int, Answer]]] = {}
        for index, answer in enumerate(answers):
            name, info = _of(answer.info)
            of_part.setdefault(name, []).append((index, answer._replace(info=info)))
        marks: dict[int, Mark] = {}
        for name, own in of_part.items():
            task = self.parts_by_name[name].task
            values = task.mark_all([answer for _, answer in own])
            marks |= dict(zip((index for index, _ in own), values, strict=True))
        return [marks[index] for index in range(len(answers))]

    def with_marking(self, marking: Marking) -> Self:
        """The same mix with a different reading of answers."""
        mix = copy.copy(self)
        mix.marking = marking
        mix.parts_by_name = {
            name: part._replace(task=part.task.with_marking(marking))
            for name, part in self.parts_by_name.items()
        }
        mix.mixed_tasks = [part.task for part in mix.parts_by_name.values()]
        return mix

    @property
    def marker_id(self) -> str:
        """The markers of all data sets."""
        markers = "; ".join(f"{n}: {p.task.marker_id}" for n, p in self.parts_by_name.items())
        return f"{self.name}/{self.marker_version} ({markers})"

    def task_of(self, source: str) -> Task:
        """Sources are the names of the data sets."""
        return self.parts_by_name[source].task

    def solution(self, prompt: Prompt) -> str | None:
        """That of the data set that the prompt comes from."""
        task, own = self.own(prompt)
        return task.solution(own)

    def wrong_completion(self, prompt: Prompt) -> str:
        """That of the data set that the prompt comes from."""
        task, own = self.own(prompt)
        return task.wrong_completion(own)

    def own(self, prompt: Prompt) -> tuple[Task, Prompt]:
        """The task of a prompt's data set, and that task's form of the prompt."""
        name, info = _of(prompt.info)
        return self.parts_by_name[name].task, replace(prompt, info=info)

    @classmethod
    def marker_variants(cls) -> list[Task]:
        """None: its data sets are checked by themselves."""
        return []


def _part(name: str, spec: Any, marking: Marking) -> Part:
    from tasks import get_task

    if not isinstance(spec, Mapping) or "task" not in spec:
        raise TaskError(
            f"parts: {name!r:.80} is not a data set of the file: write one below datasets"
        )
    prompt = {"prompt": spec["prompt"]} if spec.get("prompt") else {}
    try:
        task = get_task(spec["task"], marking=marking, **prompt, **spec.get("options", {}))
    except TaskError as error:
        raise PartError(name, str(error)) from error
    if isinstance(task, Mix) or task.environment is not None:
        kind = "a mix" if isinstance(task, Mix) else "a multi-turn task"
        raise TaskError(f"parts: {name} is {kind}, which cannot be part of a mix: leave it out")
    amount = spec.get("amount")
    if amount is None:
        return Part(task, None, None)
    if type(amount) is int and amount > 0:
        return Part(task, None, amount)
    if type(amount) is float and 0 < amount <= 1:
        return Part(task, amount, None)
    raise TaskError(f"parts: {name} is {amount!r:.80}: write a share such as 0.5, or a number")


def _tables(name: str, task: Task) -> "tuple[PromptTable, PromptTable]":
    """The training pool and the test questions of a data set. Raises PartError."""
    from tasks.prompt_table import PromptTable

    try:
        if isinstance(task, ReadTask):
            return task.prompt_table("train"), task.prompt_table("test")
        return PromptTable.of(task.train()), PromptTable.of(task.test())
    except (NotCached, HubFails):  # not an error of the data set
        raise
    except TaskError as error:
        raise PartError(name, str(error)) from error


def _named(batch: Any, name: str, column: str) -> Any:
    """Prompts with the name of their data set, as the source and in their info.

    Their source in the data set is kept in a column of its name.
    """
    import pyarrow as pa

    infos, kept, sources = (batch.column(c).to_pylist() for c in ("info", "kept", "source"))
    empty = _with_name("", name)
    columns = {
        "info": [_with_name(info, name) if info else empty for info in infos],
        "kept": [_with_source(*each, column) for each in zip(kept, sources, strict=True)],
        "source": [name] * len(infos),
    }
    for each, texts in columns.items():
        at = batch.schema.names.index(each)
        batch = batch.set_column(at, each, pa.array(texts, pa.string()))
    return batch


def _with_source(kept: str, source: str, column: str) -> str:
    """The kept columns of a prompt, as JSON text, with its own source among them."""
    if not source:
        return kept
    columns = json.loads(kept) if kept else {}
    return json_text({column: source, **columns})


def _with_name(info: str, name: str) -> str:
    """The info with the name of the data set; columns for reward functions are unchanged."""
    content: Any = {"info": info}
    with suppress(ValueError):  # a custom task may write any text
        content = json.loads(info) if info else {}
    if not isinstance(content, dict) or PART in content or content.keys() == {"info"}:
        content = {"info": info}
    return json_text({PART: name, **content})


def _of(info: str) -> tuple[str, str]:
    """The name of a prompt's data set, and its info there."""
    content = json.loads(info)
    name = content.pop(PART)
    if content.keys() == {"info"}:
        return name, content["info"]
    return name, json_text(content) if content else ""

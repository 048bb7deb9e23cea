"""Which answers to the prompts of a pool are equal for the markers of its tasks."""

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.answers import AT_ONCE, Spellings, Votes
from orchestrator.probing.answers import Answers
from orchestrator.probing.outcomes import Codes
from tasks import OUTCOMES, Task, is_shipped
from tasks.marking.spelling import AnswerComparison
from tasks.prompt_table import PromptTable

WRONG = OUTCOMES.index("wrong")


def comparison_of(task: Task | None) -> AnswerComparison | None:
    """The answer comparison of the task's marker; None for a user's own, which never runs here."""
    return task.comparison if task is not None and is_shipped(task) else None


class PoolSpellings:
    """The same for a pool; a mix may have several markers."""

    def __init__(self, answers: Answers, task: Task, prompts: PromptTable) -> None:
        self._answers = answers
        self._part = np.zeros(len(prompts), np.int32)  # [prompts], in the order of their ids
        tasks = [task]
        if task.mixed_tasks:
            ordered = prompts.column("source").combine_chunks().take(pa.array(prompts.order))
            sources = ordered.dictionary_encode()
            self._part = sources.indices.to_numpy()
            tasks = [task.task_of(name) for name in sources.dictionary.to_pylist()]
        self._spellings = [Spellings(answers.texts, comparison_of(each)) for each in tasks]

    def votes(self, codes: Codes) -> Votes:
        """The votes of the samples with outcomes [prompts, K], in the order of the prompts' ids."""
        parts = [np.empty((4, 0), np.int32)]
        step = max(1, AT_ONCE // max(1, codes.shape[1]))
        for start in range(0, len(codes), step):
            rows = slice(start, start + step)
            texts = self._answers.codes[rows, : codes.shape[1]]
            row, sample = np.nonzero(texts >= 0)
            text = texts[row, sample]
            wrong = codes[rows][row, sample] == WRONG
            part, own = self._part[rows][row], []
            for number, spellings in enumerate(self._spellings):
                here = part == number
                own.append(spellings.votes(row[here], text[here], wrong[here]).entries)
            entries = np.concatenate(own, axis=1)
            entries = entries[:, np.argsort(entries[0], kind="stable")]
            entries[0] += start
            parts.append(entries)
        return Votes(np.concatenate(parts, axis=1), self._answers.texts)

"""Failed samples that contain the gold answer in a form that the marker does not read.

They are detected with the task's other reading, which is stored with every mark. A user's own
marker has no other reading: a shipped marker for the gold's kind then reads the text leniently.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.probing.answers import only_otherwise_correct
from tasks import Task, is_shipped
from tasks.marking.golds import Marker
from tasks.marking.marks import FAILED
from tasks.question_file import QuestionFile
from tasks.sources.answer_kinds import kind_of

Bools = npt.NDArray[np.bool_]

TEXTS = ("completion", "finish")  # columns of samples that are read for a user's own marker


@cache
def _marker(kind: Marker) -> QuestionFile:
    """The shipped marker for this kind of answer, with lenient reading."""
    return QuestionFile(marker=kind)


def reads_texts(task: Task) -> bool:
    """Whether only the texts show answers in another form, because there is no other reading."""
    tasks = task.mixed_tasks or [task]
    return any(
        each.environment is None
        and (not is_shipped(each) or getattr(each, "function", None) is not None)
        for each in tasks
    )


def in_other_form(samples: pa.Table, golds: pa.Array | None) -> Bools:
    """Whether each of these samples failed and contains the gold answer in another form.

    golds: of each sample; None if the other reading is enough. Golds that shipped markers cannot
    read, such as tests of a program, are not searched for.
    """
    other = only_otherwise_correct(samples)
    if golds is not None:
        failed = pc.is_in(samples["outcome"], value_set=pa.array(FAILED))
        rows = np.flatnonzero(failed.to_numpy() & ~other)
        columns = (samples[name].take(pa.array(rows)).to_pylist() for name in TEXTS)
        texts = zip(rows, *columns, golds.take(pa.array(rows)).to_pylist(), strict=True)
        for row, text, finish, gold in texts:
            kind = kind_of(gold or "")
            if kind != "none" and text:
                mark = _marker(kind).mark(text, gold, finish == "length")
                other[row] = mark.outcome == "correct"
    return other

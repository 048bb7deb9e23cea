"""Test questions that training prompts contain: runs of words and of characters. Pure.

`overlap` compares whole questions. It misses a test question inside a longer prompt: after an
instruction, among examples, or before a solution. A prompt contains a question if it has at least
the share CONTAINED of the question's runs of WORDS words, or of its runs of CHARACTERS characters
within words. Runs of characters also match different spacing and languages without spaces. Both are
joins of hashes of 64 bits.

Runs that occur in more than COMMON test questions belong to a template or an instruction, and do
not count (GPT-3 left out runs in more than ten documents; Brown et al. 2020, appendix C). A
question without any other run is too short, or only template, to be detected.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.planning.shingles import Hashes, Ints, RowRuns, character_runs, word_runs
from orchestrator.plugins.counts import counted
from tasks import Prompt
from tasks.prompt_table import PromptTable

WORDS, CHARACTERS = 8, 50  # of a run
CONTAINED = 0.8  # share of a test question's runs in a training prompt that contains it
COMMON = 10  # test questions that may share a run
_TABLE_BITS = 26  # of the first, approximate look-up of a hash
_BATCH = 2**22  # bytes of questions, or runs of candidates, that are compared at once
_ROW = np.uint64(2**32 - 1)

Kind = Literal["words", "characters"]
RUNS: dict[Kind, Callable[[pa.Array], RowRuns]] = {
    "words": lambda questions: word_runs(questions, WORDS),
    "characters": lambda questions: character_runs(questions, CHARACTERS),
}


class Contained(NamedTuple):
    """A training prompt, the test question that shares most runs with it, and their share."""

    train_id: str
    evaluation_id: str
    kind: Kind
    share: float


class Containment(NamedTuple):
    """The training prompts that contain a test question, in their order, and counts of questions.

    contained: questions inside a training prompt; by: the same by kind of run; touched: questions
    with some run anywhere in the pool; untold: questions without an informative run.
    """

    prompts: list[Contained]
    contained: int
    by: dict[Kind, int]
    touched: int
    untold: int
    questions: int

    def describe(self, total: int, evaluation: str = "test") -> str:
        """One line, for a pool of `total` training prompts."""
        parts = [
            f"{self.contained:,} of {counted(self.questions, 'question')} in "
            f"{len(self.prompts):,} of {counted(total, 'training prompt')}"
        ]
        if self.contained:
            words, characters = self.by.values()
            parts[0] += f" ({words:,} by {WORDS} words, {characters:,} by {CHARACTERS} characters)"
        if some := self.touched - self.contained:
            parts.append(f"{some:,} more share a run with the pool")
        if self.untold:
            parts.append(f"unknown for {self.untold:,}, which are too short or only template")
        return f"containment in {evaluation}: {'; '.join(parts)}"


def find_containment(train: Sequence[Prompt], evaluation: Sequence[Prompt]) -> Containment:
    """The test questions that training prompts contain, and which of them.

    If a prompt contains several questions, the one with the largest share is listed, by words if by
    both; ties go to the smallest evaluation id.
    """
    pool, tests = PromptTable.of(train), PromptTable.of(evaluation)
    by_id = tests.take(tests.order)
    questions = by_id.column("question").combine_chunks()
    matches: list[Ints] = []  # rows: kind, training prompt, test question
    shares = []
    touched, has_runs = np.zeros((2, len(tests)), dtype=bool)
    for number, runs_of in enumerate(RUNS.values()):
        index = _Index(runs_of(questions), len(tests))
        for first, part in _batches(pool.column("question")):
            rows, contained, share = index.pairs(runs_of(part))
            matches.append(np.stack([np.full(len(rows), number), rows + first, contained]))
            shares.append(share)
        touched |= index.touched
        has_runs |= index.sizes > 0
    kind, rows, contained = np.concatenate([np.empty((3, 0), dtype=np.int64), *matches], axis=1)
    share = np.concatenate([np.empty(0), *shares])
    best = np.lexsort((contained, kind, -share, rows))
    best = best[np.unique(rows[best], return_index=True)[1]]
    names: list[Kind] = [*RUNS]
    train_ids = pool.column("prompt_id").take(pa.array(rows[best])).to_pylist()
    test_ids = by_id.column("prompt_id").take(pa.array(contained[best])).to_pylist()
    return Containment(
        [
            Contained(train_id, test_id, names[kind], share)
            for train_id, test_id, kind, share in zip(
                train_ids, test_ids, kind[best].tolist(), share[best].tolist(), strict=True
            )
        ],
        len(np.unique(contained)),
        {name: len(np.unique(contained[kind == number])) for number, name in enumerate(names)},
        int(np.count_nonzero(touched)),
        int(np.count_nonzero(~has_runs)),
        len(tests),
    )


def _batches(questions: pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    """Parts of about _BATCH bytes, each with the number of its first row."""
    first = 0
    for chunk in questions.chunks:
        rows = max(1, len(chunk) * _BATCH // max(1, chunk.nbytes))
        for start in range(0, len(chunk), rows):
            yield first + start, chunk.slice(start, rows)
        first += len(chunk)


class _Index:
    """The runs of a test set by their hashes, each once per question.

    A prompt with a share t of a question's runs has one of its (1 - t) * size + 1 rarest runs, so
    candidates are looked up with these only (prefix filtering, as in `overlap`).
    """

    def __init__(self, runs: RowRuns, questions: int) -> None:
        self.hashes, number = np.unique(runs.hashes, return_inverse=True)
        pairs = np.unique(_keys(runs.rows, number.reshape(-1)))
        row, number = (pairs >> np.uint64(32)).astype(np.int64), (pairs & _ROW).astype(np.int64)
        holders = np.bincount(number, minlength=len(self.hashes))
        telling = holders[number] <= COMMON
        row, self.runs = row[telling], number[telling]  # in the order of questions
        self.sizes = np.bincount(row, minlength=questions)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self.seen = np.zeros(len(self.hashes), dtype=bool)
        self.table = np.zeros(1 << _TABLE_BITS, dtype=bool)
        self.table[_place(self.hashes)] = True
        order = np.lexsort((self.runs, holders[self.runs], row))
        # Round up: a prefix that is too long costs time, one that is too short misses matches.
        prefix = self.sizes - np.ceil(CONTAINED * self.sizes - 1e-9).astype(np.int64) + 1
        rare = order[np.arange(len(order)) - self.starts[row] < prefix[row]]
        rare = rare[np.argsort(self.runs[rare], kind="stable")]
        self.held_by = row[rare]
        counts = np.bincount(self.runs[rare], minlength=len(self.hashes))
        self.held_from = np.concatenate([[0], np.cumsum(counts)])

    @property
    def touched(self) -> np.ndarray:
        """The questions with at least one run seen so far."""
        rows = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return np.bincount(rows[self.seen[self.runs]], minlength=len(self.sizes)) > 0

    def pairs(self, runs: RowRuns) -> tuple[Ints, Ints, np.ndarray]:
        """Rows of training prompts, the questions that each contains, and the shares of runs."""
        at = np.flatnonzero(self.table[_place(runs.hashes)])
        number = np.searchsorted(self.hashes, runs.hashes[at])
        number = np.minimum(number, len(self.hashes) - 1)
        equal = self.hashes[number] == runs.hashes[at] if len(at) else np.zeros(0, dtype=bool)
        number, row = number[equal], runs.rows[at[equal]]
        self.seen[number] = True
        known = np.unique(_keys(row, number))
        row, number = (known >> np.uint64(32)).astype(np.int64), (known & _ROW).astype(np.int64)
        holders = _ranges(self.held_from[number], self.held_from[number + 1])
        many = self.held_from[number + 1] - self.held_from[number]
        candidates = np.unique(_keys(np.repeat(row, many), self.held_by[holders]))
        row = (candidates >> np.uint64(32)).astype(np.int64)
        question = (candidates & _ROW).astype(np.int64)
        shares = [np.empty(0)]
        step = max(1, _BATCH // max(1, int(self.sizes.max(initial=1))))
        for start in range(0, len(row), step):
            some = question[start : start + step]
            sizes = self.sizes[some]
            own = self.runs[_ranges(self.starts[some], self.starts[some + 1])]
            keys = _keys(np.repeat(row[start : start + step], sizes), own)
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            pair = np.repeat(np.arange(len(some)), sizes)
            shared = np.bincount(pair[known[place] == keys], minlength=len(some))
            shares.append(shared / sizes)
        share = np.concatenate(shares)
        contained = share >= CONTAINED - 1e-9
        return row[contained], question[contained], share[contained]


def _keys(rows: Ints, numbers: Ints) -> Hashes:
    """A row and a number below 2**32 as one number, which sorts by row."""
    return (rows.astype(np.uint64) << np.uint64(32)) | numbers.astype(np.uint64)


def _place(hashes: Hashes) -> Ints:
    return (hashes >> np.uint64(64 - _TABLE_BITS)).astype(np.int64)


def _ranges(starts: Ints, ends: Ints) -> Ints:
    """The numbers from each start up to its end, one range after the other."""
    sizes = ends - starts
    first: Ints = np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    return first + np.arange(len(first))

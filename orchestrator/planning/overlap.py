"""Overlap between a training pool and an evaluation set: exact and near duplicate questions.

A question is compared as words: Unicode NFKC, case folded, without thousands separators, sentence
punctuation and LaTeX braces. Every number is a word, and so is every other sign, because `x+3` and
`x-3` are different questions. Two questions are exact duplicates if their words agree in order, and
near duplicates if the sets of their `SHINGLE`-word runs have a Jaccard similarity of at least
`NEAR`. The search is exact: it finds every pair over the threshold (prefix filtering: Chaudhuri et
al. 2006, Bayardo et al. 2007).

Why three words and 0.8: a changed word breaks three runs on each side, so k isolated changes leave
a question of L words at (L + 2 - 3k) / (L + 2 + 3k). One different number is a near duplicate only
in questions of 25 words or more, two in those of 52 or more: a template with new numbers is not a
duplicate, a long question with one word changed is. On MATH's 7,500 training prompts this finds 64,
including 13 templates with other numbers; runs of two words find 141 and 42. Runs of five miss a
single typo in any question under 41 words.

Words are compared as hashes of 64 bits (`shingles`), a whole batch at once. Only questions that
share enough runs of words with the test set are compared one by one.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.planning.containment import Contained
from orchestrator.planning.shingles import (
    NEAR,
    SHINGLE,
    Hashes,
    Ints,
    hashed_runs,
    hashed_words,
)
from orchestrator.plugins.counts import counted
from tasks import Prompt
from tasks.prompt_table import PromptTable

SLACK = 1  # runs of words, in case two runs of one question have the same hash
_TABLE_BITS = 24  # of the first, approximate look-up of a hash


class NearFilter:
    """The runs of words of a test set, by their hashes."""

    def __init__(self, questions: pa.ChunkedArray, threshold: float) -> None:
        self.threshold = threshold
        chunks = [hashed_runs(chunk).hashes for chunk in questions.chunks]
        self.hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *chunks]))
        self.table = np.zeros(1 << _TABLE_BITS, dtype=bool)
        self.table[self._place(self.hashes)] = True

    def rows(self, questions: pa.Array) -> Ints:
        """The questions that share enough runs of words with the test set, ascending.

        Two sets of Jaccard similarity t share at least t of the runs of either.
        """
        runs = hashed_runs(questions)
        known = self.table[self._place(runs.hashes)]  # or another hash with the same first bits
        likely = np.flatnonzero(known)
        if len(likely):
            hashes = runs.hashes[likely]
            at = np.searchsorted(self.hashes, hashes)
            known[likely] = self.hashes[np.minimum(at, len(self.hashes) - 1)] == hashes
        row = np.repeat(np.arange(len(runs.counts)), runs.counts)
        some = np.bincount(row[known], minlength=len(runs.counts)) > 0
        kept = some[row]
        # One number for question, hash and whether it is known: sorting is ten times faster than
        # np.unique.
        ordered = np.sort(
            (row[kept].astype(np.uint64) << np.uint64(44))
            | ((runs.hashes[kept] >> np.uint64(21)) << np.uint64(1))
            | known[kept].astype(np.uint64)
        )
        last = np.ones(min(1, len(ordered)), dtype=bool)
        distinct = ordered[np.append(ordered[1:] != ordered[:-1], last)]
        of_row = (distinct >> np.uint64(44)).astype(np.int64)
        size = np.bincount(of_row, minlength=len(runs.counts))
        shared = np.bincount(of_row[distinct % np.uint64(2) == 1], minlength=len(runs.counts))
        return np.flatnonzero((size > 0) & (shared >= self.threshold * size - SLACK))

    def _place(self, hashes: Hashes) -> Ints:
        return (hashes >> np.uint64(64 - _TABLE_BITS)).astype(np.int64)


Kind = Literal["exact", "near"]
Shingle = tuple[int, ...]


class Overlap(NamedTuple):
    """A training prompt that duplicates one of the evaluation set, with its best match there.

    similarity: the Jaccard similarity of the two shingle sets, in [threshold, 1]. It can be 1.0 for
    a `near` duplicate, if the questions differ only in how often they repeat a passage.
    """

    train_id: str
    evaluation_id: str
    kind: Kind
    similarity: float


def find_overlap(
    train: Sequence[Prompt], evaluation: Sequence[Prompt], *, threshold: float = NEAR
) -> list[Overlap]:
    """The best match of each training prompt that has one, in the order of `train`.

    Exact matches take precedence; ties go to the smallest evaluation id, so the order of the
    evaluation set does not matter. Raises ValueError for a threshold outside (0, 1].
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"invalid threshold {threshold!r}: expected a number in (0, 1]")
    pool, tests = PromptTable.of(train), PromptTable.of(evaluation)
    if not len(pool) or not len(tests):
        return []
    by_id = tests.take(tests.order)
    ids = by_id.column("prompt_id").to_pylist()
    filter_ = NearFilter(by_id.column("question"), threshold)
    search = _Search(hashed_words(by_id.column("question").combine_chunks()), threshold)
    overlaps: list[Overlap] = []
    for batch in pool.batches:
        similar = batch.take(filter_.rows(batch.column("question")))
        train_ids = similar.column("prompt_id").to_pylist()
        texts = hashed_words(similar.column("question")) if train_ids else []
        for train_id, text in zip(train_ids, texts, strict=True):
            if best := search.best(text):
                row, kind, similarity = best
                overlaps.append(Overlap(train_id, ids[row], kind, similarity))
    return overlaps


def without_overlap(
    train: Sequence[Prompt], overlaps: Sequence[Overlap | Contained]
) -> PromptTable:
    """The training prompts without overlap, in their order."""
    pool = PromptTable.of(train)
    dropped = pa.array([overlap.train_id for overlap in overlaps], pa.string())
    kept = pc.invert(pc.is_in(pool.column("prompt_id"), value_set=dropped))
    return pool.filter(kept.to_numpy())


def describe(overlaps: Sequence[Overlap], total: int, evaluation: str = "test") -> str:
    """One line for a log: how many of `total` training prompts overlap, and how."""
    exact = sum(overlap.kind == "exact" for overlap in overlaps)
    counts = f"{exact:,} exact, {len(overlaps) - exact:,} near"
    return (
        f"overlap with {evaluation}: {len(overlaps):,} of "
        f"{counted(total, 'training prompt')} ({counts})"
    )


class _Search:
    """The shingle sets of some questions, indexed by the rare shingles of each.

    Two sets of Jaccard similarity >= t share at least t * size shingles of either. With shingles
    sorted by rarity (the number of questions that have them), the sets must therefore share one of
    the first (1 - t) * size + 1. Only those are indexed and looked up, never template phrases that
    every question contains.
    """

    def __init__(self, questions: Sequence[list[int]], threshold: float) -> None:
        self.threshold = threshold
        self.same = {tuple(text): row for row, text in reversed(list(enumerate(questions)))}
        self.sets = [_shingles(text) for text in questions]
        self.frequency = Counter(shingle for each in self.sets for shingle in each)
        self.holders: dict[Shingle, list[int]] = {}  # rows by the shingles of their prefixes
        for row, shingles in enumerate(self.sets):
            for shingle in self._prefix(shingles):
                self.holders.setdefault(shingle, []).append(row)

    def _prefix(self, shingles: frozenset[Shingle]) -> list[Shingle]:
        # Round up: a prefix that is too long costs time, one that is too short misses matches.
        length = len(shingles) - math.ceil(self.threshold * len(shingles) - 1e-9) + 1
        return sorted(shingles, key=lambda each: (self.frequency[each], each))[:length]

    def best(self, text: list[int]) -> tuple[int, Kind, float] | None:
        """The row of the best match of a question's words, its kind and its similarity, or None."""
        if (exact := self.same.get(tuple(text))) is not None:
            return exact, "exact", 1.0
        similar = self.similar(_shingles(text))
        if not similar:
            return None
        row = max(similar, key=similar.__getitem__)  # the first of several
        return row, "near", similar[row]

    def similar(self, shingles: frozenset[Shingle]) -> dict[int, float]:
        """Row -> its similarity to a question, if at least the threshold; rows ascend."""
        similar = {}
        for row in sorted({r for s in self._prefix(shingles) for r in self.holders.get(s, ())}):
            smaller, larger = sorted((len(shingles), len(self.sets[row])))
            if smaller < self.threshold * larger - 1e-9:  # whatever they share
                continue
            shared = len(shingles & self.sets[row])
            similarity = shared / (smaller + larger - shared)
            if similarity >= self.threshold:
                similar[row] = similarity
        return similar


def _shingles(text: list[int]) -> frozenset[Shingle]:
    """Every run of SHINGLE words.

    Padding puts the first and last words, often the number of a short question, into as many runs
    as any other word.
    """
    edge = [0] * (SHINGLE - 1)
    padded = [*edge, *text, *edge]
    return frozenset(zip(*(padded[i:] for i in range(SHINGLE)), strict=False))

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
duplicate, a long question with one word changed is. This finds 64 of MATH's 7,500 training prompts,
13 of them templates with other numbers. Runs of two words find 141 and 42, and runs of five miss a
single typo in any question under 41 words.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tasks import Prompt

Ints = npt.NDArray[np.int64]
Kind = Literal["exact", "near"]

SHINGLE = 3
NEAR = 0.8

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_UNSPACED = r"[\u3040-\u30ff\u3400-\u9fff]"  # kana, Chinese: each character counts as a word
_WORD = re.compile(
    r"\.?\d+(?:\.\d+)*"  # a number
    r"|\\[^\W\d_]+"  # a LaTeX command
    rf"|{_UNSPACED}|(?:(?!{_UNSPACED})[^\W\d_])+"  # a word
    r"|(?<![^\W\d_]{2})!"  # a factorial, where no word of letters ends
    r"|[^\s.,;:?!'\"`$\\{}\u2018-\u201d]"  # any other sign
)


class Overlap(NamedTuple):
    """A training prompt that duplicates one of the evaluation set, with its best match there.

    `similarity` is the Jaccard similarity of the two shingle sets, in [threshold, 1]. It can be 1.0
    for a `near` duplicate, if the questions only differ in how often they repeat a passage.
    """

    train_id: str
    evaluation_id: str
    kind: Kind
    similarity: float


def words(question: str) -> list[str]:
    """The normalized words of a question, in order."""
    text = unicodedata.normalize("NFKC", question).casefold().replace("\u2212", "-")
    return _WORD.findall(_THOUSANDS.sub("", text))


def find_overlap(
    train: Sequence[Prompt], evaluation: Sequence[Prompt], *, threshold: float = NEAR
) -> list[Overlap]:
    """The best match of each training prompt that has one, in the order of `train`.

    Exact matches take precedence; ties go to the smallest evaluation id, so the order of the
    evaluation set does not matter. Raises ValueError for a threshold outside (0, 1].
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"invalid threshold {threshold!r}: expected a number in (0, 1]")
    by_id = sorted(evaluation, key=lambda prompt: prompt.prompt_id)
    train_words = [words(p.question) for p in train]
    test_words = [words(p.question) for p in by_id]
    same = {tuple(text): i for i, text in reversed(list(enumerate(test_words)))}
    near = _Search(train_words, test_words, threshold)
    overlaps: list[Overlap] = []
    for row, prompt in enumerate(train):
        exact = same.get(tuple(train_words[row]))
        if exact is not None:
            overlaps.append(Overlap(prompt.prompt_id, by_id[exact].prompt_id, "exact", 1.0))
        elif best := near.best(row):
            overlaps.append(Overlap(prompt.prompt_id, by_id[best[0]].prompt_id, "near", best[1]))
    return overlaps


def without_overlap(train: Sequence[Prompt], overlaps: Sequence[Overlap]) -> list[Prompt]:
    """The training prompts without overlap, in their order."""
    dropped = {overlap.train_id for overlap in overlaps}
    return [prompt for prompt in train if prompt.prompt_id not in dropped]


def describe(overlaps: Sequence[Overlap], total: int, evaluation: str = "test") -> str:
    """One line for a log: how many of `total` training prompts overlap, and how."""
    exact = sum(overlap.kind == "exact" for overlap in overlaps)
    counts = f"{exact:,} exact, {len(overlaps) - exact:,} near"
    return f"overlap with {evaluation}: {len(overlaps):,} of {total:,} training prompts ({counts})"


class _Search:
    """Shingle sets of both sides, the evaluation side indexed by the rare shingles of each set.

    Sets are ordered rarest shingle first. Two sets of Jaccard similarity >= t share at least
    t * size shingles of either, so they must meet among the first (1 - t) * size + 1 of both:
    only those are indexed and looked up, never template phrases that every question contains.
    """

    def __init__(
        self, train: Sequence[list[str]], evaluation: Sequence[list[str]], threshold: float
    ) -> None:
        self.threshold = threshold
        flat, starts, self.kinds = _sets([*train, *evaluation])
        middle = starts[len(train)]
        self.train, self.train_starts = flat[:middle], starts[: len(train) + 1]
        self.evaluation, self.evaluation_starts = flat[middle:], starts[len(train) :] - middle
        self.sizes = np.diff(self.evaluation_starts)
        self.holders, self.holder_starts = self._index()
        self.member = np.zeros(self.kinds, dtype=bool)

    def _index(self) -> tuple[Ints, Ints]:
        """Evaluation rows grouped by shingle, and where each shingle's rows start."""
        rows = np.repeat(np.arange(len(self.sizes)), self.sizes)
        position = np.arange(len(self.evaluation)) - self.evaluation_starts[rows]
        lengths = np.array([self._prefix(int(size)) for size in self.sizes], dtype=np.int64)
        kept = position < lengths[rows]
        order = np.argsort(self.evaluation[kept], kind="stable")
        counts = np.bincount(self.evaluation[kept], minlength=self.kinds)
        return rows[kept][order], np.concatenate(([0], np.cumsum(counts)))

    def _prefix(self, size: int) -> int:
        # Round up: a prefix that is too long costs time, one that is too short misses matches.
        return size - math.ceil(self.threshold * size - 1e-9) + 1

    def best(self, row: int) -> tuple[int, float] | None:
        """Evaluation row and similarity of the best match of training row `row`, or None."""
        own = self.train[self.train_starts[row] : self.train_starts[row + 1]]
        candidates = self._candidates(own)
        if not candidates.size:
            return None
        shared = self._shared(own, candidates)
        similarity = shared / (len(own) + self.sizes[candidates] - shared)
        top = int(np.argmax(similarity))
        if similarity[top] < self.threshold:
            return None
        return int(candidates[top]), float(similarity[top])

    def _candidates(self, own: Ints) -> Ints:
        """Evaluation rows that share a rare shingle and have a possible size, ascending."""
        size, starts = len(own), self.holder_starts
        rare = own[: self._prefix(size)].tolist()
        slices = [
            self.holders[starts[s] : starts[s + 1]] for s in rare if starts[s] < starts[s + 1]
        ]
        if not slices:
            return np.empty(0, dtype=np.int64)
        rows: Ints = np.unique(np.concatenate(slices))
        other = self.sizes[rows]
        possible: npt.NDArray[np.bool_] = (
            np.minimum(other, size) >= self.threshold * np.maximum(other, size) - 1e-9
        )
        return rows[possible]

    def _shared(self, own: Ints, candidates: Ints) -> Ints:
        """How many shingles each candidate shares with `own`."""
        sizes = self.sizes[candidates]
        ends = np.cumsum(sizes)
        offsets = np.repeat(self.evaluation_starts[candidates] - (ends - sizes), sizes)
        self.member[own] = True
        hits = self.member[self.evaluation[np.arange(ends[-1]) + offsets]].astype(np.int64)
        self.member[own] = False
        return np.add.reduceat(hits, ends - sizes)


def _sets(texts: Sequence[list[str]]) -> tuple[Ints, Ints, int]:
    """The shingle numbers of each text, rarest first, in one flat array.

    Returns the numbers, the start of each text's (length texts + 1), and the number of different
    shingles. Each number stands for exactly one shingle; nothing is hashed.
    """
    codes, rows = _shingles(texts)
    kinds = int(codes.max(initial=0)) + 1
    rows, codes = np.divmod(np.unique(rows * kinds + codes), kinds)
    frequency = np.bincount(codes, minlength=kinds)
    rank = np.empty(kinds, dtype=np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(kinds)
    flat = np.sort(rows * kinds + rank[codes]) % kinds
    starts = np.searchsorted(rows, np.arange(len(texts) + 1))
    return flat, starts.astype(np.int64), kinds


def _shingles(texts: Sequence[list[str]]) -> tuple[Ints, Ints]:
    """Every run of `SHINGLE` words as a number, and the index of its text.

    Texts are padded, so that the first and last words, often the number of a short question, are in
    as many runs as any other word.
    """
    vocabulary: dict[str, int] = {}
    stream: list[int] = []
    for text in texts:
        stream += [0] * (SHINGLE - 1)
        stream += [vocabulary.setdefault(word, len(vocabulary) + 1) for word in text]
    numbers = np.array(stream + [0] * (SHINGLE - 1), dtype=np.int64)
    codes = numbers[: len(stream)]
    for step in range(1, SHINGLE):
        longer = codes * (len(vocabulary) + 1) + numbers[step : step + len(stream)]
        # Renumbered from 0 without gaps, so that the next step cannot overflow.
        codes = np.asarray(np.unique(longer, return_inverse=True)[1], dtype=np.int64)
    lengths = [len(text) + SHINGLE - 1 for text in texts]
    return codes, np.repeat(np.arange(len(texts)), lengths)

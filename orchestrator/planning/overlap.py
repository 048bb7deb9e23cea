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

Comparing words takes some 20 µs a question in Python. So the words of a whole batch are hashed at
once with NumPy first, and only questions that share enough runs of words with the test set are left
to compare. Hashes can only add candidates, never lose one: a pair of equal
hashes makes a question look smaller by one run at most, for which `SLACK` makes room.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.counts import counted
from orchestrator.plugins.streams import generator
from tasks import Prompt
from tasks.prompt_table import PromptTable

SHINGLE = 3  # words of a run: what two near duplicates share

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_UNSPACED = r"[\u3040-\u30ff\u3400-\u9fff]"  # kana, Chinese: each character counts as a word
_WORD = re.compile(
    r"\.?\d+(?:\.\d+)*"  # a number
    r"|\\[^\W\d_]+"  # a LaTeX command
    rf"|{_UNSPACED}|(?:(?!{_UNSPACED})[^\W\d_])+"  # a word
    r"|(?<![^\W\d_]{2})!"  # a factorial, where no word of letters ends
    r"|[^\s.,;:?!'\"`$\\{}\u2018-\u201d]"  # any other sign
)


def words(question: str) -> list[str]:
    """The normalized words of a question, in order."""
    text = unicodedata.normalize("NFKC", question).casefold().replace("\u2212", "-")
    return _WORD.findall(_THOUSANDS.sub("", text))


Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

SLACK = 1  # runs of words, for two of one question with the same hash
_TABLE_BITS = 24  # of the first, approximate look-up of a hash
_POSITIONS = 64  # of a byte in its word that are hashed apart
_GROUPED_DIGITS = "[0-9],[0-9]{3}"

_SPACE, _LETTER, _DIGIT, _SIGN, _DOT, _BACKSLASH, _BANG = range(7)
_LETTER_OF_DIGIT = str.maketrans("0123456789", "ghijklmnop")
_random = generator("hashes of words")
_BYTE_HASH = _random.integers(0, 2**64, (_POSITIONS, 256), dtype=np.uint64).reshape(-1)
_FACTORS = _random.integers(0, 2**63, SHINGLE, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
# What each byte of a text in lower case is in the expression that finds words. Bytes of other
# alphabets are letters.
_KINDS = np.full(256, _SIGN, dtype=np.uint8)
_KINDS[list(b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f ,;:?'\"`${}")] = _SPACE
_KINDS[[*range(97, 123), *range(128, 256)]] = _LETTER
_KINDS[list(b"0123456789")] = _DIGIT
_KINDS[list(b".\\!")] = _DOT, _BACKSLASH, _BANG


class Runs(NamedTuple):
    """The hashes of all runs of SHINGLE words of some questions, and how many each question has."""

    hashes: Hashes
    counts: Ints


class NearFilter:
    """The runs of words of a test set, by their hashes."""

    def __init__(self, questions: pa.ChunkedArray, threshold: float) -> None:
        self.threshold = threshold
        chunks = [hashed_runs(chunk).hashes for chunk in questions.chunks]
        self.hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *chunks]))
        self.table = np.zeros(1 << _TABLE_BITS, dtype=bool)
        self.table[self._place(self.hashes)] = True

    def rows(self, questions: pa.Array) -> Ints:
        """The questions whose runs of words are in the test set often enough, ascending.

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
        # Question, hash and whether it is known in one number: sorting is ten times as fast as
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


def hashed_runs(questions: pa.Array) -> Runs:
    """Every run of SHINGLE words of each question, padded as in `find_overlap`, as a hash."""
    hashes, counts = _hashed_words(_plain(questions))
    lengths = counts + SHINGLE - 1
    rows = np.repeat(np.arange(len(counts)), counts)
    padded = np.zeros(int(lengths.sum()) + SHINGLE - 1, dtype=np.uint64)
    padded[np.arange(len(hashes)) + (SHINGLE - 1) * (rows + 1)] = hashes
    size = int(lengths.sum())
    mixed = np.zeros(size, dtype=np.uint64)
    for step, factor in enumerate(_FACTORS):
        mixed += padded[step : step + size] * factor
        mixed ^= mixed >> np.uint64(29)
    return Runs(mixed, lengths)


def _plain(questions: pa.Array) -> pa.Array:
    """The questions as texts whose words can be told by their bytes alone."""
    special = pc.or_(
        pc.invert(pc.string_is_ascii(questions)),
        pc.match_substring_regex(questions, _GROUPED_DIGITS),
    )
    if not pc.any(special).as_py():
        return questions
    # Words of ASCII stay as they are; the rules for bytes read all others as words of letters, too.
    spelled = [
        " ".join(
            word if word.isascii() else "\u00e9" + word.encode().hex().translate(_LETTER_OF_DIGIT)
            for word in words(text)
        )
        for text in questions.filter(special).to_pylist()
    ]
    return pc.replace_with_mask(questions, special, pa.array(spelled, pa.string()))


def _hashed_words(questions: pa.Array) -> tuple[Hashes, Ints]:
    """The hash of every word, and how many each question has."""
    # Two spaces, so that no rule looks from one question into another.
    joined = pc.binary_join_element_wise(pc.ascii_lower(questions), "", "  ")
    _, offsets, data = joined.buffers()
    # The bytes of all questions, and where each begins: [questions + 1].
    places = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    text = np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]
    places = (places - places[0]).astype(np.int64)
    kind, forced = _kinds_of(text)
    # A word starts where bytes change their kind; every sign is a word of its own.
    inside = kind != _SPACE
    starts = inside & (kind == _SIGN) | forced
    starts[:1] |= inside[:1]
    starts[1:] |= inside[1:] & (kind[1:] != kind[:-1])
    number = np.cumsum(starts)  # [bytes]: words up to and with this byte
    counts = np.diff(np.concatenate([[0], number])[places])
    first = np.flatnonzero(starts)
    at = np.flatnonzero(inside)
    word = number[at] - 1
    position = (at - first[word]) % _POSITIONS  # of a byte in its word
    values = _BYTE_HASH[position * 256 + text[at]]
    if not len(first):
        return np.empty(0, np.uint64), counts
    # A word's hash is the sum of those of its bytes.
    return np.add.reduceat(values, np.searchsorted(at, first)), counts


def _kinds_of(text: Octets) -> tuple[Octets, npt.NDArray[np.bool_]]:
    """What each byte is in its place, and where a word starts although one letter follows another.

    The same rules as in `words`: a full stop belongs to a number if a digit follows; a backslash
    starts a command if a letter follows; an exclamation mark is a sign unless it ends a word.
    """
    kind = _KINDS[text]
    # One more on each side than the rules look at.
    around = np.full(len(text) + 3, _SPACE, dtype=np.uint8)
    around[2:-1] = kind
    dots, slashes, bangs = (np.flatnonzero(kind == k) for k in (_DOT, _BACKSLASH, _BANG))
    ends = (around[bangs] == _LETTER) & (around[bangs + 1] == _LETTER)
    commands = slashes[around[slashes + 3] == _LETTER]
    numbers = dots[around[dots + 3] == _DIGIT]
    kind[dots], kind[slashes] = _SPACE, _SPACE
    kind[bangs] = np.where(ends, _SPACE, _SIGN)
    kind[numbers], kind[commands] = _DIGIT, _LETTER
    forced = np.zeros(len(text), dtype=bool)
    forced[commands] = True
    return kind, forced


Kind = Literal["exact", "near"]
Shingle = tuple[str, ...]

NEAR = 0.8


class Overlap(NamedTuple):
    """A training prompt that duplicates one of the evaluation set, with its best match there.

    `similarity` is the Jaccard similarity of the two shingle sets, in [threshold, 1]. It can be 1.0
    for a `near` duplicate, if the questions only differ in how often they repeat a passage.
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
    search = _Search([words(text) for text in by_id.column("question").to_pylist()], threshold)
    overlaps: list[Overlap] = []
    for batch in pool.batches:
        rows = filter_.rows(batch.column("question"))
        for prompt in PromptTable([batch]).take(rows):
            if best := search.best(words(prompt.question)):
                row, kind, similarity = best
                overlaps.append(Overlap(prompt.prompt_id, ids[row], kind, similarity))
    return overlaps


def without_overlap(train: Sequence[Prompt], overlaps: Sequence[Overlap]) -> PromptTable:
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

    Two sets of Jaccard similarity >= t share at least t * size shingles of either. Of each set in
    the order of rarity, by how many of the questions have a shingle, they must therefore meet among
    the first (1 - t) * size + 1: only those are indexed and looked up, never template phrases that
    every question contains.
    """

    def __init__(self, questions: Sequence[list[str]], threshold: float) -> None:
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

    def best(self, text: list[str]) -> tuple[int, Kind, float] | None:
        """The row of the best match of a question's words, its kind and its similarity, or None."""
        if (exact := self.same.get(tuple(text))) is not None:
            return exact, "exact", 1.0
        similar = self.similar(_shingles(text))
        if not similar:
            return None
        row = max(similar, key=similar.__getitem__)  # the first of several
        return row, "near", similar[row]

    def similar(self, shingles: frozenset[Shingle]) -> dict[int, float]:
        """The rows of at least the threshold's similarity to a question, ascending, and that."""
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


def _shingles(text: list[str]) -> frozenset[Shingle]:
    """Every run of SHINGLE words.

    The first and last words, often the number of a short question, are in as many as any other.
    """
    edge = [""] * (SHINGLE - 1)
    padded = [*edge, *text, *edge]
    return frozenset(zip(*(padded[i:] for i in range(SHINGLE)), strict=False))

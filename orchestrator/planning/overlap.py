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
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.counts import counted
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
_random = np.random.default_rng(20)
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
                evaluation_id = ids[best.row]
                overlaps.append(
                    Overlap(prompt.prompt_id, evaluation_id, best.kind, best.similarity)
                )
    return overlaps


def near_duplicates(prompts: Sequence[Prompt]) -> dict[str, str]:
    """prompt_id -> the smallest id of its group, of prompts that duplicate another one.

    Exact and near duplicates as in `find_overlap`, and those of duplicates, are one group.
    """
    table = PromptTable.of(prompts)
    by_id = table.take(table.order)
    search = _Search([words(text) for text in by_id.column("question").to_pylist()], NEAR)
    ids = by_id.column("prompt_id").to_pylist()
    first = [*range(len(ids))]  # of a row's group, or on the way to it

    def first_of(row: int) -> int:
        while first[row] != row:
            row = first[row]
        return row

    related = set()
    for row in range(len(ids)):
        for other in search.duplicates(row):
            one, two = sorted((first_of(row), first_of(other)))
            first[two] = one
            related |= {row, other}
    return {ids[row]: ids[first_of(row)] for row in sorted(related)}


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


class Match(NamedTuple):
    """The best match of a question: a row of the evaluation set, by its ids."""

    row: int
    kind: Kind
    similarity: float


class _Search:
    """The shingle sets of the evaluation set, indexed by the rare shingles of each.

    Sets are ordered rarest shingle first, by how many evaluation questions have it; a shingle of
    none comes first. Two sets of Jaccard similarity >= t share at least t * size shingles of
    either, so they must meet among the first (1 - t) * size + 1 of both: only those are indexed and
    looked up, never template phrases that every question contains.
    """

    def __init__(self, evaluation: Sequence[list[str]], threshold: float) -> None:
        self.threshold = threshold
        self.same = {tuple(text): row for row, text in reversed(list(enumerate(evaluation)))}
        vocabulary: dict[str, int] = {}
        numbers = [
            [vocabulary.setdefault(word, len(vocabulary) + 1) for word in text]
            for text in evaluation
        ]
        self.vocabulary, self.runs = vocabulary, _Runs(numbers)
        self.sizes = np.diff(self.runs.starts)
        # Evaluation rows grouped by the shingles of their prefixes, and where each group starts.
        rows = np.repeat(np.arange(len(self.sizes)), self.sizes)
        position = np.arange(len(rows)) - self.runs.starts[rows]
        lengths = np.array([self._prefix(int(size)) for size in self.sizes], dtype=np.int64)
        kept = position < lengths[rows]
        order = np.argsort(self.runs.flat[kept], kind="stable")
        self.holders = rows[kept][order]
        counts = np.bincount(self.runs.flat[kept], minlength=self.runs.kinds)
        self.holder_starts = np.concatenate(([0], np.cumsum(counts)))
        self.member = np.zeros(self.runs.kinds, dtype=bool)

    def _prefix(self, size: int) -> int:
        # Round up: a prefix that is too long costs time, one that is too short misses matches.
        return size - math.ceil(self.threshold * size - 1e-9) + 1

    def best(self, text: list[str]) -> Match | None:
        """The best match of a question's words, or None."""
        if (exact := self.same.get(tuple(text))) is not None:
            return Match(exact, "exact", 1.0)
        padded = [*[""] * (SHINGLE - 1), *text, *[""] * (SHINGLE - 1)]
        size = len(set(zip(*(padded[i:] for i in range(SHINGLE)), strict=False)))
        own = self.runs.known([self.vocabulary.get(word, -1) for word in text])
        rows, similarity = self._similar(own, size)
        if not rows.size:
            return None
        top = int(np.argmax(similarity))
        return Match(int(rows[top]), "near", float(similarity[top]))

    def duplicates(self, row: int) -> list[int]:
        """The later rows that an evaluation row is an exact or near duplicate of, ascending."""
        own = self.runs.flat[self.runs.starts[row] : self.runs.starts[row + 1]]
        rows, _ = self._similar(own, len(own))
        return [int(other) for other in rows if other > row]

    def _similar(self, own: Ints, size: int) -> tuple[Ints, npt.NDArray[np.float64]]:
        """The rows of at least the threshold's similarity to a question, ascending, and that.

        `own`: those of its `size` shingles that some row has, rarest first.
        """
        rare = own[: max(0, self._prefix(size) - (size - len(own)))]
        # Evaluation rows that share a rare shingle and have a possible size, ascending.
        slices = [
            self.holders[self.holder_starts[s] : self.holder_starts[s + 1]] for s in rare.tolist()
        ]
        rows: Ints = np.unique(np.concatenate([np.empty(0, np.int64), *slices]))
        other = self.sizes[rows]
        least = self.threshold * np.maximum(other, size) - 1e-9
        candidates = rows[np.minimum(other, size) >= least]
        if not candidates.size:
            return candidates, np.empty(0)
        # How many shingles each candidate shares with the question.
        sizes = self.sizes[candidates]
        ends = np.cumsum(sizes)
        offsets = np.repeat(self.runs.starts[candidates] - (ends - sizes), sizes)
        self.member[own] = True
        hits = self.member[self.runs.flat[np.arange(ends[-1]) + offsets]].astype(np.int64)
        self.member[own] = False
        shared = np.add.reduceat(hits, ends - sizes)
        similarity = shared / (size + sizes - shared)
        near = similarity >= self.threshold
        return candidates[near], similarity[near]


class _Runs:
    """The distinct shingles of texts of word numbers, as numbers by their rarity.

    `flat` holds the shingles of each text, rarest first; text i has those from `starts[i]` to
    `starts[i + 1]`. There are `kinds` different ones. Each number stands for exactly one shingle;
    nothing is hashed.
    """

    def __init__(self, texts: Sequence[list[int]]) -> None:
        pads = [0] * (SHINGLE - 1)
        # The first and last words, often the number of a short question, are in as many shingles
        # as any other word; the pads before the next text are also those after this one.
        stream = np.array([n for text in texts for n in (*pads, *text)] + pads, dtype=np.int64)
        self.words = int(stream.max(initial=0)) + 1
        size = len(stream) - len(pads)
        codes, self.steps = stream[:size], []
        for step in range(1, SHINGLE):
            # Renumbered without gaps, so that the next step cannot overflow.
            pairs = codes * self.words + stream[step : step + size]
            known, codes = np.unique(pairs, return_inverse=True)
            self.steps.append(known)
        self.kinds = int(codes.max(initial=0)) + 1
        lengths = np.array([len(text) + len(pads) for text in texts], dtype=np.int64)
        rows = np.repeat(np.arange(len(texts)), lengths)
        rows, codes = np.divmod(np.unique(rows * self.kinds + codes), self.kinds)
        frequency = np.bincount(codes, minlength=self.kinds)
        self.rank = np.empty(self.kinds, dtype=np.int64)
        self.rank[np.argsort(frequency, kind="stable")] = np.arange(self.kinds)
        self.flat = np.sort(rows * self.kinds + self.rank[codes]) % self.kinds
        self.starts = np.searchsorted(rows, np.arange(len(texts) + 1)).astype(np.int64)

    def known(self, text: Sequence[int]) -> Ints:
        """The shingles of another text that are among these, rarest first; -1: another word."""
        pads = [0] * (SHINGLE - 1)
        stream = np.array([*pads, *text, *pads], dtype=np.int64)
        size = len(stream) - len(pads)
        codes = stream[:size]
        for step, known in enumerate(self.steps, 1):
            after = stream[step : step + size]
            pairs = np.where((codes < 0) | (after < 0), -1, codes * self.words + after)
            at = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
            codes = np.where(known[at] == pairs, at, -1)
        return np.unique(self.rank[codes[codes >= 0]])

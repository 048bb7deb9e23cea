"""Which questions of a large pool can be near duplicates of a test set's, without reading words.

`find_overlap` compares words, which takes some 20 µs a question in Python. Here the same words of a
whole batch are hashed at once with NumPy, and only questions that share enough runs of words with
the test set are left to compare. Hashes can only add candidates, never lose one: a pair of equal
hashes makes a question look smaller by one run at most, for which `SLACK` makes room.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.planning.words import SHINGLE, words

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

SLACK = 1  # runs of words, for two of one question with the same hash
_TABLE_BITS = 24  # of the first, approximate look-up of a hash
_POSITIONS = 64  # of a byte in its word that are hashed apart
_THOUSANDS = "[0-9],[0-9]{3}"

_SPACE, _LETTER, _DIGIT, _SIGN, _DOT, _BACKSLASH, _BANG = range(7)
_LETTER_OF_DIGIT = str.maketrans("0123456789", "ghijklmnop")
_random = np.random.default_rng(20)
_BYTE_HASH = _random.integers(0, 2**64, (_POSITIONS, 256), dtype=np.uint64).reshape(-1)
_FACTORS = _random.integers(0, 2**63, SHINGLE, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def _kinds() -> Octets:
    """What each byte of a text in lower case is in the expression that finds words.

    Bytes of other alphabets are letters.
    """
    kinds = np.full(256, _SIGN, dtype=np.uint8)
    for kind, characters in (
        (_SPACE, b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f ,;:?'\"`${}"),
        (_LETTER, bytes([*range(97, 123), *range(128, 256)])),
        (_DIGIT, b"0123456789"),
        (_DOT, b"."),
        (_BACKSLASH, b"\\"),
        (_BANG, b"!"),
    ):
        kinds[list(characters)] = kind
    return kinds


_KINDS = _kinds()


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
        known = self._known(runs.hashes)
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

    def _known(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Whether each hash is one of the test set's."""
        known = self.table[self._place(hashes)]
        likely = np.flatnonzero(known)
        if len(likely):
            at = np.searchsorted(self.hashes, hashes[likely])
            known[likely] = self.hashes[np.minimum(at, len(self.hashes) - 1)] == hashes[likely]
        return known

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
        pc.match_substring_regex(questions, _THOUSANDS),
    )
    if not pc.any(special).as_py():
        return questions
    texts = questions.filter(special).to_pylist()
    spelled = [" ".join(map(_in_letters, words(text))) for text in texts]
    return pc.replace_with_mask(questions, special, pa.array(spelled, pa.string()))


def _in_letters(word: str) -> str:
    """A word of ASCII as it is, and any other as one that the rules for bytes read as letters."""
    if word.isascii():
        return word
    return "\u00e9" + word.encode().hex().translate(_LETTER_OF_DIGIT)


def _hashed_words(questions: pa.Array) -> tuple[Hashes, Ints]:
    """The hash of every word, and how many each question has."""
    # Two spaces, so that no rule looks from one question into another.
    joined = pc.binary_join_element_wise(pc.ascii_lower(questions), "", "  ")
    _, offsets, data = joined.buffers()
    places = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    text = np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]
    places = (places - places[0]).astype(np.int64)
    kind, forced = _kinds_of(text)
    inside = kind != _SPACE
    starts = inside & (kind == _SIGN) | forced
    starts[:1] |= inside[:1]
    starts[1:] |= inside[1:] & (kind[1:] != kind[:-1])
    number = np.cumsum(starts)
    counts = np.diff(np.concatenate([[0], number])[places])
    first = np.flatnonzero(starts)
    at = np.flatnonzero(inside)
    word = number[at] - 1
    position = (at - first[word]) % _POSITIONS
    values = _BYTE_HASH[position * 256 + text[at]]
    if not len(first):
        return np.empty(0, np.uint64), counts
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

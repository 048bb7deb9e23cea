"""Words of questions and hashes of their runs, for overlap and near duplicates. Pure.

`words` defines what a word is. Words of ASCII questions are hashed from their bytes, by the same
rules, a hundred times faster.
"""

import re
import unicodedata
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.streams import generator

SHINGLE = 3  # words of a run
NEAR = 0.8  # Jaccard similarity of near duplicates; see `overlap`

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

_POSITIONS = 64  # of a byte in its word that have different hashes
_GROUPED_DIGITS = "[0-9],[0-9]{3}"

_SPACE, _LETTER, _DIGIT, _SIGN, _DOT, _BACKSLASH, _BANG = range(7)
_LETTER_OF_DIGIT = str.maketrans("0123456789", "ghijklmnop")
_random = generator("hashes of words")
_BYTE_HASH = _random.integers(0, 2**64, (_POSITIONS, 256), dtype=np.uint64).reshape(-1)
_FACTORS = _random.integers(0, 2**63, SHINGLE, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_PAIR = _random.integers(0, 2**63, 2, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
# The kind of each byte of a lower-case text in the expression for words. Bytes of other alphabets
# are letters.
_KINDS = np.full(256, _SIGN, dtype=np.uint8)
_KINDS[list(b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f ,;:?'\"`${}")] = _SPACE
_KINDS[[*range(97, 123), *range(128, 256)]] = _LETTER
_KINDS[list(b"0123456789")] = _DIGIT
_KINDS[list(b".\\!")] = _DOT, _BACKSLASH, _BANG


class Runs(NamedTuple):
    """The hashes of all runs of SHINGLE words of some questions, and how many each question has."""

    hashes: Hashes
    counts: Ints


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


def hashed_words(questions: pa.Array) -> list[list[int]]:
    """The words of each question, in order, each as its hash."""
    hashes, counts = _hashed_words(_plain(questions))
    return [part.tolist() for part in np.split(hashes, np.cumsum(counts)[:-1])]


class RowRuns(NamedTuple):
    """The hashes of runs of some questions, and the question of each; in no order."""

    hashes: Hashes
    rows: Ints


def word_runs(questions: pa.Array, length: int) -> RowRuns:
    """Every run of `length` words of each question, not padded; none for shorter questions."""
    hashes, counts = _hashed_words(_plain(questions))
    return _inside(hashes, counts, np.arange(len(counts)), length)


def character_runs(questions: pa.Array, length: int) -> RowRuns:
    """Every run of `length` characters of each question's words, without the separators."""
    special = _special(questions)
    plain = pc.ascii_lower(questions.filter(pc.invert(special)))
    text, places = _joined_bytes(plain)
    inside = _kinds_of(text)[0] != _SPACE
    counts = np.diff(np.concatenate([[0], np.cumsum(inside)])[places])
    rows = np.flatnonzero(~special.to_numpy(zero_copy_only=False))
    runs = [_inside(_CHARACTER_HASH[text[inside]], counts, rows, length)]
    texts = ["".join(words(text)) for text in questions.filter(special).to_pylist()]
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32).astype(np.uint64)
    rows = np.flatnonzero(special.to_numpy(zero_copy_only=False))
    counts = np.array([len(text) for text in texts], dtype=np.int64)
    runs.append(_inside(_hashed_codes(codes), counts, rows, length))
    return RowRuns(*(np.concatenate(each) for each in zip(*runs, strict=True)))


def _inside(values: Hashes, counts: Ints, rows: Ints, length: int) -> RowRuns:
    """The runs of values that lie within one question; `counts` are the values of each of `rows`.

    Hashes of long runs are combined from those of shorter runs.
    """
    if len(values) < length:
        return RowRuns(np.empty(0, np.uint64), np.empty(0, np.int64))
    half, size = values, 1  # hashes of the runs of `size`
    whole, covered = values[:0], 0
    while covered < length:
        if length & size:
            many = len(values) - covered - size + 1
            whole = _mixed(whole[:many], half[covered:]) if covered else half
            covered += size
        if covered < length:
            half, size = _mixed(half[:-size], half[size:]), 2 * size
    ends = np.repeat(np.cumsum(counts), counts)[: len(whole)]
    within = np.arange(length, len(whole) + length) <= ends
    return RowRuns(whole[within], np.repeat(rows, np.maximum(counts - length + 1, 0)))


def _mixed(one: Hashes, two: Hashes) -> Hashes:
    """The hash of each pair of hashes."""
    mixed: Hashes = one * _PAIR[0]
    mixed ^= mixed >> np.uint64(29)
    mixed += two
    mixed *= _PAIR[1]
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _hashed_codes(codes: Hashes) -> Hashes:
    """The hash of each character, from its number."""
    return _mixed(codes + np.uint64(1), codes)


_CHARACTER_HASH = _hashed_codes(np.arange(128, dtype=np.uint64))


def _special(questions: pa.Array) -> pa.Array:
    """The questions whose words cannot be split by bytes alone."""
    return pc.or_(
        pc.invert(pc.string_is_ascii(questions)),
        pc.match_substring_regex(questions, _GROUPED_DIGITS),
    )


def _plain(questions: pa.Array) -> pa.Array:
    """The questions as texts whose words can be split by bytes alone."""
    special = _special(questions)
    if not pc.any(special).as_py():
        return questions
    # ASCII words stay as they are; the byte rules also read all other words as letters.
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
    text, places = _joined_bytes(pc.ascii_lower(questions))
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


def _joined_bytes(questions: pa.Array) -> tuple[Octets, Ints]:
    """The bytes of all questions, and where each begins: [questions + 1]."""
    # Two spaces, so that rules do not look across questions.
    joined = pc.binary_join_element_wise(questions, "", "  ")
    _, offsets, data = joined.buffers()
    places = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    text = np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]
    return text, (places - places[0]).astype(np.int64)


def _kinds_of(text: Octets) -> tuple[Octets, npt.NDArray[np.bool_]]:
    """The kind of each byte in its context, and where a word starts between two letters.

    The same rules as in `words`: a full stop belongs to a number if a digit follows; a backslash
    starts a command if a letter follows; an exclamation mark is a sign unless it ends a word.
    """
    kind = _KINDS[text]
    # One more byte on each side than the rules read.
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

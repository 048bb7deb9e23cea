"""The columns of the difficulty table: one row per prompt, from which a policy selects."""

from functools import partial
from typing import NamedTuple

import pyarrow as pa


class Column(NamedTuple):
    """A column of the difficulty table."""

    name: str
    type: pa.DataType
    meaning: str
    null: str = ""  # where it is null
    of_golds: bool = False  # depends on gold answers; hidden from a policy that reads none
    of_prompt: bool = False  # describes the prompt, by any source of difficulty


_INT, _FLOAT, _BOOL, _TEXT = pa.int32(), pa.float64(), pa.bool_(), pa.string()
_NO_SAMPLE = "without a scorable sample"
_UNREAD = "if answers are not read"
_of_golds = partial(Column, of_golds=True)
COLUMNS = (
    Column("prompt_id", _TEXT, "the prompt", of_prompt=True),
    Column("tier", _TEXT, "the task's own difficulty label", of_prompt=True),
    Column("n", _INT, "samples drawn"),
    _of_golds("successes", _INT, "samples that are correct"),
    _of_golds("pass_rate", _FLOAT, "successes / scorable, 0 to 1", _NO_SAMPLE),
    _of_golds("wrong", _INT, "samples of this outcome"),
    Column("unparsed", _INT, "samples of this outcome"),
    Column("truncated", _INT, "samples of this outcome"),
    Column("error", _INT, "samples of this outcome"),
    _of_golds("unlabelled", _INT, "samples of this outcome"),
    _of_golds("low", _FLOAT, "lower end of the Wilson 95 % interval of `pass_rate`", _NO_SAMPLE),
    _of_golds("high", _FLOAT, "upper end of that interval", _NO_SAMPLE),
    _of_golds(
        "scorable",
        _INT,
        "`n` without errors, 0 without a gold answer; with `count_truncated: exclude` also without "
        "truncated samples",
    ),
    _of_golds(
        "labelled", _BOOL, "whether the prompt has a gold answer, or needs none", of_prompt=True
    ),
    _of_golds("first", _TEXT, "outcome of sample 0", "if it was not drawn"),
    _of_golds(
        "posterior",
        _FLOAT,
        "posterior mean of the pass rate, with a prior that is fitted to the pool",
        _NO_SAMPLE,
    ),
    _of_golds(
        "learnability",
        _FLOAT,
        "expected share of groups of `num_generations` completions whose rewards differ, 0 to 1",
        _NO_SAMPLE,
    ),
    Column("short", _BOOL, "fewer samples than K were drawn: the probe was adaptive"),
    _of_golds(
        "suspected",
        _BOOL,
        "samples agree on an answer that is not the gold answer, in a pool where most of such gold "
        "answers are expected to be wrong",
        _UNREAD,
        of_prompt=True,
    ),
    _of_golds(
        "dispute",
        _FLOAT,
        "evidence that the gold answer is wrong, 0 to 1; 0 if samples do not agree on a different "
        "answer",
        _UNREAD,
        of_prompt=True,
    ),
    _of_golds(
        "score",
        _FLOAT,
        "mean score of the scorable samples: the pass rate unless markers score",
        _NO_SAMPLE,
    ),
    _of_golds("score_sd", _FLOAT, "standard deviation of scores", "for fewer than two scores"),
    Column(
        "agreement",
        _FLOAT,
        "samples with the most frequent answer / samples without an error",
        f"without such a sample, or {_UNREAD}",
    ),
    Column("answers", _INT, "distinct answers of the samples", _UNREAD),
    Column(
        "entropy",
        _FLOAT,
        "entropy of the shares of these answers, in nats",
        f"without an answer, or {_UNREAD}",
    ),
    Column("tokens", _FLOAT, "mean number of generated tokens", "if unknown"),
    Column("tokens_sd", _FLOAT, "standard deviation of the tokens", "for fewer than two samples"),
    _of_golds(
        "form_failures",
        _INT,
        "samples that failed by form: without a read answer, or with the gold answer in a form "
        "that the marker does not read",
        "if unknown",
    ),
    _of_golds(
        "other_form", _INT, "failed samples with the gold answer in another form", "if unknown"
    ),
)
DIFFICULTY = pa.schema([(column.name, column.type) for column in COLUMNS])
MEANING = {column.name: column.meaning for column in COLUMNS}
OF_GOLDS = frozenset(column.name for column in COLUMNS if column.of_golds)
# Columns that another source of difficulty does not replace.
OF_PROMPT = frozenset(column.name for column in COLUMNS if column.of_prompt)

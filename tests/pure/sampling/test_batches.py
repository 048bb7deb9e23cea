"""Which rows are sampled together: limits on rows, and on the tokens of their prompts."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.sampling.batches import PROMPT_TOKENS, BatchLimits, Row


def rows_of(prompts: list[tuple[int, int]]) -> list[Row]:
    """The rows of prompts given as (tokens, samples), the longest first."""
    ordered = sorted(prompts, reverse=True)
    return [
        Row(i, s, tokens) for i, (tokens, samples) in enumerate(ordered) for s in range(samples)
    ]


@pytest.mark.parametrize(
    ("longest", "prompts"),
    [(1, PROMPT_TOKENS), (512, 256), (2_048, 64), (4_096, 16), (16_384, 1), (100_000, 1)],
)
def test_long_prompts_are_few(longest: int, prompts: int) -> None:
    assert BatchLimits(256).prompts(longest) == prompts
    assert prompts * longest <= PROMPT_TOKENS
    assert prompts == 1 or prompts * longest**2 <= 2**28, "entries of the mask"


def test_ordinary_prompts_fill_the_rows_of_a_batch() -> None:
    rows = rows_of([(300, 10)] * 100)
    limits = BatchLimits(256)
    assert limits.joining(rows, 0, 0, 0, 0) == 250
    assert limits.joining(rows, 250, 193, 20, 300) == 0, "fewer than a quarter are free"
    assert limits.joining(rows, 250, 192, 20, 300) == 60
    assert limits.joining(rows, 990, 240, 24, 300) == 10, "the last rows need not wait"
    assert limits.joining(rows, 1000, 0, 0, 0) == 0
    assert len(limits.whole_batch(rows)) == 250


def test_a_prompt_with_more_samples_than_rows_starts_alone() -> None:
    rows = rows_of([(300, 40), (200, 4)])
    limits = BatchLimits(16)
    assert limits.joining(rows, 0, 0, 0, 0) == 16
    assert limits.joining(rows, 16, 8, 1, 300) == 0
    assert limits.joining(rows, 32, 4, 1, 300) == 12


def test_a_short_prompt_waits_for_a_long_one_that_fills_the_memory() -> None:
    rows = rows_of([(40_000, 4), (100, 4)])
    limits = BatchLimits(256)
    assert limits.joining(rows, 0, 0, 0, 0) == 4
    assert limits.joining(rows, 4, 4, 1, 40_000) == 0
    assert limits.joining(rows, 4, 0, 0, 0) == 4
    assert len(limits.whole_batch(rows)) == 3, "of rows that repeat their prompt"


def test_limits_are_halved_down_to_one_row() -> None:
    limits = BatchLimits(5)
    for rows in (2, 1, 1):
        limits.halve()
        assert limits.rows == rows
    assert limits.prompts(10) == PROMPT_TOKENS // 8 // 10


@given(
    prompts=st.lists(
        st.tuples(st.integers(1, 50_000), st.integers(1, 30)), min_size=1, max_size=30
    ),
    limit=st.integers(1, 300),
    halvings=st.integers(0, 20),
    shared=st.booleans(),
)
def test_every_row_is_drawn_once_within_the_limits(
    prompts: list[tuple[int, int]], limit: int, halvings: int, shared: bool
) -> None:
    rows, limits = rows_of(prompts), BatchLimits(limit)
    for _ in range(halvings):
        limits.halve()
    started = 0
    while started < len(rows):
        count = limits.joining(rows, started, 0, 0, 0)
        if not shared:
            count = len(limits.whole_batch(rows[started:]))
        batch = rows[started : started + count]
        distinct = [request for request, _ in groupby(batch, key=lambda row: row.request)]
        assert 0 < len(batch) <= limits.rows
        assert len(distinct) <= limits.prompts(batch[0].tokens)
        if not shared:
            assert len(batch) == 1 or len(batch) * batch[0].tokens <= limits.tokens
        started += count


def test_prompts_that_are_read_in_one_pass_are_few_and_similar() -> None:
    rows = rows_of([(300, 2), (200, 2), (100, 2), (50, 2), (50, 2)])
    passes = [[row.request for row in part] for part in BatchLimits(256, read=400).passes(rows)]
    assert passes == [[0, 0], [1, 1, 2, 2], [3, 3, 4, 4]]
    assert [len(part) for part in BatchLimits(256).passes(rows)] == [10]
    sizes = [len(part) for part in BatchLimits(256, read=400).passes(rows, common=80)]
    assert sizes == [2, 6, 2]

"""What a probe's driver knows of its samples: arrays of bytes, and parts made one at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from factories import small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.difficulty.table import difficulty, difficulty_of_codes
from orchestrator.probing import outcomes, sample_store
from orchestrator.probing.outcomes import (
    NONE,
    MissingSamples,
    OutcomeReader,
    Outcomes,
    PartTables,
    load_outcomes,
    load_stored,
    missing_samples,
)
from orchestrator.probing.sample_store import compact, load_samples, write_part
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from tasks import OUTCOMES, Prompt, make_prompt
from tasks.prompt_table import PromptTable

HASHED = st.builds(make_prompt, st.just("t"), st.text("aé", max_size=4), st.just("1"), st.just(""))
POOLS = st.lists(HASHED, max_size=12, unique_by=lambda prompt: prompt.prompt_id)


def parts_by_lists(missing: MissingSamples, most: int) -> Iterator[list[dict[str, Any]]]:
    """Parts by their definition: prompts by length and id, until a part has `most` samples."""
    part: list[dict[str, Any]] = []
    for prompt, indices in sorted(missing, key=lambda r: (len(r[0].question), r[0].prompt_id)):
        if sum(len(row["samples"]) for row in part) >= most:
            yield part
            part = []
        texts = {name: getattr(prompt, name) for name in Prompt.__slots__}
        part.append({**texts, "samples": list(indices)})
    yield part


@given(POOLS, st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.data())
def test_parts_hold_the_missing_samples_by_length(
    pool: list[Prompt], samples: int, rows: int, tasks: int, data: st.DataObject
) -> None:
    flags = st.lists(st.booleans(), min_size=samples, max_size=samples)
    present = [data.draw(flags) for _ in pool]
    missing = MissingSamples(PromptTable.of(pool), np.array(present, bool).reshape(-1, samples))
    if not missing:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes, "ROWS_PER_PART", rows)
        patch.setattr(outcomes, "MOST_TASKS", tasks)
        tables = PartTables(missing)
        parts = [part for table in tables for part in table["part"].to_pylist()]
        assert len(list(tables)) == len(tables) <= tasks
    assert parts == list(parts_by_lists(missing, rows))


@pytest.mark.parametrize("longest", [2**16 - 1, 2**16, 2**16 + 1, 2**17])
def test_the_longest_question_comes_last(longest: int) -> None:
    """Lengths are sorted as 16 bits where all fit."""
    lengths = [longest, 3, 2**15 - 1, 2**15, 1]
    pool = [make_prompt("t", "a" * length, "1", "") for length in lengths]
    missing = MissingSamples(PromptTable.of(pool), np.zeros((len(pool), 1), bool))
    [table] = PartTables(missing)
    [part] = table["part"].to_pylist()
    assert [len(row["question"]) for row in part] == sorted(lengths)


def samples_of(pool: Sequence[Prompt], codes: Any, marker: str) -> pa.Table:
    """The samples that these codes [prompts, K] stand for."""
    rows = [
        {
            **{
                "prompt_id": pool[p].prompt_id,
                "sample": int(s),
                "completion": "c",
                "tokens": 5 + p,
            },
            **{"finish": "stop", "outcome": OUTCOMES[codes[p, s]], "rule": "r", "marker": marker},
        }
        for p, s in zip(*np.nonzero(codes != NONE), strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


CODES = st.sampled_from([NONE, *range(len(OUTCOMES))])


@settings(max_examples=20)
@given(POOLS, st.integers(1, 4), st.sampled_from(["wrong", "exclude"]), st.data())
def test_codes_and_samples_give_the_same_difficulty(
    pool: list[Prompt], samples: int, count_truncated: Any, data: st.DataObject
) -> None:
    rows = [data.draw(st.lists(CODES, min_size=samples, max_size=samples)) for _ in pool]
    codes = np.array(rows, dtype=np.uint8).reshape(-1, samples)
    prompts = PromptTable.of(pool)
    by_id = Outcomes(prompts, codes).by_id
    options: dict[str, Any] = {"count_truncated": count_truncated, "group_size": 4}
    table = difficulty_of_codes(
        prompts.ids(prompts.order),
        pa.array([pool[row].tier for row in prompts.order], pa.string()),
        by_id,
        **options,
    )
    tiers = {prompt.prompt_id: prompt.tier for prompt in pool}
    stored = samples_of(pool, codes, "m")
    assert table.equals(difficulty(stored, tiers, **options, samples_per_prompt=samples))


def test_outcomes_are_those_of_the_samples_whatever_the_parts(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    spec, store = plan.cells[0].probe, Store(str(tmp_path / "runs"))
    pool = plan.pool(spec)
    some = pool.train[5:20]
    rng = np.random.default_rng(0)
    for _ in range(4):  # of a sample in several parts the first is kept
        codes = rng.integers(-2, 4, (len(pool.train), spec.settings.samples)).astype(np.uint8)
        codes[codes >= 254] = NONE
        write_part(store, spec.key, "train", samples_of(pool.train, codes, spec.marker))
    write_part(store, spec.key, "test", samples_of(pool.test, codes[: len(pool.test)], spec.marker))
    reader = OutcomeReader(spec, some, pool.task)
    for _ in range(2):
        rows = load_samples(store, spec, some, ("outcome", "tokens"), pool.task).to_pylist()
        expected = np.full((len(some), spec.settings.samples), NONE)
        tokens = np.full(expected.shape, -1)
        for row in rows:
            place = some.rows_of(pa.array([row["prompt_id"]]))[0], row["sample"]
            expected[place], tokens[place] = OUTCOMES.index(row["outcome"]), row["tokens"]
        loaded = load_outcomes(store, spec, some, pool.task)
        assert (loaded.codes == expected).all() and loaded.drawn == len(rows)
        stored = load_stored(store, spec, some)
        assert (stored.tokens == tokens).all() and (stored.codes == expected).all()
        assert missing_samples(store, spec, some).samples == (expected == NONE).sum()
        compact(store, spec.key, reader.add)
    assert (reader.codes == expected).all() and not reader.stale


def test_compaction_reads_each_part_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan(tmp_path)
    spec, store = plan.cells[0].probe, Store(str(tmp_path / "runs"))
    pool = plan.pool(spec).train
    names = set()
    for row in range(6):
        codes = np.full((len(pool), 2), NONE, dtype=np.uint8)
        codes[row] = 0
        names.add(write_part(store, spec.key, "train", samples_of(pool, codes, spec.marker)))
    read: list[str] = []
    original = sample_store.read_part
    monkeypatch.setattr(
        sample_store, "read_part", lambda *place: (read.append(place[-1]), original(*place))[1]
    )
    monkeypatch.setattr(sample_store, "ROWS_PER_FILE", 5)
    compact(store, spec.key)
    assert sorted(read) == sorted(names)
    assert len(store.names("probes", spec.key)) == 3

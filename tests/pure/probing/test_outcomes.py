"""What a probe's driver knows of its samples: arrays of bytes, and parts made one at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from factories import sample_row, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.difficulty.table import difficulty, difficulty_of_codes
from orchestrator.pipeline import audit
from orchestrator.pipeline.estimate import estimate
from orchestrator.pipeline.probes import is_probed
from orchestrator.pipeline.run import Run
from orchestrator.probing import outcomes, probe_folder
from orchestrator.probing.outcomes import (
    NONE,
    MissingSamples,
    Outcomes,
    PartSize,
    PartTables,
    even_ends,
)
from orchestrator.probing.probe_folder import ProbeFolder, write_part
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from tasks import OUTCOMES, Prompt, make_prompt
from tasks.prompt_table import PromptTable

HASHED = st.builds(make_prompt, st.just("t"), st.text("aé", max_size=4), st.just("1"), st.just(""))
POOLS = st.lists(HASHED, max_size=12, unique_by=lambda prompt: prompt.prompt_id)


def by_length(missing: MissingSamples) -> Iterator[dict[str, Any]]:
    """The missing samples in the order in which parts take them: by length, then by id."""
    for prompt, indices in sorted(missing, key=lambda r: (len(r[0].question), r[0].prompt_id)):
        texts = {name: getattr(prompt, name) for name in Prompt.__slots__}
        yield {**texts, "samples": list(indices)}


@given(POOLS, st.integers(1, 3), st.integers(1, 12), st.integers(1, 3), st.data())
def test_parts_hold_the_missing_samples_by_length(
    pool: list[Prompt], samples: int, count: int, tasks: int, data: st.DataObject
) -> None:
    flags = st.lists(st.booleans(), min_size=samples, max_size=samples)
    present = [data.draw(flags) for _ in pool]
    missing = MissingSamples(PromptTable.of(pool), np.array(present, bool).reshape(-1, samples))
    if not missing:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes, "MOST_TASKS", tasks)
        tables = PartTables(missing, min(count, len(missing)), "7")
        rows = [row for table in tables for row in table.to_pylist()]
        assert len(list(tables)) == len(tables) <= tasks
    assert [row["name"] for row in rows] == [f"7/{n}" for n in range(min(count, len(missing)))]
    assert [each for row in rows for each in row["part"]] == list(by_length(missing))
    sizes = [sum(len(each["samples"]) for each in row["part"]) for row in rows]
    even = missing.samples / len(rows)
    assert all(sizes)
    assert len(rows) == len(missing) or max(sizes) - even < 2 * samples


SMALL = PartSize(batch=64, most=64)
LARGE = PartSize(batch=512, most=11_591)


@pytest.mark.parametrize(
    ("prompts", "samples", "samplers", "size", "parts", "least", "most"),
    [
        (125, 10, 2, SMALL, 18, 60, 70),
        (125, 10, 8, LARGE, 8, 150, 160),
        (60, 8, 2, SMALL, 6, 80, 80),
        (10_000, 8, 8, SMALL, 1_248, 64, 72),
        (10_000, 8, 8, LARGE, 32, 2_496, 2_504),
        (100, 8, 2, PartSize(), 2, 400, 400),
        (10_000, 8, 8, PartSize(), 32, 2_496, 2_504),
        (1_000_000, 8, 8, PartSize(), 400, 20_000, 20_000),
        (5, 8, 8, SMALL, 5, 8, 8),
        (1, 1, 8, SMALL, 1, 1, 1),
    ],
)
def test_every_sampler_gets_as_many_parts_of_even_size(
    prompts: int, samples: int, samplers: int, size: PartSize, parts: int, least: int, most: int
) -> None:
    """At least a batch, at most what memory holds; not fewer than samplers, nor than prompts."""
    count = size.count(prompts * samples, prompts, samplers)
    ends = even_ends(np.full(prompts, samples), count)
    shares = samples * np.diff([0, *ends])
    assert (count, shares.min(), shares.max(), ends[-1]) == (parts, least, most, prompts)


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=60), st.data())
def test_each_part_has_a_prompt_however_uneven_these_are(
    samples: list[int], data: st.DataObject
) -> None:
    parts = data.draw(st.integers(1, len(samples)))
    ends = even_ends(np.array(samples), parts)
    assert len(ends) == parts and ends[-1] == len(samples) and min(np.diff([0, *ends])) > 0


@pytest.mark.parametrize(
    ("seconds", "drawn", "piece"), [(15, 400, 800), (300, 400, 64), (0, 0, 64)]
)
def test_a_piece_is_half_a_minute_by_what_was_measured(
    seconds: float, drawn: int, piece: int
) -> None:
    assert PartSize(batch=64).piece(seconds, drawn) == piece


@pytest.mark.parametrize("longest", [2**16 - 1, 2**16, 2**16 + 1, 2**17])
def test_the_longest_question_comes_last(longest: int) -> None:
    """Lengths are sorted as 16 bits where all fit."""
    lengths = [longest, 3, 2**15 - 1, 2**15, 1]
    pool = [make_prompt("t", "a" * length, "1", "") for length in lengths]
    missing = MissingSamples(PromptTable.of(pool), np.zeros((len(pool), 1), bool))
    [table] = PartTables(missing, 1)
    [part] = table["part"].to_pylist()
    assert [len(row["question"]) for row in part] == sorted(lengths)


def samples_of(pool: Sequence[Prompt], codes: Any, marker: str) -> pa.Table:
    """The samples that these codes [prompts, K] stand for."""
    rows = [
        sample_row(
            pool[p].prompt_id, int(s), tokens=5 + 3 * int(p * s), outcome=OUTCOMES[codes[p, s]]
        )
        | {"extracted": None, "marker": marker}
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
        tokens=np.where(by_id == NONE, -1, 5 + 3 * prompts.order[:, None] * np.arange(samples)),
        **options,
    )
    tiers = {prompt.prompt_id: prompt.tier for prompt in pool}
    stored = samples_of(pool, codes, "m").drop_columns("extracted")
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
    folder = ProbeFolder(store, spec, some, pool.task)
    for _ in range(2):
        fresh = ProbeFolder(store, spec, some, pool.task)
        rows = fresh.samples(("outcome", "tokens"), partial=True).to_pylist()
        expected = np.full((len(some), spec.settings.samples), NONE)
        tokens = np.full(expected.shape, -1)
        for row in rows:
            place = some.rows_of(pa.array([row["prompt_id"]]))[0], row["sample"]
            expected[place], tokens[place] = OUTCOMES.index(row["outcome"]), row["tokens"]
        loaded = fresh.outcomes()
        assert (loaded.codes == expected).all() and loaded.drawn == len(rows)
        assert (fresh.tokens == tokens).all() and (fresh.codes == expected).all()
        assert fresh.missing().samples == (expected == NONE).sum()
        folder.compact()
    assert (folder.codes == expected).all() and (folder.tokens == tokens).all()


def test_compaction_reads_each_part_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan(tmp_path)
    spec, store = plan.cells[0].probe, Store(str(tmp_path / "runs"))
    pool, task = plan.pool(spec).train, plan.pool(spec).task
    names = set()
    for row in range(6):
        codes = np.full((len(pool), 2), NONE, dtype=np.uint8)
        codes[row] = 0
        names.add(write_part(store, spec.key, "train", samples_of(pool, codes, spec.marker)))
    read: list[str] = []
    original = probe_folder.read_part
    monkeypatch.setattr(
        probe_folder, "read_part", lambda *place: (read.append(place[-1]), original(*place))[1]
    )
    monkeypatch.setattr(probe_folder, "ROWS_PER_FILE", 5)
    folder = ProbeFolder(store, spec, pool, task)
    folder.compact()
    assert sorted(read) == sorted(names)
    assert len(store.names("probes", spec.key)) == 3


def test_a_command_reads_each_part_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its check, its estimates, what is missing and the difficulty table need the same rows."""
    plan, store = small_plan(tmp_path), Store(str(tmp_path / "runs"))
    for spec in plan.probes:
        prompts = plan.pool(spec).prompts(spec.split)
        for half in (prompts[:3], prompts[3:]):
            codes = np.zeros((len(half), spec.settings.samples), dtype=np.uint8)
            write_part(store, spec.key, spec.split, samples_of(half, codes, spec.marker))
    read: list[str] = []
    original = probe_folder.read_part

    def read_part(store: Store, key: str, name: str, *columns: Any) -> Any:
        read.append(f"{key}/{name}")
        return original(store, key, name, *columns)

    for module in (probe_folder, audit):
        monkeypatch.setattr(module, "read_part", read_part)
    run = Run.of(plan, store, {"CPU": 2.0})
    assert audit.repair_plan(plan, store, folders=[*map(run.folder, plan.probes)]) == []
    assert is_probed(run) is False and len(read) == 2 * len(plan.probes)  # the subsets are missing
    estimate(run, plan.cells)
    for spec in plan.probes:
        assert (
            run.pending_after_earlier_probes(spec).samples == 0
            and run.folder(spec).outcomes(partial=False).complete
        )
    assert len(read) == len({*read}) == 2 * len(plan.probes)
    store.delete("probes", *read[0].split("/"))
    assert sum(run.pending_after_earlier_probes(spec).samples for spec in plan.probes) > 0, (
        "its samples are missing"
    )

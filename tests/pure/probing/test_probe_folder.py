"""Parts of a probe: a torn, edited or foreign one is logged and resampled; texts outlive marks."""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import sample_row, small_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.pools import Pool
from orchestrator.probing import probe_folder
from orchestrator.probing.outcomes import MissingSamples
from orchestrator.probing.probe_folder import ProbeFolder, parts, write_part
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from tasks import Task, get_task, make_prompt
from tasks.prompt_table import PromptTable


class Probe:
    """A store with one small probe of four samples per prompt."""

    def __init__(self, folder: Path) -> None:
        plan = small_plan(folder)
        self.spec: ProbeSpec = plan.cells[0].probe
        self.pool: Pool = plan.pool(self.spec)
        self.prompts = self.pool.train[:6]
        self.store = Store(str(folder / "runs"))
        self.folder = folder / "runs" / "probes" / self.spec.key

    def rows(self, first: int, last: int, samples: range, marker: str | None = None) -> pa.Table:
        rows = [
            sample_row(p.prompt_id, i, completion=rf"\boxed{{{p.answer}}}", outcome="correct")
            | {"marker": marker or self.spec.marker}
            for p in self.prompts[first:last]
            for i in samples
        ]
        return pa.Table.from_pylist(rows, schema=SAMPLES)

    def write(self, *arguments: object, key: str | None = None) -> Path:
        name = write_part(self.store, key or self.spec.key, self.spec.split, self.rows(*arguments))  # type: ignore
        return self.folder.parent / (key or self.spec.key) / name

    def missing(self) -> int:
        return self.of().missing().samples

    def of(
        self, spec: ProbeSpec | None = None, task: Task | None = None, prompts: int = 6
    ) -> ProbeFolder:
        """The stored samples of its first prompts, as another command reads them."""
        task = task or self.pool.task
        return ProbeFolder(self.store, spec or self.spec, self.prompts[:prompts], task)


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path)


def test_stored_samples_are_not_missing_and_k_may_grow(probe: Probe) -> None:
    assert probe.missing() == 24
    probe.write(0, 6, range(3))
    assert probe.missing() == 6
    assert {tuple(want) for _, want in probe.of().missing()} == {(3,)}
    probe.write(0, 6, range(3, 4))
    assert probe.missing() == 0
    settings = probe.spec.settings.model_copy(update={"samples": 6})
    more = probe.spec.model_copy(update={"settings": settings})
    assert more.key == probe.spec.key
    assert {tuple(want) for _, want in probe.of(more).missing()} == {(4, 5)}


def test_writing_the_same_rows_twice_is_one_part(probe: Probe) -> None:
    assert probe.write(0, 3, range(4)) == probe.write(0, 3, range(4))
    assert len(list(probe.folder.glob("*.parquet"))) == 1


def damage_torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def damage_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))


def damage_edited(file: Path) -> None:
    table = pq.read_table(file)
    edited = table.set_column(
        table.column_names.index("outcome"), "outcome", pa.array(["wrong"] * table.num_rows)
    )
    pq.write_table(edited, file)


def damage_rows_gone(file: Path) -> None:
    pq.write_table(pq.read_table(file).slice(1), file)


def damage_empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [damage_torn, damage_bit, damage_edited, damage_rows_gone, damage_empty]
)
def test_a_damaged_part_is_logged_and_resampled(
    probe: Probe, damage, caplog: pytest.LogCaptureFixture
) -> None:
    probe.write(0, 3, range(4))
    bad = probe.write(3, 6, range(4))
    damage(bad)
    with caplog.at_level(logging.WARNING):
        assert probe.missing() == 12
    assert bad.name in caplog.text and "will be resampled" in caplog.text
    probe.write(3, 6, range(4))
    assert probe.missing() == 0


def test_a_part_of_another_probe_is_logged_and_not_used(
    probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = probe.write(0, 6, range(4), key="0123456789abcdef")
    probe.folder.mkdir(parents=True)
    foreign.rename(probe.folder / foreign.name)
    assert probe.missing() == 24
    assert "belongs to probe 0123456789abcdef" in caplog.text


def test_a_part_under_the_name_of_another_is_detected(
    probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = probe.write(0, 3, range(4)), probe.write(3, 6, range(4))
    pairs = two.name.partition("-")[0]
    one.rename(one.with_name(f"{pairs}-{one.name.partition('-')[2]}"))
    assert probe.missing() == 12
    [message] = caplog.messages
    assert f"{pairs}-" in message


def test_compaction_keeps_every_row_once_and_renames_damaged_parts(probe: Probe) -> None:
    probe.write(0, 4, range(4))
    probe.write(2, 6, range(4))
    bad = probe.write(0, 1, range(2))
    damage_torn(bad)
    probe.of().compact()
    [file] = probe.folder.glob("*.parquet")
    assert pq.read_table(file).num_rows == 24
    assert [f.name for f in probe.folder.glob("*.unsound")] == [f"{bad.name}.unsound"]
    assert [part.name for part in parts(probe.store, probe.spec.key)] == [file.name]
    probe.of().compact()
    assert [f.name for f in probe.folder.glob("*.parquet")] == [file.name]


def test_compaction_bounds_a_files_rows(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_folder, "ROWS_PER_FILE", 9)
    for first in range(6):
        probe.write(first, first + 1, range(4))
    probe.of().compact()
    sizes = [pq.read_table(f).num_rows for f in probe.folder.glob("*.parquet")]
    assert sorted(sizes) == [8, 8, 8]
    assert probe.missing() == 0


def test_another_marker_marks_stored_texts_again(probe: Probe) -> None:
    probe.write(0, 6, range(4), "shuffled_objects/0/lenient")
    rows = probe.of().samples()
    assert set(rows["marker"].to_pylist()) == {probe.spec.marker}
    assert set(rows["rule"].to_pylist()) == {"lenient:boxed-letter"}


def test_updated_marks_are_cached_and_two_readings_share_the_texts(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe.write(0, 6, range(4))
    strict = get_task("shuffled_objects", marking="strict", **probe.spec.dataset.options)
    calls = []
    update = probe_folder.update_marks
    monkeypatch.setattr(probe_folder, "update_marks", lambda *a: calls.append(1) or update(*a))
    first = probe.of(task=strict).samples()
    again = probe.of(task=strict).samples()
    assert calls == [1] and first.equals(again)
    assert set(again["marker"].to_pylist()) == {strict.marker_id}
    mine = probe.of().samples()
    assert set(mine["marker"].to_pylist()) == {probe.spec.marker} and calls == [1]
    some = probe.of(task=strict, prompts=3).samples()
    assert some.num_rows == 12 and calls == [1, 1]  # cached marks are of other rows


def test_damaged_cached_marks_are_recomputed(probe: Probe) -> None:
    probe.write(0, 6, range(4))
    strict = get_task("shuffled_objects", marking="strict", **probe.spec.dataset.options)
    right = probe.of(task=strict).samples()
    [cached] = probe.folder.glob("marks-*/*.parquet")
    for damage in (damage_edited, damage_torn, damage_empty):
        damage(cached)
        assert probe.of(task=strict).samples().equals(right)
        assert probe.missing() == 0


def test_an_incomplete_probe_is_refused_unless_partial(probe: Probe) -> None:
    probe.write(0, 5, range(4))
    with pytest.raises(RuntimeError, match="20 of 24 samples"):
        probe.of().samples()
    some = probe.of().samples(partial=True)
    assert some.num_rows == 20


@settings(max_examples=50)
@given(have=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 5))), samples=st.integers(1, 4))
def test_stored_and_missing_samples_are_complementary(
    have: set[tuple[int, int]], samples: int
) -> None:
    prompts = [make_prompt("t", str(i), "a", "") for i in range(5)]
    present = np.array([[(p, s) in have for s in range(samples)] for p in range(5)])
    requests = MissingSamples(PromptTable.of(prompts), present)
    assert list(requests) == [requests[i] for i in range(len(requests))]
    missing = {(p.prompt_id, i) for p, want in requests for i in want}
    assert requests.samples == len(missing)
    stored = {(prompts[p].prompt_id, s) for p, s in have if s < samples}
    assert missing & stored == set()
    assert missing | stored == {(p.prompt_id, s) for p in prompts for s in range(samples)}


def test_splits_are_stored_and_compacted_apart(probe: Probe) -> None:
    train, test = probe.spec, probe.spec.model_copy(update={"split": "test"})
    probe.write(0, 3, range(4))
    probe.write(3, 6, range(4))
    for first in (0, 2):
        write_part(probe.store, test.key, "test", probe.rows(first, first + 2, range(4)))
    probe.of().compact()
    stored = {part.split: part.samples.num_rows for part in parts(probe.store, train.key)}
    assert stored == {"train": 24, "test": 16}
    assert not probe.of(train).missing()
    absent = {p.prompt_id for p, _ in probe.of(test).missing()}
    assert absent == {p.prompt_id for p in probe.prompts[4:]}


def test_a_part_with_an_unknown_split_is_logged_and_not_used(
    probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    write_part(probe.store, probe.spec.key, "dev", probe.rows(0, 6, range(4)))  # type: ignore
    assert probe.missing() == 24
    assert "names no split" in caplog.text


def test_compaction_keeps_a_merged_part_that_has_the_name_of_a_torn_one(probe: Probe) -> None:
    def draw() -> None:
        for first in (0, 3):
            probe.write(first, first + 3, range(4))
        probe.of().compact()

    draw()
    [merged] = probe.folder.glob("*.parquet")
    damage_bit(merged)
    assert probe.missing() == 24
    draw()
    assert probe.missing() == 0
    assert [file.name for file in probe.folder.glob("*.parquet")] == [merged.name]
    assert [file.name for file in probe.folder.glob("*.unsound")] == [f"{merged.name}.unsound"]


@pytest.mark.parametrize("ids", [["00ff", "a"], ["é", 'say "x"'], ["\\", ""], [None, "a"], []])
def test_the_hash_of_the_pairs_is_that_of_their_json(ids: list[str | None]) -> None:
    samples = list(range(len(ids)))
    table = pa.table(
        {"prompt_id": pa.array(ids, pa.string()), "sample": pa.array(samples, "int32")}
    )
    assert probe_folder._pairs_hash(table) == canonical_hash([ids, samples])

"""The stored samples of a probe: writing, verifying, reading and compacting its Parquet parts.

`probes/<key>/` holds `key.json` (the values that the key hashes) and Parquet parts. A part is named
`<hash of its (prompt, sample) pairs>-<hash of its bytes>.parquet`; its metadata names the probe and
the split. A part that is torn, edited, or of another probe fails verification: it is logged by name
and its samples are drawn again. The union of any parts is a valid probe. A row is identified by
(prompt_id, sample); of duplicate rows the first is kept.

One folder may hold several pools, and both splits where a training probe and an evaluation share
their sampling settings. Each split is stored on its own, so that training subsets are chosen from
training prompts only.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.pools import Split
from orchestrator.probing.samples import marks_are_current, update_marks
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.schema import MARKED, SAMPLES, empty
from orchestrator.storage.store import Store
from tasks import Prompt, Task
from tasks.prompt_table import PromptTable

Ints = npt.NDArray[np.int64]

log = logging.getLogger(__name__)

PROBE = b"decile.probe"  # in a part's metadata: the key of its probe
SPLIT = b"decile.split"  # in a part's metadata: train or test; parts of older versions have none
ROWS_PER_FILE = 100_000  # of a compacted part; compaction holds no more per split in memory
PAIR = ("prompt_id", "sample")  # identifies a row
COUNTED = (*PAIR, "outcome")  # what difficulty is computed from
_PLAIN_ID = "^[0-9A-Za-z]*$"  # is not escaped in JSON
# What only sampling can produce; every other column is a mark, which can be computed again.
_DRAWN = ("prompt_id", "sample", "completion", "tokens", "finish")


class Part(NamedTuple):
    """A verified part; `split` is None where a version without splits wrote it."""

    name: str
    split: Split | None
    samples: pa.Table  # schema SAMPLES


def write_key(store: Store, spec: ProbeSpec) -> None:
    """Write the values that the folder's key hashes."""
    if store.read_json("probes", spec.key, "key.json") != spec.identity:
        store.write_json(spec.identity, "probes", spec.key, "key.json")


def write_part(store: Store, key: str, split: Split | None, samples: pa.Table) -> str:
    """Write rows (schema SAMPLES) as a part of one split; returns the file's name."""
    samples = samples.sort_by([(name, "ascending") for name in PAIR])
    metadata = {PROBE: key, **({SPLIT: split} if split else {})}
    sink = pa.BufferOutputStream()
    pq.write_table(samples.replace_schema_metadata(metadata), sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    name = f"{_pairs_hash(samples)}-{_bytes_hash(data)}.parquet"
    store.write_bytes(data, "probes", key, name)
    return name


def _pairs_hash(samples: pa.Table) -> str:
    """The `canonical_hash` of the ids and of the samples' numbers."""
    ids, numbers = (samples[name].combine_chunks() for name in PAIR)
    plain = len(ids) and not (ids.null_count or numbers.null_count)
    if not plain or not pc.all(pc.match_substring_regex(ids, _PLAIN_ID)).as_py():
        return canonical_hash([ids.to_pylist(), numbers.to_pylist()])
    texts = _joined(ids, '","'), _joined(numbers.cast(pa.string()), ",")
    return hashlib.sha256(b'[["%b"],[%b]]' % texts).hexdigest()[:16]


def _joined(texts: pa.Array, separator: str) -> bytes:
    [joined] = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), separator)
    return bytes(joined.as_buffer())


def _bytes_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def split_of(schema: pa.Schema) -> Split | None:
    """The split that a part's metadata names. Raises ValueError on an unknown one."""
    name = (schema.metadata or {}).get(SPLIT, b"").decode()
    split: Split | None = next((known for known in get_args(Split) if known == name), None)
    if name and split is None:
        raise ValueError(f"has the unknown split {name!r}")
    return split


def read_part(store: Store, key: str, name: str, columns: Sequence[str] = SAMPLES.names) -> Part:
    """Read these columns of one part and verify it. Raises ValueError: what is wrong with it."""
    data = store.read_bytes("probes", key, name)
    pairs, _, content = name.removesuffix(".parquet").partition("-")
    if _bytes_hash(data) != content:
        raise ValueError("is torn or was edited")
    file = pq.ParquetFile(pa.BufferReader(data))
    owner = (file.schema_arrow.metadata or {}).get(PROBE, b"").decode()
    if owner != key:
        raise ValueError(f"belongs to {f'probe {owner}' if owner else 'no probe'}")
    samples = _as_samples(file, [*PAIR, *(name for name in columns if name not in PAIR)])
    if _pairs_hash(samples) != pairs:
        raise ValueError("does not hold the samples that its name hashes")
    return Part(name, split_of(file.schema_arrow), samples)


def _as_samples(file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    """Columns of this version's schema; marks of another version are dropped, texts never."""
    schema = file.schema_arrow
    if schema.remove_metadata().equals(SAMPLES):
        return file.read(columns=columns).select(columns).replace_schema_metadata(None)
    if any(
        name not in schema.names or schema.field(name).type != SAMPLES.field(name).type
        for name in _DRAWN
    ):
        raise ValueError("has another schema")
    table = file.read(columns=_DRAWN)
    missing = {f.name: pa.nulls(table.num_rows, f.type) for f in SAMPLES}
    drawn = {name: table[name] for name in _DRAWN}
    return pa.table(missing | drawn, schema=SAMPLES).select(columns)


def parts(store: Store, key: str, columns: Sequence[str] = SAMPLES.names) -> Iterator[Part]:
    """The verified parts of a probe, one at a time; the others are logged by name."""
    for name in _names(store, key):
        try:
            yield read_part(store, key, name, columns)
        except (ValueError, pa.ArrowException, OSError) as error:
            why = "cannot be read" if isinstance(error, pa.ArrowException | OSError) else error
            log.warning("probe %s: part %s %s; its samples will be resampled", key, name, why)


def _names(store: Store, key: str) -> list[str]:
    return [name for name in store.names("probes", key) if name.endswith(".parquet")]


class PoolRows(NamedTuple):
    """Stored samples of a pool (schema SAMPLES), and the row of each one's prompt in the pool."""

    prompts: Ints
    samples: pa.Table


def ids_and_samples(samples: pa.Table, prompts: PromptTable, most: int) -> PoolRows:
    """Those rows that are samples of these prompts with an index below `most`."""
    row = prompts.rows_of(samples["prompt_id"])
    known = (row >= 0) & (samples["sample"].to_numpy() < most)
    if known.all():
        return PoolRows(row, samples)
    return PoolRows(row[known], samples.filter(pa.array(known)))


def rows_of_parts(
    store: Store,
    spec: ProbeSpec,
    prompts: PromptTable,
    columns: Sequence[str],
    task: Task | None = None,
) -> Iterator[PoolRows]:
    """Columns of the stored rows of these prompts in the probe's split, part by part.

    With `task`, marked by its current marker. Parts without a split belong to both splits. Several
    parts may hold the same sample.
    """
    read = [*columns, *(["marker"] if task and "marker" not in columns else [])]
    for part in parts(store, spec.key, read):
        if part.split in (spec.split, None):
            rows = ids_and_samples(part.samples, prompts, spec.settings.samples)
            if task and not marks_are_current(rows.samples, task):
                samples = read_part(store, spec.key, part.name).samples
                rows = ids_and_samples(samples, prompts, spec.settings.samples)
                marked = _with_current_marks(store, spec, part.name, rows, task, prompts)
                rows = rows._replace(samples=marked)
            yield rows


def load_samples(
    store: Store,
    spec: ProbeSpec,
    prompts: Sequence[Prompt],
    columns: Sequence[str] = SAMPLES.names,
    task: Task | None = None,
) -> pa.Table:
    """The stored rows of these prompts in the probe's split, each once, sorted.

    With `task`, marked by its current marker. All rows are in memory at once: of a large pool, read
    `outcomes.load_outcomes`.
    """
    columns = [*PAIR, *(name for name in columns if name not in PAIR)]
    tables = [empty(SAMPLES).select(columns)]
    for rows in rows_of_parts(store, spec, PromptTable.of(prompts), columns, task):
        tables.append(rows.samples.select(columns))
    return _without_duplicates(
        pa.concat_tables(tables).sort_by([(name, "ascending") for name in PAIR])
    )


def _without_duplicates(rows: pa.Table) -> pa.Table:
    """Sorted rows without those that repeat the pair before them."""
    same = np.ones(max(0, rows.num_rows - 1), dtype=bool)
    for name in PAIR:
        column = rows[name].combine_chunks()
        same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(np.concatenate([np.ones(min(1, rows.num_rows), bool), ~same])))


def _with_current_marks(
    store: Store, spec: ProbeSpec, name: str, pool: PoolRows, task: Task, prompts: PromptTable
) -> pa.Table:
    """Rows of a part under the task's marker; updated marks are cached next to the part.

    Two readings of answers share a probe's texts: each finds its own marks the second time.
    """
    rows = pool.samples
    cache = ("probes", spec.key, f"marks-{canonical_hash(task.marker_id)}", name)
    cached = store.read_table(MARKED, *cache, needs_proof=True)
    if cached is not None and cached.select(PAIR).equals(rows.select(PAIR)):
        marks = {f.name: cached[f.name] for f in MARKED}
        return pa.table({n: marks.get(n, rows[n]) for n in SAMPLES.names}, schema=SAMPLES)
    golds = {p.prompt_id: p.answer for p in prompts.take(np.unique(pool.prompts))}
    rows = update_marks(rows, task, golds, spec.dataset.max_marking_errors)
    store.write_table(rows.select(MARKED.names), *cache)
    return rows


def read_samples(
    store: Store,
    spec: ProbeSpec,
    task: Task,
    prompts: Sequence[Prompt],
    columns: Sequence[str] = SAMPLES.names,
    *,
    partial: bool = False,
) -> pa.Table:
    """The probe of these prompts, marked by the task's current marker (`columns` of SAMPLES).

    Raises RuntimeError while samples are missing, unless `partial`.
    """
    rows = load_samples(store, spec, prompts, columns, task)
    needed = len(prompts) * spec.settings.samples
    if rows.num_rows != needed and not partial:
        raise RuntimeError(
            f"probe {spec.key} holds {rows.num_rows} of {needed} samples: run it first"
        )
    return rows


def compact(store: Store, key: str, on_part: Callable[[Part], None] | None = None) -> None:
    """Merge small parts of a split into files of about ROWS_PER_FILE sorted rows.

    Each part is read once; `on_part` is called with it. One that fails verification is set aside,
    so that its samples are drawn again. Two drivers that compact at once each write a whole file
    first, so nothing can be lost.
    """
    groups: dict[Split | None, list[Part]] = {}
    for name in _names(store, key):
        try:
            part = read_part(store, key, name)
        except FileNotFoundError:  # another driver has merged it
            continue
        except (ValueError, pa.ArrowException):  # not OSError, which may be the network's
            store.set_aside("probes", key, name)
            continue
        if on_part:
            on_part(part)
        group = groups.setdefault(part.split, [])
        if sum(p.samples.num_rows for p in group) + part.samples.num_rows > ROWS_PER_FILE:
            _merge(store, key, group)
            group.clear()
        group.append(part)
    for group in groups.values():
        _merge(store, key, group)


def _merge(store: Store, key: str, group: Sequence[Part]) -> None:
    """Write the parts of one split as one, then delete them."""
    if len(group) < 2:
        return
    rows = pa.concat_tables([part.samples for part in group])
    rows = _without_duplicates(rows.sort_by([(name, "ascending") for name in PAIR]))
    merged = write_part(store, key, group[0].split, rows)
    for part in group:
        if part.name != merged:
            store.delete("probes", key, part.name)

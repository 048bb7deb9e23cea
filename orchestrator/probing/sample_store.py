"""The marked samples of a probe as files: what is there, what is owed, one way to read them.

`probes/<key>/` holds `key.json` (what the key hashes, readable) and Parquet parts. A part is named
`<hash of its (prompt, sample) pairs>-<hash of its bytes>.parquet`, and its metadata name the probe:
a part that is torn, edited, or of another probe gives itself away, is named aloud, and its samples
are owed again. Any union of parts is a probe. A row is identified by (prompt_id, sample);
duplicates are equal in meaning, and the first is kept.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.planning.cells import ProbeSpec
from orchestrator.probing.samples import Wanted, is_current, remark
from orchestrator.storage.hashing import canonical_hash
from orchestrator.storage.schema import MARKED, SAMPLES, empty
from orchestrator.storage.store import Store
from tasks import Prompt, Task

log = logging.getLogger(__name__)

PROBE = b"decile.probe"  # in a part's metadata: the key of the probe it belongs to
CONTENT = b"decile.content"  # in the metadata of marks kept beside: the hash of their rows
ROWS_PER_FILE = 100_000  # compaction never holds more in memory
PAIR = ("prompt_id", "sample")  # what a row is
COUNTED = (*PAIR, "outcome")  # what difficulty is made of
# What only sampling can give; every other column is a mark, and marking again is free.
_DRAWN = ("prompt_id", "sample", "completion", "tokens", "finish")


def write_key(store: Store, spec: ProbeSpec) -> None:
    """Say what the folder's key hashes."""
    if not store.exists("probes", spec.key, "key.json"):
        store.write_json(spec.identity, "probes", spec.key, "key.json")


def write_part(store: Store, key: str, samples: pa.Table) -> str:
    """Write rows (schema SAMPLES) as a part; returns the file's name."""
    samples = samples.sort_by([("prompt_id", "ascending"), ("sample", "ascending")])
    sink = pa.BufferOutputStream()
    pq.write_table(samples.replace_schema_metadata({PROBE: key}), sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    name = f"{_pairs_hash(samples)}-{_bytes_hash(data)}.parquet"
    store.write_bytes(data, "probes", key, name)
    return name


def _pairs_hash(samples: pa.Table) -> str:
    return canonical_hash([samples["prompt_id"].to_pylist(), samples["sample"].to_pylist()])


def _bytes_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def read_part(store: Store, key: str, name: str) -> pa.Table:
    """The rows of one part (schema SAMPLES). Raises ValueError that says what is wrong with it."""
    data = store.read_bytes("probes", key, name)
    pairs, _, content = name.removesuffix(".parquet").partition("-")
    if _bytes_hash(data) != content:
        raise ValueError("is torn or was edited")
    table = pq.read_table(pa.BufferReader(data))
    owner = (table.schema.metadata or {}).get(PROBE, b"").decode()
    if owner != key:
        raise ValueError(f"belongs to probe {owner or 'of nobody'}")
    table = _as_samples(table)
    if _pairs_hash(table) != pairs:
        raise ValueError("holds other samples than its name says")
    return table


def _as_samples(table: pa.Table) -> pa.Table:
    """Rows of this version's schema; marks of another version's are forgotten, texts never."""
    names = set(table.column_names)
    wanted = [pa.field(name, SAMPLES.field(name).type) for name in _DRAWN]
    if not all(f.name in names and table.schema.field(f.name).type == f.type for f in wanted):
        raise ValueError("is of another schema")
    if table.schema.remove_metadata().equals(SAMPLES):
        return table.replace_schema_metadata(None)
    none = {f.name: pa.nulls(table.num_rows, f.type) for f in SAMPLES if f.name not in _DRAWN}
    kept = {name: table[name] for name in _DRAWN}
    return pa.table({f.name: (kept | none)[f.name] for f in SAMPLES}, schema=SAMPLES)


def parts(store: Store, key: str) -> Iterator[tuple[str, pa.Table]]:
    """Every sound part of a probe with its name, one at a time; the others are named aloud."""
    for name in store.names("probes", key):
        if not name.endswith(".parquet"):
            continue
        try:
            part = read_part(store, key, name)
        except (ValueError, pa.ArrowException, OSError) as error:
            why = "cannot be read" if isinstance(error, pa.ArrowException | OSError) else error
            log.warning("probe %s: part %s %s; its samples are owed again", key, name, why)
            continue
        yield name, part


def load_samples(
    store: Store,
    spec: ProbeSpec,
    prompts: Sequence[Prompt],
    columns: Sequence[str] = SAMPLES.names,
    task: Task | None = None,
) -> pa.Table:
    """The rows there are of these prompts and sample indices, each once, sorted.

    Marked by the current marker of `task`, where given. One part at a time is held whole: of a
    large probe ask only for the `columns` that are needed.
    """
    columns = [*PAIR, *(name for name in columns if name not in PAIR)]
    wanted = pa.array([p.prompt_id for p in prompts], pa.string())
    golds = {p.prompt_id: p.answer for p in prompts} if task else {}
    found = [empty(SAMPLES).select(columns)]
    for name, part in parts(store, spec.key):
        here = pc.and_(
            pc.is_in(part["prompt_id"], value_set=wanted),
            pc.less(part["sample"], spec.settings.samples),
        )
        part = part.filter(here)
        if task:
            part = _marked(store, spec.key, name, part, task, golds)
        found.append(part.select(columns))
    return _each_once(pa.concat_tables(found).sort_by([(name, "ascending") for name in PAIR]))


def _each_once(rows: pa.Table) -> pa.Table:
    """Sorted rows without those that repeat the pair before them."""
    same = np.ones(max(0, rows.num_rows - 1), dtype=bool)
    for name in PAIR:
        column = rows[name].combine_chunks()
        same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(np.concatenate([np.ones(min(1, rows.num_rows), bool), ~same])))


def _marked(
    store: Store, key: str, name: str, part: pa.Table, task: Task, golds: Mapping[str, str]
) -> pa.Table:
    """Rows of a part under the task's marker; what has to be marked again is, and is kept beside.

    Two readings of answers share a probe's texts: each finds its own marks the second time.
    """
    if is_current(part, task):
        return part
    beside = ("probes", key, f"marks-{canonical_hash(task.marker_id)}", name)
    kept = store.read_table(MARKED, *beside)
    if kept is not None and _is_as_written(kept) and kept.select(PAIR).equals(part.select(PAIR)):
        marks = {f.name: kept[f.name] for f in MARKED}
        return pa.table({n: marks.get(n, part[n]) for n in SAMPLES.names}, schema=SAMPLES)
    part = remark(part, task, golds)
    marks = part.select(MARKED.names)
    store.write_table(marks.replace_schema_metadata({CONTENT: _content_hash(marks)}), *beside)
    return part


def _is_as_written(marks: pa.Table) -> bool:
    written = (marks.schema.metadata or {}).get(CONTENT, b"").decode()
    return bool(written == _content_hash(marks))


def _content_hash(table: pa.Table) -> str:
    return canonical_hash(table.to_pydict())


def missing_samples(store: Store, spec: ProbeSpec, prompts: Sequence[Prompt]) -> list[Wanted]:
    """The prompts that lack samples, each with the sample indices it lacks."""
    return missing_indices(load_samples(store, spec, prompts, PAIR), prompts, spec.settings.samples)


def missing_indices(rows: pa.Table, prompts: Sequence[Prompt], samples: int) -> list[Wanted]:
    """The sample indices below `samples` that `rows` has not, per prompt that lacks any."""
    ids = pa.array([p.prompt_id for p in prompts], pa.string())
    row = pc.fill_null(pc.index_in(rows["prompt_id"], value_set=ids), -1).to_numpy()
    index = rows["sample"].to_numpy()
    known = (row >= 0) & (index < samples)
    have = np.zeros((len(prompts), samples), dtype=bool)
    have[row[known], index[known]] = True
    shared: dict[bytes, Sequence[int]] = {}  # most prompts lack the same: a million tuples are one
    return [
        (prompt, shared.setdefault(there.tobytes(), tuple(np.flatnonzero(~there).tolist())))
        for prompt, there in zip(prompts, have, strict=True)
        if not there.all()
    ]


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

    Raises RuntimeError while samples are owed, unless `partial`.
    """
    rows = load_samples(store, spec, prompts, columns, task)
    want = len(prompts) * spec.settings.samples
    if rows.num_rows != want and not partial:
        have = f"{rows.num_rows} of {want} samples"
        raise RuntimeError(f"probe {spec.key} holds {have}: run it first")
    return rows


def compact(store: Store, key: str) -> None:
    """Put small parts together, in files of about ROWS_PER_FILE sorted rows.

    Two drivers that compact at once each write a whole file first, so nothing can be lost. A part
    that is not sound is set aside under another ending.
    """
    unsound = {name for name in store.names("probes", key) if name.endswith(".parquet")}
    group: dict[str, pa.Table] = {}
    rows = 0
    for name, table in parts(store, key):
        unsound.discard(name)
        if rows + table.num_rows > ROWS_PER_FILE:
            _merge(store, key, group)
            group, rows = {}, 0
        group[name] = table
        rows += table.num_rows
    _merge(store, key, group)
    for name in unsound:
        store.rename(f"{name}.unsound", "probes", key, name)


def _merge(store: Store, key: str, group: dict[str, pa.Table]) -> None:
    if len(group) < 2:
        return
    rows = pa.concat_tables(group.values()).group_by(["prompt_id", "sample"], use_threads=False)
    once = rows.aggregate([(name, "first") for name in SAMPLES.names[2:]])
    merged = write_part(store, key, once.rename_columns(SAMPLES.names).cast(SAMPLES))
    for name in group.keys() - {merged}:
        store.delete("probes", key, name)

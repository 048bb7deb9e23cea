"""The marked samples of a probe as files: what is there, what is owed, one way to read them.

`probes/<key>/` holds `key.json` (what the key hashes, readable) and Parquet parts. A part is named
`<hash of its (prompt, sample) pairs>-<hash of its bytes>.parquet`, and its metadata name the probe:
a part that is torn, edited, or of another probe gives itself away, is named aloud, and its samples
are owed again. Any union of parts is a probe. A row is identified by (prompt_id, sample);
duplicates are equal in meaning, and the first is kept.
"""

import hashlib
import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.cells import ProbeSpec
from orchestrator.models import canonical_hash
from orchestrator.samples import Wanted, remark
from orchestrator.schema import SAMPLES, empty
from orchestrator.store import Store
from tasks import Prompt, Task

log = logging.getLogger(__name__)

PROBE = b"decile.probe"  # in a part's metadata: the key of the probe it belongs to
ROWS_PER_FILE = 100_000  # compaction never holds more in memory
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


def parts(store: Store, key: str) -> dict[str, pa.Table]:
    """Every sound part of a probe, by name; the others are named aloud."""
    found: dict[str, pa.Table] = {}
    for name in store.names("probes", key):
        if not name.endswith(".parquet"):
            continue
        try:
            found[name] = read_part(store, key, name)
        except (ValueError, pa.ArrowException, OSError) as error:
            why = "cannot be read" if isinstance(error, pa.ArrowException | OSError) else error
            log.warning("probe %s: part %s %s; its samples are owed again", key, name, why)
    return found


def known(store: Store, spec: ProbeSpec, prompts: Sequence[Prompt]) -> pa.Table:
    """The rows there are of these prompts and sample indices, each once, sorted."""
    rows = pa.concat_tables([empty(SAMPLES), *parts(store, spec.key).values()])
    wanted = pa.array([p.prompt_id for p in prompts], pa.string())
    rows = rows.filter(
        pc.and_(
            pc.is_in(rows["prompt_id"], value_set=wanted),
            pc.less(rows["sample"], spec.settings.samples),
        )
    ).sort_by([("prompt_id", "ascending"), ("sample", "ascending")])
    ids, samples = rows["prompt_id"].to_numpy(zero_copy_only=False), rows["sample"].to_numpy()
    repeated = np.zeros(len(ids), dtype=bool)
    repeated[1:] = (ids[1:] == ids[:-1]) & (samples[1:] == samples[:-1])
    return rows.filter(pa.array(~repeated))


def owed(store: Store, spec: ProbeSpec, prompts: Sequence[Prompt]) -> list[Wanted]:
    """The prompts that lack samples, each with the sample indices it lacks."""
    return lacking(known(store, spec, prompts), prompts, spec.settings.samples)


def lacking(rows: pa.Table, prompts: Sequence[Prompt], samples: int) -> list[Wanted]:
    """The sample indices below `samples` that `rows` has not, per prompt that lacks any."""
    have: dict[str, set[int]] = {}
    for prompt_id, index in zip(
        rows["prompt_id"].to_pylist(), rows["sample"].to_pylist(), strict=True
    ):
        have.setdefault(prompt_id, set()).add(index)
    missing = [
        (p, [i for i in range(samples) if i not in have.get(p.prompt_id, ())]) for p in prompts
    ]
    return [(prompt, indices) for prompt, indices in missing if indices]


def read_samples(store: Store, spec: ProbeSpec, task: Task, prompts: Sequence[Prompt],
                 *, partial: bool = False) -> pa.Table:  # fmt: skip
    """The probe of these prompts, marked by the task's current marker (schema SAMPLES).

    Raises RuntimeError while samples are owed, unless `partial`.
    """
    rows = known(store, spec, prompts)
    want = len(prompts) * spec.settings.samples
    if rows.num_rows != want and not partial:
        have = f"{rows.num_rows} of {want} samples"
        raise RuntimeError(f"probe {spec.key} holds {have}: run it first")
    return remark(rows, task, prompts)


def compact(store: Store, key: str) -> None:
    """Put small parts together, in files of about ROWS_PER_FILE sorted rows.

    Two drivers that compact at once each write a whole file first, so nothing can be lost. A part
    that is not sound is set aside under another ending.
    """
    sound = parts(store, key)
    for name in store.names("probes", key):
        if name.endswith(".parquet") and name not in sound:
            store.rename(f"{name}.unsound", "probes", key, name)
    group: dict[str, pa.Table] = {}
    for name, table in [*sound.items(), ("", empty(SAMPLES))]:
        rows = sum(part.num_rows for part in group.values())
        if group and (not name or rows + table.num_rows > ROWS_PER_FILE):
            _merge(store, key, group)
            group = {}
        group[name] = table


def _merge(store: Store, key: str, group: dict[str, pa.Table]) -> None:
    if len(group) < 2:
        return
    rows = pa.concat_tables(group.values()).group_by(["prompt_id", "sample"], use_threads=False)
    once = rows.aggregate([(name, "first") for name in SAMPLES.names[2:]])
    merged = write_part(store, key, once.rename_columns(SAMPLES.names).cast(SAMPLES))
    for name in group.keys() - {merged}:
        store.delete("probes", key, name)

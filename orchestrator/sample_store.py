"""The marked samples of a probe as files: what is there, what is owed, one way to read them.

`probes/<key>/` holds `key.json` (what the key hashes, readable) and Parquet files of rows. A file's
name is the hash of the (prompt, sample) pairs in it, so writing one twice is harmless, and any
union of files is a probe. A row is identified by (prompt_id, sample); duplicates are equal in
meaning, and the first is kept. A file that cannot be read is owed again and named aloud.
"""

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.models import canonical_hash
from orchestrator.plan import ProbeSpec
from orchestrator.samples import Wanted, remark
from orchestrator.schema import SAMPLES, empty
from orchestrator.store import Store
from tasks import Prompt, Task

log = logging.getLogger(__name__)


def write_key(store: Store, spec: ProbeSpec) -> None:
    """Say what the folder's key hashes."""
    if not store.exists("probes", spec.key, "key.json"):
        store.write_json(spec.identity, "probes", spec.key, "key.json")


def write_part(store: Store, key: str, samples: pa.Table) -> str:
    """Write rows under the hash of their (prompt, sample) pairs; returns the file's name."""
    samples = samples.sort_by([("prompt_id", "ascending"), ("sample", "ascending")])
    pairs = [samples["prompt_id"].to_pylist(), samples["sample"].to_pylist()]
    name = f"{canonical_hash(pairs)}.parquet"
    store.write_table(samples, "probes", key, name)
    return name


def _parts(store: Store, key: str) -> dict[str, pa.Table]:
    """Every readable file of a probe, by name."""
    names = [n for n in store.names("probes", key) if n.endswith(".parquet")]
    tables = {name: store.read_table(SAMPLES, "probes", key, name) for name in names}
    for name in (n for n, table in tables.items() if table is None):
        log.warning("probe %s: %s cannot be read; its samples are owed again", key, name)
    return {name: table for name, table in tables.items() if table is not None}


def _known(store: Store, spec: ProbeSpec, prompts: Sequence[Prompt]) -> pa.Table:
    """The rows there are of these prompts and sample indices, each once, sorted."""
    parts = list(_parts(store, spec.key).values())
    rows = pa.concat_tables([empty(SAMPLES), *parts])
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
    known = _known(store, spec, prompts)
    have: dict[str, set[int]] = {}
    for prompt_id, index in zip(
        known["prompt_id"].to_pylist(), known["sample"].to_pylist(), strict=True
    ):
        have.setdefault(prompt_id, set()).add(index)
    every = range(spec.settings.samples)
    lacking = [(p, [i for i in every if i not in have.get(p.prompt_id, ())]) for p in prompts]
    return [(prompt, indices) for prompt, indices in lacking if indices]


def read_samples(store: Store, spec: ProbeSpec, task: Task, prompts: Sequence[Prompt]) -> pa.Table:
    """The whole probe of these prompts, marked by the task's current marker (schema SAMPLES).

    Raises RuntimeError while samples are owed.
    """
    rows = _known(store, spec, prompts)
    want = len(prompts) * spec.settings.samples
    if rows.num_rows != want:
        have = f"{rows.num_rows} of {want} samples"
        raise RuntimeError(f"probe {spec.key} holds {have}: run it first")
    return remark(rows, task, prompts)


def compact(store: Store, key: str) -> None:
    """Put all parts into one sorted file, then drop the parts that it holds.

    Two drivers that compact at once each write a whole file first, so nothing can be lost.
    """
    parts = _parts(store, key)
    if len(parts) < 2:
        return
    rows = pa.concat_tables(parts.values())
    rows = rows.group_by(["prompt_id", "sample"], use_threads=False).aggregate(
        [(name, "first") for name in SAMPLES.names[2:]]
    )
    merged = write_part(store, key, rows.rename_columns(SAMPLES.names).cast(SAMPLES))
    for name in parts.keys() - {merged}:
        store.delete("probes", key, name)

"""The stored samples of a probe: writing, verifying, reading and compacting its Parquet parts.

`probes/<key>/` holds `key.json` (the values that the key hashes) and Parquet parts. A part is named
`<hash of its (prompt, sample) pairs>-<hash of its bytes>.parquet`; its metadata names the probe and
the split. A part that is incomplete, edited, or from another probe fails verification: its name is
logged and its samples are drawn again. The union of any parts is a valid probe. A row is identified
by (prompt_id, sample); the first of duplicate rows is kept.

One folder may hold several pools, and both splits if a training probe and an evaluation share their
sampling settings. Each split is stored separately, so that training subsets are chosen from
training prompts only.
"""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.planning.cells import ProbeSpec
from orchestrator.plugins.counts import counted
from orchestrator.probing.answers import Answers, encoded, has_answer
from orchestrator.probing.other_forms import TEXTS, in_other_form, reads_texts
from orchestrator.probing.outcomes import NONE, Codes, MissingSamples, Outcomes, Scores
from orchestrator.probing.samples import update_marks
from orchestrator.storage.proof import Unsound, canonical_hash
from orchestrator.storage.schema import (
    MARKED,
    PROBE,
    SAMPLES,
    SPLIT,
    Split,
    completed,
    split_of,
    without_empty,
)
from orchestrator.storage.store import Store
from tasks import OUTCOMES, Prompt, Task
from tasks.prompt_table import PromptTable, labelled

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

log = logging.getLogger(__name__)

ROWS_PER_FILE = 100_000  # in a compacted part, and per split in memory during compaction
CODES = 10_000_000  # of answers that are changed at once
PAIR = ("prompt_id", "sample")  # identifies a row
COUNTED = (*PAIR, "outcome", "score")  # inputs of difficulty
KNOWN = (*COUNTED, "tokens", "other_outcome")  # fields of a sample that a ProbeFolder keeps
_CODES = pa.array(OUTCOMES)
CORRECT = OUTCOMES.index("correct")
_PLAIN_ID = "^[0-9A-Za-z]*$"  # not escaped in JSON


class Part(NamedTuple):
    """A verified part."""

    name: str
    split: Split
    samples: pa.Table  # schema SAMPLES


def write_key(store: Store, spec: ProbeSpec) -> None:
    """Write the values that the folder's key hashes."""
    if store.read_json("probes", spec.key, "key.json") != spec.identity:
        store.write_json(spec.identity, "probes", spec.key, "key.json")


def write_part(store: Store, key: str, split: Split, samples: pa.Table) -> str:
    """Write rows (schema SAMPLES) as a part of one split; returns the file's name."""
    samples = without_empty(samples.sort_by([(name, "ascending") for name in PAIR]))
    metadata = {PROBE: key, SPLIT: split}
    sink = pa.BufferOutputStream()
    pq.write_table(samples.replace_schema_metadata(metadata), sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    name = f"{_pairs_hash(samples)}-{_bytes_hash(data)}.parquet"
    store.write_bytes(data, "probes", key, name)
    return name


def _pairs_hash(samples: pa.Table) -> str:
    """The `canonical_hash` of the prompt ids and sample numbers."""
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


def read_part(store: Store, key: str, name: str, columns: Sequence[str] = SAMPLES.names) -> Part:
    """Read these columns of one part and verify it. Raises ValueError with the problem."""
    data = store.read_bytes("probes", key, name)
    pairs, _, content = name.removesuffix(".parquet").partition("-")
    if _bytes_hash(data) != content:
        raise ValueError("is torn or was edited")
    file = pq.ParquetFile(pa.BufferReader(data))
    owner = (file.schema_arrow.metadata or {}).get(PROBE, b"").decode()
    if owner != key:
        raise ValueError(f"belongs to {f'probe {owner}' if owner else 'no probe'}")
    if (split := split_of(file.schema_arrow)) is None:
        raise ValueError("names no split")
    samples = _as_samples(file, [*PAIR, *(name for name in columns if name not in PAIR)])
    if _pairs_hash(samples) != pairs:
        raise ValueError("does not hold the samples that its name hashes")
    return Part(name, split, samples)


def _as_samples(file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    """Columns of a part; an optional one that it lacks is null. Raises ValueError."""
    schema = file.schema_arrow.remove_metadata()
    if not completed(schema.empty_table(), SAMPLES).schema.equals(SAMPLES):
        raise ValueError("has a different schema")
    known = file.read(columns=[name for name in columns if name in schema.names])
    own = pa.schema([SAMPLES.field(name) for name in columns])
    return completed(known.replace_schema_metadata(None), own).select(columns)


def parts(
    store: Store,
    key: str,
    columns: Sequence[str] = SAMPLES.names,
    names: Sequence[str] | None = None,
) -> Iterator[Part]:
    """The verified parts of a probe, one at a time; the names of invalid parts are logged.

    With `names`, only these.
    """
    for name in _names(store, key) if names is None else names:
        try:
            yield read_part(store, key, name, columns)
        except (ValueError, pa.ArrowException, OSError) as error:
            why = "cannot be read" if isinstance(error, pa.ArrowException | OSError) else error
            log.warning("probe %s: part %s %s; its samples will be resampled", key, name, why)


def _names(store: Store, key: str) -> list[str]:
    return [name for name in store.names("probes", key) if name.endswith(".parquet")]


class PoolRows(NamedTuple):
    """Stored samples of a pool (schema SAMPLES), and the pool row of each sample's prompt."""

    prompts: Ints
    samples: pa.Table


class ProbeFolder:
    """The stored samples of some prompts in one split of a probe.

    Their lengths and outcomes are kept, so that each part is read once; `read` adds new parts.
    tokens: [prompts, K], -1 without a sample. codes: [prompts, K], the stored outcomes as positions
    in OUTCOMES, NONE without a sample. An outcome takes one byte, so the codes of ten million
    prompts with four samples each take 40 MB. scores: [prompts, K], None while each is 1 for a
    correct sample and 0 otherwise. other_form: [prompts, K], as in `Outcomes`.
    """

    def __init__(
        self, store: Store, spec: ProbeSpec, prompts: Sequence[Prompt], task: Task
    ) -> None:
        self.store = store
        self.spec = spec
        self.task = task
        self.prompts = PromptTable.of(prompts)
        self._forget()

    def _forget(self) -> None:
        shape = len(self.prompts), self.spec.settings.samples
        self.tokens = np.full(shape, -1, dtype=np.int32)
        self.codes: Codes = np.full(shape, NONE, dtype=np.uint8)
        self.scores: Scores | None = None
        self.other_form: Bools | None = None if self._reads_texts else np.zeros(shape, dtype=bool)
        self._stale = False  # whether some marks are not from the task's marker
        self._names: set[str] = set()  # of the parts that were read

    def read(self) -> Self:
        """Read new parts; read all parts again if one is gone."""
        names = _names(self.store, self.spec.key)
        if self._names - {*names}:
            self._forget()
        new = [name for name in names if name not in self._names]
        for part in parts(self.store, self.spec.key, (*KNOWN, "marker"), new):
            self.add_part(part)
        return self

    def add_part(self, part: Part) -> None:
        """Add the samples of a part for these prompts."""
        self._names.add(part.name)
        if (rows := self._own(part)) is not None:
            self._stale |= not self._current(rows)
            self.add(rows)

    def _own(self, part: Part) -> PoolRows | None:
        """The rows of a part for these prompts and samples below K; None for the other split."""
        if part.split != self.spec.split:
            return None
        row = self.prompts.rows_of(part.samples["prompt_id"])
        known = (row >= 0) & (part.samples["sample"].to_numpy() < self.spec.settings.samples)
        if known.all():
            return PoolRows(row, part.samples)
        return PoolRows(row[known], part.samples.filter(pa.array(known)))

    def add(self, rows: PoolRows) -> Bools:
        """Add rows (columns KNOWN) unchanged; returns which of them are new.

        If several parts have the same sample, the first is kept.
        """
        index = rows.samples["sample"].to_numpy()
        new: Bools = self.tokens[rows.prompts, index] < 0
        places = rows.prompts[new][::-1], index[new][::-1]  # the first of duplicates is last
        self.tokens[places] = rows.samples["tokens"].to_numpy()[new][::-1]
        codes = pc.index_in(rows.samples["outcome"], value_set=_CODES).fill_null(NONE)
        self.codes[places] = codes.to_numpy().astype(np.uint8)[new][::-1]
        scores = rows.samples["score"].to_numpy()[new][::-1]
        correct = self.codes[places] == CORRECT
        if self.scores is None and np.any((scores != correct) & ~np.isnan(scores)):
            self.scores = (self.codes == CORRECT).astype(float)
        if self.scores is not None:
            self.scores[places] = scores
        self._add_other_forms(rows, places, new)
        return new

    def _add_other_forms(
        self, rows: PoolRows, places: tuple[Ints, npt.NDArray[np.integer]], new: Bools
    ) -> None:
        """Update `other_form` from the new rows, if it is known for all rows so far."""
        if rows.samples["other_outcome"].null_count:
            self.other_form = None
        if self.other_form is None:
            return
        golds = None
        if self._reads_texts:
            golds = self.prompts.column("answer").take(pa.array(rows.prompts)).combine_chunks()
        self.other_form[places] = in_other_form(rows.samples, golds)[new][::-1]

    @cached_property
    def _reads_texts(self) -> bool:
        return reads_texts(self.task)

    def outcomes(self, *, partial: bool = True) -> Outcomes:
        """The outcomes with the task's current marker.

        Raises RuntimeError while samples are missing, unless `partial`.
        """
        self.read()
        if self._stale:
            current = ProbeFolder(self.store, self.spec, self.prompts, self.task)
            for rows in self.rows(KNOWN):
                current.add(rows)
            self.codes = current.codes
            self.scores = current.scores
            self.other_form = current.other_form
            self._stale = False
        outcomes = self.added_outcomes
        if not partial:
            self._check_complete(outcomes.drawn)
        return outcomes

    def with_answers(self) -> tuple[Outcomes, Answers]:
        """The outcomes with the task's current marker, and the answers; reads each part once."""
        folder = ProbeFolder(self.store, self.spec, self.prompts, self.task)
        texts_too = TEXTS if self._reads_texts else ()
        if texts_too:
            folder.other_form = np.zeros(folder.codes.shape, dtype=bool)
        # [prompts]: the row of each prompt, in the order of ids.
        rank = np.empty(len(self.prompts), dtype=np.int32)
        rank[self.prompts.order] = np.arange(len(rank), dtype=np.int32)
        codes = np.full(folder.codes.shape, -1, dtype=np.int32)
        known = 0
        texts = [pa.array([], pa.string())]  # the distinct texts of each part
        for part in folder.rows((*KNOWN, "extracted", *texts_too)):
            kept = folder.add(part) & has_answer(part.samples)  # a sample stored twice counts once
            samples = part.samples.filter(pa.array(kept))
            own, distinct = encoded(samples["extracted"])
            places = rank[part.prompts[kept]], samples["sample"].to_numpy()
            codes[places] = own + np.int32(known)
            texts.append(distinct)
            known += len(distinct)
        of_part, distinct = encoded(pa.chunked_array(texts))
        of_code = np.append(of_part, np.int32(-1))  # -1 is the last one
        for of_prompts in np.array_split(codes, 1 + codes.size // CODES):
            of_prompts[:] = of_code[of_prompts]
        return folder.added_outcomes, Answers(codes, distinct)

    @property
    def added_outcomes(self) -> Outcomes:
        """The outcomes of the added rows."""
        labelled = self._labelled
        known = (self.codes, self.scores, labelled, self.tokens, self.other_form)
        return Outcomes(self.prompts, *known)

    @cached_property
    def _markers(self) -> pa.Array:
        """The marker of each prompt's marks; one for all if gold answers do not change."""
        if not self.task.optional_answers:
            return pa.array([self.task.marker_id])
        return pa.array(map(self.task.marker_of, self.prompts), pa.string())

    @property
    def _labelled(self) -> Bools | None:
        return labelled(self.prompts, self.task) if self.task.optional_answers else None

    def _current(self, rows: PoolRows) -> bool:
        """Whether all marks are from the task's current marker, with the current gold answers."""
        markers = self._markers
        if len(markers) == 1:
            return set(rows.samples["marker"].unique().to_pylist()) <= {*markers.to_pylist()}
        expected = markers.take(pa.array(rows.prompts))
        return bool(rows.samples["marker"].combine_chunks().equals(expected))

    def _check_complete(self, drawn: int) -> None:
        needed = len(self.prompts) * self.spec.settings.samples
        if drawn != needed:
            raise Unsound(
                f"probe {self.spec.key} of {self.spec.model.name}/{self.spec.dataset.name} holds "
                f"{drawn:,} of {counted(needed, 'sample')} in {self.store.uri}: run decile run or "
                "decile probe to draw the rest"
            )

    def missing(self) -> MissingSamples:
        """The prompts with fewer samples than the probe needs, each with its missing indices."""
        return MissingSamples(self.prompts, self.read().tokens >= 0)

    def rows(self, columns: Sequence[str]) -> Iterator[PoolRows]:
        """Columns of the stored rows with marks of the task's current marker, part by part."""
        read = list(dict.fromkeys((*columns, "marker")))
        for part in parts(self.store, self.spec.key, read):
            rows = self._own(part)
            if rows is not None and not self._current(rows):
                rows = self._own(read_part(self.store, self.spec.key, part.name))
                assert rows is not None, "the split of a part does not change"
                rows = rows._replace(samples=self._marked(part.name, rows))
            if rows is not None:
                yield rows

    def _marked(self, name: str, rows: PoolRows) -> pa.Table:
        """Rows of a part with marks of the task's marker; updated marks are cached next to the
        part.

        Two readings of answers share a probe's texts; each then has its own cached marks.
        """
        samples = rows.samples
        cache = ("probes", self.spec.key, f"marks-{canonical_hash(self.task.marker_id)}", name)
        cached = self.store.read_table(MARKED, *cache)
        if cached is not None and cached.select(PAIR).equals(samples.select(PAIR)):
            marks = {f.name: cached[f.name] for f in MARKED}
            columns = {name: marks.get(name, samples[name]) for name in SAMPLES.names}
            samples = pa.table(columns, schema=SAMPLES)
            if self._current(rows._replace(samples=samples)):
                return samples
        prompts = {p.prompt_id: p for p in self.prompts.take(np.unique(rows.prompts))}
        samples = update_marks(samples, self.task, prompts, self.spec.dataset.max_marking_errors)
        self.store.write_table(samples.select(MARKED.names), *cache)
        return samples

    def samples(self, columns: Sequence[str] = SAMPLES.names, *, partial: bool = False) -> pa.Table:
        """The stored rows with the task's current marker, each once, sorted (`columns` of SAMPLES).

        All are in memory at once: for a large pool, use `outcomes`. Raises RuntimeError while
        samples are missing, unless `partial`.
        """
        columns = list(dict.fromkeys((*PAIR, *columns)))
        tables = [SAMPLES.empty_table().select(columns)]
        tables += [rows.samples.select(columns) for rows in self.rows(columns)]
        samples = _distinct(pa.concat_tables(tables))
        if not partial:
            self._check_complete(samples.num_rows)
        return samples

    def compact(self) -> None:
        """Merge small parts of a split into files of about ROWS_PER_FILE sorted rows.

        Each part is read once. A part that fails verification is set aside, so that its samples are
        drawn again. If two drivers compact at once, each writes a whole file before deleting, so
        that nothing is lost.
        """
        place = ("probes", self.spec.key)
        groups = dict[Split, list[Part]]()
        for name in _names(self.store, self.spec.key):
            try:
                part = read_part(self.store, self.spec.key, name)
            except FileNotFoundError:  # another driver has merged it
                continue
            except (ValueError, pa.ArrowException):  # not OSError, which may be the network's
                self.store.set_aside(*place, name)
                continue
            self.add_part(part)
            group = groups.setdefault(part.split, [])
            if sum(p.samples.num_rows for p in group) + part.samples.num_rows > ROWS_PER_FILE:
                self._merge(group)
                group.clear()
            group.append(part)
        for group in groups.values():
            self._merge(group)

    def _merge(self, group: Sequence[Part]) -> None:
        """Write the parts of one split as one, then delete them."""
        if len(group) < 2:
            return
        rows = _distinct(pa.concat_tables([part.samples for part in group]))
        merged = write_part(self.store, self.spec.key, group[0].split, rows)
        for part in group:
            if part.name != merged:
                self.store.delete("probes", self.spec.key, part.name)
                self._names.discard(part.name)
        self._names.add(merged)


def _distinct(rows: pa.Table) -> pa.Table:
    """The rows sorted by their pairs, the first of each pair."""
    rows = rows.sort_by([(name, "ascending") for name in PAIR])
    same = np.ones(max(0, rows.num_rows - 1), dtype=bool)
    for name in PAIR:
        column = rows[name].combine_chunks()
        same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(np.concatenate([np.ones(min(1, rows.num_rows), bool), ~same])))

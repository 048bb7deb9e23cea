"""Evaluates a cell on its test sets, with its trainer's model or with an engine afterwards."""

from typing import Any

import pyarrow as pa

from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.planning.cells import Cell, ExtraEval, ProbeSpec
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.probing.samples import sample_and_mark
from orchestrator.sampling.base import Listeners, Sampler, nobody
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store


class Evaluator:
    """A cell's evaluations; `rank` is one of `workers` processes that share the questions."""

    def __init__(self, cell: Cell, pool: Pool, rank: int = 0, workers: int = 1) -> None:
        self.cell, self.pool, self.rank, self.workers = cell, pool, rank, workers
        self.others: dict[str, Pool] = {}

    def base(self, store: Store) -> pa.Table:
        """The base model's evaluation, read from its probes (schema EVALUATIONS)."""

        def stored(spec: ProbeSpec, pool: Pool) -> pa.Table:
            return ProbeFolder(store, spec, pool.test, pool.task).samples()

        samples = stored(self.cell.baseline, self.pool)
        tables = [self._rows(samples, 0)]
        for extra in self.cell.extra_evals:
            pool = self._pool_of(extra)
            samples = stored(extra.probe, pool)
            tables.append(self._rows(samples, 0, extra))
        return pa.concat_tables(tables)

    def evaluate(self, sampler: Sampler, update: int, listeners: Listeners = nobody) -> pa.Table:
        """The test set under the sampler's weights, and at the end all other sets.

        `listeners` gives what is told of each set, by the number of its completions.
        """
        samples = self._sampled(sampler, self.pool, self.cell.baseline, listeners)
        tables = [self._rows(samples, update)]
        for extra in self.cell.extra_evals:
            if extra.greedy or update == self.cell.updates:
                samples = self._sampled(sampler, self._pool_of(extra), extra.probe, listeners)
                tables.append(self._rows(samples, update, extra))
        return pa.concat_tables(tables)

    def _sampled(
        self,
        sampler: Any,
        pool: Pool,
        spec: ProbeSpec,
        listeners: Listeners,
    ) -> pa.Table:
        """Marked samples of a test set; workers share the questions."""
        questions = pool.test[self.rank :: self.workers]
        requests = [(prompt, range(spec.settings.samples)) for prompt in questions]
        max_errors = spec.dataset.max_marking_errors
        # Another dataset may need other chat template settings.
        sampler.chat_template_kwargs = spec.model.chat_template_kwargs
        listener = listeners(len(questions) * spec.settings.samples)
        samples = sample_and_mark(
            sampler, pool.task, requests, spec.settings.sampling(), max_errors, listener
        )
        if self.workers > 1:
            from accelerate.utils import gather_object

            samples = pa.Table.from_pylist(gather_object(samples.to_pylist()), schema=SAMPLES)
        return samples

    def _pool_of(self, extra: ExtraEval) -> Pool:
        """The test set of another evaluation, loaded once."""
        if not extra.dataset:
            return self.pool
        if extra.dataset not in self.others:
            self.others[extra.dataset] = load_pool(extra.probe.dataset)
        return self.others[extra.dataset]

    def _rows(self, samples: pa.Table, update: int, extra: ExtraEval | None = None) -> pa.Table:
        pool = self._pool_of(extra) if extra else self.pool
        return as_evaluation(
            samples,
            update,
            pool.tiers("test"),
            groups=pool.groups,
            dataset=extra.dataset if extra else "",
            greedy=bool(extra and extra.greedy),
        )

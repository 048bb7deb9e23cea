"""A cell's test sets, answered by whatever holds its weights: its trainer, or an engine later."""

from typing import Any

import pyarrow as pa

from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.planning.cells import Cell, ExtraEval, ProbeSpec
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.probing.sample_store import read_samples
from orchestrator.probing.samples import sample_and_mark
from orchestrator.sampling.base import Sampler
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store


def is_due(cell: Cell, update: int) -> bool:
    """Whether the model is evaluated after so many updates."""
    every = cell.evaluate_every
    return update == cell.updates or (every > 0 and update > 0 and update % every == 0)


class Evaluator:
    """Asks a cell's test sets; `rank` of `workers` processes that share the questions."""

    def __init__(self, cell: Cell, pool: Pool, rank: int = 0, workers: int = 1) -> None:
        self.cell, self.pool, self.rank, self.workers = cell, pool, rank, workers
        self.others: dict[str, Pool] = {}

    def base(self, store: Store) -> pa.Table:
        """The base model's evaluation, taken from its probes (schema EVALUATIONS)."""
        samples = read_samples(store, self.cell.baseline, self.pool.task, self.pool.test)
        tables = [as_evaluation(samples, 0, self.pool.tiers("test"))]
        for asked in self.cell.extra_evals:
            pool = self._pool_of(asked)
            samples = read_samples(store, asked.probe, pool.task, pool.test)
            tables.append(self._rows(samples, 0, asked))
        return pa.concat_tables(tables)

    def evaluate(self, sampler: Sampler, update: int) -> pa.Table:
        """The test set under the sampler's weights, and at the end all other sets."""
        samples = self._sampled(sampler, self.pool, self.cell.baseline)
        tables = [as_evaluation(samples, update, self.pool.tiers("test"))]
        for asked in self.cell.extra_evals:
            if asked.greedy or update == self.cell.updates:
                samples = self._sampled(sampler, self._pool_of(asked), asked.probe)
                tables.append(self._rows(samples, update, asked))
        return pa.concat_tables(tables)

    def _sampled(self, sampler: Any, pool: Pool, spec: ProbeSpec) -> pa.Table:
        """Marked samples of a test set; workers share the questions."""
        mine = pool.test[self.rank :: self.workers]
        wanted = [(prompt, range(spec.settings.samples)) for prompt in mine]
        most = spec.dataset.max_marking_errors
        # What another set's wording asks of the chat template holds for its questions only.
        sampler.chat_template_kwargs = spec.model.chat_template_kwargs
        samples = sample_and_mark(sampler, pool.task, wanted, spec.settings.sampling(), most)
        if self.workers > 1:
            from accelerate.utils import gather_object

            samples = pa.Table.from_pylist(gather_object(samples.to_pylist()), schema=SAMPLES)
        return samples

    def _pool_of(self, asked: ExtraEval) -> Pool:
        """The test set of another evaluation, loaded once."""
        if not asked.dataset:
            return self.pool
        if asked.dataset not in self.others:
            self.others[asked.dataset] = load_pool(asked.probe.dataset)
        return self.others[asked.dataset]

    def _rows(self, samples: pa.Table, update: int, asked: ExtraEval) -> pa.Table:
        tiers = self._pool_of(asked).tiers("test")
        return as_evaluation(samples, update, tiers, dataset=asked.dataset, greedy=asked.greedy)

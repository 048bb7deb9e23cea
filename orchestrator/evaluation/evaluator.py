"""Evaluates a cell on its test sets, with its trainer's model or with an engine afterwards."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.probing.samples import sample_and_mark
from orchestrator.sampling.base import Listeners, Sampler, nobody
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store


class TestSet(NamedTuple):
    """A test set of a cell: its own, or another one, which has a name."""

    spec: ProbeSpec
    pool: Pool
    dataset: str = ""
    greedy: bool = False

    def rows(self, samples: pa.Table, update: int) -> pa.Table:
        """Its marked samples as rows of EVALUATIONS."""
        tiers, groups = self.pool.tiers("test"), self.pool.groups
        dataset, greedy = self.dataset, self.greedy
        return as_evaluation(
            samples,
            update,
            tiers,
            groups=groups,
            sources=self.pool.sources,
            dataset=dataset,
            greedy=greedy,
        )


class Evaluator:
    """A cell's evaluations; `rank` is one of `workers` processes that share the questions."""

    def __init__(self, cell: Cell, pool: Pool, rank: int = 0, workers: int = 1) -> None:
        self.cell, self.rank, self.workers = cell, rank, workers
        self._pools = {"": pool}

    def _test_sets(self, update: int) -> Iterator[TestSet]:
        """The sets to evaluate after an update; samples of other sets only at both ends."""
        yield TestSet(self.cell.baseline, self._pools[""])
        for extra in self.cell.extra_evals:
            if extra.greedy or update in (0, self.cell.updates):
                if extra.dataset not in self._pools:
                    self._pools[extra.dataset] = load_pool(extra.probe.dataset)
                pool = self._pools[extra.dataset]
                yield TestSet(extra.probe, pool, extra.dataset, extra.greedy)

    def base(self, store: Store) -> pa.Table:
        """The base model's evaluation, read from its probes (schema EVALUATIONS)."""
        tables = []
        for each in self._test_sets(0):
            folder = ProbeFolder(store, each.spec, each.pool.test, each.pool.task)
            tables.append(each.rows(folder.samples(), 0))
        return pa.concat_tables(tables)

    def evaluate(self, sampler: Sampler, update: int, listeners: Listeners = nobody) -> pa.Table:
        """The test set under the sampler's weights, and at the end all other test sets.

        `listeners` returns a set's listener, given its number of completions.
        """
        sets = self._test_sets(update)
        return pa.concat_tables(
            [each.rows(self._sampled(sampler, each, listeners), update) for each in sets]
        )

    def _sampled(self, sampler: Any, test: TestSet, listeners: Listeners) -> pa.Table:
        """Marked samples of a test set; workers share the questions."""
        spec, pool = test.spec, test.pool
        questions = pool.test[self.rank :: self.workers]
        requests = [(prompt, range(spec.settings.samples)) for prompt in questions]
        max_errors = spec.dataset.max_marking_errors
        # Another dataset may need different chat template settings.
        sampler.chat_template_kwargs = spec.model.chat_template_kwargs
        listener = listeners(len(questions) * spec.settings.samples)
        samples = sample_and_mark(
            sampler, pool.task, requests, spec.settings.sampling(), max_errors, listener
        )
        if self.workers > 1:
            from accelerate.utils import gather_object

            samples = pa.Table.from_pylist(gather_object(samples.to_pylist()), schema=SAMPLES)
        return samples

"""Part of a cell's prompts, probed again while it trains, with the current adapter.

The prompts and the completions depend only on the seed, the number of prompts and the update, so
that a resumed cell refreshes like an undisturbed one. All completions are recorded, and counted in
the ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from accelerate.utils import gather_object

from orchestrator.config.experiment import Refresh
from orchestrator.evaluation.groups import GroupRecorder, Marked
from orchestrator.planning.cells import Cell
from orchestrator.plugins.streams import generator
from orchestrator.probing.episodes import group_row, play
from orchestrator.probing.samples import mark_completions
from orchestrator.sampling.base import Listeners, Request, listening, nobody
from orchestrator.sampling.transformers import TransformersSampler
from orchestrator.training.workers import Workers
from policies.base import Rows
from tasks import Prompt, Task


def refreshed_rows(refresh: Refresh, count: int, seed: int, update: int) -> Rows:
    """The rows, out of `count`, that are probed before an update, ascending; empty if not due.

    They follow a random order of all rows, which starts again at its end, so that each row is
    probed before any is repeated.
    """
    number, rest = divmod(update - 1, refresh.every)
    if rest or not number:
        return np.empty(0, np.int64)
    order = generator("refresh", seed).permutation(count)
    size = refresh.prompts(count)
    return np.sort(order[((number - 1) * size + np.arange(size)) % count])


@dataclass
class Refresher:
    """Probes part of `prompts` with the weights of `sampler` when the cell's `refresh` is due."""

    cell: Cell
    prompts: Sequence[Prompt]
    task: Task
    sampler: TransformersSampler
    groups: GroupRecorder
    workers: Workers = field(default_factory=Workers)
    listeners: Listeners = nobody

    def __call__(self, update: int) -> int:
        """Refresh before `update` if it is due; returns the tokens read and generated.

        A prompt counts once per completion, as in TRL. Raises MarkingError if marking fails for a
        larger share of the completions than the experiment allows.
        """
        cell = self.cell
        refresh = self.cell.refresh
        done = self.groups.refreshed or []
        assert refresh is not None, "this cell refreshes nothing"
        rows = refreshed_rows(refresh, len(self.prompts), cell.seed, update)
        if not len(rows) or {row["update"] for row in done[-1:]} == {update}:
            return 0
        own = [self.prompts[row] for row in rows[self.workers.rank :: self.workers.count].tolist()]
        samples = range(refresh.samples)
        stream = f"refresh\x1f{update}\x1f"
        # An evaluation of a different data set may have changed the settings.
        self.sampler.chat_template_kwargs = cell.probe.model.chat_template_kwargs
        settings = replace(cell.probe.settings.sampling(), seed=cell.seed)
        max_errors = cell.probe.dataset.max_marking_errors
        listener = self.listeners(len(own) * refresh.samples)
        if self.task.environment is not None:
            requested = [(prompt, samples) for prompt in own]
            drawn = play(self.sampler, self.task, requested, settings, stream, max_errors, listener)
            lengths = [len(part[0].episode.prompt_ids) if part[0].episode else 0 for part in drawn]
        else:
            requests = [
                Request(stream + p.prompt_id, self.task.messages_of(p.question, p.info), samples)
                for p in own
            ]
            lengths = [len(ids) for ids in self.sampler.rendered(requests)]
            with listening(self.sampler, listener):
                drawn = self.sampler.sample(requests, settings)
        each = [prompt for prompt in own for _ in samples]
        completions = [completion for part in drawn for completion in part]
        pairs = mark_completions(self.task, completions, each, max_errors)
        marks = [
            Marked(
                prompt_id=prompt.prompt_id,
                tier=prompt.tier,
                tokens=completion.tokens,
                outcome=pair.mark.outcome,
                other_outcome=pair.other.outcome,
                score=pair.mark.score,
                components={},
                reward=pair.mark.score,
                episode=completion.episode and group_row(completion.episode),
            )
            for prompt, completion, pair in zip(each, completions, pairs, strict=True)
        ]
        tokens = refresh.samples * sum(lengths) + sum(c.tokens for c in completions)
        if self.workers.count > 1:
            marks = gather_object(marks)
            tokens = sum(gather_object([tokens]))
        marks.sort(key=lambda mark: mark.prompt_id)  # stable: keeps the order within a prompt
        self.groups.add(update, marks, refresh.samples, refreshed=True)
        return tokens

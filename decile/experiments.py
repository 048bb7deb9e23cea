"""Experiments of a YAML file, and probes of a file of questions."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster.terminal import printable
from decile.errors import UserError, as_user_error
from decile.evaluation import Evaluation
from decile.probes import Probe
from decile.results import Results
from decile.sweep_errors import SWEEP_ERRORS
from orchestrator.pipeline.evaluate import evaluate_model, plan_evaluation
from orchestrator.pipeline.manifest import check_pool_kept
from orchestrator.pipeline.open_plan import check_trainable, open_plan
from orchestrator.pipeline.own_data import planned_probe
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.sweep import probe_experiment, run_experiment
from orchestrator.planning.cells import Cell, cells_of
from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.plugins.project_modules import add_project
from orchestrator.report.analysis import analyse
from orchestrator.selection.plan_probe import PlanProbe, choose_probe
from orchestrator.storage.store import Store
from orchestrator.tracking import default_tracking_uri
from policies import PolicyError


@as_user_error(*SWEEP_ERRORS)
def load(
    file: str | Path, experiment: str | None = None, storage: str | Path | None = None
) -> "Experiment":
    """An experiment of a YAML file, as `decile plan FILE -e NAME` reads it. Nothing runs.

    experiment: its name; None: the only one in the file. storage: a folder or URI that replaces the
    file's. Raises UserError with the line of the file.
    """
    add_project([os.getcwd()])  # where package.module:attribute is found
    return Experiment(*open_plan(file, experiment, storage))


@as_user_error(*SWEEP_ERRORS)
def probe(
    data: Any,
    model: str,
    samples: int = 10,
    *,
    test: Any = None,
    storage: str | Path = "./runs",
    wait: bool = False,
    **settings: Any,
) -> Probe:
    """Probe questions with answers: draw and mark the missing completions of each prompt.

    data: a file (JSONL, JSON, Parquet, CSV), a glob, a list of them, or rows: a pandas DataFrame, a
    datasets.Dataset, a pyarrow Table or a list of dicts, which are stored as Parquet in the folder
    `data` of the storage. model: a Hub id, OWNER/NAME@COMMIT, a folder, a .gguf file, or an
    embedded name such as tiny. samples: completions per prompt. test: test questions, in the forms
    of `data`; None: a part of `data` is held out, as by `decile init`, unless it has few prompts.
    wait: whether to wait for another process that probes the same data in this storage. settings:
    settings of a data set and a probe, by the names that the YAML file uses: options of `task:
    file` (question, answer, marker, tier, source, keep, …; recognized if left out), `prompt` (a
    preset, or the block), `system`, `few_shot`, `marking`, `drop_overlap`, `duplicates`, `without`,
    …, and the block `probe` (temperature, engine, …).

    The samples are shared with the file that `decile init` writes, given these settings: nothing is
    drawn twice. Raises UserError for invalid input, before anything is sampled.
    """
    add_project([os.getcwd()])
    store = Store(storage)
    plan = planned_probe(data, model, test, {"samples": samples, **settings}, store)
    return Experiment(plan, store).probe(wait=wait)


class Experiment:
    """An experiment and its storage. `decile.load` returns one."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store

    @property
    def cells(self) -> Sequence[Cell]:
        """Every (model, dataset, policy, seed, …) with its settings."""
        return self.plan.cells

    @as_user_error(*SWEEP_ERRORS)
    def probe(
        self,
        model: str | None = None,
        dataset: str | None = None,
        *,
        sample: bool = True,
        wait: bool = False,
    ) -> Probe:
        """The probe of a training pool, as by `decile probe`; missing samples are drawn.

        model, dataset: required if the experiment has several. sample: False only reads the
        storage. wait: whether to wait for another process that runs the experiment in this storage.
        Raises UserError if the choice is ambiguous. Without `sample`, also raises it if samples are
        missing or the pool has changed since it was probed. A subset of the grid that cannot be
        filled gives a warning.
        """
        spec = choose_probe(self.plan, model, dataset)
        if sample:
            self.store.check_writable()
            own = replace(self.plan, cells=cells_of(self.plan.cells, spec))  # no other probe
            try:
                probe_experiment(Run.of(own, self.store), wait=wait)
            except PolicyError as error:  # every sample is drawn
                warnings.warn(printable(str(error)), stacklevel=3)
        probe = Probe(PlanProbe(self.plan, self.store, spec))
        check_pool_kept(probe.stored)
        return probe

    @as_user_error(*SWEEP_ERRORS)
    def evaluate(
        self,
        model: str | None = None,
        dataset: str | None = None,
        *,
        adapter: str | Path | None = None,
        checkpoint: str | Path | None = None,
        wait: bool = False,
    ) -> Evaluation:
        """Evaluate a model on the test set, as `decile evaluate`: draw and mark missing samples.

        model, dataset: required if the experiment has several. adapter, checkpoint, wait: as for
        `decile.evaluate`. Raises UserError for invalid input, before anything is sampled.
        """
        evaluation = plan_evaluation(self.plan, model, dataset, adapter, checkpoint)
        self.store.check_writable()
        return Evaluation(evaluate_model(self.plan, self.store, evaluation, wait=wait))

    @as_user_error(*SWEEP_ERRORS)
    def run(self, tracking_uri: str | None = None, *, wait: bool = False) -> Results:
        """Run all unfinished work, as `decile run`: probes, training, evaluation.

        tracking_uri: an MLflow server; None: SQLite in the storage. wait: as for `probe`.
        `Results.failed` has the cells that failed. Raises UserError for invalid input, before
        anything runs.
        """
        check_trainable(self.plan)
        self.store.check_writable()
        run = Run.of(self.plan, self.store)
        with run.progress:
            tracking_uri = tracking_uri or default_tracking_uri(self.store)
            outcome = run_experiment(run, tracking_uri, wait=wait)
        assert outcome.analysis is not None, "a run ends with an analysis"
        return Results(outcome.analysis, outcome.failed, outcome.dropped)

    @as_user_error(*SWEEP_ERRORS)
    def results(self) -> Results:
        """The results of the finished cells that the storage holds, as `decile report`."""
        return Results(analyse(self.plan, self.store))

    def __repr__(self) -> str:
        return (
            f"<Experiment {self.plan.name}: {counted(len(self.cells), 'cell')}, {self.store.uri}>"
        )


# Settings of the block `evaluate` that control when and what a sweep evaluates.
_OF_SWEEPS = ("every", "pass_at", "greedy", "ood", "ood_samples")


@as_user_error(*SWEEP_ERRORS)
def evaluate(
    data: Any,
    model: str,
    *,
    adapter: str | Path | None = None,
    checkpoint: str | Path | None = None,
    samples: int = 4,
    test: Any = None,
    storage: str | Path = "./runs",
    wait: bool = False,
    **settings: Any,
) -> Evaluation:
    """Evaluate a model on the held-out questions of a file: draw and mark missing samples.

    data, model, test, storage, wait: as for `decile.probe`; with the same data, no probed question
    is used. adapter: the folder of a LoRA adapter of PEFT. checkpoint: a folder with full weights
    in the Hub's layout. Both are sampled with the tokenizer and the chat template of `model`.
    samples: completions per question. settings: those of the data set, as for `decile.probe`, and
    the settings temperature, max_completion_length, seed, engine, engine_args and engine_python of
    the block `evaluate`.

    Raises UserError for invalid input, before anything is sampled.
    """
    if unused := [name for name in _OF_SWEEPS if name in settings]:
        raise UserError(f"{unused[0]} is a setting of sweeps: leave it out")
    add_project([os.getcwd()])
    store = Store(storage)
    settings["samples"] = samples
    plan = planned_probe(data, model, test, settings, store, "evaluate")
    evaluation = plan_evaluation(plan, adapter=adapter, checkpoint=checkpoint)
    store.check_writable()
    return Evaluation(evaluate_model(plan, store, evaluation, wait=wait))

"""A model, adapter or checkpoint on the held-out questions of a data set, as cells evaluate it.

It is a probe of the test set: stored samples are not drawn again, and the base model's probe is the
one that cells share.
"""

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.session import ray_session
from orchestrator.cost.forecast import Forecast
from orchestrator.cost.schedule import Capacity
from orchestrator.evaluation.item_table import item_table
from orchestrator.evaluation.metrics import per_prompt
from orchestrator.pipeline.audit import repair_plan
from orchestrator.pipeline.estimate import estimate
from orchestrator.pipeline.probes import run_probes
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.report.item_comparison import Arm, ArmRun, Rated
from orchestrator.sampling.engine_args import unsupported_lora
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.trained_weights import (
    adapter_settings,
    unused_settings,
    with_adapter,
    with_checkpoint,
)
from orchestrator.stats.inference import Effect
from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.lease import driver_lease
from orchestrator.storage.store import Store
from orchestrator.training.served_adapters import server_of, unloaded_at_end


@dataclass(frozen=True)
class ModelEvaluation:
    """What is evaluated: `spec` is a probe of a test set, by a model of the plan or a trained one.

    weights: the folder of an adapter or checkpoint, None for the model itself. notes: what that
    folder holds but the evaluation does not use.
    """

    spec: ProbeSpec
    weights: Path | None = None
    notes: tuple[str, ...] = ()


def plan_evaluation(
    plan: Plan,
    model: str | None = None,
    dataset: str | None = None,
    adapter: str | Path | None = None,
    checkpoint: str | Path | None = None,
) -> ModelEvaluation:
    """The evaluation of a model of the plan, with an adapter or with the weights of a checkpoint.

    model, dataset: which one, if the plan has several. Raises UserError, before anything runs.
    """
    if adapter and checkpoint:
        raise UserError("both an adapter and a checkpoint are given: write one of them")
    baseline = _baseline(plan, model, dataset, replaced=bool(adapter or checkpoint))
    source = baseline.model
    pool = plan.pool(baseline)
    if not pool.test:
        what = "test questions with gold answers" if pool.unlabelled_test else "test questions"
        raise UserError(f"dataset {baseline.dataset.name} has no {what}: add some")
    if source.recorded:
        raise UserError(f"model {source.name} is recorded: choose one that can be sampled")
    if checkpoint and baseline.settings.engine == "server":
        raise UserError("engine server has weights of its own: write engine: vllm or transformers")
    weights = Path(adapter or checkpoint or "").expanduser()
    if adapter:
        source = replace(with_adapter(source, weights), adapter_label=uuid.uuid4().hex[:16])
        engine = baseline.settings.engine
        if setting := unsupported_lora(engine, adapter_settings(weights)):
            raise UserError(
                f"adapter {weights}: engine {engine} does not apply its {setting}: leave "
                "evaluate.engine out"
            )
    elif checkpoint:
        source = with_checkpoint(source, weights)
    else:
        return ModelEvaluation(baseline)
    spec = _of_model(baseline, source)
    return ModelEvaluation(spec, weights, tuple(unused_settings(baseline.model, weights)))


def _of_model(spec: ProbeSpec, model: ModelSource) -> ProbeSpec:
    # Not model_copy, which would copy the key.
    return ProbeSpec(
        **{name: getattr(spec, name) for name in ProbeSpec.model_fields} | {"model": model}
    )


def _baseline(plan: Plan, model: str | None, dataset: str | None, *, replaced: bool) -> ProbeSpec:
    """The evaluation before training that cells of this model and data set share. UserError.

    replaced: other weights are evaluated, so that what cells start from does not matter.
    """
    names = {"model": model, "dataset": dataset}
    known: dict[tuple[str, str], list[ProbeSpec]] = {}
    for spec in {id(cell.baseline): cell.baseline for cell in plan.cells}.values():
        spec = _of_model(spec, spec.model.base) if replaced else spec
        names_of_model = (None, spec.model.name, spec.model.title)
        if model in names_of_model and dataset in (None, spec.dataset.name):
            known.setdefault((spec.model.title, spec.dataset.name), []).append(spec)
    if not known:
        given = " and ".join(f"{k} {shortened(v)}" for k, v in names.items() if v is not None)
        grid = plan.experiment.grid
        choice = f"{', '.join(grid.model)}; datasets are {', '.join(grid.dataset)}"
        raise UserError(f"{plan.name} has no {given}: its models are {choice}: write one of them")
    if len(known) > 1:
        pairs = "; ".join(f"{model} on {dataset}" for model, dataset in known)
        raise UserError(f"{plan.name} evaluates {pairs}: write a model and a dataset")
    [specs] = known.values()
    if len({(spec.key, spec.settings.samples) for spec in specs}) > 1:
        raise UserError(
            f"{plan.name} evaluates {specs[0].model.name} under several settings of evaluate: "
            "write an experiment with one value of each"
        )
    return specs[0]


def evaluate_model(
    plan: Plan,
    store: Store,
    evaluation: ModelEvaluation,
    max_resources: Mapping[str, float] | None = None,
    *,
    wait: bool = False,
) -> "EvaluatedModel":
    """Draw and mark the answers that the storage does not hold; the store must be writable.

    max_resources: what the cluster may grow to. Raises LeaseHeld if another driver runs the
    experiment in this store; with `wait`, waits for its end.
    """
    spec = evaluation.spec
    run = Run.of(replace(plan, only=spec), store)
    on_server = spec.model.adapter and spec.settings.engine == "server"
    servers = [server_of(spec.settings)] if on_server else []
    with driver_lease(store, plan.name, run.progress.say, wait=wait):
        folder = run.folder(spec)
        for line in repair_plan(run.plan, store, ("probes",), [folder]):
            run.progress.say(line)
        if run.pending_after_earlier_probes(spec).samples:
            plan.check_models([spec.model])
            with run.progress, ray_session(max_resources) as cluster:
                run = replace(run, cluster=cluster)
                run.progress.expect(Forecast([], estimate(run, []), Capacity((1.0,), 1)))
                with unloaded_at_end(store, plan.name, spec.model.adapter_label, servers):
                    run_probes(run)
        else:
            run.progress.say("nothing to do: every sample is stored")
        samples = folder.samples()
    about = {
        "model": spec.model.name,
        "dataset": spec.dataset.name,
        "weights": str(evaluation.weights or spec.model.adapter),
        "identity": spec.model.identity,
        "samples": spec.key,
    }
    pool = plan.pool(spec)
    table = item_table(spec, pool, samples, about)
    unlabelled = len(pool.unlabelled_test)
    left_out = {"without a gold answer": unlabelled}
    rows = RowCounts(len(pool.test) + unlabelled, left_out, table.num_rows)
    return EvaluatedModel(evaluation, table, pool.groups, rows)


@dataclass(frozen=True)
class EvaluatedModel:
    """The answers to a test set, a row per question and sample (its columns: `item_columns`).

    rows: the test questions, and the answers that are written.
    """

    evaluation: ModelEvaluation
    table: pa.Table
    groups: Mapping[str, str]
    rows: RowCounts

    @cached_property
    def accuracy(self) -> Effect:
        """The mean over the questions, with the interval that `decile compare` states."""
        outcomes = self.table["outcome"].to_pylist()
        ids = self.table["prompt_id"].to_pylist()
        failed = Counter(i for i, o in zip(ids, outcomes, strict=True) if o == "error")
        counts = per_prompt(self.table)
        items = {i: Rated(n, float(c), failed[i]) for i, (n, c) in counts.items()}
        accuracy = Arm("", "correct", (ArmRun(0, items, ()),)).accuracy(self.groups)
        if accuracy is None:
            raise UserError("no answer could be marked: see decile doctor")
        return accuracy

    def write(self, file: Path) -> None:
        """Write the table as Parquet, atomically."""
        Store(str(file.absolute().parent)).write_table(self.table, file.name)

    def to_dict(self) -> dict[str, Any]:
        """What `decile evaluate --json` prints."""
        spec = self.evaluation.spec
        accuracy = self.accuracy
        return {
            "model": spec.model.name,  # its name
            "dataset": spec.dataset.name,  # its name
            # the adapter or checkpoint; null for the base model
            "weights": str(self.evaluation.weights or spec.model.adapter) or None,
            "identity": spec.model.identity,  # what identifies these weights
            "questions": len(set(self.table["prompt_id"].to_pylist())),  # number of test questions
            "samples": spec.settings.samples,  # completions per question
            "accuracy": accuracy.mean,  # from 0 to 1
            "low": accuracy.low,  # lower end of its 95 % interval
            "high": accuracy.high,  # upper end
            "outcomes": dict(Counter(self.table["outcome"].to_pylist())),  # completions by outcome
            "row_counts": self.rows.to_dict(),
            "notes": [*self.evaluation.notes],
        }

    def summary(self) -> str:
        """The accuracy in a line."""
        values = self.to_dict()
        mean, low, high = (f"{values[name]:.1%}" for name in ("accuracy", "low", "high"))
        questions, samples = (values[name] for name in ("questions", "samples"))
        of = f"{counted(questions, 'question')} × {samples}"
        return f"accuracy {mean} [{low}, {high}] on {of} of {values['dataset']}"

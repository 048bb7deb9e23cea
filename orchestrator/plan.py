"""An experiment -> its probes and cells, with ids that hash content. Pure: runs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator import settings
from orchestrator.config import Experiment, ModelEntry, Probe, Resources, Source
from orchestrator.embedded import embedded_path
from orchestrator.models import ModelSource, canonical_hash, folder_identity
from orchestrator.pools import Dataset, Pool, Split, load_pool, template_hash
from tasks import TaskError


class Spec(BaseModel):
    """Base of what is handed to workers and kept as JSON beside its results."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ProbeSpec(Spec):
    """One probe: a base model on one split of a dataset, under fixed sampling settings.

    The probe of a training pool measures difficulty; that of a test set, under the evaluation's
    settings, is the base model's accuracy, shared by every cell.
    """

    model: ModelSource
    dataset: Dataset
    split: Split
    settings: Probe
    template: str
    marker: str

    @property
    def identity(self) -> dict[str, Any]:
        """What the key hashes. Not the marker, the pool, or K: those never change a sample."""
        return {
            "model": self.model.key(),
            "template": self.template,
            "task": self.dataset.task,
            "sampling": self.settings.model_dump(mode="json", exclude=_not_in_key(self.settings)),
        }

    @cached_property
    def key(self) -> str:
        """The folder of the samples in the store."""
        return canonical_hash(self.identity)


def _not_in_key(settings: Probe) -> set[str]:
    """K never changes a sample; nor does a later setting that is not used."""
    return {"samples"} if settings.stop else {"samples", "stop"}


class Cell(Spec):
    """One (model, dataset, policy, seed) with every setting resolved."""

    probe: ProbeSpec
    baseline: ProbeSpec
    policy: str
    seed: int
    size: int
    train_hash: str
    test_hash: str
    grpo: dict[str, Any]
    lora: dict[str, Any]
    evaluate_every: int
    resources: Resources
    provenance: dict[str, str] = {}

    @property
    def subset_identity(self) -> dict[str, Any]:
        """What decides which prompts are chosen."""
        return {
            "probe_key": self.probe.key,
            "samples": self.probe.settings.samples,
            "marker": self.probe.marker,
            "pool": self.train_hash,
            "policy": self.policy,
            "size": self.size,
            "seed": self.seed,
        }

    @cached_property
    def subset_key(self) -> str:
        """The name of the subset's file in the store."""
        return canonical_hash(self.subset_identity)

    @cached_property
    def cell_id(self) -> str:
        """Hash of everything that can change the result; CPU and GPU shares cannot."""
        return canonical_hash(
            {
                "subset": self.subset_identity,
                "evaluation": [self.baseline.key, self.baseline.settings.samples, self.test_hash],
                "every": self.evaluate_every,
                "grpo": self.grpo,
                "lora": self.lora,
                "workers": self.resources.workers,
            }
        )

    @property
    def name(self) -> str:
        """For people: model/dataset/policy/seed."""
        return f"{self.probe.model.name}/{self.probe.dataset.name}/{self.policy}/s{self.seed}"

    @property
    def axes(self) -> dict[str, Any]:
        """The swept axes."""
        return {
            "model": self.probe.model.name,
            "dataset": self.probe.dataset.name,
            "policy": self.policy,
            "seed": self.seed,
        }

    @property
    def updates(self) -> int:
        """Optimiser updates of the trial."""
        return int(self.grpo["max_steps"])

    @property
    def prompts_per_update(self) -> int:
        """Groups per update."""
        return settings.prompts_per_update(self.grpo, self.resources.workers)

    @property
    def rollouts(self) -> int:
        """Completions that the trial generates to train on."""
        return self.updates * self.prompts_per_update * int(self.grpo["num_generations"])


@dataclass(frozen=True)
class Plan:
    """The set of cells that one experiment declares, with the prompts they need."""

    name: str
    experiment: Experiment
    pools: Mapping[str, Pool]
    cells: list[Cell]

    @property
    def probes(self) -> list[ProbeSpec]:
        """Every probe that the cells need, once."""
        needed = [spec for cell in self.cells for spec in (cell.probe, cell.baseline)]
        return list({(s.key, s.dataset.name, s.split): s for s in needed}.values())

    def pool(self, spec: ProbeSpec) -> Pool:
        """The loaded dataset of a probe."""
        return self.pools[spec.dataset.name]


def make_plan(source: Source, name: str) -> Plan:
    """Resolve an experiment into cells; UserError names the line of what cannot work."""
    experiment = source.experiment(name)
    grid = experiment.grid
    place = ("experiments", name)
    datasets = {d: _dataset(source, experiment, d) for d in grid.dataset}
    models = {m: _model(source, m) for m in grid.model}
    pools = {d: _pool(source, experiment, datasets[d], place) for d in grid.dataset}
    cells = [
        _cell(experiment, models[m], datasets[d], pools[d], policy, seed)
        for m in grid.model
        for d in grid.dataset
        for seed in grid.seed
        for policy in grid.policy
    ]
    _refuse_twins(source, cells, place)
    return Plan(name, experiment, pools, cells)


def datasets_of(source: Source) -> dict[str, Dataset]:
    """Every dataset that an experiment of the file uses, by experiment and name."""
    return {
        f"{name}/{dataset}": _dataset(source, experiment, dataset)
        for name, experiment in source.config.experiments.items()
        for dataset in experiment.grid.dataset
    }


def _refuse_twins(source: Source, cells: list[Cell], place: tuple[str, str]) -> None:
    """Two names for the same content would be one cell with two names."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        twin = seen.setdefault(cell.cell_id, cell)
        if twin is not cell:
            message = f"{cell.name} and {twin.name} are the same cell: keep one of the names"
            raise source.error(message, *place, "grid")


def _dataset(source: Source, experiment: Experiment, name: str) -> Dataset:
    entry = source.config.dataset(name)
    return Dataset(
        name,
        entry.task,
        entry.options,
        experiment.marking,
        entry.prompt,
        experiment.max_marking_errors,
        entry.drop_overlap,
    )


def _pool(source: Source, experiment: Experiment, dataset: Dataset, place: tuple[str, str]) -> Pool:
    """Load a dataset and check that the budget fits it."""
    try:
        pool = load_pool(dataset)
    except TaskError as error:
        raise source.error(str(error), "datasets", dataset.name) from error
    if not pool.train:
        raise source.error("has no training prompts: it is for evaluation only",
                           "datasets", dataset.name)  # fmt: skip
    size, total = experiment.subset_size(len(pool.train)), len(pool.train)
    if not 0 < size <= total:
        message = f"budget {experiment.budget} makes {size} prompts of a pool of {total}"
        raise source.error(f"{message}: write a share up to 1.0 or a count up to {total}",
                           *place, "budget")  # fmt: skip
    needed = settings.prompts_per_update(experiment.full_grpo(), experiment.resources.workers)
    if size < needed:
        message = f"{size} prompts are fewer than the {needed} of one update: nothing would train"
        raise source.error(f"{message}; write a larger budget or a smaller batch",
                           *place, "budget")  # fmt: skip
    if not pool.test:
        raise source.error("its test set is empty: accuracy cannot be measured",
                           "datasets", dataset.name)  # fmt: skip
    return pool


def _model(source: Source, name: str) -> ModelSource:
    entry = source.config.models[name]
    try:
        location, identity = _locate(entry)
    except (OSError, ValueError) as error:
        raise source.error(str(error), "models", name) from error
    return ModelSource(
        name, location, identity, entry.revision, entry.dtype, entry.chat_template_kwargs
    )


def _locate(entry: ModelEntry) -> tuple[str, str]:
    """Where the model lies and what identifies its content."""
    if entry.hub:
        return entry.hub, f"{entry.hub}@{entry.revision}"
    folder = embedded_path(entry.embedded) if entry.embedded else Path(str(entry.path)).expanduser()
    if not (folder / "config.json").is_file():
        raise ValueError(f"path {folder} holds no config.json: write a folder in the hub's layout")
    return str(folder.resolve()), folder_identity(folder)


def _cell(
    experiment: Experiment,
    model: ModelSource,
    dataset: Dataset,
    pool: Pool,
    policy: str,
    seed: int,
) -> Cell:
    # What a wording's preset asks of the chat template; the model's own settings win.
    kwargs = pool.task.chat_template_kwargs | model.chat_template_kwargs
    model = replace(model, chat_template_kwargs=kwargs)

    def spec(split: Split, probe: Probe) -> ProbeSpec:
        return ProbeSpec(
            model=model,
            dataset=dataset,
            split=split,
            settings=probe,
            template=template_hash(pool.task),
            marker=pool.task.marker_id,
        )

    return Cell(
        probe=spec("train", experiment.probe),
        baseline=spec("test", experiment.evaluate.as_probe(experiment.probe)),
        policy=policy,
        seed=seed,
        size=experiment.subset_size(len(pool.train)),
        train_hash=pool.train_hash,
        test_hash=pool.test_hash,
        grpo=experiment.full_grpo(),
        lora=experiment.full_lora(),
        evaluate_every=experiment.evaluate.every,
        resources=experiment.resources,
        provenance=pool.task.provenance,
    )

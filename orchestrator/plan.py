"""An experiment -> its probes and cells, with ids that hash content. Pure: runs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator import settings
from orchestrator.blocks import Experiment, ModelEntry, PolicyEntry, Probe
from orchestrator.cells import Cell, ProbeSpec
from orchestrator.config import Source
from orchestrator.embedded import embedded_path
from orchestrator.models import ModelSource, file_identity, folder_identity
from orchestrator.pools import Dataset, Pool, Split, load_pool, template_hash
from orchestrator.sampling.recorded import recorded_rows, shortage
from policies import get_policy, is_whole
from tasks import TaskError


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
        needed = [
            spec
            for cell in self.cells
            for spec in (cell.probe, cell.baseline)
            if not (spec.model.recorded and spec.split == "test")  # nothing is trained on one
        ]
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
    rules = {name: source.config.policy(name) for name in grid.policy}
    for model in models.values():
        if model.recorded:
            _check_recording(source, model, experiment.probe.samples, pools)
    cells = [
        _cell(experiment, models[m], datasets[d], pools[d], (policy, rules), seed)
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
        name,
        location,
        identity,
        entry.revision,
        entry.dtype,
        entry.chat_template_kwargs,
        entry.recorded is not None,
    )


def _size(experiment: Experiment, rule: PolicyEntry, pool: int) -> int:
    """Prompts that a policy is asked for; one that takes the whole pool knows no budget."""
    whole = is_whole(get_policy(rule.policy, **rule.options))
    return pool if whole else experiment.subset_size(pool)


def _matched(experiment: Experiment, rules: Mapping[str, PolicyEntry]) -> list[PolicyEntry]:
    """The policies whose smallest capacity bounds all subsets, sorted, where that was asked."""
    if not experiment.match_sizes:
        return []
    return sorted(rules.values(), key=lambda rule: rule.model_dump_json())


def _check_recording(
    source: Source, model: ModelSource, samples: int, pools: Mapping[str, Pool]
) -> None:
    """Refuse a recording that lacks what the probe will ask."""
    try:
        rows = recorded_rows(Path(model.location))
    except TaskError as error:
        raise source.error(str(error), "models", model.name) from error
    for name, pool in pools.items():
        if lacks := shortage(rows, [prompt.question for prompt in pool.train], samples):
            message = f"{model.location} {lacks} (dataset {name})"
            raise source.error(message, "models", model.name)


def _locate(entry: ModelEntry) -> tuple[str, str]:
    """Where the model lies and what identifies its content."""
    if entry.recorded:
        file = Path(entry.recorded).expanduser().resolve()
        if not file.is_file():
            raise ValueError(f"recorded {file} is not there: write a .parquet or .jsonl file")
        return str(file), file_identity(file)
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
    chosen: tuple[str, Mapping[str, PolicyEntry]],
    seed: int,
) -> Cell:
    policy, rules = chosen
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
        rule=rules[policy],
        match=_matched(experiment, rules),
        seed=seed,
        size=_size(experiment, rules[policy], len(pool.train)),
        train_hash=pool.train_hash,
        test_hash=pool.test_hash,
        grpo=experiment.full_grpo(),
        lora=experiment.full_lora(),
        evaluate_every=experiment.evaluate.every,
        resources=experiment.resources,
        provenance=pool.task.provenance,
    )

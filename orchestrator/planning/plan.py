"""An experiment -> its probes and cells, with ids that hash content. Pure: runs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.config import library_settings as settings
from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.entries import ModelEntry, PolicyEntry
from orchestrator.config.experiment import Experiment, Probe
from orchestrator.embedded import embedded_path
from orchestrator.planning.cells import Cell, ExtraEval, ProbeSpec, with_rivals
from orchestrator.planning.pools import Dataset, Pool, Split, load_pool, template_hash
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.recorded import recorded_rows, shortage
from orchestrator.storage.hashing import file_identity, folder_identity
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
        """Every probe that the cells read from, once.

        K is not in a probe's key: cells that share a probe may need different numbers of samples,
        and the largest is drawn.
        """
        largest: dict[tuple[str, str, Split], ProbeSpec] = {}
        for cell in self.cells:
            for spec in (cell.probe, cell.baseline, *(extra.probe for extra in cell.also)):
                if spec.model.recorded and spec.split == "test":
                    continue  # nothing is trained on a recording, so nothing is evaluated
                key = (spec.key, spec.dataset.name, spec.split)
                if key not in largest or spec.settings.samples > largest[key].settings.samples:
                    largest[key] = spec
        return list(largest.values())

    def pool(self, spec: ProbeSpec) -> Pool:
        """The loaded dataset of a probe."""
        return self.pools[spec.dataset.name]


def make_plan(source: LoadedConfig, name: str) -> Plan:
    """Resolve an experiment into cells; UserError names the line of what cannot work."""
    experiment = source.experiment(name)
    grid = experiment.grid
    place = ("experiments", name)
    datasets = {d: _dataset(source, experiment, d) for d in grid.dataset}
    models = {m: _model(source, m) for m in grid.model}
    pools = {d: _pool(source, experiment, datasets[d], place) for d in grid.dataset}
    pools |= {
        d: _test_set(source, experiment, d) for d in experiment.evaluate.ood if d not in pools
    }
    rules = {name: source.config.policy(name) for name in grid.policy}
    for model in models.values():
        if model.recorded:
            asked = {name: pools[name] for name in grid.dataset}
            _check_recording(source, model, experiment.probe.samples, asked)
    cells = [
        _cell(one, models[m], datasets[d], pools, (policy, rules), seed)
        for one in _per_probe_seed(experiment)
        for m in grid.model
        for d in grid.dataset
        for seed in grid.seed
        for policy in grid.policy
    ]
    _refuse_twins(source, cells, place)
    if experiment.stop_hopeless:
        cells = with_rivals(cells)
    return Plan(name, experiment, pools, cells)


def _per_probe_seed(experiment: Experiment) -> list[Experiment]:
    """The experiment once for each seed of its probe."""
    seeds = experiment.grid.probe_seed or [experiment.probe.seed]
    probes = [experiment.probe.model_copy(update={"seed": seed}) for seed in seeds]
    return [experiment.model_copy(update={"probe": probe}) for probe in probes]


def datasets_of(source: LoadedConfig, name: str | None = None) -> dict[str, Dataset]:
    """Every dataset that the file's experiments use, or only that one, by experiment and name.

    One that others use as well, under the same name and settings, is there once.
    """
    named = {name: source.experiment(name)} if name else source.config.experiments
    found: dict[str, Dataset] = {}
    for experiment, settled in named.items():
        for dataset in settled.grid.dataset:
            made = _dataset(source, settled, dataset)
            if made not in found.values():
                found[f"{experiment}/{dataset}"] = made
    return found


def _refuse_twins(source: LoadedConfig, cells: list[Cell], place: tuple[str, str]) -> None:
    """Two names for the same content would be one cell with two names."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        twin = seen.setdefault(cell.cell_id, cell)
        if twin is not cell:
            message = f"{cell.name} and {twin.name} are the same cell: keep one of the names"
            raise source.error(message, *place, "grid")


def _dataset(source: LoadedConfig, experiment: Experiment, name: str) -> Dataset:
    entry = source.config.dataset(name)
    others = [d for d in experiment.evaluate.ood if d != name] if entry.drop_overlap else []
    return Dataset(
        name,
        entry.task,
        entry.options,
        experiment.marking,
        entry.prompt,
        experiment.max_marking_errors,
        entry.drop_overlap,
        tuple(_test_only(source, experiment, other) for other in others),
    )


def _test_only(source: LoadedConfig, experiment: Experiment, name: str) -> Dataset:
    """A dataset of which only the test set matters."""
    entry = source.config.dataset(name)
    return Dataset(
        name,
        entry.task,
        entry.options,
        experiment.marking,
        entry.prompt,
        experiment.max_marking_errors,
    )


def _pool(
    source: LoadedConfig, experiment: Experiment, dataset: Dataset, place: tuple[str, str]
) -> Pool:
    """Load a dataset and check that the budget fits it."""
    try:
        pool = load_pool(dataset)
    except TaskError as error:
        raise source.error(str(error), "datasets", dataset.name) from error
    if not pool.train:
        raise source.error(
            "has no training prompts: it is for evaluation only", "datasets", dataset.name
        )
    size, total = experiment.subset_size(len(pool.train)), len(pool.train)
    if not 0 < size <= total:
        message = f"budget {experiment.budget} makes {size} prompts of a pool of {total}"
        raise source.error(
            f"{message}: write a share up to 1.0 or a count up to {total}", *place, "budget"
        )
    needed = settings.prompts_per_update(experiment.full_grpo(), experiment.resources.workers)
    if size < needed:
        message = f"{size} prompts are fewer than the {needed} of one update: nothing would train"
        raise source.error(f"{message}; write a larger budget or a smaller batch", *place, "budget")
    if not pool.test:
        raise source.error(
            "its test set is empty: accuracy cannot be measured", "datasets", dataset.name
        )
    return pool


def _test_set(source: LoadedConfig, experiment: Experiment, name: str) -> Pool:
    """An out-of-distribution set: only its test is asked."""
    try:
        pool = load_pool(_test_only(source, experiment, name))
    except TaskError as error:
        raise source.error(str(error), "datasets", name) from error
    if not pool.test:
        raise source.error("its test set is empty: it cannot be asked", "datasets", name)
    return pool


def _model(source: LoadedConfig, name: str) -> ModelSource:
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
        entry.attn_implementation,
        entry.load_in_4bit,
        entry.target_modules,
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
    source: LoadedConfig, model: ModelSource, samples: int, pools: Mapping[str, Pool]
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


def _spec(
    model: ModelSource, dataset: Dataset, pool: Pool, split: Split, settings: Probe
) -> ProbeSpec:
    # What a wording's preset asks of the chat template; the model's own settings win.
    kwargs = pool.task.chat_template_kwargs | model.chat_template_kwargs
    return ProbeSpec(
        model=replace(model, chat_template_kwargs=kwargs),
        dataset=dataset,
        split=split,
        settings=settings,
        template=template_hash(pool.task),
        marker=pool.task.marker_id,
    )


def _also(
    experiment: Experiment, model: ModelSource, dataset: Dataset, pools: Mapping[str, Pool]
) -> list[ExtraEval]:
    """What is evaluated beside the sampled test set."""
    evaluate, pool = experiment.evaluate, pools[dataset.name]
    found = []
    if evaluate.greedy:
        settings = evaluate.as_probe(experiment.probe, samples=1, temperature=0.0)
        spec = _spec(model, dataset, pool, "test", settings)
        found.append(ExtraEval(probe=spec, dataset="", greedy=True, test_hash=pool.test_hash))
    settings = evaluate.as_probe(experiment.probe, samples=evaluate.ood_samples)
    for name in evaluate.ood:
        other = pools[name]
        if name == dataset.name:
            continue
        spec = _spec(model, other.dataset, other, "test", settings)
        found.append(ExtraEval(probe=spec, dataset=name, greedy=False, test_hash=other.test_hash))
    return found


def _cell(
    experiment: Experiment,
    model: ModelSource,
    dataset: Dataset,
    pools: Mapping[str, Pool],
    chosen: tuple[str, Mapping[str, PolicyEntry]],
    seed: int,
) -> Cell:
    policy, rules = chosen
    evaluate = experiment.evaluate
    pool = pools[dataset.name]
    probe = _spec(model, dataset, pool, "train", experiment.probe)
    return Cell(
        probe=probe,
        baseline=_spec(model, dataset, pool, "test", evaluate.as_probe(experiment.probe)),
        also=_also(experiment, model, dataset, pools),
        pass_at=evaluate.pass_at,
        policy=policy,
        rule=rules[policy],
        match=_matched(experiment, rules),
        seed=seed,
        size=_size(experiment, rules[policy], len(pool.train)),
        train_hash=pool.train_hash,
        test_hash=pool.test_hash,
        grpo=experiment.full_grpo(),
        lora=experiment.full_lora(model.target_modules),
        mask_dead_groups=experiment.mask_dead_groups,
        evaluate_every=evaluate.every,
        evaluate_engine=evaluate.engine,
        resources=experiment.resources,
        provenance=pool.task.provenance,
    )

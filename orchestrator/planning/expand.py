"""Third pass of planning: the grid of an experiment -> its cells. Pure.

Every combination of the axes becomes a cell, with every setting written out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.config.experiment import Axes, Experiment, Start, path_of, value_text
from orchestrator.config.policy_entries import DifficultyEntry, PolicyEntry
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.config.problems import Problem
from orchestrator.planning.cells import Cell, DifficultySource, ExtraEval, ProbeSpec, own_source
from orchestrator.planning.pools import Pool, template_hash
from orchestrator.planning.resolve import trained_on
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.identity import file_identity
from orchestrator.storage.schema import Split

Models = Mapping[str, ModelSource]  # by name
Policies = Mapping[str, PolicyEntry]  # by name
Pools = Mapping[str, Pool]  # by `variant_key`
# The model with its adapter, by what its cells start from, and their model, data set and seed.
Starts = Mapping[tuple[Start, str, str, int], ModelSource]
NO_STARTS: Starts = MappingProxyType({})


class ProbeSpecs:
    """The probes of a plan: cells that read the same probe share one object."""

    def __init__(self) -> None:
        self._specs: dict[tuple[str, ...], ProbeSpec] = {}

    def of(self, model: ModelSource, pool: Pool, split: Split, settings: Probe) -> ProbeSpec:
        """The probe of a model on one split of a pool."""
        as_json = settings.model_dump_json()
        key = (model.name, model.identity, pool.dataset.variant_key, split, as_json)
        if key not in self._specs:
            # A prompt preset may set chat template arguments; the model's own take precedence.
            kwargs = pool.task.chat_template_kwargs | model.chat_template_kwargs
            self._specs[key] = ProbeSpec(
                model=replace(model, chat_template_kwargs=kwargs),
                dataset=pool.dataset,
                split=split,
                settings=settings,
                template=template_hash(pool.task),
                marker=pool.task.marker_id,
            )
        return self._specs[key]


def expand(
    experiment: Experiment, models: Models, policies: Policies, pools: Pools, starts: Starts
) -> tuple[list[Cell], dict[str, list[Axes]]]:
    """Every cell once, and by its id the other combinations of axes that give the same cell.

    Raises Problem if two names give the same cell, or two values of an axis the same cells.
    """
    specs = ProbeSpecs()
    cells: list[Cell] = []
    for axes, variant in experiment.variants:
        cells += _cells(variant, axes, models, policies, pools, starts, specs)
    return _distinct(cells, experiment.grid.setting_axes)


# Fields of a cell that are settings of its experiment, by their names.
AS_WRITTEN = (
    "mask_dead_groups",
    "false_positive_rate",
    "false_negative_rate",
    "resources",
    "max_logp_difference",
)


def _cells(
    experiment: Experiment,
    axes: Mapping[str, Any],
    models: Models,
    policies: Policies,
    pools: Pools,
    starts: Starts,
    specs: ProbeSpecs,
) -> list[Cell]:
    """The cells of one combination of the settings that are axes."""
    grid, evaluate, start = experiment.grid, experiment.evaluate, experiment.start
    choices = {name: choice_of(*entry.parts) for name, entry in policies.items()}
    bounding_rules = _bounding_rules(experiment, policies)
    difficulties = _difficulties(experiment, policies)
    cells = []
    probe_seeds = grid.probe_seed or [experiment.probe.seed]
    for probe_seed, model_name, dataset in product(probe_seeds, grid.model, grid.dataset):
        pool = pools[dataset]
        settings = experiment.probe.model_copy(update={"seed": probe_seed})
        trained = pools[trained_on(pool.dataset, experiment).variant_key]
        columns = _columns_hashes(trained, experiment, policies, bounding_rules)
        for seed, policy in product(grid.seed, grid.policy):
            model = models[model_name]
            if start is not None:
                model = _started(starts, start, model_name, dataset, seed)
            probe = specs.of(model, trained, "train", settings)
            ranked_by = difficulty_source(difficulties[policy], probe, trained, models, specs)
            cell = Cell(
                probe=probe,
                baseline=specs.of(model, pool, "test", evaluate.as_probe(settings)),
                extra_evals=_extra_evals(evaluate, settings, model, dataset, pools, specs),
                pass_at=evaluate.pass_at,
                policy=policy,
                **choices[policy],
                difficulty=ranked_by,
                bounding_rules=bounding_rules,
                seed=seed,
                size=_subset_size(policies[policy], experiment, len(pool.train)),
                train_hash=trained.train_hash,
                gold_count=trained.gold_count,
                columns_hash=columns[policy],
                test_hash=pool.test_hash,
                grpo=experiment.full_grpo(),
                lora=experiment.full_lora(model.target_modules),
                reward=experiment.reward_weights,
                allocation=experiment.allocation_entry,
                rollouts_by=experiment.rollouts,
                evaluate_every=evaluate.every,
                refresh=experiment.refresh if experiment.refresh.every else None,
                evaluate_engine=evaluate.engine,
                **{name: getattr(experiment, name) for name in AS_WRITTEN},
                provenance=pool.task.provenance,
                setting_axes=dict(axes),
            )
            cells.append(cell)
    return cells


def _started(starts: Starts, start: Start, model: str, dataset: str, seed: int) -> ModelSource:
    """The model with the adapter that a cell starts from. Raises Problem without a storage."""
    if (start, model, dataset, seed) not in starts:
        message = "the adapters that cells start from are in a storage: open the plan with one"
        raise Problem("start-without-storage", message, "start")
    return starts[start, model, dataset, seed]


def _subset_size(policy: PolicyEntry, experiment: Experiment, total: int) -> int:
    """The number of prompts that a policy selects from a pool of `total`."""
    rule, _ = policy.parts
    return total if rule.build().takes_all else experiment.subset_size(total)


def choice_of(rule: PolicyEntry, online: PolicyEntry | None) -> dict[str, Any]:
    """The fields of a cell that define how its prompts are chosen, before and during training."""
    version = online.build_online().version if online else 1
    stream = rule.build().stream
    return {"static_policy": rule, "stream": stream, "online": online, "online_version": version}


def _bounding_rules(experiment: Experiment, policies: Policies) -> list[PolicyEntry]:
    """The policies whose smallest capacity bounds every subset, in a canonical order."""
    if not experiment.match_sizes:
        return []
    rules = [rule for rule, _ in (entry.parts for entry in policies.values())]
    return sorted(rules, key=PolicyEntry.model_dump_json)


def _columns_hashes(
    pool: Pool,
    experiment: Experiment,
    policies: Policies,
    bounding_rules: Sequence[PolicyEntry],
) -> dict[str, str]:
    """Policy -> the hash of the user's columns that affect what its cell trains on."""
    of_all = {column for rule in bounding_rules for column in rule.reads_columns}
    if allocation := experiment.allocation_entry:
        of_all.update(allocation.build().reads_columns)
    return {
        name: pool.columns_hash(sorted(of_all.union(entry.reads_columns)))
        for name, entry in policies.items()
    }


def _difficulties(experiment: Experiment, policies: Policies) -> dict[str, DifficultyEntry | None]:
    """What each policy ranks by; None if its prompts do not depend on it.

    With match_sizes, the prompts of every policy depend on the capacities of the ranking policies,
    which share one difficulty.
    """
    ranked = {
        name: experiment.difficulty_of(entry)
        for name, entry in policies.items()
        if entry.parts[0].build().needs != "nothing"
    }
    common = next(iter(ranked.values()), None) if experiment.match_sizes else None
    return dict.fromkeys(policies, common) | ranked


def difficulty_source(
    entry: DifficultyEntry | None, probe: ProbeSpec, pool: Pool, models: Models, specs: ProbeSpecs
) -> DifficultySource | None:
    """What a cell with this probe ranks the prompts of a pool by; None for its gold answers."""
    if entry is None:
        return None
    if entry.file:
        file = str(Path(entry.file).expanduser())
        return DifficultySource(file=file, file_hash=file_identity(Path(file)))
    if entry.model is None or entry.model == probe.model.name and not probe.model.start:
        return own_source(entry.by)
    other = specs.of(models[entry.model], pool, "train", probe.settings)
    return DifficultySource(by=entry.by, probe=other)


def _extra_evals(
    evaluate: Evaluate,
    probe: Probe,
    model: ModelSource,
    dataset: str,
    pools: Pools,
    specs: ProbeSpecs,
) -> list[ExtraEval]:
    """The evaluations besides the sampled test set: greedy answers and other test sets."""
    extra_evals = []
    if evaluate.greedy:
        pool = pools[dataset]
        settings = evaluate.as_probe(probe, samples=1, temperature=0.0)
        spec = specs.of(model, pool, "test", settings)
        extra_evals.append(ExtraEval(probe=spec, dataset="", greedy=True, test_hash=pool.test_hash))
    settings = evaluate.as_probe(probe, samples=evaluate.ood_samples)
    for name in evaluate.ood:
        if name != dataset:
            pool = pools[name]
            spec = specs.of(model, pool, "test", settings)
            extra_evals.append(
                ExtraEval(probe=spec, dataset=name, greedy=False, test_hash=pool.test_hash)
            )
    return extra_evals


def _distinct(
    cells: Sequence[Cell], setting_axes: Mapping[str, Sequence[Any]]
) -> tuple[list[Cell], dict[str, list[Axes]]]:
    """The result of `expand` for the cells of every combination of the axes."""
    by_id: dict[str, Cell] = {}
    shared: dict[str, list[Axes]] = {}
    ids: dict[tuple[str, str], set[str]] = {}  # by axis and value
    for cell in cells:
        same = by_id.setdefault(cell.cell_id, cell)
        if same.fixed_axes != cell.fixed_axes:
            message = f"{cell.name} and {same.name} are the same cell: remove one of the names"
            raise Problem("same-cell", message, "grid")
        if same is not cell:
            shared.setdefault(cell.cell_id, []).append(cell.setting_axes)
        for axis, value in cell.setting_axes.items():
            ids.setdefault((axis, repr(value)), set()).add(cell.cell_id)
    if not shared:
        return [*by_id.values()], shared
    for axis, values in setting_axes.items():
        first: dict[frozenset[str], Any] = {}
        for value in values:
            same_as = first.setdefault(frozenset(ids[axis, repr(value)]), value)
            if same_as != value:
                names = f"{axis} {value_text(value)} and {value_text(same_as)}"
                message = f"{names} give the same cells: remove one of the values, or the axis"
                raise Problem("same-cells", message, *path_of(axis), axes={axis: value})
    return [*by_id.values()], shared

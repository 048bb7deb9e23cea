"""An experiment -> its probes and cells, in three passes: resolve, load, expand. Pure.

The last pass is here: every combination of the axes becomes a cell, and the names in the claims are
looked up among the cells. Nothing runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, product
from pathlib import Path
from typing import Any

from orchestrator.config.catalog import PATH_OPTIONS, LoadedConfig
from orchestrator.config.claims import (
    BASE_SIDE,
    EVERY,
    AxisValues,
    Claim,
    ClaimError,
    resolved_claim,
)
from orchestrator.config.corrections import one_of
from orchestrator.config.entries import DifficultyEntry, PolicyEntry
from orchestrator.config.experiment import Axes, Axis, Experiment, axes_text, path_of, value_text
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.config.problems import Problem, below
from orchestrator.planning.cells import (
    Cell,
    DifficultySource,
    ExtraEval,
    ProbeSpec,
    needed_samples,
    own_source,
    readers_of,
)
from orchestrator.planning.load import load_pools
from orchestrator.planning.pools import Dataset, Pool, Split, template_hash, with_label_noise
from orchestrator.planning.resolve import Resolved, resolve
from orchestrator.plugins.counts import counted
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.identity import file_identity
from tasks import TaskError
from tasks.sources.user_files import matching


def load_claims(
    experiment: Experiment, pools: Mapping[str, Pool], cells: Sequence[Cell]
) -> list[Claim]:
    """The claims of an experiment.

    Raises ClaimError for one that stands twice, has an unknown tier, or is read where no cell is
    evaluated.
    """
    claims: list[Claim] = []
    for index, text in enumerate(experiment.claims):
        claim = resolved_claim(text, experiment)
        sides = [side for side in (claim.a, claim.b) if side != BASE_SIDE]
        about = [
            cell
            for cell in (cells if claim.part or claim.at or claim.per else ())
            if has_values(cell, claim.only) and any(has_values(cell, side) for side in sides)
        ]
        with below("claims", index):
            if claim in claims:
                raise ClaimError(text, "it is stated twice: remove one")
            for reason in chain(
                _unknown_part(claim, about, pools),
                *(_out_of_reach(claim, cell) for cell in about),
            ):
                raise ClaimError(text, reason)
        claims.append(claim)
    return claims


def has_values(cell: Cell, values: AxisValues) -> bool:
    """Whether a cell has these values of its axes."""
    axes = cell.axes
    return all(repr(axes[axis]) == repr(value) for axis, value in values)


def parts_of(pool: Pool) -> dict[str, Mapping[str, str]]:
    """Kind of a claim's part -> test question of a data set -> its tier or source."""
    return {"tier": pool.tiers("test"), "source": pool.sources}


def _unknown_part(claim: Claim, cells: Sequence[Cell], pools: Mapping[str, Pool]) -> Iterator[str]:
    """Which test set does not have the claim's tier or source."""
    if claim.part is None:
        return
    for test_set in dict.fromkeys(claim.test_set or cell.probe.dataset.name for cell in cells):
        names = sorted({*parts_of(pools[test_set])[claim.part.kind].values()})
        if not names:
            yield (
                f"the test questions of {test_set} have no {claim.part.kind}: name its column with "
                f"the data set's option {claim.part.kind}"
            )
        if claim.part.name not in (EVERY, *names):
            yield f"{test_set} has no {claim.part}: write {one_of(names, '')}"


def _out_of_reach(claim: Claim, cell: Cell) -> Iterator[str]:
    """Why a cell is not evaluated at the claim's cost, or has none of what divides its gain."""
    if claim.per and claim.per.cost == "labels" and not cell.most_labels:
        yield f"{cell.name} uses no labels: divide its gain by another cost"
    cost, amount = claim.at or ("", 0.0)
    if cost == "labels":
        before = cell.labels_before(cell.size)
        least = cell.prompts_per_update if before is None else before
        if amount < least:
            yield (
                f"{cell.name} uses {least:,} labels by its first update: write at least {least:,}, "
                "or let its policy see fewer by the option labels"
            )
        if amount > cell.most_labels:
            yield f"{cell.name} uses at most {cell.most_labels:,} labels: write no more"
    if cost in ("rollouts", "tokens"):
        most = cell.max_rollouts
        if cost == "tokens":
            most *= cell.grpo_settings.max_completion_length
        if amount > most:
            yield f"{cell.name} has at most {most:,} {cost}: write at most {most:,}"
        first = 1 if claim.metric == "learnable" else cell.evaluate_every or cell.updates
        least = cell.min_rollouts // cell.updates * min(first, cell.updates)  # and as many tokens
        if amount < least:
            yield (
                f"before {least:,} {cost}, {cell.name} is the base model: write at least {least:,}"
            )


Specs = dict[tuple[str, ...], ProbeSpec]  # by model, dataset, split and settings


def expand(experiment: Experiment, resolved: Resolved, pools: Mapping[str, Pool]) -> list[Cell]:
    """The cells of an experiment, with every setting written out."""
    specs: Specs = {}
    return [
        cell
        for axes, variant in experiment.variants
        for cell in _cells(variant, resolved, pools, axes, specs)
    ]


def _trained_on(dataset: Dataset, experiment: Experiment) -> Dataset:
    """The data set that an experiment trains on, with its label noise."""
    return replace(
        dataset,
        label_noise=experiment.label_noise,
        label_noise_seed=experiment.label_noise_seed if experiment.label_noise else 0,
    )


def _cells(
    experiment: Experiment,
    resolved: Resolved,
    pools: Mapping[str, Pool],
    axes: Mapping[str, Any],
    specs: Specs,
) -> list[Cell]:
    """The cells of one combination of the settings that are axes."""
    grid, evaluate, models = experiment.grid, experiment.evaluate, resolved.models
    parts = {name: entry.parts for name, entry in resolved.policies.items()}
    bounding = (rule for rule, _ in parts.values()) if experiment.match_sizes else ()
    bounding_rules = sorted(bounding, key=PolicyEntry.model_dump_json)  # by their smallest capacity
    takes_all = {name: rule.build().takes_all for name, (rule, _) in parts.items()}
    choices = {name: choice_of(*part) for name, part in parts.items()}
    difficulty = _difficulties(experiment, resolved)
    cells = []
    probe_seeds = grid.probe_seed or [experiment.probe.seed]
    for probe_seed, model_name, dataset in product(probe_seeds, grid.model, grid.dataset):
        model, pool = models[model_name], pools[dataset]
        settings = experiment.probe.model_copy(update={"seed": probe_seed})
        trained = pools[_trained_on(pool.dataset, experiment).variant_key]
        probe = _probe_spec(model, trained, "train", settings, specs)
        baseline = _probe_spec(model, pool, "test", evaluate.as_probe(settings), specs)
        extra_evals = _extra_evals(evaluate, settings, model, dataset, pools, specs)
        columns = _columns_hashes(trained, experiment, resolved, bounding_rules)
        source = partial(difficulty_source, probe=probe, pool=trained, models=models, specs=specs)
        sources = {policy: source(entry) for policy, entry in difficulty.items()}
        cells += [
            Cell(
                probe=probe,
                baseline=baseline,
                extra_evals=extra_evals,
                pass_at=evaluate.pass_at,
                policy=policy,
                **choices[policy],
                difficulty=sources[policy],
                bounding_rules=bounding_rules,
                seed=seed,
                size=len(pool.train)
                if takes_all[policy]
                else experiment.subset_size(len(pool.train)),
                train_hash=trained.train_hash,
                golds=trained.golds,
                columns_hash=columns[policy],
                test_hash=pool.test_hash,
                grpo=experiment.full_grpo(),
                lora=experiment.full_lora(model.target_modules),
                mask_dead_groups=experiment.mask_dead_groups,
                reward=experiment.reward_weights,
                allocation=experiment.allocation_entry,
                rollouts_by=experiment.rollouts,
                evaluate_every=evaluate.every,
                refresh=experiment.refresh if experiment.refresh.every else None,
                evaluate_engine=evaluate.engine,
                resources=experiment.resources,
                max_logp_difference=experiment.max_logp_difference,
                provenance=pool.task.provenance,
                setting_axes=dict(axes),
            )
            for seed, policy in product(grid.seed, grid.policy)
        ]
    return cells


def choice_of(rule: PolicyEntry, online: PolicyEntry | None) -> dict[str, Any]:
    """The fields of a cell that say how its prompts are chosen, before and while it trains."""
    version = online.build_online().version if online else 1
    stream = rule.build().stream
    return {"static_policy": rule, "stream": stream, "online": online, "online_version": version}


def _columns_hashes(
    pool: Pool, experiment: Experiment, resolved: Resolved, bounding_rules: Sequence[PolicyEntry]
) -> dict[str, str]:
    """Policy -> the hash of the columns of the user's data that decide what its cell trains on."""
    allocation = experiment.allocation_entry
    of_all = {column for rule in bounding_rules for column in rule.reads_columns}
    of_all |= {*(allocation.build().reads_columns if allocation else [])}
    read = {n: sorted({*e.reads_columns, *of_all}) for n, e in resolved.policies.items()}
    return {policy: pool.columns_hash(names) for policy, names in read.items()}


def _difficulties(experiment: Experiment, resolved: Resolved) -> dict[str, DifficultyEntry | None]:
    """What each policy ranks by; None where its prompts do not depend on it.

    With match_sizes, those of every policy depend on the capacities of those that rank, which have
    one difficulty in common.
    """
    ranked = {
        name: experiment.difficulty_of(entry)
        for name, entry in resolved.policies.items()
        if entry.parts[0].build().needs != "nothing"
    }
    common = next(iter(ranked.values()), None) if experiment.match_sizes else None
    return dict.fromkeys(resolved.policies, common) | ranked


def difficulty_source(
    entry: DifficultyEntry | None,
    probe: ProbeSpec,
    pool: Pool,
    models: Mapping[str, ModelSource],
    specs: Specs,
) -> DifficultySource | None:
    """What the prompts of a pool are ranked by in a cell with this probe; None for its golds."""
    if entry is None:
        return None
    if entry.file:
        file = str(Path(entry.file).expanduser())
        return DifficultySource(file=file, file_hash=file_identity(Path(file)))
    if entry.model in (None, probe.model.name):
        return own_source(entry.by)
    other = _probe_spec(models[entry.model], pool, "train", probe.settings, specs)
    return DifficultySource(by=entry.by, probe=other)


def _extra_evals(
    evaluate: Evaluate,
    probe: Probe,
    model: ModelSource,
    dataset: str,
    pools: Mapping[str, Pool],
    specs: Specs,
) -> list[ExtraEval]:
    """The evaluations besides the sampled test set: greedy answers, and other test sets."""
    extra_evals = []
    if evaluate.greedy:
        pool = pools[dataset]
        settings = evaluate.as_probe(probe, samples=1, temperature=0.0)
        spec = _probe_spec(model, pool, "test", settings, specs)
        extra_evals.append(ExtraEval(probe=spec, dataset="", greedy=True, test_hash=pool.test_hash))
    settings = evaluate.as_probe(probe, samples=evaluate.ood_samples)
    for name in evaluate.ood:
        if name != dataset:
            spec = _probe_spec(model, pools[name], "test", settings, specs)
            extra_evals.append(
                ExtraEval(probe=spec, dataset=name, greedy=False, test_hash=pools[name].test_hash)
            )
    return extra_evals


def _probe_spec(
    model: ModelSource, pool: Pool, split: Split, settings: Probe, specs: Specs
) -> ProbeSpec:
    """The probe with these settings, one object for all cells that read it."""
    key = (model.name, pool.dataset.variant_key, split, settings.model_dump_json())
    if key not in specs:
        # A prompt preset may set chat template arguments; the model's own take precedence.
        kwargs = pool.task.chat_template_kwargs | model.chat_template_kwargs
        specs[key] = ProbeSpec(
            model=replace(model, chat_template_kwargs=kwargs),
            dataset=pool.dataset,
            split=split,
            settings=settings,
            template=template_hash(pool.task),
            marker=pool.task.marker_id,
        )
    return specs[key]


@dataclass(frozen=True)
class Plan:
    """The cells that one experiment declares, and the prompts that they need."""

    name: str
    source: LoadedConfig
    experiment: Experiment
    pools: Mapping[str, Pool]
    cells: list[Cell]
    # cell_id -> other combinations of axes with this cell: `full` takes the pool at every budget
    shared: Mapping[str, list[Axes]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    noisy_pools: Mapping[str, Pool] = field(default_factory=dict)  # by `variant_key`
    trains: bool = True  # False: only the training pools are probed, no test set
    only: ProbeSpec | None = None  # an evaluation by itself, in place of the cells' probes

    @property
    def files(self) -> list[str]:
        """The experiments file, and the files that its data sets and difficulties are read from."""
        files = [str(self.source.file)]
        ranked = [cell.difficulty for cell in self.cells if cell.difficulty]
        files += dict.fromkeys(source.file for source in ranked if source.file)
        for entry in self.source.config.datasets.values():
            named = {name: getattr(entry, name) for name in ("without", "corrections", "labels")}
            for name, value in (entry.options | named).items():
                texts = value if isinstance(value, list) else [value]
                for text in (each for each in texts if isinstance(each, str) and each):
                    files += matching(text) if name in (*PATH_OPTIONS, "labels") else [text]
        return files

    @property
    def compare_at(self) -> Axis:
        """What the comparison keeps equal: rollouts by default if some cells draw more of them.

        Online policies and allocations may, and refreshes do.
        """
        draws_more = any(c.online or c.allocation or c.refresh for c in self.cells)
        if "compare_at" in self.experiment.model_fields_set or not draws_more:
            return self.experiment.compare_at
        return "rollouts"

    @cached_property
    def probes(self) -> list[ProbeSpec]:
        """Every probe that the cells read from, once.

        K is not in a probe's key: cells that share a probe may need different numbers of samples,
        and the largest is drawn. An adaptive probe is one for each K, because which samples it
        needs depends on K; it draws what is not stored yet.
        """
        if self.only:
            return [self.only]
        specs = (spec for cell in self.cells for spec in cell.probes)
        largest: dict[tuple[Any, ...], ProbeSpec] = {}
        for spec in {id(spec): spec for spec in specs}.values():  # cells share the objects
            if spec.model.recorded and spec.split == "test":
                continue  # nothing is trained on a recording, so nothing is evaluated
            if spec.split == "test" and not self.trains:
                continue
            if spec.split == "test" and not self.pool(spec).test:
                continue  # without a gold answer
            key: tuple[Any, ...] = (spec.key, spec.dataset.variant_key, spec.split)
            if spec.split == "train" and spec.settings.adaptive:
                key += needed_samples(spec)
            if key not in largest or spec.settings.samples > largest[key].settings.samples:
                largest[key] = spec
        return list(largest.values())

    @cached_property
    def lacking_golds(self) -> dict[str, str]:
        """`variant_key` of a data set -> why its cells cannot be trained: it lacks gold answers.

        Its pool can be probed, and prompts of it chosen for annotators.
        """
        lacking: dict[str, str] = {}
        for cell in self.cells:
            pool, key = self.pool(cell.probe), cell.probe.dataset.variant_key
            if not pool.task.optional_answers or key in lacking:
                continue
            labelled, needed = int(pool.labelled.sum()), cell.size
            needed = 1 if cell.static_policy.build().takes_all else needed
            if labelled < needed or not pool.test:
                lacking[key] = (
                    f"{labelled:,} of {counted(len(pool.train), 'training prompt')} and "
                    f"{len(pool.test):,} of its "
                    f"{counted(len(pool.test) + len(pool.unlabelled_test), 'test question')} have "
                    f"a gold answer, and a cell needs {needed:,} and 1: write them in the data, or "
                    "in the files of labels (decile select --to-label FILE lists prompts)"
                )
        return lacking

    def pool(self, spec: ProbeSpec) -> Pool:
        """The loaded dataset of a probe."""
        pools = self.noisy_pools if spec.dataset.label_noise else self.pools
        return pools[spec.dataset.variant_key]


def make_plan(loaded: LoadedConfig, name: str, *, trains: bool = True) -> Plan:
    """Plan an experiment, or only its probes. Raises UserError at the line of what cannot work."""
    experiment = loaded.experiment(name)
    with loaded.located():
        resolved = resolve(loaded.config, experiment)
        pools = load_pools(loaded, name, experiment, resolved, trains=trains)
        with below("experiments", name):
            noisy = _noisy_pools(experiment, pools)
            cells = expand(experiment, resolved, {**pools, **noisy})
            cells, shared = _distinct(experiment, cells)
            claims = load_claims(experiment, pools, cells)
    return Plan(name, loaded, experiment, pools, cells, shared, claims, noisy, trains)


def _noisy_pools(experiment: Experiment, pools: Mapping[str, Pool]) -> dict[str, Pool]:
    """The pools with label noise, by `variant_key`."""
    added: dict[str, Pool] = {}
    for axes, variant in experiment.variants:
        for name in variant.grid.dataset:
            key = _trained_on(pools[name].dataset, variant).variant_key
            if key not in pools and key not in added:
                try:
                    added[key] = with_label_noise(
                        pools[name], variant.label_noise, variant.label_noise_seed
                    )
                except TaskError as error:
                    message = f"{error} (dataset {name})"
                    raise Problem("no-label-noise", message, "label_noise", axes=axes) from error
    return added


def _distinct(
    experiment: Experiment, cells: list[Cell]
) -> tuple[list[Cell], dict[str, list[Axes]]]:
    """Every cell once, and by its id the other combinations of axes of which it is the cell, too.

    Raises Problem where two names give the same cell, and where two values of an axis give the same
    cells.
    """
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
    for axis, values in experiment.grid.setting_axes.items() if shared else ():
        first: dict[frozenset[str], Any] = {}
        for value in values:
            same_as = first.setdefault(frozenset(ids[axis, repr(value)]), value)
            if same_as != value:
                names = f"{axis} {value_text(value)} and {value_text(same_as)}"
                message = f"{names} give the same cells: remove one of the values, or the axis"
                raise Problem("same-cells", message, *path_of(axis), axes={axis: value})
    return [*by_id.values()], shared


def unused_budgets(plan: Plan) -> list[str]:
    """Where the updates end before each prompt of a static subset was drawn once, a sentence each.

    Whole pools are no budget, and online policies choose among more prompts than they draw.
    """
    notes = []
    for cell in plan.cells:
        drawn, pool = cell.updates * cell.prompts_per_update, len(plan.pool(cell.probe).train)
        if cell.online or drawn >= cell.size or cell.size == pool:
            continue
        epoch = -(-cell.size // cell.prompts_per_update)
        notes.append(
            f"{counted(cell.updates, 'update')} × "
            f"{counted(cell.prompts_per_update, 'prompt')} draw {drawn:,} of the "
            f"{counted(cell.size, 'prompt')} of a subset ({drawn / cell.size:.2f} epochs): write "
            f"grpo.max_steps: {epoch:,}, or a budget of {drawn:,}"
        )
    return list(dict.fromkeys(notes))


def training_probes(plan: Plan) -> list[ProbeSpec]:
    """The probes of training pools: test questions are never candidates for a subset."""
    return [spec for spec in plan.probes if spec.split == "train"]


def pool_title(plan: Plan, spec: ProbeSpec) -> str:
    """Model and dataset of a probe, and what else distinguishes it."""
    return f"{spec.model.name} on {data_title(plan, spec)}"


def data_title(plan: Plan, spec: ProbeSpec) -> str:
    """The dataset of a probe, its seed if it is not 0, and its settings that are axes."""
    cells = readers_of(plan.cells, spec)
    first = cells[0].setting_axes if cells else {}
    settings = {axis: value for axis, value in first.items() if axis.startswith("probe.")}
    same = {a: v for a, v in settings.items() if all(cell.setting_axes[a] == v for cell in cells)}
    seed = f"probe {spec.settings.seed}" if spec.settings.seed else ""
    return ", ".join(filter(None, [spec.dataset.variant_key, seed, axes_text(same)]))

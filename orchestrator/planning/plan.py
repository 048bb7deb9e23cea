"""An experiment -> its probes and cells, in three passes: resolve, load, expand. Pure.

Names in claims are looked up among the cells here. Nothing runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
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
from orchestrator.config.experiment import Axes, Axis, Experiment, axes_text
from orchestrator.config.problems import below
from orchestrator.config.wording import one_of
from orchestrator.planning.cells import Cell, ProbeSpec, needed_samples, readers_of
from orchestrator.planning.checks import check_pools
from orchestrator.planning.expand import NO_STARTS, Starts, expand
from orchestrator.planning.load import check_models, fetch_command, load_pools, noisy_pools
from orchestrator.planning.pools import Pool
from orchestrator.planning.resolve import resolve
from orchestrator.plugins.counts import counted
from orchestrator.sampling.model import ModelSource
from tasks.sources.user_files import matching


def load_claims(
    experiment: Experiment, pools: Mapping[str, Pool], cells: Sequence[Cell]
) -> list[Claim]:
    """The claims of an experiment.

    Raises ClaimError for a claim that is repeated, has an unknown tier, or is read at a point
    without an evaluation.
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
    """Kind of part in claims -> test question of a data set -> its tier or source."""
    return {"tier": pool.tiers("test"), "source": pool.sources}


def _unknown_part(claim: Claim, cells: Sequence[Cell], pools: Mapping[str, Pool]) -> Iterator[str]:
    """Why a test set does not have the claim's tier or source."""
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
    """Why a cell is not evaluated at the claim's cost, or lacks the cost that divides its gain."""
    if claim.per and claim.per.cost == "labels" and not cell.most_labels:
        yield f"{cell.name} uses no labels: divide its gain by another cost"
    cost, amount = claim.at or ("", 0.0)
    if cost == "labels":
        before = cell.labels_before(cell.size)
        least = cell.prompts_per_update if before is None else before
        if amount < least:
            yield (
                f"{cell.name} uses {counted(least, 'label')} by its first update: write at "
                f"least {least:,}, or show its policy fewer with the option labels"
            )
        if amount > cell.most_labels:
            yield f"{cell.name} uses at most {counted(cell.most_labels, 'label')}: write no more"
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


@dataclass(frozen=True)
class Plan:
    """The cells that one experiment declares, and the prompts that they need."""

    name: str
    source: LoadedConfig
    experiment: Experiment
    pools: Mapping[str, Pool]
    cells: list[Cell]
    # cell_id -> other combinations of axes with this cell, such as `full` at every budget
    shared: Mapping[str, list[Axes]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    noisy_pools: Mapping[str, Pool] = field(default_factory=dict)  # by `variant_key`
    trains: bool = True  # False: only the training pools are probed, not test sets
    only: ProbeSpec | None = None  # a single evaluation in place of the cells' probes

    @property
    def files(self) -> list[str]:
        """The experiments file, and the files that its data sets and difficulties are read from."""
        files = [str(self.source.file)]
        ranked = [cell.difficulty for cell in self.cells if cell.difficulty]
        files += dict.fromkeys(source.file for source in ranked if source.file)
        for entry in self.source.config.datasets.values():
            names = ("without", "corrections", "labels", "benchmarks")
            named = {name: getattr(entry, name) for name in names}
            for name, value in (entry.options | named).items():
                texts = value if isinstance(value, list) else [value]
                for text in texts:
                    if not isinstance(text, str) or not text:
                        continue
                    if name in PATH_OPTIONS or name in ("labels", "benchmarks"):
                        files += matching(text)
                    else:
                        files.append(text)
        return files

    @property
    def row_counts(self) -> dict[str, dict[str, Any]]:
        """The rows of each data set that were read, left out and used, as in JSON."""
        return {name: {"row_counts": pool.rows.to_dict()} for name, pool in self.pools.items()}

    def check_models(self, models: Iterable[ModelSource]) -> None:
        """Raise UserError at the line of the first model that is neither cached nor reachable."""
        with self.source.located():
            check_models(models, self.fetch_command)

    @property
    def fetch_command(self) -> str:
        """The command that downloads what the experiment reads."""
        return fetch_command(self.source.file, self.name)

    @property
    def compare_at(self) -> Axis:
        """What the comparison keeps equal: by default rollouts, if some cells draw more of them.

        Online policies and allocations may draw more, and refreshes do.
        """
        draws_more = any(c.online or c.allocation or c.refresh for c in self.cells)
        if "compare_at" in self.experiment.model_fields_set or not draws_more:
            return self.experiment.compare_at
        return "rollouts"

    @cached_property
    def probes(self) -> list[ProbeSpec]:
        """Every probe that the cells read from, once.

        K is not in a probe's key: cells that share a probe may need different numbers of samples,
        and the largest is drawn. For adaptive probes there is one probe per K, because K determines
        which samples they need; each draws the samples that are not stored yet.
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
        """`variant_key` of a data set -> why its cells cannot be trained without more gold answers.

        Its pool can still be probed, and its prompts selected for annotators.
        """
        lacking: dict[str, str] = {}
        for cell in self.cells:
            pool, key = self.pool(cell.probe), cell.probe.dataset.variant_key
            if not pool.task.optional_answers or key in lacking:
                continue
            labelled = int(pool.labelled.sum())
            needed = cell.size
            if cell.static_policy.build().takes_all:
                needed = 1
            if labelled < needed or not pool.test:
                lacking[key] = (
                    f"{labelled:,} of {counted(len(pool.train), 'training prompt')} and "
                    f"{len(pool.test):,} of its "
                    f"{counted(len(pool.test) + len(pool.unlabelled_test), 'test question')} have "
                    f"a gold answer, but a cell needs {needed:,} and 1: write them in the data, or "
                    "in the files of labels (decile select --to-label FILE lists prompts)"
                )
        return lacking

    @property
    def start_notes(self) -> list[str]:
        """Sentences on what cells start from in place of the base model."""
        notes = []
        for _, variant in self.experiment.variants:
            if start := variant.start:
                of = start.adapter or f"the adapters of {start.from_}, policy {start.policy}"
                notes.append(f"cells start from {of}; what is said of the base model refers to it")
        return list(dict.fromkeys(notes))

    def settings_of(self, cell: Cell) -> Experiment:
        """The experiment with the values that the axes of a cell have."""
        variants = self.experiment.variants
        return next(settings for axes, settings in variants if axes == cell.setting_axes)

    def pool(self, spec: ProbeSpec) -> Pool:
        """The loaded dataset of a probe."""
        pools = self.noisy_pools if spec.dataset.label_noise else self.pools
        return pools[spec.dataset.variant_key]

    @property
    def training_probes(self) -> list[ProbeSpec]:
        """The probes of training pools; test questions are never candidates for a subset."""
        return [spec for spec in self.probes if spec.split == "train"]

    def pool_title(self, spec: ProbeSpec) -> str:
        """The model and dataset of a probe, and further settings that distinguish it."""
        return f"{spec.model.title} on {self.data_title(spec)}"

    def data_title(self, spec: ProbeSpec) -> str:
        """The dataset of a probe, its seed if it is not 0, and its values of setting axes."""
        parts = [spec.dataset.variant_key]
        if spec.settings.seed:
            parts.append(f"probe {spec.settings.seed}")
        if cells := readers_of(self.cells, spec):
            axes = [cell.setting_axes for cell in cells]
            same = {
                axis: value
                for axis, value in axes[0].items()
                if axis.startswith("probe.") and all(each[axis] == value for each in axes)
            }
            if same:
                parts.append(axes_text(same))
        return ", ".join(parts)

    @property
    def unused_budgets(self) -> list[str]:
        """Sentences on cells whose updates end before each prompt of a static subset was drawn
        once.

        Whole pools are not reported, because they are not a budget; nor are online policies, which
        choose among more prompts than they draw.
        """
        notes = []
        for cell in self.cells:
            drawn = cell.updates * cell.prompts_per_update
            pool = len(self.pool(cell.probe).train)
            if cell.online or drawn >= cell.size or cell.size == pool:
                continue
            epoch = -(-cell.size // cell.prompts_per_update)
            notes.append(
                f"{counted(cell.updates, 'update')} × "
                f"{counted(cell.prompts_per_update, 'prompt')} draw {drawn:,} of the "
                f"{counted(cell.size, 'prompt')} of a subset ({drawn / cell.size:.2f} epochs): "
                f"write grpo.max_steps: {epoch:,}, or a budget of {drawn:,}"
            )
        return list(dict.fromkeys(notes))


def make_plan(
    loaded: LoadedConfig, name: str, *, trains: bool = True, starts: Starts = NO_STARTS
) -> Plan:
    """Plan an experiment, or only its probes. Raises UserError at the line of a problem.

    starts: of an experiment with `start`, whose adapters are in a storage (pipeline.starts).
    """
    experiment = loaded.experiment(name)
    with loaded.located():
        resolved = resolve(loaded.config, experiment)
        pools = load_pools(resolved.datasets | resolved.test_sets, fetch_command(loaded.file, name))
        check_pools(name, experiment, resolved, pools, trains=trains)
        with below("experiments", name):
            noisy = noisy_pools(experiment, pools)
            every_pool = pools | noisy
            cells, shared = expand(
                experiment, resolved.models, resolved.policies, every_pool, starts
            )
            claims = load_claims(experiment, pools, cells)
    return Plan(name, loaded, experiment, pools, cells, shared, claims, noisy, trains)

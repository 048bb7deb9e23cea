"""What a user should know before an experiment runs. Runs nothing."""

from pathlib import Path

import numpy as np

from cluster.resources import ResourceError
from orchestrator.config.probe import unchecked_args
from orchestrator.difficulty.sources import rated_rows, with_ranks_of
from orchestrator.pipeline.long_prompts import crowded_prompts
from orchestrator.pipeline.manifest import pool_changes
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site
from orchestrator.planning.cells import axes_without
from orchestrator.planning.plan import Plan
from orchestrator.planning.score_file import read_scores
from orchestrator.plugins.counts import counted
from orchestrator.storage.errors import StoreError

# Where policies that discard groups kept half of what they drew (docs/notes/online.md).
LIKELY_DISCARDED = 0.5


def plan_notes(run: Run, site: Site) -> list[str]:
    """What a user should know before the experiment runs."""
    plan = run.plan
    return [
        *plan.source.warnings(plan.name),
        *plan.start_notes,
        *_engine_notes(plan),
        *_sample_notes(plan),
        *(f"warning: {change}" for change in pool_changes(plan, run.store)),
        *crowded_prompts(run),
        *(f"warning: {note}" for note in plan.unused_budgets),
        *_budget_notes(plan),
        *_score_notes(plan),
        *_place_notes(run, site),
        *(
            f"{title}: {note}"
            for title, pool in plan.noisy_pools.items()
            for note in pool.notes
            if note not in plan.pools[pool.dataset.name].notes
        ),
    ]


def _engine_notes(plan: Plan) -> list[str]:
    """The engine settings that could not be checked on this machine."""
    notes = (
        f"{name}.engine_args: {', '.join(names)} could not be checked, because {block.engine} is "
        "not installed here"
        for _, variant in plan.experiment.variants
        for name, block in variant.sampled.items()
        if (names := unchecked_args(block.engine or "", block.engine_args, block.engine_python))
    )
    return list(dict.fromkeys(notes))


def _sample_notes(plan: Plan) -> list[str]:
    """The samples from which no difference between prompts, or between answers, can be seen."""
    notes = []
    for spec in plan.probes:
        block, settings = "probe" if spec.split == "train" else "evaluate", spec.settings
        greedy = settings.temperature == 0 and not spec.model.recorded
        if greedy and settings.samples > 1:
            notes.append(
                f"warning: at {block}.temperature 0, the {counted(settings.samples, 'sample')} of "
                "a prompt are drawn alike: write a temperature above 0, or draw one sample"
            )
    by_rate = {
        cell.policy
        for cell in plan.cells
        if cell.probe.settings.samples == 1
        and cell.difficulty is None
        and cell.static_policy.build().needs not in ("nothing", "first")
    }
    if by_rate:
        notes.append(
            f"with probe.samples 1, every pass rate is 0 or 1 ({', '.join(sorted(by_rate))}): "
            "write 8 or more"
        )
    return list(dict.fromkeys(notes))


def _budget_notes(plan: Plan) -> list[str]:
    """At equal rollouts: which cells are not compared, or above which share of discarded groups.

    At equal labels: which policies use unequal numbers of labels before their first update.
    """
    if plan.compare_at == "labels":
        return _label_notes(plan)
    if plan.compare_at != "rollouts":
        return []
    notes, budgets = [], dict[tuple[str, ...], int]()
    for cell in plan.cells:
        axes = axes_without(cell, "policy", "allocation")
        budgets[axes] = min(cell.min_rollouts, budgets.get(axes, cell.min_rollouts))
    for cell in plan.cells:
        if cell.max_rollouts - cell.refresh_rollouts == cell.rollouts:
            continue
        budget = budgets[axes_without(cell, "policy", "allocation")]
        first = next(u for u in range(1, cell.updates + 1) if cell.evaluates_after(u))
        drawn = cell.min_rollouts / cell.updates * first
        most = max(0.0, 1 - drawn / budget)
        if cell.times_drawn > 1:  # known in advance
            if drawn > budget:
                notes.append(
                    f"warning: at equal rollouts, {cell.name} is not compared: its first "
                    f"evaluation, after update {first} of {cell.updates}, comes after {drawn:,.0f} "
                    f"rollouts, but other cells have {budget:,}: write a smaller evaluate.every"
                )
        elif most < LIKELY_DISCARDED:
            discards = f"more than {most:.0%} of its groups" if most else "any group"
            notes.append(
                f"warning: at equal rollouts, {cell.policy} is not compared if it discards "
                f"{discards} before its first evaluation, after update {first} of {cell.updates}: "
                f"evaluate.every: {max(1, first // 4)} would allow more"
            )
    return list(dict.fromkeys(notes))


def _label_notes(plan: Plan) -> list[str]:
    """Which policies use unequal numbers of labels, where these must be equal."""
    families: dict[tuple[str, ...], dict[int, list[str]]] = {}
    for cell in plan.cells:
        if (before := cell.labels_before(cell.size)) is not None:
            by_labels = families.setdefault(axes_without(cell, "policy", "seed"), {})
            policies = by_labels.setdefault(before, [])
            if cell.policy not in policies:
                policies.append(cell.policy)
    notes = []
    for by_labels in families.values():
        if len(by_labels) > 1:
            parts = [f"{' and '.join(n)} {labels:,}" for labels, n in sorted(by_labels.items())]
            notes.append(
                f"warning: not comparable at equal labels: {', '.join(parts)}: write the option "
                "labels, with one number, for each of these policies"
            )
    return list(dict.fromkeys(notes))


def _score_notes(plan: Plan) -> list[str]:
    """How many prompts of a pool a file of difficulty has no value for."""
    pools = {
        (cell.difficulty.file, cell.probe.dataset.variant_key): plan.pool(cell.probe)
        for cell in plan.cells
        if cell.difficulty and cell.difficulty.file
    }
    notes = []
    for (file, title), pool in pools.items():
        table = with_ranks_of(pool.unprobed(columns=False), read_scores(file))
        lacking = len(pool.train) - int(np.count_nonzero(rated_rows(table)))
        if lacking:
            prompts = f"{lacking:,} of the {counted(len(pool.train), 'training prompt')} of {title}"
            notes.append(
                f"warning: {Path(file).name} has no value for {prompts}: they come last, in random "
                "order"
            )
    return notes


def _place_notes(run: Run, site: Site) -> list[str]:
    """What the storage and this machine lack for a run."""
    notes = []
    try:
        run.store.check_writable()
    except StoreError as error:
        notes.append(f"warning: {error}")
    resources = run.plan.experiment.resources
    try:
        site.for_trials(run.plan.experiment)
    except ResourceError as error:
        notes.append(f"warning: {error}")
        return notes
    if resources.gpus and not site.gpus_given and site.cluster.get("GPU", 0) < 1:
        needed = site.for_trials(run.plan.experiment)[0].cluster["GPU"]
        notes.append(
            f"warning: a trial needs GPUs, and this machine has none: the plan is for a cluster "
            f"with {needed:g} (--gpus and --gpu describe yours)"
        )
    return notes

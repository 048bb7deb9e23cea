"""Third pass of planning: every combination of the axes -> a cell. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from orchestrator.config.entries import PolicyEntry, build_policy
from orchestrator.config.experiment import Experiment
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.planning.cells import Cell, ExtraEval, ProbeSpec, with_rivals
from orchestrator.planning.pools import Pool, Split, template_hash
from orchestrator.planning.resolve import Resolved
from orchestrator.sampling.model import ModelSource
from policies import is_whole

Specs = dict[tuple[str, ...], ProbeSpec]  # by model, dataset, split and settings


def expand(experiment: Experiment, resolved: Resolved, pools: Mapping[str, Pool]) -> list[Cell]:
    """The cells of an experiment, with every setting written out."""
    specs: Specs = {}
    cells = [
        cell
        for axes, variant in experiment.variants
        for cell in _cells(variant, resolved, pools, axes, specs)
    ]
    return with_rivals(cells) if experiment.stop_hopeless else cells


def _cells(
    experiment: Experiment,
    resolved: Resolved,
    pools: Mapping[str, Pool],
    axes: Mapping[str, Any],
    specs: Specs,
) -> list[Cell]:
    """The cells of one combination of the settings that are axes."""
    grid, evaluate = experiment.grid, experiment.evaluate
    parts = {name: entry.parts for name, entry in resolved.policies.items()}
    match = []
    if experiment.match_sizes:  # the policies whose smallest capacity bounds every subset
        match = sorted((rule for rule, _ in parts.values()), key=PolicyEntry.model_dump_json)
    takes_whole_pool = {name: is_whole(build_policy(rule)) for name, (rule, _) in parts.items()}
    cells = []
    probe_seeds = grid.probe_seed or [experiment.probe.seed]
    for probe_seed, model_name, dataset in product(probe_seeds, grid.model, grid.dataset):
        model, pool = resolved.models[model_name], pools[dataset]
        settings = experiment.probe.model_copy(update={"seed": probe_seed})
        probe = _probe_spec(model, pool, "train", settings, specs)
        baseline = _probe_spec(model, pool, "test", evaluate.as_probe(settings), specs)
        extra_evals = _extra_evals(evaluate, settings, model, dataset, pools, specs)
        total = len(pool.train)
        cells += [
            Cell(
                probe=probe,
                baseline=baseline,
                extra_evals=extra_evals,
                pass_at=evaluate.pass_at,
                policy=policy,
                rule=parts[policy][0],
                online=parts[policy][1],
                match=match,
                seed=seed,
                size=total if takes_whole_pool[policy] else experiment.subset_size(total),
                train_hash=pool.train_hash,
                test_hash=pool.test_hash,
                grpo=experiment.full_grpo(),
                lora=experiment.full_lora(model.target_modules),
                mask_dead_groups=experiment.mask_dead_groups,
                rollouts_by=experiment.rollouts,
                evaluate_every=evaluate.every,
                evaluate_engine=evaluate.engine,
                resources=experiment.resources,
                provenance=pool.task.provenance,
                swept=dict(axes),
            )
            for seed, policy in product(grid.seed, grid.policy)
        ]
    return cells


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
    key = (model.name, pool.dataset.name, split, settings.model_dump_json())
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

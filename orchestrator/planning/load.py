"""Second pass of planning: the prompts of the datasets, checked against the experiment."""

from pathlib import Path

from orchestrator.config import library_settings as settings
from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import Experiment
from orchestrator.config.generations import check_generations
from orchestrator.planning.downloads import fetch_advice
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.planning.resolve import Resolved
from orchestrator.sampling.recorded import missing_responses, recorded_rows
from tasks import TaskError
from tasks.hub import NotCached


def load_pools(
    loaded: LoadedConfig, experiment: Experiment, resolved: Resolved, budget_path: tuple[str, ...]
) -> dict[str, Pool]:
    """The pool of every dataset by name. Raises UserError at the line of what does not fit."""
    pools: dict[str, Pool] = {}
    for name, dataset in {**resolved.datasets, **resolved.test_sets}.items():
        try:
            pool = pools[name] = load_pool(dataset)
        except TaskError as error:
            advice = f"; {fetch_advice(loaded, budget_path[1])}" * isinstance(error, NotCached)
            raise loaded.error(f"{error}{advice}", "datasets", name) from error
        if name in resolved.datasets:
            if not pool.train:
                message = "has no training prompts: it is for evaluation only"
                raise loaded.error(message, "datasets", name)
            for axes, variant in experiment.variants:
                if problem := _check_budget(variant, len(pool.train)):
                    raise loaded.error(problem, *budget_path, axes=axes)
        if not pool.test:
            message = "its test set is empty: accuracy cannot be measured"
            raise loaded.error(message, "datasets", name)
    samples = max(variant.probe.samples for _, variant in experiment.variants)
    for model in resolved.models.values():
        if not model.recorded:
            continue
        try:
            rows = recorded_rows(Path(model.location))
        except TaskError as error:
            raise loaded.error(str(error), "models", model.name) from error
        for name in resolved.datasets:
            questions = [prompt.question for prompt in pools[name].train]
            if missing := missing_responses(rows, questions, samples):
                message = f"{model.location} {missing} (dataset {name})"
                raise loaded.error(message, "models", model.name)
    return pools


def _check_budget(experiment: Experiment, total: int) -> str | None:
    """Why the budget does not fit a pool of `total` prompts; None if it fits."""
    size = experiment.subset_size(total)
    if not 0 < size <= total:
        return (
            f"budget {experiment.budget} selects {size} prompts from a pool of {total}: "
            f"write a share up to 1.0 or a count up to {total}"
        )
    grpo, workers = experiment.full_grpo(), experiment.resources.workers
    needed = settings.prompts_per_update(grpo, workers)
    if size < needed:
        return (
            f"budget {experiment.budget} selects {size} prompts, fewer than the {needed} of one "
            "update: write a larger budget or a smaller batch"
        )
    if problem := check_generations(grpo, workers, size):
        return f"budget {experiment.budget} selects {problem}"
    return None

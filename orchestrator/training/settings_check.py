"""Constructs the objects of cells' settings before sampling.

`plan` checks names, types and ranges from the libraries' source. Problems that depend on several
settings, on installed packages or on the model's layers only appear when TRL, PEFT and transformers
construct their objects.
"""

import os
import re
import sysconfig
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from cluster.actors import run_in_worker
from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import Experiment, Resources
from orchestrator.config.problems import Problem
from orchestrator.sampling.model import ModelSource
from orchestrator.storage import user_cache
from orchestrator.storage.errors import UserError
from orchestrator.storage.proof import canonical_hash

ACCEPTED = "accepted_settings.json"  # hash -> when it was accepted
MAX_ACCEPTED = 1_000  # newest entries to keep, so that the file does not grow forever
CHECKS = 2  # increases with new checks, so that accepted settings are checked again
MAX_NAMED = 12  # layers of a model in a message
LIBRARIES = {"grpo": "trl", "lora": "peft"}
# Errors of the libraries for a setting that they do not accept, or that needs a missing package.
REFUSALS = (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, ImportError)


class TrainingSettings(NamedTuple):
    """The settings that one trainer is constructed from; cells may share them."""

    model: ModelSource
    grpo: dict[str, Any]
    lora: dict[str, Any]
    resources: Resources


def settings_of(experiment: Experiment, models: Sequence[ModelSource]) -> list[TrainingSettings]:
    """The distinct settings of an experiment's cells, for each model that can be trained."""
    bases = [model.base for model in models if not model.recorded]
    trained = {canonical_hash([base.key(), base.target_modules]): base for base in bases}
    distinct: dict[str, TrainingSettings] = {}
    for identity, model in trained.items():
        for _, variant in experiment.variants:
            grpo = variant.full_grpo()
            lora = variant.full_lora(model.target_modules)
            settings = TrainingSettings(model, grpo, lora, variant.resources)
            distinct.setdefault(canonical_hash([identity, grpo, lora]), settings)
    return [*distinct.values()]


def check_in_worker(source: LoadedConfig, name: str, settings: Sequence[TrainingSettings]) -> None:
    """Construct each of an experiment's settings in a Ray worker with the resources of a trial.

    Raises UserError at the line of the first setting that cannot work.
    """
    for _, group in groupby(settings, key=lambda one: one.model):  # as `settings_of` orders them
        same_model = [*group]
        first = same_model[0]
        if problem := run_in_worker(first_problem, same_model, gpus=first.resources.gpus):
            section, _, message = problem.partition(": ")
            raise setting_error(source, name, first.model.name, section, message)


def check_once(source: LoadedConfig, name: str, settings: Sequence[TrainingSettings]) -> None:
    """Like `check_in_worker`, but skips settings that the libraries of this machine have accepted.

    Settings are checked each time if they run on a cluster, where installed packages are unknown,
    or if a Hub model's layers may not be on this machine yet.
    """
    folder = sysconfig.get_path("purelib")  # installing a package changes it
    libraries = [folder, os.stat(folder).st_mtime_ns]
    accepted = user_cache.read(ACCEPTED)
    new: dict[str, str] = {}
    unknown = []
    for one in settings:
        own = [one.model.key(), one.grpo, one.lora, one.resources.model_dump()]
        key = canonical_hash([libraries, CHECKS, *own])
        if one.model.revision is not None or "RAY_ADDRESS" in os.environ:
            unknown.append(one)
        elif key not in accepted:
            unknown.append(one)
            new[key] = datetime.now(UTC).isoformat()
    check_in_worker(source, name, unknown)
    if new:
        newest = sorted((accepted | new).items(), key=lambda item: item[1])[-MAX_ACCEPTED:]
        user_cache.write(ACCEPTED, dict(newest))


def first_problem(settings: Sequence[TrainingSettings]) -> str:
    """The first problem among the settings of a model; empty if there is none."""
    adapters: set[str] = set()  # constructed ones: one per LoRA settings is enough
    for one in settings:
        key = canonical_hash(one.lora)
        if problem := find_problem(one, adapter=key not in adapters):
            return problem
        adapters.add(key)
    return ""


def setting_error(
    source: LoadedConfig, name: str, model: str, section: str, message: str
) -> UserError:
    """The error at the line of the first setting that the message names, or of its section."""
    written = getattr(source.experiment(name), section)
    of_model = source.config.models[model].target_modules and "target_modules" not in written
    places = {
        match.start(): setting
        for setting in [*written, *(["target_modules"] if of_model else [])]
        if (match := re.search(rf"\b{setting.replace('_', '[_ ]')}\b", message, re.IGNORECASE))
    }
    setting = places[min(places)] if places else None
    message = f"{message.rstrip('. ')}: change it, or leave it out"
    if setting == "target_modules" and of_model:
        return source.error(Problem("refused-by-peft", message, "models", model, setting))
    path = ("experiments", name, section, *([setting] if setting else []))
    return source.error(Problem(f"refused-by-{LIBRARIES[section]}", message, *path))


def find_problem(settings: TrainingSettings, *, adapter: bool = True) -> str:
    """Why training is impossible with the settings, after `grpo: ` or `lora: `; empty if possible.

    Without `adapter`, LoRA's settings are not checked.
    """
    import torch
    from peft import LoraConfig
    from transformers import Trainer
    from transformers.optimization import get_scheduler

    place = "grpo"
    try:
        from orchestrator.training.trainer import grpo_config

        # This process is one of `workers`: it takes the batch of all workers, which TRL compares
        # with groups.
        batch = settings.grpo["per_device_train_batch_size"] * settings.resources.workers
        grpo = settings.grpo | {"per_device_train_batch_size": batch}
        with tempfile.TemporaryDirectory(prefix="decile-check-") as folder:
            config: Any = grpo_config(settings.model, 0, Path(folder), grpo)
        place = "grpo: optim"
        Trainer.get_optimizer_cls_and_kwargs(config)  # its package may be missing
        place = "grpo: lr_scheduler_type"
        get_scheduler(
            config.lr_scheduler_type,
            torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.learning_rate),
            num_warmup_steps=config.get_warmup_steps(config.max_steps),
            num_training_steps=config.max_steps,
            scheduler_specific_kwargs=config.lr_scheduler_kwargs,
        )
        if not adapter:
            return ""
        place = "lora"
        # Some initial weights are computed from the model's, which the adapter's check does not
        # load.
        LoraConfig(task_type="CAUSAL_LM", **settings.lora)
        without_weights = settings.lora | {"init_lora_weights": True}
        _construct_adapter(settings.model, LoraConfig(task_type="CAUSAL_LM", **without_weights))
    except REFUSALS as error:
        return f"{place}: {' '.join(str(error).split())}"
    return ""


def _construct_adapter(source: ModelSource, lora: Any) -> None:
    """The adapter on the model's layers, on the meta device: without weights."""
    import torch
    from peft import get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(
            source.location,
            revision=source.revision or "main",
            local_files_only=True,
            trust_remote_code=False,
        )
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError):
        return  # not on this machine yet, or cannot be built without its weights
    _check_targets(model, lora)
    with torch.device("meta"):
        get_peft_model(model, lora)


def _check_targets(model: Any, lora: Any) -> None:
    """Raise ValueError for a name in LoRA's settings that matches no layer: PEFT ignores it.

    A name matches the end of a layer's name, from a dot on, as in PEFT. Patterns are left to PEFT.
    """
    modules = [name for name, _ in model.named_modules()]
    parameters = [name for name, each in model.named_parameters() if each.dim() > 1]
    for setting, names in (
        ("target_modules", modules),
        ("modules_to_save", modules),
        ("target_parameters", parameters),
    ):
        targets = getattr(lora, setting) or ()
        absent = {
            target
            for target in (() if isinstance(targets, str) else targets)
            if not any(f".{name}".endswith(f".{target}") for name in names)
        }
        if absent:
            weights = [name.removesuffix(".weight") for name in parameters]
            known = parameters if setting == "target_parameters" else weights
            parts = 2 if setting == "target_parameters" else 1
            ends = sorted({".".join(name.split(".")[-parts:]) for name in known})
            raise ValueError(
                f"{setting} has {', '.join(sorted(absent))}, but the model has no such layer "
                f"(it has {', '.join(ends[:MAX_NAMED])})"
            )

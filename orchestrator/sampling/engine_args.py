"""`engine_args`: the settings of each built-in engine, and which of them cannot change a
completion.

Plain data, so that experiments.yaml can be checked, and a probe's key computed, without importing
an engine. A setting that is not listed as harmless is treated as one that can change a completion.
"Cannot change" is meant up to rounding: a different batch shape may round differently, as in every
engine (see `base`). Names are those of vLLM 0.30, and for `engine: server` those of the openai
library, if it has them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

SERVER_ARGUMENTS = {
    "base_url": "str",
    "model": "str",
    "api": "str",
    "api_key_env": "str",
    "max_concurrency": "int",
    "timeout": "float",
    "max_retries": "int",
}
SERVER_LIMITS: dict[str, tuple[float, float]] = {
    "max_concurrency": (1, 1_000),
    "timeout": (1, 86_400),
    "max_retries": (0, 1_000),
}
_KEY_REMEDY = "write api_key_env: NAME, an environment variable; secrets are never stored"
_MOVE = "set it beside engine"
SERVER_RESERVED = {
    **dict.fromkeys(("api_key", "key", "token", "authorization", "headers"), _KEY_REMEDY),
    **dict.fromkeys(("temperature", "top_p", "top_k", "seed", "stop"), _MOVE),
    "max_tokens": "set max_completion_length beside engine",
    "n": "every sample is a request of its own",
    "chat_template_kwargs": "set it on the model",
}
# Not `model`, which can name different weights, nor `api`, which determines who renders the prompt.
SERVER_HARMLESS = {
    "base_url": "names a server of the same model",
    "api_key_env": "names the key that pays",
    "max_concurrency": "groups the same requests",
    "timeout": "affects waiting only",
    "max_retries": "affects waiting only",
}
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,79}")


def check_server_arg(name: str, value: Any) -> str | None:
    """The problem with a value of the right type; never shows a possible secret."""
    if value is None:
        return f"{name} is null: write a value, or leave it out"
    if name == "api" and value not in ("completions", "chat"):
        return f"api is {value!r:.40}: write completions or chat"
    if name == "model" and not value:
        return "model is empty: write the name under which the server serves it"
    if name == "api_key_env" and not _VARIABLE.fullmatch(value):
        return (
            "api_key_env is not the name of an environment variable (capitals, digits, _): write "
            "the name, such as SERVER_KEY, and never the key itself"
        )
    if name != "base_url":
        return None
    try:
        url = urlsplit(value)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid or not value.isascii() or not value.isprintable() or " " in value:
        return "base_url is not an address: write http://HOST:PORT/v1"
    if "@" in url.netloc or url.query or url.fragment:
        return "base_url has more than an address: write http://HOST:PORT/v1, and a key as " + (
            "api_key_env: NAME"
        )
    return None


VLLM_RESERVED = {
    "model": "set hub, path, gguf or embedded on the model",
    "model_weights": "set hub or path on the model",
    "hf_config_path": "the configuration comes from the model's folder",
    "tokenizer": "the tokenizer comes with the model",
    "skip_tokenizer_init": "chats are rendered with the model's tokenizer",
    "revision": "set it on the model",
    "tokenizer_revision": "set revision on the model",
    "code_revision": "code from the Hub is never run",
    "trust_remote_code": "code from the Hub is never run",
    "load_format": "weights are read from safetensors only",
    "model_loader_extra_config": "weights are read from safetensors only",
    "ignore_patterns": "weights are read from safetensors only",
    "pt_load_map_location": "weights are read from safetensors only",
    "hf_token": "set the environment variable HF_TOKEN; secrets are never stored",
    "dtype": "set dtype on the model, so that it is sampled as it is trained",
    "seed": "set seed beside engine; every sample has a seed of its own",
    "runner": "always generate",
    "convert": "always none",
    "enable_lora": "set by evaluate, which swaps adapters",
    "max_loras": "one adapter is used at a time",
    "max_lora_rank": "set lora.r",
    "lora_target_modules": "set lora.target_modules",
    "default_mm_loras": "adapters come from the checkpoints",
    "device_ids": "Ray assigns the GPUs: set gpus beside engine",
    "data_parallel_size": "Ray starts one engine per share of the GPUs: set gpus beside engine",
}

_MANY = 10**9  # a bound for numbers without one: larger values are typos
VLLM_LIMITS: dict[str, tuple[float, float]] = {
    "gpu_memory_utilization": (0.01, 1),
    "kv_cache_memory_bytes": (1, 10**15),
    "max_model_len": (1, _MANY),
    "max_num_batched_tokens": (1, _MANY),
    "max_num_seqs": (1, _MANY),
    "block_size": (1, _MANY),
    "cpu_offload_gb": (0, _MANY),
    "tensor_parallel_size": (1, 1_000),
    "pipeline_parallel_size": (1, 1_000),
}

VLLM_HARMLESS = {
    name: reason
    for reason, names in {
        "sizes or places memory": """
            gpu_memory_utilization kv_cache_memory_bytes num_gpu_blocks_override block_size
            watermark cpu_offload_gb cpu_offload_params offload_backend offload_group_size
            offload_num_in_group offload_prefetch_step offload_params enable_sleep_mode
            enable_cumem_allocator max_cpu_loras
        """,
        "groups and orders the same requests": """
            max_num_batched_tokens max_num_scheduled_tokens max_num_seqs
            long_prefill_token_threshold enable_chunked_prefill scheduler_reserve_full_isl
            prefill_schedule_interval scheduling_policy async_scheduling stream_interval
        """,
        "reuses what was computed for the same tokens": """
            enable_prefix_caching prefix_caching_hash_algo
        """,
        "splits the same computation": """
            tensor_parallel_size pipeline_parallel_size enable_expert_parallel
            distributed_executor_backend disable_custom_all_reduce fully_sharded_loras
            distributed_timeout_seconds cpu_distributed_timeout_seconds
        """,
        "captures no CUDA graphs and compiles nothing; the operations are the same": """
            enforce_eager
        """,
        "selects the batches that replay a captured CUDA graph": """
            cudagraph_capture_sizes max_cudagraph_capture_size
        """,
        "affects start-up only": """
            download_dir safetensors_load_strategy safetensors_prefetch_num_threads
            safetensors_prefetch_block_size max_parallel_loading_workers use_tqdm_on_load
            skip_mm_profiling
        """,
        "affects logs and metrics only": """
            served_model_name disable_log_stats aggregate_engine_logging kv_cache_metrics
            kv_cache_metrics_sample cudagraph_metrics enable_mfu_metrics
            enable_logging_iteration_details show_hidden_metrics_for_version
            otlp_traces_endpoint collect_detailed_traces
        """,
    }.items()
    for name in names.split()
}

# vLLM applies PEFT's settings r, lora_alpha, use_rslora and target_modules. With different scales
# per layer its answers differ, and with most other settings it stops.
VLLM_UNSUPPORTED_LORA = (
    *("rank_pattern", "alpha_pattern", "layer_replication", "target_parameters"),
    *("bias", "lora_bias", "modules_to_save", "trainable_token_indices"),
    *("use_dora", "use_qalora", "use_bdlora", "arrow_config", "kasa_config"),
    *("velora_config", "monteclora_config", "alora_invocation_tokens"),
)

# The values of vLLM's max_lora_rank: MaxLoRARanks in its config/lora.py, without 1.
VLLM_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True)
class EngineArgs:
    """The `engine_args` of one engine, passed to its `load` as keyword arguments.

    arguments: name -> annotation in Python's syntax. If they are a library's own, they are read
    from its source instead (`orchestrator.config.library_settings`). library: title of the class
    that declares them. any_name: pass on other names too. limits: name -> ends of its range.
    reserved: name -> what to write instead. harmless: name -> why its value cannot change a
    completion. most_on_cpus: maximum number of engines on a cluster without GPUs. check: returns
    the problem with a value of the right type. unsupported_lora: settings of adapters that the
    engine does not apply. lora_ranks: adapters with a rank above the last one are refused.
    """

    arguments: Mapping[str, str] = field(default_factory=dict)
    library: str | None = None
    any_name: bool = False
    required: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reserved: Mapping[str, str] = field(default_factory=dict)
    harmless: Mapping[str, str] = field(default_factory=dict)
    most_on_cpus: int | None = None
    check: Callable[[str, Any], str | None] = lambda name, value: None
    unsupported_lora: tuple[str, ...] = ()
    lora_ranks: tuple[int, ...] = ()


ENGINE_ARGS: Mapping[str, EngineArgs] = {
    "transformers": EngineArgs(
        reserved={
            "dtype": "set dtype on the model",
            "torch_dtype": "set dtype on the model",
            "quantization": "set load_in_4bit on the model",
            "load_in_4bit": "set it on the model",
            "attn_implementation": "set it on the model",
            "device": "set probe.gpus",
        }
    ),
    "vllm": EngineArgs(
        library="vLLM's EngineArgs",
        limits=VLLM_LIMITS,
        reserved=VLLM_RESERVED,
        harmless=VLLM_HARMLESS,
        most_on_cpus=1,  # one engine uses all cores of its machine
        unsupported_lora=VLLM_UNSUPPORTED_LORA,
        lora_ranks=VLLM_LORA_RANKS,
    ),
    "server": EngineArgs(
        arguments=SERVER_ARGUMENTS,
        required=("base_url",),
        limits=SERVER_LIMITS,
        reserved=SERVER_RESERVED,
        harmless=SERVER_HARMLESS,
        check=check_server_arg,
        unsupported_lora=VLLM_UNSUPPORTED_LORA,
        lora_ranks=VLLM_LORA_RANKS,
    ),
}


# Values of init_lora_weights with which PEFT changes the base model's weights.
CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


def most_on_cpus(engine: str) -> int | None:
    """The maximum number of engines on a cluster without GPUs; None without a bound."""
    return ENGINE_ARGS[engine].most_on_cpus if engine in ENGINE_ARGS else None


def changes_base(lora: Mapping[str, Any]) -> bool:
    """Whether PEFT also changes the base model's weights, which an adapter's files do not hold."""
    return str(lora.get("init_lora_weights")).startswith(CHANGES_BASE)


def unsupported_lora(engine: str, lora: Mapping[str, Any]) -> str:
    """The first of PEFT's settings that the engine does not apply; empty without one."""
    names = ENGINE_ARGS[engine].unsupported_lora if engine in ENGINE_ARGS else ()
    if names and changes_base(lora):
        return "init_lora_weights"
    return next((n for n in names if lora.get(n) not in (None, False, "none", [], {})), "")


def largest_rank(engine: str) -> int | None:
    """The largest rank of an adapter that the engine takes; None without a limit."""
    ranks = ENGINE_ARGS[engine].lora_ranks if engine in ENGINE_ARGS else ()
    return ranks[-1] if ranks else None


def changing_args(engine: str, engine_args: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that can change a completion, and are part of a probe's key.

    For a user's own engine, these are all settings.
    """
    harmless = ENGINE_ARGS[engine].harmless if engine in ENGINE_ARGS else {}
    return {name: value for name, value in engine_args.items() if name not in harmless}

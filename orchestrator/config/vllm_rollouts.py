"""Limits of TRL's rollouts with vLLM (`use_vllm`), from the sources of TRL 1.16. Pure.

Some of it fails after the probe, some silently trains on the rollouts of a different policy. File
names are TRL's unless another library is named. TRL gives vLLM the base weights with the adapter
merged into them, never an adapter, so vLLM's limits on LoRA ranks do not apply.
"""

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.config.problems import Problem
from orchestrator.config.wording import shown

# Settings with which vLLM draws from a different distribution than the trainer's, and the values of
# each that change nothing. vLLM returns log-probabilities of its own distribution
# (logprobs_mode="processed_logprobs", generation/vllm_generation.py); the trainer only divides by
# the temperature, so importance ratios fall with the length: e^-.010 per token at top_p .95.
_DISTRIBUTION: dict[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1, None),
    "min_p": (0, None),
    "repetition_penalty": (1,),
    "vllm_structured_outputs_regex": (None,),
}
# PEFT settings with which the merged weights differ from the adapted model, and the effect.
_UNMERGED = {
    # The copies of a layer share one parameter, which named_parameters() has once.
    "layer_replication": "vLLM would draw without the replicated layers",
    # `_iter_named_params` sends …token_adapter.weight, and no embed_tokens.weight.
    "trainable_token_indices": "TRL sends its weights under names that vLLM does not have",
    # A tied head is one parameter in vLLM, which skips lm_head.weight; the adapted model has two.
    "modules_to_save": "vLLM would draw with other embeddings if a model ties them to its head",
    "lora_bias": "PEFT cannot merge it into layers without a bias",
    "alora_invocation_tokens": "PEFT cannot merge it",
    "arrow_config": "PEFT cannot merge it",
    "use_qalora": "PEFT cannot merge it",
}
# Names of layers that models tie.
_EMBEDDINGS = ("lm_head", "model.embed_tokens", "transformer.wte", "gpt_neox.embed_in", "embed_out")


def vllm_problem(
    grpo: Mapping[str, Any], *, gpus: float, workers: int, cells: int
) -> Problem | None:
    """The first setting of an experiment that rollouts with vLLM do not allow.

    grpo: all settings. gpus: per worker. cells: the number in the grid.
    """
    if not grpo.get("use_vllm"):
        return None
    colocated = is_colocated(grpo)
    placement = _placement_problem(
        grpo, gpus=gpus, workers=workers, cells=cells, colocated=colocated
    )
    return placement or _sampling_problem(grpo, colocated=colocated)


def is_colocated(grpo: Mapping[str, Any]) -> bool:
    """Whether vLLM draws the rollouts in the trainer's own process, TRL's default with vLLM."""
    return bool(grpo.get("use_vllm")) and grpo.get("vllm_mode", "colocate") == "colocate"


def _placement_problem(
    grpo: Mapping[str, Any], *, gpus: float, workers: int, cells: int, colocated: bool
) -> Problem | None:
    if not gpus:  # vllm_client.py: `init_communicator` needs a CUDA device
        return Problem(
            "vllm-without-gpu",
            "true: TRL gives vLLM the weights of every update on a GPU: write resources: "
            "{gpus: 1}, or use_vllm: false",
            "grpo",
            "use_vllm",
        )
    if colocated and gpus < 1:
        # vLLM's v1/worker/utils.py takes a share of the whole GPU's memory and refuses to start
        # where less is free; v1/worker/gpu_worker.py requires that no other process frees memory.
        return Problem(
            "vllm-on-part-of-a-gpu",
            f"gpus is {gpus:g}, but a vLLM engine in the trainer's process takes "
            "vllm_gpu_memory_utilization of the whole GPU, whatever other cells use: write "
            "gpus: 1, or grpo: {use_vllm: false}",
            "resources",
            "gpus",
        )
    parallel = grpo.get("vllm_tensor_parallel_size", 1)
    if colocated and workers % parallel:  # generation/vllm_generation.py: `_init_vllm`
        return Problem(
            "vllm-tensor-parallel",
            f"vllm_tensor_parallel_size {parallel} does not divide the workers ({workers}), which "
            "share their GPUs with a colocated vLLM: write 1, or a divisor of resources.workers",
            "grpo",
            "vllm_tensor_parallel_size",
        )
    if not colocated and cells > 1:
        # vLLM's distributed/weight_transfer/nccl_engine.py has one `model_update_group`: a second
        # trainer replaces it, so the first one waits forever, or gets the second's completions.
        return Problem(
            "vllm-server-for-several-cells",
            f"the {cells:,} cells of the grid would send their weights to one vLLM server, which "
            "holds the weights of one cell: write vllm_mode: colocate, or an experiment and a "
            "server for each cell",
            "grpo",
            "vllm_mode",
        )
    if grpo.get("fsdp"):
        # `_iter_named_params`: "merging adapters in a sharded manner is not supported", and
        # gathering is a no-op with FSDP; `_iter_fsdp1_params` keeps the names that PEFT gives.
        return Problem(
            "vllm-with-fsdp",
            "TRL cannot merge an adapter into sharded weights to send them to vLLM: remove fsdp, "
            "or write use_vllm: false",
            "grpo",
            "fsdp",
        )
    return None


def _sampling_problem(grpo: Mapping[str, Any], *, colocated: bool) -> Problem | None:
    corrected = grpo.get("vllm_importance_sampling_correction", True)
    for name, neutral in _DISTRIBUTION.items():
        if corrected and name in grpo and grpo[name] not in neutral:
            return Problem(
                "vllm-importance-ratio",
                f"{name} is {shown(grpo[name])}, which changes vLLM's log-probabilities but not "
                "the trainer's, so that the importance ratio scales the loss of long completions "
                f"towards 0: leave {name} out, or write vllm_importance_sampling_correction: false",
                "grpo",
                name,
            )
    if grpo.get("generation_kwargs"):
        # They override SamplingParams in generation/vllm_generation.py: with {seed: 0}, all
        # completions of a group are identical.
        return Problem(
            "vllm-generation-kwargs",
            "they replace what TRL passes to vLLM for every completion (with a seed, all "
            "completions of a group are equal): remove generation_kwargs, or write use_vllm: false",
            "grpo",
            "generation_kwargs",
        )
    mode = grpo.get("vllm_importance_sampling_mode", "sequence_mask")
    if corrected and grpo.get("loss_type") == "vespo" and not mode.startswith("token"):
        return Problem(  # trainer/grpo_trainer.py: `__init__`
            "vllm-with-vespo",
            "vespo with use_vllm needs vllm_importance_sampling_mode: token_mask or "
            "token_truncate: write one of them",
            "grpo",
            "loss_type",
        )
    window, limit = grpo.get("vllm_max_model_length"), grpo["max_completion_length"]
    if colocated and window is not None and window <= limit:
        return Problem(
            "vllm-window",
            f"vllm_max_model_length {window:,}, prompt and completion, leaves no space for a "
            f"prompt beside max_completion_length {limit:,}: write a larger number, or leave it "
            "out",
            "grpo",
            "vllm_max_model_length",
        )
    return None


def model_problem(lora: Mapping[str, Any], *, in_4bit: bool) -> Problem | None:
    """Why vLLM would not draw rollouts with the adapted model; None if it would.

    lora: all settings of the adapter. The problem's path is below the experiment.
    """
    if in_4bit:
        # PEFT quantizes the merged weights again (tuners/lora/bnb.py), which is coarser than what
        # the adapter has learnt; `_iter_named_params` sends them packed, without their scales.
        return Problem(
            "vllm-with-4bit",
            "use_vllm with a model that is loaded in 4 bits: TRL merges the adapter into the 4-bit "
            "weights, with coarser rounding, and sends them to vLLM without their scales: "
            "remove load_in_4bit, or write use_vllm: false",
            "grpo",
            "use_vllm",
        )
    effects = {name: why for name, why in _UNMERGED.items() if lora.get(name)}
    targets = lora.get("target_modules") or ()
    if isinstance(targets, str):  # a pattern of whole names, or all-linear: without the head
        adapted = [name for name in _EMBEDDINGS if _matches(targets, name)]
    else:
        adapted = [n for n in _EMBEDDINGS for t in targets if n == t or n.endswith(f".{t}")]
    if adapted:
        effects["target_modules"] = _UNMERGED["modules_to_save"]
    for name, effect in effects.items():
        return Problem(
            "vllm-without-lora-setting",
            f"TRL merges the adapter to send it to vLLM, and with {name}, {effect}: leave {name} "
            "out, or write grpo: {use_vllm: false}",
            "lora",
            name,
        )
    return None


def _matches(pattern: str, name: str) -> bool:
    """Whether PEFT's `target_modules` pattern matches a layer; an invalid pattern does not."""
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error:
        return False


def vllm_warnings(grpo: Mapping[str, Any]) -> dict[str, str]:
    """Setting of `grpo` -> why it may train on the rollouts of a different policy, though valid."""
    if not grpo.get("use_vllm"):
        return {}
    warnings = {
        "use_vllm": "TRL merges the adapter into 16-bit weights for vLLM, which loses changes "
        "smaller than their rounding, so that the rollouts of early updates are nearly those of "
        "the base model: use_vllm: false draws with the adapter itself"
    }
    if not grpo.get("vllm_importance_sampling_correction", True):
        warnings["vllm_importance_sampling_correction"] = (
            "without it, TRL logs no sampling/sampling_logp_difference, and nothing shows whether "
            "vLLM draws with the trained weights: leave it out"
        )
    return warnings

"""Loads a model in the same way for probe and trainer: weights, precision, attention, 4 bits."""

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from cluster.terminal import PlainError
from orchestrator.sampling.model import ModelSource, check_hub_id
from tasks import TaskError
from tasks.sources.hub import downloaded_folder


class ModelError(PlainError, ValueError):
    """A model cannot be loaded; the message states what to write instead."""


def load_model(
    source: ModelSource, device: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model in eval mode and its tokenizer (pads left); safetensors only, no remote code.

    `device` None uses the GPU, if there is one. Raises the errors of `load_tokenizer`, and
    ValueError if the machine does not support the source.
    """
    tokenizer = load_tokenizer(source)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    options: dict[str, Any] = {"dtype": source.dtype, "use_safetensors": True, **_pinned(source)}
    if (attention := source.attn_implementation) != "auto":
        # Without the package, transformers would download and run a kernel from the Hub.
        if attention.startswith("flash") and importlib.util.find_spec("flash_attn") is None:
            raise ModelError(
                f"model {source.name}: attn_implementation: {attention} needs the package "
                "flash-attn: install it, or write attn_implementation: sdpa"
            )
        options["attn_implementation"] = attention
    if source.load_in_4bit:
        if importlib.util.find_spec("bitsandbytes") is None:
            raise ModelError(
                f"model {source.name}: load_in_4bit needs bitsandbytes: pip install "
                "'decile[4bit]', or leave load_in_4bit out"
            )
        if not device.startswith("cuda"):
            raise ModelError(
                f"model {source.name}: load_in_4bit needs a GPU, but this process has none: "
                "write resources: {gpus: 1}, or leave load_in_4bit out"
            )
        options |= {"quantization_config": nf4_config(source.dtype), "device_map": {"": device}}
    if options.get("local_files_only"):  # the library also searches for an adapter with these
        options["adapter_kwargs"] = {"local_files_only": True}
    options["output_loading_info"] = True
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(source.location, **options)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a configuration makes the library raise
        raise ModelError(_load_error(source, error)) from error
    model, info = loaded
    if differing := _differing_weights(model, info):
        raise ModelError(
            f"model {source.name}: {source.location}: config.json and the weights differ: "
            f"{differing}: write the folder of one model"
        )
    if not source.load_in_4bit:  # quantized weights are loaded onto the device
        model.to(device)
    return model.eval(), tokenizer


def _differing_weights(model: Any, info: Mapping[str, Any]) -> str:
    """A weight that is missing in the files, or a weight in the files that the model lacks."""
    tied = {*(getattr(model, "_tied_weights_keys", None) or ())}
    if missing := sorted(name for name in info["missing_keys"] if name not in tied):
        return f"{missing[0]} is not in any file"
    own = {re.sub(r"\d+", "#", name) for name in model.state_dict()}
    unexpected = sorted(n for n in info["unexpected_keys"] if re.sub(r"\d+", "#", n) in own)
    return f"{unexpected[0]} is in a file, but the model has no such layer" if unexpected else ""


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, which pads left; no remote code.

    Raises ValueError if the folder is missing, a folder has the name of a Hub id, or the files
    cannot be loaded.
    """
    if source.revision is None and not Path(source.location).is_dir():
        raise ModelError(
            f"model {source.name}: there is no folder {source.location}; write the path of one "
            "with config.json, model.safetensors and the tokenizer, or a hub id with its revision"
        )
    if source.revision is not None:
        check_hub_id(source.location)
    options = {"padding_side": "left", **_pinned(source)}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.location, **options)
    except Exception as error:  # whatever a file makes the library raise
        raise ModelError(_load_error(source, error)) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _pinned(source: ModelSource) -> dict[str, Any]:
    options: dict[str, Any] = {"revision": source.revision or "main", "trust_remote_code": False}
    if repository := source.repository:
        try:
            downloaded_folder(repository)
        except TaskError as error:
            raise ModelError(_load_error(source, error)) from error
        # Otherwise the library requests optional files that the model lacks from the Hub, for
        # minutes.
        options["local_files_only"] = True
    return options


def nf4_config(dtype: str) -> BitsAndBytesConfig:
    """NF4 with quantized scales, as in QLoRA (arXiv 2305.14314); computes in `dtype`."""
    compute = "bfloat16" if dtype == "auto" else dtype
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )


def _load_error(source: ModelSource, error: Exception) -> str:
    advice = "write a folder that save_pretrained wrote, with its weights as safetensors"
    if isinstance(error, ImportError):
        advice = "install the missing package, or write attn_implementation: sdpa"
    elif source.revision is not None:
        advice = "check id, revision and HF_TOKEN (gated models), or write a downloaded folder"
    reason = str(error).strip().partition("\n")[0]
    return f"model {source.name}: {source.location} cannot be loaded ({reason}); {advice}"

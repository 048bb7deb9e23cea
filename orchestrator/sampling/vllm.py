"""Sampling with vLLM: continuous batching, with the prefix cached for all samples.

One engine per sampler actor. Every sample is a separate request with its own seed, so that it
depends only on (seed, prompt_id, index), and a resumed probe draws only missing samples. An
engine's processes print why they do not start only to their own output, so it is captured.
"""

import importlib.util
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError
from tqdm import tqdm

from orchestrator.plugins.streams import stream_key
from orchestrator.sampling.base import (
    Completion,
    Request,
    SamplingError,
    SamplingSettings,
    TokenSampler,
)
from orchestrator.sampling.engine_args import VLLM_LORA_RANKS, VLLM_RESERVED
from orchestrator.sampling.model import ModelSource, local_folder, stored_dtype, window_bytes
from orchestrator.storage.errors import one_line

MAX_LINES = 2_000  # of output that are kept and searched for errors
_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception)): (.+)")
# Errors that only point to the one before them.
_POINTERS = ("initialization failed", "See stack trace", "root cause above")


class CapturedOutput:
    """Copies standard output and error of this process and its children, and passes them on."""

    def __enter__(self) -> Self:
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        sys.stdout.flush()
        sys.stderr.flush()
        self._saved = os.dup(1), os.dup(2)
        read, write = os.pipe()
        # The children keep the pipe after the block: it is read until the last of them ends.
        self._reader = threading.Thread(target=self._copy, args=(read, os.dup(2)), daemon=True)
        self._reader.start()
        for standard in (1, 2):
            os.dup2(write, standard)
        os.close(write)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for standard, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, standard)
            os.close(saved)

    def root_cause(self) -> str:
        """The first printed error that does not point to another one; empty without one.

        Lines that are logged as errors take precedence, because warnings also quote errors.
        """
        self._reader.join(timeout=1)  # ends with the children
        lines = [line for line in self.lines if not any(words in line for words in _POINTERS)]
        for candidates in ([line for line in lines if "ERROR" in line], lines):
            for line in candidates:
                if match := _ERROR.search(line):
                    return f"{match[1]}: {match[2].strip()}"
        return ""

    def _copy(self, read: int, onward: int) -> None:
        with os.fdopen(read, "rb") as stream, os.fdopen(onward, "wb", buffering=0) as copy:
            for line in stream:
                self.lines.append(line.decode(errors="replace"))
                copy.write(line)


CPU_CACHE = 2**30  # least bytes of keys and values that an engine on CPUs reserves


class VllmSampler(TokenSampler):
    """Holds a `vllm.LLM`; a prompt that leaves no space for an answer is an error."""

    adapts = True

    def __init__(
        self, llm: Any, output: CapturedOutput, chat_template_kwargs: dict[str, Any]
    ) -> None:
        self.llm = llm
        self.output = output
        self.tokenizer = llm.get_tokenizer()
        self.chat_template_kwargs = chat_template_kwargs
        self.window = int(llm.model_config.max_model_len)
        self.adapter: Any = None
        self.adapters = 0

    @classmethod
    def version(cls) -> str:
        """vLLM and its version. Raises ValueError without vLLM."""
        return f"vllm {_import_vllm().__version__}"

    @classmethod
    def load(
        cls, source: ModelSource, device: str | None = None, lora_rank: int = 0, **engine_args: Any
    ) -> Self:
        """An engine of the source's model on this process's GPUs, or on CPUs in vLLM's CPU build.

        engine_args: those of vLLM's EngineArgs that Decile does not set itself. Raises ValueError
        without vLLM and for arguments that Decile sets, SamplingError if the engine does not start.
        """
        vllm = _import_vllm()
        if reserved := sorted(VLLM_RESERVED.keys() & engine_args.keys()):
            raise ValueError(f"engine_args: {reserved[0]} is set by Decile: remove it")
        folder = local_folder(source)
        options = _options(source, folder, lora_rank, engine_args)
        with CapturedOutput() as output:
            try:
                llm = vllm.LLM(**options)
            except Exception as error:
                if isinstance(error, ValidationError):  # of its settings
                    reason = "; ".join(each["msg"] for each in error.errors(include_url=False))
                else:
                    reason = output.root_cause() or str(error)
                message = f"engine vllm does not start with model {source.name}: {one_line(reason)}"
                raise SamplingError(message) from error
        output.lines.clear()
        return cls(llm, output, source.chat_template_kwargs)

    def adapt(self, folder: Path) -> None:
        """Sample with this adapter from now on.

        vLLM caches adapters by number, and prompts by name: for a changed folder, both would have
        the old content.
        """
        from vllm.lora.request import LoRARequest

        self.adapters += 1
        self.adapter = LoRARequest(f"{folder} {self.adapters}", self.adapters, str(folder))

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        import vllm

        prompts = self.rendered(requests)
        fits = [
            len(ids) + request.limit_of(settings) <= self.window
            for request, ids in zip(requests, prompts, strict=True)
        ]
        fit = [(r, ids) for r, ids, fits_in in zip(requests, prompts, fits, strict=True) if fits_in]
        prompts_of_samples = [{"prompt_token_ids": ids} for r, ids in fit for _ in r.samples]
        parameters = [
            vllm.SamplingParams(
                n=1,
                seed=stream_key(settings.seed, r.prompt_id, sample) >> 65,  # 63 bits, not negative
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                max_tokens=r.limit_of(settings),
                stop=list(settings.stop),
            )
            for r, _ in fit
            for sample in r.samples
        ]
        outputs = iter(self._generate(prompts_of_samples, parameters) if fit else ())
        too_long = Completion("", 0, "error")
        return [
            [_completion(next(outputs)) if fits_in else too_long for _ in r.samples]
            for r, fits_in in zip(requests, fits, strict=True)
        ]

    def _generate(self, prompts: list[dict[str, list[int]]], parameters: list[Any]) -> Any:
        """One output per prompt. Raises SamplingError if a process of the engine has ended."""
        bar: Any = False
        if self.listener:
            bar = partial(_EndedBar, on_ended=self.listener.on_ended)
        try:
            return self.llm.generate(prompts, parameters, use_tqdm=bar, lora_request=self.adapter)
        except Exception as error:
            if type(error).__name__ != "EngineDeadError":
                raise
            reason = self.output.root_cause() or str(error)
            message = f"engine vllm stopped: {reason}; rerun the same command to resume"
            raise SamplingError(message) from error


class _EndedBar(tqdm):  # type: ignore[misc]
    """Replaces vLLM's progress bar, which vLLM updates for each request that has ended."""

    def __init__(self, *args: Any, on_ended: Callable[[int], None], **options: Any) -> None:
        super().__init__(*args, **{**options, "disable": True})
        self.on_ended = on_ended

    @property
    def format_dict(self) -> Any:
        """vLLM divides by the elapsed time, which is 0 for a disabled bar."""
        return {**super().format_dict, "elapsed": inf}

    def update(self, n: float | None = 1) -> bool | None:
        """Draw nothing."""
        self.on_ended(int(n or 0))
        return None


def _import_vllm() -> Any:
    try:
        import vllm
    except ImportError as error:
        if error.name != "vllm":
            raise SamplingError(f"engine vllm cannot be imported: {error}") from error
        raise ValueError(
            "engine vllm is not installed: run make engine-vllm and write engine_python: "
            ".venv-vllm/bin/python, or pip install 'decile[vllm]'"
        ) from error
    return vllm


def _options(
    source: ModelSource, folder: Path, lora_rank: int, engine_args: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of `vllm.LLM`; the user's override defaults that depend on the machine.

    Raises ValueError for a rank that vLLM does not support, and SamplingError without bitsandbytes,
    which vLLM 0.28 moved to a plugin.
    """
    from vllm.platforms import current_platform

    defaults: dict[str, Any] = {}
    if not current_platform.is_cpu():
        import torch

        visible = torch.cuda.device_count()  # an actor sees its own GPUs only
        parallel = max(1, visible // engine_args.get("pipeline_parallel_size", 1))
        defaults["tensor_parallel_size"] = parallel
    else:
        # vLLM rewinds a seeded generator after each part of a prompt, which torch has for GPUs only
        defaults["enable_chunked_prefill"] = False
        defaults["enforce_eager"] = True  # compilation takes minutes and gains little on a CPU
        if "gpu_memory_utilization" not in engine_args:  # vLLM would reserve 92 % of all memory
            window = window_bytes(folder, engine_args.get("max_model_len"))
            defaults["kv_cache_memory_bytes"] = max(CPU_CACHE, int(1.1 * window))  # whole blocks
    options = {
        **defaults,
        "enable_prefix_caching": True,
        "distributed_executor_backend": "mp",
        **engine_args,
        "model": str(folder),
        "dtype": stored_dtype(folder) if source.dtype == "auto" else source.dtype,
        "load_format": "safetensors",
        "trust_remote_code": False,
    }
    if lora_rank > (most := VLLM_LORA_RANKS[-1]):
        raise ValueError(f"engine vllm takes LoRA ranks up to {most}, not {lora_rank}")
    if lora_rank:  # one adapter at a time
        largest = next(known for known in VLLM_LORA_RANKS if known >= lora_rank)
        options |= {"enable_lora": True, "max_lora_rank": largest, "max_loras": 1}
    if source.load_in_4bit:
        # vLLM quantizes the same layers to NF4 as `loading.nf4_config`, with quantized scales. Its
        # loader would also read pickled weights, but only from a folder without safetensors, which
        # `local_folder` refuses.
        for package in ("bitsandbytes", "vllm_bnb_plugin"):
            if importlib.util.find_spec(package) is None:
                raise SamplingError(
                    f"model {source.name}: load_in_4bit with engine vllm needs {package}: "
                    "pip install vllm-bnb-plugin, or write engine: transformers"
                )
        dtype = "bfloat16" if source.dtype == "auto" else source.dtype
        options |= {"quantization": "bitsandbytes", "load_format": "bitsandbytes", "dtype": dtype}
    return options


def _completion(output: Any) -> Completion:
    """The one completion of a request; an error unless it stopped or reached the limit."""
    [drawn] = output.outputs
    if drawn.finish_reason not in ("stop", "length"):
        return Completion("", 0, "error")
    ids = [*drawn.token_ids]
    return Completion(drawn.text, len(ids), drawn.finish_reason, ids)

"""Sampling with a Hugging Face model in this process: no server, any device, PEFT included.

Four things make it faster than `generate`: a prompt is read once for all its samples, rows of
similar length share a batch, rows that have ended leave it, and the cache is not copied per token.
Shapes below: P distinct prompts in a batch, B rows (one per sample), L tokens in the longest
prompt, T the limit on new tokens, V the vocabulary.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.cache_utils import DynamicLayer

from orchestrator.models import ModelSource
from orchestrator.sampling.base import (
    Completion,
    Request,
    Sampler,
    SamplingSettings,
    cut_at_stop,
    render,
)
from orchestrator.sampling.decoding import (
    RoomyLayer,
    Running,
    choose,
    left_padded,
    uniforms,
    warpers,
)


def load_model(
    source: ModelSource, device: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model in eval mode and its tokenizer (pads left); safetensors only, no remote code.

    Raises ValueError where the folder is absent or the files cannot be had.
    """
    if source.revision is None and not Path(source.location).is_dir():
        raise ValueError(
            f"model {source.name}: there is no folder {source.location}; write the path of one "
            "with config.json, model.safetensors and the tokenizer, or a hub id with its revision"
        )
    wanted: dict[str, Any] = {"revision": source.revision or "main", "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.location, padding_side="left", **wanted)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source.location, dtype=source.dtype, use_safetensors=True, **wanted
        )
    except OSError as error:
        raise ValueError(_why_not_loaded(source, error)) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return model.eval(), tokenizer


def _why_not_loaded(source: ModelSource, error: OSError) -> str:
    advice = "write a folder that save_pretrained has made, with its weights as safetensors"
    if source.revision is not None:
        advice = "check id, revision and HF_TOKEN (gated models), or write a downloaded folder"
    reason = str(error).strip().partition("\n")[0]
    return f"model {source.name}: {source.location} cannot be loaded ({reason}); {advice}"


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """No dropout and no gradients inside; every module's own mode is back afterwards.

    Not `inference_mode`: a buffer recomputed there (scaled rotary frequencies) spoils training.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


class Row(NamedTuple):
    """One completion to draw: sample `sample` of request `request`."""

    request: int
    sample: int


class TransformersSampler(Sampler):
    """Holds a loaded model, which may be a PEFT model in the middle of its training.

    `rows_per_batch` bounds memory; results depend on it through rounding alone.
    """

    engine: ClassVar[str] = "transformers"

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        chat_template_kwargs: dict[str, Any] | None = None,
        rows_per_batch: int = 128,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.chat_template_kwargs = chat_template_kwargs or {}
        self.rows_per_batch = rows_per_batch
        # The signature of a PEFT wrapper's forward says nothing, so the model beneath is asked.
        self.base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.eos = eos_ids(self.base, tokenizer)
        takes = inspect.signature(self.base.forward).parameters
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}

    @classmethod
    def load(cls, source: ModelSource, device: str | None = None) -> Self:
        """A sampler of the source's model; raises what `load_model` raises."""
        return cls(*load_model(source, device), source.chat_template_kwargs)

    def count_tokens(self, requests: Sequence[Request]) -> list[int]:
        """Length in tokens of each rendered prompt."""
        return [len(ids) for ids in self._rendered(requests)]

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """Per request, one completion per wanted sample index, in the order asked."""
        prompts = self._rendered(requests)
        drawn: dict[Row, Completion] = {}
        with evaluating(self.model):
            for rows in self._batches(requests, prompts):
                drawn |= zip(rows, self._batch(requests, prompts, rows, settings), strict=True)
        return [[drawn[Row(i, s)] for s in r.samples] for i, r in enumerate(requests)]

    def _rendered(self, requests: Sequence[Request]) -> list[list[int]]:
        return [render(self.tokenizer, r.messages, self.chat_template_kwargs) for r in requests]

    def _batches(
        self, requests: Sequence[Request], prompts: list[list[int]]
    ) -> Iterator[list[Row]]:
        """Batches of near equal size, longest prompts first: what does not fit fails early."""
        order = sorted(range(len(requests)), key=lambda i: -len(prompts[i]))
        rows = [Row(i, sample) for i in order for sample in requests[i].samples]
        count = -(-len(rows) // self.rows_per_batch)
        for part in range(count):
            yield rows[part * len(rows) // count : (part + 1) * len(rows) // count]

    def _batch(
        self,
        requests: Sequence[Request],
        prompts: list[list[int]],
        rows: list[Row],
        settings: SamplingSettings,
    ) -> list[Completion]:
        """The completions of one batch's rows, in their order."""
        distinct = {index: i for i, index in enumerate(dict.fromkeys(r.request for r in rows))}
        seed, limit = settings.seed, settings.max_completion_length
        table = [uniforms(seed, requests[r.request].prompt_id, r.sample, limit) for r in rows]
        device = next(self.model.parameters()).device  # a trainer may have moved the model
        logits, running = self._prefill(
            [prompts[i] for i in distinct],
            torch.tensor([distinct[row.request] for row in rows]).to(device),
            torch.from_numpy(np.stack(table)).to(device),
        )
        rows_of_tokens = self._continued(logits, running, settings).tolist()
        return self._completions(rows_of_tokens, settings.stop)

    def _prefill(
        self, prompts: list[list[int]], owner: Tensor, draws: Tensor
    ) -> tuple[Tensor, Running]:
        """First logits [B, V] and state of the rows that belong to prompts `owner` [B].

        Each of the P prompts is read once, and its cache is then repeated for its rows.
        """
        ids, mask = (part.to(owner.device) for part in left_padded(prompts))
        cache = DynamicCache(config=self.base.config)
        # Only the plain kind: sliding and linear layers keep the library's own bookkeeping.
        for i, layer in enumerate(cache.layers):
            cache.layers[i] = RoomyLayer() if type(layer) is DynamicLayer else layer  # type: ignore
        positions = (mask.cumsum(-1) - 1).clamp_(min=0)
        logits = self._forward(cache, ids, mask, positions)
        cache.reorder_cache(owner)  # type: ignore[arg-type]
        slots = torch.arange(len(owner), device=owner.device)
        room = pad(mask[owner], (0, draws.shape[1]), value=1)
        ended = torch.zeros_like(slots, dtype=torch.bool)
        return logits[owner], Running(cache, slots, draws, room, mask.sum(-1)[owner], ended)

    def _forward(self, cache: DynamicCache, ids: Tensor, mask: Tensor, at: Tensor) -> Tensor:
        """Logits [B, V] behind the last of the new tokens `ids` at positions `at`, both [B, n]."""
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": at, **self.last_only}
        out: Any = self.model(**given, past_key_values=cache, use_cache=True)
        return out.logits[:, -1]  # type: ignore[no-any-return]

    def _continued(self, logits: Tensor, running: Running, settings: SamplingSettings) -> Tensor:
        """New tokens [B, T]; what stands behind a row's first end token has no meaning."""
        warp, eos = warpers(settings), torch.tensor(self.eos).to(logits.device)
        tokens = torch.zeros_like(running.draws, dtype=torch.long)
        limit, width = tokens.shape[1], running.mask.shape[1] - tokens.shape[1]
        for step in range(limit):
            new = choose(logits, running.draws[:, step], warp)
            tokens[running.slots, step] = new
            running.ended |= torch.isin(new, eos)
            if settings.stop:
                self._end_stopped(running, tokens, step, settings.stop)
            alive = int((~running.ended).sum())
            if not alive or step + 1 == limit:
                break
            new = running.shrunk(new, alive)[:, None]
            seen, at = running.mask[:, : width + step + 1], (running.lengths + step)[:, None]
            logits = self._forward(running.cache, new, seen, at)
        return tokens

    def _end_stopped(
        self, running: Running, tokens: Tensor, step: int, stop: Sequence[str]
    ) -> None:
        """End the rows whose text holds a stop string; an end token marks the place.

        Only the last tokens are read: a token is a character at least, or part of one.
        """
        reach = 4 * max(map(len, stop)) + 4
        tails = tokens[running.slots, max(0, step + 1 - reach) : step + 1].tolist()
        texts = self.tokenizer.batch_decode(tails, skip_special_tokens=True)
        found = [cut_at_stop(text, stop) is not None for text in texts]
        met = torch.tensor(found, device=tokens.device) & ~running.ended
        if step + 1 < tokens.shape[1]:
            tokens[running.slots[met], step + 1] = self.eos[0]
        running.ended |= met

    def _completions(self, rows: list[list[int]], stop: Sequence[str]) -> list[Completion]:
        """Each row cut at its first end token; a row without one was cut by the limit."""
        ends = set(self.eos)
        kept = [next((i for i, t in enumerate(row) if t in ends), len(row)) for row in rows]
        answers = [row[:n] for row, n in zip(rows, kept, strict=True)]
        texts = self.tokenizer.batch_decode(answers, skip_special_tokens=True)
        return [
            _completion(text, n, ended=n < len(row), stop=stop)
            for text, row, n in zip(texts, rows, kept, strict=True)
        ]


def _completion(text: str, tokens: int, *, ended: bool, stop: Sequence[str]) -> Completion:
    """`tokens` without the end token, which counts where the model wrote it."""
    if (before := cut_at_stop(text, stop)) is not None:
        return Completion(before, tokens, "stop")
    return Completion(text, tokens + ended, "stop" if ended else "length")


def eos_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids that end an answer: the generation config's, else the tokenizer's."""
    config = getattr(model, "generation_config", None)
    found = getattr(config, "eos_token_id", None)
    found = tokenizer.eos_token_id if found is None else found
    if found is None:
        raise ValueError("the model has no end token: set eos_token_id in generation_config.json")
    return [found] if isinstance(found, int) else list(found)

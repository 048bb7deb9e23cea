"""Sampling with a Hugging Face model in this process: no server, any device, PEFT included.

Five things make it faster than `generate`: a prompt is read once and held once for all its
samples, rows of similar length share a batch, rows that have ended leave it, waiting ones take
their place, and nothing that is kept is copied per token. `docs/performance.md` has the numbers.
Shapes below: P distinct prompts in a batch, B rows (one per sample), L tokens in the longest
prompt, T the limit on new tokens, V the vocabulary.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer

from orchestrator.sampling.base import (
    Completion,
    Request,
    Sampler,
    SamplingSettings,
    cut_at_stop,
    render,
)
from orchestrator.sampling.decoding import (
    SHRINK_BELOW,
    DecodeBatch,
    PreallocatedLayer,
    RepeatedPrefixCache,
    left_padded,
    uniforms,
    warpers,
)
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.sharing import SharedPrefixCache, attending

log = logging.getLogger(__name__)


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

    `rows_per_batch` bounds memory; results depend on it through rounding alone. None takes what
    a small model on a CPU is fastest with, and half of that on a GPU, where memory is scarcer.
    """

    adapts = True

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        chat_template_kwargs: dict[str, Any] | None = None,
        rows_per_batch: int | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.chat_template_kwargs = chat_template_kwargs or {}
        self.rows_per_batch = rows_per_batch or (256 if self._device().type == "cpu" else 128)
        # The signature of a PEFT wrapper's forward says nothing, so the model beneath is asked.
        self.base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.eos = eos_ids(self.base, tokenizer)
        takes = inspect.signature(self.base.forward).parameters
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}

    @classmethod
    def load(cls, source: ModelSource, device: str | None = None, lora_rank: int = 0) -> Self:
        """A sampler of the source's model; raises what `load_model` raises."""
        return cls(*load_model(source, device), source.chat_template_kwargs)

    def adapt(self, folder: Path) -> None:
        """Answer with this adapter; the base model's weights stay where they are."""
        from peft import PeftModel

        if self.model is self.base:
            self.model = PeftModel.from_pretrained(self.base, str(folder), adapter_name="0")
            return
        [before] = self.model.peft_config
        self.model.load_adapter(str(folder), str(int(before) + 1))
        self.model.set_adapter(str(int(before) + 1))
        self.model.delete_adapter(before)

    def count_tokens(self, requests: Sequence[Request]) -> list[int]:
        """Length in tokens of each rendered prompt."""
        return [len(ids) for ids in self._rendered(requests)]

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """Per request, one completion per wanted sample index, in the order asked."""
        prompts = self._rendered(requests)
        begin = partial(self._begun, requests, prompts, settings)
        drawn: dict[Row, Completion] = {}
        # The longest prompts come first: what does not fit fails early, and neighbours are alike.
        order = sorted(range(len(requests)), key=lambda i: -len(prompts[i]))
        todo = [Row(i, sample) for i in order for sample in requests[i].samples]
        with evaluating(self.model):
            while todo:
                drawn |= self._drawn(todo[: self._batch_size(len(todo))], begin, settings)
                todo = [row for row in todo if row not in drawn]
        return [[drawn[Row(i, s)] for s in r.samples] for i, r in enumerate(requests)]

    def _rendered(self, requests: Sequence[Request]) -> list[list[int]]:
        return [render(self.tokenizer, r.messages, self.chat_template_kwargs) for r in requests]

    def _batch_size(self, rows: int) -> int:
        """All rows where rows can join a batch, else as many as make batches of near equal size."""
        if SharedPrefixCache.suit(self.base):
            return rows
        return -(-rows // -(-rows // self.rows_per_batch))

    def _drawn(
        self, rows: list[Row], begin: Callable[[list[Row]], DecodeBatch], settings: SamplingSettings
    ) -> dict[Row, Completion]:
        """Completions of the rows; where memory ended, of some, and the next batch is smaller."""
        drawn: dict[Row, Completion] = {}
        try:
            for ended, tokens in self._ended(rows, begin, settings):
                answers = self._completions(tokens.tolist(), settings.stop)
                drawn |= zip([rows[i] for i in ended.tolist()], answers, strict=True)
        except torch.OutOfMemoryError:
            if self.rows_per_batch == 1:
                raise
            self.rows_per_batch //= 2
            log.warning("out of memory: %d rows per batch from here on", self.rows_per_batch)
        return drawn

    def _ended(
        self, rows: list[Row], begin: Callable[[list[Row]], DecodeBatch], settings: SamplingSettings
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Places in `rows` [E] and new tokens [E, T] of rows that have ended, till all have."""
        warp, eos = warpers(settings), torch.tensor(self.eos).to(self._device())
        begun, running = 0, cast(DecodeBatch | None, None)
        while True:
            if count := self._joining(rows, begun, running):
                new = begin(rows[begun : begun + count])
                new.slots += begun
                begun, running = begun + count, running.joined(new) if running else new
            if running is None:
                return
            running.write(warp, eos)
            self._end_stopped(running, settings.stop)
            alive = int((~running.ended).sum())
            if alive < SHRINK_BELOW * len(running.ended):
                yield running.slots[running.ended], running.tokens[running.ended, :-1]
                running = running.writing() if alive else None
            if running:
                running.logits = self._forward(**running.reading())

    def _joining(self, rows: list[Row], begun: int, running: DecodeBatch | None) -> int:
        """How many of the rows behind `begun` join now: whole prompts where one fits."""
        free = self.rows_per_batch - (len(running.ended) if running else 0)
        if begun + free >= len(rows):
            return len(rows) - begun
        if free < (1 - SHRINK_BELOW) * self.rows_per_batch:
            return 0
        fit, cut = rows[begun : begun + free], rows[begun + free].request
        whole = next((i for i, row in enumerate(fit) if row.request == cut), free)
        return whole or (0 if running else free)

    def _begun(
        self,
        requests: Sequence[Request],
        prompts: list[list[int]],
        settings: SamplingSettings,
        rows: list[Row],
    ) -> DecodeBatch:
        """Rows that have read their prompts, each of which is read once."""
        distinct = {index: i for i, index in enumerate(dict.fromkeys(r.request for r in rows))}
        seed, limit, device = settings.seed, settings.max_completion_length, self._device()
        table = [uniforms(seed, requests[r.request].prompt_id, r.sample, limit + 1) for r in rows]
        owner = torch.tensor([distinct[row.request] for row in rows]).to(device)
        logits, read = self._read([prompts[i] for i in distinct], owner)
        return DecodeBatch(
            prompts=read,
            logits=logits,
            slots=torch.arange(len(rows), device=device),
            draws=torch.from_numpy(np.stack(table)).to(device),
            tokens=torch.full((len(rows), limit + 1), self.eos[0], device=device),
            steps=torch.zeros_like(owner),
            ended=torch.zeros_like(owner, dtype=torch.bool),
        )

    def _read(
        self, prompts: list[list[int]], owner: Tensor
    ) -> tuple[Tensor, SharedPrefixCache | RepeatedPrefixCache]:
        """First logits [B, V] of the rows of prompts `owner` [B], and what they attend to."""
        ids, mask = (part.to(owner.device) for part in left_padded(prompts))
        cache, share = DynamicCache(config=self.base.config), SharedPrefixCache.suit(self.base)
        # Only the plain kind: sliding and linear layers keep the library's own bookkeeping.
        for i, layer in enumerate(cache.layers):
            cache.layers[i] = PreallocatedLayer() if type(layer) is DynamicLayer else layer
        given = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp_(min=0)}
        logits = self._forward(input_ids=ids, past_key_values=cache, **given)[owner]
        return logits, (SharedPrefixCache if share else RepeatedPrefixCache)(cache, mask, owner)

    def _forward(self, **given: Any) -> Tensor:
        """Logits [B, V] behind the last of the new tokens."""
        with attending(self.base, given):
            out: Any = self.model(**given, **self.last_only)
        return out.logits[:, -1]

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device  # a trainer may have moved the model

    def _end_stopped(self, running: DecodeBatch, stop: Sequence[str]) -> None:
        """End the rows whose text holds a stop string.

        Only the last tokens are read: a token is a character at least, or part of one.
        """
        if not stop:
            return
        reach = 4 * max(map(len, stop)) + 4
        tails = [row[max(0, n - reach) : n] for row, n in running.written()]
        texts = self.tokenizer.batch_decode(tails, skip_special_tokens=True)
        found = [cut_at_stop(text, stop) is not None for text in texts]
        running.ended |= torch.tensor(found, device=running.ended.device)

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

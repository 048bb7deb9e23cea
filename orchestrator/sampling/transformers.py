"""Sampling with a Hugging Face model in this process: no server, any device, PEFT included.

Six things make it faster than `generate`: the tokens that all prompts begin with are read once, a
prompt is read and cached once for all its samples, prompts of similar length share a batch, rows
that have ended leave the batch, waiting rows take their place, and a shared cache is not copied for
every token. `docs/notes/sampling-cpu.md` has the numbers.

Shapes below: P distinct prompts in a batch, B rows (one per sample), L tokens in the longest
prompt, T the limit on new tokens, V the vocabulary.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedTokenizerBase

from orchestrator.plugins.counts import counted
from orchestrator.sampling.base import (
    Completion,
    Request,
    SamplingError,
    SamplingSettings,
    TokenSampler,
    cut_at_stop,
)
from orchestrator.sampling.batches import PROMPT_TOKENS, READ_TOKENS, SHRINK_BELOW, BatchLimits, Row
from orchestrator.sampling.decoding import (
    DecodeBatch,
    RepeatedPrefixCache,
    SharedPrefixCache,
    allocation_errors,
    common_beginning,
    left_padded,
    padding_first,
    repeated,
    shared_attention,
    uniforms,
)
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource, context_of
from orchestrator.sampling.transformers_internals import attends_plainly, scales_with_length
from orchestrator.storage.errors import one_line

log = logging.getLogger(__name__)


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Disable dropout and gradients inside; every module's own mode is restored afterwards.

    Not `inference_mode`: a buffer recomputed there (scaled rotary frequencies) breaks training.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


Prefill = Callable[[Sequence[Row]], DecodeBatch]


class SampledTokens(NamedTuple):
    """The token ids of a completion and their log-probabilities (see `sample_tokens`)."""

    ids: list[int]
    log_probs: list[float]


class TransformersSampler(TokenSampler):
    """Holds a loaded model, which may be a PEFT model in the middle of its training.

    limits: bound the memory of a batch; results depend on them only by rounding. The default is 256
    rows on a CPU, where a small model is fastest, and 128 on a GPU, where memory is scarcer.
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
        on_cpu = self._device().type == "cpu"
        rows, read = (256, READ_TOKENS) if on_cpu else (128, PROMPT_TOKENS)
        self.limits = BatchLimits(rows_per_batch or rows, read=read)
        # A PEFT wrapper's forward has a generic signature; the base model's has the arguments.
        self.base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.context = context_of(self.base.config.to_dict()) or inf
        self.eos = eos_ids(self.base, tokenizer)
        parameters = inspect.signature(self.base.forward).parameters
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}

    @classmethod
    def version(cls) -> str:
        return f"transformers {transformers.__version__}"

    @classmethod
    def load(cls, source: ModelSource, device: str | None = None, lora_rank: int = 0) -> Self:
        """A sampler of the source's model. Raises the errors of `load_model`."""
        return cls(*load_model(source, device), source.chat_template_kwargs)

    def adapt(self, folder: Path) -> None:
        """Sample with this adapter from now on; the base model stays loaded."""
        from peft import PeftModel

        try:
            if self.model is self.base:
                self.model = PeftModel.from_pretrained(self.base, str(folder), adapter_name="0")
                return
            [old] = self.model.peft_config
            new = str(int(old) + 1)
            self.model.load_adapter(str(folder), new)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a configuration may make the library raise anything
            reason = one_line(f"{type(error).__name__}: {error}")[:300]
            raise SamplingError(f"adapter {folder} cannot be loaded: {reason}") from error
        self.model.set_adapter(new)
        self.model.delete_adapter(old)

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """Per request, one completion per sample index, in the order of the request.

        A prompt that fills the model's context gives errors. Raises SamplingError if a single
        prompt takes more memory than available.
        """
        prompts = self.rendered(requests)
        fitting = [i for i, ids in enumerate(prompts) if len(ids) < self.context]
        places = [{sample: j for j, sample in enumerate(r.samples)} for r in requests]
        drawn = [[Completion("", 0, "error") for _ in request.samples] for request in requests]

        def complete(rows: dict[Row, list[int]]) -> None:
            completions = self._completions([*rows.values()], settings.stop)
            for row, completion in zip(rows, completions, strict=True):
                request = fitting[row.request]
                place = places[request][row.sample]
                drawn[request][place] = completion
                if self.listener:
                    self.listener.on_completion(request, place, completion)

        try:
            self.sample_ids(
                [requests[i] for i in fitting], [prompts[i] for i in fitting], settings, complete
            )
        except torch.OutOfMemoryError as error:
            raise SamplingError(str(error)) from error
        return drawn

    def _completions(self, sampled: list[list[int]], stop: Sequence[str]) -> list[Completion]:
        """The completions of these token ids."""
        ends = [bool(ids) and ids[-1] in self.eos for ids in sampled]  # the rest was cut
        kept = [ids[:-1] if ended else ids for ids, ended in zip(sampled, ends, strict=True)]
        texts = self.tokenizer.batch_decode(kept, skip_special_tokens=True)
        drawn = []
        for text, ids, own, ended in zip(texts, sampled, kept, ends, strict=True):
            before = cut_at_stop(text, stop)
            if before is not None:
                drawn.append(Completion(before, len(own), "stop", ids))
            else:  # an end token counts
                drawn.append(Completion(text, len(ids), "stop" if ended else "length", ids))
        return drawn

    def sample_ids(
        self,
        requests: Sequence[Request],
        prompts: list[list[int]],
        settings: SamplingSettings,
        complete: Callable[[dict[Row, list[int]]], None] = lambda rows: None,
    ) -> list[list[SampledTokens]]:
        """The same as tokens, including the end token; `prompts` are the rendered requests.

        `complete` is called with rows and their ids as soon as they have left the batch.
        """
        beginning: DynamicCache | None = None
        done: dict[Row, SampledTokens] = {}
        # The longest prompts come first, so that too little memory shows early and lengths are
        # similar.
        order = sorted(range(len(requests)), key=lambda i: -len(prompts[i]))
        todo = [Row(i, s, len(prompts[i])) for i in order for s in requests[i].samples]
        with evaluating(self.model):
            while todo:
                rows = todo if self._joins() else self.limits.whole_batch(todo)
                try:
                    with allocation_errors():
                        if beginning is None:
                            beginning = self._beginning(prompts)
                        prefill = partial(self._prefill, requests, prompts, settings, beginning)
                        common = beginning.get_seq_length()
                        for ended in self._decode(rows, prefill, settings, common):
                            left = {
                                rows[slot]: SampledTokens(ids[:length], log_probs[:length])
                                for slot, ids, log_probs, length in zip(
                                    *(t.tolist() for t in ended), strict=True
                                )
                            }
                            done |= left
                            complete({row: tokens.ids for row, tokens in left.items()})
                except torch.OutOfMemoryError as error:
                    if self.limits.rows == 1:
                        row = next(row for row in rows if row not in done)
                        raise torch.OutOfMemoryError(
                            f"prompt {requests[row.request].prompt_id} of "
                            f"{counted(row.tokens, 'token')} "
                            "takes more memory than available, even alone: shorten or remove it"
                        ) from error
                    self.limits.halve()
                    log.warning("out of memory: %d rows per batch from here on", self.limits.rows)
                todo = [row for row in todo if row not in done]
        return [
            [done[Row(i, sample, len(prompts[i]))] for sample in request.samples]
            for i, request in enumerate(requests)
        ]

    def _decode(
        self, rows: Sequence[Row], prefill: Prefill, settings: SamplingSettings, common: int
    ) -> Iterator[list[Tensor]]:
        """Yield ended rows until all have ended: positions in `rows` [E], tokens [E, T + 1], their
        log-probabilities [E, T + 1], and the number of sampled tokens [E].

        The first `common` tokens of all prompts have been read.
        """
        eos = torch.tensor(self.eos).to(self._device())
        started = 0
        batch = cast(DecodeBatch | None, None)
        counted_ends = 0
        while True:
            running = len(batch.ended) if batch else 0
            read = tuple(batch.prompts.mask.shape) if batch else (0, 0)
            if count := self.limits.joining(rows, started, running, *read):
                more = rows[started : started + count]
                parts = self.limits.passes(more, common) if self._joins() else [more]
                new, *others = map(prefill, parts)
                new = new.concat(others)
                new.slots = torch.arange(started, started + count, device=eos.device)
                started = started + count
                batch = batch.concat([new]) if batch else new
            if batch is None:
                return
            batch.step(settings, eos)
            self._end_stopped(batch, settings.stop)
            alive = int((~batch.ended).sum())
            if self.listener and (uncounted := len(batch.ended) - alive - counted_ends):
                self.listener.on_ended(uncounted)
                counted_ends += uncounted
            if alive < SHRINK_BELOW * len(batch.ended):
                drawn = (batch.slots, batch.tokens, batch.log_probs, batch.steps)
                yield [part[batch.ended] for part in drawn]
                batch = batch.running() if alive else None
                counted_ends = 0
            if batch:
                batch.logits = self._forward(**batch.step_inputs())

    def _joins(self) -> bool:
        """Whether rows can be added to a batch."""
        return attends_plainly(self.base)

    def _beginning(self, prompts: list[list[int]]) -> DynamicCache:
        """The keys and values of the tokens that all prompts begin with, in one row, or none."""
        cache = DynamicCache(config=self.base.config)
        joins = self._joins() and not scales_with_length(self.base)
        if joins and (common := common_beginning(prompts)):
            ids = torch.tensor([prompts[0][:common]]).to(self._device())
            self._forward(input_ids=ids, past_key_values=cache)
        return cache

    def _prefill(
        self,
        requests: Sequence[Request],
        prompts: list[list[int]],
        settings: SamplingSettings,
        beginning: DynamicCache,
        rows: Sequence[Row],
    ) -> DecodeBatch:
        """A batch of rows that have read their prompts; each prompt is read once."""
        distinct = {index: i for i, index in enumerate(dict.fromkeys(r.request for r in rows))}
        seed = settings.seed
        limit = settings.max_completion_length
        device = self._device()
        draws = [uniforms(seed, requests[r.request].prompt_id, r.sample, limit + 1) for r in rows]
        limits = [requests[row.request].limit_of(settings) for row in rows]
        owner = torch.tensor([distinct[row.request] for row in rows]).to(device)
        cache, common = repeated(beginning, len(distinct)), beginning.get_seq_length()
        own = left_padded([prompts[i][common:] for i in distinct])
        ids, mask = (part.to(device) for part in own)
        mask = pad(mask, (common, 0), value=1)
        logits = self._forward(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp_(min=0)[:, common:],
            past_key_values=cache,
        )
        if common:
            mask = padding_first(cache, mask)
        kind = SharedPrefixCache if self._joins() else RepeatedPrefixCache
        return DecodeBatch(
            prompts=kind(cache, mask, owner),
            logits=logits[owner],
            slots=torch.arange(len(rows), device=device),
            draws=torch.from_numpy(np.stack(draws)).to(device),
            tokens=torch.full((len(rows), limit + 1), self.eos[0], device=device),
            log_probs=torch.zeros((len(rows), limit + 1), device=device),
            steps=torch.zeros_like(owner),
            limits=torch.tensor(limits).to(device),
            ended=torch.zeros_like(owner, dtype=torch.bool),
        )

    def _forward(self, **inputs: Any) -> Tensor:
        """Logits [B, V] after the last of the new tokens."""
        with shared_attention(self.base, inputs):
            out: Any = self.model(**inputs, **self.last_only)
        return out.logits[:, -1]

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device  # a trainer may have moved the model

    def _end_stopped(self, batch: DecodeBatch, stop: Sequence[str]) -> None:
        """End the rows whose text contains a stop string.

        Decoding the last tokens is enough, since a token is at least one character, or part of one.
        """
        if not stop:
            return
        reach = 4 * max(map(len, stop)) + 4
        tails = [row[max(0, n - reach) : n] for row, n in batch.sampled()]
        texts = self.tokenizer.batch_decode(tails, skip_special_tokens=True)
        stopped = [cut_at_stop(text, stop) is not None for text in texts]
        batch.ended |= torch.tensor(stopped, device=batch.ended.device)


def eos_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids that end a completion: the generation config's, else the tokenizer's."""
    config = getattr(model, "generation_config", None)
    ids = getattr(config, "eos_token_id", None)
    ids = tokenizer.eos_token_id if ids is None else ids
    if ids is None:
        raise ValueError("the model has no end token: set eos_token_id in generation_config.json")
    return [ids] if isinstance(ids, int) else list(ids)

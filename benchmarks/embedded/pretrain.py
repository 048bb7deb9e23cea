"""Training of the embedded models: careful steps first, then a mixture of styles."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.embedded.lesson import OFFSETS, Lesson, Stage
from benchmarks.embedded.vocabulary import CLOSE, OPEN
from orchestrator.sampling.base import render

BATCH = 32
POOL = 8 * BATCH  # drawn at once and batched by length, to limit padding
LEARNING_RATE = 3e-3
WARM_UP = 100
Example = tuple[list[int], list[bool]]  # token ids of a chat, and which of them are learned


@dataclass(frozen=True)
class Point:
    """One step of the loss curve."""

    stage: str
    step: int
    loss: float
    seconds: float


def make_model(tokenizer: Any, seed: int, offsets: Sequence[int] = OFFSETS) -> LlamaForCausalLM:
    """A decoder of about 0.5 M parameters, in float32; see `aim_first_layer`.

    Heads of 32 because vLLM's attention on CPUs serves no smaller ones.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        attention_bias=True,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    aim_first_layer(model, offsets)
    return model


@torch.no_grad()
def aim_first_layer(model: LlamaForCausalLM, offsets: Sequence[int]) -> None:
    """Initialize head h of the first layer to attend offsets[h] tokens back.

    Copying (what followed this name?) relies on such heads, and a model this small may need
    thousands of steps to learn them. Biases of query and key, rotated against each other by that
    distance, are enough; training can change them.
    """
    attention = model.model.layers[0].self_attn
    size = attention.head_dim
    theta = model.config.rope_parameters["rope_theta"]  # type: ignore[index]
    turn = theta ** (-torch.arange(0, size, 2) / size)
    fast = 5.0 * (turn > theta ** (-1 / 3))  # slower rotations barely tell neighbours apart
    for head, offset in enumerate(offsets):
        rows = slice(head * size, (head + 1) * size)
        attention.k_proj.bias[rows] = torch.cat([fast, 0 * fast])
        attention.q_proj.bias[rows] = torch.cat(
            [fast * torch.cos(offset * turn), -fast * torch.sin(offset * turn)]
        )


def train(
    model: LlamaForCausalLM, tokenizer: Any, lesson: Lesson[Any], seed: int, scale: float
) -> Iterator[Point]:
    """Train through all stages, their steps times `scale`; yields a point per step."""
    start = time.monotonic()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=0.02, betas=(0.9, 0.98), fused=True
    )
    counts = [round(stage.steps * scale) for stage in lesson.stages]
    step = 0
    for stage, count in zip(lesson.stages, counts, strict=True):
        rng = random.Random(f"{seed}/{stage.name}")
        for batch in islice(batches(lesson, stage, tokenizer, rng), count):
            rate = LEARNING_RATE * learning_rate_share(step, sum(counts))
            loss = update(model, optimizer, batch, rate)
            step += 1
            yield Point(stage.name, step, loss, time.monotonic() - start)


def learning_rate_share(step: int, total: int) -> float:
    """Linear warm-up, constant, then linear decay to 3 % over the second half."""
    left = (total - step) / (total / 2)
    return min(1.0, (step + 1) / WARM_UP) * max(0.03, min(1.0, left))


def batches(
    lesson: Lesson[Any], stage: Stage[Any], tokenizer: Any, rng: random.Random
) -> Iterator[list[Example]]:
    """Endless batches of examples, alike in length."""
    source = stage.source(rng)
    while True:
        pool = [example(item, lesson, stage, tokenizer, rng) for item in islice(source, POOL)]
        pool.sort(key=lambda pair: len(pair[0]))
        groups = [pool[i : i + BATCH] for i in range(0, POOL, BATCH)]
        rng.shuffle(groups)
        yield from groups


def example(
    item: Any, lesson: Lesson[Any], stage: Stage[Any], tokenizer: Any, rng: random.Random
) -> Example:
    """One scenario's chat; learned are the assistant's tokens, with the end of each turn."""
    text = lesson.styled(item, rng)[1] if stage.mixed else lesson.careful(item)
    empty = [{"role": "user", "content": ""}]
    messages = lesson.task.messages(item.question()) if stage.with_question else empty
    prompt = render(tokenizer, messages, {})
    ids, learned = [*prompt, *tokenizer(text + CLOSE)["input_ids"]], [False] * len(prompt)
    header = tokenizer(f"{OPEN}assistant\n")["input_ids"]
    for end in range(len(prompt), len(ids)):
        closed = learned[-1] and ids[end - 1] == tokenizer.eos_token_id
        opened = ids[end - len(header) : end] == header
        learned.append(opened or (learned[-1] and not closed))
    return ids, learned


def update(
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    batch: list[Example],
    rate: float,
) -> float:
    """One optimiser step on the learned tokens; returns their mean loss in nats."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    ids, learned = padded(batch)
    hidden = model.model(ids[:, :-1]).last_hidden_state
    targets, mask = ids[:, 1:], learned[:, 1:]
    loss = F.cross_entropy(model.lm_head(hidden[mask]), targets[mask])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.item())


def padded(batch: list[Example]) -> tuple[Tensor, Tensor]:
    """Token ids [B, L], padded at the end, and whether each is learned [B, L]."""
    length = max(len(ids) for ids, _ in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    learned = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, (tokens, marks) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        learned[row, : len(tokens)] = torch.tensor(marks)
    return ids, learned

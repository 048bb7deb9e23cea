"""Computations that the loss can skip: repeated prompts of a group, and rows without effect.

The rows of a batch are concatenated to one sequence without padding: each prompt, followed by the
completions of the adjacent rows that have it ("Prefix Grouper", arXiv 2506.05433). Everything
except attention works token by token. Attention runs group by group: a prompt attends to itself,
and each completion to its prompt and itself. Tokens keep their positions in TRL's padded rows, so
that results differ only by rounding.

Batches are TRL's: tensors with one entry per row, and scalars for all rows. A micro-batch has B
rows, with P columns of prompts (padded on the left) and C columns of completions (padded on the
right). The sequence has T tokens, N of them scored; there are H heads of size d. A group has R rows
with a prompt of p tokens; at most c of each row's own tokens are read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from orchestrator.sampling.transformers_internals import (
    attends_plainly,
    has_dropout,
    scales_with_length,
)

Inputs = dict[str, Tensor]
PROMPT = ("prompt_ids", "prompt_mask")
# Losses that divide by the unmasked tokens; all other losses divide by rows, including masked ones.
BY_TOKENS = {"bnpo", "dapo", "cispo", "vespo"}


def loss_mask(batch: Inputs) -> Tensor:
    """Tokens [B, C] that count in the loss."""
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def idle_rows(batch: Inputs, beta: float) -> Tensor:
    """Rows [B] with a contribution of exactly 0 to the loss and its gradient.

    These are rows with all tokens masked; without a KL term also rows with an advantage of 0,
    because every loss of TRL is a multiple of it.
    """
    idle = loss_mask(batch).sum(1) == 0
    if beta == 0:
        advantages = batch["advantages"]
        idle |= (advantages.unsqueeze(1) if advantages.ndim == 1 else advantages).eq(0).all(1)
    return idle


def rows_of(batch: Inputs, rows: Tensor | slice) -> Inputs:
    """The batch with only these rows, in this order."""
    return {name: value[rows] if value.ndim else value for name, value in batch.items()}


def arranged(batches: Sequence[Inputs], window: int, beta: float) -> list[Inputs]:
    """The same micro-batches, with the rows of each `window` of them reordered.

    Rows that are not idle come first. The rows of a prompt stay together, longest groups first, so
    that a micro-batch has few prompts, of similar lengths. The order depends only on the batch's
    `row` [B] (its number in the generation) and `group` [B], not on the current order.
    """
    result: list[Inputs] = []
    for start in range(0, len(batches), window):
        part = batches[start : start + window]
        whole = {
            name: torch.cat([batch[name] for batch in part]) if value.ndim else value
            for name, value in part[0].items()
        }
        idle = idle_rows(whole, beta)
        lengths = whole["completion_mask"].sum(1)
        parts = (idle, lengths, whole["group"], whole["row"])
        rows = [*zip(*(part.tolist() for part in parts), strict=True)]
        longest: dict[int, int] = {}
        for unused, length, group, _ in rows:
            longest[group] = max(longest.get(group, 0), 0 if unused else length)
        keys = [  # idle rows: shortest first
            (unused, length if unused else -longest[group], group, -length, row)
            for unused, length, group, row in rows
        ]
        order = sorted(range(len(rows)), key=keys.__getitem__)
        ordered = rows_of(whole, torch.tensor(order, device=idle.device))
        size = len(order) // len(part)
        result += [rows_of(ordered, slice(i, i + size)) for i in range(0, len(order), size)]
    return result


def trim_padding(batch: Inputs) -> Inputs:
    """The batch without the completion columns that are padding in every row; at least one is left.

    Prompts keep their padding: TRL counts positions from the first column.
    """
    columns = batch["completion_mask"].shape[1]
    longest = max(1, int(batch["completion_mask"].sum(1).max()))
    return {
        name: value[:, :longest]
        if name not in PROMPT and value.ndim == 2 and value.shape[1] == columns
        else value
        for name, value in batch.items()
    }


def denominator_ratio(rows: Inputs, inputs: Inputs, loss_type: str) -> float:
    """TRL's divisor for these rows alone, divided by its divisor for all rows."""
    if loss_type == "bnpo":
        return float(loss_mask(rows).sum().clamp(min=1) / loss_mask(inputs).sum().clamp(min=1))
    return 1.0 if loss_type in BY_TOKENS else len(rows["row"]) / len(inputs["row"])


def group_advantages(
    rewards: Tensor, sizes: Sequence[int], scale: str | bool
) -> tuple[Tensor, Tensor]:
    """TRL's advantages [B] for groups of these sizes, and their divisors [B].

    Each row has the same weight in the loss, so that a group counts by its size. `scale` is TRL's
    `scale_rewards`: group, batch or none.
    """
    parts = rewards.split([*sizes])
    centred = torch.cat([part - part.mean() for part in parts])
    spread = torch.cat([part.std().expand_as(part) for part in parts])
    if scale == "batch":
        spread = rewards.std().expand_as(rewards)
    return (centred if scale == "none" else centred / (spread + 1e-4)), spread


# The library's own function, for all calls without `packed_rows`.
sdpa = AttentionInterface()["sdpa"]


class Group(NamedTuple):
    """The place of adjacent rows with one prompt in the sequence.

    grid: [R * c], the position of each row's own tokens; padding has any of these positions.
    places: the index in the grid of each own token. mask: [c, p + c], the tokens that a row's own
    tokens attend to.
    """

    begin: int
    prompt: int
    end: int
    rows: int
    grid: Tensor
    places: Tensor
    mask: Tensor


@dataclass
class PackedRows:
    """Rows in one sequence: `ids` and `positions` [1, T].

    scored: [N], the positions from which the tokens `labels` [1, N] are predicted, row by row.
    """

    ids: Tensor
    positions: Tensor
    scored: Tensor
    labels: Tensor
    groups: list[Group]
    attended: int = 0  # layers that attended group by group in the last pass


def why_not(model: Any) -> str:
    """Why a model's rows cannot share their prompts; empty if they can.

    Dropout would drop the same parts of the prompt for all rows of a group.
    """
    base = model.get_base_model()
    if not attends_plainly(base):
        return "not every layer attends to all earlier tokens with sdpa"
    if scales_with_length(base):
        return "the frequencies of its rotary embeddings depend on the length of the batch"
    return "it has dropout" if has_dropout(model) else ""


def pack(input_ids: Tensor, attention_mask: Tensor, columns: int) -> PackedRows:
    """The rows of TRL's padded batch, both [B, L], whose last `columns` hold completions."""
    width = input_ids.shape[1] - columns
    lengths = [attention_mask[:, :width].sum(1).tolist(), attention_mask[:, width:].sum(1).tolist()]
    rows = [
        (tuple(row[width - prompt : width]), row[width : width + completion])
        for row, prompt, completion in zip(input_ids.tolist(), *lengths, strict=True)
    ]
    ids: list[int] = []
    positions: list[int] = []
    scored: list[int] = []
    labels: list[int] = []
    groups, device = [], input_ids.device
    for prompt, members in groupby(rows, key=lambda row: row[0]):
        begin = len(ids)
        own = [completion for _, completion in members]
        ids += prompt
        positions += range(width - len(prompt), width)
        starts = []
        for completion in own:
            starts.append(len(ids))
            read = completion[:-1]  # nothing is predicted from the last token
            scored += [begin + len(prompt) - 1, *range(len(ids), len(ids) + len(read))][
                : len(completion)
            ]
            labels += completion
            ids += read
            positions += range(width, width + len(read))
        read_lengths = [max(0, len(completion) - 1) for completion in own]
        groups.append(_group(begin, len(prompt), starts, read_lengths, device))
    flat = (
        torch.tensor(each, dtype=torch.long, device=device) for each in (ids, positions, labels)
    )
    packed_ids, packed_positions, packed_labels = (each[None] for each in flat)
    at = torch.tensor(scored, dtype=torch.long, device=device)
    return PackedRows(packed_ids, packed_positions, at, packed_labels, groups)


def _group(
    begin: int, prompt: int, starts: list[int], lengths: list[int], device: torch.device
) -> Group:
    longest = max(lengths)
    columns = torch.arange(longest)
    start = torch.tensor(starts)[:, None]
    length = torch.tensor(lengths)[:, None]
    # [rows, longest]: the packed place of each token; padding reads the first row's first one.
    grid = torch.where(columns < length, start + columns, starts[0])
    places = (columns < length).flatten().nonzero()[:, 0]
    # A token sees the whole prompt and the earlier tokens of its row.
    mask = torch.ones(longest, prompt + longest, dtype=torch.bool).tril(prompt)
    parts = (part.to(device) for part in (grid.flatten(), places, mask))
    return Group(begin, prompt, starts[-1] + lengths[-1], len(starts), *parts)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed_rows: PackedRows | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention [1, T, H, d] of packed rows, group by group; the library's for all other rows.

    It replaces the library's function, so that a layer that is recomputed in the backward pass
    (gradient checkpointing) attends as in the forward pass.
    """
    if packed_rows is None:
        options |= {"scaling": scaling}
        return sdpa(module, query, key, value, attention_mask, **options)
    if options.get("position_bias") is not None or options.get("softcap") is not None:
        raise NotImplementedError("packed rows attend without a position bias or a soft cap")
    packed_rows.attended += 1
    repeats = query.shape[1] // key.shape[1]
    q, k, v = query[0], *(t[0].repeat_interleave(repeats, 0) for t in (key, value))
    parts = [_attend_group(q, k, v, group, scaling) for group in packed_rows.groups]
    return torch.cat(parts, 1).transpose(0, 1)[None].contiguous(), None


def _attend_group(q: Tensor, k: Tensor, v: Tensor, group: Group, scaling: float | None) -> Tensor:
    """Attention [H, tokens, d] of one group, from the whole sequence's [H, T, d]."""
    middle = group.begin + group.prompt if group.rows > 1 else group.end
    first = slice(group.begin, middle)
    prompt = scaled_dot_product_attention(
        q[None, :, first], k[None, :, first], v[None, :, first], is_causal=True, scale=scaling
    )[0]
    if middle == group.end:  # one row, or only the prompt is read
        return prompt
    own = [t[:, group.grid].unflatten(1, (group.rows, -1)).transpose(0, 1) for t in (q, k, v)]
    keys, values = (
        torch.cat((t[:, first].expand(group.rows, -1, -1, -1), new), 2)
        for t, new in zip((k, v), own[1:], strict=True)
    )
    out = scaled_dot_product_attention(
        own[0], keys, values, attn_mask=group.mask, scale=scaling
    ).transpose(0, 1)
    return torch.cat((prompt, out.flatten(1, 2)[:, group.places]), 1)


def token_outputs(model: Any, base: Any, rows: PackedRows) -> Any:
    """TRL's output of `model` for packed rows: log_probs, entropy [1, N].

    base: the part of `model` that TRL gave a fused head. The head reads only the scored positions.
    Raises NotImplementedError if a layer has its own kind of attention.
    """

    def keep_scored(_module: Any, _inputs: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[:, rows.scored]
        return output

    handle = base.base_model.register_forward_hook(keep_scored)
    rows.attended = 0
    try:
        out = model(
            input_ids=rows.ids,
            position_ids=rows.positions,
            # With 4 dimensions, the library uses it unchanged. Unpacked rows do not use it.
            attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=rows.ids.device),
            packed_rows=rows,
            shift_labels=rows.labels,
            fused_lm_head=True,
        )
    finally:
        handle.remove()
    if rows.attended != base.config.get_text_config(decoder=True).num_hidden_layers:
        raise NotImplementedError("some do not call the library's attention")
    return out


def disagreement(packed: Callable[[], Tensor], padded: Callable[[], Tensor], limit: float) -> str:
    """Why log-probabilities of packed and padded rows differ; empty if they do not."""
    with torch.no_grad():
        expected = padded()
        try:
            difference = float((packed() - expected).abs().max())
        except torch.OutOfMemoryError:
            raise
        except (NotImplementedError, TypeError, AttributeError, RuntimeError) as error:
            return f"its layers refuse packed rows ({error})"
    return "" if difference < limit else f"log-probabilities differ by {difference:.2g}"


AttentionInterface.register("sdpa", attend)

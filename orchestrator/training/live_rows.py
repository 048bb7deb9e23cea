"""Which rows of a generation move the weights, and in what order micro-batches take them.

B is the number of rows of a micro-batch, P the columns of its prompts (padded on the left) and C of
its completions (padded on the right). A batch is TRL's: tensors with one entry per row, and scalars
that hold for all rows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Batch = dict[str, Tensor]
PROMPT = ("prompt_ids", "prompt_mask")
# Losses that divide by the tokens under the mask; the others divide by rows, masked ones included.
BY_TOKENS = {"bnpo", "dapo", "cispo", "vespo"}


def loss_mask(batch: Batch) -> Tensor:
    """Tokens [B, C] that count in the loss."""
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def idle_rows(batch: Batch, beta: float) -> Tensor:
    """Rows [B] whose part of the loss, and of its gradient, is exactly 0.

    A row whose tokens are all masked; without a KL term, also one whose advantage is 0, because
    every loss of TRL is a multiple of it.
    """
    idle = loss_mask(batch).sum(1) == 0
    if beta == 0:
        advantages = batch["advantages"]
        idle |= (advantages.unsqueeze(1) if advantages.ndim == 1 else advantages).eq(0).all(1)
    return idle


def rows_of(batch: Batch, rows: Tensor | slice) -> Batch:
    """The batch with these rows only, in this order."""
    return {name: value[rows] if value.ndim else value for name, value in batch.items()}


def arranged(batches: Sequence[Batch], window: int, beta: float) -> list[Batch]:
    """The same micro-batches with the rows of each `window` of them in another order.

    Rows that are not idle come first. The rows of a prompt stay together, longest groups first, so
    that a micro-batch holds few prompts, of similar lengths. The order depends on the batch's `row`
    [B] (its number in the generation) and `group` [B] alone, not on that of the rows here.
    """
    result: list[Batch] = []
    for start in range(0, len(batches), window):
        part = batches[start : start + window]
        whole = {
            name: torch.cat([batch[name] for batch in part]) if value.ndim else value
            for name, value in part[0].items()
        }
        idle, lengths = idle_rows(whole, beta), whole["completion_mask"].sum(1)
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


def cut(batch: Batch) -> Batch:
    """The batch without the columns of completions that are padding in every row; one is left.

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


def share_of(rows: Batch, inputs: Batch, loss_type: str) -> float:
    """What TRL would divide by for these rows alone, divided by what it is for all rows."""
    if loss_type == "bnpo":
        return float(loss_mask(rows).sum().clamp(min=1) / loss_mask(inputs).sum().clamp(min=1))
    return 1.0 if loss_type in BY_TOKENS else len(rows["row"]) / len(inputs["row"])

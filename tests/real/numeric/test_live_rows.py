"""Which rows of a batch move the weights: masks, idle rows, their order, and their share."""

from typing import Any

import pytest
import torch

from orchestrator.training.shortcuts import (
    BY_TOKENS,
    arranged,
    denominator_ratio,
    idle_rows,
    loss_mask,
    rows_of,
    trim_padding,
)

Batch = dict[str, torch.Tensor]


def batch_of(masks: list[list[int]], advantages: Any, **more: Any) -> Batch:
    """Rows with these completion masks, a group each."""
    rows = torch.arange(len(masks))
    batch = {"completion_mask": torch.tensor(masks), "advantages": torch.tensor(advantages)}
    return batch | {"row": rows, "group": rows} | {k: torch.tensor(v) for k, v in more.items()}


def test_a_token_counts_where_no_mask_leaves_it_out() -> None:
    batch = batch_of([[1, 1, 0], [1, 1, 1]], [1.0, 1.0])
    assert loss_mask(batch).tolist() == [[1, 1, 0], [1, 1, 1]]
    masked = batch | {"tool_mask": torch.tensor([[1, 0, 1], [0, 0, 1]])}
    assert loss_mask(masked).tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_row_is_idle_without_a_token_or_without_an_advantage_and_a_kl_term(beta: float) -> None:
    tools = [[1, 1], [1, 1], [0, 1], [0, 0]]
    batch = batch_of([[1, 1], [1, 0], [1, 0], [1, 1]], [0.0, -0.5, 1.0, 1.0], tool_mask=tools)
    assert idle_rows(batch, beta).tolist() == [beta == 0, False, True, True]
    by_token = batch | {"advantages": torch.tensor([[0.0, 0.0], [0.0, 0.5], [1.0, 1], [1, 1]])}
    assert idle_rows(by_token, beta).tolist() == [beta == 0, False, True, True]


def lengths_of(lengths: list[int], columns: int = 4) -> list[list[int]]:
    """Completion masks of these lengths."""
    return [[int(at < length) for at in range(columns)] for length in lengths]


def split(batch: Batch, count: int) -> list[Batch]:
    size = len(batch["row"]) // count
    return [rows_of(batch, slice(i * size, (i + 1) * size)) for i in range(count)]


def test_rows_are_taken_in_any_order_and_scalars_hold_for_all() -> None:
    batch = batch_of([[1], [0], [1]], [1.0, 2.0, 3.0], items=7)
    taken = rows_of(batch, torch.tensor([2, 0]))
    assert taken["advantages"].tolist() == [3, 1] and taken["row"].tolist() == [2, 0]
    assert int(taken["items"]) == 7 and taken.keys() == batch.keys()


def test_live_rows_come_first_by_the_longest_of_their_prompt_and_idle_ones_last() -> None:
    """Three prompts of two rows, which TRL has shuffled over micro-batches of two rows."""
    batch = batch_of(lengths_of([1, 4, 3, 3, 2, 1]), [0.0, 0, 1, 2, 1, 3], items=7)
    batch["group"] = torch.tensor([5, 5, 9, 8, 9, 8])
    # Prompt 9 has live rows of 3 and 2 tokens, prompt 8 of 3 and 1; the lower number comes first.
    # Those of prompt 5 have no advantage: the shorter comes first.
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 4, 2, 0]):
        shuffled = rows_of(batch, torch.tensor(order))
        taken = arranged(split(shuffled, 3), window=3, beta=0.0)
        assert [each["row"].tolist() for each in taken] == [[3, 5], [2, 4], [0, 1]]
        assert [each["group"].tolist() for each in taken] == [[8, 8], [9, 9], [5, 5]]
        assert [each["advantages"].tolist() for each in taken] == [[2, 3], [1, 1], [0, 0]]
        assert [int(each["items"]) for each in taken] == [7, 7, 7]
        with_kl = arranged(split(shuffled, 3), window=3, beta=0.1)  # no row is idle
        assert [each["row"].tolist() for each in with_kl] == [[1, 0], [3, 5], [2, 4]]


def test_an_idle_row_does_not_make_its_prompt_longer() -> None:
    batch = batch_of(lengths_of([4, 1, 2, 2]), [0.0, 1, 1, 1])
    batch["group"] = torch.tensor([1, 1, 2, 2])
    [taken] = arranged([batch], window=1, beta=0.0)
    assert taken["row"].tolist() == [2, 3, 1, 0]


def test_rows_stay_within_their_window() -> None:
    batch = batch_of(lengths_of([1, 2, 3, 4]), [1.0] * 4)
    assert [b["row"].tolist() for b in arranged(split(batch, 4), 2, 0.0)] == [[1], [0], [3], [2]]
    assert [b["row"].tolist() for b in arranged(split(batch, 2), 1, 0.0)] == [[1, 0], [3, 2]]
    uneven = arranged(split(batch_of(lengths_of([1, 2, 3]), [1.0] * 3), 3), 2, 0.0)
    assert [b["row"].tolist() for b in uneven] == [[1], [0], [2]]


def test_columns_that_are_padding_in_every_row_are_cut_and_prompts_are_not() -> None:
    masks = lengths_of([2, 1], columns=4)
    prompts, per_token = [[0, 0, 1, 1]] * 2, [[1.0, 2, 3, 4]] * 2
    more = {
        "prompt_ids": prompts,
        "prompt_mask": prompts,
        "logps": per_token,
        "wide": [[1] * 5] * 2,
    }
    batch = batch_of(masks, [1.0, 1.0], **more, items=7)
    short = trim_padding(batch)
    assert short["completion_mask"].tolist() == [[1, 1], [1, 0]]
    assert short["logps"].tolist() == [[1, 2]] * 2
    for name in ("prompt_ids", "prompt_mask", "wide", "advantages", "row", "items"):
        assert torch.equal(short[name], batch[name]), name
    square = batch_of(lengths_of([1] * 4), [1.0] * 4)  # as many rows as columns
    assert trim_padding(square)["advantages"].shape == (4,)
    empty = trim_padding(batch_of(lengths_of([0, 0]), [1.0, 1.0]))
    assert empty["completion_mask"].tolist() == [[0], [0]], "one column is left"


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "sapo", "luspo", *sorted(BY_TOKENS)])
def test_a_part_of_the_rows_counts_by_what_the_loss_divides_by(loss_type: str) -> None:
    tools = [[1, 1, 1, 1], [1, 1, 0, 0], [1] * 4]
    inputs = batch_of(lengths_of([4, 3, 2]), [1.0] * 3, tool_mask=tools)
    rows = rows_of(inputs, slice(1, 3))
    by_tokens = {"bnpo": 4 / 8, "dapo": 1.0, "cispo": 1.0, "vespo": 1.0}
    assert denominator_ratio(rows, inputs, loss_type) == pytest.approx(
        by_tokens.get(loss_type, 2 / 3)
    )


def test_rows_without_a_token_divide_by_one() -> None:
    empty = batch_of(lengths_of([0]), [1.0])
    assert denominator_ratio(empty, batch_of(lengths_of([4]), [1.0]), "bnpo") == 1 / 4
    assert denominator_ratio(empty, empty, "bnpo") == 1

"""Which rows of a batch move the weights: masks, idle rows, their order, and their share."""

from typing import Any

import pytest
import torch

from orchestrator.training.live_rows import idle_rows, loss_mask

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

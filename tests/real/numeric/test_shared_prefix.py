"""Rows in one sequence that share their prompts: the log-probabilities of padded rows."""

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from orchestrator.training.shortcuts import attend, disagreement, pack, token_outputs, why_not

SHAPE: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}


def model_of(kind: str, lora: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A random model with an adapter, and the fused head that TRL gives it."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE | changes))
    model: Any = get_peft_model(
        base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, **lora or {})
    )
    add_fused_lm_head(model.get_base_model(), outputs=("log_probs", "entropy"))
    return model


def batch_of(rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Ids and mask of TRL's padded rows (prompt, completion), and the columns of completions."""
    width, columns = (max(len(row[part]) for row in rows) for part in (0, 1))
    ids = torch.zeros(len(rows), width + columns, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, (prompt, completion) in enumerate(rows):
        place = slice(width - len(prompt), width + len(completion))
        ids[i, place], mask[i, place] = torch.tensor(prompt + completion), 1
    return ids, mask, columns


def padded(model: Any, ids: torch.Tensor, mask: torch.Tensor, columns: int) -> list[torch.Tensor]:
    """Log-probabilities and entropies as in TRL."""
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-columns] = -100
    out = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return [part[:, -columns:] for part in (out.log_probs, out.entropy)]


def packed(model: Any, ids: torch.Tensor, mask: torch.Tensor, columns: int) -> list[torch.Tensor]:
    out = token_outputs(model, model.get_base_model(), pack(ids, mask, columns))
    kept = mask[:, -columns:].bool()
    return [
        torch.zeros(kept.shape).masked_scatter(kept, part) for part in (out.log_probs, out.entropy)
    ]


TOKENS = st.lists(st.integers(1, 59), min_size=1, max_size=6)
GROUPS = st.tuples(TOKENS, st.lists(TOKENS, min_size=1, max_size=4))  # a prompt, its completions


@settings(max_examples=40, deadline=None)
@given(st.lists(GROUPS, min_size=1, max_size=4))
@example([([5, 6, 7], [[12]])])
@example([([5, 6, 7], [[9, 9], [9, 9]])])
@example([([5, 6, 7], [[8]]), ([5, 6, 7], [[9]])])
def test_any_rows_give_the_results_of_padded_rows(
    groups: list[tuple[list[int], list[list[int]]]],
) -> None:
    model = model_of("qwen3")
    batch = batch_of([(prompt, row) for prompt, rows in groups for row in rows])
    with torch.no_grad():
        for one, other in zip(packed(model, *batch), padded(model, *batch), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def gradients(model: Any, parts: list[torch.Tensor]) -> torch.Tensor:
    model.zero_grad()
    weights = torch.randn(parts[0].shape, generator=torch.manual_seed(1))
    sum((weights * part).sum() for part in parts).backward()  # type: ignore[union-attr]
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


ROWS = [([5, 6, 7], [8, 9, 10, 11]), ([5, 6, 7], [12]), ([5, 6, 7], [9, 9]), ([8], [7, 7, 3])]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "phi3", "olmo2", "granite", "gemma"])
def test_models_of_many_kinds_give_the_results_and_gradients_of_padded_rows(kind: str) -> None:
    model, batch = model_of(kind), batch_of(ROWS)
    assert why_not(model) == ""
    expected, ours = padded(model, *batch), packed(model, *batch)
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    theirs = gradients(model, expected)
    assert (gradients(model, ours) - theirs).norm() < 1e-4 * theirs.norm()


def test_a_prompt_is_read_once_and_nothing_is_padded() -> None:
    rows = pack(*batch_of(ROWS))
    assert rows.ids.tolist() == [[5, 6, 7, 8, 9, 10, 9, 8, 7, 7]]
    assert rows.positions.tolist() == [[0, 1, 2, 3, 4, 5, 3, 2, 3, 4]]  # the columns of TRL's rows
    assert rows.labels.tolist() == [[8, 9, 10, 11, 12, 9, 9, 7, 7, 3]]
    assert rows.scored.tolist() == [2, 3, 4, 5, 2, 2, 6, 7, 8, 9]


@pytest.mark.parametrize("option", ["position_bias", "softcap"])
def test_attention_that_rows_cannot_share_is_refused(option: str) -> None:
    states = [torch.zeros(1, 2, 10, 4)] * 3
    rows = pack(*batch_of(ROWS))
    with pytest.raises(NotImplementedError):
        attend(torch.nn.Module(), *states, None, packed_rows=rows, **{option: 1.0})
    out, _ = attend(torch.nn.Module(), *states, None, packed_rows=rows, position_bias=None)
    assert out.shape == (1, 10, 2, 4) and rows.attended == 1


def test_log_probabilities_disagree_by_their_largest_difference() -> None:
    ones = torch.ones(2, 3)
    assert disagreement(lambda: ones, lambda: ones + 0.009, 0.01) == ""
    said = disagreement(lambda: ones + torch.eye(2, 3) / 4, lambda: ones, 0.25)
    assert said.endswith(" 0.25")

    def fails(error: Exception) -> torch.Tensor:
        raise error

    said = disagreement(lambda: fails(TypeError("no packed_rows")), lambda: ones, 1)
    assert said.endswith("(no packed_rows)")
    with pytest.raises(torch.OutOfMemoryError):
        disagreement(lambda: fails(torch.OutOfMemoryError("full")), lambda: ones, 1)


def test_rows_whose_completion_is_masked_are_not_scored() -> None:
    """As those of `mask_truncated_completions`."""
    model, (ids, mask, columns) = model_of("llama"), batch_of(ROWS)
    mask[1, -columns:] = 0
    with torch.no_grad():
        ours = packed(model, ids, mask, columns)[0]
        torch.testing.assert_close(ours, padded(model, ids, mask, columns)[0], rtol=1e-4, atol=1e-4)
    assert (ours[1] == 0).all()


def test_rows_without_a_scored_token_have_gradients_of_0() -> None:
    """With several workers, each must have some."""
    model, (ids, mask, columns) = model_of("llama"), batch_of(ROWS)
    mask[:, -columns:] = 0
    packed_gradient = gradients(model, packed(model, ids, mask, columns))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert packed_gradient.shape == (trained,) and (packed_gradient == 0).all()


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("mistral", {"sliding_window": 4}, "layer"),
        ("llama", {"attn_implementation": "eager"}, "layer"),
        ("llama", {"attention_dropout": 0.1}, "dropout"),
        ("llama", {"lora": {"lora_dropout": 0.1}}, "dropout"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
            "frequencies",
        ),
    ],
)
def test_models_whose_rows_cannot_share_prompts_are_named(
    kind: str, changes: dict[str, Any], reason: str
) -> None:
    why = why_not(model_of(kind, **changes))
    assert reason in why and (reason != "dropout" or why == "it has dropout")


def test_a_model_whose_layers_attend_in_their_own_way_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_of("llama")
    layer = model.get_base_model().model.layers[1].self_attn
    monkeypatch.setattr(layer, "forward", lambda hidden_states, **_: (hidden_states, None))
    with pytest.raises(NotImplementedError, match="do not call"):
        packed(model, *batch_of(ROWS))

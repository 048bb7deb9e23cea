"""Rollouts by Decile's decoder in TRL's trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from factories import small_plan
from grpo import (  # noqa: F401 (fixtures)
    GROUP,
    LIVE,
    generation,
    marks_in_this_process,
    one_thread,
    trainer_of,
)
from trl import GRPOTrainer

ANSWERS = ["correct", LIVE, "wrong"]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("rollouts")
    return trainer_of(folder, ANSWERS, masked=False, max_completion_length=40)[0]


def rows_of(trainer: Any) -> list[list[int]]:
    """The token ids of a generation of the next update."""
    output = generation(trainer)
    pairs = zip(output["completion_ids"], output["completion_mask"].bool(), strict=True)
    return [ids[mask].tolist() for ids, mask in pairs]


def drawn_as(
    trainer: Any, rank: int, count: int, prompts: list[list[int]]
) -> tuple[list[list[int]], list[list[float]]]:
    """The tokens that one of `count` workers draws of a generation, and their log-probabilities."""
    size = len(prompts) // count
    own = slice(rank * size, (rank + 1) * size)
    return trainer.decoder.draw(1, trainer.drawn[own], prompts[own])  # type: ignore[no-any-return]


def test_a_generation_is_drawn_again_whatever_was_drawn_before(trainer: Any) -> None:
    first = rows_of(trainer)
    torch.manual_seed(5)
    assert rows_of(trainer) == first
    trainer.state.global_step += 1
    assert rows_of(trainer) != first
    trainer.state.global_step -= 1


def test_rollouts_end_with_an_end_token_or_at_the_limit(trainer: Any) -> None:
    ends = set(trainer.eos_token_ids)
    rows = rows_of(trainer)
    assert {len(row) for row in rows} > {4}
    for row in rows:
        assert not ends & set(row[:-1])
        assert row[-1] in ends or len(row) == 40
    cut = sum(row[-1] not in ends for row in rows) / len(rows)
    assert trainer._metrics["train"]["completions/clipped_ratio"][-1] == pytest.approx(cut)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_workers_draw_what_one_draws(trainer: Any, count: int) -> None:
    """Slices of the rows, which may cut a group."""
    rows_of(trainer)
    inputs = [[{"role": "user", "content": f"question {i // GROUP}"}] for i in range(3 * GROUP)]
    prompts = trainer._tokenize_prompts(inputs)[0]
    whole, log_probs = drawn_as(trainer, 0, 1, prompts)
    parts = [drawn_as(trainer, rank, count, prompts) for rank in range(count)]
    assert [row for rows, _ in parts for row in rows] == whole
    values = [value for _, rows in parts for row in rows for value in row]
    assert values == pytest.approx([value for row in log_probs for value in row], abs=1e-4)


def test_the_first_tokens_follow_the_models_distribution(trainer: Any) -> None:
    """Greedy drawing, by a temperature near 0, gives the tokens of `generate`."""
    decoder, before = trainer.decoder, trainer.decoder.settings
    prompts = trainer._tokenize_prompts([[{"role": "user", "content": "Hi"}]])[0]
    try:
        decoder.settings = before.__class__(temperature=1e-4, max_completion_length=12, seed=0)
        [ours], _ = decoder.draw(1, [("p", 0)], prompts)
    finally:
        decoder.settings = before
    ids = torch.tensor(prompts)
    with torch.no_grad():
        theirs = (
            trainer.model.eval()
            .generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=12,
            )[0, ids.shape[1] :]
            .tolist()
        )
    assert ours == theirs[: len(ours)]


def test_a_stop_string_ends_a_rollout(trainer: Any) -> None:
    rows = rows_of(trainer)
    text = trainer.processing_class.batch_decode(rows, skip_special_tokens=True)
    longest = max(range(len(rows)), key=lambda i: len(rows[i]))
    stop = text[longest][len(text[longest]) // 2 :][:3]
    before = trainer.decoder.settings
    trainer.decoder.settings = before.__class__(**vars(before) | {"stop": (stop,)})
    try:
        stopped = rows_of(trainer)
    finally:
        trainer.decoder.settings = before
    assert len(stopped[longest]) < len(rows[longest])
    for row, whole in zip(stopped, rows, strict=True):
        assert row == whole[: len(row)]
        decoded = trainer.processing_class.decode(row, skip_special_tokens=True)
        assert (row == whole) or stop in decoded


def test_too_little_memory_draws_the_same_rollouts_in_parts(
    trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, sampler = rows_of(trainer), trainer.decoder.sampler
    forward = type(sampler)._forward

    def limited(self: Any, **inputs: Any) -> Any:
        if self.limits.rows > 4:
            raise torch.OutOfMemoryError("as a GPU would")
        return forward(self, **inputs)

    monkeypatch.setattr(type(sampler), "_forward", limited)
    assert rows_of(trainer) == whole
    assert sampler.limits.rows == 4


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"min_p": 0.0, "repetition_penalty": 1.0, "use_vllm": False}, ""),
        ({"min_p": 0.1}, "grpo.min_p"),
        ({"repetition_penalty": 1.1}, "grpo.repetition_penalty"),
        ({"generation_kwargs": {"min_new_tokens": 2}}, "grpo.generation_kwargs"),
        ({"use_transformers_continuous_batching": True}, "grpo.use_transformers_cont"),
        ({"use_transformers_paged": True}, "grpo.use_transformers_paged"),
    ],
)
def test_what_the_decoder_lacks_is_left_to_trl(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    [cell] = small_plan(tmp_path, policies=["random"]).cells
    changed = cell.model_copy(update={"grpo": cell.grpo | settings})
    assert changed.why_trl_draws[: len(reason) or None] == reason
    [told] = small_plan(tmp_path, policies=["random"], rollouts="trl").cells
    assert told.why_trl_draws == "rollouts: trl"


def test_trl_draws_where_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = [], GRPOTrainer._generate_single_turn

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return original(self, *arguments, **options)

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", counted)
    trainer, _ = trainer_of(tmp_path, ANSWERS, masked=False, repetition_penalty=1.2)
    assert trainer.decoder is None
    [note] = trainer.notes
    assert note.endswith("TRL: grpo.repetition_penalty")
    generation(trainer)
    assert len(calls) == 1

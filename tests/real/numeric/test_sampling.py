"""The sampler, compared with `generate`, with the model's probabilities and with itself."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from scipy import stats
from tiny_sampler import (
    ENDS,
    QUESTIONS,
    greedy_completion,
    model_folder,
    requests_of,
    sampler,
    short_sampler,
    source,
)

from orchestrator.sampling import Completion, Request, SamplingSettings, load_sampler, transformers
from orchestrator.sampling.base import Listener, SamplingError, cut_at_stop, listening, render
from orchestrator.sampling.decoding import uniforms
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler

__all__ = ["short_sampler", "model_folder", "sampler", "source"]  # fixtures


def first_probabilities(sampler: TransformersSampler, request: Request) -> torch.Tensor:
    """The model's softmax over the first token, straight from its forward."""
    ids = torch.tensor([render(sampler.tokenizer, request.messages, {})])
    with torch.no_grad():
        return sampler.model(input_ids=ids).logits[0, -1].double().softmax(-1)


@pytest.mark.parametrize("rows", [1, 3, 256])
def test_a_listener_is_told_of_every_sample_once(
    short_sampler: TransformersSampler, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_sampler.limits, "rows", rows)
    ended: list[int] = []
    completions: dict[tuple[int, int], Completion] = {}

    def complete(request: int, place: int, completion: Completion) -> None:
        assert (request, place) not in completions
        completions[request, place] = completion

    requests = requests_of([3, 1, 7])
    too_long = Request("long", [], [0, 1], ids=[1] * 100_000)
    with listening(short_sampler, Listener(ended.append, complete)):
        drawn = short_sampler.sample(
            [too_long, *requests], SamplingSettings(max_completion_length=20)
        )
    assert sum(ended) == len(completions) == 3 * len(requests)
    assert {(i, j) for i in range(1, len(drawn)) for j in range(3)} == completions.keys()
    assert all(drawn[i][j] == completion for (i, j), completion in completions.items())
    assert [c.finish for c in drawn[0]] == ["error", "error"]


@pytest.mark.parametrize("limit", [1, 90])
def test_greedy_sampling_agrees_with_generate(sampler: TransformersSampler, limit: int) -> None:
    requests = requests_of([0])
    completions = sampler.sample(
        requests, SamplingSettings(temperature=0, max_completion_length=limit)
    )
    assert completions == [[greedy_completion(sampler, request, limit)] for request in requests]


def test_greedy_sampling_agrees_with_generate_when_rows_end(
    short_sampler: TransformersSampler,
) -> None:
    settings = SamplingSettings(temperature=0, max_completion_length=40)
    completions = short_sampler.sample(requests_of([0, 1]), settings)
    expected = [greedy_completion(short_sampler, request, 40) for request in requests_of([0])]
    assert completions == [[each] * 2 for each in expected]
    assert "stop" in {each.finish for each in expected}


def test_batching_and_order_do_not_change_completions(short_sampler: TransformersSampler) -> None:
    requests, settings = requests_of(range(6)), SamplingSettings(max_completion_length=40)
    expected = short_sampler.sample(requests, settings)
    assert len({c.text for row in expected for c in row}) > 12  # samples do differ
    for rows in (1, 5):
        short_sampler.limits.rows = rows
        assert short_sampler.sample(requests, settings) == expected
    assert short_sampler.sample(requests[::-1], settings) == expected[::-1]
    assert short_sampler.sample(requests, replace(settings, seed=1)) != expected


@pytest.mark.parametrize("shared", [True, False])
def test_running_out_of_memory_halves_the_batch_and_loses_no_completion(
    short_sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(transformers, "attends_plainly", lambda _: shared)
    requests, settings = requests_of(range(6)), SamplingSettings(max_completion_length=40)
    expected = short_sampler.sample(requests, settings)
    rows, forward = 24, TransformersSampler._forward

    def limited(self: TransformersSampler, **inputs: object) -> torch.Tensor:
        logits = forward(self, **inputs)
        if len(logits) > rows:
            raise torch.OutOfMemoryError("as a GPU would")
        return logits

    monkeypatch.setattr(TransformersSampler, "_forward", limited)
    rows = 5
    assert short_sampler.sample(requests, settings) == expected
    assert short_sampler.limits.rows <= 5
    rows = 0
    longest = max(QUESTIONS, key=len)
    with pytest.raises(SamplingError) as caught:
        short_sampler.sample(requests, settings)
    [tokens] = short_sampler.count_tokens([r for r in requests if r.prompt_id == longest])
    assert str(caught.value).startswith(f"prompt {longest} of {tokens} tokens takes more memory")


def test_a_prompt_that_fills_the_context_gives_errors(short_sampler: TransformersSampler) -> None:
    requests, settings = requests_of(range(3)), SamplingSettings(max_completion_length=40)
    expected = short_sampler.sample(requests, settings)
    assert short_sampler.context == short_sampler.base.config.max_position_embeddings
    lengths = short_sampler.count_tokens(requests)
    short_sampler.context = max(lengths)
    drawn = short_sampler.sample(requests, settings)
    assert drawn == [
        whole if length < max(lengths) else [Completion("", 0, "error")] * 3
        for whole, length in zip(expected, lengths, strict=True)
    ]
    assert drawn != expected


def test_memory_that_runs_out_on_a_cpu_is_told_from_other_errors(
    short_sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, settings = requests_of(range(6)), SamplingSettings(max_completion_length=40)
    expected = short_sampler.sample(requests, settings)
    forward = TransformersSampler._forward

    def limited(self: TransformersSampler, **inputs: object) -> torch.Tensor:
        if self.limits.rows > 8:
            torch.empty(2**58)  # more than any machine has
        return forward(self, **inputs)

    monkeypatch.setattr(TransformersSampler, "_forward", limited)
    assert short_sampler.sample(requests, settings) == expected
    assert short_sampler.limits.rows == 8
    monkeypatch.setattr(
        TransformersSampler, "_forward", lambda self, **inputs: torch.ones(2) @ torch.ones(3)
    )
    with pytest.raises(RuntimeError, match="size") as caught:
        short_sampler.sample(requests, settings)
    assert not isinstance(caught.value, torch.OutOfMemoryError | SamplingError)


def test_a_subset_of_samples_agrees_with_all_samples(short_sampler: TransformersSampler) -> None:
    settings = SamplingSettings(max_completion_length=40)
    full = short_sampler.sample(requests_of(range(8)), settings)
    picked = [[5, 2], [], [7], [0, 1, 3, 6]]
    requests = [r._replace(samples=s) for r, s in zip(requests_of([]), picked, strict=True)]
    assert short_sampler.sample(requests, settings) == [
        [f[i] for i in s] for f, s in zip(full, picked, strict=True)
    ]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_first_token_follows_the_softmax_distribution(
    sampler: TransformersSampler, temperature: float
) -> None:
    count, request = 4000, requests_of(range(4000))[1]
    settings = SamplingSettings(temperature=temperature, max_completion_length=1, seed=3)
    [drawn] = sampler.sample([request], settings)
    p = first_probabilities(sampler, request).pow(1 / temperature).numpy()
    texts = sampler.tokenizer.batch_decode([[i] for i in range(len(p))], skip_special_tokens=True)
    names = sorted(set(texts))
    expected = np.zeros(len(names))
    np.add.at(expected, [names.index(t) for t in texts], count * p / p.sum())
    counts = np.bincount([names.index(c.text) for c in drawn], minlength=len(names))
    common = expected >= 5
    observed = [*counts[common], counts[~common].sum()]
    assert common.sum() >= 8
    assert stats.chisquare(observed, [*expected[common], expected[~common].sum()]).pvalue > 0.001


@pytest.mark.parametrize("limits", [{"top_k": 4}, {"top_p": 0.5}])
def test_top_k_and_top_p_bound_the_support(
    sampler: TransformersSampler, limits: dict[str, Any]
) -> None:
    request = requests_of(range(600))[2]
    p, order = first_probabilities(sampler, request).sort(descending=True)
    size = limits.get("top_k") or int((p.cumsum(-1) < limits["top_p"]).sum()) + 1
    allowed = {sampler.tokenizer.decode([i], skip_special_tokens=True) for i in order[:size]}
    [drawn] = sampler.sample([request], SamplingSettings(max_completion_length=1, **limits))
    assert 1 < len(allowed) < 40
    assert {c.text for c in drawn} == allowed


def test_tokens_and_finish_are_recorded(short_sampler: TransformersSampler) -> None:
    drawn = short_sampler.sample(requests_of(range(8)), SamplingSettings(max_completion_length=12))
    flat = [c for row in drawn for c in row]
    assert {c.finish for c in flat} == {"stop", "length"}
    for c in flat:
        assert not set(c.text) & set(ENDS)
        assert c.tokens == 12 if c.finish == "length" else c.tokens <= 12
        assert len(c.text) <= c.tokens - (c.finish == "stop")


def test_an_end_token_at_the_limit_is_a_stop(short_sampler: TransformersSampler) -> None:
    requests = requests_of(range(8))[:1]
    [drawn] = short_sampler.sample(requests, SamplingSettings(max_completion_length=40))
    index, full = next((i, c) for i, c in enumerate(drawn) if c.finish == "stop" and c.tokens > 3)
    [at] = short_sampler.sample(requests, SamplingSettings(max_completion_length=full.tokens))
    [under] = short_sampler.sample(
        requests, SamplingSettings(max_completion_length=full.tokens - 1)
    )
    assert at[index] == full
    assert under[index] == Completion(full.text, full.tokens - 1, "length", full.ids[:-1])


def test_prompts_are_prefilled_once_and_ended_rows_leave_the_batch(
    short_sampler: TransformersSampler,
) -> None:
    sizes: list[tuple[int, ...]] = []
    short_sampler.model.model.embed_tokens.register_forward_hook(
        lambda _, args, __: sizes.append(tuple(args[0].shape))
    )
    drawn = short_sampler.sample(requests_of(range(8)), SamplingSettings(max_completion_length=60))
    longest = max(short_sampler.count_tokens(requests_of([])))
    assert sizes[:2] == [(4, longest), (32, 1)]
    assert sizes[-1][0] < 8
    assert len(sizes) == max(c.tokens for row in drawn for c in row)


def test_sampling_does_not_change_training(source: ModelSource) -> None:
    base, tokenizer = load_model(source, "cpu")
    lora = LoraConfig(
        target_modules=["q_proj", "v_proj"], lora_dropout=0.5, init_lora_weights=False
    )
    model = get_peft_model(base, lora)
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    model.train()
    base.lm_head.eval()
    modes = [module.training for module in model.modules()]
    sampler, random = TransformersSampler(model, tokenizer), torch.get_rng_state()
    settings = SamplingSettings(temperature=0, max_completion_length=30)
    graphs: list[bool] = []
    watch = base.lm_head.register_forward_hook(lambda *_: graphs.append(torch.is_grad_enabled()))
    completions = sampler.sample(requests_of([0]), settings)
    watch.remove()
    assert set(graphs) == {False}
    assert torch.equal(random, torch.get_rng_state())
    assert [module.training for module in model.modules()] == modes
    ids = torch.tensor([render(tokenizer, requests_of([])[1].messages, {})])
    model(input_ids=ids, labels=ids).loss.backward()
    grads = [p.grad for n, p in model.named_parameters() if "lora_A" in n]
    assert grads
    assert all(g is not None and g.abs().sum() > 0 for g in grads)
    model.eval()
    assert completions == [[greedy_completion(sampler, r, 30)] for r in requests_of([0])]
    with model.disable_adapter():
        assert completions != sampler.sample(requests_of([0]), settings)


def test_modes_are_restored_after_an_error(sampler: TransformersSampler) -> None:
    sampler.model.train()
    torch.nn.init.constant_(sampler.model.lm_head.weight, float("nan"))
    for temperature in (0.0, 1.0):
        with pytest.raises(FloatingPointError, match="bfloat16"):
            sampler.sample(requests_of([0]), SamplingSettings(temperature=temperature))
    assert sampler.model.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": False}])
def test_prompts_are_rendered_as_in_the_trainer(
    sampler: TransformersSampler, kwargs: dict[str, Any]
) -> None:
    from trl import GRPOTrainer

    trainer = SimpleNamespace(
        processing_class=sampler.tokenizer,
        chat_template=None,
        chat_template_kwargs=kwargs,
        tools=None,
        environment_factories=None,
        _is_vlm=False,
    )
    chats = [request.messages for request in requests_of([])]
    ids, *_ = GRPOTrainer._tokenize_prompts(trainer, chats)
    assert [render(sampler.tokenizer, chat, kwargs) for chat in chats] == ids
    ends = "<think></think>" if kwargs else "assistant\n"
    assert all(sampler.tokenizer.decode(row).endswith(ends) for row in ids)
    sampler.chat_template_kwargs = kwargs
    assert sampler.count_tokens(requests_of([])) == [len(row) for row in ids]


def test_uniforms_have_their_pinned_values() -> None:
    """A change of these numbers changes every stored sample: then the engine's name must change."""
    drawn = uniforms(0, "prompt", 1, 1000)
    assert drawn[:3].tolist() == [0.42966223834973394, 0.605923986413679, 0.5318490067429426]
    assert uniforms(0, "prompt", 1, 3).tolist() == drawn[:3].tolist()
    assert stats.kstest(drawn, "uniform").pvalue > 0.001
    others = [uniforms(1, "prompt", 1, 1), uniforms(0, "other", 1, 1), uniforms(0, "prompt", 2, 1)]
    assert len({float(drawn[0]), *(float(other[0]) for other in others)}) == 4


def test_load_sampler_selects_the_engine_and_pads_left(source: ModelSource) -> None:
    sampler = load_sampler(source, device="cpu")
    assert type(sampler) is TransformersSampler
    assert sampler.tokenizer.pad_token is not None  # the folder's tokenizer has none
    assert sampler.tokenizer.padding_side == "left"
    with pytest.raises(ValueError, match=r"unknown engine 'fast': write .*transformers"):
        load_sampler(source, engine="fast")


def test_a_stop_string_ends_a_row_and_is_cut_off(short_sampler: TransformersSampler) -> None:
    free = SamplingSettings(max_completion_length=40, seed=3)
    whole = short_sampler.sample(requests_of(range(6)), free)
    texts = [c.text for row in whole for c in row if len(c.text) > 4]
    stop = (texts[0][2:4], texts[1][1:3])
    stopped = short_sampler.sample(requests_of(range(6)), replace(free, stop=stop))
    met = 0
    for before, after in zip(
        *[[c for row in w for c in row] for w in (whole, stopped)], strict=True
    ):
        cut = cut_at_stop(before.text, stop)
        if cut is None:
            assert after == before
        else:
            met += 1
            assert (after.text, after.finish) == (cut, "stop")
            assert after.tokens <= before.tokens
    assert met >= 2

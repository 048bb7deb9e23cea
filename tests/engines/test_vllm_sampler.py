"""vLLM itself behind `VllmSampler`: seeds, subsets, greedy tokens, stops, long prompts, adapters.

Runs where vLLM can be imported; its CPU build is enough. One engine serves all tests.
"""

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from vllm_models import (
    GREEDY,
    REQUESTS,
    SETTINGS,
    WINDOW,
    check_adapters,
    check_changed_adapter,
    comparable,
    random_model,
    request,
)

from orchestrator.config.library_settings import VLLM_MODELS
from orchestrator.sampling import SamplingSettings, load_sampler
from orchestrator.sampling.base import Listener, SamplingError, listening
from orchestrator.sampling.engine_args import VLLM_LORA_RANKS
from orchestrator.sampling.model import ModelSource


def test_the_ranks_and_the_implementations_are_those_of_vllm() -> None:
    from vllm.config.lora import MaxLoRARanks
    from vllm.config.model import ModelImpl

    assert get_args(MaxLoRARanks) == (1, *VLLM_LORA_RANKS)
    assert {*VLLM_MODELS} <= {*get_args(ModelImpl)}


def test_the_precision_is_that_of_the_weights(engine: Any) -> None:
    assert engine.llm.model_config.dtype == torch.float32


def test_a_sample_depends_on_its_seed_prompt_and_index_alone(engine: Any) -> None:
    drawn = engine.sample(REQUESTS, SETTINGS)
    assert len({completion.text for each in drawn for completion in each}) > 40
    some = [each._replace(samples=[3, 1]) for each in reversed(REQUESTS[::3])]
    again = engine.sample(some, SETTINGS)
    assert again == [[each[3], each[1]] for each in reversed(drawn[::3])]


def test_a_listener_is_told_of_what_has_ended_while_the_rest_is_drawn(engine: Any) -> None:
    unfinished: list[int] = []

    def on_ended(more: int) -> None:
        unfinished.extend([engine.llm.llm_engine.get_num_unfinished_requests()] * more)

    requests = [each._replace(limit=2 + i) for i, each in enumerate(REQUESTS)]
    with listening(engine, Listener(on_ended)):
        drawn = engine.sample([request("long", [0], 300), *requests], SETTINGS)
    assert len(unfinished) == sum(len(row) for row in drawn[1:]) == 4 * len(REQUESTS)
    assert unfinished[0] > 0 == unfinished[-1]
    assert drawn[1:] == engine.sample(requests, SETTINGS)


def test_greedy_answers_are_those_of_our_sampler(engine: Any, reference: Any) -> None:
    assert engine.sample(REQUESTS, GREEDY) == comparable(reference.sample(REQUESTS, GREEDY))


def test_text_ends_before_a_stop_string(engine: Any, reference: Any) -> None:
    [[whole, *_]] = reference.sample(REQUESTS[:1], GREEDY)
    stop = whole.text[len(whole.text) // 2 :][:3]
    settings = SamplingSettings(temperature=0, max_completion_length=24, stop=(stop,))
    [[cut, *_]] = engine.sample(REQUESTS[:1], settings)
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish == "stop"
    assert [[cut]] == reference.sample([REQUESTS[0]._replace(samples=[0])], settings)


def test_a_prompt_that_leaves_no_space_is_an_error(engine: Any) -> None:
    [[long], [short]] = engine.sample([request("long", [0], 300), request("short", [0])], SETTINGS)
    assert (long.text, long.tokens, long.finish) == ("", 0, "error")
    assert short.finish in ("stop", "length")


def test_prompts_of_the_whole_window_are_answered_together(engine: Any) -> None:
    """More tokens than fit into one step: seeded requests cannot be read in parts on a CPU."""
    counts = engine.count_tokens([request("ball", [0], words) for words in range(1, 150)])
    longest = max(n for n, count in enumerate(counts, 1) if count <= WINDOW - 24)
    many = [request("ball", list(range(4)), longest)._replace(prompt_id=str(i)) for i in range(40)]
    drawn = engine.sample(many, SETTINGS)
    assert {each.finish for row in drawn for each in row} <= {"stop", "length"}


def test_adapters_are_swapped_and_answer_as_in_our_sampler(
    engine: Any, source: ModelSource, tmp_path: Path
) -> None:
    check_adapters(engine, source, tmp_path, lambda: setattr(engine, "adapter", None))


def test_an_adapter_that_changes_in_its_folder_is_not_answered_from_the_cache(
    engine: Any, source: ModelSource, tmp_path: Path
) -> None:
    check_changed_adapter(engine, source, tmp_path)


def test_a_setting_that_vllm_refuses_is_one_line(source: ModelSource) -> None:
    with pytest.raises(SamplingError, match="max_model_len") as caught:
        load_sampler(source, "vllm", engine_args={"max_model_len": 8 * WINDOW})
    assert "\n" not in str(caught.value)


def test_the_reason_why_it_stops_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SamplingError) as caught:
        load_sampler(random_model(tmp_path, head_dim=24), "vllm").sample(REQUESTS[:1], GREEDY)
    assert "engine vllm stopped: " in str(caught.value)
    assert "head_dim=24" in str(caught.value)
    assert "\n" not in str(caught.value)

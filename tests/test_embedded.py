"""The embedded model: what it was taught to say, its tokenizer, and what the weights can do."""

import random
import re
import subprocess
import sys
from collections import Counter
from itertools import islice
from typing import Any

import pytest
import torch

from orchestrator.embedded import EMBEDDED, embedded_path
from orchestrator.embedded.pretrain import OFFSETS, make_model
from orchestrator.embedded.traces import careful, careful_share, guess, ramble, scenarios, styled
from orchestrator.embedded.vocabulary import CLOSE, make_tokenizer
from orchestrator.models import ModelSource
from orchestrator.sampling.base import Request, SamplingSettings
from orchestrator.sampling.transformers import TransformersSampler
from tasks import get_task
from tasks.shuffled_objects import LETTERS, Scenario, ShuffledObjects, on_test_side, prompt_of

TINY = embedded_path("tiny")
LIMIT = 96  # new tokens of the quickstart's probe
made = pytest.mark.skipif(
    not (TINY / "model.safetensors").is_file(),
    reason="no weights yet: run python -m orchestrator.embedded.recipe",
)


def drawn(count: int, seed: int = 0) -> list[Scenario]:
    return list(islice(scenarios(random.Random(seed), (3, 5, 7), (2, 7)), count))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(0, size=1000)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="tiny"):
        embedded_path("huge")
    assert EMBEDDED == ("tiny",)


def test_naming_the_model_imports_nothing_heavy() -> None:
    script = (
        "import sys, orchestrator.embedded; print({'torch', 'transformers'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_training_text_holds_no_question_of_any_test_set() -> None:
    assert not any(on_test_side(prompt_of(item)) for item in drawn(300))


def test_every_careful_trace_is_right_about_each_swap_and_the_answer() -> None:
    task = ShuffledObjects()
    for item in drawn(300):
        text = careful(item)
        assert task.mark(text, item.letter()).outcome == "correct"
        wanted = list(item.held())[-1][item.asked]
        states = list(item.held())
        line = r"^(\d)\) (\w+) (\w+): (\w+) (\(\w\))$"
        for step, a, b, holder, letter in re.findall(line, text, re.MULTILINE):
            assert letter == f"({LETTERS[item.names.index(holder)]})"
            first, second = item.swaps[int(step) - 1]
            assert (a, b) == (item.names[first], item.names[second])
            assert states[int(step) - 1][item.names.index(holder)] == wanted
        assert len(re.findall(r"^\d\)", text, re.MULTILINE)) == len(item.swaps)


def test_guesses_are_blind_and_rambles_never_answer() -> None:
    task, rng = ShuffledObjects(), random.Random(0)
    item = next(i for i in drawn(50) if len(i.names) == 5)
    letters = Counter(task.mark(guess(item, rng), "(A)").extracted for _ in range(1000))
    assert set(letters) == {f"({c})" for c in LETTERS[:5]}
    assert min(letters.values()) > 140
    assert all(task.mark(ramble(i, rng), i.letter()).outcome == "unparsed" for i in drawn(200))


def test_care_is_rarer_with_more_objects_and_all_styles_occur() -> None:
    items, rng = drawn(2000), random.Random(0)
    share = {
        n: sum(careful_share(i) for i in items if len(i.names) == n)
        / sum(len(i.names) == n for i in items)
        for n in (3, 5, 7)
    }
    assert share[3] > share[5] + 0.1 > share[7] + 0.2
    assert min(careful_share(i) for i in items) < 0.2 < 0.8 < max(careful_share(i) for i in items)
    assert set(Counter(styled(i, rng)[0] for i in items)) == {"careful", "guess", "ramble"}


@pytest.mark.parametrize(
    "text",
    [
        "Ana gets Moby Dick. Then, Ana and Ben swap books.\n(A) red\n\\boxed{(B)}",
        "naïve 漢字 🎉 עברית",
        "".join(map(chr, range(1, 256))),
        "  two  spaces\t\r\n\n and a \x00 null",
        " ?!…“”",
    ],
)
def test_any_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_nearly_all_careful_traces_fit_the_limit(tokenizer: Any) -> None:
    lengths = [len(tokenizer(careful(item) + CLOSE)["input_ids"]) for item in drawn(500)]
    assert sum(length > LIMIT for length in lengths) <= 5


def test_the_vocabulary_is_the_same_every_time(tokenizer: Any) -> None:
    assert make_tokenizer(0, size=1000).get_vocab() == tokenizer.get_vocab()


def test_first_layer_begins_by_looking_back(tokenizer: Any) -> None:
    model = make_model(tokenizer, 0)
    model.config._attn_implementation = "eager"
    ids = torch.randint(0, len(tokenizer), (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first = model(ids, output_attentions=True).attentions[0]  # [rows, heads, to, from]
    for head, offset in enumerate(OFFSETS):
        assert (
            first[:, head].argmax(-1)[:, 8:] == torch.arange(8, 40) - offset
        ).float().mean() > 0.9


@made
def test_the_folder_is_small_and_holds_no_pickle() -> None:
    files = list(TINY.iterdir())
    assert sum(file.stat().st_size for file in files) <= 8e6
    assert not [f.name for f in files if f.suffix in {".bin", ".pt", ".pkl", ".py"}]


@made
def test_it_loads_through_the_auto_classes_and_generates() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(TINY)
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    assert tokenizer.pad_token_id is not None
    assert tokenizer.eos_token == CLOSE
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    chat = [{"role": "user", "content": "Who has it? 🎉"}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert text == f"<|im_start|>user\nWho has it? 🎉{CLOSE}\n<|im_start|>assistant\n"
    ids = tokenizer(text, return_tensors="pt")
    assert model.generate(**ids, max_new_tokens=4).shape[1] <= ids["input_ids"].shape[1] + 4


@made
def test_weights_are_finite_and_fit_their_configuration() -> None:
    sampler = TransformersSampler.load(ModelSource("tiny", str(TINY), "test"))
    assert all(torch.isfinite(p).all() for p in sampler.model.parameters())


@made
def test_pass_rates_are_spread_and_care_pays() -> None:
    """What the model is for: prompts of every difficulty, and a style worth moving to."""
    torch.set_num_threads(1)
    task = get_task("shuffled_objects", train=120)
    pool = task.train()
    sampler = TransformersSampler.load(ModelSource("tiny", str(TINY), "test"))
    asked = [Request(p.prompt_id, task.messages(p.question), range(8)) for p in pool]
    said = sampler.sample(asked, SamplingSettings(max_completion_length=LIMIT))
    marks = [
        [(c.text, task.mark(c.text, p.answer, c.finish == "length").outcome) for c in row]
        for p, row in zip(pool, said, strict=True)
    ]
    rates = [sum(outcome == "correct" for _, outcome in row) / 8 for row in marks]
    assert sum(rate == 0 for rate in rates) / len(pool) <= 0.45
    assert sum(rate == 1 for rate in rates) / len(pool) <= 0.45
    assert 0.3 <= sum(rates) / len(rates) <= 0.7
    flat = [pair for row in marks for pair in row]
    steps = [outcome == "correct" for text, outcome in flat if text.startswith("Start:")]
    bare = [outcome == "correct" for text, outcome in flat if text.startswith("\\boxed{")]
    assert len(steps) > 50
    assert len(bare) > 50
    assert sum(steps) / len(steps) > sum(bare) / len(bare) + 0.3

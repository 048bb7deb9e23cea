"""`tiny-guess`: its training games, its format of tool calls, and training with plain TRL."""

import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer
from trl.chat_template_utils import (
    is_chat_template_prefix_preserving,
    parse_response,
    supports_tool_calling,
)

from benchmarks.embedded.lessons import LESSONS
from benchmarks.embedded.number_guess import Played, careful, guess, played, ramble
from benchmarks.embedded.pretrain import example
from benchmarks.embedded.vocabulary import CLOSE, OPEN, make_tokenizer
from benchmarks.games import trainer_of
from orchestrator.embedded import embedded_path
from tasks.number_guess import WIDTHS, NumberGuess

LESSON = LESSONS["tiny-guess"]


def items(count: int, widths: tuple[int, ...] = WIDTHS) -> list[Played]:
    return list(islice(played(random.Random(0), widths), count))


def turns(text: str) -> list[str]:
    """The assistant's turns of a training game."""
    return re.findall(r"(?:^|<\|im_start\|>assistant\n)(.*?)(?:<\|im_end\|>|$)", text, re.DOTALL)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(LESSON, 0, size=1000)


def test_careful_games_narrow_the_written_range_and_find_every_number_within_reach() -> None:
    found = Counter()
    for item in items(500):
        text, game = careful(item), item.game
        low, high = game.low, game.high
        assert "error" not in text
        *asked, last = turns(text)
        for part in asked:
            written = re.match(r"(\d+)-(\d+)\n", part)
            assert (int(written[1]), int(written[2])) == (low, high)
            number = int(re.search(r'"number": (\d+)', part)[1])
            assert low <= number <= high
            low, high = (number + 1, high) if number < game.number else (low, number - 1)
        assert last == ("Found it." if number == game.number else "Lost.")
        found[game.high - game.low + 1] += number == game.number
    assert found[5] + found[10] == sum(i.game.high - i.game.low < 10 for i in items(500))
    assert found[80] < 0.6 * sum(i.game.high - i.game.low == 79 for i in items(500))


def test_training_games_read_as_the_chat_template_writes_their_messages(tokenizer: Any) -> None:
    rng, tools = random.Random(0), [NumberGuess().guess]
    for item in items(60):
        prompt = [{"role": "user", "content": item.question()}]
        for text in (careful(item), guess(item, rng), ramble(item, rng)):
            chat, environment = list(prompt), NumberGuess()
            environment.reset(**item.game.row())
            for part in turns(text):
                before = tokenizer.apply_chat_template(
                    chat, tools=tools, add_generation_prompt=True, return_dict=True
                )["input_ids"]
                ids = tokenizer(part + CLOSE)["input_ids"]
                chat.append(parse_response(tokenizer, ids, prefix=before, tools=tools))
                for call in chat[-1].get("tool_calls", []):
                    try:
                        answer = environment.guess(**call["function"]["arguments"])
                    except ValueError as error:
                        answer = str({"error": str(error)})
                    chat.append({"role": "tool", "name": "guess", "content": answer})
            whole = f"{OPEN}user\n{item.question()}{CLOSE}\n{OPEN}assistant\n{text}{CLOSE}\n"
            assert tokenizer.apply_chat_template(chat, tools=tools, tokenize=False) == whole


def test_only_the_assistants_turns_are_learned(tokenizer: Any) -> None:
    for item in items(30):
        ids, learned = example(item, LESSON, LESSON.stages[0], tokenizer, random.Random(0))
        kept = [token for token, keep in zip(ids, learned, strict=True) if keep]
        assert tokenizer.decode(kept) == "".join(part + CLOSE for part in turns(careful(item)))


def test_the_stored_tokenizer_meets_what_trl_asks_of_one_with_tools() -> None:
    stored = AutoTokenizer.from_pretrained(embedded_path("tiny-guess"))
    assert supports_tool_calling(stored)
    assert is_chat_template_prefix_preserving(stored)
    call = '{"name": "guess", "arguments": {"number": "42"}}'
    text = f"17-47\n<tool_call>\n{call}\n</tool_call>{CLOSE}"
    tools = [NumberGuess().guess]
    parsed = parse_response(stored, stored(text)["input_ids"], prefix=[], tools=tools)
    (read,) = parsed["tool_calls"]
    assert parsed["content"] == "17-47"
    assert read["function"] == {"name": "guess", "arguments": {"number": 42}}
    for broken in (text.replace("}}", "}"), text[:40], f"{call}{CLOSE}"):
        assert "tool_calls" not in parse_response(stored, stored(broken)["input_ids"], prefix=[])
    several = [{"function": {"name": n, "arguments": a}} for n, a in (("f", {}), ("g", '{"a": 1}'))]
    chat = [{"role": "assistant", "content": None, "tool_calls": several}]
    assert stored.apply_chat_template(chat, tokenize=False) == (
        f'{OPEN}assistant\n<tool_call>\n{{"name": "f", "arguments": {{}}}}\n</tool_call>\n'
        f'<tool_call>\n{{"name": "g", "arguments": {{"a": 1}}}}\n</tool_call>{CLOSE}\n'
    )


def test_trl_trains_the_model_on_its_games_without_decile(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    trainer = trainer_of(embedded_path("tiny-guess"), tmp_path, updates=2, seed=0, batch=16)
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    updates = [line for line in trainer.state.log_history if "reward" in line]
    assert [line["step"] for line in updates] == [1, 2]
    assert all(0 <= line["rewards/NumberGuess/mean"] <= 1 for line in updates)
    assert all(1 < line["tools/call_frequency"] <= 5 for line in updates)
    assert all(line["tools/failure_frequency"] < 0.2 for line in updates)
    assert any(not torch.equal(value, before[n]) for n, value in trainer.model.named_parameters())

"""The embedded models: their training texts, tokenizers and pass rates."""

import hashlib
import random
import re
from itertools import islice
from typing import Any

import pytest
import torch
from embedded_cases import LIMIT, drawn, folder, name, tokenizer  # noqa: F401 (fixtures)
from processes import loaded_libraries

from benchmarks.embedded import arithmetic, number_guess, plus_minus
from benchmarks.embedded.lessons import LESSONS
from benchmarks.embedded.pretrain import make_model
from benchmarks.embedded.shuffled_objects import careful, scenarios
from benchmarks.embedded.vocabulary import CLOSE
from orchestrator.embedded import EMBEDDED, embedded_path
from tasks.arithmetic import prompt_of as sums_prompt_of
from tasks.number_guess import WIDTHS
from tasks.plus_minus import prompt_of as chain_prompt_of
from tasks.prompts import in_test_split, make_prompt
from tasks.shuffled_objects import LETTERS, Scenario, ShuffledObjects, prompt_of

# The figures on their pages and the keys of stored probes depend on these bytes.
WEIGHTS = {
    "tiny": "626c0c28cee58a2f39e730c3a6fc0027f78603b361177e01b01e14e361aad1a1",
    "tiny-arithmetic": "28d5fcf022c0f0be3aeee9bd1f806d4ea6ddf3b2aac27fc014072e11eaeb4afa",
    "tiny-plus-minus": "153d72ca13fd4e51cd48c2d3fa062e2443f6affdc4fa5d5deb3c0a6ff43a34eb",
    "tiny-guess": "65cf74c202f99cb2d2fd18a3470ea0e6f7a3132189d8d44518771566f8eafc36",
}

# Of 100 questions of each stage with their texts, from which these weights were trained.
TEXTS = {
    "tiny": "b70a161c47ec685b",
    "tiny-arithmetic": "acaec477fc53cc68",
    "tiny-plus-minus": "d51a0be295c318a3",
    "tiny-guess": "bae9d77933a92402",
}


def shuffled_scenarios(count: int, seed: int = 0) -> list[Scenario]:
    return list(islice(scenarios(random.Random(seed), (3, 5, 7), (2, 7)), count))


def arithmetic_scenarios(count: int, seed: int = 0) -> list[arithmetic.Scenario]:
    return list(islice(arithmetic.scenarios(random.Random(seed), (1, 2, 3, 4, 5)), count))


def scenarios_of(name: str, count: int) -> list[Any]:
    if name == "tiny-plus-minus":
        return list(islice(plus_minus.worked(random.Random(0), (0, 1, 2, 3)), count))
    if name == "tiny-guess":
        return list(islice(number_guess.played(random.Random(0), WIDTHS), count))
    return shuffled_scenarios(count) if name == "tiny" else arithmetic_scenarios(count)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="tiny, tiny-arithmetic, tiny-plus-minus, tiny-guess"):
        embedded_path("huge")
    assert tuple(LESSONS) == tuple(EMBEDDED) == tuple(WEIGHTS)


def test_naming_the_model_imports_no_heavy_library() -> None:
    assert not loaded_libraries("import orchestrator.embedded") & {"torch", "transformers"}


def test_no_stage_trains_on_a_question_of_any_test_set(name: str) -> None:
    lesson = LESSONS[name]
    as_prompt: Any = {
        "tiny": prompt_of,
        "tiny-arithmetic": sums_prompt_of,
        "tiny-plus-minus": lambda item: chain_prompt_of(item.chain),
        "tiny-guess": lambda item: make_prompt("number_guess", item.question(), "", ""),
    }[name]
    for source in (*(stage.source for stage in lesson.stages), lesson.vocabulary):
        items = islice(source(random.Random(1)), 100)
        assert not any(in_test_split(as_prompt(item)) for item in items)


def test_the_training_texts_are_those_of_the_stored_weights(name: str) -> None:
    lesson, rng, digest = LESSONS[name], random.Random(0), hashlib.sha256()
    for stage in lesson.stages:
        for item in islice(stage.source(rng), 100):
            text = lesson.styled(item, rng)[1] if lesson.mixture else lesson.careful(item)
            digest.update(f"{item.question()}\n{text}\n".encode())
    assert digest.hexdigest()[:16] == TEXTS[name]


def test_careful_traces_are_correct_in_each_swap_and_the_answer() -> None:
    task = ShuffledObjects()
    for item in shuffled_scenarios(300):
        text = careful(item)
        assert task.mark(text, item.letter()).outcome == "correct"
        states = list(item.states())
        answer = states[-1][item.target]
        line = r"^(\d)\) (\w+) (\w+): (\w+) (\(\w\))$"
        for step, a, b, holder, letter in re.findall(line, text, re.MULTILINE):
            assert letter == f"({LETTERS[item.names.index(holder)]})"
            first, second = item.swaps[int(step) - 1]
            assert (a, b) == (item.names[first], item.names[second])
            assert states[int(step) - 1][item.names.index(holder)] == answer
        assert len(re.findall(r"^\d\)", text, re.MULTILINE)) == len(item.swaps)


def test_traces_compute_every_sum_correctly_and_box_the_gold() -> None:
    task = LESSONS["tiny-arithmetic"].task
    for item in arithmetic_scenarios(300):
        text, value = arithmetic.careful(item), item.start
        *lines, box = text.splitlines()
        assert len(lines) == len(item.actions)
        for index, line in enumerate(lines, start=1):
            step, a, sign, b, result = re.fullmatch(
                r"(\d)\) (\d+) (.) (\d+) = (\d+)", line
            ).groups()
            assert (int(step), int(a)) == (index, value)
            value = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}[
                sign
            ](int(a), int(b))
            assert int(result) == value <= 100
        assert box == f"\\boxed{{{item.answer()}}}"
        assert task.mark(text, str(item.answer())).outcome == "correct"


def test_only_subtractions_are_wrong_in_the_text_of_the_constructed_weakness() -> None:
    rng = random.Random(0)
    right = {"+": [], "-": []}
    for item in islice(plus_minus.worked(rng, (0, 1, 2, 3)), 1000):
        *lines, box = plus_minus.written(item).splitlines()
        value = item.chain.start
        for line in lines:
            a, sign, b, result = re.fullmatch(r"\d\) (\d+) (.) (\d+) = (\d+)", line).groups()
            assert int(a) == value
            value = int(result)
            right[sign].append(value == (int(a) + int(b) if sign == "+" else int(a) - int(b)))
        assert box == f"\\boxed{{{value}}}"
        solved = LESSONS["tiny-plus-minus"].task.mark(box, str(item.chain.answer())).reward
        assert solved == all(error == 0 for error in item.errors)
    assert all(right["+"])
    assert 0.35 < sum(right["-"]) / len(right["-"]) < 0.45


@pytest.mark.parametrize(
    "text",
    [
        "Ada has 12 apples. Then she splits all her apples into 3 equal parts.\n1) 12 / 3 = 4\n",
        "Ana gets Moby Dick. Then, Ana and Ben swap books.\n(A) red\n\\boxed{(B)}",
        "naïve 漢字 🎉 עברית",
        "".join(map(chr, range(1, 256))),
        "  two  spaces\t\r\n\n and a \x00 null",
        " ?!…“”",
    ],
)
def test_any_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_nearly_all_careful_traces_fit_the_limit(name: str, tokenizer: Any) -> None:
    lesson, items = LESSONS[name], scenarios_of(name, 500)
    lengths = [len(tokenizer(lesson.careful(item) + CLOSE)["input_ids"]) for item in items]
    assert sum(length > LIMIT for length in lengths) <= 5


def test_the_first_layer_attends_to_its_initial_offsets(name: str, tokenizer: Any) -> None:
    offsets = LESSONS[name].offsets
    model = make_model(tokenizer, 0, offsets)
    model.config._attn_implementation = "eager"
    ids = torch.randint(0, len(tokenizer), (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first = model(ids, output_attentions=True).attentions[0]  # [rows, heads, to, from]
    for head, offset in enumerate(offsets):
        assert (
            first[:, head].argmax(-1)[:, 18:] == torch.arange(18, 40) - offset
        ).float().mean() > 0.9


def test_the_folder_is_small_and_contains_no_pickle(name: str) -> None:
    files = list(folder(name).iterdir())
    assert sum(file.stat().st_size for file in files) <= 3e6
    assert {f.suffix for f in files} <= {".safetensors", ".json", ".jinja"}


def test_the_weights_have_the_pinned_hash(name: str) -> None:
    weights = (folder(name) / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == WEIGHTS[name]


def test_the_model_loads_through_the_auto_classes_and_generates(name: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder(name))
    tokenizer = AutoTokenizer.from_pretrained(folder(name))
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


def test_the_constructed_weakness_grows_with_the_number_of_subtractions() -> None:
    questions = LESSONS["tiny-plus-minus"].task.test()[:80]
    solved: dict[str, list[bool]] = {tier: [] for tier in "0123"}
    for prompt, row in zip(questions, drawn("tiny-plus-minus", questions, 8), strict=True):
        solved[prompt.tier] += [right for _, right in row]
    shares = [sum(solved[tier]) / len(solved[tier]) for tier in "0123"]
    assert shares[0] > 0.95
    assert 0.25 < shares[1] < 0.6
    assert shares[1] > shares[2] + 0.1 > shares[3] + 0.15

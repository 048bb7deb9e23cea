"""Prompts that are rendered in a model's chat template: the question inside is asked, or none."""

import json
from pathlib import Path

import pytest
from remedies import refused

from orchestrator.optional.exchange.imports import import_probe
from orchestrator.optional.exchange.records import Hints
from tasks import TaskError, get_task
from tasks.question_file import QuestionFile
from tasks.sources.chat_templates import is_rendered, unwrapped
from tasks.sources.files import SYSTEM, read_file
from tasks.sources.survey import survey_rows
from tasks.sources.texts import RENDERED, TEMPLATES

Q = "How many of 9 sheep\nare left?"
RENDERINGS = {
    "ChatML": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{q}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n",
    "Phi-4": "<|im_start|>user<|im_sep|>{q}<|im_end|><|im_start|>assistant<|im_sep|>",
    "Llama 3": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{q}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "Llama 4": "<|header_start|>user<|header_end|>\n\n{q}<|eot|>"
    "<|header_start|>assistant<|header_end|>\n\n",
    "Gemma": "<bos><start_of_turn>user\n{q}<end_of_turn>\n<start_of_turn>model\n",
    "DeepSeek": "<｜begin▁of▁sentence｜><｜User｜>{q}<｜Assistant｜><think>\n",
    "gpt-oss": "<|start|>user<|message|>{q}<|end|><|start|>assistant",
    "Command R": "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{q}<|END_OF_TURN_TOKEN|>"
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "Kimi": "<|im_user|>user<|im_middle|>{q}<|im_end|><|im_assistant|>assistant<|im_middle|>",
    "Zephyr": "<|user|>\n{q}</s>\n<|assistant|>\n",
    "Llama 2": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n{q} [/INST]",
    "Mistral": "<s>[INST] {q} [/INST]",
    "decoded": "system\nBe brief.\nuser\n{q}\nassistant\n",
    "Alpaca": "Below is an instruction.\n\n### Instruction:\n{q}\n\n### Response:",
    "R1-Zero": "A conversation between User and Assistant. The user asks. User: {q} "
    "Assistant: <think>",
    "TinyZero": "A talk.\nUser: {q}\nAssistant: Let me solve this step by step.\n<think>",
    "Claude": "\n\nHuman: {q}\n\nAssistant:",
}


@pytest.mark.parametrize("name", RENDERINGS)
def test_the_question_is_taken_out_of_every_template(name: str) -> None:
    rendered = unwrapped(RENDERINGS[name].format(q=Q))
    assert rendered is not None and rendered.question == Q and rendered.turns == 0
    before = RENDERINGS[name].partition("{q}")[0]
    assert rendered.system == any(text in before for text in ("brief", "Below", "A "))


@pytest.mark.parametrize(
    "text",
    [
        Q,
        "Which is the final answer?",
        "Which model",
        "Translate:\nUser: Hi\nAssistant: Hello",  # a conversation that is not open
        "Is `### Response:` a mark of Alpaca or of\nChatML?",
        "The user\nasks the assistant",
        "Name the\nuser\n",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert unwrapped(text) is None and not is_rendered(text)


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n",
        "User: 1 + 1? Assistant: 2 User: 2 + 2? Assistant:",
    ],
)
def test_a_text_that_does_not_tell_its_question_is_refused(text: str) -> None:
    with refused("chat template", by=TaskError):
        unwrapped(text)
    assert is_rendered(text)


def test_of_several_turns_the_last_is_the_question() -> None:
    turns = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
    rendered = unwrapped(f"{turns}<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n")
    assert rendered is not None and (rendered.question, rendered.turns) == ("c", 2)


def test_what_an_instruction_is_about_stays_in_the_question() -> None:
    text = "### Instruction:\nAdd.\n\n### Input:\n1 and 2\n\n### Response:\n"
    rendered = unwrapped(text)
    assert rendered is not None and rendered.question == "Add.\n\n1 and 2"


@pytest.mark.parametrize("suffix", ["", " "])  # read by columns, and by rows
def test_a_file_is_unwrapped_by_init_task_and_import_alike(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / "mine.jsonl"
    texts = [RENDERINGS["ChatML"].format(q=f"What is {i}?") for i in range(40)]
    rows = [
        {"question": text, "answer": f"{i}{suffix}", "completion": "2"}
        for i, text in enumerate(texts)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert survey_rows(read_file(file, []), "question", "answer").rendered == 40
    questions = {f"What is {i}?" for i in range(40)}
    task = QuestionFile(train=str(file), unwrap=True)
    assert {prompt.question for prompt in task.train()} == questions
    assert any(TEMPLATES in note for note in task.notes)
    assert any(SYSTEM in note for note in task.notes)
    as_it_is = QuestionFile(train=str(file))
    assert {prompt.question for prompt in as_it_is.train()} == {*texts}
    assert any(RENDERED in note for note in as_it_is.notes)
    for unwrap in (True, False):
        own = get_task("file", unwrap=unwrap)
        imported = import_probe(file, None, own, hints=Hints(question="question"))
        expected = task if unwrap else as_it_is
        assert {p.prompt_id for p in imported.prompts} == {p.prompt_id for p in expected.train()}
        assert any((TEMPLATES if unwrap else RENDERED) in note for note in imported.notes)


def test_a_row_whose_question_cannot_be_told_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [{"question": RENDERINGS["ChatML"].format(q="a"), "answer": "1"}] * 2
    rows.append({"question": "User: a Assistant: 2 User: b Assistant:", "answer": "1"})
    file.write_text("\n".join(map(json.dumps, rows)))
    with refused(f"{file}:3", by=TaskError):
        QuestionFile(train=str(file), unwrap=True).train()
    with refused("unwrap", "yes", by=TaskError):
        QuestionFile(train=str(file), unwrap="yes")  # type: ignore[arg-type]

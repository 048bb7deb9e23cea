"""Prompts that are rendered in a model's chat template, and the question inside them.

If such a text were asked unchanged, the model's own template would wrap it a second time. The marks
of templates are defined only here.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from tasks.errors import TaskError


class Unwrapped(NamedTuple):
    """The last user turn of a rendered prompt, and the name of its template.

    `system` and `turns` count the system messages and the other messages that are left out.
    """

    template: str
    question: str
    system: int
    turns: int


class _ChatTemplate(NamedTuple):
    """How a template marks turns: the first group of `turn` that matches is the role.

    `end` closes a turn. `tokens`: the marks are tokens of a model, which do not occur in questions.
    Words such as `User:` are marks only if the text ends with an open turn of the assistant.
    """

    name: str
    turn: re.Pattern[str]
    end: re.Pattern[str]
    tokens: bool = True


# Names of the roles in templates, in lower case.
_ROLES: Mapping[str, str] = {
    "[inst]": "user",
    "[/inst]": "assistant",
    "[system_prompt]": "system",
    "human": "user",
    "instruction": "user",
    "question": "user",
    "model": "assistant",
    "chatbot": "assistant",
    "gpt": "assistant",
    "response": "assistant",
    "answer": "assistant",
    "developer": "system",
}
_NO_END = re.compile(r"(?!)")
# As tokenizers decode ChatML, Llama 3 and Gemma without special tokens.
_DECODED = _ChatTemplate(
    "roles on lines of their own",
    re.compile(r"(?:^|\n)(system|user|assistant|model)\n+|(?<=\S)(assistant)\n\n$"),
    _NO_END,
    tokens=False,
)
# As the tokenizers of these models write them; DeepSeek's bars are full-width.
_TEMPLATES = (
    _ChatTemplate(
        "ChatML",
        re.compile(r"<\|im_start\|>\s*(\w+)(?:<\|im_sep\|>)?"),
        re.compile(r"<\|im_end\|>"),
    ),
    _ChatTemplate(
        "Llama 3",
        re.compile(r"<\|start_header_id\|>\s*(\w+)\s*<\|end_header_id\|>"),
        re.compile(r"<\|eot_id\|>|<\|eom_id\|>|<\|end_of_text\|>"),
    ),
    _ChatTemplate(
        "Llama 4",
        re.compile(r"<\|header_start\|>\s*(\w+)\s*<\|header_end\|>"),
        re.compile(r"<\|eot\|>|<\|end_of_text\|>"),
    ),
    _ChatTemplate(
        "Gemma", re.compile(r"<start_of_turn>\s*(\w+)"), re.compile(r"<end_of_turn>|<eos>")
    ),
    _ChatTemplate(
        "DeepSeek",
        re.compile(r"<[|｜]\s*(User|Assistant)\s*[|｜]>"),
        re.compile(r"<[|｜]\s*end[▁_ ]of[▁_ ]sentence\s*[|｜]>"),
    ),
    _ChatTemplate(
        "gpt-oss",
        re.compile(r"<\|start\|>(\w+)(?:<\|channel\|>\w+)?(?:<\|message\|>)?"),
        re.compile(r"<\|end\|>|<\|return\|>"),
    ),
    _ChatTemplate(
        "Command R",
        re.compile(r"<\|START_OF_TURN_TOKEN\|>\s*<\|(\w+)_TOKEN\|>"),
        re.compile(r"<\|END_OF_TURN_TOKEN\|>"),
    ),
    _ChatTemplate(
        "Kimi",
        re.compile(r"<\|im_(user|assistant|system)\|>\w*(?:<\|im_middle\|>)?"),
        re.compile(r"<\|im_end\|>"),
    ),
    _ChatTemplate(
        "Phi, Zephyr or GLM",
        re.compile(r"<\|(system|user|assistant)\|>"),
        re.compile(r"<\|end\|>|</s>|<\|endoftext\|>|<\|end_of_text\|>"),
    ),
    _ChatTemplate(
        "Llama 2 or Mistral",
        re.compile(r"(\[INST\]|\[/INST\]|\[SYSTEM_PROMPT\])"),
        re.compile(r"\[/SYSTEM_PROMPT\]|</s>"),
    ),
    _DECODED,
    _ChatTemplate(
        "Alpaca",
        re.compile(
            r"(?:^|(?<=\n))[ \t]*###[ \t]*(Instruction|Input|Response|System|User|Human|Assistant|"
            r"Question|Answer)s?[ \t]*(?::|(?=\n|\Z))"
        ),
        _NO_END,
        tokens=False,
    ),
    _ChatTemplate(
        "User: … Assistant:",
        re.compile(r"(?:^|(?<=\s))(User|USER|Human|HUMAN|Assistant|ASSISTANT|GPT):"),
        re.compile(r"</s>"),
        tokens=False,
    ),
)
_BEGIN = re.compile(
    r"\A\s*(?:<s>|<bos>|\[gMASK\]<sop>|<\|begin_of_text\|>|<\|startoftext\|>|"
    r"<[|｜]begin[▁_ ]of[▁_ ]sentence[|｜]>)+"
)
_LLAMA_2_SYSTEM = re.compile(r"\A\s*<<SYS>>.*?<</SYS>>", re.DOTALL)
THINKING = re.compile(r"<think>\s*(?:</think>\s*)?\Z")
# The content of an open turn of the assistant: nothing, or the beginning of its reasoning.
_OPEN = re.compile(r"\s*(?:[^<]{0,200}<think>\s*(?:</think>\s*)?)?")
# A rendered text has a token of a template, or a role at its start or end. Also for Arrow.
MARKS = (
    r"(?is)<\|im_start\|>|<\|start_header_id\|>|<\|header_start\|>|<start_of_turn>|"
    r"<[|｜] *(?:user|assistant) *[|｜]>|<\|start\|>|<\|start_of_turn_token\|>|<\|im_user\|>|"
    r"\[inst\]|^(?:system|user)\n|(?:assistant|response|answer|gpt|model)s?[:\s]*(?:[^<]{0,200}<think>\s*"
    r"(?:</think>\s*)?)?$"
)
_MARKS = re.compile(MARKS)


def unwrapped(text: str) -> Unwrapped | None:
    """The question in a text that is rendered in a chat template; None for any other text.

    Raises TaskError if it is unclear which part of the text is the question.
    """
    if not _MARKS.search(text):
        return None
    for template in _TEMPLATES:
        turns = [*template.turn.finditer(text)]
        if turns and (template.tokens or _is_open(template, text, turns)):
            return _last_question(template, text, turns)
    return None


def is_rendered(text: str) -> bool:
    """Whether a text is rendered in a chat template, even if its question is unclear."""
    try:
        return unwrapped(text) is not None
    except TaskError:
        return True


def _role(turn: re.Match[str]) -> str:
    word = next(filter(None, turn.groups())).lower()
    return _ROLES.get(word, word)


def _is_open(template: _ChatTemplate, text: str, turns: list[re.Match[str]]) -> bool:
    """Whether a text that is marked by words ends with an open turn of the assistant.

    A decoded text begins with a role, after which the open turn may hold anything.
    """
    roles = [_role(turn) for turn in turns]
    if roles[-1] != "assistant" or "user" not in roles:
        return False
    if template is _DECODED and turns[0].start() == 0:
        return True
    return _OPEN.fullmatch(text, turns[-1].end()) is not None


def _last_question(template: _ChatTemplate, text: str, turns: list[re.Match[str]]) -> Unwrapped:
    """The last user turn. Raises TaskError if there is none, or if the question is ambiguous."""
    problem = f"the question is rendered in a chat template ({template.name})"
    remedy = "write the question alone, or as messages"
    roles = [_role(turn) for turn in turns]
    users = [index for index, role in enumerate(roles) if role == "user"]
    if not users:
        raise TaskError(f"{problem} without a user turn: {remedy}")
    if template.name.startswith("User:") and len(users) > 1:
        raise TaskError(f"{problem} with several user turns, which may be one question: {remedy}")
    system = roles.count("system")
    others = len(roles) - system - 1 - (roles[-1] == "assistant")
    last = users[-1]
    question = _content(template, text, turns, last)
    if roles[last + 1 : last + 2] == ["input"]:  # the input of Alpaca's instruction
        question = f"{question}\n\n{_content(template, text, turns, last + 1)}"
        others -= 1
    if match := _LLAMA_2_SYSTEM.match(question):
        question = question[match.end() :].lstrip()
        system += 1
    if not question:
        raise TaskError(f"{problem} with an empty user turn: {remedy}")
    before = _BEGIN.sub("", text[: turns[0].start()])
    system += bool(before.strip())
    return Unwrapped(template.name, question, system, others)


def _content(template: _ChatTemplate, text: str, turns: list[re.Match[str]], index: int) -> str:
    """The content of a turn, without its closing mark."""
    end = turns[index + 1].start() if index + 1 < len(turns) else len(text)
    content = text[turns[index].end() : end]
    if closed := template.end.search(content):
        content = content[: closed.start()]
    return content.strip("\n") if template is _DECODED else content.strip()

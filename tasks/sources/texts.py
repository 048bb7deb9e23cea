"""The question and the answer of a row, as texts."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, NamedTuple

from orchestrator.plugins.counts import counted
from tasks.errors import TaskError
from tasks.marking.golds import final_answer
from tasks.sources.chat_templates import is_rendered, unwrapped
from tasks.sources.choices import Numbering, choices_of, numbering_of
from tasks.sources.files import SYSTEM, TURNS, cell, column_value, is_chat, read_chat
from tasks.sources.roles import GOLDS, ROLES, columns_in_role, spelling
from tasks.sources.values import json_object_of, literal_of, value_text, whole

ANSWERS = "rows have several answers: the first is used"
INSTRUCTIONS = (
    "questions had instructions on the form of the answer; they were removed, because the task "
    "adds its own"
)
SOLUTIONS = "answers were read from the end of a worked solution"
TEMPLATES = "questions were taken out of the chat template in which they are rendered"
RENDERED = (
    "questions are rendered in a chat template, and are asked inside the model's own: set "
    "unwrap: true of task file to take them out of it"
)
# One answer in a wrapper: a list of one text, as JSON or in Python's notation; math delimiters;
# tags; the end of a sentence.
_FORMS = (
    re.compile(r"""\[\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*\]""", re.DOTALL),
    re.compile(r"\\\((.+)\\\)|\\\[(.+)\\\]", re.DOTALL),
    re.compile(r".*<answer>(.+?)</answer>", re.DOTALL | re.IGNORECASE),
    re.compile(r".*\bthe (?:final |correct )?answer is:?\s+(\S.*?)\.?", re.DOTALL | re.IGNORECASE),
)
# The same for Arrow: whether a text may have one of these forms.
FORMS = r"""^\s*\{\s*"|^\s*\[\s*["']|^\s*\\[(\[]|(?i:</answer>|answer is)"""
# Words of data sets for missing answers, in lower case: first those that are never an answer, then
# those that may be an answer in words.
NO_ANSWERS = (
    *("n/a", "n.a.", "notfound", "tbd", "tba", "tbc", "todo", "fixme", "to be determined"),
    *("not available", "?", "??", "???", "-", "--", "—", "–", "...", "…", "xxx", "blank"),
    *("#n/a", "#ref!", "#value!", "#name?", "<na>", "nat", "undefined", "see above", "none given"),
)
PLACEHOLDERS = (
    *("proof", "not found", "nan", "null", "none", "unknown", "missing", "pending", "no answer"),
    *NO_ANSWERS,
)


def plain_answer(text: str) -> str:
    """An answer without the wrapper of data sets; any other text unchanged."""
    text = text.strip()
    if (value := json_object_of(text)) is not None:
        gold = gold_field(value)
        text = text if isinstance(gold, Mapping | list) else _plain(gold, "").strip()
    for form in _FORMS:
        if match := form.fullmatch(text):
            inside = next(filter(None, match.groups()))
            value = literal_of(inside) if inside[0] in "\"'" else None
            text = inside.strip() if value is None else str(value)
    return text


CHAT_TEXT = re.compile(r"\s*\[\s*\{")  # how chat messages as JSON text begin
_TEXT_LIST = re.compile(r"\s*\[\s*\"")  # how several answers as JSON text begin
_NO_ANSWER = re.compile(r"(?<!\S)####\s*\Z")  # as GSM8K's solutions end, but without a number


class Texts(NamedTuple):
    """A row's question and answer ("" if there is none), and a label for each omission."""

    question: str
    answer: str
    dropped: tuple[str, ...] = ()


def read_texts(
    row: Mapping[str, Any],
    question: str,
    answer: str,
    *,
    choices: Numbering | None = None,
    unwrap: bool = False,
) -> Texts:
    """The texts of two columns: each a text, a number, or chat messages, also as JSON text.

    In messages, the question is the last user message and the answer is the assistant's reply to
    it, so one column may hold both. The question of an `instruction` continues with the column
    `input`. choices: choices in separate columns become part of the question, and their letter the
    answer. unwrap: a text that is rendered in a chat template is read as the original messages.
    Raises KeyError for an absent column, and TaskError for a value of any other form.
    """
    dropped: list[str] = []
    question_value, answer_value = column_value(row, question), column_value(row, answer)
    own_choices = choices_of(row) if choices is not None else None
    if isinstance(question_value, str) and CHAT_TEXT.match(question_value):
        with suppress(ValueError, RecursionError):
            messages = json.loads(question_value)
            question_value = messages if is_chat(messages) else question_value
    if is_chat(question_value):
        chat = read_chat(question_value)
        turns = chat.turns + bool(chat.reply and answer != question)
        dropped += [SYSTEM] * chat.system + [TURNS] * turns
        question_value = chat.question
    answer_value, several = one_answer(answer_value)
    dropped += [ANSWERS] * several
    text = _plain(question_value, question)
    if unwrap and (rendered := unwrapped(text)) is not None:
        dropped.append(TEMPLATES)
        dropped += [SYSTEM] * rendered.system
        dropped += [TURNS] * rendered.turns
        text = rendered.question
    elif is_rendered(text):
        dropped.append(RENDERED)
    if text and (more := input_text(row, question, answer)):
        text = f"{text.rstrip()}\n\n{more}"
    if own_choices and choices is not None and text:
        text = own_choices.asked(text)
        if answer != question and answer_value not in (None, ""):
            answer_value = own_choices.letter(answer_value, choices.first)
    return Texts(text, _plain(answer_value, answer), tuple(dropped))


def input_text(row: Mapping[str, Any], question: str, answer: str) -> str:
    """The input of an instruction, as in Alpaca's rows: the text of the column `input`."""
    value = row.get("input") if question.lower() == "instruction" and answer != "input" else None
    return value.strip() if isinstance(value, str) else ""


def choice_numbering(rows: Iterable[tuple[Mapping[str, Any], str | None]]) -> Numbering:
    """How a file's answers number the choices, from its rows and their columns of answers.

    Raises TaskError if that is ambiguous.
    """
    return numbering_of((row, one_answer(cell(row, name))[0]) for row, name in rows if name)


def one_answer(value: Any) -> tuple[Any, bool]:
    """The answer in a value, and whether it is the first of several.

    In a chat, it is the reply; in an object, the only field with the name of an answer. A list of
    texts may also be JSON text. None if a worked solution ends with an empty `####`.
    """
    if isinstance(value, Mapping):
        value = gold_field(value)
    if isinstance(value, str) and _TEXT_LIST.match(value):
        with suppress(ValueError, RecursionError):
            texts = json.loads(value)
            value = texts if len(texts) > 1 and all(isinstance(t, str) for t in texts) else value
    several = isinstance(value, list) and not is_chat(value) and len(value) > 1
    if is_chat(value):
        value = read_chat(value).reply
    elif isinstance(value, list):
        value = value[0] if value else None
    return None if isinstance(value, str) and _NO_ANSWER.search(value) else value, several


def other_golds(
    rows: Sequence[Mapping[str, Any]], places: Sequence[str], answer: str, question: str = ""
) -> str:
    """A note on rows in which another gold column disagrees with the column that is read.

    Texts are compared literally, worked solutions by their final answers. "" if all agree.
    """
    names = [*dict.fromkeys(name for row in rows for name in row)]
    others = columns_in_role("answer beside completions", names, answer, question)
    for other in others:
        if spelling(other) in ("solution", "solutions", "label"):  # these may have other contents
            continue
        different = []
        for row, place in zip(rows, places, strict=True):
            values = [one_answer(cell(row, name))[0] for name in (answer, other)]
            if all(isinstance(value, str | int | float) for value in values):
                own, its = (plain_answer(final_answer(value_text(value))) for value in values)
                different += [place] if own and its and own != its else []
        if different:
            shown = ", ".join(different[:3]) + (", …" if len(different) > 3 else "")
            return (
                f"{other!r:.40} differs from {answer!r:.40}, which is read as the gold answer, in "
                f"{len(different):,} of {counted(len(rows), 'row')} ({shown})"
            )
    return ""


def is_unasked(row: Mapping[str, Any], name: str, asked: str) -> bool:
    """Whether a column has a text, such as an article, that the question asked does not contain."""
    text = cell(row, name)
    return isinstance(text, str) and text.strip() not in asked


def gold_field(value: Mapping[str, Any]) -> Any:
    """The value of an object's only field with the name of an answer; else the object."""
    for names in (ROLES["answer field"].names, GOLDS):
        named = [name for name in names if value.get(name) is not None]
        if named:
            return value[named[0]] if len(named) == 1 else value
    return value.get("text", value) if "answer_start" in value else value  # as in SQuAD


def _plain(value: Any, column: str) -> str:
    """A text or a number as text; "" for null and NaN."""
    if value is None or value != value:
        return ""
    value = whole(value)
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, float | Decimal):  # str would write 1e+16 and 0E-7
        return f"{Decimal(str(value)):f}"
    kind = "an object" if isinstance(value, Mapping) else "a list"
    kind = kind if isinstance(value, Mapping | list) else type(value).__name__
    inside = f", such as {column}.{next(iter(value))}" if kind == "an object" and value else ""
    raise TaskError(
        f"column {column!r} has {kind}: write text or a list of messages "
        f'({{"role": …, "content": …}}), or name a value inside it{inside}'
    )

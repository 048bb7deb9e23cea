"""What a file of questions holds: its columns, the forms of its answers, the marker that fits."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from tasks.base import Answer, TaskError
from tasks.marking.golds import Marker, final_answer
from tasks.marking.numbers import normalize_number
from tasks.question_file import QuestionFile
from tasks.sources.choices import Numbering, choices_of
from tasks.sources.files import (
    PLACEHOLDERS,
    Row,
    Rows,
    cell,
    choice_numbering,
    input_text,
    is_chat,
    plain_answer,
    read_texts,
)
from tasks.sources.roles import ROLES, columns_in_role, spelling
from tasks.sources.values import json_object_of

SAMPLED = 2_000  # rows that columns are recognized by
MAX_TIERS = 20  # different values of a column of tiers
MAX_SOURCES = 100  # of a column of sources, which have four rows each at least
_SHOWN = 12  # columns that a message lists
_MOST = 0.9  # share of the answers that decides

_LETTER = re.compile(r"\(?([A-Z])\)?")
_UNIT = re.compile(r"[-+]?\\?[$€£¥]?\s?\d[\d,]*(?:\.\d+)?\s?(?:\\?%|°|[A-Za-zµ]+[²³]?)?")
_DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}")
_LATEX = re.compile(r"\\[A-Za-z]|\$|[\^_]\{?\w")
_FORMULA = re.compile(r"(?=.*\d)(?!.*[A-Za-z]{3})[\w\s.,:;+*/^=()\[\]{}<>|!√π·×≤≥∞-]+")
_NONE = ("placeholders", "JSON objects")  # no answers
_MATHS = ("integers", "decimals", "fractions", "numbers with a unit", "LaTeX or formulas")


class Column(NamedTuple):
    """One column, or a value inside one: what it holds as a question and as an answer.

    `questions` and `answers` are rows with such a text, a number counts as one; `words` are rows
    with a text or messages, `chats` those with messages. `length` is the mean of the questions'
    characters.
    """

    questions: int
    answers: int
    words: int
    chats: int
    length: float


@dataclass(frozen=True)
class FileSurvey:
    """What a file holds under one choice of columns and marker.

    `forms` counts the answers by form, `worked` those at the end of a worked solution. `invalid`
    are rows without a question, or without an answer that the marker marks correct (a function is
    not called): their place and the reason. `unlabelled` are rows without an answer where answers
    are optional, None where they are not. `contexts` are columns of texts that questions may be
    about, and that are not asked; `inputs` are rows whose instruction goes on in `input`.
    Questions count without a known tool's instructions.
    """

    rows: int
    columns: Mapping[str, Column]
    question: str
    answer: str
    tier: str | None
    source: str | None
    id: str | None  # a column that tells every row from the others
    marker: str
    forms: Mapping[str, int]
    worked: int
    instructed: int  # questions that mention a box, so that they say how to answer
    choices: bool  # in columns of their own, asked with the questions
    choice_notes: Sequence[str]
    contexts: Sequence[str]
    inputs: int
    repeated: int
    contradicted: int  # questions with several answers that can be used
    invalid: Sequence[tuple[str, str]]
    unlabelled: int | None
    longest_question: int  # characters
    solution_length: int  # 95th percentile of worked solutions in characters; 0 without any

    @property
    def mixed(self) -> str:
        """How a mixture of forms is marked; empty where all answers are of the marker's form."""
        maths = sum(self.forms.get(form, 0) for form in _MATHS)
        others = sum(self.forms.values()) - sum(self.forms.get(form, 0) for form in _NONE) - maths
        if self.marker == "text" and maths:
            return f"{maths:,} are numbers or formulas, of which text accepts one spelling only"
        if self.marker == "expression" and others:
            return f"{others:,} are words or letters, which are read as expressions"
        return ""

    @property
    def valid(self) -> int:
        """Rows that can be used."""
        return self.rows - len(self.invalid)


def survey_rows(
    read: Rows,
    question: str | None = None,
    answer: str | None = None,
    marker: str | None = None,
    *,
    optional: bool = False,
) -> FileSurvey:
    """Survey the rows of a file; what is None is derived from them.

    optional: rows may lack an answer, and the file a column of them. Raises TaskError if the
    columns are not in the file or cannot be recognized.
    """
    columns = columns_of(read.rows)
    used = question, answer = choose_columns(columns, question, answer, optional=optional)
    choices = marker in (None, "letter") and _has_choices(read)
    marker = "letter" if choices else marker
    numbered = ((row, answer) for row in read.rows)
    numbering = choice_numbering(numbered) if marker == "letter" else None
    unasked = ":" not in (marker or "")  # a function may read the choices itself
    texts = [
        _read(row, question, answer, numbering, unasked=unasked, optional=optional)
        for row in read.rows
    ]
    bare = QuestionFile().bare_question
    pairs = [(bare(text), gold) for text, gold, _ in texts]
    finals = (plain_answer(final_answer(gold)) for _, gold in pairs)
    forms = Counter(map(answer_form, filter(None, finals)))
    recognized = marker or choose_marker(forms, optional=optional)
    if marker is None and recognized == "letter":  # of which some have choices
        return survey_rows(read, question, answer, recognized, optional=optional)
    marked = QuestionFile(marker=recognized, answers="optional" if optional else "required")
    golds = [marked.read_answer(gold) if asked and gold else None for asked, gold in pairs]
    most = min(MAX_SOURCES, len(read.rows) // 4)
    repeated, contradicted = _repeats([question_text for question_text, _ in pairs], golds)
    solutions = sorted(len(gold) for _, gold in pairs if final_answer(gold) != gold)
    return FileSurvey(
        rows=len(pairs),
        columns=columns,
        question=question,
        answer=answer,
        tier=_few_values(columns, read.rows, "tier", MAX_TIERS, used),
        source=_few_values(columns, read.rows, "source", most, used),
        id=_id(columns, read.rows, used),
        marker=recognized,
        forms=dict(forms.most_common()),
        worked=len(solutions),
        instructed=sum("\\boxed" in question_text for question_text, _ in pairs),
        choices=choices,
        choice_notes=numbering.notes if numbering else (),
        contexts=_contexts(columns, read.rows, used),
        inputs=sum(bool(input_text(row, question, answer)) for row in read.rows),
        repeated=repeated,
        contradicted=contradicted,
        invalid=_unusable(read.places, texts, golds, marked),
        unlabelled=sum(bool(row[0] and not row[1]) for row in texts) if optional else None,
        longest_question=max(len(question_text) for question_text, _ in pairs),
        solution_length=solutions[int(0.95 * (len(solutions) - 1))] if solutions else 0,
    )


def _unusable(
    places: Sequence[str],
    texts: Sequence[tuple[str, str, str]],
    golds: Sequence[str | None],
    task: QuestionFile,
) -> list[tuple[str, str]]:
    """Place and reason of the rows that cannot be used, by what `_read` gives of them."""
    # As the whole answer of a completion.
    wholes = [Answer(task.format_answer(gold), gold) for gold in golds if gold]
    marks = [] if task.function else task.mark_all(wholes)
    correct = repeat(True) if task.function else (mark.outcome == "correct" for mark in marks)
    unusable = []
    for place, row, gold in zip(places, texts, golds, strict=True):
        question, answer, _ = row
        unlabelled = task.optional_answers and question and not answer
        if not (gold and next(correct)) and not unlabelled:
            unusable.append((place, _reason(*row)))
    return unusable


def _repeats(questions: Sequence[str], answers: Sequence[str | None]) -> tuple[int, int]:
    """How many questions repeat another one, and how many have several answers.

    None: a row without an answer that can be used.
    """
    different: dict[str, set[str]] = {}
    for question, answer in zip(questions, answers, strict=True):
        different.setdefault(question, set()).update([] if answer is None else [answer])
    different.pop("", None)
    repeated = sum(map(bool, questions)) - len(different)
    return repeated, sum(len(several) > 1 for several in different.values())


def columns_of(rows: Sequence[Row]) -> dict[str, Column]:
    """The columns of a file and, after each, the texts and numbers inside its objects.

    Their counts are of up to SAMPLED rows, evenly spread. Raises TaskError without rows.
    """
    if not rows:
        raise TaskError("the file holds no rows: write one question per row")
    rows = rows[:: -(-len(rows) // SAMPLED)]
    names: dict[str, None] = {}
    for row in rows:
        for name, value in row.items():
            names[str(name)] = None
            if isinstance(value, Mapping):
                names |= dict.fromkeys(f"{name}.{key}" for key in value)
    columns = {}
    for name in names:
        texts = [_texts(row, name, name) for row in rows]
        if spelling(name) in ROLES["answer"].names:  # which may be lists
            texts = [(text, _answer(row, name)) for row, (text, _) in zip(rows, texts, strict=True)]
        questions = [question_text for question_text, _ in texts if question_text]
        columns[name] = Column(
            questions=len(questions),
            answers=sum(bool(gold) for _, gold in texts),
            words=sum(isinstance(value := row.get(name), str) or is_chat(value) for row in rows),
            chats=sum(is_chat(row.get(name)) for row in rows),
            length=sum(map(len, questions)) / max(1, len(questions)),
        )
    return columns


def _texts(row: Row, question: str, answer: str) -> tuple[str, str]:
    """A row's question and answer without choices; "" where they cannot be read."""
    return _read(row, question, answer)[:2]


def _read(
    row: Row,
    question: str,
    answer: str,
    choices: Numbering | None = None,
    *,
    unasked: bool = False,
    optional: bool = False,
) -> tuple[str, str, str]:
    """A row's question and answer as `task: file` reads them.

    "" and the reason where it refuses them; unasked: also for choices that are not asked.
    optional: a row without an answer is not refused.
    """
    unlabelled = optional and not _answer(row, answer)
    try:
        texts = read_texts(row, question, question if unlabelled else answer, choices=choices)
        texts = texts._replace(answer="") if unlabelled else texts
        if unasked and choices is None and (own := choices_of(row)):
            own.check_asked(texts.question)
    except KeyError as error:
        return "", "", f"no {'answer' if error.args[0] == answer else 'question'}"
    except TaskError as error:
        return "", "", str(error)
    return texts.question.strip(), texts.answer.strip(), ""


def _reason(question: str, answer: str, refused: str) -> str:
    """Why a row cannot be used."""
    if refused:
        return refused
    if not question:
        return "no question"
    return f"answer {answer!r:.50}" if answer else "no answer"


def _contexts(columns: Mapping[str, Column], rows: Sequence[Row], used: Sequence[str]) -> list[str]:
    """Columns of texts that questions may be about, and that are not part of them."""
    rows = rows[:: -(-len(rows) // SAMPLED)]
    texts = [_texts(row, *used)[0] for row in rows]
    unused = columns_in_role("context", columns, *used)
    apart = {
        name: sum(
            isinstance(text := cell(row, name), str) and text.strip() not in asked
            for row, asked in zip(rows, texts, strict=True)
        )
        for name in unused
    }
    return [name for name, count in apart.items() if 2 * count > len(rows)]


def _answer(row: Row, name: str) -> str:
    """A row's answer alone; "" where it has none."""
    try:
        return read_texts({"": "", name: cell(row, name)}, "", name).answer.strip()
    except (KeyError, TaskError):
        return ""


def _has_choices(read: Rows) -> bool:
    """Whether most rows have choices in columns of their own.

    Raises TaskError where there are choices, but none that can be read.
    """
    step = -(-len(read.rows) // SAMPLED)
    readable, problems = 0, list[str]()
    for row, place in zip(read.rows[::step], read.places[::step], strict=True):
        try:
            readable += choices_of(row) is not None
        except TaskError as error:
            problems.append(f"{place}: {error}")
    if problems and not readable:
        raise TaskError(problems[0])
    return 2 * (readable + len(problems)) > len(read.rows[::step])


def choose_columns(
    columns: Mapping[str, Column],
    question: str | None,
    answer: str | None,
    *,
    optional: bool = False,
) -> tuple[str, str]:
    """The columns of questions and answers: those named, or those recognized.

    Recognized are common names, or the only two columns with text. Raises TaskError otherwise.
    Where answers are optional, that of the answers may be absent or empty.
    """
    check_column(columns, question)
    if optional:
        question = question or _known("question", columns, answer) or next(iter(columns))
        return question, answer or next(
            iter(columns_in_role("answer", columns, question)), "answer"
        )
    check_column(columns, answer)
    question_columns = {
        name: column for name, column in columns.items() if column.questions and column.words
    }
    answer_columns = {name: column for name, column in columns.items() if column.answers}
    question = question or _known("question", question_columns, answer)
    answer = answer or _known("answer", answer_columns, question)
    if question is None and answer is None and len(answer_columns) == 2 and question_columns:
        question = max(question_columns, key=lambda name: question_columns[name].length)
    if question is None and answer is not None and len(question_columns.keys() - {answer}) == 1:
        [question] = question_columns.keys() - {answer}
    others = [n for n in answer_columns if n != question and spelling(n) not in ROLES["id"].names]
    if answer is None and question is not None and len(others) == 1:
        [answer] = others
    if answer is None and question in answer_columns and columns[question].chats:
        answer = question  # the reply in the same messages
    if question is None or answer is None:
        missing = "questions" if question is None else "answers"
        raise TaskError(
            f"no column is recognized as that of the {missing}: name them with --question COLUMN "
            "and --answer COLUMN, or write --answers optional where answers come later; the file "
            f"has {_listed(columns)}"
        )
    if question == answer and not columns[question].chats:
        raise TaskError(f"questions and answers are both {question!r:.60}: name two columns")
    return question, answer


def check_column(columns: Mapping[str, Column], name: str | None) -> None:
    """Raise TaskError for a name that is not that of a column with texts or numbers."""
    if name is not None and name not in columns:
        raise TaskError(f"there is no column {name!r:.60}: write one of {_listed(columns)}")
    if name is not None and not (columns[name].questions or columns[name].answers):
        raise TaskError(f"column {name!r:.60} holds neither texts nor numbers: name another one")


def _listed(columns: Mapping[str, Column]) -> str:
    listed = ", ".join(f"{name!r:.60}" for name in list(columns)[:_SHOWN])
    return f"{listed} and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else listed


def _known(role: str, columns: Mapping[str, Column], other: str | None) -> str | None:
    """The most telling column of a role, apart from `other`.

    At least half as many rows as in any column must have a value.
    """
    most = max((column.answers for column in columns.values()), default=0)
    usual = [
        name
        for name, column in columns.items()
        if 2 * max(column.questions, column.answers) >= most
    ]
    return next(iter(columns_in_role(role, usual, other)), None)


def _few_values(
    columns: Mapping[str, Column],
    rows: Sequence[Row],
    role: str,
    most: int,
    used: Sequence[str],
) -> str | None:
    """A column of a role with a value in every row, and 2 to `most` different ones."""
    for name in columns_in_role(role, columns, *used):
        values = {_texts(row, name, name)[1] for row in rows}
        if "" not in values and 2 <= len(values) <= most:
            return name
    return None


def _id(columns: Mapping[str, Column], rows: Sequence[Row], used: Sequence[str]) -> str | None:
    """A column with the name of an id and a value of its own in every row."""
    for name in columns_in_role("id", columns, *used):
        values = {_texts(row, name, name)[1] for row in rows} - {""}
        if len(values) == len(rows):
            return name
    return None


def answer_form(answer: str) -> str:
    """The form of one answer, as a plural."""
    answer = answer.replace("\N{MINUS SIGN}", "-")
    if answer.lower() in PLACEHOLDERS:
        return "placeholders"
    if json_object_of(answer) is not None:
        return "JSON objects"
    if number := normalize_number(answer):
        return "fractions" if "/" in number else "decimals" if "." in number else "integers"
    if _LETTER.fullmatch(answer):
        return "letters"
    if _DATE.fullmatch(answer):
        return "dates"
    if _UNIT.fullmatch(answer):
        return "numbers with a unit"
    if _LATEX.search(answer) or _FORMULA.fullmatch(answer):
        return "LaTeX or formulas"
    return "free text" if len(answer.split()) > 1 else "single words"


def choose_marker(forms: Mapping[str, int], *, optional: bool = False) -> Marker:
    """The marker that fits answers of these forms. TaskError where answers are optional and absent.

    A tenth of the answers may be of another form than numbers or letters need: such rows cannot be
    used. Expressions and text accept any answer; where half of them are mathematical, text would
    compare those letter by letter. What is no answer decides nothing.
    """
    total = sum(forms.values()) - sum(forms.get(form, 0) for form in _NONE)
    if not total and optional:
        raise TaskError(
            "without any answer, the marker cannot be recognized: write --marker number, letter, "
            "expression or text"
        )
    if not total:
        return "text"
    numbers = sum(forms.get(form, 0) for form in ("integers", "decimals", "fractions"))
    maths = sum(forms.get(form, 0) for form in _MATHS)
    if forms.get("letters", 0) >= _MOST * total:
        return "letter"
    if numbers >= _MOST * total and maths == numbers:
        return "number"
    return "expression" if 2 * maths >= total else "text"

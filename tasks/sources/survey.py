"""The contents of a file of questions: columns, forms of answers, and the marker that fits."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import NamedTuple

from orchestrator.plugins.counts import counted
from tasks.errors import TaskError
from tasks.marking.digits import normalize_number
from tasks.marking.golds import final_answer
from tasks.prompts import Answer
from tasks.question_file import QuestionFile
from tasks.sources.answer_kinds import (
    KINDS,
    Kind,
    answer_form,
    choose_marker,
    kind_counts,
    marker_of,
    mixed_kinds,
    row_kind,
    why_no_answer,
    why_unlikely,
    with_other_kinds,
)
from tasks.sources.choices import Numbering, choices_of, has_choices
from tasks.sources.files import Row, Rows, cell, is_chat
from tasks.sources.media import check_no_media
from tasks.sources.roles import ROLES, columns_in_role, has_grades, spelling
from tasks.sources.texts import (
    RENDERED,
    choice_numbering,
    input_text,
    is_unasked,
    plain_answer,
    read_texts,
)
from tasks.sources.values import is_missing

CERTAIN = 0.95  # share of one kind among SAMPLED answers, 7 standard errors above MOST
SAMPLED = 2_000  # rows by which columns are recognized
MAX_TIERS = 20  # the most different values in a column of tiers
MAX_SOURCES = 100  # the most sources, with at least four rows each
_SHOWN = 12  # columns that a message lists
_SENTENCE = 5  # words: more than a column name has
MIX = "mix"  # instead of a marker, if each part has its own


class Column(NamedTuple):
    """One column, or a value inside a column: its contents as a question and as an answer.

    `questions` and `answers` are rows with such a text or a number. `words` are rows with text or
    messages, `chats` rows with messages. `length` is the mean number of characters of the
    questions.
    """

    questions: int
    answers: int
    words: int
    chats: int
    length: float


@dataclass(frozen=True)
class FileSurvey:
    """The contents of a file under one choice of columns and marker.

    `forms` counts the answers by form, `worked` the answers at the end of a worked solution.
    `invalid` are rows without a question, or without an answer that the marker marks correct
    (functions are not called): their place and the reason. `unlabelled` are rows without an answer
    if answers are optional, else None. `contexts` are columns of text that questions may be about,
    and that are not asked; `inputs` are rows whose instruction continues in `input`. Questions
    count without a known tool's instructions. `likely` has, for each form, the number of answers
    that a model could give, and of all; `unlikely` are place and reason of usable rows with other
    answers. `id_names` are id columns that each cover only some rows, and their first places.
    """

    rows: int
    columns: Mapping[str, Column]
    question: str
    answer: str
    tier: str | None
    source: str | None
    id: str | None  # a column with a different value in every row
    marker: str
    forms: Mapping[str, int]
    worked: int
    instructed: int  # questions that already ask for a box
    choices: bool  # choices in separate columns, asked with the questions
    choice_notes: Sequence[str]
    contexts: Sequence[str]
    inputs: int
    repeated: int
    contradicted: int  # questions with several usable answers
    invalid: Sequence[tuple[str, str]]
    unlabelled: int | None
    longest_question: int  # characters
    solution_length: int  # 95th percentile of worked solutions in characters; 0 without any
    rendered: int = 0  # questions taken out of a chat template
    likely: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unlikely: Sequence[tuple[str, str]] = ()
    id_names: Mapping[str, str] = field(default_factory=dict)
    mix: tuple[tuple[Kind, ...], ...] = ()  # the kinds of answers of each part; its marker is MIX
    parts: tuple["FileSurvey", ...] = ()  # parts that have rows

    @property
    def mixed(self) -> str:
        """How a mixture of forms is marked; empty if all answers have the marker's form."""
        counts = kind_counts(self.forms)
        maths = counts["number"] + counts["expression"]
        others = counts["letter"] + counts["text"]
        if self.marker == "text" and maths:
            return f"{maths:,} are numbers or formulas; text accepts only one spelling"
        if self.marker == "expression" and others:
            return f"{others:,} are words or letters, read as expressions"
        return ""

    @property
    def valid(self) -> int:
        """The number of usable rows."""
        return self.rows - len(self.invalid)


def survey_rows(
    read: Rows,
    question: str | None = None,
    answer: str | None = None,
    marker: str | None = None,
    *,
    optional: bool = False,
    mix: Sequence[tuple[Kind, ...]] = (),
) -> FileSurvey:
    """Survey the rows of a file; arguments that are None are derived from the rows.

    optional: rows may lack an answer, and the file may lack a column of answers. mix: the kinds of
    answers of each data set of a mix; other kinds in this file are added. By default, the kinds
    follow from the answers if no marker is named. Raises TaskError if the columns are not in the
    file or cannot be recognized.
    """
    columns = columns_of(read.rows)
    if question is None and answer is None:
        _check_header(read)
    if question is None:
        _check_questions(read, columns)
    try:
        used = choose_columns(columns, question, answer, optional=optional)
    except TaskError:
        _check_answers(read, columns, answer)
        raise
    rendered = sum(_is_rendered(row, used[0]) for row in read.rows)
    if marker is not None or optional:
        return _survey(read, columns, used, marker, optional=optional, rendered=rendered)
    # Reading the kind of every answer takes as long as the survey, and most pools have one kind.
    sample = Counter(row_kind(row, used[1]) for row in read.rows[:: -(-len(read.rows) // SAMPLED)])
    if not mix and not mixed_kinds(sample, CERTAIN):
        return _survey(read, columns, used, None, rendered=rendered)
    kinds = [row_kind(row, used[1]) for row in read.rows]
    counts = {kind: kinds.count(kind) for kind in KINDS}
    mix = with_other_kinds(mix, counts) if mix else mixed_kinds(counts)
    if not mix:
        return _survey(read, columns, used, None, rendered=rendered)
    surveys = []
    for part in mix:
        own = [i for i, kind in enumerate(kinds) if kind in part]
        if own:
            rows = Rows([read.rows[i] for i in own], "", places=[read.places[i] for i in own])
            survey = _survey(rows, columns, used, marker_of(part), rendered=rendered)
            surveys.append(survey)
    return replace(_of_parts(read, surveys), mix=tuple(mix))


def _survey(
    read: Rows,
    columns: Mapping[str, Column],
    used: tuple[str, str],
    marker: str | None,
    *,
    rendered: int,
    optional: bool = False,
) -> FileSurvey:
    """Survey rows under these columns of questions and answers."""
    question, answer = used
    choices = marker in (None, "letter") and _has_choices(read)
    marker = "letter" if choices else marker
    numbered = ((row, answer) for row in read.rows)
    numbering = choice_numbering(numbered) if marker == "letter" else None
    unasked = ":" not in (marker or "") and has_choices(columns)  # functions may read them
    texts = [
        _read(row, *used, numbering, unasked=unasked, optional=optional, unwrap=rendered > 0)
        for row in read.rows
    ]
    bare = QuestionFile().bare_question
    pairs = [(bare(text), gold) for text, gold, _ in texts]
    forms = Counter(form for _, gold in pairs if (form := _form(gold)))
    recognized = marker or choose_marker(forms, optional=optional)
    if marker is None and recognized == "letter":  # if only some rows have choices
        return _survey(read, columns, used, recognized, optional=optional, rendered=rendered)
    marked = QuestionFile(marker=recognized, answers="optional" if optional else "required")
    golds = [marked.read_answer(gold) if asked and gold else None for asked, gold in pairs]
    most = min(MAX_SOURCES, len(read.rows) // 4)
    repeated, contradicted = _repeats([question_text for question_text, _ in pairs], golds)
    solutions = sorted(len(gold) for _, gold in pairs if final_answer(gold) != gold)
    invalid = _unusable(read.places, texts, golds, marked)
    likely, unlikely = _likely(read.places, pairs, golds, {place for place, _ in invalid})
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
        invalid=invalid,
        unlabelled=sum(bool(row[0] and not row[1]) for row in texts) if optional else None,
        longest_question=max(len(question_text) for question_text, _ in pairs),
        solution_length=solutions[int(0.95 * (len(solutions) - 1))] if solutions else 0,
        rendered=rendered,
        likely={} if marked.function else likely,
        unlikely=() if marked.function else unlikely,
        id_names=_id_names(columns, read, used),
    )


def _of_parts(read: Rows, parts: Sequence[FileSurvey]) -> FileSurvey:
    """The survey of a file whose rows belong to several data sets of a mix."""
    first = parts[0]
    used = (first.question, first.answer)
    most = min(MAX_SOURCES, len(read.rows) // 4)
    order = {place: index for index, place in enumerate(read.places)}
    forms, notes = Counter[str](), dict[str, None]()
    for part in parts:
        forms.update(part.forms)
        notes |= dict.fromkeys(part.choice_notes)
    invalid = [each for part in parts for each in part.invalid]
    unlikely = [each for part in parts for each in part.unlikely]
    return FileSurvey(
        rows=len(read.rows),
        columns=first.columns,
        question=first.question,
        answer=first.answer,
        tier=_few_values(first.columns, read.rows, "tier", MAX_TIERS, used),
        source=_few_values(first.columns, read.rows, "source", most, used),
        id=_id(first.columns, read.rows, used),
        marker=MIX,
        forms=dict(forms.most_common()),
        worked=sum(part.worked for part in parts),
        instructed=sum(part.instructed for part in parts),
        choices=any(part.choices for part in parts),
        choice_notes=[*notes],
        contexts=_contexts(first.columns, read.rows, used),
        inputs=sum(part.inputs for part in parts),
        repeated=sum(part.repeated for part in parts),
        contradicted=sum(part.contradicted for part in parts),
        invalid=sorted(invalid, key=lambda each: order[each[0]]),
        unlabelled=None,
        longest_question=max(part.longest_question for part in parts),
        solution_length=max(part.solution_length for part in parts),
        rendered=first.rendered,
        likely={form: n for part in parts for form, n in part.likely.items()},
        unlikely=sorted(unlikely, key=lambda each: order[each[0]]),
        id_names=_id_names(first.columns, read, used),
        parts=tuple(parts),
    )


def _form(gold: str) -> str:
    """The form of a row's answer; "" if it has none."""
    final = plain_answer(final_answer(gold))
    return answer_form(final) if final else ""


def _likely(
    places: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    golds: Sequence[str | None],
    invalid: Collection[str],
) -> tuple[dict[str, tuple[int, int]], list[tuple[str, str]]]:
    """For each form, the number of likely answers and of all; place and reason of the others.

    A likely answer is one that a model could give; unusable rows have none.
    """
    likely: dict[str, tuple[int, int]] = {}
    unlikely = []
    for place, (question, answer), gold in zip(places, pairs, golds, strict=True):
        form = _form(answer)
        if not form:
            continue
        reason = "invalid" if place in invalid or not gold else why_unlikely(gold, question, form)
        count, total = likely.get(form, (0, 0))
        likely[form] = (count + (not reason), total + 1)
        if reason and reason != "invalid":
            unlikely.append((place, reason))
    return likely, unlikely


def _is_rendered(row: Row, question: str) -> bool:
    """Whether the question of a row is rendered in a chat template."""
    try:
        return RENDERED in read_texts(row, question, question).dropped
    except (KeyError, TaskError):
        return False


def _check_header(read: Rows) -> None:
    """Raise TaskError for a CSV file whose first line is a row, not the names of columns."""
    known = {name for role in ROLES.values() for name in role.names}
    files: dict[str, list[Row]] = {}
    for row, place in zip(read.rows, read.places, strict=True):
        file = place.rpartition(":")[0]
        if file.removesuffix(".gz").endswith((".csv", ".tsv")):
            files.setdefault(file, []).append(row)
    for file, rows in files.items():
        names = [*rows[0]]
        if known.isdisjoint(map(spelling, names)) and _is_data(names, rows):
            shown = ", ".join(f"{name!r:.40}" for name in names[:_SHOWN])
            raise TaskError(
                f"{file}:1 looks like a row, not like the names of columns ({shown}): add a line "
                f"with names above it, such as question,answer, or name the columns with "
                f"--question and --answer"
            )


def _is_data(names: Sequence[str], rows: Sequence[Row]) -> bool:
    """Whether names of columns look like values: sentences, repeated values, or numbers."""
    if any(len(name.split()) >= _SENTENCE or name.rstrip().endswith("?") for name in names):
        return True
    if names == [*map(str, range(len(names)))]:  # as written from data frames without names
        return False
    if any(row.get(name) == name for name in names for row in rows):
        return True
    numeric = [name for name in names if normalize_number(name) is not None]
    return any(
        all(normalize_number(str(row.get(name))) is not None for row in rows) for name in numeric
    )


def _check_questions(read: Rows, columns: Mapping[str, Column]) -> None:
    """Raise TaskError if the only columns that are named like questions are mostly empty."""
    most = max((column.answers for column in columns.values()), default=0)
    named = [name for name in columns_in_role("question", columns) if spelling(name) != "input"]
    if any(2 * max(columns[n].questions, columns[n].answers) >= most for n in named):
        return
    for name in named:
        empty = [
            place
            for row, place in zip(read.rows, read.places, strict=True)
            if not _texts(row, name, name)[0]
        ]
        if empty:
            shown = ", ".join(empty[:3])
            raise TaskError(
                f"column {name!r:.60} is empty in {len(empty):,} of "
                f"{counted(len(read.rows), 'row')} ({shown}{', …' if len(empty) > 3 else ''}): "
                "fill it, or name the question column with --question"
            )


def _check_answers(read: Rows, columns: Mapping[str, Column], answer: str | None) -> None:
    """Raise TaskError if columns named like answers have no readable answer, such as objects."""
    named = columns_in_role("answer", columns)
    if answer is not None:
        named = [name for name in columns if name == answer]
    if any(columns[name].answers for name in named):
        return
    for row, place in zip(read.rows, read.places, strict=True):
        for name in named:
            if not is_missing(value := cell(row, name)):
                raise TaskError(
                    f"{place}: no answer can be read in column {name!r:.60}, which has "
                    f"{value!r:.60}: write text or a number, or name the answer column with "
                    f"--answer"
                )


def _unusable(
    places: Sequence[str],
    texts: Sequence[tuple[str, str, str]],
    golds: Sequence[str | None],
    task: QuestionFile,
) -> list[tuple[str, str]]:
    """Place and reason of the unusable rows, from the results of `_read`."""
    # Each answer as the whole answer of a completion.
    wholes = [Answer(task.format_answer(gold), gold) for gold in golds if gold]
    marks = [] if task.function else task.mark_all(wholes)
    correct = repeat(True) if task.function else (mark.outcome == "correct" for mark in marks)
    unusable = []
    for place, row, gold in zip(places, texts, golds, strict=True):
        question, answer, _ = row
        unlabelled = task.optional_answers and question and not answer
        if not (gold and next(correct)) and not unlabelled:
            unusable.append((place, _reason(*row, task.marker)))
    return unusable


def _repeats(questions: Sequence[str], answers: Sequence[str | None]) -> tuple[int, int]:
    """How many questions are repeated, and how many have several answers.

    None: a row without a usable answer.
    """
    different: dict[str, set[str]] = {}
    for question, answer in zip(questions, answers, strict=True):
        different.setdefault(question, set()).update([] if answer is None else [answer])
    different.pop("", None)
    repeated = sum(map(bool, questions)) - len(different)
    return repeated, sum(len(several) > 1 for several in different.values())


def columns_of(rows: Sequence[Row]) -> dict[str, Column]:
    """The columns of a file and, after each, the texts and numbers inside its objects.

    Counts are from up to SAMPLED rows, evenly spread. Raises TaskError without rows.
    """
    if not rows:
        raise TaskError("the file has no rows: write one question per row")
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
        if spelling(name) in ROLES["answer"].names:  # answers may be lists
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
    """A row's question and answer without choices; "" if they cannot be read."""
    try:
        texts = read_texts(row, question, answer)
    except (KeyError, TaskError):
        return "", ""
    return texts.question.strip(), texts.answer.strip()


def _read(
    row: Row,
    question: str,
    answer: str,
    choices: Numbering | None = None,
    *,
    unasked: bool = False,
    optional: bool = False,
    unwrap: bool = False,
) -> tuple[str, str, str]:
    """A row's question and answer as `task: file` reads them.

    "" and the reason if it rejects the row; unasked: also for choices that are not asked. optional:
    a row without an answer is not rejected. unwrap: questions are taken out of templates.
    """
    unlabelled = optional and not _answer(row, answer)
    named = question if unlabelled else answer
    try:
        texts = read_texts(row, question, named, choices=choices, unwrap=unwrap)
        texts = texts._replace(answer="") if unlabelled else texts
        if unasked and choices is None and (own := choices_of(row)):
            own.check_asked(texts.question, texts.answer)
        check_no_media(row, cell(row, question), texts.question)
    except KeyError as error:
        return "", "", f"no {'answer' if error.args[0] == answer else 'question'}"
    except TaskError as error:
        return "", "", str(error)
    question_text = "" if is_missing(texts.question) else texts.question.strip()
    return question_text, texts.answer.strip(), ""


def _reason(question: str, answer: str, refused: str, marker: str) -> str:
    """Why a row is unusable."""
    if refused:
        return refused
    if not question:
        return "no question"
    if not answer:
        return "no answer"
    why = why_no_answer(plain_answer(final_answer(answer)), marker)
    return f"answer {answer!r:.50} {why}".rstrip()


def _contexts(columns: Mapping[str, Column], rows: Sequence[Row], used: Sequence[str]) -> list[str]:
    """Columns of text that questions may be about, but do not contain."""
    rows = rows[:: -(-len(rows) // SAMPLED)]
    texts = [_texts(row, *used)[0] for row in rows]
    unused = columns_in_role("context", columns, *used)
    apart = {
        name: sum(is_unasked(row, name, asked) for row, asked in zip(rows, texts, strict=True))
        for name in unused
    }
    return [name for name, count in apart.items() if 2 * count > len(rows)]


def _answer(row: Row, name: str) -> str:
    """A row's answer alone; "" if it has none."""
    try:
        return read_texts({"": "", name: cell(row, name)}, "", name).answer.strip()
    except (KeyError, TaskError):
        return ""


def _has_choices(read: Rows) -> bool:
    """Whether most rows have choices in separate columns.

    Raises TaskError if there are choices, but none are readable.
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

    Columns are recognized by common names, or as the only two with text. Raises TaskError
    otherwise. If answers are optional, their column may be absent or empty.
    """
    check_column(columns, question)
    if optional:
        texts = [name for name, column in columns.items() if column.words and not _is_id(name)]
        first = next(iter(texts), next(iter(columns)))
        question = question or _known("question", columns, answer) or first
        return question, answer or next(
            iter(columns_in_role("answer", columns, question)), "answer"
        )
    check_column(columns, answer)
    question_columns = {
        name: column for name, column in columns.items() if column.questions and column.words
    }
    answer_columns = {name: column for name, column in columns.items() if column.answers}
    question = question or _known("question", question_columns, answer)
    # Beside a grade, an output is a model's text.
    gold = "answer beside completions" if has_grades(columns) else "answer"
    answer = answer or _known(gold, answer_columns, question)
    both = len(answer_columns) == 2 and all(map(_may_be_answer, answer_columns))
    if question is None and answer is None and both and question_columns:
        question = max(question_columns, key=lambda name: question_columns[name].length)
    texts = [name for name in question_columns if name != answer and not _is_id(name)]
    if question is None and answer is not None and len(texts) == 1:
        [question] = texts
    others = [name for name in answer_columns if name != question and _may_be_answer(name)]
    if answer is None and question is not None and len(others) == 1:
        [answer] = others
    if answer is None and question in answer_columns and columns[question].chats:
        answer = question  # the reply in the same messages
    if question is None or answer is None:
        missing = "questions" if question is None else "answers"
        raise TaskError(
            f"no column is recognized as the column of {missing}: name them with --question "
            f"COLUMN and --answer COLUMN, or write --answers optional if answers come later; the "
            f"file has {_listed(columns)}"
        )
    if question == answer and not columns[question].chats:
        raise TaskError(f"questions and answers are both {question!r:.60}: name two columns")
    return question, answer


def _is_id(name: str) -> bool:
    return spelling(name) in ROLES["id"].names


def _may_be_answer(name: str) -> bool:
    """Whether a column may hold answers although it has no known name: if it has no other role."""
    roles = (role for role in ROLES if "answer" not in role)
    return not any(spelling(name) in ROLES[role].names for role in roles)


def check_column(columns: Mapping[str, Column], name: str | None) -> None:
    """Raise TaskError unless the name belongs to a column with texts or numbers."""
    if name is not None and name not in columns:
        raise TaskError(f"there is no column {name!r:.60}: write one of {_listed(columns)}")
    if name is not None and not (columns[name].questions or columns[name].answers):
        raise TaskError(
            f"column {name!r:.60} has neither text nor numbers: name a different column"
        )


def _listed(columns: Mapping[str, Column]) -> str:
    listed = ", ".join(f"{name!r:.60}" for name in list(columns)[:_SHOWN])
    return f"{listed} and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else listed


def _known(role: str, columns: Mapping[str, Column], other: str | None) -> str | None:
    """The most specific column of a role, apart from `other`.

    It must have values in at least half as many rows as the fullest column.
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
    """A column of a role with a value in every row, and 2 to `most` different values."""
    for name in columns_in_role(role, columns, *used):
        values = {_texts(row, name, name)[1] for row in rows}
        if "" not in values and 2 <= len(values) <= most:
            return name
    return None


def _id(columns: Mapping[str, Column], rows: Sequence[Row], used: Sequence[str]) -> str | None:
    """A column with the name of an id and a different value in every row."""
    for name in columns_in_role("id", columns, *used):
        values = {_texts(row, name, name)[1] for row in rows} - {""}
        if len(values) == len(rows):
            return name
    return None


def _id_names(columns: Mapping[str, Column], read: Rows, used: Sequence[str]) -> dict[str, str]:
    """Id columns with their first places, if every row has an id, but under several names."""
    if _id(columns, read.rows, used) is not None:
        return {}
    names = columns_in_role("id", columns, *used)
    first: dict[str, str] = {}
    for row, place in zip(read.rows, read.places, strict=True):
        own = [name for name in names if _texts(row, name, name)[1]]
        if len(own) != 1:
            return {}
        first.setdefault(own[0], place)
    return first if len(first) > 1 else {}

"""The user's own questions, from a file and without code."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, get_args

from orchestrator.plugins.counts import counted, counted_label
from orchestrator.plugins.row_counts import RowCounts
from tasks.base import Marking, MarkLimits, Task, Template
from tasks.errors import TaskError
from tasks.marking.equivalence import expression_comparison, is_readable, mark_expression
from tasks.marking.golds import EXAMPLES, Marker, final_answer, read_gold
from tasks.marking.letters import mark_letter
from tasks.marking.marks import Mark
from tasks.marking.numbers import mark_number
from tasks.marking.spelling import AnswerComparison
from tasks.marking.text import mark_text, text_comparison
from tasks.prompts import Answer, Prompt, make_prompt
from tasks.reward_functions import function_mark, reward_function, reward_values
from tasks.sources.answer_kinds import (
    KINDS,
    ONE_SPELLING,
    Kind,
    answer_form,
    row_kind,
    why_no_answer,
)
from tasks.sources.choices import Numbering, choices_of, has_choices
from tasks.sources.files import Row, Rows, cell, check_columns, column_value, is_chat, read_file
from tasks.sources.kept_columns import Column, FileColumns, KeptColumns
from tasks.sources.labels import NOT_OF_FORM, not_used, with_labels
from tasks.sources.media import LINKED, check_no_media, has_media_columns, links_to_image
from tasks.sources.named_files import named_files
from tasks.sources.roles import ROLES
from tasks.sources.row_corrections import RowCorrections, row_id
from tasks.sources.source import REPEATED, ReadTask
from tasks.sources.texts import INSTRUCTIONS, SOLUTIONS, choice_numbering, plain_answer, read_texts
from tasks.sources.user_files import Files
from tasks.sources.values import is_missing, json_object_of, json_text, row_text, value_text, whole

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from tasks.prompt_table import PromptTable
    from tasks.sources.plain_columns import PlainFile

ID_RANGE = 1 << 64  # prompt ids, read as integers, are below this
_OPTIONAL = ", or answers: optional where gold answers come later"


@dataclass
class _RowCounts:
    """The number of rows read, their files, the omitted rows by reason, and the first error.

    kept: the columns of the file that travel with its prompts. unread: optional answers that do not
    have the marker's form, with their places.
    """

    count: int = 0
    kept: FileColumns = FileColumns(None, {})
    dropped: Counter[str] = field(default_factory=Counter)
    error: str = ""
    unread: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)

    def add(self, other: "_RowCounts") -> None:
        """Also count the rows of another file."""
        self.count += other.count
        self.dropped += other.dropped
        self.error = self.error or other.error
        self.unread += other.unread
        self.origins += other.origins


class QuestionFile(ReadTask):
    r"""Your own questions and answers, from files of JSON lines, JSON, Parquet or CSV.

    The rows of all files of a split form one pool. In a column of chat messages, the question is
    the last user message and the answer is the reply to it. The answer of a worked solution is the
    text after `####` in its last line, or its last box. Known instructions on the form of the
    answer, at the end of a question, are removed: the task adds its own. The preset `bare` is only
    the question, for questions with their own instructions. Rows with the same question and answer
    are one prompt.

    With the marker `letter`, the choices may be in separate columns, which are asked with the
    question. `choices`, `options`, `endings`, `answer_choices`, `answer_options` or `alternatives`
    has a list, an object of letters, ARC's `{text, label}`, or a text such as `(A) … (B) …`; or
    each choice has a column (`A`, `option_a`, `opa`, `answerA`, `option1`, `sol1`, `ending0`). The
    answer may be a letter, a number or the text of a choice. Numbers count from 0 if some are 0,
    and from 1 if some equal the number of choices; a file where neither holds is refused.

    What is written around an answer is left out: a list of one text, `\(5\)`, "The answer is 5.", a
    Unicode minus. Of several answers in a list, the first one is used. An object is read if one
    field has the name of an answer. `input` is asked with an `instruction`, after an empty line;
    other columns of context (`passage`, `article`, …) are not asked.

    A row cannot be used without a question or an answer, with a placeholder (`unknown`, `TODO`,
    `N/A`, …) or a data structure as its answer, with choices that its answer does not name, or with
    an image, a video or a sound.

    The columns of `source` and `keep`, with the file and the line of the row, travel into tables,
    subsets, exports and evaluations. They change neither prompts nor ids. Numbers, booleans and
    texts keep their type, other values become JSON text. A column with the name of one of Decile's
    own columns becomes `row_NAME`.

    Options:
        train, test: files with one question per row: a path, a glob such as `data/*.jsonl`, or a
            list of both, relative to the experiments file. Either may be left out.
        path: files for both splits; `test_share` of the rows is the test set.
        test_share: the share of `path` that is the test set (0.2), chosen by content: the order of
            the rows does not matter.
        question, answer: columns, or values inside them (`reward_model.ground_truth`,
            `messages.-1.content`). `answer: null` if a reward function needs none.
        tier: the column with the level of a question. Without it, all prompts have the tier `all`.
        group: a column of the test questions. Questions with the same value are related, and
            comparisons average them. An empty value is a group of its own. Without the option,
            questions with nearly the same text form a group.
        source: the column with the data set or domain of a question.
        keep: further columns that travel, or `all`. In `source` and `keep`, a list in place of a
            column names alternatives: the first one that a file has is read.
        marker: `number`, `letter`, `expression`, `text` (the content of the last box), or a reward
            function as for TRL, `package.module:function`.
        threshold: with a reward function: the lowest score of a correct answer (1.0).
        mark_limits: with a reward function: the limits of its processes (`seconds`, `memory`,
            `processes`).
        columns: other columns that a reward function as marker gets (default: all). They are part
            of a prompt's identity. With any other marker, they travel for the functions of
            `reward`.
        answers: `optional`: rows may lack an answer, which comes later, in the file or in the
            `labels` of the data set. Ids then do not depend on the answers.
        skip_invalid: drop unusable rows, and note their number. Without it, the first such row is
            an error.
        kinds: only the rows whose answers need one of these markers (`number`, `letter`,
            `expression`, `text`, or `none` of them), so that a file of several kinds can be a mix
            of data sets.
        unwrap: take questions out of the chat template that their texts are rendered in (ChatML,
            Llama 2 to 4, Mistral, Gemma, DeepSeek, gpt-oss, Command R, Kimi, Phi, Zephyr, GLM,
            Alpaca's, `User: … Assistant:`). Of several turns, the last one is the question. It
            changes prompts and their ids.
    """

    name: ClassVar[str] = "file"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "4"
    templates: ClassVar[Mapping[str, Template]] = {
        "plain": Template("{question}\nPut the final answer within \\boxed{}."),
        "bare": Template("{question}"),
    }

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        train: Files | None = None,
        test: Files | None = None,
        path: Files | None = None,
        test_share: float | None = None,
        question: str = "question",
        answer: str | None = "answer",
        tier: str | None = None,
        group: str | None = None,
        source: Column | None = None,
        keep: Sequence[Column] | Literal["all"] = (),
        marker: str = "number",
        skip_invalid: bool = False,
        answers: Literal["required", "optional"] = "required",
        columns: Sequence[str] | None = None,
        threshold: float | None = None,
        mark_limits: Mapping[str, float] | None = None,
        kinds: Sequence[Kind] | None = None,
        unwrap: bool = False,
    ) -> None:
        super().__init__(marking=marking, prompt=prompt)
        if ":" not in marker and marker not in get_args(Marker):
            raise TaskError(
                f"marker {marker!r} is unknown: write {', '.join(get_args(Marker))}, "
                "or a function, package.module:function"
            )
        self.files = {"train": train, "test": test, "all": path}
        self.test_share = check_share(path, test_share, (train, test))
        self.question, self.answer, self.tier, self.group = question, answer, tier, group
        self.kept = KeptColumns(source, keep, (question, answer))
        self.marker = marker
        self.columns = columns
        self.function = reward_function(marker) if ":" in marker else None
        if self.function is None:
            only = {"threshold": threshold, "mark_limits": mark_limits}
            if unused := next((name for name, value in only.items() if value is not None), None):
                raise TaskError(f"{unused} is only read with a function as marker: leave it out")
            if answer is None:
                raise TaskError(f"marker {marker!r} needs answers: write answer: COLUMN")
        else:
            self.function.check_needs_no_tokens()
            self.threshold = check_threshold(1.0 if threshold is None else threshold)
            self.mark_limits = check_limits(mark_limits or {})
        check_row_options(skip_invalid, unwrap, kinds, gold=bool(answer) and answers == "required")
        self.skip_invalid, self.unwrap, self.kinds = skip_invalid, unwrap, kinds
        if answers not in ("required", "optional"):
            raise TaskError(f"invalid answers {answers!r:.80}: write required or optional")
        self.optional_answers = answers == "optional"
        if self.optional_answers and self.function is not None:
            raise TaskError(
                "answers: optional needs a marker that reads an answer: write "
                f"{', '.join(get_args(Marker))}, or leave it out"
            )
        self.corrections: RowCorrections | None = None  # of skipped rows
        self._numbering = Numbering()  # of the files being read

    def read(self) -> "tuple[PromptTable, PromptTable]":
        """The files of both splits, or the two parts of the same files."""
        if not any(self.files.values()):
            raise TaskError(
                "task file: the options do not name a file: write train: PATH and test: PATH, or "
                "path"
            )
        if self.files["all"] is None:
            return self._prompts("train"), self._prompts("test")
        from tasks.prompt_table import PromptTable

        prompts = self._prompts("all")
        if not prompts:
            named = ", ".join(self.kinds or ())
            raise TaskError(f"no row has an answer of kinds: {named}; write different kinds")
        keys = prompts.keys
        if self.function is not None:  # its ids depend on all columns; the split must not
            bare = (make_prompt(self.name, p.question, p.answer, p.tier) for p in prompts)
            keys = PromptTable.of(bare).keys
        assert keys is not None, "ids of make_prompt are hex digits"
        in_test = keys < math.ceil(self.test_share * ID_RANGE)
        return prompts.filter(~in_test), prompts.filter(in_test)

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        if self.function is not None:
            return self.function_marks([Answer(completion, answer, truncated)])[0]
        if not answer:  # how answers are compared does not depend on the gold answer
            mark = self.mark(completion, EXAMPLES[self.marker][0], truncated)
            read = mark.outcome in ("correct", "wrong")
            return Mark("unlabelled", mark.extracted, mark.rule) if read else mark
        if self.marker == "number":
            return mark_number(completion, answer, self.marking, truncated)
        if self.marker == "letter":
            return mark_letter(completion, answer, self.marking, truncated)
        if self.marker == "expression":
            return mark_expression(completion, answer, self.marking, truncated)
        return mark_text(completion, answer, self.marking, truncated)

    @property
    def comparison(self) -> AnswerComparison:
        """As the marker compares them; for a function, as text."""
        if self.marker == "expression":
            return expression_comparison(self.marking)
        if self.marker == "text":
            return text_comparison(self.marking)
        return super().comparison

    def mark_answer(self, answer: Answer) -> Mark:
        """With a function, the mark also depends on the prompt."""
        return super().mark_answer(answer) if self.function is None else self.mark_all([answer])[0]

    def mark_all(self, answers: Sequence[Answer]) -> list[Mark]:
        """Mark all answers at once; functions run in child processes that can be killed."""
        if self.function is not None:
            return self.function_marks(answers)
        return super().mark_all(answers)

    def function_marks(
        self, answers: Sequence[Answer], tolerated: float | None = None
    ) -> list[Mark]:
        """The marks from the function of `marker`.

        After more than `tolerated` failures, the remaining answers are not tried (outcome error).
        """
        values = reward_values(
            self.marker,
            answers,
            self.messages_of,
            self.mark_limits,
            answer_name=self.answer_name,
            tolerated=tolerated,
        )
        return [
            function_mark(value, answer, self.marker, self.threshold)
            for value, answer in zip(values, answers, strict=True)
        ]

    @property
    def answer_name(self) -> str:
        """The name of the answer column."""
        return self.answer or "answer"

    @property
    def marker_id(self) -> str:
        """Each kind of marking, and each version of a function's source, is a marker of its own."""
        if self.function is None:
            return f"{super().marker_id}/{self.marker}"
        version = f"@{self.function.version}" if self.function.version else ""
        threshold = f"/from-{self.threshold:g}" if self.threshold != 1 else ""
        return f"{super().marker_id}/{self.marker}{version}{threshold}"

    @property
    def other_reading(self) -> Self:
        """A function's marks do not depend on the reading."""
        return super().other_reading if self.function is None else self

    @classmethod
    def marker_variants(cls) -> list[Task]:
        """One task per kind of marking; its file is never read."""
        return [cls(marker=marker) for marker in get_args(Marker)]

    def check_prompts(self) -> list[Prompt]:
        """Synthetic answers of the marker's kind."""
        if self.function is not None:
            return self.test()
        return [make_prompt(self.name, f"example {a}", a, "") for a in EXAMPLES[self.marker]]

    def _prompts(self, split: str) -> "PromptTable":
        from tasks.prompt_table import PromptTable

        named = self.files[split]
        if named is None:
            return PromptTable()
        files = named_files(named, self.files["train"] if split == "test" else None)
        prompts = self._read(split, files)
        if self.optional_answers:  # a repeated question may have several answers
            every = len(prompts)
            prompts, notes = with_labels(prompts, [], self)
            merged = RowCounts(0, {REPEATED: every - len(prompts)})
            self._rows[split] = RowCounts.sum([self._rows[split], merged])
            for note in notes:
                self.note(f"{split}: {note}")
        return prompts

    def read_answer(self, text: str) -> str | None:
        """An answer in the marker's form, alone or at the end of a worked solution or a sentence.

        None for a text of any other form, a placeholder or a data structure. A function takes any
        text.
        """
        if self.function:
            return text.strip()
        plain = plain_answer(final_answer(text.strip()))
        if json_object_of(plain) is not None:  # without a unique answer field
            return None
        if self.marker != "text":
            plain = plain.replace("\N{MINUS SIGN}", "-")
        if why_no_answer(plain, self.marker):
            return None
        return read_gold(plain, cast(Marker, self.marker))

    def reads(self, answer: str) -> bool:
        """Whether the marker reads other spellings of a gold answer; not for dates and ranges."""
        if self.function is not None:
            return True
        if self.marker in ("expression", "text") and answer_form(answer) in ONE_SPELLING:
            return False
        return self.marker != "expression" or self.marking == "strict" or is_readable(answer)

    def _read(self, split: str, files: Sequence[str]) -> "PromptTable":
        """The prompts of the rows of all files, one after another."""
        from tasks.prompt_table import PromptTable, mapped

        required = () if self.skip_invalid else self._columns
        letters = {f: read_file(f, required) for f in files if self.marker == "letter"}
        self._number_choices(split, letters)
        rows = _RowCounts()

        def prompts_of(file: str) -> "PromptTable":
            prompts, own = self._read_columns(split, file) or self._read_rows(
                split, file, letters.get(file) or read_file(file, required)
            )
            if not prompts and (own.count or not self.kinds):
                unmarkable = f"{file}: the marker accepts none of the answers: write another marker"
                raise TaskError(f"{own.error or unmarkable} (no row of the file can be used)")
            rows.add(own)
            return prompts

        if len(files) == 1:
            prompts = prompts_of(files[0])
        else:
            parts = map(prompts_of, files)
            prompts = PromptTable(mapped(batch for part in parts for batch in part.batches))
        self.keep(split, Rows([], "; ".join(rows.origins)))
        for label, count in rows.dropped.items():
            if count:
                self.note(f"{split}: {counted_label(count, label)}")
        for note in not_used(rows.unread, NOT_OF_FORM):
            self.note(f"{split}: {note}")
        if self.group and split != "train" and len(prompts) > 1:
            self._check_groups(", ".join(files), {*prompts.column("group").to_pylist()})
        invalid_rows = rows.count - len(prompts)
        self._rows[split] = RowCounts(rows.count, {"invalid": invalid_rows})
        if invalid_rows:
            self.note(
                f"{split}: {invalid_rows:,} of {counted(rows.count, 'row')} dropped as invalid"
            )
        return prompts

    def _check_groups(self, files: str, groups: set[str]) -> None:
        """Raise TaskError unless questions have different groups."""
        if len(groups) == 1:
            [only] = groups
            problem = f"all questions have the group {only!r:.80}" if only else "no row has a value"
            raise TaskError(
                f"{files}: {problem} in column {self.group!r}: write the name of a column with a "
                "value for each group of related questions, or leave group out"
            )

    def group_of(self, row: Row) -> str:
        """The value in the column of groups, "" if there is none."""
        # training rows, and questions without related ones, may lack the column
        return value_text(cell(row, self.group)) if self.group else ""

    @property
    def _columns(self) -> list[str]:
        answer = None if self.optional_answers else self.answer
        return [name for name in (self.question, answer, self.tier) if name]

    def _read_columns(self, split: str, file: str) -> "tuple[PromptTable, _RowCounts] | None":
        """The prompts of a file of plain texts; None for any other file."""
        # pyarrow is only imported to read a file, not in processes that only mark
        from tasks.prompt_table import PromptTable, mapped
        from tasks.sources.plain_columns import NotPlain, PlainFile

        if type(self) is not QuestionFile:  # a subclass may read rows in its own way
            return None
        if self.optional_answers or self.corrections is not None:  # by rows
            return None
        if self.kinds or self.unwrap:
            return None
        if self.function is not None or self.columns:  # columns with any values
            return None
        if self.marker == "letter":  # the choices may stand in other columns
            return None
        if self.group and split != "train":  # may be null
            return None
        if self.question.lower() == "instruction":  # it may continue in another column
            return None
        try:
            names = PlainFile(file, ()).names()
            if has_choices(names) or has_media_columns(names):  # to be asked, or rejected
                return None
            if self.kept.keep == "all" and not file.endswith(".parquet"):  # rows may differ
                return None
            columns = self.kept.of_file(names.__contains__)
            if columns != self.kept.of_file(lambda _: True) and not file.endswith(".parquet"):
                return None  # other rows may have the first of several alternatives
            kept = [*filter(None, [columns.source]), *columns.names(names).values()]
            plain = PlainFile(file, self._columns, kept)
            rows = _RowCounts(origins=[plain.origin], kept=columns)
            parts = (self._batch_prompts(plain, batch, rows) for batch in plain.batches())
            prompts = PromptTable(mapped(batch for part in parts for batch in part.batches))
        except (NotPlain, TaskError):  # reading by rows reports the first error of the file
            return None
        return prompts, rows

    def _batch_prompts(
        self, file: "PlainFile", batch: "RecordBatch", rows: "_RowCounts"
    ) -> "PromptTable":
        """The prompts of some rows: most are taken unchanged, the others are read one by one."""
        import pyarrow as pa

        from tasks.sources.plain_columns import plain_prompts, replaced

        columns = plain_prompts(
            batch, self._columns, self.marker, bare=self.prompt_settings.preset == "bare"
        )
        others = [
            self._row_prompt(batch.slice(i, 1).to_pylist()[0], file.place(rows.count + i), rows)
            for i in columns.others.tolist()
        ]
        travelling = {"place": file.places(rows.count, batch.num_rows)}
        if file.kept:
            kept = batch.select(dict.fromkeys(file.kept)).to_pylist()
            places = travelling["place"].to_pylist()
            texts = [rows.kept.text_of(row, place) for row, place in zip(kept, places, strict=True)]
            sources = [rows.kept.source_of(row) for row in kept]
            travelling |= {"kept": pa.array(texts, pa.string())}
            travelling |= {"source": pa.array(sources, pa.string())}
        rows.count += batch.num_rows
        return self._markable(replaced(columns, others, self.name, travelling))

    def _read_rows(self, split: str, file: str, read: Rows) -> "tuple[PromptTable, _RowCounts]":
        """The prompts of any file, row by row."""
        from tasks.prompt_table import PromptTable

        if not read.rows:
            raise TaskError(f"{file} has no rows: write one question per row")
        self.check_named_columns(split, file, read.rows)
        columns = self.kept.of_rows(file, read.rows)
        if self.kinds:
            read = self._of_kinds(split, read)
        rows = _RowCounts(len(read.rows), columns, origins=[read.origin])
        if self.corrections is not None:
            prompts = self.corrections.prompts(
                read,
                self.question,
                self.answer,
                lambda row, place: self._checked_prompt(row, place, rows),
                lambda some: self._markable(PromptTable.of(some)),
            )
            return PromptTable.of(prompts), rows
        places = zip(read.rows, read.places, strict=True)
        usable = filter(None, (self._row_prompt(row, place, rows) for row, place in places))
        return self._markable(PromptTable.of(usable)), rows

    def _number_choices(self, split: str, files: Mapping[str, Rows]) -> None:
        """Decide, for all files at once, whether numbers of choices count from 0 or from 1."""
        rows = (row for read in files.values() for row in read.rows if isinstance(row, Mapping))
        try:
            self._numbering = choice_numbering((row, self.answer) for row in rows)
        except TaskError as error:
            raise TaskError(f"{', '.join(files)}: {error}") from error
        for note in self._numbering.notes:
            self.note(f"{split}: {note}")

    def _row_prompt(self, row: Row, place: str, rows: "_RowCounts") -> Prompt | None:
        """The prompt of a row; with `skip_invalid`, None for an unusable row."""
        try:
            return self._checked_prompt(row, place, rows)
        except TaskError as invalid:
            if not self.skip_invalid:
                raise
            rows.error = rows.error or str(invalid)
            return None

    def _checked_prompt(self, row: Row, place: str, rows: "_RowCounts") -> Prompt:
        """The prompt of a row; an unreadable optional answer counts as missing."""
        if self.skip_invalid:
            check_columns(place, row, self._columns)
        try:
            prompt = self._prompt(row, place, rows.dropped)
        except TaskError:
            edits = self.corrections.edits if self.corrections is not None else {}
            if not self.optional_answers or row_id(row) in edits:
                raise
            prompt = self._read_prompt(row, place, rows.dropped, unlabelled=True)
            rows.unread.append(f"{place} {cell(row, self.answer or '')!r:.40}")
        return self._travelling(prompt, row, place, rows.kept)

    def _travelling(self, prompt: Prompt, row: Row, place: str, columns: FileColumns) -> Prompt:
        """The prompt of a row, with its place and kept columns."""
        source = columns.source_of(row)
        kept = columns.text_of(row, place)
        return replace(prompt, source=source, place=place, kept=kept)

    def _markable(self, prompts: "PromptTable") -> "PromptTable":
        """With `skip_invalid`, the prompts whose bare answer is marked correct.

        Functions are not checked: they may expect more than an answer in a completion.
        """
        if not self.skip_invalid or self.function is not None:
            return prompts
        answers = prompts.column("answer").to_pylist()
        marks = self.mark_all([Answer(self.format_answer(a), a) for a in answers])
        golds = zip(answers, marks, strict=True)
        return prompts.filter([not a or mark.outcome == "correct" for a, mark in golds])

    def _prompt(self, row: Row, place: str, dropped: Counter[str]) -> Prompt:
        unlabelled = self.optional_answers and not value_text(cell(row, self.answer or ""))
        return self._read_prompt(row, place, dropped, unlabelled)

    def _read_prompt(self, row: Row, place: str, dropped: Counter[str], unlabelled: bool) -> Prompt:
        """The prompt of a row, without a gold answer if it is `unlabelled`. Raises TaskError."""
        value = cell(row, self.answer) if self.function and self.answer else None
        column = None if unlabelled else self.answer
        try:
            if isinstance(value, Mapping | list) and not is_chat(value):  # for a function
                texts = read_texts(row, self.question, self.question, unwrap=self.unwrap)
                texts = texts._replace(answer=json_text(value))
            else:
                texts = read_texts(
                    row,
                    self.question,
                    column or self.question,
                    choices=self._numbering if self.marker == "letter" else None,
                    unwrap=self.unwrap,
                )
                texts = texts if column else texts._replace(answer="")
                texts = texts._replace(answer=value) if isinstance(value, str) else texts
            if self.marker != "letter" and not self.function and (choices := choices_of(row)):
                choices.check_asked(texts.question, texts.answer)
            check_no_media(row, cell(row, self.question), texts.question)
        except TaskError as error:
            raise TaskError(f"{place}: {error}") from error
        answer = texts.answer.strip()
        question = "" if is_missing(texts.question) else texts.question.strip()
        for name, text in ((self.question, question), (column, answer)):
            if name and not text:
                without = " or ends with ####, without an answer" if name == self.answer else ""
                optional = "" if name == self.question or self.function else _OPTIONAL
                raise TaskError(
                    f"{place}: column {name!r} is empty{without}: write its text, or "
                    f"skip_invalid: true to drop such rows{optional}"
                )
        question = self.bare_question(texts.question)
        gold = "" if unlabelled else self.read_answer(answer)
        if gold is None:
            raise TaskError(f"{place}: {self._why_no_gold(answer)}")
        dropped.update(texts.dropped)
        dropped[INSTRUCTIONS] += question != texts.question
        dropped[LINKED] += links_to_image(question)
        dropped[SOLUTIONS] += self.function is None and final_answer(answer) != answer
        tier = str(whole(column_value(row, self.tier))) if self.tier else "all"
        info, in_id = self.info_of(row, place, gold), self.function is not None
        prompt = make_prompt(
            self.name,
            question,
            "" if self.optional_answers else gold,
            tier,
            info,
            info_in_id=in_id and bool(info),
            group=self.group_of(row),
        )
        return replace(prompt, answer=gold)

    def _why_no_gold(self, answer: str) -> str:
        """Why an answer does not have the marker's form, and what to write instead."""
        drop = "or skip_invalid: true to drop such rows"
        if json_object_of(answer) is not None:
            names = ", ".join(ROLES["answer field"].names[:3])
            return (
                f"the answer {answer!r:.80} is a JSON object without a unique answer field "
                f"({names}, …): write its text, {drop}"
            )
        if reason := why_no_answer(plain_answer(final_answer(answer)), self.marker):
            return f"the answer {answer!r:.80} {reason}: write its text, {drop}"
        form = "number, such as 1234.5" if self.marker == "number" else "letter, such as B"
        others = ", ".join(marker for marker in get_args(Marker) if marker != self.marker)
        return f"the answer {answer!r:.80} is not a {form}: write one, or marker: {others}, {drop}"

    def _of_kinds(self, split: str, read: Rows) -> Rows:
        """The rows whose answers, as corrected by the user's list, are of `kinds`."""
        edits = self.corrections.edits if self.corrections is not None else {}
        kinds = self.kinds or ()
        own = [
            (row, place)
            for row, place in zip(read.rows, read.places, strict=True)
            if row_kind(row, self.answer, edits) in kinds
        ]
        total = counted(len(read.rows), "row")
        self.note(f"{split}: {len(own):,} of {total} have an answer of kinds: {', '.join(kinds)}")
        return read._replace(rows=[row for row, _ in own], places=[place for _, place in own])

    def question_of(self, row: Row) -> str:
        """The question of a row, as in prompts; "" if there is none."""
        if cell(row, self.question) is None:
            return ""
        choices = Numbering() if self.marker == "letter" else None
        texts = read_texts(row, self.question, self.question, choices=choices, unwrap=self.unwrap)
        return self.bare_question(texts.question)

    def info_of(self, row: Row, place: str, gold: str, unread: Collection[str] = ()) -> str:
        """The columns of a row that travel with its prompt, as JSON text; "" if there are none.

        They include the answer if it differs from the gold text: a function gets it as it is in the
        file. Raises TaskError for a value that JSON cannot represent.
        """
        names = self.columns or ()
        if self.function is not None:
            every = [name for name in row if name != self.question]
            own = [*names, *([self.answer] if self.answer else [])]
            names = every if self.columns is None else own
        columns = {
            name: row[name]
            for name in names
            if name in row and name not in unread and (name != self.answer or row[name] != gold)
        }
        if not columns:  # other rows may have the columns that the function needs
            return "{}" if self.function and self.function.needed_columns(self._columns) else ""
        return row_text(columns, place, "name the other columns in columns: […]")

    def check_named_columns(self, split: str, file: str, rows: Sequence[Row]) -> None:
        """Raise TaskError if no row has a column that `columns` names or the function needs."""
        if self.function is None and not self.columns:
            return
        known = dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row)
        if missing := next((name for name in self.columns or () if name not in known), None):
            raise TaskError(f"{file} has no column {missing!r}: write one of {', '.join(known)}")
        if self.function is not None:
            passed = self.columns if self.columns is not None else known
            self.function.check_columns([*passed, *([self.answer] if self.answer else [])], file)


def check_row_options(
    skip_invalid: bool, unwrap: bool, kinds: Sequence[Kind] | None, *, gold: bool
) -> None:
    """Raise TaskError for an invalid value, or for `kinds` without a `gold` answer in each row."""
    for name, value in (("skip_invalid", skip_invalid), ("unwrap", unwrap)):
        if not isinstance(value, bool):
            raise TaskError(f"invalid {name} {value!r:.80}: write true or false")
    if kinds is None:
        return
    listed = isinstance(kinds, list | tuple) and bool(kinds)
    if not listed or any(kind not in KINDS for kind in kinds):
        raise TaskError(f"invalid kinds {kinds!r:.80}: write a list of {', '.join(KINDS)}")
    if not gold:
        raise TaskError("kinds needs a gold answer in every row: leave it out")


def check_share(path: Files | None, share: float | None, others: Sequence[Files | None]) -> float:
    """The share of test questions. Raises TaskError for an invalid share, and for two sources."""
    if path is not None and any(files is not None for files in others):
        raise TaskError("path already gives both splits: leave it out, or leave train and test out")
    if path is None and share is not None:
        raise TaskError("test_share is only read with path: add path, or leave test_share out")
    share = 0.2 if share is None else share
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise TaskError(f"invalid test_share {share!r}: write a number between 0 and 1")
    return share


def check_threshold(threshold: float) -> float:
    """The lowest score of a correct answer. Raises TaskError for an invalid number."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise TaskError(f"invalid threshold {threshold!r:.80}: write a number")
    if not 0 < threshold <= 1:
        raise TaskError(f"invalid threshold {threshold!r}: write a number above 0, up to 1")
    return float(threshold)


def check_limits(limits: Mapping[str, float], episodes: bool = False) -> MarkLimits:
    """The limits in `mark_limits`; with `episodes`, those of environments.

    Raises TaskError for an unknown name or an invalid number.
    """
    names = [name for name in MarkLimits._fields if episodes or name != "episode_seconds"]
    for name, value in limits.items():
        if name not in names:
            known = ", ".join(names)
            raise TaskError(f"mark_limits has no setting {name!r:.80}: it takes {known}")
        kinds = (int,) if name == "processes" else (int, float)
        if type(value) not in kinds or not 0 < value < math.inf:
            form = "an integer" if name == "processes" else "a number"
            raise TaskError(f"invalid mark_limits {name} {value!r:.80}: write {form} above 0")
    return MarkLimits(**limits)  # type: ignore[arg-type]

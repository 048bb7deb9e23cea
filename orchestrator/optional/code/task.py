"""Programs that a model writes, run on tests in a sandbox: questions from the user's own file."""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from orchestrator.optional.code.code_tests import (
    FORMS,
    Unreadable,
    UnsentArgument,
    called_names,
    read_tests,
    run_tests,
)
from orchestrator.optional.code.sandbox import Limits, SandboxError, problem
from orchestrator.plugins.counts import counted
from tasks.base import Marking, Template
from tasks.errors import TaskError
from tasks.marking.marks import Mark, no_answer_mark, score_mark
from tasks.marking.reading import without_thinking
from tasks.prompts import Answer, Prompt, make_prompt
from tasks.question_file import QuestionFile
from tasks.sources.files import Row, cell, column_value
from tasks.sources.kept_columns import Column
from tasks.sources.texts import INSTRUCTIONS, read_texts
from tasks.sources.user_files import Files

if TYPE_CHECKING:
    from tasks.prompt_table import PromptTable

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*")
_OPENED = re.compile(r"^[ \t]*```(\w*)[ \t]*\n", re.M)
_PYTHON = ("python", "python3", "py")
_STATEMENT = re.compile(
    r"^(?:def|class|import|from|for|while|if|with|try|async def|print\(|@)|^\w[\w, .\[\]]*=[^=]",
    re.M,
)
EXAMPLES = (
    ("Write a function add(a, b).", ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"],
     "def add(a, b):\n    return a + b"),
    ("Write a class Stack with push, pop and len().",
     ["s = Stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2 and len(s) == 1"],
     "class Stack:\n    def __init__(self):\n        self.items = []\n"
     "    def push(self, item):\n        self.items.append(item)\n"
     "    def pop(self):\n        return self.items.pop()\n"
     "    def __len__(self):\n        return len(self.items)"),
    ("Read numbers, one per line, and print their sum.",
     {"inputs": ["1\n2\n", "-5\n"], "outputs": ["3\n", "-5\n"]},
     "import sys\nprint(sum(map(int, sys.stdin)))"),
    ("Return the indices of two numbers with the sum target.",
     {"inputs": ["[2, 7, 11]\n9", [[3, 3], 6]], "outputs": ["[0, 1]", [0, 1]], "fn_name": "twoSum"},
     "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n"
     "        return next([i, j] for j in range(len(nums)) for i in range(j)"
     " if nums[i] + nums[j] == target)"),
)  # fmt: skip


class Code(QuestionFile):
    """Programs on tests, from files as for task `file`, run in a sandbox.

    The program is the last code block of the completion. Strict marking accepts only a closed block
    marked `python`; lenient marking also accepts a block without a language, a block that the end
    of the text closes, and a completion without blocks that is itself a program. The score is the
    share of tests that pass, and all must pass for a correct answer. If a question does not contain
    a name that the tests call, it is added.

    Tests are asserts (a text or a list of texts, as in MBPP, or `check(candidate)` with an entry
    point, as in HumanEval); `{inputs: […], outputs: […]}` of a program, as in verl, APPS and TACO,
    or with `fn_name` of a function; or a list of `{input, output, testtype}`, as in LiveCodeBench.
    Each may be JSON text. Outputs are compared line by line and word by word, and numbers by their
    value. Results of functions are compared as JSON: if one of two numbers is a float, they may
    differ by 10⁻⁶, or by 10⁻⁹ of the larger one if that is more. A program that ends with an error
    fails.

    Programs have the Python version of Decile and its standard library, and cannot start processes.
    The marker check runs each row's solution, which must pass, and a program that does nothing,
    which must fail. A program may still recognize the inputs of tests, or guess; a test that asks
    the program (`len(obj)`, `a == b` between its own objects) is answered by the program; and a
    test that expects an exception passes if the program raises it for any reason.

    docs/examples/programs.yaml is a complete example.

    Options:
        train, test, path, test_share, question, tier, group, source, keep: as for task `file`.
        tests: the column of the tests, or a value inside one (`reward_model.ground_truth`).
        solution: a column with a program that passes the tests, or a list of such programs.
        entry_point: the column with the name of the function, if the tests do not contain it.
        skip_invalid: drop rows whose tests cannot be read or whose solution does not pass them.
        seconds, memory: limits for one completion: CPU time of all its tests, and GiB.
        sandbox: `bubblewrap`: without a network and files. `none`: with the limits alone, for
            programs that you trust, or inside a container that you can lose.
    """

    name: ClassVar[str] = "code"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "4"
    templates: ClassVar[Mapping[str, Template]] = {
        "plain": Template(
            "{question}\nWrite a complete Python program in one block that begins with ```python "
            "and ends with ```."
        ),
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
        tests: str = "tests",
        solution: str | None = None,
        entry_point: str = "entry_point",
        tier: str | None = None,
        group: str | None = None,
        source: Column | None = None,
        keep: Sequence[Column] | Literal["all"] = (),
        skip_invalid: bool = False,
        seconds: float = 5.0,
        memory: float = 1.0,
        sandbox: Literal["bubblewrap", "none"] = "bubblewrap",
    ) -> None:
        super().__init__(
            marking=marking,
            prompt=prompt,
            train=train,
            test=test,
            path=path,
            test_share=test_share,
            question=question,
            answer=tests,
            tier=tier,
            group=group,
            source=source,
            keep=keep,
            marker="text",
            skip_invalid=skip_invalid,
        )
        self.solution_column, self.entry_point = solution, entry_point
        if sandbox not in ("bubblewrap", "none"):
            raise TaskError(f"sandbox {sandbox!r} is unknown: write bubblewrap or none")
        for name, value in (("seconds", seconds), ("memory", memory)):
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise TaskError(f"invalid {name} {value!r:.80}: write a number above 0")
        self.limits = Limits(seconds, memory, sandbox == "bubblewrap")

    def read(self) -> "tuple[PromptTable, PromptTable]":
        """The files, or the two parts of one file. Raises TaskError if programs cannot be run."""
        self._check_sandbox()
        return super().read()

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        return self.mark_all([Answer(completion, answer, truncated)])[0]

    def mark_answer(self, answer: Answer) -> Mark:
        return self.mark_all([answer])[0]

    def mark_all(self, answers: Sequence[Answer]) -> list[Mark]:
        """Run all programs, as many at once as there are CPUs."""
        self._check_sandbox()
        with ThreadPoolExecutor(min(_cpus(), len(answers)) or 1) as pool:
            return list(pool.map(self._mark, answers))

    def _mark(self, answer: Answer) -> Mark:
        code, fenced = find_code(answer.completion, self.marking, answer.truncated) or ("", False)
        if not code:
            return no_answer_mark(answer.truncated)
        try:
            result = run_tests(code, answer.answer, self.limits)
        except UnsentArgument as error:
            return Mark("error", None, f"tests: an argument cannot be sent to a sandbox: {error}")
        except SandboxError as error:
            return Mark("error", None, f"sandbox: {' '.join(str(error).split())}"[:200])
        if result.end == "syntax-error" and not fenced:
            return no_answer_mark(answer.truncated)  # prose that looks like a program
        rule = f"tests:{result.end or f'{result.passed}/{result.tests}'}"
        return score_mark(result.passed / result.tests, code, rule, self.threshold)

    def _check_sandbox(self) -> None:
        if self.limits.isolated and (reason := problem()):
            raise TaskError(f"task code: {reason}")

    @classmethod
    def unusable(cls) -> str:
        """Why programs cannot be run here with the default options."""
        return problem()

    @property
    def marker_id(self) -> str:
        """The limits can change a mark."""
        limits = f"{self.limits.seconds:g}s/{self.limits.memory:g}GiB"
        isolated = "" if self.limits.isolated else "/unprotected"
        return f"{self.name}/{self.marker_version}/{self.marking}/{limits}{isolated}"

    @classmethod
    def marker_variants(cls) -> "list[Any]":
        """One task; its file is never read."""
        return [cls()]

    def check_prompts(self) -> list[Prompt]:
        """A few questions with tests of each form."""
        return [
            make_prompt(self.name, question, read_tests(tests), "", _info(solution))
            for question, tests, solution in EXAMPLES
        ]

    def solution(self, prompt: Prompt) -> str | None:
        """The reference solution of the row; None if it has none."""
        code = json.loads(prompt.info)["solution"] if prompt.info else None
        return None if code is None else self.format_answer(code)

    def format_answer(self, answer: str) -> str:
        """A completion that consists of this program."""
        return f"```python\n{answer}\n```"

    def perturb(self, prompt: Prompt) -> str:
        """A program that does nothing, so that it fails every meaningful test."""
        return f"pass  # {prompt.prompt_id}"

    def read_answer(self, text: str) -> str | None:
        """Tests in canonical form; None for any other text."""
        try:
            return read_tests(text)
        except Unreadable:
            return None

    def _markable(self, prompts: "PromptTable") -> "PromptTable":
        """With `skip_invalid`, the prompts whose solution passes their tests, or that have none.

        Each process that reads the file must get the same prompts, so a prompt is not dropped
        because its solution ran out of time: that depends on the load of the machine.
        """
        checked = [(row, self.solution(prompt), prompt) for row, prompt in enumerate(prompts)]
        if unchecked := sum(solution is None for _, solution, _ in checked):
            rows = counted(len(prompts), "row")
            self.note(f"no solution for checking the tests in {unchecked:,} of {rows}")
        if not self.skip_invalid:
            return prompts
        solved = [(row, Answer.to(p, text)) for row, text, p in checked if text is not None]
        kept = [True] * len(prompts)
        marks = self.mark_all([answer for _, answer in solved])
        for (row, _), mark in zip(solved, marks, strict=True):
            kept[row] = mark.outcome in ("correct", "error") or mark.rule == "tests:time-limit"
        return prompts.filter(kept)

    def check_named_columns(self, split: str, file: str, rows: Sequence[Row]) -> None:
        """Raise TaskError for a named column that no row has; test files may lack solutions."""
        names = [self.entry_point] if self.entry_point != "entry_point" else []
        if self.solution_column and split != "test":
            names.append(self.solution_column)
        objects = [row for row in rows if isinstance(row, Mapping)]
        for name in names:
            if not any(name in row or cell(row, name) is not None for row in objects):
                known = ", ".join(dict.fromkeys(str(column) for row in objects for column in row))
                raise TaskError(f"{file} has no column {name!r}: it has {known}")

    def _prompt(self, row: Row, place: str, dropped: Counter[str]) -> Prompt:
        try:
            texts = read_texts(
                {"question": column_value(row, self.question), "": ""}, "question", ""
            )
        except TaskError as error:
            raise TaskError(f"{place}: {error}") from error
        if not texts.question.strip():
            raise TaskError(f"{place}: column {self.question!r} is empty")
        entry_point = _of_json(cell(row, self.entry_point))
        if isinstance(entry_point, Mapping):  # LiveCodeBench's metadata
            entry_point = entry_point.get("func_name")
        function = entry_point if isinstance(entry_point, str) else ""
        try:
            tests = read_tests(column_value(row, str(self.answer)), function)
        except Unreadable as error:
            raise TaskError(
                f"{place}: the tests in column {self.answer!r} cannot be read: {error}; {FORMS}, "
                "or skip_invalid: true to drop such rows"
            ) from error
        dropped.update(texts.dropped)
        question = self.bare_question(texts.question)
        dropped[INSTRUCTIONS] += question != texts.question
        missing = [name for name in called_names(tests) if name not in question]
        if missing:
            dropped["questions do not name the tested functions: the names were added"] += 1
            question += f"\nDefine {', '.join(f'`{name}`' for name in missing)}."
        tier = str(column_value(row, self.tier)) if self.tier else "all"
        prompt = make_prompt(self.name, question, tests, tier, group=self.group_of(row))
        return replace(prompt, info=_info(self._solution(row)))

    def _solution(self, row: Row) -> str | None:
        """The program in the column of solutions: text, or the first of a list."""
        value = _of_json(cell(row, self.solution_column)) if self.solution_column else None
        if isinstance(value, list):
            value = value[0] if value else None
        if not isinstance(value, str) or not value.strip():
            return None
        block = find_code(value, "strict", False)
        return block[0] if block else value.strip("\n")


def _of_json(value: Any) -> Any:
    """The object or list in a JSON text; any other value unchanged."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _info(solution: str | None) -> str:
    return "" if solution is None else json.dumps({"solution": solution}, ensure_ascii=False)


def find_code(completion: str, marking: str, truncated: bool) -> tuple[str, bool] | None:
    """The program of a completion, and whether it was in a block; None if there is none.

    It is the last closed block. Strict takes only blocks marked as Python. Lenient ignores
    thinking, and also takes blocks without a language, a block that the end of the text closes,
    and, without any block, a text that looks like a program.
    """
    text = completion if marking == "strict" else without_thinking(completion)
    languages = _PYTHON if marking == "strict" else (*_PYTHON, "")
    blocks, rest = _blocks(text)
    opened = _OPENED.search(rest) if marking == "lenient" else None
    if opened and opened[1].lower() in languages:
        return None if truncated else (rest[opened.end() :], True)
    codes = [code for name, code in blocks if name.lower() in languages and code.strip()]
    if codes:
        return codes[-1], True
    if marking == "lenient" and not blocks and not truncated and _STATEMENT.search(text):
        return text, False
    return None


class _Fence(NamedTuple):
    """A line that may open a block of code; without a language, it may also close one."""

    line: int
    mark: str  # ``` or ~~~, or more of them
    language: str
    closes: bool

    def is_closed_by(self, other: "_Fence") -> bool:
        return other.closes and other.mark.startswith(self.mark)


def _blocks(text: str) -> tuple[list[tuple[str, str]], str]:
    """The language and the content of each closed block, and the text after the last one.

    Takes linear time, also with many fences that do not close a block.
    """
    lines = text.split("\n")
    fences = []
    for number, line in enumerate(lines):
        if match := _FENCE.fullmatch(line):
            mark, language = match.groups()
            fences.append(_Fence(number, mark, language, closes=line.strip() == mark))
    longest = {"`": 0, "~": 0}
    longest_after = []  # of the later fences that may close it
    for fence in reversed(fences):
        longest_after.append(longest[fence.mark[0]])
        if fence.closes:
            longest[fence.mark[0]] = max(longest[fence.mark[0]], len(fence.mark))
    blocks, end = [], 0
    remaining = zip(fences, reversed(longest_after), strict=True)
    for fence, longest_closing in remaining:
        if longest_closing >= len(fence.mark):
            close = next(other for other, _ in remaining if fence.is_closed_by(other))
            content = "".join(f"{line}\n" for line in lines[fence.line + 1 : close.line])
            blocks.append((fence.language, content))
            end = close.line + 1
    return blocks, "\n".join(lines[end:])


def _cpus() -> int:
    """The CPUs for this process: one in a pool's process, the task's CPUs in a Ray worker."""
    if parent_process() is not None:
        return 1
    known = getattr(os, "sched_getaffinity", None)
    cpus = len(known(0)) if known else os.cpu_count() or 1
    of_ray = os.environ.get("OMP_NUM_THREADS", "")  # Ray sets it to the CPUs of a task
    return min(cpus, int(of_ray)) if of_ray.isdecimal() and int(of_ray) else cpus

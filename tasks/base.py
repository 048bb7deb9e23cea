"""The base of all tasks: prompts, their chat messages, and the marking of answers.

A task never generates text and does not depend on models, Ray or result files. It is cheap to
build, so that every process (driver, sampler actor, trial) builds its own from a name and options.
"""

import copy
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self

from tasks.errors import TaskError
from tasks.marking.marks import Mark
from tasks.marking.spelling import AnswerComparison, spelling_key
from tasks.prompts import Answer, Prompt, make_prompt

READ_GOLDS = 1_000  # gold answers on which a marker's reader is tried

# Instructions that other tools put into their questions; a task adds its own instead. This is how
# DAPO-Math-17k wraps each problem.
_WRAPPERS = (
    re.compile(
        r"Solve the following math problem step by step\. The last line of your response should be "
        r"of the form Answer: \$Answer \(without quotes\) where \$Answer is the answer to the "
        r"problem\.\s*(?P<question>.*?)\s*Remember to put your answer on its own line after "
        r"\"Answer:\"\.\s*",
        re.DOTALL,
    ),
)
# The last sentence of a question: Qwen's for mathematics, those of verl's data preprocessing (GSM8K
# and MATH), and the two of Decile; also as a whole in parentheses.
_BOXED = r"(?:with)?in \\+boxed\{\}"
_INSTRUCTION = (
    r"(?:"
    rf"(?:Please )?reason step by step, and put (?:your|the) final answer {_BOXED}"
    rf"|Let's think step by step and output the final answer {_BOXED}"
    r"|Let's think step by step and output the final answer after [\"']####[\"']"
    rf"|(?:Please )?put (?:your|the) final answer {_BOXED}"
    r")\s*\.?\s*"
)
_SUFFIX = re.compile(rf"(?:{_INSTRUCTION}|\(\s*{_INSTRUCTION}\)\s*\.?\s*)", re.IGNORECASE)
_TAIL = 200  # characters: longer than any of these sentences
# Before a new sentence: a mark, and closing characters after it. Not the number of a list item.
_SENTENCE_END = re.compile(r"[.?!:。？！：][\"'”’)\]}$*_\\]*\Z")
_ITEM = re.compile(r"(?:^|\n)\s*(?:\d{1,2}|[A-Za-z])\.\Z|\b(?:e\.g|i\.e)\.\Z")


def without_instructions(question: str) -> str:
    """The question without a known tool's instruction on the form of the answer.

    Only whole sentences are removed: a sentence with other content stays.
    """
    for wrapper in _WRAPPERS:
        if match := wrapper.fullmatch(question):
            return match["question"]
    for match in _SUFFIX.finditer(question, max(0, len(question) - _TAIL)):
        before = question[: match.start()]
        kept = before.rstrip()
        # A line may also break inside a sentence, which continues in lower case.
        new_line = "\n" in before[len(kept) :] and match[0].lstrip("( ")[:1].isupper()
        new_sentence = _SENTENCE_END.search(kept) and not _ITEM.search(kept)
        if match.end() == len(question) and kept and (new_line or new_sentence):
            return kept
    return question


Message = dict[str, str]


@dataclass(frozen=True)
class Template:
    """One prompt template: the user's turn with `{question}` in it.

    `chat_template_kwargs` are passed to the model's chat template (thinking off, for instance).
    """

    text: str
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def render(self, question: str) -> str:
        """The user's turn; braces in the question are kept as they are."""
        return self.text.replace("{question}", question)


NO_THINKING: Mapping[str, Any] = {"enable_thinking": False}


def boxed_templates(what: str) -> Mapping[str, Template]:
    r"""Templates that ask for the final `what` in `\boxed{}`: our own, and the paper's."""
    plain = f"{{question}}\nReason step by step, and put the final {what} within \\boxed{{}}."
    paper = "{question}.\nPut the final answer within \\boxed{}."
    return {"plain": Template(plain), "paper": Template(paper, NO_THINKING)}


@dataclass(frozen=True)
class PromptSettings:
    """A dataset's chat settings in YAML: `prompt: {preset, system, few_shot}`."""

    preset: str = "plain"
    system: str | None = None
    few_shot: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(
        cls, settings: Mapping[str, Any], templates: Mapping[str, Template]
    ) -> "PromptSettings":
        """Checked settings. Raises ValueError with a message that names valid values."""
        known = ("preset", "system", "few_shot")
        for key in settings:
            if key not in known:
                raise ValueError(f"prompt has no setting {key!r}: it takes {', '.join(known)}")
        preset = settings.get("preset", "plain")
        if not isinstance(preset, str) or preset not in templates:
            raise ValueError(f"unknown preset {preset!r}: write one of {', '.join(templates)}")
        system = settings.get("system")
        if system is not None and not isinstance(system, str):
            raise ValueError(f"invalid system {system!r}: write a string, or leave it out")
        few_shot = settings.get("few_shot") or ()
        form = "write few_shot as a list of {question: …, answer: …}"
        if isinstance(few_shot, str) or not isinstance(few_shot, Sequence):
            raise ValueError(form)
        for example in few_shot:
            if not isinstance(example, Mapping) or set(example) != {"question", "answer"}:
                raise ValueError(f"few_shot holds {example!r}: {form}")
        examples = tuple((str(e["question"]), str(e["answer"])) for e in few_shot)
        return cls(preset, system, examples)


def chat(template: Template, settings: PromptSettings, question: str) -> list[Message]:
    """System prompt, few-shot examples in the template's wording, and the question."""
    messages = [{"role": "system", "content": settings.system}] if settings.system else []
    for example, answer in settings.few_shot:
        messages.append({"role": "user", "content": template.render(example)})
        messages.append({"role": "assistant", "content": answer})
    return [*messages, {"role": "user", "content": template.render(question)}]


Marking = Literal["strict", "lenient"]
MAX_PROMPTS = 1_000_000  # in a generated pool


def check_integer(name: str, value: Any, minimum: int = 0, maximum: int = 2**32 - 1) -> int:
    """The value of an option. Raises TaskError unless it is an integer within these limits."""
    if type(value) is not int or value < minimum:  # a bool is not accepted
        raise TaskError(f"invalid {name} {value!r:.80}: write an integer ≥ {minimum}")
    if value > maximum:
        raise TaskError(f"invalid {name} {value!r:.80}: write at most {maximum:,}")
    return value


def check_size(name: str, value: Any) -> int:
    """The size of a generated split. Raises TaskError."""
    return check_integer(name, value, 0, MAX_PROMPTS)


class MarkLimits(NamedTuple):
    """Limits of marking with custom tasks, in child processes (`tasks.children`)."""

    seconds: float = 5.0  # for one completion, or for one call of an environment
    memory: float = 2.0  # GiB of address space of a process, beyond what its imports use
    processes: int = 2
    episode_seconds: float = 600.0  # for all calls of an environment in an episode


class Task(ABC):
    """Base of all tasks. Subclasses take their options as keyword-only arguments.

    `version` changes when questions change, and is part of a probe's key. `marker_version` changes
    when a mark can change. It is stored with every mark but is not part of the key, so that stored
    completions can be marked again at no cost. `templates` are the task's prompt templates by
    preset; `examples` are answers for checking the marker without a data set.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    marker_version: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    templates: ClassVar[Mapping[str, Template]] = {"plain": Template("{question}")}
    mark_limits: MarkLimits = MarkLimits()
    """Only for custom tasks; set it on the class or in `__init__`."""
    threshold: float = 1.0
    """For tasks with scores: an answer is correct from this score on (`tasks.score_mark`)."""
    environment: type[Any] | None = None
    """For multi-turn tasks: a class with the interface of TRL's `environment_factory`."""
    environment_reward: str = ""
    """For environments without `get_reward`: the reward function that reads `environments`."""
    turns: int = 16
    """For multi-turn tasks: the maximum number of the model's turns in an episode."""
    mixed_tasks: "Sequence[Task]" = ()
    """The tasks of a mix."""
    optional_answers: bool = False
    """Whether prompts may lack a gold answer and get one later; ids then do not depend on it."""
    labelled_sources: Sequence[str] = ()
    """For a mix: the data sets whose answers are not optional."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Record how the task is built, so that a child process can build the same task."""
        task = super().__new__(cls)
        task.built_with = arguments, options
        return task

    built_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __init__(
        self, *, marking: Marking = "lenient", prompt: Mapping[str, Any] | None = None
    ) -> None:
        if marking not in ("strict", "lenient"):
            raise TaskError(f"marking {marking!r} is unknown: write strict or lenient")
        self.marking: Marking = marking
        try:
            self.prompt_settings = PromptSettings.parse(prompt or {}, self.templates)
        except ValueError as error:
            raise TaskError(str(error)) from error
        self.notes: list[str] = []
        self.dropped_prompts = 0  # training prompts left out because they are test questions

    @abstractmethod
    def train(self) -> list[Prompt]:
        """The training pool, without duplicates, always in the same order."""

    @abstractmethod
    def test(self) -> list[Prompt]:
        """The test questions; they do not occur in the training pool."""

    @abstractmethod
    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        """Mark the completion alone, without the prompt's text, under the reading `self.marking`.

        `truncated`: generation hit its token limit. It decides between the outcomes `truncated`
        and `unparsed` if no answer is found.
        """

    def mark_answer(self, answer: Answer) -> Mark:
        """Mark an answer; overridden if a mark depends on the prompt's question or info."""
        return self.mark(answer.completion, answer.answer, answer.truncated)

    def mark_all(self, answers: Sequence[Answer]) -> list[Mark]:
        """The mark of each answer.

        With custom tasks, Decile marks one answer at a time, in child processes. An answer that
        hangs or crashes the marker is an `error` and does not affect other answers.
        """
        return [self.mark_answer(answer) for answer in answers]

    def messages(self, question: str) -> list[Message]:
        """The chat messages of `question` (role and content), before the model's chat template."""
        return chat(self.templates[self.prompt_settings.preset], self.prompt_settings, question)

    def messages_of(self, question: str, info: str) -> list[Message]:
        """The chat messages of a prompt; overridden if they depend on its info."""
        return self.messages(question)

    @property
    def template_content(self) -> list[Any]:
        """The settings that determine the messages of every question, as JSON values."""
        return [self.name, self.version, self.messages("{question}")]

    def read_answer(self, text: str) -> str | None:
        """The reference answer in this task's form; None if the text has no such answer.

        The text is from a user's file: a bare answer, or a worked solution if the task can read its
        end.
        """
        return text

    def reads(self, answer: str) -> bool:
        """Whether the marker can read a gold answer; if not, only the same text is correct."""
        return True

    def unread_golds(self, answers: Sequence[str]) -> str | None:
        """A note on the gold answers that the marker cannot read; None if there are none.

        At most READ_GOLDS answers are checked, evenly spread.
        """
        step = -(-len(answers) // READ_GOLDS)
        looked_at = answers[::step] if answers else []
        unread = [answer for answer in looked_at if answer and not self.reads(answer)]
        if not unread:
            return None
        shown = unread[: 3 if 2 * len(unread) >= len(looked_at) else 1]
        return (
            f"{len(unread):,} of {len(looked_at):,} gold answers cannot be read by the marker, for "
            f"example {', '.join(f'{answer:.40}' for answer in shown)}: only the same text is "
            f"marked correct, and any other spelling is unparsed or wrong"
        )

    def bare_question(self, text: str) -> str:
        """A question without this task's own wording or a known tool's instructions around it.

        A preset that adds no text leaves the question unchanged.
        """
        before, _, after = self.templates[self.prompt_settings.preset].text.partition("{question}")
        if not before and not after:
            return text
        inner = text.removeprefix(before).removesuffix(after)
        if before + inner + after == text and inner.strip():
            return inner
        return without_instructions(text)

    @property
    def answer_name(self) -> str:
        """The keyword, besides `answer`, under which a reward function gets the gold answer."""
        return "answer"

    @property
    def marker_id(self) -> str:
        """The marker as stored with every mark: task, marker version, reading.

        A task whose options can change a mark adds them.
        """
        return f"{self.name}/{self.marker_version}/{self.marking}"

    @property
    def provenance(self) -> dict[str, str]:
        """The source of each split: `hub@revision` or `file sha256:…`; {} if generated."""
        return {}

    def marker_of(self, prompt: Prompt) -> str:
        """The marker as stored with a prompt's marks, with the gold answer if that may change."""
        if not self.optional_answers:
            return self.marker_id
        digest = hashlib.sha256(prompt.answer.encode()).hexdigest()[:8]
        return f"{self.marker_id}#{digest if prompt.answer else 'unlabelled'}"

    def own(self, prompt: Prompt) -> "tuple[Task, Prompt]":
        """The task that marks a prompt, and its form of the prompt; both differ for a mix."""
        return self, prompt

    @property
    def comparison(self) -> AnswerComparison:
        """How extracted answers are compared with each other, under the reading `self.marking`.

        By default, as texts up to spelling. This is exact for numbers and letters, because a marker
        extracts the same text for equal ones.
        """
        return AnswerComparison(spelling_key)

    def same_answer(self, one: str, two: str) -> bool:
        """Whether two extracted answers are the same."""
        key, same = self.comparison
        return one == two or (key(one) == key(two) if same is None else same(one, two))

    def task_of(self, source: str) -> "Task":
        """The task that marks the prompts of a source: for a mix, the data set's task."""
        return self

    def format_answer(self, answer: str) -> str:
        """A completion that consists only of this answer."""
        return rf"\boxed{{{answer}}}"

    def solution(self, prompt: Prompt) -> str | None:
        """A correct completion of the prompt, for checking the marker: its answer alone.

        None if no correct completion is known: the marker is not checked on this prompt.
        """
        return self.format_answer(prompt.answer)

    @property
    def chat_template_kwargs(self) -> dict[str, Any]:
        """The preset's arguments of the chat template; the model's own settings take precedence."""
        return dict(self.templates[self.prompt_settings.preset].chat_template_kwargs)

    def with_marking(self, marking: Marking) -> Self:
        """The same task with a different reading of answers; no data is loaded again."""
        task = copy.copy(self)
        task.marking = marking
        return task

    @property
    def other_reading(self) -> Self:
        """The same task under the reading that rewards do not use.

        The task itself if marks do not depend on the reading, so that nothing is marked twice.
        """
        return self.with_marking("strict" if self.marking == "lenient" else "lenient")

    @classmethod
    def unusable(cls) -> str:
        """Why answers cannot be marked on this machine, and what to do; "" if they can."""
        return ""

    @classmethod
    def marker_variants(cls) -> "list[Task]":
        """Tasks of this class for checking its marker without a data set."""
        return [cls()]

    why_no_variants: ClassVar[str] = "the library that it needs is not installed"
    """Why `marker_variants` is empty."""

    def check_prompts(self) -> list[Prompt]:
        """Prompts to check the marker on: `examples` if the class has some, else its test set."""
        if self.examples:
            return [make_prompt(self.name, f"example {a}", a, "") for a in self.examples]
        return self.test()

    def wrong_completion(self, prompt: Prompt) -> str:
        """A completion with a wrong answer, for checking the marker."""
        return self.format_answer(self.perturb(prompt))

    def perturb(self, prompt: Prompt) -> str:
        """A wrong answer in the form of a correct one, for checking the marker."""
        number = prompt.answer.replace(",", "")
        if number.lstrip("-").isdigit():
            return str(int(number) + 1)
        answers = (p.answer for p in self.check_prompts())
        return next((a for a in answers if a != prompt.answer), f"no {prompt.answer}")

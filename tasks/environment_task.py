"""Multi-turn tasks: an environment written for TRL, and its rows."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from orchestrator.plugins.counts import counted_label
from orchestrator.plugins.user_code import user_errors
from tasks.base import Marking, Task, Template, check_integer
from tasks.environments import environment_class, environment_of, scores_itself
from tasks.errors import TaskError
from tasks.prompts import Prompt, make_prompt
from tasks.question_file import ID_RANGE, QuestionFile, check_limits, check_share, check_threshold
from tasks.reward_functions import reward_function
from tasks.sources.files import (
    SYSTEM,
    TURNS,
    Row,
    Rows,
    check_columns,
    column_value,
    is_chat,
    read_chat,
)
from tasks.sources.kept_columns import Column
from tasks.sources.user_files import Files
from tasks.sources.values import row_text, value_text, whole

if TYPE_CHECKING:
    from tasks.prompt_table import PromptTable

MAX_TURNS = 10_000  # of an episode: more is probably a typo
_QUESTIONS = ("prompt", "question")  # TRL's name, and ours


class EnvironmentTask(QuestionFile):
    """Multi-turn episodes in your own environment, written for TRL.

    An environment is a class with `reset(**row)`, which may return text that continues the prompt.
    Its public methods with docstrings are the tools that the model calls. An optional method
    `get_reward()` returns the score of an episode from 0 to 1. Its rows come from a file or from
    its classmethod `rows()`, or it draws its own task in `reset`. All columns of a row are passed
    to `reset`, and are its identity.

    One loop plays the episodes of probes, evaluations and training, with the tokens, the mask and
    the wording of errors of TRL's own. The engines are `transformers`, `vllm` and `server` (with
    `api: completions`), and the model's chat template must render tools. The randomness of a turn
    depends only on the seed, the row, the sample and the turn. Images, standalone tools, several
    environments in one data set, and TRL's own generation (`rollouts: trl`, `use_vllm`) are not
    supported.

    An exception in a tool is the tool's answer to the model. An environment that hangs, exits, uses
    too much memory, or raises in `reset` or `get_reward` gives its own episode the outcome `error`;
    a rule such as `time-limit@TOOL` or `time-limit@episode` gives the reason. An episode that
    reaches a limit is `truncated`, unless its score is high enough. A reward outside 0 to 1 stops
    the run.

    Options:
        environment: `package.module:Class`. `task: package.module:Class` is short for it.
        train, test, path, test_share, tier, group, source, keep: as for task `file`.
        question: the column of the prompt, a text or chat messages (default: `prompt` or
            `question`). `reset` may also write the whole prompt.
        episodes: the number of rows if `reset` draws its own task: each the same for all its
            samples.
        threshold: the lowest score of a correct episode (1.0).
        marker, answer: without `get_reward`: a marker of task `file` for the text of all turns,
            with the column of its answers; or a reward function that reads `environments`, as for
            TRL.
        turns: the most turns of the model. `max_completion_length` limits the tokens of all turns.
        mark_limits: limits of the processes that run environments: `seconds` for a call (30),
            `episode_seconds` for all calls of an episode (600), `memory` in GiB (2), `processes`
            (2).
    """

    name: ClassVar[str] = "environment"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "3"
    by_question: ClassVar[bool] = False
    templates: ClassVar[Mapping[str, Template]] = {"plain": Template("{question}")}

    def __init__(
        self,
        *,
        marking: Marking = "lenient",
        prompt: Mapping[str, Any] | None = None,
        environment: str = "",
        train: Files | None = None,
        test: Files | None = None,
        path: Files | None = None,
        test_share: float | None = None,
        question: str | None = None,
        answer: str | None = None,
        tier: str | None = None,
        group: str | None = None,
        source: Column | None = None,
        keep: Sequence[Column] | Literal["all"] = (),
        marker: str | None = None,
        threshold: float | None = None,
        episodes: int | None = None,
        turns: int = Task.turns,
        mark_limits: Mapping[str, float] | None = None,
    ) -> None:
        if not environment:
            raise TaskError("task environment needs environment: package.module:Class")
        self.environment = environment_class(environment)
        self.described = environment_of(self.environment)
        if marker and ":" in marker:
            function = reward_function(marker)
            if "environments" in (function.accepted or frozenset()) | function.required:
                self.environment_reward = marker
        self._check_one_score(marker)
        super().__init__(
            marking=marking,
            prompt=prompt,
            train=train,
            test=test,
            path=path,
            test_share=test_share if path or train or test else None,
            answer=answer or ("answer" if not marker or ":" not in marker else None),
            group=group,
            source=source,
            keep=keep,
            marker=marker or "text",
        )
        self.episodes = None if episodes is None else check_integer("episodes", episodes, 1)
        if episodes and (path or train or test):
            raise TaskError("episodes replaces rows: leave out episodes or the files")
        if not (path or train or test):
            self.test_share = check_share("the rows of the class", test_share, ())
        self.question_column = question
        self.tier = tier
        self.needs_answer = answer is not None
        if threshold is not None:
            self.threshold = check_threshold(threshold)
        self.turns = check_integer("turns", turns, 1, MAX_TURNS)
        self.mark_limits = check_limits({"seconds": 30.0, **(mark_limits or {})}, episodes=True)

    def _check_one_score(self, marker: str | None) -> None:
        """Raise TaskError unless either the class or a marker gives the score."""
        environment = self.described.reference
        if self.described.rewards and marker:
            raise TaskError(
                f"environment {environment} has get_reward(), which gives the score: leave marker "
                "out, or start the name of that method with _"
            )
        if not self.described.rewards and not marker:
            raise TaskError(
                f"environment {environment} has no get_reward(): write one, or marker: with "
                "answer: COLUMN"
            )

    def read(self) -> "tuple[PromptTable, PromptTable]":
        """The rows of the files, or of the class."""
        if self.files["train"] or self.files["test"]:
            return self._prompts("train"), self._prompts("test")
        prompts = self._prompts("all") if self.files["all"] else self._of_class()
        assert prompts.keys is not None, "ids of make_prompt are hex digits"
        in_test = prompts.keys < math.ceil(self.test_share * ID_RANGE)
        return prompts.filter(~in_test), prompts.filter(in_test)

    @property
    def marker_id(self) -> str:
        """The environment with its version, if it gives the score."""
        if not self.described.rewards:
            own = super().marker_id
            return f"{own}/{self.described.version}" if self.environment_reward else own
        version = f"@{self.described.version}" if self.described.version else ""
        threshold = f"/from-{self.threshold:g}" if self.threshold != 1 else ""
        return f"{self.name}/{self.marker_version}/{self.described.reference}{version}{threshold}"

    @property
    def other_reading(self) -> Self:
        """A score of the environment does not depend on the reading."""
        return self if scores_itself(self) else super().other_reading

    why_no_variants: ClassVar[str] = "each environment is checked with its own rows, as a data set"

    @classmethod
    def marker_variants(cls) -> list[Task]:
        """None: each environment is checked with its own rows."""
        return []

    def check_prompts(self) -> list[Prompt]:
        """The test set's rows, to start environments with."""
        return self.test()

    @property
    def _columns(self) -> list[str]:
        answer = self.answer if self.needs_answer or not self.described.rewards else None
        return [name for name in (self.question_column, answer, self.tier) if name]

    def check_named_columns(self, split: str, file: str, rows: Sequence[Row]) -> None:
        """A function that reads environments is also called with them."""
        if not self.environment_reward:
            super().check_named_columns(split, file, rows)

    def _of_class(self) -> "PromptTable":
        from tasks.prompt_table import PromptTable

        place = f"environment {self.described.reference}: rows()"
        read = getattr(self.environment, "rows", None)
        if self.episodes is None and not callable(read):
            raise TaskError(
                f"environment {self.described.reference} has no rows: write path: FILE, or "
                "episodes: N where reset() draws its own task, or a classmethod rows() that "
                "returns a list of dicts"
            )
        with user_errors(place, TaskError):
            numbered = [{"episode": number} for number in range(self.episodes or 0)]
            rows: list[Row] = numbered or [*read()]  # type: ignore[misc]
        dropped = Counter[str]()
        for index, row in enumerate(rows):
            check_columns(f"{place}[{index}]", row, self._columns)
        columns = self.kept.of_rows(place, rows)
        prompts = [
            self._travelling(self._prompt(row, each, dropped), row, each, columns)
            for row, each in ((row, f"{place}[{index}]") for index, row in enumerate(rows))
        ]
        if not prompts:
            raise TaskError(f"{place} returned no rows: return one dict per episode")
        for label in dropped:
            self.note(f"all: {counted_label(dropped[label], label)}")
        self.keep("all", Rows(rows, f"{self.described.reference}@{self.described.version}"))
        return PromptTable.of(prompts)

    def _prompt(self, row: Row, place: str, dropped: Counter[str]) -> Prompt:
        name = self.question_column or next((each for each in _QUESTIONS if each in row), "")
        value = column_value(row, name) if name else None
        question = value or ""
        if is_chat(value):
            chat = read_chat(value)
            question = chat.question
            dropped.update({SYSTEM: chat.system, TURNS: chat.turns + bool(chat.reply)})
        if not isinstance(question, str):
            raise TaskError(f"{place}: {name} is {question!r:.60}: write text or chat messages")
        given = column_value(row, self.answer) if self.answer in self._columns else None
        answer: str | None = value_text(given)
        if not self.described.rewards and self.function is None:
            answer = self.read_answer(answer or "")
            if not answer:
                raise TaskError(
                    f"{place}: the marker {self.marker} cannot use the answer {given!r}"
                )
        tier = str(whole(column_value(row, self.tier))) if self.tier else "all"
        info = row_text({key: row[key] for key in row if key != name}, place, "remove it")
        return make_prompt(
            self.name, question, answer or "", tier, info, info_in_id=True, group=self.group_of(row)
        )

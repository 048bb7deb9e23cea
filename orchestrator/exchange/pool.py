"""Matches source questions with prompts: those of a task's own pool, or new ones."""

from collections.abc import Iterable, Sequence

from orchestrator.exchange.records import Notes, SourceQuestion
from tasks import Answer, Prompt, Task, make_prompt

MAX_LINES = 64  # of a prompt that is searched for a question: the search is quadratic in lines


class PromptMatcher:
    """The prompts of a source. Ids are hashed from the task's name, the question and the answer.

    With a pool, a question of the pool becomes the pool's prompt, with its id, answer and tier,
    also where the source words it as this task does, or has it as whole lines of a longer prompt.
    """

    def __init__(self, task: Task, pool: Iterable[Prompt] | None, notes: Notes) -> None:
        self.task, self.notes = task, notes
        self.has_pool = pool is not None
        self.prompts: dict[str, Prompt] = {}  # by prompt_id, in the order of the source
        self._matched: dict[SourceQuestion, Prompt] = {}
        self._other_answers: dict[tuple[str, str], str] = {}  # (source's, pool's) -> place
        self._pool = {prompt.question: prompt for prompt in pool or ()}
        self._by_id = {prompt.prompt_id: prompt for prompt in self._pool.values()}
        self._by_message = {
            task.messages(question)[-1]["content"]: prompt
            for question, prompt in self._pool.items()
        }

    def match(self, source: SourceQuestion) -> Prompt:
        """The prompt of a question; the first question with an id decides its tier."""
        if source not in self._matched:
            if source.question:
                prompt = self._find(source)
            else:  # the pool's prompt of that id, or one without text
                known_id = str(source.known_id)
                if known_id not in self._by_id:
                    self.notes.count(
                        "prompts have no text, so subsets cannot be exported", source.place
                    )
                prompt = self._by_id.get(known_id, Prompt(known_id, "", "", source.tier))
            self._matched[source] = self.prompts.setdefault(prompt.prompt_id, prompt)
        return self._matched[source]

    def check_answers(self) -> None:
        """Note the answers that the task would not mark as equal to the pool's."""
        pairs = list(self._other_answers)
        marks = self.task.mark_all(
            [Answer(self.task.format_answer(own), gold) for own, gold in pairs]
        )
        for (own, gold), mark in zip(pairs, marks, strict=True):
            if mark.outcome != "correct":
                place = self._other_answers[own, gold]
                self.notes.count(
                    "answers differ from the pool's, which are kept",
                    f"{place}: {own[:40]!r}, the pool's is {gold[:40]!r}",
                )

    def _find(self, source: SourceQuestion) -> Prompt:
        own = make_prompt(self.task.name, source.question, source.answer, source.tier)
        if source.known_id not in (None, own.prompt_id) and source.known_id not in self._by_id:
            self.notes.count("rows have the prompt_id of another task or answer", source.place)
        if not self.has_pool:
            return own
        text = source.question
        prompt = self._pool.get(text) or self._by_message.get(text)
        prompt = prompt or next(filter(None, map(self._pool.get, _line_blocks(text))), None)
        if prompt is None:
            self.notes.count("rows have a question that is not in the task's pool", source.place)
            return own
        if prompt.answer != source.answer:
            self._other_answers.setdefault((source.answer, prompt.answer), source.place)
        return prompt


def _line_blocks(text: str) -> Iterable[str]:
    """Every run of whole lines, the longest first."""
    lines: Sequence[str] = text.split("\n")
    if len(lines) > MAX_LINES:
        return
    for length in range(len(lines) - 1, 0, -1):
        for start in range(len(lines) - length + 1):
            yield "\n".join(lines[start : start + length])

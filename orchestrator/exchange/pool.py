"""Asked questions -> the project's prompts, with ids of their content, or a task's own pool."""

from collections.abc import Iterable, Sequence

from orchestrator.exchange.entries import Notes, SourceQuestion
from tasks import Answer, Prompt, Task, make_prompt

MOST_LINES = 64  # of a prompt that is searched for a question: runs grow with the square


class Prompts:
    """The prompts of a source. Ids come from the task's name, the question and the answer.

    With a pool, a question that the pool asks is the pool's prompt, with its id, answer and tier,
    also where the source asks it in this task's wording, or as whole lines of a longer prompt.
    """

    def __init__(self, task: Task, pool: Iterable[Prompt] | None, notes: Notes) -> None:
        self.task, self.notes = task, notes
        self.matched = pool is not None
        self.found: dict[str, Prompt] = {}
        self._of: dict[SourceQuestion, Prompt] = {}
        self._others: dict[tuple[str, str], str] = {}
        self._pool = {prompt.question: prompt for prompt in pool or ()}
        self._ids = {prompt.prompt_id: prompt for prompt in self._pool.values()}
        self._worded = {
            task.messages(question)[-1]["content"]: prompt
            for question, prompt in self._pool.items()
        }

    def of(self, asked: SourceQuestion) -> Prompt:
        """The prompt of a question; the first of an id decides its tier."""
        if asked not in self._of:
            prompt = self._find(asked)
            self._of[asked] = self.found.setdefault(prompt.prompt_id, prompt)
        return self._of[asked]

    def check_answers(self) -> None:
        """Note the answers that the task would not count as the pool's own."""
        pairs = list(self._others)
        marks = self.task.mark_all([Answer(self.task.answering(own), gold) for own, gold in pairs])
        for (own, gold), mark in zip(pairs, marks, strict=True):
            if mark.outcome != "correct":
                place = f"{self._others[own, gold]}: {own[:40]!r}, the pool's is {gold[:40]!r}"
                self.notes.case("answers differ from the pool's, which are kept", place)

    def _find(self, asked: SourceQuestion) -> Prompt:
        if not asked.question:
            return self._known(asked)
        own = make_prompt(self.task.name, asked.question, asked.answer, asked.tier)
        if asked.known_id not in (None, own.prompt_id) and asked.known_id not in self._ids:
            self.notes.case("rows have a prompt_id of another task or answer", asked.place)
        prompt = self._pool_prompt(asked.question) if self.matched else own
        if prompt is None:
            self.notes.case("rows ask what the task's pool does not", asked.place)
            return own
        if prompt.answer != asked.answer:
            self._others.setdefault((asked.answer, prompt.answer), asked.place)
        return prompt

    def _known(self, asked: SourceQuestion) -> Prompt:
        """A prompt of which the source has no text: the pool's of that id, or one without text."""
        known = str(asked.known_id)
        if known not in self._ids:
            self.notes.case(
                "prompts have no text, so that no subset of them is exported", asked.place
            )
        return self._ids.get(known, Prompt(known, "", "", asked.tier))

    def _pool_prompt(self, question: str) -> Prompt | None:
        whole = self._pool.get(question) or self._worded.get(question)
        return whole or next(filter(None, map(self._pool.get, _blocks(question))), None)


def _blocks(text: str) -> Iterable[str]:
    """Every run of whole lines, the longest first."""
    lines: Sequence[str] = text.split("\n")
    if len(lines) > MOST_LINES:
        return
    for length in range(len(lines) - 1, 0, -1):
        for start in range(len(lines) - length + 1):
            yield "\n".join(lines[start : start + length])

"""Matches source questions with prompts: those of a task's own pool, or new ones."""

from collections.abc import Iterable, Sequence

from orchestrator.exchange.records import Notes, SourceQuestion
from orchestrator.probing.isolation import mark_answers
from tasks import Answer, Prompt, Task, make_prompt
from tasks.columns import INSTRUCTIONS, SOLUTIONS
from tasks.file_answers import final_answer

MAX_LINES = 64  # of a prompt that is searched for a question: the search is quadratic in lines


class PromptMatcher:
    """The prompts of a source. Ids are hashed from the task's name, the question and the answer.

    With a pool, a question of the pool becomes the pool's prompt, with its id, answer and tier,
    also where the source words it as this task does, or has it as whole lines of a longer prompt.
    Other questions, such as those of the task's test set, are dropped.
    """

    def __init__(self, task: Task, pool: Iterable[Prompt] | None, notes: Notes) -> None:
        self.task, self.notes = task, notes
        self.has_pool = pool is not None
        self.prompts: dict[str, Prompt] = {}  # by prompt_id, in the order of the source
        self._matched: dict[SourceQuestion, Prompt | None] = {}
        self._other_answers: dict[tuple[str, str], str] = {}  # (source's, pool's) -> place
        self._pool = {prompt.question: prompt for prompt in pool or ()}
        self._by_id = {prompt.prompt_id: prompt for prompt in self._pool.values()}
        self._by_message = {
            task.messages(question)[-1]["content"]: prompt
            for question, prompt in self._pool.items()
        }

    def match(self, source: SourceQuestion) -> Prompt | None:
        """The prompt of a question; None, with a note, where the row cannot be used.

        The first question with an id decides its tier.
        """
        if source not in self._matched:
            prompt = (self._pool_prompt if self.has_pool else self._own_prompt)(source)
            if prompt is not None:
                prompt = self.prompts.setdefault(prompt.prompt_id, prompt)
            self._matched[source] = prompt
        return self._matched[source]

    def __getitem__(self, source: SourceQuestion) -> Prompt:
        """The prompt of a question that `match` accepts."""
        prompt = self.match(source)
        if prompt is None:
            raise KeyError(source)
        return prompt

    def check_answers(self) -> None:
        """Note the answers that the task would not mark as equal to the pool's."""
        pairs = list(self._other_answers)
        answers = [Answer(self.task.format_answer(own), gold) for own, gold in pairs]
        marks = mark_answers(self.task, answers)
        for (own, gold), mark in zip(pairs, marks, strict=True):
            if mark.outcome != "correct":
                place = self._other_answers[own, gold]
                self.notes.count(
                    "answers differ from the pool's, which are kept",
                    f"{place}: {own[:40]!r}, the pool's is {gold[:40]!r}",
                )

    def check_golds(self) -> None:
        """Note the source's answers that the task's marker does not mark correct."""
        places = {prompt: s.place for s, prompt in reversed(self._matched.items()) if prompt}
        prompts = [prompt for name, prompt in self.prompts.items() if name not in self._by_id]
        golds = [Answer(self.task.format_answer(p.answer), p.answer) for p in prompts]
        for prompt, mark in zip(prompts, self.task.mark_all(golds), strict=True):
            if mark.outcome != "correct":
                label = "answers are not marked correct themselves: choose another task or marker"
                self.notes.count(label, places[prompt])

    def _pool_prompt(self, source: SourceQuestion) -> Prompt | None:
        text = source.question
        texts = dict.fromkeys((text, self.task.bare_question(text))) if text else ()
        finders = (self._pool.get, self._by_message.get)
        prompts = (find(wording) for wording in texts for find in finders)
        prompt = next(filter(None, prompts), None) or self._by_id.get(source.known_id or "")
        prompt = prompt or next(filter(None, map(self._pool.get, _line_blocks(text))), None)
        if prompt is None:
            self.notes.count("rows dropped: not in the task's training pool", source.place)
            return None
        answer = self.task.read_answer(source.answer) or source.answer
        if answer and answer != prompt.answer:
            self._other_answers.setdefault((answer, prompt.answer), source.place)
        return prompt

    def _own_prompt(self, source: SourceQuestion) -> Prompt | None:
        text, answer, known_id = source.question, source.answer, source.known_id
        if not text:
            return Prompt(str(known_id), "", "", source.tier)
        if not answer:
            self.notes.count("rows dropped: no answer", source.place)
            return None
        bare, gold = self.task.bare_question(text), self.task.read_answer(answer)
        golds = {answer: None} if gold is None else {gold: None, answer: None}
        for question in (text, bare):  # as Decile wrote them, if the id says so
            for own in golds:
                prompt = make_prompt(self.task.name, question, own, source.tier)
                if prompt.prompt_id == known_id:
                    return prompt
        if gold is None:
            label = f"the marker {self.task.marker_id} cannot use the answer: choose another"
            self.notes.count(f"rows dropped: {label}", source.place)
            return None
        if known_id is not None:
            self.notes.count("rows have the prompt_id of another task or answer", source.place)
        if bare != text:
            self.notes.count(INSTRUCTIONS, source.place)
        if final_answer(answer.strip()) != answer.strip() and gold != answer:
            self.notes.count(SOLUTIONS, source.place)
        return make_prompt(self.task.name, bare, gold, source.tier)


def _line_blocks(text: str) -> Iterable[str]:
    """Every run of whole lines, the longest first."""
    lines: Sequence[str] = text.split("\n")
    if len(lines) > MAX_LINES:
        return
    for length in range(len(lines) - 1, 0, -1):
        for start in range(len(lines) - length + 1):
            yield "\n".join(lines[start : start + length])

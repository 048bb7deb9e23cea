"""Prompts that were decoded with the marks of a chat template."""

from orchestrator.optional.exchange.placed_rows import Notes, count_dropped
from tasks import TaskError
from tasks.sources.chat_templates import THINKING, unwrapped


def decoded_question(text: str, place: str, notes: Notes) -> str:
    """The last user turn of a rendered chat prompt; a text without a known template unchanged."""
    text = THINKING.sub("", text)
    try:
        rendered = unwrapped(text)
    except TaskError:
        rendered = None
    if rendered is None:
        notes.count("prompts have no known chat template: the whole text is the question", place)
        return text
    count_dropped(rendered.system, rendered.turns, place, notes)
    return rendered.question

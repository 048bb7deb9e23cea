"""The documents of lm-eval's tasks."""

from typing import Any

from orchestrator.optional.exchange.placed_rows import Row
from tasks.sources.roles import columns_in_role


def document_question(document: Row) -> Any:
    """The question of an lm-eval document, which is a row of any data set; None without one."""
    names = columns_in_role("question", document, "text")  # these may have any content
    return next((document[name] for name in names if document[name]), None)

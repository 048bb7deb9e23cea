"""Images, videos and sounds in rows: a question that needs one cannot be asked."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tasks.errors import TaskError
from tasks.sources.files import is_chat
from tasks.sources.values import is_missing

# Image placeholders in a question's text. Also for Arrow.
TAGS = (
    r"(?i)<(?:image|video|audio)[_ ]?\d*>|<\|(?:image|video|audio|vision_start)[a-z0-9_]*\|>|"
    r"<img\s"
)
_TAGS = re.compile(TAGS)
LINKED = "questions with links to images: the model only sees the links"
LINKS = r"!\[[^\]]*\]\([^)\s]+\)"  # Markdown links; also for Arrow
_LINKS = re.compile(LINKS)
_COLUMN = re.compile(
    r"(?:image|img|picture|video|audio)s?(?:[_-]?(?:\d+|paths?|urls?|files?|bytes|b64|base64))?"
)
_PART = re.compile(r"(?:input_)?(?:image|video|audio|file)(?:_url)?")  # types of message parts


def has_media_columns(names: Iterable[str]) -> bool:
    """Whether some of a file's columns may hold images, videos or sounds."""
    return any(map(_is_media_column, map(str, names)))


@lru_cache(maxsize=1024)  # called once per row
def _is_media_column(name: str) -> bool:
    return _COLUMN.fullmatch(name.lower()) is not None


def links_to_image(question: str) -> bool:
    """Whether a question has a Markdown link to an image."""
    return _LINKS.search(question) is not None


def check_no_media(row: Mapping[str, Any], value: Any, question: str) -> None:
    """Raise TaskError for a row that has an image, a video or a sound: models only get text.

    value: the value of the question column; question: its text.
    """
    remedy = "which is not shown to the model: leave the row out"
    for name, content in row.items():
        if _is_media_column(str(name)) and not is_missing(content) and content not in ([], {}):
            raise TaskError(
                f"column {str(name)!r:.60} holds an image, video or sound, {remedy}, or the "
                f"column if no question needs it"
            )
    if tag := _TAGS.search(question):
        raise TaskError(f"the question has the tag {tag[0]!r:.30} of an image, {remedy}")
    for message in value if is_chat(value) else ():
        parts = message.get("content", message.get("value"))
        for part in parts if isinstance(parts, list) else ():
            kind = part.get("type") if isinstance(part, Mapping) else None
            if isinstance(kind, str) and _PART.fullmatch(kind):
                raise TaskError(f"a message has a part of type {kind!r:.30}, {remedy}")

"""Whether two LaTeX expressions mean the same, by math-verify. Imported by child processes only.

math-verify's own time limits are signals, which work in no thread but the main one; they are off
here, and the process that asks keeps the time (`tasks.children`).
"""

import logging
from functools import lru_cache
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

logging.getLogger("math_verify").setLevel(logging.CRITICAL)

_LATEX = LatexExtractionConfig()
_PLAIN = ExprExtractionConfig()


def equivalent(gold: str, answer: str) -> bool:
    """Whether `answer` means what `gold` means; both are LaTeX without its delimiters.

    Raises ValueError where `gold` cannot be read.
    """
    wanted = _parsed(gold)
    if not wanted:
        raise ValueError(f"gold {gold!r} cannot be read")
    return bool(verify([*wanted], [*_parsed(answer)], timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parsed(latex: str) -> tuple[Any, ...]:
    return tuple(parse(f"${latex}$", [_LATEX, _PLAIN], parsing_timeout=None, raise_on_error=True))

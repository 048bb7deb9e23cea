"""Whether two LaTeX expressions mean the same, by math-verify. Imported by child processes only.

math-verify's own time limits are signals, which work in no thread but the main one; they are off
here, and the process that asks keeps the time (`tasks.children`).
"""

import logging
import re
from functools import lru_cache
from typing import Any

from latex2sympy2_extended import NormalizationConfig
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy import Expr, Float

from tasks.latex_parsing import parse_in_two_stages

parse_in_two_stages()
logging.getLogger("math_verify").setLevel(logging.CRITICAL)

# Its removal of units would make 2 of 2ab, and takes the c of "a + c"; `tasks.units` knows better.
_LATEX = LatexExtractionConfig(
    normalization_config=NormalizationConfig(units=False, malformed_operators=True, nits=True)
)
_PLAIN = ExprExtractionConfig()
_SEPARATOR = re.compile(r"(?<=\d)(?:,?\s*\\[!,]\s*|\{,\})(?=\d{3}(?!\d))")  # 5,\!525, 5{,}525


def equivalent(gold: str, answer: str) -> bool | None:
    """Whether `answer` means what `gold` means; both are LaTeX without its delimiters.

    None where `answer` cannot be read, and `gold` can: their bare texts are no mathematics to
    compare. Raises ValueError where `gold` cannot be read.
    """
    wanted, read = _parsed(gold), _parsed(answer)
    if not wanted:
        raise ValueError(f"gold {gold!r} cannot be read")
    if not read or (_is_text(read) and not _is_text(wanted)):
        return None
    if _rounds(wanted[0], read[0]):
        return False
    # x > 5 is (5, ∞), and 5 ≥ x is x ≤ 5
    return bool(verify([*wanted], [*read], timeout_seconds=None, allow_set_relation_comp=True))


def _is_text(read: tuple[Any, ...]) -> bool:
    """Whether nothing was read but math-verify's last resort, the text itself."""
    return all(isinstance(part, str) for part in read)


def _rounds(exact: Any, answer: Any) -> bool:
    """Whether a decimal stands for an irrational gold: verify compares to six digits."""
    return (
        isinstance(exact, Expr)
        and isinstance(answer, Expr)
        and answer.has(Float)
        and not exact.has(Float)
        and exact.is_number
        and exact.is_rational is not True
    )


@lru_cache(maxsize=4096)
def _parsed(latex: str) -> tuple[Any, ...]:
    latex = _SEPARATOR.sub("", latex).rstrip(" .,")
    return tuple(parse(f"${latex}$", [_LATEX, _PLAIN], parsing_timeout=None, raise_on_error=True))

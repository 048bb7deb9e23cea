"""Compares two LaTeX expressions with math-verify. Imported by child processes only.

math-verify's own time limits are signals, which work in the main thread only; they are off here,
and the calling process enforces the limit (`tasks.children`).

Its LaTeX parser runs in two stages: ANTLR's SLL prediction is several times faster than its full LL
prediction. Without a syntax error
it gives the same tree as LL; with one, the text is parsed again with LL (the two-stage parsing that
ANTLR's documentation recommends).
"""

import logging
import re
from functools import lru_cache
from typing import Any

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import NormalizationConfig
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy import Expr, Float

_create_parser, _parse = _Latex2Sympy.create_parser, _Latex2Sympy.parse


def parse_in_two_stages() -> None:
    """Replace this process's parser by the two-stage one."""
    _Latex2Sympy.create_parser = _create_two_stage_parser
    _Latex2Sympy.parse = _parse_in_two_stages


def _create_two_stage_parser(self: Any, latex: str) -> Any:
    parser = _create_parser(self, latex)
    parser._interp.predictionMode = self.mode
    return parser


def _parse_in_two_stages(self: Any, latex: str) -> Any:
    try:
        self.mode = PredictionMode.SLL
        return _parse(self, latex)
    except Exception:  # noqa: BLE001 it raises bare Exceptions for syntax errors
        self.mode = PredictionMode.LL
        return _parse(self, latex)


parse_in_two_stages()
logging.getLogger("math_verify").setLevel(logging.CRITICAL)

# Its removal of units turns 2ab into 2, and drops the c of "a + c": `tasks.marking.spelling` does
# it instead.
_LATEX = LatexExtractionConfig(
    normalization_config=NormalizationConfig(units=False, malformed_operators=True, nits=True)
)
_PLAIN = ExprExtractionConfig()
_SEPARATOR = re.compile(r"(?<=\d)(?:,?\s*\\[!,]\s*|\{,\})(?=\d{3}(?!\d))")  # 5,\!525, 5{,}525


def equivalent(gold: str, answer: str) -> bool | None:
    """Whether `answer` is equivalent to `gold`; both are LaTeX without delimiters.

    None if `answer` cannot be parsed as mathematics while `gold` can. Raises ValueError if `gold`
    cannot be parsed.
    """
    expected, parsed = _parsed(gold), _parsed(answer)
    if not expected:
        raise ValueError(f"gold {gold!r} cannot be parsed")
    if not parsed or (_is_text(parsed) and not _is_text(expected)):
        return None
    if _rounds(expected[0], parsed[0]):
        return False
    # x > 5 is (5, ∞), and 5 ≥ x is x ≤ 5
    return bool(verify([*expected], [*parsed], timeout_seconds=None, allow_set_relation_comp=True))


def _is_text(parsed: tuple[Any, ...]) -> bool:
    """Whether only math-verify's fallback, the text itself, was parsed."""
    return all(isinstance(part, str) for part in parsed)


def _rounds(exact: Any, answer: Any) -> bool:
    """Whether a decimal approximates an irrational gold: verify compares to six digits."""
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

"""math-verify's LaTeX parser in two stages. Imported by child processes only.

ANTLR's SLL prediction is several times faster than its full LL prediction. Without a syntax error
it gives the same tree as LL; with one, the text is parsed again with LL (the two-stage parsing that
ANTLR's documentation recommends).
"""

from typing import Any

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy

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

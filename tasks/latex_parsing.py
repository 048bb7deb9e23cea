"""math-verify's LaTeX parser in two stages. Imported by child processes only.

ANTLR's SLL prediction is several times faster than its full LL prediction; where it finds no syntax
error it gives the tree that LL would give, and where it finds one, LL is asked (the two-stage
parsing that ANTLR's own documentation recommends).
"""

from typing import Any

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy

_create_parser, _parse = _Latex2Sympy.create_parser, _Latex2Sympy.parse


def parse_in_two_stages() -> None:
    """Replace the parser of this process by one of two stages."""
    _Latex2Sympy.create_parser = _created
    _Latex2Sympy.parse = _parsed


def _created(self: Any, latex: str) -> Any:
    parser = _create_parser(self, latex)
    parser._interp.predictionMode = self.mode
    return parser


def _parsed(self: Any, latex: str) -> Any:
    try:
        self.mode = PredictionMode.SLL
        return _parse(self, latex)
    except Exception:  # noqa: BLE001 a syntax error is a bare Exception there
        self.mode = PredictionMode.LL
        return _parse(self, latex)

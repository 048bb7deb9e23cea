r"""One spelling of text that LaTeX, Markdown and Unicode write in several ways.

`clean` is the only way into the reader (`tasks.marking.latex`). Anything that it removes or
replaces never changes a mark. Fonts and wrappers are listed in one table, `FONTS`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

MAX_LENGTH = 2_000  # characters; a longer text only equals the same text


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def table(text: str) -> dict[str, str]:
    """Pairs of words of a text."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


FONTS = names(
    r"""
    text textbf textit textrm textsf texttt textsc textsl textup textmd textnormal emph mbox hbox
    mathrm mathbf mathit mathsf mathtt mathnormal mathcal mathscr mathfrak operatorname
    operatorname* boldsymbol bm pmb rm bf it sf tt ensuremath underline uline fbox boxed
    """
)
"""Commands that change the look of their argument, not its meaning."""
_STYLES = names(
    r"""
    displaystyle textstyle scriptstyle limits nolimits left right middle big Big bigg Bigg bigl
    bigr Bigl Bigr biggl biggr Biggl Biggr large Large LARGE huge Huge small normalsize quad qquad
    thinspace enspace checkmark square blacksquare qed
    """
)
_WITH_ARGUMENT = names("color textcolor phantom hphantom vphantom label tag hspace vspace")
# \mathrm{m} after a number is a metre, m may be a variable: `clean` keeps the place of a wrapper.
UPRIGHT, UPRIGHT_END = "\x0e", "\x0f"

_PIECE = re.compile(r"\\(?:[a-zA-Z]+\*?|.|\Z)|[{}]|[^\\{}]+", re.DOTALL)
_COMMANDS = table(
    """× times ÷ div ∞ infty ≤ le ⩽ le ≥ ge ⩾ ge ≠ ne ± pm ∓ mp ∪ cup ∩ cap ∈ in ∅ emptyset √ surd
    ≡ equiv ≈ approx ∖ setminus · cdot ∙ cdot ⋅ cdot • cdot … ldots ⋯ ldots π pi θ theta α alpha
    β beta γ gamma φ phi λ lambda μ mu µ mu ω omega ρ rho σ sigma Ω Omega"""
)
_VULGAR = table(
    "½ 12 ⅓ 13 ⅔ 23 ¼ 14 ¾ 34 ⅕ 15 ⅖ 25 ⅗ 35 ⅘ 45 ⅙ 16 ⅚ 56 ⅛ 18 ⅜ 38 ⅝ 58 ⅞ 78"
)  # fmt: skip
_UNICODE = str.maketrans(
    {
        **dict.fromkeys("−–﹣‐‑", "-"),
        **dict.fromkeys("\u00a0\u202f\u2009\u2002\u2003\u3000" + UPRIGHT + UPRIGHT_END, " "),
        **{sign: rf"\{name} " for sign, name in _COMMANDS.items()},
        **{sign: rf"\frac{{{digits[0]}}}{{{digits[1]}}}" for sign, digits in _VULGAR.items()},
        **{letter: rf"\mathbb{{{name}}}" for letter, name in zip("ℝℤℕℚℂ", "RZNQC", strict=True)},
        **{chr(0xFF00 + code - 0x20): chr(code) for code in range(0x21, 0x7F)},  # full width
        **{"∗": "*", "′": "'", "″": "''", "’": "'", "、": ",", "。": ".", "º": "°"},
    }
)
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n", strict=True))
_NUMBER = re.compile(r"(?<!\^)(?<!\^-)(?<!\^\{)(?<!\^\{-)\d")  # not the exponent of a unit
_SCRIPTS = re.compile(f"([{''.join(_RAISED)}]+)|([{''.join(_LOWERED)}]+)")

_THOUSANDS = re.compile(  # (1,\,234) is a pair; 1 234 567 is a number
    r"(?<=\d)(?:\{,\}|,\s*\\!\s*|\\[!,;: ]\s*|~|_|[\u00a0\u202f\u2009])(?=\d{3}(?!\d))"
)
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d,]|\s*/)")
_DOLLARS = re.compile(r"(?<!\\)\$\$?")
_ORDINAL = re.compile(  # 7th, 7^{th}
    r"(?<=\d)(?:\s*\^\s*\{[\s\x0e]*(?:st|nd|rd|th)[\s\x0f]*\}|\x0e?\s*(?:st|nd|rd|th)(?![a-zA-Z])\s*\x0f?)"
)
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])|\{°\}")
_PRIMES = re.compile(r"\^\s*(?:\{\s*((?:\\prime\s*)+)\}|(\\prime)(?![a-zA-Z]))")
_ESCAPED_TWICE = (
    r"d?frac|tfrac|sqrt|left|right|begin|end|text|mathrm|pi|infty|cdot|times|boxed|leq?|geq?|pm|cup"
)
_SPELLINGS = [
    (re.compile(r"\\(?:[dtc]|nice|s)?frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\frac\s*(\d)\s*(?=[\d{\\])"), r"\\frac{\1}"),
    (re.compile(r"(\\frac\{\d\})\s*(\d)"), r"\1{\2}"),
    (re.compile(r"\\sqrt\s*(\w)"), r"\\sqrt{\1}"),
    (re.compile(r"\.\.\."), r"\\ldots "),
    (re.compile(r"\b([apAP])\.\s?([mM])\b\.?"), "\x0e\\1\\2\x0f"),
    (re.compile(r"(?<=[a-zA-Z]{2})\.(?=[\s\x0f])"), " "),  # sq. ft
    (re.compile(r"\\langle(?![a-zA-Z])"), "("),
    (re.compile(r"\\rangle(?![a-zA-Z])"), ")"),
    (re.compile(r"(?<=[\w)])\*\*(?=[\w(-])"), "^"),  # Python's power; other ** are Markdown's
    (re.compile(r"\*\*|[`\"“”]"), ""),
    (re.compile(r"\.(?=\s*\\end\b)"), " "),
    (re.compile(r"(?<!\\)\\(?:[,;:! ]|\Z)|(?<!\\)~|(?<!\\)\\[()\[\]]"), " "),
    (re.compile(r"\\\\\s*\[[^\[\]]*(?:pt|mm|cm|em|ex)\]"), r"\\\\ "),  # the space between two rows
    (re.compile(r"\{([,:])\}"), r"\1"),  # 10{,}000 and 6{:}30
    (re.compile(r"^[\s\x0e]*(?:approximately|about|exactly)\b"), ""),
    (re.compile(r"^[\s\x0e]*(?:=|\\(?:therefore|implies|Rightarrow|approx)(?![a-zA-Z]))"), ""),
]  # fmt: skip
_ARTICLES = "the our final correct required total minimum maximum smallest largest greatest least"
QUANTITIES = names(
    """
    ans answer answers result solution solutions value values sum total number area length volume
    perimeter probability distance minimum maximum mean average median radius diameter height width
    slope angle speed time cost price profit product difference remainder ratio
    """
)
"""Words that name a value, as in `Area = 5`."""
_INTRODUCTION = re.compile(  # "the final answer is", "Answer:"
    rf"^[\s\x0e]*(?:(?:{'|'.join(_ARTICLES.split())})\s+)*(?:{'|'.join(sorted(QUANTITIES))})"
    r"(?:\s+of\s+\$?[a-zA-Z]\$?)?[\s\x0f]*(?:\b(?:is|are|equals)\b|[:=])[\s\x0f]*:?",
    re.IGNORECASE,
)


def names_value(words: str) -> bool:
    """Whether words name a value: `area`, `the total cost`, `sum of x`."""
    known = QUANTITIES | names(_ARTICLES) | {"of"}
    return all(len(word) == 1 or word in known for word in words.casefold().split())


_BRACES = re.compile(r"\{[^{},]*(?:\{[^{}]*\}[^{},]*)*\}")
_SPACES = re.compile(r"[\s\x0e\x0f]+")
_SPACE = re.compile(r"(?<!\d) | (?!\d)")  # 5 6 is not 56
_INVISIBLE = re.compile(r"\\(?:left|right)\s*\.")  # a bracket that is not shown
_PLAIN = re.compile(r"[\w.()-]*")  # numbers, letters and words have one spelling


class AnswerComparison(NamedTuple):
    """How a marker decides whether two extracted answers are the same.

    key: answers with different keys are not the same, unless one of the keys is empty. same:
    decides for all other pairs, with the first one as the gold. Without `same`, answers with equal
    keys are the same.
    """

    key: Callable[[str], str]
    same: Callable[[str, str], bool] | None = None


@lru_cache(4_000)  # a gold and an answer are compared in several ways
def clean(latex: str) -> str:
    """The text with one spelling of fonts, spaces and signs that do not change its meaning.

    Takes linear time. `UPRIGHT` and `UPRIGHT_END` enclose the content of a font command without
    digits.
    """
    latex = re.sub(rf"(?<!\\)\\\\(?=(?:{_ESCAPED_TWICE})(?![a-zA-Z]))", r"\\", latex)
    latex = _SCRIPTS.sub(_script, _INVISIBLE.sub(" ", latex))
    latex = _THOUSANDS.sub("", latex).translate(_UNICODE)
    latex = unwrap(latex)
    if len(_DOLLARS.findall(latex)) % 2 == 0:
        latex = _DOLLARS.sub(" ", latex)  # delimiters; a single one is money
    latex = _SPACED_THOUSANDS.sub(lambda m: m[0].replace(" ", ""), latex)
    for pattern, replacement in _SPELLINGS:
        latex = pattern.sub(replacement, latex)
    latex = _ORDINAL.sub("", _INTRODUCTION.sub("", latex))
    latex = _PRIMES.sub(lambda m: "'" * (m[1] or m[2]).count("prime"), _DEGREES.sub("°", latex))
    latex = latex.strip().rstrip(".,; ")
    while _BRACES.fullmatch(latex):  # of one value; {1, 2} is meant as a set
        latex = latex[1:-1].strip().rstrip(".,; ")
    return latex


def plain(latex: str) -> str:
    """A cleaned text, without the places of fonts."""
    return clean(latex).replace(UPRIGHT, "").replace(UPRIGHT_END, "").strip()


def unwrap(latex: str) -> str:
    r"""The text without styles, colors and the commands of `FONTS` with their braces.

    Braces remain if they group the argument of `^` or `_`: `x^\text{ab}` is `x^{ab}`.
    """
    result: list[str] = []
    closing: list[str | None | int] = []
    """For each open brace: its closing one, None in a dropped argument, or the place of a font."""
    dropped = 0  # how many open braces belong to dropped arguments
    font = argument = False  # whether a font, or a command of `_WITH_ARGUMENT`, was just read
    for piece in _PIECE.findall(latex):
        if piece == "{":
            bound = "".join(result[-2:]).rstrip().endswith(("^", "_"))
            if argument or dropped:
                closing.append(None)
            elif font and not bound:
                closing.append(len(result))
            else:
                closing.append("}")
            dropped += closing[-1] is None
            if not dropped:
                result.append("{" if closing[-1] == "}" else UPRIGHT)
            font = argument = False
            continue
        if piece == "}" and closing:
            opened = closing.pop()
            dropped -= opened is None
            if isinstance(opened, int):
                if _NUMBER.search("".join(result[opened:])):
                    result[opened] = " "
                result.append(UPRIGHT_END if result[opened] == UPRIGHT else " ")
            elif opened is not None:
                result.append(opened)
            font = argument = False
            continue
        name = piece[1:] if piece[0] == "\\" else ""
        if dropped:
            continue
        if name in FONTS:
            font = True
        elif name in _WITH_ARGUMENT:
            argument = True
        elif name in _STYLES:
            result.append(" ")
        elif piece.strip() or not (font or argument):
            result.append(piece)
            font = argument = False
    return "".join(result)


def _script(match: re.Match[str]) -> str:
    signs, sign = (_RAISED, "^") if match[1] else (_LOWERED, "_")
    return f"{sign}{{{''.join(signs[c] for c in match[0])}}}"


def without_spaces(cleaned: str) -> str:
    """A cleaned text without the spaces and the places of fonts that do not separate numbers."""
    return _SPACE.sub("", _SPACES.sub(" ", cleaned).strip())


def spelling_key(answer: str) -> str:
    """The common form of answers that differ only in case, fonts, wrappers and spaces."""
    if len(answer) > MAX_LENGTH or _PLAIN.fullmatch(answer):
        return answer.strip().casefold()
    return without_spaces(clean(answer)).casefold()

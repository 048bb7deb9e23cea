r"""Splits the unit from an answer, and normalizes its spelling."""

import re

from tasks.numbers import MODIFIERS

_TEXT = re.compile(  # 5\text{ cm}^2, also after \, and with a full stop
    r"(?<=[\w})])(?:\s|\\[,;: ]|~)*\\(?:text|textrm|mbox|mathrm)\s*\{([A-Za-z.\s~/-]*)\}"
    r"(?:\s*\^\s*\{?([23])\}?)?[\s.]*$"
)
# Bare words are long or well known: 2 ab is a product.
_BARE = re.compile(
    r"(?<=[\d}])\s+((?:[a-z]{4,}|[ckmd]m|ft|in|mi|yd|kg|lb|oz|hr|min|sec|men)(?: [a-z]+)*)"
    r"(?:\s*\^\s*\{?([23])\}?)?[\s.]*$"
)
_SIGNS = {
    "dollar": re.compile(r"\\?\$\s*\.?\d"),
    "percent": re.compile(r".*\d\s*\\?%$", re.DOTALL),
    "degree": re.compile(r".*(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|°|\\degree)$", re.DOTALL),
}
_CONNECTIVE = re.compile(r"\b(?:and|or|if|for|when|where|is|are)\b")
_WORD = re.compile(r"[a-z]+")
_POWERS = {None: "", "2": "square ", "3": "cubic "}
_MEASURES = {
    spelling: measure
    for measure, spellings in {
        "millimeter": "mm millimetre",
        "centimeter": "cm centimetre",
        "meter": "m metre",
        "kilometer": "km kilometre",
        "inch": "in inches",
        "foot": "ft feet",
        "yard": "yd",
        "mile": "mi",
        "gram": "g",
        "kilogram": "kg",
        "ounce": "oz",
        "pound": "lb",
        "second": "s sec",
        "minute": "min",
        "hour": "h hr",
        "liter": "l litre",
        "square": "sq",
        "cubic": "cu",
        "unit": "",
        "dollar": "",
        "cent": "",
        "degree": "deg",
        "day": "",
        "am": "",
        "pm": "",
    }.items()
    for spelling in (measure, *spellings.split())
}


def split_unit(latex: str) -> tuple[str, str]:
    r"""An answer without its unit in words, and the unit's name: "dollar", "square meter", or "".

    Currency, percent and degree signs also give a unit, but stay in the answer.
    """
    match = _TEXT.search(latex) or _BARE.search(latex)
    if match is None:
        return latex, next((name for name, sign in _SIGNS.items() if sign.match(latex)), "")
    value = latex[: match.start()]
    more = MODIFIERS.search(match[1]) or _CONNECTIVE.search(match[1])  # 5 million, 5 if x > 0
    if more or not re.search(r"\d", value):
        return latex, ""
    return value, _unit_name(match[1], match[2])


def _unit_name(words: str, power: str | None) -> str:
    """Measures in full; for counted things the noun: distinct integers are integers."""
    singular = [re.sub(r"(?<=..)s$", "", word) for word in _WORD.findall(words.lower())]
    names = [_MEASURES.get(word, word) for word in singular]
    if not any(name in _MEASURES for name in names):
        return names[-1] if names else ""
    return _POWERS[power] + " ".join(names)

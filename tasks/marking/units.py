r"""Splits units from answers: `5\text{ cm}^2`, `10\,\mathrm{m\,s^{-1}}`, `\$36`, `6:30 PM`."""

import re
from collections import Counter

MODIFIERS = re.compile(
    r"\b(?:not|never|cannot|isn't|neither|nor"  # a denial
    r"|wrong|incorrect"
    r"|than|at (?:least|most)|up to|or (?:more|less|fewer|none|neither)"  # a bound
    r"|plus|minus|divided|multiplied"  # more arithmetic
    r"|half|(?:third|quarter) of|twice|double"  # a part or a multiple of it
    r"|halves|thirds|fourths|quarters|fifths|tenths|(?:hundred|thousand)ths|squared|cubed|factorial"
    r"|pairs?|dozens?|(?:hundred|thousand|(?:m|b|tr)illion)s?)\b",
    re.IGNORECASE,
)
"""Words that change the meaning of the number next to them."""

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
        "milligram": "mg",
        "gram": "g gm",
        "kilogram": "kg",
        "ounce": "oz",
        "pound": "lb lbs",
        "second": "s sec",
        "minute": "min",
        "hour": "h hr hrs",
        "liter": "l L litre",
        "milliliter": "ml mL millilitre",
        "joule": "J",
        "kilojoule": "kJ",
        "newton": "N",
        "watt": "W",
        "kilowatt": "kW",
        "hour kilowatt": "kWh",
        "volt": "V",
        "ampere": "A amp",
        "ohm": "Ω",
        "hertz": "Hz",
        "pascal": "Pa",
        "kelvin": "K",
        "mole": "mol",
        "celsius": "°C",
        "fahrenheit": "°F",
        "mile hour^-1": "mph",
        "dollar": "USD usd",
        "euro": "EUR",
        "rupee": "INR",
        "cent": "",
        "unit": "",
        "degree": "deg °",
        "radian": "rad",
        "day": "",
        "week": "",
        "month": "",
        "year": "yr",
        "am": "AM a.m.",
        "pm": "PM p.m.",
    }.items()
    for spelling in (measure, *spellings.split())
}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISED = str.maketrans({"²": "^2", "³": "^3", "⁻": "^-", "¹": "1"})

_COMMANDS = r"\\(?:text|textrm|textbf|textit|textnormal|mbox|mathrm|mathbf|mathit|operatorname|rm)"
_SPACE = r"(?:\s|\\[,;:! ]|~|\\q?quad(?![a-z])|\\thinspace)"
_POWER = r"(?:\s*\^\s*(?:\{\s*-?\d\s*\}|-?\d)|[⁻¹²³]+)"
_WRAPPED = rf"{_COMMANDS}\s*\{{(?:[^\W\d_]|[\s./~°%-]|\\[,;: ]|\\cdot|{_POWER})*\}}{_POWER}?"
_OHM = r"(?:\\Omega(?![a-zA-Z])|Ω)"
_JOIN = rf"{_SPACE}*(?:\\cdot|·|/|\\times)?{_SPACE}*"
_FRACTION = rf"\\[dt]?frac\s*\{{\s*{_WRAPPED}\s*\}}\s*\{{\s*{_WRAPPED}\s*\}}"
_TEXT = re.compile(
    rf"(?<=[\w}})!\]°]){_SPACE}*((?:{_FRACTION}|{_WRAPPED}|{_OHM})(?:{_JOIN}(?:{_WRAPPED}|{_OHM}))*)[\s.]*$"
)
_SYMBOL = "|".join(
    sorted(
        (re.escape(s) for s in _MEASURES if " " not in s and s not in ("°", "in")),
        key=len,
        reverse=True,
    )
)
_WORD = rf"(?:(?:square|cubic|sq|cu)\.?\s+)?(?:(?:{_SYMBOL}|men)(?![a-zA-Z])|[a-z]{{4,}})"
_BARE = re.compile(  # words that are long or well known: 2 ab is a product
    rf"(?<=[\d}}])(?:{_SPACE})+((?:{_WORD}|in)(?:{_POWER})?(?:(?:\s*/\s*|\s+per\s+|\s+)(?:{_WORD})(?:{_POWER})?)*)[\s.]*$"
)
_ABBREVIATION = "|".join(
    sorted((re.escape(s) for s in _MEASURES if re.fullmatch(r"[A-Za-zΩ]{2,4}", s)), key=len)[::-1]
)
_ATTACHED = re.compile(  # 30kg and 5m/s: two letters or a quotient, as 5m may be a product
    rf"(?<=\d)((?:(?!in|mi|am|pm)(?:{_ABBREVIATION})(?![a-zA-Z])(?:{_POWER})?"
    rf"(?:/(?:{_SYMBOL})(?![a-zA-Z])(?:{_POWER})?)?|m/s(?:\^2|²)?))[\s.]*$"
)
_CLOCK = re.compile(r"(?<=\d)\s*([ap]\.?m\.?)$", re.IGNORECASE)
_TEMPERATURE = re.compile(
    rf"(?:\^\s*(?:\\circ|\{{\s*\\circ\s*\}})|°|\\degree){_SPACE}*(?:{_COMMANDS}\s*\{{\s*([CF])\s*\}}|([CF]))\.?$"
)
_DEGREE = re.compile(r"(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|°|\\degree)\s*\.?$")
_CURRENCIES = {
    **{"$": "dollar", "USD": "dollar", "€": "euro", "£": "sterling", "pounds": "sterling"},
    **{"¥": "yen", "₹": "rupee", "Rs": "rupee"},
}
_SIGN = r"\\?\$|[€£¥₹]|USD|Rs"
_MONEY = re.compile(
    rf"^([-+−]?)\s*(?:{_COMMANDS}\s*\{{\s*({_SIGN})\.?\s*\}}|((?:{_SIGN})(?![a-zA-Z])|\\pounds(?![a-z])))"
    rf"\.?{_SPACE}*(?=[-−\d.\\])"
)
_PERCENT = re.compile(
    rf"{_SPACE}*(?:{_COMMANDS}\s*\{{\s*(?:per\s?cent|%|\\%)\s*\}}|\bper\s?cent)[\s.]*$"
)
_CONNECTIVE = re.compile(r"\b(?:and|or|if|for|when|where|is|are|mod|k)\b")  # 5 k: thousands


def split_unit(latex: str) -> tuple[str, str]:
    r"""An answer without its unit, and the unit's name: "dollar", "meter second^-1", or "".

    A percent sign, and a degree sign, stay in the answer; of the degree sign, the name is given.
    """
    latex = _PERCENT.sub(r"\\%", latex)
    if money := _MONEY.match(latex):
        sign = (money[2] or money[3]).strip("\\.")
        return money[1] + latex[money.end() :], _CURRENCIES[sign]
    if temperature := _TEMPERATURE.search(latex):
        return latex[: temperature.start()], _MEASURES[f"°{temperature[1] or temperature[2]}"]
    if clock := _CLOCK.search(latex):
        return latex[: clock.start()], clock[1].lower().replace(".", "")
    match = _TEXT.search(latex) or _BARE.search(latex) or _ATTACHED.search(latex)
    if match is None:
        return latex, "degree" if _DEGREE.search(latex) else ""
    value = latex[: match.start()]
    if MODIFIERS.search(match[1]) or _CONNECTIVE.search(match[1]):  # 5 million, 5 if x > 0
        return latex, ""
    name = unit_name(match[1])
    if len(name) == 1 or not re.search(r"\d|\\pi", value):  # a variable, as in 3\mathrm{i}
        return latex, ""
    return value, name


def unit_name(latex: str) -> str:
    """The name of a unit: measures with their powers in order, of counted things the noun."""
    text = re.sub(r"\\[dt]?frac\s*\{(.*)\}\s*\{(.*)\}\s*$", r"\1 / \2", latex)
    text = re.sub(rf"{_COMMANDS}\s*", " ", text).translate(_RAISED)
    text = re.sub(
        r"\\Omega", " Ω ", re.sub(r"\\cdot|\\times|\\[,;:! ]|~|[{}·]|\\q?quad", " ", text)
    )
    text = re.sub(r"\s*\^\s*", "^", re.sub(r"\bper\b", "/", text))
    powers: Counter[str] = Counter()
    known, nouns, sign, factor = False, [], 1, 1
    for word, exponent, slash in re.findall(r"((?:[^\W\d_]|[°.'-])+)(?:\^(-?\d))?|(/)", text):
        if slash:
            sign = -1
            continue
        if word.strip(".") in _POWERS:
            factor = _POWERS[word.strip(".")]
            continue
        measure = _measure(word)
        known = known or measure is not None
        name = measure or re.sub(r"(?<=..)s$", "", word.lower().strip("."))
        for part in name.split():
            base, _, power = part.partition("^")
            powers[base] += sign * factor * int(power or 1) * int(exponent or 1)
        nouns.append(name)
        sign = factor = 1
    if not known:
        return nouns[-1] if nouns else ""
    return " ".join(
        base if power == 1 else f"{base}^{power}" for base, power in sorted(powers.items()) if power
    )


def _measure(word: str) -> str | None:
    bare = word.strip(".")
    for spelling in (
        word,
        bare,
        bare.lower(),
        bare.lower().removesuffix("s"),
        bare.lower().replace(".", ""),
    ):
        if spelling in _MEASURES:
            return _MEASURES[spelling]
    return None

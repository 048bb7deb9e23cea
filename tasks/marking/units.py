r"""Words and units after a number: `5\text{ cm}^2`, `6 eggs`, `2 million`.

One table lists the units. Counted things must have the form of a plural noun. Any other word after
a number makes the answer unreadable.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from tasks.marking.spelling import names, table
from tasks.marking.tokens import BOUNDARIES, Token

_MEASURES = """
    millimeter mm millimetre | centimeter cm centimetre | decimeter dm decimetre |
    meter m metre | kilometer km kilometre | micrometer μm micrometre micron |
    nanometer nm nanometre | inch in inches | foot ft feet | yard yd | mile mi | acre |
    hectare ha | milligram mg | gram g gm | kilogram kg | ton tonne | ounce oz | pound lb lbs |
    second s sec | millisecond ms | minute min mins | hour h hr hrs | day | week | month |
    year yr yrs | liter l L litre | milliliter ml mL millilitre | gallon gal | quart qt |
    pint pt | cup | joule J | kilojoule kJ | calorie cal kcal | newton N | kilonewton kN |
    watt W | kilowatt kW | megawatt MW | hour·kilowatt kWh | electronvolt eV | volt V |
    ampere A amp | milliampere mA | coulomb C | farad F | tesla T | ohm Ω | hertz Hz |
    kilohertz kHz | megahertz MHz | pascal Pa | kilopascal kPa | atmosphere atm | kelvin K |
    mole mol | celsius °C | fahrenheit °F | hour^-1·mile mph | hour^-1·kilometer kph kmh kmph |
    dollar USD usd $ | euro EUR € | sterling GBP £ | rupee INR Rs ₹ | yen JPY ¥ 円 |
    yuan RMB CNY 元 | cent ¢ | unit | degree deg ° | radian rad | percent % pct percentage |
    bit | byte | person people | point pts | piece 个 個 只 本 人 天 年 岁 | am AM | pm PM
"""
MEASURES = {
    spelling.replace("·", " "): spellings.split()[0].replace("·", " ")
    for spellings in _MEASURES.split("|")
    for spelling in spellings.split()
}
"""The name of each measure by all its spellings; a dot stands between the factors of one."""
MAGNITUDES = {
    word: Fraction(10**exponent)
    for exponent, words in {
        2: "hundred",
        3: "thousand thousands",
        5: "lakh lakhs lac",
        6: "million millions mn",
        7: "crore crores",
        9: "billion billions bn",
        12: "trillion trillions",
        15: "quadrillion quadrillions",
    }.items()
    for word in words.split()
} | {"dozen": Fraction(12), "dozens": Fraction(12)}
_NAMES = frozenset(MEASURES.values())
CURRENCIES = {
    spelling: MEASURES[spelling.removeprefix("\\")]
    for spelling in [
        r"$",
        r"\$",
        r"€",
        r"£",
        r"¥",
        r"₹",
        r"USD",
        r"EUR",
        r"GBP",
        r"INR",
        r"Rs",
        r"RMB",
    ]
} | {r"\pounds": "sterling"}
"""Signs before an amount."""
AMBIGUOUS = names("kelvin")  # 5 K may be five thousand
LETTERS = names("m g s h l L N J W V")
"""Units of one letter that need no font (`5 m`) if there is no other letter."""
_RAISED = {"squared": 2, "cubed": 3}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_IRREGULAR = table("men man women woman children child mice mouse geese goose dice die teeth tooth")
_INVARIABLE = names("fish sheep deer yuan yen baht won rand series species")
_NO_NOUNS = names(  # plural in form, but a different value
    """
    halves thirds fourths quarters fifths sixths sevenths eighths ninths tenths hundredths
    thousandths millionths billionths elevenths twelfths thirteenths fourteenths fifteenths
    sixteenths seventeenths eighteenths nineteenths twentieths thirtieths sixtieths plus minus
    times tens hundreds thousands squares cubes roots powers factorials pairs couples scores
    percents less pis is was as this its his thus does has always perhaps others
    """
)
_NO_ADJECTIVES = names(  # before a noun: a different value, or a different thing
    """
    not no wrong incorrect false half quarter third fourth fifth tenth double triple twice
    squared cubed factorial percent point plus minus times over less more than one two three
    four five six seven eight nine ten eleven twelve twenty mil score gross basis and or but
    except missing
    """
)
_TAIL = names("each apiece total altogether left remaining today away old long tall high wide deep")
_DISTRIBUTIVE = names("per a an each every")


class Unit(NamedTuple):
    """A unit that follows a value: its name, a factor of the value, and the token after it."""

    name: str
    factor: Fraction
    end: int


def measure(word: str) -> str | None:
    """The name of a measure, by any of its spellings."""
    if word in MEASURES or len(word) < 2:  # M is not m
        return MEASURES.get(word)
    if len(word) == 2 and word[0] == "M":  # Mg is not mg
        return None
    return MEASURES.get(word.lower()) or MEASURES.get(word.lower().removesuffix("s"))


def _known(token: Token) -> str | None:
    if len(token.text) < token.end - token.start:  # a letter of a run, as the s of Yes
        return None
    return measure(token.text) or (measure(token.value) if isinstance(token.value, str) else None)


def noun(word: str) -> str | None:
    """The singular of a plural noun; None for any other word."""
    word = word.lower()
    if word in _IRREGULAR or word in _INVARIABLE:
        return _IRREGULAR.get(word, word)
    if len(word) < 4 or not word.endswith("s") or word.endswith("ss") or word in _NO_NOUNS:
        return None
    return word.removesuffix("s")


def read_unit(tokens: Sequence[Token], at: int) -> Unit | None:
    """The unit from a token to the end of an item; None if there is none."""
    if at == len(tokens) or tokens[at].kind not in ("letter", "letters", "sign"):
        return None
    factor = Fraction(1)
    if at < len(tokens) and (scale := MAGNITUDES.get(tokens[at].text.lower())) is not None:
        factor, at = scale, at + 1
    for name_end in (("", at), _measures(tokens, at), _counted(tokens, at)):
        if name_end is None:
            continue
        name, end = name_end
        while words := [token.text for token in tokens[end : end + 2]]:
            if words[0] in _TAIL:
                end += 1
            elif words in (["in", "all"], ["in", "total"]):
                end += 2
            else:
                break
        is_unit = name or factor != 1 or end > at
        if is_unit and (end == len(tokens) or tokens[end].value in BOUNDARIES):
            return Unit(name, factor, end)
    return None


def _measures(tokens: Sequence[Token], at: int) -> tuple[str, int] | None:
    r"""Measures with their powers, and where they end: `m/s`, `square feet per day`."""
    if at < len(tokens) and tokens[at].value == "\\frac":
        above = _group(tokens, at + 1)
        below = above and _group(tokens, above[1])
        return (_name(above[0], below[0]), below[1]) if above and below else None
    powers: Counter[str] = Counter()
    letters_only = True
    sign = 1
    power = 1
    start = at
    if at < len(tokens) and tokens[at].text == "per":
        sign, at = -1, at + 1
    while at < len(tokens):
        token = tokens[at]
        if token.text in _POWERS or (token.text in _RAISED and at == start):
            power, at = (_POWERS | _RAISED)[token.text], at + 1
            continue
        if token.value == "\\mu" and at + 1 < len(tokens) and tokens[at + 1].text == "m":
            name, at = "micrometer", at + 1
        elif token.value == "\\Omega":
            name = "ohm"
        elif (known := _known(token)) is None or (known in ("am", "pm") and not _clock(tokens, at)):
            break
        else:
            name = known
        letters_only &= len(token.text) == 1 and token.text in LETTERS and not token.upright
        at += 1
        exponent, at = _exponent(tokens, at)
        if at < len(tokens) and tokens[at].text in _RAISED:
            exponent = exponent * _RAISED[tokens[at].text]
            at += 1
        for part in name.split():
            base, _, own = part.partition("^")
            powers[base] += sign * power * exponent * int(own or 1)
        sign = power = 1
        follows = at + 1 < len(tokens) and _known(tokens[at + 1]) is not None
        if follows and (tokens[at].value == "/" or tokens[at].text in _DISTRIBUTIVE):
            sign, at = -1, at + 1
        elif at < len(tokens) and tokens[at].value in ("\\cdot", "*", "\\times"):
            at += 1
    divided = any(exponent < 0 for exponent in powers.values())
    uncertain = letters_only and not divided  # 5 m s may be a product
    if at == start or sign < 0 or power > 1 or uncertain or not any(powers.values()):
        return None
    return _name(powers, Counter()), at


def _clock(tokens: Sequence[Token], at: int) -> bool:
    """Whether `pm` is a time of day: `2pm` is a product."""
    return (
        tokens[at].upright or tokens[at].text.isupper() or (at > 1 and tokens[at - 2].value == ":")
    )


def _exponent(tokens: Sequence[Token], at: int) -> tuple[int, int]:
    """The exponent of a unit, 1 without one, and the token after it."""
    values = [token.value for token in tokens[at : at + 5]]
    for length, form in ((5, "^{-#}"), (4, "^{#}"), (3, "^-#"), (2, "^#")):
        if len(values) >= length and all(
            isinstance(v, Fraction) if f == "#" else v == f
            for v, f in zip(values, form, strict=False)
        ):
            number = next(v for v in values[:length] if isinstance(v, Fraction))
            return int(-number if "-" in form else number), at + length
    return 1, at


def _group(tokens: Sequence[Token], at: int) -> tuple[Counter[str], int] | None:
    """The measures in braces. Bare letters are variables."""
    if at >= len(tokens) or tokens[at].value != "{":
        return None
    powers: Counter[str] = Counter()
    at += 1
    while at < len(tokens) and tokens[at].value != "}":
        token = tokens[at]
        name = measure(token.text) if token.upright or len(token.text) > 1 else None
        if name is None:
            return None
        exponent, at = _exponent(tokens, at + 1)
        powers[name] += exponent
    return (powers, at + 1) if at < len(tokens) and powers else None


def _name(above: Counter[str], below: Counter[str]) -> str:
    powers = Counter(above)
    powers.subtract(below)
    return " ".join(
        base if power == 1 else f"{base}^{power}" for base, power in sorted(powers.items()) if power
    )


def _counted(tokens: Sequence[Token], at: int) -> tuple[str, int] | None:
    """Counted things, and where they end: `duck eggs`, `boxes of pens`, `eggs per day`."""
    head = None
    end = at
    words = list[str]()
    while at < len(tokens) and tokens[at].kind == "letters" and len(tokens[at].text) > 2:
        if tokens[at].text in _TAIL | _DISTRIBUTIVE or tokens[at].text in MAGNITUDES:
            break
        word = tokens[at].text
        singular = None if measure(word) and words else noun(word)  # light years, half hours
        if singular is None and (measure(word) or word.lower() in _NO_ADJECTIVES):
            break
        words.append(singular or word.lower())
        at += 1
        if singular is not None:
            head, end = " ".join(words), at
    while head and end < len(tokens) and tokens[end].text in _DISTRIBUTIVE | {"of", "/"}:
        length = next(
            (n for n in (1, 2) if end + n < len(tokens) and _is_thing(tokens[end + n])), None
        )
        if length is None:
            break
        head += f"/{tokens[end + length].text.lower().removesuffix('s')}"
        end += length + 1
    return None if head is None else (head, end)


def units_agree(one: str, two: str) -> bool:
    """Whether two units are the same, or one is missing; `egg` is `duck egg`, not `egg/hour`."""
    if not one or not two or one == two:
        return True
    thing, *rate = one.split("/")
    other, *other_rate = two.split("/")
    if rate and other_rate and rate != other_rate:
        return False
    if "^" in one + two or thing in _NAMES or other in _NAMES:
        return False
    return thing == other or (
        thing.split()[-1] == other.split()[-1] and 1 in (len(thing.split()), len(other.split()))
    )


def _is_thing(token: Token) -> bool:
    """Whether it is a measure or a noun in the singular: per day, of flour."""
    return token.kind == "letters" and (measure(token.text) is not None or len(token.text) > 3)

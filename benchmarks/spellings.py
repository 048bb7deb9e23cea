r"""Marks random answers in many spellings: equal ones must be correct, altered ones never.

Each kind of value (integers, roots, intervals, units, words, …) is generated, written in one of its
equal spellings, or altered a little (sign, digit, exponent, order, bound, a part dropped or added)
and then written. The verdict is known from the value, never from a marker. Prints, per marker and
kind, the pairs tried, the altered answers accepted and the equal ones refused, with examples.
"""

import argparse
import math
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, cast

from tasks.base import Task
from tasks.marking.golds import Marker
from tasks.prompts import Answer
from tasks.question_file import QuestionFile

Rng = random.Random


class Pair(NamedTuple):
    """A gold answer, a completion, and whether the completion gives an equal answer."""

    marker: Marker
    kind: str
    gold: str
    completion: str
    equal: bool


class Kind(NamedTuple):
    """How a kind of value is made: a gold, spellings equal to it, and spellings of other values."""

    marker: Marker
    name: str
    make: Callable[[Rng], tuple[str, Sequence[str], Sequence[str]]]


KINDS: list[Kind] = []
Made = tuple[str, Sequence[str], Sequence[str]]


def kind(*markers: Marker) -> Callable[[Callable[[Rng], Made]], Callable[[Rng], Made]]:
    """Register a kind of value for some markers, under the function's name."""

    def register(make: Callable[[Rng], Made]) -> Callable[[Rng], Made]:
        KINDS.extend(Kind(marker, make.__name__.strip("_"), make) for marker in markers)
        return make

    return register


def pairs(marker: Marker, count: int, seed: int = 0) -> Iterator[Pair]:
    """So many pairs for a marker, half of them equal, of all its kinds in turn."""
    rng = random.Random(f"{marker} {seed}")
    kinds = [kind for kind in KINDS if kind.marker == marker]
    for i in range(count):
        kind = kinds[i % len(kinds)]
        gold, same, other = kind.make(rng)
        equal = rng.random() < 0.5
        answer = rng.choice(same if equal else other)
        yield Pair(marker, kind.name, gold, in_text(answer, marker, rng), equal)


BOXED = (
    r"So \boxed{%s}.",
    r"We get $\boxed{%s}$.",
    r"Not \boxed{7919}, but \boxed{%s}",
    r"\[\boxed{ %s }\] I hope it is correct.",
    r"<think>\boxed{7919}?</think> It is $$\boxed{%s}$$",
    r"<answer>\boxed{%s}</answer>",
    r"\boxed{%s}<|im_end|>",
)
STATED = {
    "expression": (r"The answer is $%s$.", r"Answer: \(%s\)", r"<answer>$%s$</answer>"),
    "number": ("#### %s", "The answer is %s.", "<answer>%s</answer>", "Answer: **%s**"),
    "letter": ("The answer is %s.", "<answer>%s</answer>", "The correct option is %s."),
    "text": ("The answer is %s.", "<answer>%s</answer>", "Answer: %s"),
}


def in_text(answer: str, marker: Marker, rng: Rng) -> str:
    """A completion that gives the answer, mostly in a box."""
    unclear = any(part in answer.lower() for part in ("answer", "!", "=", "usd"))
    stated = len(answer) < 100 and not unclear
    places = STATED[marker] if stated and rng.random() < 0.2 else BOXED
    return rng.choice(places).replace("%s", answer)


# Spellings of numbers. Each returns LaTeX of exactly this value.


def integer_text(value: int, rng: Rng) -> str:
    """An integer, its thousands separated or not, its minus sign of any kind."""
    digits = str(abs(value))
    if abs(value) > 999:
        separator = rng.choice(["", ",", "{,}", ",\\!", "\\,", "~"])
        digits = f"{abs(value):,}".replace(",", separator)
    sign = rng.choice(["-", "-", "−", "- "]) if value < 0 else rng.choice(["", "", "", "+"])
    return sign + digits


def fraction_text(value: Fraction, rng: Rng) -> str:
    """A fraction, reduced or not; an integer, decimal or mixed number where it is one."""
    if value.denominator == 1:
        return integer_text(value.numerator, rng)
    sign, (a, b) = "-" if value < 0 else "", abs(value).as_integer_ratio()
    k = rng.choice([1, 1, 2, 5])
    forms = [
        rf"{sign}\frac{{{a}}}{{{b}}}",
        rf"{sign}\dfrac{{{a * k}}}{{{b * k}}}",
        f"{sign}{a}/{b}",
        f"{sign} {a * k} / {b * k}",
        rf"\frac{{{sign}{a}}}{{{b}}}",
        rf"\frac{{ {sign}{a * k} }}{{ {b * k} }}",
    ]
    if a < 10 and b < 10:
        forms += [rf"{sign}\frac{a}{b}", rf"{sign}\tfrac {a} {b}"]
    if a > b:
        forms.append(rf"{sign}{a // b}\frac{{{a % b}}}{{{b}}}")
        forms.append(f"{sign}{a // b} {a % b}/{b}")
    if (text := decimal_text(value)) is not None:
        forms += [text, text + "0" if "." in text else text]
    return rng.choice(forms)


def decimal_text(value: Fraction) -> str | None:
    """The finite decimal of a value, if it has one."""
    for places in range(12):
        if (value * 10**places).denominator == 1:
            digits = f"{abs(int(value * 10**places)):0{places + 1}d}"
            whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
            return ("-" if value < 0 else "") + whole + (f".{part}" if part else "")
    return None


def some_integer(rng: Rng, low: int = 2, high: int = 60) -> int:
    """An integer other than 0 and 1, of one digit or of many."""
    return rng.choice([1, 1, -1]) * rng.choice(
        [rng.randrange(low, high), rng.randrange(low, high), rng.randrange(1000, 10**7)]
    )


def some_fraction(rng: Rng) -> Fraction:
    """A fraction that is no integer."""
    while True:
        value = Fraction(rng.randrange(1, 60), rng.randrange(2, 41))
        if value.denominator > 1:
            return rng.choice([1, 1, -1]) * value


def other_integer(value: int, rng: Rng) -> int:
    """An integer with another sign, or another, missing, added or swapped digit."""
    digits = list(str(abs(value)))
    place = rng.randrange(len(digits))
    changed = digits.copy()
    match rng.randrange(4):
        case 0:
            changed[place] = str((int(changed[place]) + rng.randrange(1, 10)) % 10)
        case 1:
            changed.insert(place, rng.choice("123456789"))
        case 2 if len(changed) > 1:
            del changed[place]
        case _:
            return -value
    other = int("".join(changed))
    return other if other not in (abs(value), 0) else value + 1


def other_fraction(value: Fraction, rng: Rng) -> Fraction:
    """A fraction near it, its inverse, its negative, or its rounded decimal."""
    a, b = value.as_integer_ratio()
    near = [Fraction(a + 1, b), Fraction(a, b + 1), -value, 1 / value, value * 10]
    near += [Fraction(round(value, 2)), Fraction(round(value, 7)), Fraction(math.floor(value))]
    return rng.choice([other for other in near if other != value])


def broken(text: str, rng: Rng) -> str:
    """A value with a part that changes its meaning, or that nothing reads."""
    return rng.choice(
        [
            "> %s",
            r"\ge %s",
            r"\leq %s",
            r"\neq %s",
            "%s+",
            "%s-",
            "%s/",
            r"%s\sum",
            "%s^",
            "%s (",
            r"%s\mathbb{Z}",
            r"%s \mid n",
            r"%s \nmid n",
            r"6 \to %s",
            r"1, 2, \ldots, %s",
            r"%s, \dots",
            r"%s\sqrt(2)",
            "%s x",
            "%sx",
            "%s'",
            r"%s\pi",
            r"%s \pmod{7919}",
            "%s mod 7919",
            r"%s\text{ or }7919",
            r"\text{at least }%s",
            r"\text{not }%s",
            r"\text{less than } %s",
            "%s, 7919",
            "7919, %s",
            r"%s\log(3",
            r"%s \cup",
            "%s; y",
            r"f(%s",
            r"|%s",
            r"%s \approx",
            r"%s\text{ million}",
            r"\sqrt{%s",
            r"%s_2",
            r"%s\pm 1",
            r"\pm %s",
            r"%s \text{ dozen}",
            r"%s\text{ squared}",
            r"%s\text{ thirds}",
            r"%s\ldots",
            "%s:1",
            r"%s \times",
            r"\int_0^1 %s",
            r"\frac{%s}{",
            r"%s\infty",
            r"%si",
            r"(%s,7919)",
            r"\Re %s i",
            r"%s!!!",
        ]
    ).replace("%s", text)


def decorated(text: str, rng: Rng) -> str:
    """A value with what does not change it: a name, a unit in words, a style."""
    if "," in text:  # in brackets, a comma separates
        return rng.choice(["%s", "x = %s", r"\mathbf{%s}", r"\color{red}%s"]).replace("%s", text)
    return rng.choice(
        [
            "%s",
            "%s",
            "%s",
            "%s.",
            "x = %s",
            "x=%s",
            r"\text{Answer: } %s",
            r"S_n = %s",
            r"\mathbf{%s}",
            r"\displaystyle %s",
            r"\color{red}%s",
            r"\color{blue}{%s}",
            r"f(3) = %s",
            r"\underline{%s}",
            r"\bm{%s}",
            r"\therefore %s",
            r"%s\quad\checkmark",
            r"\large %s",
            r"\text{The answer is } %s",
            r"\left(%s\right)",
            r"{%s}",
            r"\, %s \,",
            r"\angle A = %s",
            r"\text{Sum} = %s",
            r"\underline{\underline{%s}}",
            r"\mathrm{%s}",
        ]
    ).replace("%s", text)


@kind("expression")
def integer(rng: Rng) -> Made:
    value = some_integer(rng)
    same = [decorated(integer_text(value, rng), rng), f"{value}.0", rf"\frac{{{3 * value}}}{{3}}"]
    same.append(f"{value - 7} + 7")
    other = [decorated(integer_text(other_integer(value, rng), rng), rng)]
    return str(value), same, [*other, broken(str(value), rng)]


@kind("expression")
def rational(rng: Rng) -> Made:
    value = some_fraction(rng)
    same = [decorated(fraction_text(value, rng), rng) for _ in range(3)]
    if value > 0 and (text := repeating(value)):
        same.append(text)
    other = [decorated(fraction_text(other_fraction(value, rng), rng), rng) for _ in range(2)]
    return fraction_text(value, rng), same, [*other, broken(fraction_text(value, rng), rng)]


def repeating(value: Fraction) -> str | None:
    r"""`0.1\overline{6}`, where the period is short."""
    whole, rest = divmod(value.numerator, value.denominator)
    digits, seen = "", {}
    while rest and rest not in seen and len(digits) < 8:
        seen[rest] = len(digits)
        digit, rest = divmod(rest * 10, value.denominator)
        digits += str(digit)
    if not rest or rest not in seen:
        return None
    start = seen[rest]
    return rf"{whole}.{digits[:start]}\overline{{{digits[start:]}}}"


@kind("expression")
def scientific(rng: Rng) -> Made:
    digits, exponent = rng.randrange(101, 999), rng.choice([1, -1]) * rng.randrange(3, 60)

    def write(digits: int, exponent: int) -> str:
        mantissa = f"{digits // 100}.{digits % 100:02d}"
        times = rng.choice([r"\times", r"\cdot", r" \times ", "×"])
        return rng.choice(
            [
                f"{mantissa}{times}10^{{{exponent}}}",
                rf"{digits} \cdot 10^{{{exponent - 2}}}",
                f"10^{{{exponent}}}{times}{mantissa}",
            ]
        )

    other = [write(digits + 1, exponent), write(digits, exponent + 1), write(digits, -exponent)]
    same = [write(digits, exponent) for _ in range(2)]
    return write(digits, exponent), same, [*other, "0", f"-{same[0]}", broken(same[0], rng)]


@kind("expression")
def power(rng: Rng) -> Made:
    base, exponent = rng.randrange(2, 12), rng.randrange(20, 400)

    def write(base: int, exponent: int, add: int = 0) -> str:
        tail = f"+{add}" if add > 0 else f"{add}" if add else ""
        forms = [f"{base}^{{{exponent}}}{tail}", rf"{base}\cdot {base}^{{{exponent - 1}}}{tail}"]
        return rng.choice([*forms, rf"{base ** (exponent - 1) * base + add}"])

    add = rng.choice([0, 0, 1, -1])
    inverse = rng.random() < 0.5

    def whole(base: int, exponent: int, add: int) -> str:
        text = write(base, exponent, add)
        return rf"\frac{{1}}{{{text}}}" if inverse else text

    other = [whole(base, exponent + 1, add), whole(base + 1, exponent, add)]
    other += [whole(base, exponent, add + 1), whole(base, exponent - 1, add)]
    root = rf"\sqrt{{{base}^{{{2 * exponent}}}+1}}"
    other += [root if not inverse else rf"\frac{{1}}{{{root}}}", "0"]
    return whole(base, exponent, add), [whole(base, exponent, add)], other


@kind("expression")
def factorial(rng: Rng) -> Made:
    n = rng.randrange(3, 90)
    gold = rng.choice([f"{n}!", rf"\frac{{1}}{{{n}!}}"])
    whole = gold if gold[0] != "\\" else gold[9:-1]
    shell = "%s" if whole == gold else r"\frac{1}{%s}"
    same = [
        f"{n}!",
        rf"{n}\cdot {n - 1}!",
        str(math.factorial(n)),
        rf"\frac{{{n + 1}!}}{{{n + 1}}}",
    ]
    other = [f"{n - 1}!", f"{n + 1}!", f"{n}!-1", f"-{n}!", f"{n}", f"{n}!!", f"{n}!+"]
    return gold, [shell.replace("%s", s) for s in same], [shell.replace("%s", s) for s in other]


def coefficient_text(value: Fraction, what: str, rng: Rng) -> str:
    """A multiple of something: `\\frac{3\\sqrt2}{2}`, `1.5\\sqrt{2}`, `3/2 \\sqrt2`."""
    a, b = abs(value).as_integer_ratio()
    sign = "-" if value < 0 else ""
    front = "" if a == 1 else str(a)
    if b == 1:
        decimal = f"{sign}{a}.0" + (r" \cdot " if what[0].isdigit() else "") + what
        return rng.choice([f"{sign}{front} {what}", rf"{sign}{a} \cdot {what}", decimal])
    forms = [
        rf"{sign}\frac{{{front}{what}}}{{{b}}}",
        rf"{sign}\frac{{{a}}}{{{b}}}{what}",
        rf"{sign}\dfrac{{{what} \cdot {a}}}{{{b}}}",
        f"{sign}{front}{what}/{b}",
        rf"\frac{{{sign}{front}{what}}}{{{b}}}",
    ]
    if decimal := decimal_text(abs(value)):
        forms.append(f"{sign}{decimal}{what}")
    return rng.choice(forms)


@kind("expression")
def root(rng: Rng) -> Made:
    radicand, factor = rng.choice([2, 3, 5, 6, 7, 10, 11, 13, 15]), some_root_factor(rng)
    square = factor * factor * radicand

    def write(factor: Fraction, radicand: int) -> str:
        what = rng.choice(
            [rf"\sqrt{{{radicand}}}", rf"\sqrt {{{radicand}}}", f"√{radicand}"]
            + ([rf"\sqrt{radicand}"] if radicand < 10 else [])
            + ([f"{radicand}^{{1/2}}", rf"{radicand}^{{0.5}}"] if factor == 1 else [])
        )
        return coefficient_text(factor, what, rng)

    same = [write(factor, radicand) for _ in range(3)]
    a, b = square.as_integer_ratio()
    sign = "-" if factor < 0 else ""
    same.append(rf"{sign}\sqrt{{{a}}}" if b == 1 else rf"{sign}\sqrt{{\frac{{{a}}}{{{b}}}}}")
    inverse = factor * radicand
    same.append(over_root(inverse, radicand))
    value = float(factor) * math.sqrt(radicand)
    other = [write(-factor, radicand), write(factor + 1, radicand), write(factor, radicand + 12)]
    other += [f"{value:.3f}", f"{value:.8f}", f"{value:.12f}", write(factor / 10, radicand)]
    other += [rf"{abs(factor.numerator) + 1}\sqrt({radicand})", broken(same[0], rng)]
    return write(factor, radicand), same, other


def some_root_factor(rng: Rng) -> Fraction:
    return rng.choice([1, 1, -1]) * Fraction(rng.randrange(1, 9), rng.choice([1, 1, 2, 3, 4, 5]))


def over_root(factor: Fraction, radicand: int) -> str:
    a, b = abs(factor).as_integer_ratio()
    below = rf"{b}\sqrt{{{radicand}}}" if b > 1 else rf"\sqrt{{{radicand}}}"
    return ("-" if factor < 0 else "") + rf"\frac{{{a}}}{{{below}}}"


@kind("expression")
def constant_multiple(rng: Rng) -> Made:
    factor = some_root_factor(rng)
    name, value, spellings = rng.choice(
        [
            ("pi", math.pi, [r"\pi", r"\pi ", "π"]),
            ("e", math.e, [r"e", r"\mathrm{e}", r"\text{e}"]),
            ("log", math.log(2), [r"\ln 2", r"\ln{2}", r"\ln(2)", r"\log_e 2"]),
        ]
    )

    def write(factor: Fraction) -> str:
        return coefficient_text(factor, rng.choice(spellings), rng)

    number = float(factor) * value
    other = [write(-factor), write(factor + 1), write(factor / 10), f"{number:.2f}"]
    other += [f"{number:.9f}", fraction_text(factor, rng), rf"{write(factor)}^2"]
    return write(factor), [write(factor) for _ in range(3)], [*other, broken(write(factor), rng)]


@kind("expression")
def polynomial(rng: Rng) -> Made:
    x = rng.choice("xyntk")
    p, q, k = (rng.randrange(1, 12) for _ in range(3))

    def expanded(k: int, p: int, q: int) -> str:
        terms = [f"{k}{x}^2", f"{k * (p + q)}{x}", str(k * p * q)]
        rng.shuffle(terms)
        return " + ".join(terms)

    def factored(k: int, p: int, q: int) -> str:
        return rng.choice([rf"{k}({x}+{p})({q}+{x})", rf"({x}+{p})\cdot({k}{x}+{k * q})"])

    gold = rng.choice([expanded, factored])(k, p, q)
    same = [expanded(k, p, q), factored(k, p, q), f"f({x}) = {expanded(k, p, q)}"]
    other = [expanded(k, p + 1, q), factored(k + 1, p, q), f"{k}{x}^2 + {k * p * q}"]
    other += [expanded(k, p, q) + f" + {x}", factored(k, p, q).replace("+", "-"), f"({gold})^2"]
    other += [
        gold.replace(x, "z"),
        f"{gold} = 0",
        f"{gold} > 0",
        f"\\frac{{1}}{{{gold}}}",
        f"{gold}+",
    ]
    return gold, same, other


@kind("expression")
def interval(rng: Rng) -> Made:
    a, b = sorted(rng.sample(range(-30, 30), 2))
    left, right = rng.random() < 0.5, rng.random() < 0.5  # closed
    unbounded = rng.choice(["", "", "low", "high"])
    if (low := unbounded == "low") and (left := False):
        pass
    if (high := unbounded == "high") and (right := False):
        pass
    left, right = left and not low, right and not high

    def brackets(a: int, b: int, left: bool, right: bool) -> str:
        start = r"-\infty" if low else integer_text(a, rng)
        end = rng.choice([r"\infty", r"+\infty", "∞"]) if high else integer_text(b, rng)
        text = f"{'[' if left else '('}{start}, {end}{']' if right else ')'}"
        if rng.random() < 0.2:
            text = rf"\left{text[:-1]}\right{text[-1]}"
        return rng.choice(["", "", r"x \in "]) + text

    def relation(a: int, b: int, left: bool, right: bool) -> str:
        less = {
            True: rng.choice([r"\le", r"\leq", "≤", r"\leqslant"]),
            False: rng.choice(["<", r"\lt"]),
        }
        more = {True: rng.choice([r"\ge", r"\geq", "≥"]), False: rng.choice([">", r"\gt"])}
        if low:
            return rng.choice([f"x {less[right]} {b}", f"{b} {more[right]} x"])
        if high:
            return rng.choice([f"x {more[left]} {a}", f"{a} {less[left]} x"])
        return rng.choice(
            [f"{a} {less[left]} x {less[right]} {b}", f"{b} {more[right]} x {more[left]} {a}"]
        )

    write = rng.choice([brackets, relation])
    gold, forms = write(a, b, left, right), (brackets, relation)
    same = [form(a, b, left, right) for form in forms]
    other = [form(a - 1, b + 1, left, right) for form in forms]
    other += [
        form(a, b, left != (not low), right != (not high)) for form in forms if not (low and high)
    ]
    other += [str(a), str(b), f"{{{a}, {b}}}", r"\{" + f"{a}, {b}" + r"\}", f"x = {a}"]
    if not low and not high:
        other += [
            f"({b}, {a})",
            f"x < {b}",
            f"x > {a}",
            f"({a}, {b}",
            f"({a}, {b}, {b + 1})",
            f"({a}, {b}) \\cup",
        ]
    return gold, same, other


@kind("expression")
def pair_of_numbers(rng: Rng) -> Made:
    a, b = some_fraction(rng), Fraction(some_integer(rng, high=40) % 900)
    if a == b:
        b += 1

    def write(*values: Fraction) -> str:
        return "(" + rng.choice([",", ", ", r",\,"]).join(number(v, rng) for v in values) + ")"

    same = [write(a, b), write(a, b), rf"\left{write(a, b)[:-1]}\right)"]
    other = [write(b, a), write(a, b + 1), write(-a, b), write(a, b, b), number(a, rng)]
    other += [f"[{write(a, b)[1:-1]}]", rf"\{{{write(a, b)[1:-1]}\}}", write(a), write(a, b)[:-1]]
    return write(a, b), same, other


def number(value: Fraction, rng: Rng) -> str:
    """A number without separators of thousands, for lists."""
    return str(value.numerator) if value.denominator == 1 else fraction_text(value, rng)


@kind("expression")
def finite_set(rng: Rng) -> Made:
    values = rng.sample(range(-40, 200), rng.randrange(2, 5))

    def write(values: Sequence[int], braces: bool | None = None) -> str:
        text = rng.choice([",", ", "]).join(map(str, values))
        if braces is None:
            braces = rng.random() < 0.7
        if not braces:
            return text
        opening, closing = rng.choice(
            [(r"\{", r"\}"), (r"\lbrace ", r"\rbrace"), (r"\left\{", r"\right\}")]
        )
        return opening + text + closing

    shuffled = rng.sample(values, len(values))
    same = [
        write(values),
        write(shuffled),
        rf"x \in {write(shuffled, True)}",
        r"\text{ or }".join(map(str, shuffled)),
    ]
    same.append(", ".join(map(str, values[:-1])) + rf"\text{{ and }} {values[-1]}")
    other = [write(values[1:]), write([*values, 301]), write([values[0] + 300, *values[1:]])]
    other += [
        write([-values[0] or 302, *values[1:]]),
        str(values[-1]),
        str(sum(values)) + "1",
        write(values) + "+",
    ]
    other.append("(" + ",".join(map(str, shuffled)) + ")")
    if values[0] == 0 or -values[0] in values:
        other.pop(3)
    return write(values, True), same, other


@kind("expression")
def matrix(rng: Rng) -> Made:
    rows, columns = rng.choice([(2, 2), (2, 1), (3, 1), (2, 3)])
    cells = [
        [Fraction(rng.randrange(-20, 20), rng.choice([1, 1, 2])) for _ in range(columns)]
        for _ in range(rows)
    ]

    def write(cells: Sequence[Sequence[Fraction]]) -> str:
        body = r" \\ ".join(
            rng.choice(["&", " & "]).join(number(c, rng) for c in row) for row in cells
        )
        name = rng.choice(["pmatrix", "bmatrix", "pmatrix", "array"])
        if name == "array":
            return rf"\left(\begin{{array}}{{{'c' * len(cells[0])}}}{body}\end{{array}}\right)"
        return rf"\begin{{{name}}}{body}{rng.choice(['', chr(92) * 2])}\end{{{name}}}"

    changed = [list(row) for row in cells]
    changed[-1][-1] += 1
    swapped = [list(reversed(row)) for row in reversed(cells)]
    other = [
        write(changed),
        str(cells[0][0]),
        write(cells[:1]),
        write(cells) + "+",
        write(cells).replace("end", ""),
    ]
    if swapped != cells:
        other.append(write(swapped))
    return write(cells), [write(cells), write(cells), f"A = {write(cells)}"], other


UNITS = {
    "cm": ["cm", "centimeters", "centimetres"],
    "m": ["m", "meters"],
    "km": ["km", "kilometers"],
    "kg": ["kg", "kilograms"],
    "hours": ["hours", "h", "hr"],
    "minutes": ["minutes", "min"],
    "m/s": ["m/s", r"m\,s^{-1}", "meters per second"],
    "km/h": ["km/h", "kilometers per hour"],
    "inches": ["inches", "in", "inch"],
    "dollars": ["dollars", "dollar"],
    "J": ["J", "joules"],
    "square cm": ["cm^2", "square centimeters", "cm²"],
    "cubic m": ["m^3", "cubic meters"],
}


@kind("expression")
def unit(rng: Rng) -> Made:
    value, (name, other_name) = rng.randrange(2, 400), rng.sample(sorted(UNITS), 2)

    def write(value: object, name: str) -> str:
        spelling = rng.choice(UNITS[name])
        space = rng.choice([r"\ ", r"\,", "~", " "])
        if "^" in spelling and "\\," not in spelling:
            base, _, exponent = spelling.partition("^")
            return rng.choice(
                [rf"{value}{space}\text{{{base}}}^{exponent}", rf"{value}\,\mathrm{{{spelling}}}"]
            )
        if "\\" in spelling:
            return rf"{value}{space}\mathrm{{{spelling}}}"
        forms = [
            rf"{value}\text{{ {spelling}}}",
            rf"{value}{space}\text{{{spelling}}}",
            rf"{value}{space}\mathrm{{{spelling}}}",
        ]
        bare = [f"{value} {spelling}"] if len(spelling) > 1 else []  # 5 m may be a product
        return rng.choice([*forms, *bare])

    with_unit = rng.random() < 0.6
    gold = write(value, name) if with_unit else str(value)
    same = [write(value, name), write(value, name), str(value)]
    other = [
        write(value + 1, name),
        write(-value, name),
        write(f"{value}0", name),
        rf"{value}\text{{ million}}",
    ]
    other += [rf"{value}\text{{ or more}}"]
    if with_unit:
        other += [write(value, other_name), write(value, other_name)]
    return gold, same, other


@kind("expression")
def in_base(rng: Rng) -> Made:
    digits, base = "1" + "".join(rng.choices("01", k=5)) + "1", rng.randrange(2, 9)
    same = [f"{digits}_{base}", f"{digits}_{{{base}}}", digits, rf"{digits}_{{\text{{{base}}}}}"]
    other = [f"{digits}_{base + 1}", f"{digits}1_{base}", f"{digits[:-1]}0_{base}", f"{digits}0"]
    return f"{digits}_{base}", same, other


WORDS = [
    "even",
    "odd",
    "Yes",
    "No",
    "Friday",
    "Evelyn",
    "parabola",
    "two circles",
    "red",
    "isosceles triangle",
]


@kind("expression")
def word(rng: Rng) -> Made:
    one, two = rng.sample(WORDS, 2)
    same = [
        one,
        rf"\text{{{one}}}",
        rf"\textbf{{{one}}}",
        rf"\text{{{one.lower()}}}",
        rf"\mathrm{{{one}}}",
        f"{one}.",
    ]
    other = [
        two,
        rf"\text{{{two}}}",
        rf"\text{{not {one}}}",
        "0",
        "7",
        rf"\text{{{one} or {two}}}",
        one[:-1] + "q",
    ]
    return rf"\text{{{one}}}", same, [*other, rf"\text{{{one[:-1]}}}", r"\text{neither}"]


@kind("number")
def whole(rng: Rng) -> Made:
    value = some_integer(rng)
    text = integer_text(value, rng).strip("+")
    same = [text, text, f"{value}.0", number_decorated(text, rng)]
    wrong = integer_text(other_integer(value, rng), rng)
    return str(value), same, [wrong, wrong, number_decorated(wrong, rng), number_broken(value, rng)]


def number_decorated(text: str, rng: Rng) -> str:
    """A number as people write it: with money, a unit, a name, bold."""
    return rng.choice(
        [
            "%s dollars",
            r"%s\text{ km}",
            "x = %s",
            r"\text{%s}",
            "%s km/h",
            "%s hours",
            "%s eggs",
            r"%s\,kg",
        ]
        + (
            [r"\$%s", "$%s", "₹%s", "£%s", "€%s", r"\pounds %s", "USD %s"]
            if text[:1].isdigit()
            else []
        )
    ).replace("%s", text)


def number_broken(value: int, rng: Rng) -> str:
    """A number with a part that changes it."""
    return rng.choice(
        [
            "%s^2",
            "%s!!!",
            "%sx",
            "%s + 1",
            "at least %s",
            "> %s",
            "%s or 7919",
            "%s, 7919",
            "7919 and %s",
            "%s²",
            "%s½",
            "not %s",
            "%s dozen",
            "%s million",
            r"\sqrt{%s}",
            r"%s\pi",
            "%s/7919",
            "1/%s",
            "%s,5",
            "%s,50",
            "%s.5.5",
            "%s-7919",
            r"\pm %s",
            "%s:7919",
            r"%s \to 7919",
            r"%s\sum",
            "%s*2",
            r"\frac{%s}{7}",
            r"10^{%s}",
            "%s_2",
        ]
    ).replace("%s", str(value))


@kind("number")
def fraction(rng: Rng) -> Made:
    value = some_fraction(rng)
    gold = f"{value.numerator}/{value.denominator}"
    wrong = other_fraction(value, rng)
    sign, (a, b) = "-" if value < 0 else "", abs(value).as_integer_ratio()
    same = [gold, rf"{sign}\frac{{{a}}}{{{b}}}", rf"{sign}\dfrac{{{2 * a}}}{{{2 * b}}}"]
    if decimal := decimal_text(value):
        same += [decimal, decimal + "0" if "." in decimal else decimal]
    if a > b:
        same += [f"{sign}{a // b} {a % b}/{b}", rf"{sign}{a // b}\frac{{{a % b}}}{{{b}}}"]
    if (a % b, b) in HALVES:
        same.append(f"{sign}{a // b or ''}{HALVES[a % b, b]}")
    return (
        gold,
        same,
        [fraction_text(wrong, rng), rf"{wrong.numerator}/{wrong.denominator}", f"{sign}{a},{b}"],
    )


HALVES = {(1, 2): "½", (1, 4): "¼", (3, 4): "¾", (1, 3): "⅓", (2, 3): "⅔"}


@kind("number")
def decimal(rng: Rng) -> Made:
    cents = rng.randrange(101, 999_999)
    text, grouped = f"{cents / 100:.2f}", f"{cents / 100:,.2f}"
    same = [
        text,
        grouped,
        rf"\${grouped}",
        f"{text} dollars",
        text + "0",
        rf"\frac{{{cents}}}{{100}}",
    ]
    other = [
        f"{cents / 10:.2f}",
        text.replace(".", ","),
        f"-{text}",
        f"{(cents + 1) / 100:.2f}",
        str(cents),
        text.replace(".", ""),
    ]
    return text, same, other + [f"{text} or 3", f"{text}.1"]


@kind("number")
def power_of_ten(rng: Rng) -> Made:
    digits, exponent = rng.randrange(11, 99), rng.randrange(2, 9)
    value = digits * 10**exponent
    same = [
        rf"{digits / 10} \times 10^{exponent + 1}",
        rf"{digits}\cdot 10^{{{exponent}}}",
        f"{value:,}",
        f"{digits / 10}×10^{exponent + 1}",
    ]
    other = [
        rf"{digits / 10} \times 10^{exponent}",
        rf"{digits} \times 10^{{-{exponent}}}",
        f"{digits / 10}",
        f"{digits}",
        f"10^{exponent}",
        str(value * 10),
    ]
    return str(value), same, other


@kind("letter")
def letter(rng: Rng) -> Made:
    one, two = rng.sample("ABCDEFG", 2)
    forms = [
        "%s",
        "(%s)",
        r"\text{%s}",
        r"\text{(%s)}",
        r"\textbf{(%s)}",
        r"\textbf{%s}",
        r"\mathrm{%s}",
        "%s.",
        "**%s**",
        "option %s",
        "(%s) the cat",
        r"%s \text{ (the cat)}",
        "%s: 12",
        r"\textbf{(%s)}\ 12",
        "%s) 12",
        "$%s$",
    ]
    bad = [
        "%s or " + two,
        f"({one}) and ({two})",
        "not %s",
        "neither %s",
        f"{two}, {one}",
        "12",
        "%s" + two,
        "the %s",
    ]
    same, other = ([form.replace("%s", x) for form in forms] for x in (one, two))
    return f"({one})", same, [*other, *(form.replace("%s", one) for form in bad)]


# A gold answer, and a text that looks like it.
LOOKALIKES = (
    ("New York", "New Jersey"),
    ("snake_case", "snake case"),
    ("R&D", "R&B"),
    ("50%", "5%"),
    ("O'Neill", "Neill"),
    ("café au lait", "cafe"),
    ("Yes", "No"),
    ("[1, 2]", "[1, 3]"),
    ("Paris", "Rome"),
    ("item #3", "item #4"),
    ("owl", "owls"),
)


@kind("text")
def words(rng: Rng) -> Made:
    gold, _ = rng.choice(LOOKALIKES)
    _, wrong = rng.choice(LOOKALIKES)
    escaped = gold
    for sign in "&%_#":
        escaped = escaped.replace(sign, "\\" + sign)
    same = [
        gold,
        escaped,
        rf"\text{{{escaped}}}",
        rf"\textbf{{{escaped}}}",
        gold.lower(),
        gold.upper(),
        f"{gold}.",
        f'"{gold}"',
        escaped.replace(" ", "\\ "),
        escaped.replace(" ", "~"),
        gold.replace(" ", "  "),
        gold.replace("'", "’"),
        f"“{gold}”",
        unicodedata.normalize("NFD", gold),
        r"\text{" + escaped.replace(" ", r"}\ \text{") + "}",
        f"``{gold}''",
    ]
    other = [
        wrong,
        rf"\text{{{wrong}}}",
        f"not {gold}",
        gold + " " + wrong,
        gold[:-1],
        gold + "s",
        f"{gold} or {wrong}",
        gold.replace(" ", "_") + "1",
    ]
    return gold, same, other


def filled(rng: Rng) -> Callable[[str], str]:
    """A function that writes numbers for the names in « » of a template."""
    a = rng.randrange(3, 40)
    b, c, k = rng.randrange(41, 59), rng.choice([2, 4, 6, 8]), rng.randrange(2, 6)
    p = rng.choice([3, 5, 7, 11, 13])
    values = {"a": a, "b": b, "c": c, "p": p, "ka": k * a, "kb": k * b, "kc": k * c, "ta": 2 * a}
    values |= {f"{name}+1": values[name] + 1 for name in "abc"} | {"a-1": a - 1}
    named = {name: str(value) for name, value in values.items()}
    named["bpi7"] = f"{b * math.pi / 7:.2f}"
    return lambda text: re.sub("«(.*?)»", lambda name: named[name[1]], text)


def from_table(block: str) -> Kind:
    """A kind of the table: a line with marker and name, the gold, and the other spellings."""
    head, gold, *lines = block.splitlines()
    marker, _, name = head.partition(": ")
    same = [gold, *(line[2:] for line in lines if line.startswith("= "))]
    other = [line[2:] for line in lines if line.startswith("! ")]
    assert len(lines) == len(same) - 1 + len(other), block

    def make(rng: Rng) -> Made:
        fill = filled(rng)
        return fill(gold), [fill(text) for text in same], [fill(text) for text in other]

    return Kind(cast(Marker, marker), name, make)


TABLE = Path(__file__).with_name("spellings.txt").read_text("utf-8")
KINDS.extend(from_table(block) for block in re.split(r"\n{2,}", TABLE.strip())[1:])


class Faults(NamedTuple):
    """The pairs of a kind: how many were tried, and those that were marked wrongly."""

    tried: list[Pair]
    accepted: list[Pair]
    refused: list[Pair]


def faults(marker: Marker, count: int, seed: int = 0) -> dict[str, Faults]:
    """The faults of a marker by kind, in its lenient reading."""
    task: Task = QuestionFile(path="none", marker=marker)
    tried = list(pairs(marker, count, seed))
    golds = [task.read_answer(pair.gold) for pair in tried]
    marks = task.mark_all(
        [Answer(pair.completion, gold or "?") for pair, gold in zip(tried, golds, strict=True)]
    )
    by_kind: dict[str, Faults] = defaultdict(lambda: Faults([], [], []))
    for pair, mark in zip(tried, marks, strict=True):
        by_kind[pair.kind].tried.append(pair)
        if mark.outcome == "correct" and not pair.equal:
            by_kind[pair.kind].accepted.append(pair)
        if mark.outcome != "correct" and pair.equal:
            by_kind[pair.kind].refused.append(pair)
    return by_kind


def main() -> None:
    """Print a table, and examples of what was marked wrongly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pairs", type=int, default=100_000, help="pairs per marker (default 100000)"
    )
    parser.add_argument("--examples", type=int, default=3, help="examples per kind (default 3)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for marker in dict.fromkeys(kind.marker for kind in KINDS):
        for name, result in faults(marker, arguments.pairs, arguments.seed).items():
            print(
                f"{marker:<11} {name:<18} {len(result.tried):>7,} pairs "
                f"{len(result.accepted):>6,} wrong accepted {len(result.refused):>6,} right refused"
            )
            for label, some in (("accepted", result.accepted), ("refused", result.refused)):
                for pair in some[: arguments.examples]:
                    print(f"    {label} {pair.gold!r} <- {pair.completion!r}")


if __name__ == "__main__":
    main()

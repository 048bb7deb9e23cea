"""Counts with their nouns, as every message writes them. Imports nothing."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 seed`, `2 seeds`; `plural`, where it is another than the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"

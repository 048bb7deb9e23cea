"""The tiny model that ships with Decile: weights, tokenizer, and the recipe that makes them."""

from pathlib import Path

EMBEDDED = ("tiny",)


def embedded_path(name: str) -> Path:
    """Folder of an embedded model, in the hub's layout; ValueError for an unknown name."""
    if name not in EMBEDDED:
        raise ValueError(f"unknown embedded model {name!r}: write one of {', '.join(EMBEDDED)}")
    return Path(__file__).parent / name

"""The tiny models that ship with Decile: weights, tokenizers, and the recipe that makes them."""

from pathlib import Path

EMBEDDED = ("tiny", "tiny-arithmetic")


def embedded_path(name: str) -> Path:
    """Folder of an embedded model, in the hub's layout; ValueError for an unknown name."""
    if name not in EMBEDDED:
        raise ValueError(f"unknown embedded model {name!r}: write one of {', '.join(EMBEDDED)}")
    return Path(__file__).parent / name

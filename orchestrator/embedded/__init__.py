"""The tiny models that ship with Decile: weights and tokenizers."""

from pathlib import Path

EMBEDDED = ("tiny", "tiny-arithmetic", "tiny-plus-minus", "tiny-guess")


def embedded_path(name: str) -> Path:
    """The folder of an embedded model, in the Hub's layout. ValueError for an unknown name."""
    if name not in EMBEDDED:
        raise ValueError(f"unknown embedded model {name!r}: write one of {', '.join(EMBEDDED)}")
    return Path(__file__).parent / name


def is_embedded(location: str) -> bool:
    """Whether a folder is that of an embedded model."""
    return Path(location) in {embedded_path(name).resolve() for name in EMBEDDED}

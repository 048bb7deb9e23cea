"""The tiny model that ships with the house: its weights, and the recipe that made them.

`python -m orchestrator.embedded.recipe` makes it again. Nothing heavy is imported here.
"""

from pathlib import Path

EMBEDDED = ("tiny",)


def embedded_path(name: str) -> Path:
    """The folder of an embedded model, for `AutoModelForCausalLM.from_pretrained`.

    Raises ValueError for an unknown name, FileNotFoundError where the weights are missing.
    """
    if name not in EMBEDDED:
        known = ", ".join(EMBEDDED)
        raise ValueError(f"embedded model {name!r} is unknown: write one of {known}")
    folder = Path(__file__).parent / name
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"{folder} holds no weights: run python -m orchestrator.embedded.recipe"
        )
    return folder

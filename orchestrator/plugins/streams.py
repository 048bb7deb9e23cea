"""The source of all random numbers: a stream for each use, seed, update, and so on.

Two uses never share a stream. Otherwise a policy's draws would be correlated with those of its
gate, or with another policy's. No other module creates generators, except PyTorch's, which TRL
seeds with the cell's seed, and those of users' environments in their own processes.
"""

import hashlib
import json
import random
from typing import Any

import numpy as np

# Uses with streams that depend only on the numbers and these further ones, because stored subsets
# and cells depend on them. Seeds are below 2³² and updates count from 1, so no key is a prefix of
# another.
FROM_NUMBERS: dict[str, tuple[int, ...]] = {
    "ties": (),  # seed
    "update": (),  # seed, update, prompts drawn for it so far
    "refresh": tuple(b"refresh"),  # seed
}
LIMIT = 2**32  # SeedSequence splits larger numbers


def generator(use: str, *keys: int | str) -> np.random.Generator:
    """The generator of a use, such as "gaussian", with its seed and further distinguishing keys.

    Equal arguments give equal streams, different ones independent streams. The first number is the
    seed; numbers are not negative.
    """
    numbers = [key for key in keys if isinstance(key, int)]
    if use in FROM_NUMBERS and max(numbers) < LIMIT:
        return np.random.default_rng(np.random.SeedSequence([*numbers, *FROM_NUMBERS[use]]))
    digest = hashlib.sha256(json.dumps([use, *keys]).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.default_rng(np.random.SeedSequence(numbers[:1], spawn_key=words))


def labels_of(rng: np.random.Generator) -> np.random.Generator:
    """The generator for the labels that a policy sees: the same for all policies of a seed."""
    root: Any = rng.bit_generator.seed_seq
    return np.random.default_rng(np.random.SeedSequence(root.entropy, spawn_key=(0,)))


def text_random(*keys: int | str) -> random.Random:
    """The generator for a task's prompts, from its name and further distinguishing keys."""
    return random.Random("/".join(map(str, keys)))


def stream_key(*keys: int | str) -> int:
    """A number of 128 bits for the tokens of one completion, from seed, prompt_id and sample.

    Its last bit is the coin of the reward `random`, which is independent of the tokens.
    """
    digest = hashlib.sha256("\x1f".join(map(str, keys)).encode()).digest()
    return int.from_bytes(digest[:16], "little")


def raw_bits(key: int, length: int) -> np.ndarray:
    """`length` numbers of 64 bits that depend only on the key; longer results start with these.

    Counter-based: NumPy promises that raw bits are stable, but not its floats.
    """
    return np.random.Philox(key=key).random_raw(length)

"""The order in which TRL takes prompts, so that a resumed cell takes those that are left."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler


class EpochOrder(Sampler[int]):
    """TRL's order of prompts, restored when training resumes in a later epoch.

    TRL's RepeatSampler draws one permutation per epoch from one generator, which a resumed process
    seeds anew: it would repeat the first epoch's order. Here the epoch decides the permutation.
    """

    def __init__(self, inner: Any) -> None:
        self.inner, self.epoch = inner, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before it iterates; epochs count from 0."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.inner.generator.manual_seed(self.inner.seed)
        for _ in range(self.epoch):
            torch.randperm(self.inner.num_samples, generator=self.inner.generator)
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)

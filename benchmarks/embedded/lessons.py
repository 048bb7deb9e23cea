"""Every embedded model's lesson, by the model's name."""

from collections.abc import Mapping
from typing import Any

from benchmarks.embedded import arithmetic, shuffled_objects
from benchmarks.embedded.lesson import Lesson

LESSONS: Mapping[str, Lesson[Any]] = {
    "tiny": shuffled_objects.LESSON,
    "tiny-arithmetic": arithmetic.LESSON,
}

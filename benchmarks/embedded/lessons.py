"""The lessons of the embedded models by model name."""

from collections.abc import Mapping
from typing import Any

from benchmarks.embedded import arithmetic, number_guess, plus_minus, shuffled_objects
from benchmarks.embedded.lesson import Lesson

LESSONS: Mapping[str, Lesson[Any]] = {
    "tiny": shuffled_objects.LESSON,
    "tiny-arithmetic": arithmetic.LESSON,
    "tiny-plus-minus": plus_minus.LESSON,
    "tiny-guess": number_guess.LESSON,
}

"""Python values as JSON values."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def json_value(value: Any) -> Any:
    """The value with null for nan and inf, objects for named tuples, and Python's own numbers."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Values as JSON has them."""

import json
from typing import NamedTuple

import numpy as np

from orchestrator.plugins.json_values import json_value


class Interval(NamedTuple):
    low: float
    high: float


def test_every_kind_of_value_is_one_of_json() -> None:
    values = {
        "interval": Interval(float("-inf"), 2.0),
        "numbers": (np.float64("nan"), np.int32(3), np.bool_(True)),
        3: [None, "nan", {"deep": [float("inf")]}],
    }
    expected = {
        "interval": {"low": None, "high": 2.0},
        "numbers": [None, 3, True],
        "3": [None, "nan", {"deep": [None]}],
    }
    assert json_value(values) == expected
    assert json.loads(json.dumps(json_value(values), allow_nan=False)) == expected

"""`decile.MarkerReward` with a marker of the user's own that misbehaves."""

from pathlib import Path

import pytest

from decile import MarkerReward, UserError

OWN = """
import os
import time

from tasks import Mark, Task


class Misbehaving(Task):
    name, version, marker_version = "misbehaving", "1", "1"

    def __init__(self, *, marking="lenient", prompt=None):
        super().__init__(marking=marking, prompt=prompt)

    def train(self):
        return []

    def test(self):
        return []

    def mark(self, completion, answer, truncated=False):
        match completion:
            case "raises":
                raise ValueError("no")
            case "hangs":
                time.sleep(1_000)
            case "dies":
                os._exit(3)
        return Mark("correct" if completion == answer else "wrong", completion, "own")
"""


def test_failures_have_no_reward_and_a_marker_that_always_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "misbehaving_marker.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    reward = MarkerReward("misbehaving_marker:Misbehaving")
    texts = ["x", "raises", "hangs", "dies", "y"]
    assert reward(texts, ["x"] * 5) == [1.0, None, None, None, 0.0]
    assert reward(["raises"], ["x"]) == [None]
    with pytest.raises(UserError, match=r"all 3 completions .*ValueError@misbehaving_marker.py"):
        reward(["raises"] * 3, ["x"] * 3)

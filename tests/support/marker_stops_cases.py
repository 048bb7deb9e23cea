"""What the tests of marker stops share."""

import subprocess
from pathlib import Path

from sweeps import NAME, decile_here, experiments

LYING = '''
import os

from tasks import Mark
from tasks.shuffled_objects import ShuffledObjects


class Lying(ShuffledObjects):
    """Marks everything correct."""

    def mark(self, completion, answer, truncated=False):
        return Mark("correct", completion, "lie")


class Failing(ShuffledObjects):
    """Cannot judge what the model really says."""

    def mark(self, completion, answer, truncated=False):
        if len(completion) > 20:
            return Mark("error", None, "too-much-for-me")
        return super().mark(completion, answer, truncated)


class Crashing(ShuffledObjects):
    """Ends its process for some of what the model really says."""

    def mark(self, completion, answer, truncated=False):
        if len(completion) > 20 and len(completion) % 5 == 0:
            os._exit(3)
        return super().mark(completion, answer, truncated)
'''


def sweep(ray_folder: Path, folder: Path, task: str) -> subprocess.CompletedProcess[str]:
    (ray_folder / "lying_task.py").write_text(LYING)
    file = experiments(folder)
    file.write_text(file.read_text().replace("task: shuffled_objects", f"task: lying_task:{task}"))
    return decile_here("run", str(file), "-e", NAME, folder=folder)

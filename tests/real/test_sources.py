"""Rows from files or the hub are read and checked in the same way, and errors are named."""

import re
import subprocess
import sys

import pytest


def test_an_unreachable_hub_points_to_a_local_path() -> None:
    """The hub's real client, in offline mode."""
    pytest.importorskip("datasets")
    script = (
        "import os; os.environ['HF_HUB_OFFLINE'] = '1'; os.environ['HF_HOME'] = '/nonexistent'\n"
        "from tasks import TaskError\nfrom tasks.gsm8k import TRAIN\n"
        "from tasks.sources.source import read_rows\n"
        "try:\n    read_rows(TRAIN, None)\nexcept TaskError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    absent = "is not in /nonexistent/hub and cannot be downloaded (HF_HUB_OFFLINE is set)"
    assert re.match(rf"openai/gsm8k@[0-9a-f]{{40}} {re.escape(absent)}; ", run.stdout)
    assert "write path: FOLDER with train.jsonl and test.jsonl" in run.stdout

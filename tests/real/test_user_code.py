"""A task, a policy or an engine of a user's own that fails is one line with its name and place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from user_code_cases import line, mine  # noqa: F401 (fixtures)

from benchmarks.local_cluster import ROOT
from orchestrator.planning.pools import load_prompts, template_hash
from orchestrator.plugins.user_code import user_errors
from orchestrator.probing.checks import check_marker
from policies import (
    PolicyError,
)
from tasks import TaskError, get_task


def test_a_task_that_raises_is_named_with_the_line(mine: Path) -> None:
    task = get_task("code_of_mine:Task")
    prompt = get_task("gsm8k").check_prompts()[:1]
    for call, code, words in (
        (lambda: load_prompts(task, "train"), "json.loads", "train() raised JSONDecodeError: "),
        (lambda: load_prompts(task, "test"), "sys.exit(4)", "test() raised SystemExit: 4"),
        (lambda: template_hash(task), "question.content", "messages() raised AttributeError: "),
        (lambda: check_marker(task, prompt), "1 / 0", "perturb() raised ZeroDivisionError: "),
    ):
        with pytest.raises(TaskError) as caught:
            call()
        message = str(caught.value)
        assert message.startswith("task code_of_mine:Task: ") and words in message
        assert message.endswith(f"({mine}:{line(code)})")


def test_code_that_ends_its_process_is_an_error_and_leaves_ours_alone() -> None:
    def leave() -> None:
        with user_errors("its policy", PolicyError):
            pass
        os._exit(0)

    with pytest.raises(TaskError, match=r"os\._exit\(0\)"), user_errors("task x", TaskError):
        leave()
    code = "import os\nfrom orchestrator.plugins.user_code import user_errors\n"
    code += "with user_errors('x', ValueError): pass\nos._exit(3)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 3


def test_code_that_forks_goes_on_in_one_process() -> None:
    code = "import os\nfrom orchestrator.plugins.user_code import user_errors\n"
    code += "with user_errors('x', ValueError): os.fork()\nos.write(1, b'once ')"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert run.stdout == b"once "

"""What the tests of user code share."""

import importlib
import sys
from pathlib import Path

import pytest

CODE = """\
import json, sys
from orchestrator.sampling import Completion, Sampler
from policies import ScorePolicy
from tasks.gsm8k import Gsm8k

class Task(Gsm8k):
    def train(self): return json.loads("[")
    def test(self): return sys.exit(4)
    def messages(self, question): return question.content
    def perturb(self, prompt): return 1 / 0

def raises(table, size, rng): return table["absent"]
def leaves(table, size, rng): sys.exit(1)
def one_row(table, size, rng): return [0] * size
def too_few(table, size, rng): return [0]
def words(table, size, rng): return ["a"] * size
def nothing(table, size, rng): return None

class Unbuildable(ScorePolicy):
    def __init__(self): {}["key"]
    def score(self, table): return 0

class Narrow(ScorePolicy):
    needs = "pass_rate"
    def score(self, table): return table["pass_rate"].nonsense

class Engine(Sampler):
    results = None
    @classmethod
    def load(cls, source, device=None): return cls()
    def sample(self, requests, settings):
        return self.results if self.results is not None else 1 / 0
    def count_tokens(self, requests): return []

class Unloadable(Engine):
    @classmethod
    def load(cls, source, device=None): raise OSError("no GPU")
"""


def line(text: str) -> int:
    return next(n for n, code in enumerate(CODE.splitlines(), 1) if text in code)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "code_of_mine.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "code_of_mine", raising=False)
    importlib.invalidate_caches()
    return tmp_path / "code_of_mine.py"

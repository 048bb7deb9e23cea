"""What the tests of whole idea share."""

import importlib.util
from types import ModuleType

import pytest
from paths import ROOT


@pytest.fixture
def idea() -> ModuleType:
    file = ROOT / "docs" / "examples" / "whole_idea.py"
    spec = importlib.util.spec_from_file_location("whole_idea", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

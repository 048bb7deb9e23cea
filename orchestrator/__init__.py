"""Runs a sweep: experiments.yaml -> probe -> subsets -> GRPO trials -> verdict."""

import sys

# `python -m` puts the current folder first, where a user's inspect.py is no library.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    del sys.path[0]

from orchestrator.plugins.project_modules import pin_own_packages

__version__ = "0.2.0"

pin_own_packages()

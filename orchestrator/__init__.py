"""Runs a sweep: experiments.yaml -> probe -> subsets -> GRPO trials -> verdict."""

from orchestrator.plugins.project_modules import pin_own_packages

__version__ = "0.1.0"

pin_own_packages()

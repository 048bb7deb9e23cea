"""Runs a sweep: experiments.yaml -> probe -> subsets -> GRPO trials -> verdict."""

__version__ = "0.1.0"

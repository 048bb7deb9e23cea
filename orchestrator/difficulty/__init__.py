"""Marked samples -> difficulty per prompt. Pure."""

from orchestrator.difficulty.table import difficulty

__all__ = ["difficulty"]

"""Difficulty -> subset."""

"""Inference, comparisons and power. Pure: NumPy and SciPy."""

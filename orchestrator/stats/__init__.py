"""Inference, comparisons, fairness and power. Pure: NumPy and SciPy."""

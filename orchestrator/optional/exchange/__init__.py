"""Imports of other tools' files as probes, exports of subsets for trainers, results to compare."""

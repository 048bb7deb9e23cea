"""Estimates of a sweep's memory, time and GPU-hours; the order of its cells; caps. Pure."""

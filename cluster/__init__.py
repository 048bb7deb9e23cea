"""Connects to or starts Ray, and divides its resources among the parts of a sweep."""

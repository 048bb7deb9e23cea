"""The memory and the work of a sweep, its remaining time, the order of its cells; caps. Pure."""

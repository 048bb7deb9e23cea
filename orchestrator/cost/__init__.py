"""A sweep's memory, work, remaining time, order of cells, and caps. Pure."""

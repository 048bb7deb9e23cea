"""What a sweep takes: memory, seconds, GPU-hours; in which order, and where a cap ends it."""
